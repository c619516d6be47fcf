from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from logboom.storage import DataDirectory
from logboom.storage.data.topic import HookSettings, Settings
from support.nodes.warm import run_warm
from support.simulation.dumps import NOW
from support.simulation.model import make_batch


def logboom(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return run_warm(arguments)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with DataDirectory.open(str(path)) as directory:
        directory.create_topic("t", 1, Settings())
        (log,) = directory.open_topic("t")
        for number in range(3):
            log.append_one(make_batch(number, 2, NOW), NOW)
        log.roll()
        log.append_one(make_batch(3, 2, NOW), NOW)
        log.commit(log.sync())
    return path


def test_a_hook_is_told_taken_over_and_run_by_nobody_who_does_not_know_it(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "dump"
    with DataDirectory.open(str(data)) as directory:
        directory.configure_topic("t", Settings(hook=HookSettings(delete="echo \x1b[31m")))
    assert logboom("dump", data, "--output", file).returncode == 0
    said = logboom("load", "--dry-run", file).stdout.decode()
    assert "delete hook, run only if the node's configuration has it: echo \\x1b[31m" in said
    (topic,) = json.loads(logboom("load", tmp_path / "one", file, "--json").stdout)["topics"]
    assert topic["hook"] == "echo \x1b[31m"
    with DataDirectory.open(str(tmp_path / "one")) as directory:
        assert directory.topic("t").settings.hook.delete == "echo \x1b[31m"
    found = json.loads(logboom("doctor", tmp_path / "one", "--json").stdout)
    assert [item["kind"] for item in found["findings"] if item["severity"] == "warning"] == ["unknown hook"]


def test_what_a_node_keeps_for_itself_is_dumped_and_loaded_only_where_it_is_named(data: Path, tmp_path: Path) -> None:
    with DataDirectory.open(str(data)) as directory:
        directory.create_topic("_cursors", 1, Settings())
        (log,) = directory.open_topic("_cursors")
        log.append_one(make_batch(0, 2, NOW), NOW)
        log.commit(log.sync())
    file, own, other = tmp_path / "dump", tmp_path / "own", tmp_path / "other"
    assert logboom("dump", data, "--output", file).returncode == 0
    assert logboom("dump", data, "--output", own, "--topic", "_cursors", "--topic", "t").returncode == 0
    for dump in (file, own):
        done = logboom("load", data if dump is file else other, dump, *([] if dump is file else ["--append"]), "--json")
        assert [topic["name"] for topic in json.loads(done.stdout)["topics"]] == ["t"]
    for how in ([], ["--append"]):
        done = logboom("load", other, own, "--topic", "_cursors", *how)
        assert (done.returncode, b"load this one under another name" in done.stderr) == (2, True)
        assert logboom("load", other, own, "--topic", "_cursors", "--as", "copy", *how).returncode == 0
    with DataDirectory.open(str(other)) as directory:
        assert sorted(topic.name for topic in directory.topics()) == ["copy", "t"]


def test_what_is_no_dump_makes_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("read me")
    done = logboom("load", tmp_path / "new", tmp_path / "README.md")
    assert (done.returncode, (tmp_path / "new").exists()) == (2, False)
    assert b"this is not a dump" in done.stderr


@pytest.mark.parametrize("names", [("lock", "node.json.tmp"), ("lost+found",)])
def test_a_load_is_repeated_where_the_first_one_found_no_space(data: Path, tmp_path: Path, names: tuple[str]) -> None:
    assert logboom("dump", data, "--output", tmp_path / "dump").returncode == 0
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in names:
        (copy / name).touch() if name != "lost+found" else (copy / name).mkdir()
    assert logboom("load", copy, tmp_path / "dump").returncode == 0


def test_advice_after_damage_is_a_command_that_works(data: Path, tmp_path: Path) -> None:
    file = min(data.glob("topics/*/0/*.log"))
    content = bytearray(file.read_bytes())
    content[-2 * len(content) // 3 - 1] ^= 1
    file.write_bytes(content)
    done = logboom("dump", data, "--output", tmp_path / "dump")
    assert done.returncode == 1
    command = done.stderr.decode().rpartition("with `logboom ")[2].rstrip("`\n").split()
    assert command == ["dump", str(data), "--topic", "t", "--partition", "0", "--from", "2"]
    assert logboom(*command, "--output", tmp_path / "rest").returncode == 0


def test_a_dump_of_everything_names_what_it_would_leave_out(data: Path, tmp_path: Path) -> None:
    (file,) = data.glob("topics/*/topic.json")
    file.write_text("{")
    done = logboom("dump", data, "--output", tmp_path / "dump")
    assert done.returncode == 2
    assert b"logboom doctor" in done.stderr
    assert file.parent.name.encode() in done.stderr


@pytest.mark.parametrize("name", ["state", "lock", "internal/hooks", "internal/scrub", "topics/*/topic.json"])
@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_a_doctor_tells_of_what_is_no_regular_file(data: Path, name: str, kind: str) -> None:
    (data / "internal").mkdir(exist_ok=True)
    file = next(data.glob(name), data / name)
    file.unlink(missing_ok=True)
    os.mkfifo(file) if kind == "pipe" else file.mkdir()
    done = logboom("doctor", data)
    assert b"Traceback" not in done.stderr
    assert (done.returncode, str(file.relative_to(data)) in done.stdout.decode()) in ((1, True), (0, True))


def test_links_that_lead_in_circles_and_strange_names_do_not_stop_a_doctor(data: Path) -> None:
    for name in ("l1", "l2"):
        (data / "topics" / name).symlink_to(".")
    (log,) = data.glob("topics/*/0")
    Path(os.fsdecode(os.fsencode(log) + b"/\xff\xfe")).touch()
    done = logboom("doctor", data, "--json")
    assert done.returncode == 0
    assert any("\\xff\\xfe" in finding["file"] for finding in json.loads(done.stdout)["findings"])
    assert logboom("check", data, "--json").returncode == 0
