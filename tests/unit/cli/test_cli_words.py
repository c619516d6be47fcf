"""What people type, and what is made of it: settings, times, places, names, lines of JSON."""

from __future__ import annotations

import doctest
import importlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import Record
from logboom.batch.moment import rfc3339
from logboom.batch.ndjson import decode_record, encode_record
from logboom.broker.api import Start
from logboom.cli.commands.sql import named_in
from logboom.cli.records.bounds import Bounds
from logboom.cli.setting import KEYS, apply_settings, list_settings
from logboom.cli.show.moment import parse_moment, show_moment
from logboom.cli.start import ReadEnd, parse_end, parse_start
from logboom.cli.target import parse_target
from logboom.errors import ConfigError, InvalidColumn
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.topic import Settings


@pytest.mark.parametrize(
    "name",
    ["cli.show.moment", "batch.moment", "batch.ndjson", "server.units", "cli.setting", "cli.start", "cli.target"],
)
def test_examples_in_docstrings_of_the_command_line_hold(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"logboom.{name}"))
    assert not failed


def test_settings_take_sizes_and_durations() -> None:
    found = apply_settings(
        Settings(), ["retention.age=7d", "segment.bytes=1GiB", "flush.policy=os", "acks.least=leader"]
    )
    assert found.retention.age_ms == 7 * 86_400_000
    assert found.segment.bytes == 2**30
    assert (found.flush.policy, found.acks.least) == ("os", "leader")
    assert apply_settings(Settings(), ["retention.age_ms=250"]).retention.age_ms == 250


