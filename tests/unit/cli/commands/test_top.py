"""`logboom top` without a terminal: its lines at every size, what it keeps, and what it prints once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from logboom.broker.api import CursorInfo, NodeStats, PartitionInfo, ReplicaStats, Settings, TopicInfo
from logboom.broker.caller import EVERYBODY
from logboom.broker.monitor.activity import (
    Activity,
    DiskStats,
    History,
    Incident,
    LagHistory,
    Percentiles,
    TopicActivity,
    TopicHistory,
)
from logboom.broker.monitor.checkup import Complaint
from logboom.cli import run
from logboom.cli.top.detail import ROWS_MAX, detail_lines
from logboom.cli.top.lines import trouble_lines
from logboom.cli.top.look import HISTORY_MAX, Detail, NodeLook, View, join_histories
from logboom.cli.top.page import Mood, TopPage, help_lines, overview, plain_text, scrolled
from logboom.cli.top.plot import bars, bucket_us, columns, short_age, short_duration, short_number, short_size
from logboom.client.remote import RemoteBroker
from logboom.protocols.binary import messages
from logboom.storage.data.topic import RetentionSettings
from support.nodes.process import NodeProcess

NOW = 1_790_000_000_000_000
STEP = 2_000_000
SIZES = [(1, 1), (1, 24), (2, 18), (3, 42), (20, 4), (40, 10), (80, 24), (81, 25), (120, 41), (200, 60), (400, 100)]
HOSTILE = "[bold]x[/bold] \x1b[31mred\x1b]0;title\x07 \u202eback\r\nline \u9f8d\u9f8d"


def history_of(at: list[int], records: float = 10.0) -> History:
    count = len(at)
    times = Percentiles([0.001] * count, [None if number % 7 == 0 else 0.002 for number in range(count)])
    rates, counts = [records] * count, [number % 3 for number in range(count)]
    return History(2000, at, rates, rates, rates, rates, times, times, times, *([counts] * 6))


def topic_of(number: int, name: str | None = None) -> TopicActivity:
    return TopicActivity(
        name or f"orders.{number}",
        "0" * 32,
        partitions=3,
        records=10**number,
        size_bytes=7**number,
        newest=NOW - 10**number if number else None,
        retention=RetentionSettings(age_ms=86_400_000, bytes=1 << 34) if number % 2 else RetentionSettings(),
        refused="closed" if number == 4 else None,
        damaged=int(number == 5),
        records_in=3.0**number,
        bytes_in=9.0**number,
        records_out=0.5,
        bytes_out=0.0,
        recent_in=[number % 5 for number in range(150)] if number else [],
        recent_out=[],
        cursors=number,
        lag=11**number if number else None,
    )


def stats_of(**changes: object) -> NodeStats:
    stats = NodeStats(
        "3f2a9c1e" * 4,
        "c" * 32,
        "1.2.3",
        NOW - 90_000_000_000,
        NOW,
        topics=12,
        logs=30,
        writes={"unsynced_bytes": 3 << 20},
        reads={},
        syncs={},
        rejections={},
        connections={"binary": 11, "http": 3},
        memory_bytes=150 << 20,
        open_files=1000,
        limits={"connections": 20_000, "unsynced_bytes": 1 << 30},
        memory_limit_bytes=8 << 30,
        open_files_limit=1024,
        disk=DiskStats(500 << 30, 120 << 30, 1 << 30, 70 << 30),
    )
    return msgspec.structs.replace(stats, **changes)


def look_of(**changes: object) -> NodeLook:
    topics = [topic_of(number) for number in range(20)]
    at = [NOW - number * STEP for number in reversed(range(300))]
    look = NodeLook("127.0.0.1:1", View(), stats_of(), history_of(at), Activity(2000, 20, 20, topics), [], [])
    return msgspec.structs.replace(look, **changes)


def text_of(page: TopPage) -> str:
    return "\n".join(line.plain for line in page.lines)


COMPLAINTS = [
    Complaint("info", "cursor lag", "a on b", "2 records behind", "nothing"),
    Complaint("warning", "near a limit", "limits.topics", "19 of 20", "raise it"),
    Complaint("damage", "log takes no writes", HOSTILE, HOSTILE, "run `logboom doctor`"),
]
INCIDENTS = [Incident("rejection", HOSTILE, HOSTILE * 5, 7, NOW - 5, NOW - 3_000_000)] * 30
REPLICA = ReplicaStats(HOSTILE, False, 12, {}, NOW - 60_000_000, HOSTILE)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("is_well", [True, False])
def test_a_page_is_as_large_as_the_terminal_and_nothing_in_it_moves_the_cursor(
    width: int, height: int, is_well: bool
) -> None:
    look = look_of() if is_well else look_of(findings=COMPLAINTS, incidents=INCIDENTS, stats=stats_of(replica=REPLICA))
    for mood in (Mood(), Mood(3, True, HOSTILE), Mood(gone=HOSTILE, gone_since=1.0)):
        lines = overview(look, width, height, mood).lines
        assert len(lines) == height
        assert_harmless(lines, width)


def assert_harmless(lines: list[Text], width: int) -> None:
    for line in lines:
        assert cell_len(line.plain) <= width
        assert line.plain.isprintable()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_longer_texts_fit_too_wherever_they_are_scrolled_to(width: int, height: int) -> None:
    look = look_of(findings=COMPLAINTS, incidents=INCIDENTS)
    for body in (help_lines(width), trouble_lines(look.findings, look.incidents, NOW, width)):
        for at in (0, 5):
            page = scrolled(body, at, look, width, height, Mood())
            assert len(page.lines) == height
            assert_harmless(page.lines, width)


def test_the_help_fits_a_small_terminal_whole() -> None:
    assert all(not line.plain.endswith("…") for line in help_lines(80))


def test_the_topics_get_what_the_other_parts_leave() -> None:
    small, large = overview(look_of(), 80, 24), overview(look_of(), 200, 60)
    assert small.rows >= 8
    assert large.rows > 20
    assert "orders.0" in small.lines[small.table_top].plain
    assert overview(look_of(findings=COMPLAINTS, incidents=INCIDENTS), 80, 24).rows >= 4
    assert overview(look_of(findings=COMPLAINTS, incidents=INCIDENTS), 40, 10).rows >= 4


def test_markup_of_others_is_shown_as_it_was_written() -> None:
    page = overview(look_of(incidents=INCIDENTS), 200, 60)
    assert "[bold]x[/bold]" in text_of(page)
    assert "\\x1b[31mred" in text_of(page)


def test_what_is_worst_is_told_with_its_cause_what_to_do_and_how_much_more_there_is() -> None:
    text = " ".join(text_of(overview(look_of(findings=COMPLAINTS), 200, 60)).split())
    assert "DAMAGE (1 more: i) log takes no writes" in text
    assert "to do: run `logboom doctor`" in text
    assert "nothing is wrong" not in text


def test_mere_notes_are_nothing_wrong() -> None:
    assert "nothing is wrong, 1 note (i)" in text_of(overview(look_of(findings=COMPLAINTS[:1]), 80, 24))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "writes accepted"),
        ({"refused": ""}, "writes REFUSED: switched to read-only"),
        ({"refused": "a sync has failed"}, "writes REFUSED: a sync has failed"),
        (
            {"replica": ReplicaStats("db1:1774", True, 1200, {})},
            "replica of db1:1774 (connected, 1.20k records behind)",
        ),
        ({"replica": ReplicaStats("db1:1774", False, 0, {})}, "NOT CONNECTED, never heard of"),
    ],
    ids=["accepted", "read-only", "failed", "replica", "lonely replica"],
)
def test_the_head_says_whether_writes_are_taken(changes: dict[str, object], words: str) -> None:
    assert words in text_of(overview(look_of(stats=stats_of(**changes)), 120, 24))


def test_a_node_that_says_little_of_itself_is_shown_all_the_same() -> None:
    stats = stats_of(disk=None, memory_limit_bytes=0, open_files_limit=0, limits={}, connections={})
    look = look_of(stats=stats, history=history_of([]), activity=Activity(2000, 0, 0, []), findings=None)
    text = text_of(overview(look, 80, 24))
    assert "health: not looked at yet" in text
    assert "TOPICS none" in text


def test_while_the_node_is_gone_everything_is_dimmed_but_that() -> None:
    lines = overview(look_of(), 80, 24, Mood(gone="no connection", gone_since=1.0)).lines
    assert lines[1].plain.startswith("NO ANSWER since ")
    dimmed = [any(span.style == "dim" and span.end - span.start == len(line) for span in line.spans) for line in lines]
    assert dimmed == [number != 1 or not len(line) for number, line in enumerate(lines)]


def test_damaged_and_refused_topics_are_marked_without_colour() -> None:
    text = text_of(overview(look_of(), 80, 24))
    assert "! orders.4 " in text
    assert "X orders.5 " in text


def test_more_columns_come_where_there_is_room() -> None:
    narrow, wide = (text_of(overview(look_of(), width, 40)) for width in (80, 140))
    assert "RECORDS" not in narrow
    assert all(title in wide for title in ("RECORDS", "KEPT", "CURS", "1d 16GiB"))


def test_who_sorts_by_bytes_read_sees_them() -> None:
    page = overview(look_of(view=View(sort="bytes_out")), 80, 24)
    assert "▼BOUT/s" in page.lines[page.table_top - 1].plain


@pytest.mark.parametrize("power", range(0, 19, 3))
def test_numbers_stay_as_narrow_as_their_columns(power: int) -> None:
    for value in (10**power, 9.996 * 10**power, 99.96 * 10**power, 999.6 * 10**power):
        assert len(short_number(value)) <= 6
        assert len(short_size(value)) <= 8
    for seconds in (1e-6, 9.9996e-4, 0.0123, 0.9996, 59.99, 99.6, 5999, 1e6):
        assert len(short_duration(seconds)) <= 6
    assert len(short_age(NOW)) <= 6


def test_a_plot_shows_the_largest_of_each_column_and_nothing_where_nothing_was() -> None:
    at = [0, STEP, 2 * STEP, 3 * STEP, 10 * STEP]
    assert columns(at, [1, 5, 2, None, 3], 2 * STEP, 7) == [None, 5, 2, None, None, None, 3]
    assert columns([], [], STEP, 2) == [None, None]


def test_what_is_zero_what_is_little_and_what_is_unknown_look_different() -> None:
    (row,) = bars([None, 0, 0.001, 100])
    assert row == " ▁▂█"
    assert bars([None, 0, 50, 100], 2) == ["  ▁█", " ▁██"]


def test_columns_stay_where_they_are_as_time_goes_on() -> None:
    at, values = [number * STEP for number in range(40)], [float(number * 7 % 13) for number in range(40)]
    size = 4 * STEP
    before, after = columns(at[:-4], values[:-4], size, 8), columns(at, values, size, 8)
    assert before[1:] == after[:-1]


@pytest.mark.parametrize("width", [1, 10, 100, 1000])
def test_a_plot_never_covers_less_than_there_is_up_to_five_minutes(width: int) -> None:
    for count in (0, 1, 10, 150, 300):
        at = [number * STEP for number in range(count)]
        covered = width * bucket_us(2000, at, width)
        assert covered >= min(300_000_000, at[-1] - at[0] if at else 0)


def test_new_samples_are_added_to_those_before_and_the_oldest_go() -> None:
    at = [number * STEP for number in range(HISTORY_MAX)]
    joined = join_histories(history_of(at, 1.0), history_of([HISTORY_MAX * STEP], 2.0))
    assert (len(joined.at), joined.at[0], joined.at[-1]) == (HISTORY_MAX, STEP, HISTORY_MAX * STEP)
    assert joined.records_in[-2:] == [1.0, 2.0]
    assert {len(joined.append.p99), len(joined.read.p50), len(joined.connections)} == {HISTORY_MAX}


def test_after_a_restart_what_was_before_stays_and_nothing_is_doubled() -> None:
    before = history_of([0, STEP, 2 * STEP])
    assert join_histories(before, history_of([])).at == before.at
    assert join_histories(before, history_of([2 * STEP, 9 * STEP])).at == [0, STEP, 2 * STEP, 9 * STEP]


def test_a_clock_that_was_set_back_takes_the_future_with_it() -> None:
    assert join_histories(history_of([50 * STEP, 60 * STEP]), history_of([55 * STEP])).at == [50 * STEP, 55 * STEP]


def test_the_details_of_a_topic_are_its_logs_its_own_settings_and_its_cursors() -> None:
    text = "\n".join(line.plain for line in detail_lines(detail_of(2, 2), NOW, 100))
    assert "2 partitions, 20 records" in text
    assert "retention.age_ms" in text
    assert "segment.bytes" not in text
    assert "takes no writes: \\x1b[31m" in text
    assert "reader-0" in text


def detail_of(partitions: int, cursors: int) -> Detail:
    logs = [PartitionInfo(number, 5, 15, 15, 0, 900, 2, NOW, "\x1b[31m") for number in range(partitions)]
    settings = Settings(retention=RetentionSettings(age_ms=86_400_000))
    readers = [CursorInfo(f"reader-{n}", "orders", "0" * 32, 0, 9, "", NOW, 6) for n in range(cursors)]
    at = [NOW - STEP, NOW]
    history = TopicHistory(2000, at, [4, 5], [0, 1], [LagHistory("reader-0", 0, [None, 6])])
    return Detail("orders", TopicInfo("orders", "0" * 32, logs, settings), history, readers)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_details_fit_and_are_bounded_however_many_logs_and_cursors_there_are(width: int, height: int) -> None:
    lines = detail_lines(detail_of(10_000, 10_000), NOW, width)
    assert_harmless(lines, width)
    assert len(lines) < 2 * ROWS_MAX + 40
    assert len(scrolled(lines, 3, look_of(), width, height, Mood()).lines) == height


def test_a_topic_that_was_deleted_says_so() -> None:
    assert "no such topic any more" in "\n".join(line.plain for line in detail_lines(Detail("a", None), NOW, 80))


def test_the_plain_text_has_every_topic_of_the_look_and_no_escapes() -> None:
    text = plain_text(look_of(findings=COMPLAINTS, incidents=INCIDENTS), 100)
    assert all(f" orders.{number} " in text for number in range(20))
    assert text.replace("\n", "").isprintable()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0") as process:
        assert run(["topic", "create", "orders.eu", "--server", process.address]) == 0
        assert run(["topic", "create", "other", "--server", process.address]) == 0
        yield process


def test_once_prints_the_overview_and_ends(node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--once", "--server", node.address, "--search", "ORD"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "writes accepted" in captured.out
    assert "TOPICS 1 to 1 of 1 that match 'ORD', of 2" in captured.out
    assert "\x1b" not in captured.out


def test_without_a_terminal_it_is_printed_once(node: NodeProcess) -> None:
    command = [sys.executable, "-m", "logboom", "top", "--server", node.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=True)
    assert "orders.eu" in done.stdout
    assert done.stderr == ""


def test_json_has_stats_the_last_sample_topics_findings_and_incidents(
    node: NodeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--json", "--server", node.address, "--limit", "1", "--sort", "name"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["stats", "sample", "total", "matched", "topics", "findings", "incidents"]
    assert (found["total"], found["matched"]) == (2, 2)
    assert [topic["name"] for topic in found["topics"]] == ["orders.eu"]
    assert found["stats"]["topics"] == 2
    assert isinstance(found["findings"], list)
    assert isinstance(found["incidents"], list)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_where_the_encoding_has_no_blocks_plots_are_drawn_with_plainer_signs(node: NodeProcess, encoding: str) -> None:
    command = [sys.executable, "-m", "logboom", "top", "--once", "--server", node.address]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=300, check=True)
    assert re.search(rb"^files +#+\.+ ", done.stdout, re.MULTILINE)
    assert b"vIN/s" in done.stdout
    assert b"?" not in done.stdout
    assert done.stderr == b""


def test_a_reader_that_has_seen_enough_is_no_trouble(node: NodeProcess) -> None:
    command = f"'{sys.executable}' -m logboom top --once --server {node.address} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=300, check=True)
    assert done.stderr == b""


def test_a_node_that_does_not_know_what_it_is_asked_is_said_to_be_of_another_release(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask_what_nobody_knows(broker: RemoteBroker, since: int = 0) -> History:
        asked = cast(messages.Call, UnknownCall(since))
        return await broker._call(asked, msgspec.msgpack.Decoder(History), EVERYBODY)

    monkeypatch.setattr(RemoteBroker, "history", ask_what_nobody_knows)
    assert run(["top", "--once", "--server", node.address]) == 2
    assert f"the node at {node.address} may be of another release than this command: " in capsys.readouterr().err


class UnknownCall(msgspec.Struct, tag="of a later release"):
    since: int


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "127.0.0.1:1"], "logboom serve"),
        (["--once", "--server", "a:b:c"], "--server"),
        (["--once", "--limit", "0"], "--limit"),
        (["--interval", "0"], "--interval"),
        (["--interval", "nan"], "--interval"),
    ],
)
def test_what_is_wrong_is_said_plainly(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["--help"], ["top", "--help"]], ids=["logboom", "top"])
def test_help_does_not_wait_for_textual(arguments: list[str], tmp_path: Path) -> None:
    code = f"import sys; from logboom.cli import run; run({arguments}); print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "False"
