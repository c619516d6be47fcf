"""The commands against a real node, in this process; what a user would see."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logboom.batch import build
from logboom.broker.api import Part
from logboom.cli import names, run
from logboom.client.remote import connect
from support.nodes.process import NodeProcess
from support.terminal import on_terminal

T0 = 1_700_000_000_000_000
"""The time of the first record; the others follow one second apart."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        yield process


@pytest.fixture
def topic(node: NodeProcess, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that no other test uses; the commands find the node by themselves."""
    monkeypatch.setenv("LOGBOOM_SERVERS", node.address)
    return "t" + str(abs(hash(request.node.name)))


Call = Callable[..., str]


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Runs a command that must succeed; gives what it printed."""

    def command(*arguments: str, code: int = 0) -> str:
        assert run(list(arguments)) == code, capfdbinary.readouterr().err
        captured = capfdbinary.readouterr()
        assert captured.err == b""
        return captured.out.decode(errors="surrogateescape")

    return command


def fill(topic: str, count: int = 20, partitions: int = 1) -> None:
    """Batches of 5 records `v0`, `v1` ... with keys, tags and channels, the same in each partition."""

    async def append() -> None:
        async with connect() as broker:
            await broker.create_topic(topic, partitions)
            for partition in range(partitions):
                for first in range(0, count, 5):
                    numbers = range(first, min(count, first + 5))
                    batch = build(
                        [b"v%d" % number for number in numbers],
                        keys=[b"k%d" % (number % 3) for number in numbers],
                        timestamps=[T0 + number * 1_000_000 for number in numbers],
                        channels=[f"site/{number % 2}" for number in numbers],
                        tags=[["even"] if number % 2 == 0 else ["odd", "x"] for number in numbers],
                    )
                    await broker.append([Part(topic, [batch], partition)], "durable")

    asyncio.run(append())


def test_a_topic_is_created_listed_described_changed_and_deleted(call: Call, topic: str) -> None:
    assert call("topic", "create", topic, "--partitions", "3", "--set", "retention.age=7d") == (
        f"created {topic} with 3 partitions\n"
    )
    (listed,) = json.loads(call("topic", "list", topic, "--json"))
    assert (listed["name"], len(listed["partitions"])) == (topic, 3)
    assert listed["settings"]["retention"]["age_ms"] == 7 * 86_400_000
    assert call("topic", "list", topic).splitlines()[1].split("\t")[:4] == [topic, "3", "0", "0"]
    described = call("topic", "describe", topic)
    assert f"topic\t{topic}\n" in described
    assert "retention.age_ms\t7d\tset\n" in described
    assert "segment.bytes\t128MiB\tdefault\n" in described
    call("topic", "set", topic, "retention.age=", "flush.policy=os")
    settings = json.loads(call("topic", "describe", topic, "--json"))["settings"]
    assert (settings["retention"]["age_ms"], settings["flush"]["policy"]) == (None, "os")
    assert call("topic", "delete", topic, "--yes") == f"deleted {topic}\n"
    assert json.loads(call("topic", "list", topic, "--json")) == []


def test_internal_topics_are_listed_when_asked_for(call: Call, topic: str) -> None:
    call("topic", "create", topic)
    assert not any(found["name"].startswith("_") for found in json.loads(call("topic", "list", "--json")))
    assert any(found["name"].startswith("_") for found in json.loads(call("topic", "list", "--internal", "--json")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topic", "describe", "TOPIC"], "there is no topic"),
        (["topic", "create", "a b"], "is no topic name"),
        (["topic", "create", "TOPIC", "--set", "retention.aeg=1d"], "retention.age"),
        (["topic", "set", "TOPIC"], "key=value"),
        (["topic", "delete", "TOPIC"], "there is no topic"),
        (["read", "TOPIC"], "there is no topic"),
        (["read", "TOPIC", "--from", "soon"], "--from"),
        (["read", "TOPIC", "--until", "soon"], "--until"),
        (["read", "TOPIC", "--format", "arrow", "-n"], "-n"),
        (["read", "TOPIC/x"], "TOPIC/PARTITION"),
        (["head", "TOPIC"], "there is no topic"),
        (["cursor", "show", "nobody"], "there is no cursor"),
        (["cursor", "delete", "nobody"], "there is no cursor"),
        (["ping", "--server", "a:b:c"], "--server"),
        (["ping", "--server", "127.0.0.1:1"], "logboom serve"),
        (["stats", "--server", "unix:/nowhere"], "logboom serve"),
        (["sql", "SELECT * FROM nowhere"], "There are the topics"),
        (["sql", "SELEKT"], "syntax error"),
        (["sql", "SELECT 1", "--topic", "nowhere"], "there is no topic"),
        (["doctor", "/nowhere"], "is not a directory"),
        (["doctor", "127.0.0.1:1"], "logboom serve"),
        (["doctor", "data", "--server", "host"], "not both"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_cause_and_exits_with_2(
    topic: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.replace("TOPIC", topic) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("logboom: ")
    assert words in captured.err


def test_nothing_is_deleted_where_nobody_can_be_asked(
    call: Call, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    call("topic", "create", topic)
    assert run(["topic", "delete", topic]) == 2
    assert b"--yes" in capfdbinary.readouterr().err
    call("topic", "describe", topic)


def test_values_are_printed_as_they_are_and_with_seqnos_when_asked(call: Call, topic: str) -> None:
    fill(topic, 4)
    assert call("read", topic) == "v0\nv1\nv2\nv3\n"
    assert call("read", topic, "-n", "--limit", "2") == "0\tv0\n1\tv1\n"


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--from", "17"], range(17, 20)),
        (["--from", "latest"], range(0)),
        (["--until", "7"], range(7)),
        (["--from", "3", "--until", "12", "--limit", "4"], range(3, 7)),
        (["--from", "2023-11-14T22:13:30Z", "--until", "2023-11-14T22:13:33Z"], range(10, 13)),
        (["--from", "-1h"], range(0)),
        (["--tag", "even"], range(0, 20, 2)),
        (["--tag", "even", "--tag", "x"], range(20)),
        (["--tag", "odd", "--tag", "even", "--all-tags"], range(0)),
        (["--tag", "odd", "--tag", "x", "--all-tags", "--limit", "3"], range(1, 7, 2)),
        (["--channel", "site/+", "--key", "k1"], range(1, 20, 3)),
        (["--channel", "site/1", "--from", "6"], range(7, 20, 2)),
        (["--key", "nobody"], range(0)),
    ],
)
def test_a_part_of_a_log_is_read(call: Call, node: NodeProcess, options: list[str], numbers: range, topic: str) -> None:
    if not json.loads(call("topic", "list", "parts", "--json")):
        fill("parts")
    lines = call("read", "parts", "-n", *options).splitlines()
    assert lines == [f"{number}\tv{number}" for number in numbers]


def test_ndjson_has_every_column(call: Call, topic: str) -> None:
    fill(topic, 1)
    assert json.loads(call("read", topic, "--format", "ndjson")) == {
        "seqno": 0,
        "timestamp": "2023-11-14T22:13:20.000000Z",
        "key": "k0",
        "value": "v0",
        "channel": "site/0",
        "tags": ["even"],
        "headers": [],
    }


def test_arrow_and_parquet_hold_the_records_also_when_there_are_none(call: Call, topic: str, tmp_path: Path) -> None:
    fill(topic)
    path = tmp_path / "records"
    for arguments, count in (([], 20), (["--limit", "7"], 7), (["--from", "latest"], 0), (["--tag", "x"], 10)):
        call("read", topic, "--format", "parquet", "--output", str(path), "--force", *arguments)
        assert pq.read_table(path).num_rows == count
        call("read", topic, "--format", "arrow", "--output", str(path), "--force", *arguments)
        table = pa.ipc.open_stream(path.read_bytes()).read_all()
        assert table.column_names == ["seqno", "timestamp", "key", "value", "channel", "tags", "headers"]
        assert table.num_rows == count


def test_a_file_is_not_written_over_unasked(
    call: Call, topic: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(topic, 1)
    path = tmp_path / "records"
    call("read", topic, "-o", str(path))
    assert run(["read", topic, "-o", str(path)]) == 2
    assert b"--force" in capfdbinary.readouterr().err
    assert path.read_bytes() == b"v0\n"


def test_all_partitions_of_a_topic_are_read(call: Call, topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    fill(topic, 5, partitions=2)
    assert sorted(call("read", topic).split()) == sorted([f"v{number}" for number in range(5)] * 2)
    assert call("read", f"{topic}/1", "--limit", "1") == "v0\n"
    lines = [line.split("\t") for line in call("read", f"{topic[:-1]}*", "-n", "--limit", "7").splitlines()]
    assert len(lines) == 7
    assert {log for log, _, _ in lines} == {f"{topic}/0", f"{topic}/1"}
    rows = [json.loads(line) for line in call("read", topic, "--format", "ndjson").splitlines()]
    assert sorted((row["partition"], row["seqno"]) for row in rows) == [(part, n) for part in (0, 1) for n in range(5)]
    for wrong in (["--until", "3"], ["--from", "3"]):
        assert run(["read", topic, *wrong]) == 2
        assert b"/0" in capfdbinary.readouterr().err


def test_a_cursor_of_several_logs_goes_on_behind_what_was_printed(call: Call, topic: str) -> None:
    fill(topic, 10, partitions=3)
    seen = []
    for limit in (3, 1, 6, 7, 13, 5):
        seen += call("read", topic, "--cursor", topic, "--limit", str(limit), "-n").splitlines()
    assert len(set(seen)) == len(seen) == 30


def test_a_cursor_goes_on_behind_what_was_printed(call: Call, topic: str) -> None:
    fill(topic)
    seen = []
    for limit in (3, 1, 6, 7, 5):
        seen += call("read", topic, "--cursor", topic, "--limit", str(limit)).split()
    assert seen == [f"v{number}" for number in range(20)]
    assert call("read", topic, "--cursor", topic) == ""
    assert call("read", topic, "--from", f"cursor:{topic}") == ""
    assert call("read", topic, "--from", "earliest", "--cursor", topic, "--limit", "4").split()[-1] == "v3"
    (shown,) = json.loads(call("cursor", "show", topic, "--json"))
    assert (shown["seqno"], shown["lag"]) == (4, 16)


def test_a_cursor_waits_for_the_end_of_a_parquet_file(call: Call, topic: str, tmp_path: Path) -> None:
    fill(topic)
    path = tmp_path / "part"
    call("read", topic, "--cursor", topic, "--limit", "8", "--format", "parquet", "-o", str(path))
    assert pq.read_table(path).num_rows == 8
    assert call("read", topic, "--cursor", topic, "--limit", "1") == "v8\n"


def test_a_cursor_is_set_back_only_by_force_and_only_from_where_it_is_expected(
    topic: str, call: Call, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(topic, 10)
    call("cursor", "set", topic, topic, "4", "--expect", "")
    for more in ([], ["--expect", "", "--force"]):
        assert run(["cursor", "set", topic, topic, "2", *more]) == 2
        assert b"stands at seqno 4" in capfdbinary.readouterr().err
    (there,) = json.loads(call("cursor", "list", topic, "--json"))
    assert there["seqno"] == 4
    call("cursor", "set", topic, topic, "2", "--force", "--expect", there["bookmark"])
    assert call("read", topic, "--cursor", topic, "--limit", "1") == "v2\n"


def test_cursors_are_set_listed_and_deleted(call: Call, topic: str) -> None:
    fill(topic, 10, partitions=2)
    assert call("cursor", "set", topic, f"{topic}/1", "4") == f"{topic} stands at seqno 4 of {topic}/1\n"
    call("cursor", "set", topic, f"{topic}/0", "latest")
    listed = {info["partition"]: info["seqno"] for info in json.loads(call("cursor", "list", topic, "--json"))}
    assert listed == {0: 10, 1: 4}
    assert call("cursor", "list", topic).splitlines()[0] == "cursor\tlog\tseqno\tlag\tupdated"
    assert call("cursor", "delete", topic, topic) == f"deleted {topic} in 2 partitions\n"
    assert json.loads(call("cursor", "list", topic, "--json")) == []


def test_a_cursor_of_all_topics_is_deleted_only_where_somebody_says_so(
    call: Call, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    topics = [f"{topic}.{name}" for name in "abc"]
    for name in topics:
        fill(name, 5)
        call("cursor", "set", topic, name, "4")
    assert run(["cursor", "delete", topic]) == 2
    said = capfdbinary.readouterr().err.decode()
    assert said.startswith(f"logboom: {topic} stands in {', '.join(topics)}: ")
    assert "--topic" in said
    assert "--all-topics" in said
    assert len(json.loads(call("cursor", "show", topic, "--json"))) == 3
    assert call("cursor", "delete", topic, "--topic", topics[0]) == f"deleted {topic} in 1 partition\n"
    assert call("cursor", "delete", topic, "--all-topics") == f"deleted {topic} in 2 partitions\n"


def test_a_shell_completes_the_names_of_topics_and_cursors(
    call: Call, topic: str, monkeypatch: pytest.MonkeyPatch, node: NodeProcess
) -> None:
    monkeypatch.setattr(names, "PATIENCE_S", 60.0)
    fill(topic, 5)
    call("cursor", "set", f"{topic}-reader", topic, "4")

    def offered(*words: str) -> list[str]:
        lines = call("__complete", *words).partition("\x1fbegin\n")[2]
        return [line.split("\t")[0] for line in lines.splitlines()]

    assert offered("read", topic[:5]) == [topic]
    assert topic in offered("topic", "describe", "")
    assert offered("topic", "delete", "--server", node.address, topic) == [topic]
    assert offered("cursor", "show", topic) == [f"{topic}-reader"]
    assert offered("read", "x", "--cursor", topic) == [f"{topic}-reader"]
    assert "_cursors" in offered("head", "_")
    assert "retention.age=" in offered("topic", "set", topic, "ret")
    assert "limits.topics=" in offered("serve", "--set", "limits.")
    monkeypatch.setenv("LOGBOOM_SERVERS", "127.0.0.1:1")
    assert offered("read", "") == []


def test_bash_completes_a_setting_up_to_its_value(tmp_path: Path) -> None:
    program = tmp_path / "logboom"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m logboom "$@"\n')
    program.chmod(0o755)
    script = f"""
        PATH={tmp_path}:$PATH; source <(logboom completion bash)
        complete -p logboom
        compopt() {{ echo "$*"; }}
        COMP_WORDS=(logboom topic set events retention.ag); COMP_CWORD=4
        _logboom_complete; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "complete -F _logboom_complete logboom\n-o nospace\nretention.age=\n"


def test_the_script_for_zsh_completes_from_a_file_too_and_puts_no_space_behind_a_setting(call: Call) -> None:
    """The file _logboom is run when something is to be completed; what it only defines completes nothing."""
    script = call("completion", "zsh")
    assert script.startswith("#compdef logboom\n")
    assert "compadd -S '' -d _cyc_disp" in script
    assert script.endswith('  _cyclopts_logboom "$@"\nelse\n  compdef _cyclopts_logboom logboom\nfi\n')


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 2)])
def test_on_a_terminal_it_is_asked_before_a_cursor_goes(
    call: Call, topic: str, node: NodeProcess, answer: bytes, code: int
) -> None:
    fill(topic, 5)
    call("cursor", "set", topic, topic, "4")
    done = on_terminal("cursor", "delete", topic, typed=answer, LOGBOOM_SERVERS=node.address)
    assert done.code == code
    assert f"Delete {topic} in {topic}? [y/N]" in done.text
    assert bool(json.loads(call("cursor", "list", topic, "--json"))) == bool(code)


def test_trimmed_records_are_an_error_with_the_first_seqno_or_passed_over(
    call: Call, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(topic)
    assert call("topic", "trim", topic, "12") == f"{topic}/0 begins at seqno 12\n"
    assert call("read", topic, "--limit", "1", "-n") == "12\tv12\n"
    assert run(["read", topic, "--from", "3"]) == 2
    assert b"12" in capfdbinary.readouterr().err
    assert run(["read", topic, "--from", "3", "--skip-gaps", "--limit", "1"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == b"v12\n"
    assert b"9 records were skipped" in captured.err


def test_head_tells_where_logs_begin_and_end(call: Call, topic: str) -> None:
    fill(topic, 7, partitions=2)
    found = json.loads(call("head", topic, "--json"))
    assert [(part["partition"], part["first"], part["committed"], part["next"]) for part in found] == [
        (0, 0, 7, 7),
        (1, 0, 7, 7),
    ]
    assert call("head", f"{topic}/1").splitlines()[1].split("\t")[:4] == ["1", "0", "7", "7"]
    assert run(["head", f"{topic}/2"]) == 2


def test_head_tells_it_of_several_topics_and_of_patterns(
    call: Call, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    one, two = f"{topic}.one", f"{topic}.two"
    fill(one, 5, partitions=2)
    fill(two, 10)
    rows = [line.split("\t")[:4] for line in call("head", f"{topic}.*").splitlines()]
    assert rows == [
        ["topic", "partition", "first", "committed"],
        [one, "0", "0", "5"],
        [one, "1", "0", "5"],
        [two, "0", "0", "10"],
    ]
    found = json.loads(call("head", f"{two},{one}/1", "--json"))
    assert [(part["topic"], part["partition"], part["next"]) for part in found] == [(one, 1, 5), (two, 0, 10)]
    assert json.loads(call("head", f"{topic}.nothing*", "--json")) == []
    for wrong in (f"{one},nowhere", f"{one}/2,{two}", f"{one},"):
        assert run(["head", wrong]) == 2
    assert b"nowhere" in capfdbinary.readouterr().err


def test_a_pattern_is_a_table_of_all_topics_that_fit(
    call: Call, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    one, two = f"{topic}.one", f"{topic}.two"
    fill(one, 5, partitions=2)
    fill(two, 10)
    query = f'SELECT topic, partition, count(*), max(seqno) FROM "{topic}.*" GROUP BY ALL ORDER BY 1, 2'
    wanted = [[one, "0", "5", "4"], [one, "1", "5", "4"], [two, "0", "10", "9"]]
    for more in ([], ["--topic", f"{topic}.*"]):
        assert [line.split("\t") for line in call("sql", query, *more).splitlines()[1:]] == wanted
    assert call("sql", f'SELECT count(*) AS "n?" FROM "{topic}.none*"').splitlines()[1] == "0"
    assert run(["sql", query, "--topic", one]) == 2
    assert b"does not exist" in capfdbinary.readouterr().err


def test_writes_are_refused_and_accepted_again(call: Call, topic: str) -> None:
    call("topic", "create", topic)
    call("refuse", topic, "--reason", "moved")
    assert "refused: moved" in call("topic", "list", topic)
    call("accept", topic)
    assert "accepted" in call("topic", "list", topic)
    call("refuse")
    assert json.loads(call("stats", "--json"))["refused"] is not None
    call("accept")
    assert json.loads(call("stats", "--json"))["refused"] is None


def test_ping_and_stats_answer(call: Call, node: NodeProcess, topic: str) -> None:
    found = json.loads(call("ping", "--count", "3", "--interval", "0", "--json"))
    assert len(found["round_trips_s"]) == 3
    stats = json.loads(call("stats", "--json"))
    assert stats["node_id"] == found["node_id"]
    assert f"node\t{found['node_id']}\n" in call("stats")
    assert "answer 1 after" in call("ping", "--count", "1", "--server", node.address)


def test_sql_sees_topics_as_tables_as_often_as_it_names_them(call: Call, topic: str) -> None:
    fill(topic, 12, partitions=2)
    fill(f"{topic}-x.y", 3)
    rows = call("sql", f"SELECT partition, count(*), max(seqno) FROM {topic} GROUP BY ALL ORDER BY 1", "--csv")
    assert rows.splitlines()[1:] == ["0,12,11", "1,12,11"]
    query = f'SELECT count(*) AS n FROM {topic} a JOIN {topic} b USING (seqno) JOIN "{topic}-x.y" c USING (seqno)'
    assert json.loads(call("sql", query, "--json")) == {"n": 12}
    row = json.loads(call("sql", f"SELECT * FROM {topic} WHERE seqno = 1 AND partition = 1", "--json"))
    assert (row["topic"], row["partition"], row["key"], row["value"]) == (topic, 1, "k1", "v1")
    assert (row["channel"], row["tags"], row["headers"]) == ("site/1", ["odd", "x"], [])
    assert call("sql", f"SELECT decode(value) AS v FROM {topic} LIMIT 1") == "v\nv0\n"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "COPY (SELECT 1) TO 'made'",
        "ATTACH 'made'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET temp_directory = '.'",
        "SELECT * FROM relations",
    ],
)
def test_sql_reaches_nothing_but_topics(
    topic: str, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["sql", query]) == 2
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_sql_without_duckdb_says_what_to_install(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert run(["sql", "SELECT 1"]) == 2
    assert "pip install '.[sql]'" in capsys.readouterr().err


def test_the_doctor_asks_a_node_and_looks_at_its_files(
    call: Call, node: NodeProcess, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(topic)
    call("cursor", "set", topic, topic, "3")
    call("topic", "trim", topic, "10")
    call("refuse", topic, "--reason", "moved")
    assert run(["doctor", "--quick", "--json", node.address]) == 1
    report: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    found = {(finding["kind"], finding["where"]) for finding in report["node"]["findings"]}
    assert {("writes refused", topic), ("cursor left behind", f"{topic} on {topic}/0")} <= found
    assert report["files"]["path"] == str(node.directory)
    assert run(["doctor", "--quick"]) == 1
    out = capfdbinary.readouterr().out.decode()
    assert f"writes refused: {topic}\n    moved\n    to do: `logboom accept {topic}`" in out
    assert f"its files in {node.directory}" in out
    call("accept", topic)
    call("topic", "delete", topic, "--yes")


def test_the_doctor_tells_which_limits_are_near_and_which_have_said_no(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with NodeProcess(tmp_path, "--set", "limits.topics=6") as small:
        monkeypatch.setenv("LOGBOOM_SERVERS", small.address)
        codes = [run(["topic", "create", name]) for name in "abcdefg"]
        assert (codes[0], codes[-1]) == (0, 2)
        capfdbinary.readouterr()
        assert run(["doctor", "--quick", "--json", "--server", small.address]) == 1
        findings = json.loads(capfdbinary.readouterr().out)["node"]["findings"]
    found = {(finding["kind"], finding["where"]) for finding in findings}
    assert {("near a limit", "limits.topics"), ("limit reached", "limits.topics")} <= found


def test_a_new_topic_is_what_the_node_says_where_nobody_says_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    rules = ("--set", "topics.partitions=3", "--set", "topics.settings.retention.age_ms=7d")
    with NodeProcess(tmp_path, *rules) as process:
        monkeypatch.setenv("LOGBOOM_SERVERS", process.address)
        made = json.loads(call("topic", "create", "plain", "--json"))
        assert len(made["partitions"]) == 3
        assert made["settings"]["retention"]["age_ms"] == 7 * 86_400_000
        made = json.loads(call("topic", "create", "own", "--partitions", "1", "--set", "flush.policy=os", "--json"))
        assert len(made["partitions"]) == 1
        assert made["settings"]["retention"]["age_ms"] == 7 * 86_400_000
        assert made["settings"]["flush"]["policy"] == "os"


def test_a_limit_below_nothing_is_refused(topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    fill(topic)
    assert run(["read", topic, "--limit", "-1"]) == 2
    assert "--limit is -1" in capfd.readouterr().err