def test_an_empty_value_puts_the_default_back() -> None:
    changed = apply_settings(Settings(), ["retention.age=7d", "flush.interval=1s"])
    assert apply_settings(changed, ["retention.age=", "flush.interval_ms="]) == Settings()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("retention.aeg=7d", "the nearest is retention.age"),
        ("flush.polcy=os", "the nearest is flush.policy"),
        ("flush.policy=never", "each, interval, os"),
        ("segment.bytes=12", "4KiB to 1TiB"),
        ("segment.bytes=64M", "64MiB"),
        ("retention.age=7", "needs a unit"),
        ("recompression.level=high", "whole number"),
        ("retention.age", "key=value"),
        ("everything=1", "there are segment.bytes"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_right(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        apply_settings(Settings(), [change])
    assert caught.value.key == change.partition("=")[0]


def test_every_setting_is_listed_and_can_be_set_to_what_is_listed() -> None:
    listed = list(list_settings(Settings()))
    assert [name for name, _, _ in listed] == list(KEYS)
    assert all(same for _, _, same in listed)
    assert apply_settings(Settings(), [f"{name}={value}" for name, value, _ in listed if value != "none"]) == Settings()


def test_times_may_be_absolute_or_ago() -> None:
    assert parse_moment("2026-01-31T12:00:00.5Z") == 1769860800500000
    assert parse_moment("2026-01-31T13:00:00+01:00") == parse_moment("2026-01-31T12:00:00Z")
    assert parse_moment("-10m", now=10**15) == 10**15 - 600_000_000
    assert abs(parse_moment("now") - time.time_ns() // 1000) < 60_000_000


def test_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        assert parse_moment("2026-01-31T14:00:00") == parse_moment("2026-01-31T12:00:00Z")
        assert show_moment(parse_moment("2026-01-31T12:00:00Z")) == "2026-01-31T14:00:00.000+02:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "yesterday", "-10", "-m", "2026-13-01", "10m"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        parse_moment(text)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_time_in_json_is_exact_or_a_number(moment: int) -> None:
    text = rfc3339(moment)
    assert text == moment if isinstance(text, int) else parse_moment(str(text)) == moment
    assert show_moment(moment)


def test_places_have_one_meaning_each() -> None:
    bookmark = str(Bookmark(bytes(16), 0, 5, 1))
    assert parse_start("earliest") == Start()
    assert parse_start("latest") == Start(at="latest")
    assert parse_start("1000") == Start(seqno=1000)
    assert parse_start(bookmark) == Start(bookmark=bookmark)
    assert parse_start("cursor:billing") == Start(cursor="billing")
    assert parse_start("2026-01-31T12:00:00Z") == Start(time=1769860800000000)
    assert parse_end("7") == ReadEnd(seqno=7)
    assert parse_end(None) == ReadEnd()
    for text in ("soon", "1.5", bookmark[:-1]):
        with pytest.raises(ConfigError, match="--from"):
            parse_start(text)
    with pytest.raises(ConfigError, match="--until"):
        parse_end("soon")


def test_a_log_is_a_topic_and_maybe_a_partition() -> None:
    assert parse_target("events") == ("events", None)
    assert parse_target("events/12") == ("events", 12)
    for text in ("events/", "events/x", "events/-1", "events/1/2"):
        with pytest.raises(ConfigError, match="TOPIC/PARTITION"):
            parse_target(text)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    value=st.none() | st.binary(max_size=8),
    key=st.none() | st.binary(max_size=8),
    timestamp=st.integers(-(2**62), 2**62),
    channel=st.none() | texts.filter(bool),
    tags=st.lists(texts, max_size=3),
    headers=st.lists(st.tuples(texts, st.binary(max_size=4)), max_size=3),
)
def test_what_read_prints_write_takes_back(
    value: bytes | None,
    key: bytes | None,
    timestamp: int,
    channel: str | None,
    tags: list[str],
    headers: list[tuple[str, bytes]],
) -> None:
    line = encode_record(7, timestamp, key, value, channel, tags, headers)
    assert b"\n" not in line
    assert decode_record(line) == Record(value, key, timestamp, channel, tuple(tags), tuple(headers))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"value": "text"}', b"text"),
        ('{"value": 1.50}', b"1.50"),
        ('{"value": {"b": 1,  "a": [true]}}', b'{"b": 1,  "a": [true]}'),
        ('{"value": null}', None),
        ('{"value": {"base64": "/wA="}}', b"\xff\x00"),
        ('{"value": {"base64": "/wA=", "more": 1}}', b'{"base64": "/wA=", "more": 1}'),
        ('{"value": "\\u00e9", "headers": {"a": "b"}}', "é".encode()),
    ],
)
def test_a_value_may_be_any_json(line: str, value: bytes | None) -> None:
    assert decode_record(line.encode()).value == value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "truncated"),
        ("text", "malformed"),
        ('{"key": "k"}', "value"),
        ('{"value": 1, "tag": "x"}', "tag"),
        ('{"value": {"base64": "*"}}', "base64"),
        ('{"value": 1, "timestamp": "soon"}', "no time"),
        ('{"value": 1, "tags": "x"}', "tags"),
        ('{"value": "\\ud800"}', "line|value"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_the_reason(line: str, words: str) -> None:
    with pytest.raises(InvalidColumn, match=words):
        decode_record(line.encode())


def test_json_lines_are_what_the_documentation_says() -> None:
    line = encode_record(7, 1, b"k", b"\xff", "a/b", ["t"], [("h", b"v")])
    assert json.loads(line) == {
        "seqno": 7,
        "timestamp": "1970-01-01T00:00:00.000001Z",
        "key": "k",
        "value": {"base64": "/w=="},
        "channel": "a/b",
        "tags": ["t"],
        "headers": [["h", "v"]],
    }


@pytest.mark.parametrize("as_table", [False, True])
def test_bounds_cut_at_whatever_comes_first(as_table: bool) -> None:
    def keep(bounds: Bounds, seqnos: list[int], times: list[int]) -> int:
        if not as_table:
            return bounds.keep(seqnos, times)
        import pyarrow as pa

        moments = pa.array(times, pa.timestamp("us", "UTC"))
        return bounds.keep_table(pa.table({"seqno": seqnos, "timestamp": moments}))

    bounds = Bounds(ReadEnd(), 3)
    assert (keep(bounds, [0, 1], [0, 0]), bounds.reached) == (2, False)
    assert (keep(bounds, [2, 3], [0, 0]), bounds.reached) == (1, True)
    bounds = Bounds(ReadEnd(seqno=5), None)
    assert (keep(bounds, [3, 4, 7], [0, 0, 0]), bounds.reached) == (2, True)
    bounds = Bounds(ReadEnd(time=10), None)
    assert (keep(bounds, [0, 1, 2, 3], [1, 9, 10, 2]), bounds.reached) == (2, True)
    bounds = Bounds(ReadEnd(seqno=5), 10)
    assert (keep(bounds, [5, 6], [0, 0]), bounds.reached) == (0, True)
    assert Bounds(ReadEnd(), 0).reached


def test_topics_are_found_in_a_query_by_name() -> None:
    topics = ["events", "web-logs", "Users", "other"]
    assert named_in('SELECT * FROM EVENTS JOIN "web-logs" USING (key)', topics) == ["events", "web-logs"]
    assert named_in("SELECT * FROM users", topics) == ["Users"]
    assert named_in("SELECT * FROM Events", ["events", "Events"]) == ["Events"]
    with pytest.raises(ConfigError, match="--topic"):
        named_in("SELECT * FROM EVENTS", ["events", "Events"])
