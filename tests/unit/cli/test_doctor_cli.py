from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logboom.cli import run
from logboom.spark.runtime import environment
from logboom.storage import DataDirectory
from logboom.storage.files.disk import OsDisk
from logboom.storage.health import surroundings
from logboom.storage.health.surroundings import Surroundings
from support.nodes.warm import run_warm
from support.simulation.model import make_batch

OF_THE_MACHINE = {"low space", "low limit", "network file system", "read-only", "permissions"}
WRITER = """
import sys
from logboom.batch import build
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings

with DataDirectory.open(sys.argv[1]) as directory:
    directory.create_topic("busy", 1, Settings(segment=SegmentSettings(bytes=4096)))
    (log,) = directory.open_topic("busy")
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        log.append_one(build([b"x" * 100]), number)
        directory.sync()
        if number % 1000 == 0:
            log.drop(log.segments[-2].first_seqno)
            directory.create_topic(f"t{number}")
            directory.open_topic(f"t{number}")
            directory.delete_topic(f"t{number}")
            directory.empty_trash()
"""


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests has room for everything, and all that Spark needs."""
    monkeypatch.setattr(environment, "examine_spark", list)
    monkeypatch.setattr(surroundings, "look_around", lambda disk, path: Surroundings(uid=0))
    monkeypatch.setattr(OsDisk, "free_bytes", lambda disk: 1 << 40)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with DataDirectory.open(str(path)) as directory:
        directory.create_topic("events")
        (log,) = directory.open_topic("events")
        for number in range(20):
            log.append_one(make_batch(number, 2, 0), 1 + number)
        directory.sync()
    return path


def damage(data: Path) -> Path:
    """Breaks the 8th batch, seqnos 14 and 15."""
    (path,) = data.glob("topics/*/0/*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 20 * 7 + 60] ^= 1
    path.write_bytes(content)
    return path


def test_of_a_healthy_directory_it_says_that_nothing_is_wrong_and_sums_up(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = sum(path.stat().st_size for path in data.rglob("*.log"))
    assert run(["doctor", str(data)]) == 0
    assert capsys.readouterr().out == (
        "nothing is wrong\n"
        f"1 topic, 1 log, 1 segment, 20 batches, 40 records, {size:,} bytes, all of them read; "
        f"{1 << 40:,} bytes free\n"
    )
    assert run(["doctor", "--quick", str(data)]) == 0
    assert capsys.readouterr().out == (
        f"nothing is wrong\n1 topic, 1 log, 1 segment, {size:,} bytes, of which {size:,} were read; "
        f"{1 << 40:,} bytes free\n"
    )


def test_findings_are_grouped_by_how_bad_they_are(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = damage(data)
    (data / "notes.txt").touch()
    (data / "node.json").unlink()
    assert run(["doctor", str(data)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.isupper()] == ["DAMAGE", "WARNING", "INFO"]
    assert lines[1].startswith(f"  damage: {path.relative_to(data)} at byte ")
    assert lines[1].endswith(" (seqnos 14 to 15)")
    assert "  bad node file: node.json" in lines
    assert "  foreign file: notes.txt" in lines
    assert sum(line.startswith("    to do: ") for line in lines) == 3
    assert lines[-2] == "something is wrong: 1 damage, 1 warning"
    assert run(["doctor", "--quiet", str(data)]) == 1
    assert "INFO" not in capsys.readouterr().out


def test_information_alone_is_not_wrong(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "notes.txt").touch()
    assert run(["doctor", str(data)]) == 0
    out = capsys.readouterr().out
    assert "foreign file: notes.txt" in out
    assert "\nnothing is wrong\n" in out
    assert run(["doctor", "-q", str(data)]) == 0
    assert capsys.readouterr().out.startswith("nothing is wrong\n")


def test_json_is_one_object_for_scripts(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = damage(data)
    assert run(["doctor", "--json", str(data)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["wrong"], report["quick"], report["topics"], report["logs"]) == (True, False, 1, 1)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["severity"], finding["file"]) == ("damage", "damage", str(path))
    assert {"reason", "advice"} <= finding.keys()


@pytest.mark.parametrize("name", ["", "nowhere", "data/topics", "data/node.json"])
def test_what_is_no_data_directory_exits_with_2(data: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(data.parent / name)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("logboom: ")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert "logboom doctor --quick data" in out


def test_a_doctor_runs_beside_a_live_writer_and_finds_nothing_wrong(tmp_path: Path) -> None:
    data = tmp_path / "data"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(data)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for arguments in (["--quick"], []) * 4:
            done = run_warm(["doctor", "--json", *arguments, data], text=True)
            assert done.stderr == ""
            report = json.loads(done.stdout)
            assert report["writer_active"]
            kinds = {finding["kind"] for finding in report["findings"]} - OF_THE_MACHINE
            assert kinds == {"writer active"}, report["findings"]
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    done = run_warm(["doctor", "--json", data], text=True)
    found = [finding for finding in json.loads(done.stdout)["findings"] if finding["kind"] not in OF_THE_MACHINE]
    assert "unclean shut-down" in {finding["kind"] for finding in found}
    assert {finding["severity"] for finding in found} <= {"info", "harmless"}
