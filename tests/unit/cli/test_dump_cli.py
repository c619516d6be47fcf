from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from logboom.storage import DataDirectory
from support.nodes.warm import run_warm
from support.simulation.dumps import NOW, assert_same, fill
from support.simulation.model import make_batch

COMMAND = (sys.executable, "-c", "from logboom.cli import main; main()")


def logboom(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_warm(arguments, said=stdin)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with DataDirectory.open(str(path)) as directory:
        fill(directory)
    return path


def same(one: Path, other: Path) -> bool:
    with DataDirectory.open(str(one)) as here, DataDirectory.open(str(other)) as there:
        assert_same(here, there)
    return True


def damage(data: Path) -> Path:
    """Breaks a sealed segment of topic `many`, seqnos 0 to 1."""
    path = min(data.glob("topics/many~*/0/*.log"))
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    return path


def test_a_dump_to_a_file_loads_as_an_equal_directory(data: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "d.lgdump", tmp_path / "copy"
    done = logboom("dump", data, "--output", file)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == (
        "3 topics, 4 logs, 15 batches, 59 records, 3,600 bytes (2 records lost before): dumped, "
        f"{file.stat().st_size:,} bytes written\n"
    )
    done = logboom("load", copy, file)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"6 records loaded" in done.stdout
    assert done.stdout.endswith(b"15 batches, 59 records, 3,600 bytes in the dump: sound\n")
    assert same(data, copy)
    again = logboom("load", copy, file)
    assert again.returncode == 0
    assert again.stdout.count(b"already there") == 2


@pytest.mark.parametrize("compress", ["none", "lz4", "zstd"])
def test_a_dump_goes_through_a_pipe(data: Path, tmp_path: Path, compress: str) -> None:
    done = logboom("dump", data, "--compress", compress)
    assert done.returncode == 0
    assert b"dumped" in done.stderr
    for number, arguments in enumerate(([], ["-"])):
        copy = tmp_path / str(number)
        assert logboom("load", copy, *arguments, stdin=done.stdout).returncode == 0
        assert same(data, copy)


def test_json_sums_up_for_scripts(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    said = json.loads(logboom("dump", data, "-o", file, "--json").stdout)
    assert (said["topics"], said["records"], said["lost"]) == (3, 59, 2)
    piped = logboom("dump", data, "--json", "--quiet")
    assert json.loads(piped.stderr)["records"] == 59
    loaded = json.loads(logboom("load", tmp_path / "copy", file, "--json").stdout)
    assert loaded["complete"] is True
    assert loaded["error"] is None
    assert {topic["name"]: topic["records"] for topic in loaded["topics"]} == {"empty": 0, "late": 6, "many": 53}


def test_a_dry_run_verifies_and_changes_nothing(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    logboom("dump", data, "-o", file)
    before = sorted(os.listdir(tmp_path))
    done = logboom("load", "--dry-run", file)
    assert done.returncode == 0
    assert b"many (" in done.stdout
    assert b": 3 logs" in done.stdout
    assert done.stdout.endswith(b": sound\n")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    done = logboom("load", "--dry-run", file)
    assert done.returncode == 1
    assert b"the dump is damaged at byte" in done.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_a_dump_that_was_cut_off_is_told_and_the_whole_one_goes_on(data: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "d", tmp_path / "copy"
    logboom("dump", data, "-o", file)
    content = file.read_bytes()
    done = logboom("load", copy, stdin=content[:-100])
    assert done.returncode == 1
    assert b"before its end" in done.stderr
    assert b"load the complete dump to continue" in done.stderr
    assert b"not complete" in done.stdout
    assert logboom("load", copy, file).returncode == 0
    assert same(data, copy)


def test_a_file_that_is_there_is_kept_unless_told_otherwise(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    file.write_bytes(b"precious")
    done = logboom("dump", data, "-o", file)
    assert done.returncode == 2
    assert b"--resume" in done.stderr
    assert logboom("dump", data, "-o", file, "--resume").returncode == 2
    assert file.read_bytes() == b"precious"
    assert logboom("dump", data, "-o", file, "--force").returncode == 0
    assert logboom("load", "--dry-run", file).returncode == 0


def resume_after_cuts(data: Path, file: Path, cuts: Iterable[int]) -> None:
    """At each of these bytes, and at the end."""
    logboom("dump", data, "-o", file)
    content = file.read_bytes()
    for cut in (*cuts, len(content)):
        file.write_bytes(content[:cut])
        done = logboom("dump", data, "-o", file, "--resume")
        assert done.returncode == 0
        assert b"bytes are sound" in done.stderr
        assert cut < 1000 or file.read_bytes() == content
        assert logboom("load", "--dry-run", file).returncode == 0


def test_resume_goes_on_with_a_file_that_was_cut_off(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    resume_after_cuts(data, file, (3, 1000))
    os.truncate(file, 1000)
    done = logboom("dump", data, "-o", file, "--resume", "--compress", "zstd")
    assert done.returncode == 2
    assert b"compress was lz4, is zstd" in done.stderr
    assert len(file.read_bytes()) == 1000


@pytest.mark.soak
def test_resume_goes_on_wherever_a_file_was_cut_off(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    logboom("dump", data, "-o", file)
    size = file.stat().st_size
    file.unlink()
    resume_after_cuts(data, file, (*range(0, size, max(1, size // 100)), size - 1))


def test_two_dumps_do_not_write_to_one_file(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    with file.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for option in ("--resume", "--force"):
            done = logboom("dump", data, "-o", file, option)
            assert done.returncode == 2
            assert b"is being written by another dump" in done.stderr


def test_damage_exits_with_1_names_the_file_and_says_what_to_do(data: Path, tmp_path: Path) -> None:
    path = damage(data)
    done = logboom("dump", data, "-o", tmp_path / "d")
    assert done.returncode == 1
    assert str(path).encode() in done.stderr
    assert b"logboom repair" in done.stderr
    assert b"--from 2" in done.stderr
    arguments = ("--topic", "many", "--partition", "0", "--from", "6", "-o", tmp_path / "part")
    assert logboom("dump", data, *arguments).returncode == 0


def test_a_range_of_one_log_is_loaded_under_another_name(data: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "d", tmp_path / "copy"
    done = logboom("dump", data, "--topic", "late", "--from", "7", "--to", "9", "-o", file)
    assert done.returncode == 0
    assert logboom("load", copy, file, "--topic", "late", "--as", "part").returncode == 0
    with DataDirectory.open(str(copy)) as directory:
        (log,) = directory.open_topic("part")
        assert (log.first, log.committed) == (7, 9)


def test_appending_twice_is_appending_once(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    logboom("dump", data, "--topic", "late", "-o", file)
    for words in (b"6 records loaded", b"already there"):
        done = logboom("load", data, file, "--append", "--as", "copy")
        assert done.returncode == 0
        assert words in done.stdout
    with DataDirectory.open(str(data)) as directory:
        assert directory.open_topic("copy")[0].next == 6


def test_a_dump_runs_beside_a_writer_and_a_load_does_not(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "d"
    with DataDirectory.open(str(data)) as directory:
        (log,) = directory.open_topic("late")
        directory.open_topic("many")
        directory.open_topic("empty")
        log.append_one(make_batch(9, 1, NOW), NOW + 9)
        log.commit(log.sync())
        done = logboom("dump", data, "-o", file)
        assert done.returncode == 0, done.stderr
        done = logboom("load", data, file)
        assert done.returncode == 2
        assert b"in use by process" in done.stderr
    loaded = json.loads(logboom("load", tmp_path / "copy", file, "--json").stdout)
    assert {topic["name"]: topic["records"] for topic in loaded["topics"]} == {"empty": 0, "late": 7, "many": 53}


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump"],
        ["dump", "/nowhere"],
        ["dump", "/"],
        ["dump", "DATA", "--topic", "nothing"],
        ["dump", "DATA", "--from", "1"],
        ["dump", "DATA", "--topic", "late", "--from", "1"],
        ["dump", "DATA", "--compress", "brotli"],
        ["dump", "DATA", "--resume"],
        ["load"],
        ["load", "DATA", "/nowhere"],
        ["load", "/proc", "/dev/null"],
        ["load", "DATA", "/dev/null", "--as", "../x"],
        ["load", "a", "b", "c"],
    ],
)
def test_wrong_usage_exits_with_2_and_a_word(arguments: list[str], data: Path) -> None:
    done = logboom(*[str(data) if word == "DATA" else word for word in arguments])
    assert done.returncode == 2
    assert done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["dump", "load"])
def test_help_has_examples(command: str) -> None:
    done = logboom(command, "--help")
    assert done.returncode == 0
    assert b"Examples:" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with DataDirectory.open(str(path)) as directory:
        directory.create_topic("t")
        (log,) = directory.open_topic("t")
        log.append([make_batch(n, 1, NOW, size=100_000) for n in range(30)], NOW)
        log.commit(log.sync())
    command = [*COMMAND, "dump", str(path), "--compress", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.read(100)
        dump.stdout.close()
        said = dump.stderr.read()
        assert dump.wait() == 141
    assert b"Traceback" not in said


def test_an_interrupt_exits_with_130_and_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [*COMMAND, "load", str(tmp_path / "copy"), str(fifo)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as load:
        assert load.stderr is not None
        with open(fifo, "wb", buffering=0) as pipe:
            pipe.write(logboom("dump", data).stdout[:1500])
            while not (tmp_path / "copy" / "node.json").exists():
                time.sleep(0.005)
            load.send_signal(signal.SIGINT)
            said = load.stderr.read()
            assert load.wait() == 130
    assert said.endswith(b"not everything is loaded: run the same command again to continue\nlogboom: interrupted\n")


def test_an_interrupted_dump_says_how_to_go_on(tmp_path: Path) -> None:
    data, fifo = tmp_path / "data", tmp_path / "fifo"
    with DataDirectory.open(str(data)) as directory:
        directory.create_topic("t")
        (log,) = directory.open_topic("t")
        log.append([make_batch(n, 1, NOW, size=100_000) for n in range(30)], NOW)
        log.commit(log.sync())
    os.mkfifo(fifo)
    command = [*COMMAND, "dump", str(data), "--force", "--compress", "none", "--output", str(fifo)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as dump:
        assert dump.stderr is not None
        with open(fifo, "rb", buffering=0) as pipe:
            pipe.read(100)
            dump.send_signal(signal.SIGINT)
            said = dump.stderr.read()
            assert dump.wait() == 130
    assert b"with --resume in place of --force continues" in said
