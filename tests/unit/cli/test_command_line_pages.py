"""The pages about the command line are true: the tour runs, the reference is what the commands say of themselves."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from logboom.cli import app, run
from system.node import NodeProcess

ROOT = Path(__file__).parents[3]
COMMANDS = [name for name in app if not name.startswith("-")]


def test_the_tour_of_the_command_line_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/command-line.md").read_text()
    script = "\n".join(re.findall(r"```shell\n(.*?)```", page, re.DOTALL))
    binaries = tmp_path / "bin"
    binaries.mkdir()
    program = binaries / "logboom"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m logboom "$@"\n')
    program.chmod(0o755)
    with NodeProcess(tmp_path) as node:
        environment = os.environ | {"LOGBOOM_SERVERS": node.address, "PATH": f"{binaries}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode(errors="replace")
    assert done.stderr == b""
    out = done.stdout.decode(errors="replace")
    assert "1000\t998\n1001\t999\n" in out
    assert "c1,52.5\n" in out


def test_the_reference_is_what_the_commands_say() -> None:
    made = runpy.run_path(str(ROOT / "docs/reference/cli.py"))
    assert made["page"]() == (ROOT / "docs/reference/cli.md").read_text(), "run python docs/reference/cli.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"logboom {name}" in out


def test_without_arguments_a_beginner_sees_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    out = capsys.readouterr().out
    at = [out.index(f" {name} ") for name in ("serve", "topic", "write", "read", "head", "doctor", "load")]
    assert at == sorted(at)


def test_help_does_not_wait_for_what_commands_need() -> None:
    late = "{'pyarrow', 'numpy', 'duckdb', 'asyncio', 'logboom.broker', 'logboom.storage'}"
    code = f"import sys; from logboom.cli import run; run([]); print(sorted({late} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert "follow" in script


def test_the_bash_completion_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out + (
        'COMP_WORDS=(logboom topic de); COMP_CWORD=2; _logboom; echo "${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["delete", "describe"]
