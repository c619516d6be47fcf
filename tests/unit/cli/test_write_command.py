"""Records from the command line into a real node and back."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logboom.cli import run
from support.nodes.process import NodeProcess

COMMAND = (sys.executable, "-m", "logboom")
WAIT_S = 300


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        yield process


@pytest.fixture
def topic(node: NodeProcess, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LOGBOOM_SERVERS", node.address)
    return "t" + str(abs(hash(request.node.name)))


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """On standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def read_json(topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    capfdbinary.readouterr()
    assert run(["read", topic, "--format", "ndjson"]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


def test_arguments_are_records(topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options = ["--key", "k", "--tag", "a", "--tag", "b", "--channel", "c/d"]
    assert run(["write", topic, "one", "-2", *options]) == 0
    assert capfdbinary.readouterr().out.decode() == (
        f"wrote 2 records to {topic}\n  partition 0: 2 records, seqnos 0 to 1\n"
    )
    found = read_json(topic, capfdbinary)
    assert [record["value"] for record in found] == ["one", -2]
    assert {(record["key"], record["channel"], *record["tags"]) for record in found} == {("k", "c/d", "a", "b")}


def test_lines_are_taken_byte_for_byte(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    give(monkeypatch, b"a\r\n\n\xff\x00z\nlast")
    assert run(["write", topic, "--json"]) == 0
    summary = json.loads(capfdbinary.readouterr().out)
    assert (summary["records"], summary["failed"], summary["error"]) == (4, 0, None)
    assert summary["partitions"] == [{"partition": 0, "records": 4, "first": 0, "last": 3}]
    assert run(["read", topic]) == 0
    assert capfdbinary.readouterr().out == b"a\r\n\n\xff\x00z\nlast\n"


def test_a_line_without_an_end_is_not_read_to_its_end(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("logboom.cli.records.record_source.LINE_BYTES_MAX", 1000)
    source = io.BytesIO(b"one\n" + bytes(999) + b"\n" + bytes(1_000_000))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(source))
    assert run(["write", topic]) == 1
    told = capfdbinary.readouterr()
    assert f"wrote 2 records to {topic}" in told.out.decode()
    assert "line 3: line: has more than 1,000 bytes" in told.err.decode()
    assert source.tell() < 10_000


def test_a_copy_through_ndjson_is_equal(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = [
        {"value": "plain"},
        {"value": {"a": [1, None]}, "key": "k", "tags": ["x", "é"], "timestamp": "2026-01-31T12:00:00.000001Z"},
        {"value": None, "key": {"base64": "/wA="}, "channel": "a/b"},
        {"value": "\n\t\u0000", "headers": [["h", "1"], ["h", {"base64": "/w=="}]], "timestamp": -5},
    ]
    give(monkeypatch, "".join(json.dumps(line) + "\n" for line in lines).encode())
    assert run(["write", topic, "--ndjson", "--quiet"]) == 0
    assert capfdbinary.readouterr().out == b""
    first = read_json(topic, capfdbinary)
    path = tmp_path / "lines"
    path.write_text("\n".join(json.dumps(line) for line in first))
    assert run(["write", f"{topic}-copy", "--ndjson", "--file", str(path), "--codec", "lz4"]) == 0
    assert read_json(f"{topic}-copy", capfdbinary) == first
    assert [record["value"] for record in first] == ["plain", {"a": [1, None]}, None, "\n\t\0"]


def test_options_stand_in_for_what_a_line_does_not_say(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    give(monkeypatch, b'{"value": 1}\n{"value": 2, "key": "own", "tags": ["own"], "channel": "own"}\n')
    assert run(["write", topic, "--ndjson", "--key", "k", "--tag", "t", "--channel", "c"]) == 0
    found = [(record["key"], record["tags"], record["channel"]) for record in read_json(topic, capfdbinary)]
    assert found == [("k", ["t"], "c"), ("own", ["own"], "own")]


def test_a_bad_line_ends_it_and_what_came_before_is_written(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    give(monkeypatch, b'{"value": 1}\n{"value": 2}\n{"vlaue": 3}\n{"value": 4}\n')
    assert run(["write", topic, "--ndjson"]) == 1
    captured = capfdbinary.readouterr()
    assert b"wrote 2 records" in captured.out
    assert captured.err.startswith(b"logboom: line 3: ")
    assert b"vlaue" in captured.err
    assert len(read_json(topic, capfdbinary)) == 2


def test_a_summary_says_why_it_ended(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    give(monkeypatch, b'{"value": 1}\n{"value": 2, "timestamp": 99999999999999999999}\n')
    assert run(["write", topic, "--ndjson", "--file", "-", "--json"]) == 1
    captured = capfdbinary.readouterr()
    summary = json.loads(captured.out)
    assert summary["records"] == 1
    assert summary["error"].startswith("line 2: timestamp: ")
    assert captured.err.decode() == f"logboom: {summary['error']}\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_nobodys_problem(topic: str, closed: str) -> None:
    command = f"{sys.executable} -m logboom write {topic} x {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_same_key_goes_to_the_same_partition(topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["topic", "create", topic, "--partitions", "4"]) == 0
    for key in ("a", "b", "a", "b"):
        assert run(["write", topic, "x", "--key", key, "--quiet"]) == 0
    capfdbinary.readouterr()
    assert run(["head", topic, "--json"]) == 0
    counts = [part["next"] for part in json.loads(capfdbinary.readouterr().out)]
    assert sum(counts) == 4
    assert all(count % 2 == 0 for count in counts)
    assert run(["write", f"{topic}/3", "here", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["partitions"][0]["partition"] == 3


def test_what_is_refused_is_told_and_exits_with_1(topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["topic", "create", topic]) == 0
    assert run(["refuse", topic, "--reason", "moved"]) == 0
    capfdbinary.readouterr()
    assert run(["write", topic, "x", "y", "--json"]) == 1
    captured = capfdbinary.readouterr()
    summary = json.loads(captured.out)
    assert (summary["records"], summary["failed"]) == (0, 2)
    assert b"moved" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--file", "lines"], b"not from both"),
        (["--file", "/nowhere"], b"No such file"),
        (["x", "--batch-bytes", "64M"], b"64MiB"),
        (["x", "--server", "127.0.0.1:1"], b"logboom serve"),
    ],
)
def test_what_cannot_be_written_exits_with_2(
    topic: str, arguments: list[str], words: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["write", topic, *arguments]) == 2
    captured = capfdbinary.readouterr()
    assert words in captured.err
    assert captured.out == b""


def test_acks_none_are_counted_without_seqnos(topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["write", topic, "x", "--acks", "none", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["partitions"] == [
        {"partition": 0, "records": 1, "first": None, "last": None}
    ]


def test_a_reader_that_follows_sees_what_others_write_and_ends_cleanly(topic: str) -> None:
    subprocess.run([*COMMAND, "topic", "create", topic], check=True, capture_output=True)
    arguments = ["read", topic, "--follow", "-n", "--cursor", topic]
    reader = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stderr is not None
    try:
        for number in range(3):
            subprocess.run([*COMMAND, "write", topic, f"v{number}"], check=True, capture_output=True)
            assert reader.stdout.readline() == b"%d\tv%d\n" % (number, number)
        reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=WAIT_S)
    finally:
        reader.kill()
        reader.wait()
    assert (reader.returncode, out, err) == (130, b"", b"logboom: interrupted\n")
    done = subprocess.run([*COMMAND, "cursor", "show", topic, "--json"], check=True, capture_output=True)
    assert json.loads(done.stdout)[0]["seqno"] == 3


def test_lines_that_come_slowly_are_written_as_they_come_and_ctrl_c_keeps_them(topic: str) -> None:
    writer = subprocess.Popen(
        [*COMMAND, "write", topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdin is not None
    try:
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        deadline = time.monotonic() + WAIT_S
        while b"first" not in _read(topic):
            assert time.monotonic() < deadline
        writer.send_signal(signal.SIGINT)
        assert writer.wait(timeout=WAIT_S) == 130
        out, err = writer.communicate()
    finally:
        writer.kill()
        writer.wait()
    assert b"wrote 1 record" in out
    assert err == b"logboom: interrupted\n"


def _read(topic: str) -> bytes:
    return subprocess.run([*COMMAND, "read", topic], capture_output=True, check=False).stdout


def test_a_reader_whose_output_goes_away_is_quiet(topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%0100d\n" % number for number in range(20_000)))
    assert run(["write", topic, "--file", str(path), "--quiet"]) == 0
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m logboom read {topic} | head -n 1"],
        capture_output=True,
        env=os.environ,
        check=True,
    )
    assert done.stdout == b"%0100d\n" % 0
    assert done.stderr == b""


def test_a_load_leaves_nothing_behind_and_tells_percentiles(
    topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for arguments in (
        ["produce", "--count", "2000", "--size", "10"],
        ["produce", "--count", "20", "--one-by-one", "--acks", "leader"],
        ["produce", "--seconds", "1", "--writers", "2"],
        ["consume", "--count", "1000"],
        ["consume", "--count", "1000", "--form", "records"],
    ):
        assert run(["bench", *arguments, "--json"]) == 0
        found = json.loads(capfdbinary.readouterr().out)
        assert found["records"] >= 20
        assert found["bytes"] >= 10 * found["records"]
        assert found["failed"] == 0
        latency = found["latency_s"]
        assert latency["p50"] <= latency["p99"] <= latency["max"]
    assert run(["topic", "list", "bench-", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == []


def test_a_load_on_a_topic_of_yours_stays_there(topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["bench", "produce", "--topic", topic, "--count", "50", "--json"]) == 0
    assert run(["bench", "consume", "--topic", topic, "--form", "lists"]) == 0
    assert "records\t50\n" in capfdbinary.readouterr().out.decode()


def test_stats_go_on_until_they_are_interrupted(topic: str) -> None:
    watcher = subprocess.Popen(
        [*COMMAND, "stats", "--watch", "0.05", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert watcher.stdout is not None
    try:
        looks = [json.loads(watcher.stdout.readline()) for _ in range(3)]
        watcher.send_signal(signal.SIGINT)
        _, err = watcher.communicate(timeout=WAIT_S)
    finally:
        watcher.kill()
        watcher.wait()
    assert looks[0]["now"] < looks[1]["now"] < looks[2]["now"]
    assert (watcher.returncode, err) == (130, b"logboom: interrupted\n")
