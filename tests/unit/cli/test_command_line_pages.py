"""The pages about the command line are true: the tour runs, the reference is what the commands say of themselves."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.cli import app, run
from support.nodes.process import NodeProcess

ROOT = Path(__file__).parents[3]
COMMANDS = [name for name in app if not name.startswith("-")]


def test_the_tour_of_the_command_line_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    page = (ROOT / "docs/howto/command-line.md").read_text()
    monkeypatch.chdir(tmp_path)
    printed = b""
    with NodeProcess(tmp_path) as node:
        monkeypatch.setenv("LOGBOOM_SERVERS", node.address)
        for step in steps_of("".join(re.findall(r"```shell\n(.*?)```", page, re.DOTALL))):
            code = run(shlex.split(step)[1:]) if is_plain(step) else run_in_shell(step, tmp_path)
            captured = capfdbinary.readouterr()
            assert (code, captured.err) == (0, b""), step
            printed += captured.out
    out = printed.decode(errors="replace")
    assert "1000\t998\n1001\t999\n" in out
    assert "c1,52.5\n" in out


def steps_of(script: str) -> Iterator[str]:
    """Commands of a script, each with its here-document."""
    lines = iter(script.splitlines())
    for line in lines:
        here = re.search(r"<<'(\w+)'", line)
        yield line if here is None else "\n".join([line, *iter(lines.__next__, here[1]), here[1]])


def is_plain(step: str) -> bool:
    """One command of ours, with nothing for a shell to do: it runs in this process, which is much quicker."""
    tokens = list(shlex.shlex(step, posix=False, punctuation_chars=True))
    return tokens[0] == "logboom" and not any(set(token) <= set("|&;<>()") for token in tokens)


def run_in_shell(step: str, directory: Path) -> int:
    program = directory / "bin/logboom"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m logboom "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    command = ["bash", "-e", "-o", "pipefail", "-c", step]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=300, check=False).returncode


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
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["delete", "describe"]
