from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from logboom.storage import DataDirectory, log_name
from support.nodes.warm import run_warm
from support.simulation.model import make_batch

LOG = log_name("events", uuid.UUID(int=1), 0)
COMMAND = (sys.executable, "-c", "from logboom.cli import main; main()")


def logboom(*arguments: str | Path, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    return run_warm(arguments, stdin=stdin, text=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one log of 20 batches, closed properly."""
    path = tmp_path / "data"
    with DataDirectory.open(str(path)) as directory:
        log = directory.open_log(LOG)
        for number in range(20):
            log.append_one(make_batch(number, 2, 0), 1 + number)
        directory.sync()
    return path


def damage(data: Path) -> Path:
    """Breaks the 8th batch, seqnos 14 and 15."""
    (path,) = (data / LOG).glob("*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 20 * 7 + 60] ^= 1
    path.write_bytes(content)
    return path


def test_a_sound_directory_exits_with_0_and_is_summed_up(data: Path) -> None:
    done = logboom("check", data)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 log, 1 segment, 20 batches, 40 records, ")
    assert done.stdout.endswith(" bytes: sound\n")


def test_damage_exits_with_1_and_says_where_which_seqnos_and_what_to_do(data: Path) -> None:
    path = damage(data)
    done = logboom("check", data)
    assert done.returncode == 1
    assert f"damage in {LOG}/{path.name} at byte " in done.stdout
    assert "(seqnos 14 to 15)" in done.stdout
    assert "to do: restore the file from a backup, or run `logboom repair`" in done.stdout
    assert "damaged (findings: 1 damage)" in done.stdout


def test_json_is_one_object_for_scripts(data: Path) -> None:
    path = damage(data)
    done = logboom("check", "--json", data)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["sound"], report["logs"], report["batches"]) == (False, 1, 19)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["file"], finding["seqno_from"], finding["seqno_until"]) == (
        "damage",
        str(path),
        14,
        16,
    )
    assert {"log", "position", "reason", "advice", "severity"} <= finding.keys()


@pytest.mark.parametrize(
    "arguments", [[], ["check"], ["check", "/nowhere"], ["check", "/"], ["check", ".", "--what"], ["frob"]]
)
def test_wrong_usage_and_what_is_no_directory_of_ours_exit_with_2(arguments: list[str]) -> None:
    done = logboom(*arguments)
    if arguments:
        assert done.returncode == 2
        assert done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "repair"])
def test_help_has_examples(command: str) -> None:
    done = logboom(command, "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"logboom {command}" in done.stdout


def test_help_and_version_import_nothing_heavy() -> None:
    code = "import sys; from logboom.cli import run; run(['--help']); run(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow", "numpy", "logboom.storage"} & set(done.stdout.split())


def test_a_check_runs_beside_a_writer_and_a_repair_does_not(data: Path) -> None:
    with DataDirectory.open(str(data)):
        done = logboom("check", data)
        assert done.returncode == 0
        assert "writer active" in done.stdout
        for arguments in (["--yes"], ["--dry-run"]):
            done = logboom("repair", *arguments, data)
            assert done.returncode == 2
            assert "is in use by" in done.stderr


def test_a_check_leaves_every_file_as_it_was(data: Path) -> None:
    damage(data)
    files = sorted(path for path in data.rglob("*") if path.is_file())
    before = [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    logboom("check", data)
    files = sorted(path for path in data.rglob("*") if path.is_file())
    assert [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before


def test_a_repair_without_a_terminal_refuses_unless_it_is_told_not_to_ask(data: Path) -> None:
    path = damage(data)
    before = path.read_bytes()
    done = logboom("repair", data)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    done = logboom("repair", "--dry-run", data)
    assert done.returncode == 0
    assert "stays lost: seqnos 14 to 15" in done.stdout
    assert path.read_bytes() == before
    done = logboom("repair", "--yes", data)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("done: 2 steps\n")
    assert logboom("check", "--quiet", data).returncode == 0
    assert logboom("repair", "--yes", data).stdout == "nothing to repair\n"
    assert path.with_name(f"{path.name}.damaged").read_bytes() == before


def test_a_repair_of_what_is_sound_needs_nobody_to_ask(data: Path) -> None:
    done = logboom("repair", data)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to repair\n", "")
    done = logboom("repair", "--json", data)
    assert done.returncode == 0
    assert json.loads(done.stdout)["steps"] == []


def test_a_repair_speaks_json_to_scripts(data: Path) -> None:
    damage(data)
    assert logboom("repair", "--json", data).returncode == 2
    planned = json.loads(logboom("repair", "--dry-run", "--json", data).stdout)
    assert planned["done"] is False
    done = json.loads(logboom("repair", "--yes", "--json", data).stdout)
    assert done == {**planned, "done": True}
    assert [(lost["seqno_from"], lost["seqno_until"]) for lost in done["lost"]] == [(14, 16)]


@pytest.mark.parametrize(("answer", "code", "repaired"), [(b"y\n", 0, True), (b"\n", 2, False), (None, 130, False)])
def test_a_repair_asks_first_and_can_be_interrupted(
    data: Path, answer: bytes | None, code: int, repaired: bool
) -> None:
    path = damage(data)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "repair", str(data)], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    question = process.stderr.read(15)
    assert question == b"Do this? [y/N] "
    if answer is None:
        process.send_signal(signal.SIGINT)
    else:
        os.write(ours, answer)
    _, errors = process.communicate(timeout=300)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code
    assert b"Traceback" not in errors
    assert path.exists() is not repaired
    with DataDirectory.open(str(data)) as directory:
        assert (directory.open_log(LOG).refusal is None) is repaired
