"""Parts of a log, and of those what is wanted: against a list, however the log was written, cut and stored anew."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.batch import NO_TIMESTAMP, Record, Selection, build_records
from logboom.client import FileReader
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.readable_log import SeqnoRange
from support.spark.content import store_anew

NOW = 1_000
COLUMNS = ("seqno", "timestamp", "key", "value", "channel", "tags", "headers")

moments = st.none() | st.integers(NOW - 20, NOW + 20) | st.sampled_from([NO_TIMESTAMP + 1, -1, 0, 2**63 - 1])
records = st.builds(
    Record,
    st.none() | st.binary(max_size=20),
    key=st.sampled_from([None, b"", b"a", b"\xff"]),
    timestamp=moments,
    channel=st.sampled_from([None, "a", "a/b", "x*"]),
    tags=st.lists(st.sampled_from(["red", "blue", ""]), max_size=2).map(tuple),
    headers=st.lists(st.tuples(st.sampled_from(["h", ""]), st.binary(max_size=3)), max_size=2).map(tuple),
)
plain = st.builds(lambda size: Record(b"x" * size), st.sampled_from([0, 10, 500, 5000]))
batches = st.builds(
    lambda rows, times, codec: ("append", rows * times, codec),
    st.lists(records, min_size=1, max_size=6) | st.lists(plain, min_size=1, max_size=3),
    st.sampled_from([1, 1, 1, 3, 60]),
    st.sampled_from(["none", "none", "lz4", "zstd"]),
)
shares = st.floats(0, 1)
steps = st.one_of(
    batches,
    batches,
    batches,
    st.just(("roll",)),
    st.just(("store anew",)),
    st.tuples(st.just("drop"), shares),
    st.tuples(st.just("trim"), shares),
)
wishes = st.none() | st.builds(
    Selection,
    tags_any=st.sampled_from([(), (), ("red",), ("blue", "")]),
    tags_all=st.sampled_from([(), (), ("red", "blue")]),
    channel=st.sampled_from([None, None, "a", "a*", "a/#", "+", "x*"]),
    key=st.sampled_from([None, None, b"", b"a", b"b"]),
    time_from=st.none() | st.integers(NOW - 22, NOW + 60) | st.just(-(2**63)),
    time_until=st.none() | st.integers(NOW - 22, NOW + 60) | st.just(2**63),
)


def carry_out(data: DataDirectory, log: Log, done: list[Any], number: int) -> None:
    name, rest = done[0], done[1:]
    place = log.first + round((log.committed - log.first) * rest[0]) if name in ("drop", "trim") else 0
    if name == "append":
        log.append_one(build_records(rest[0], codec=rest[1]), NOW + number)
        log.commit(log.sync())
    elif name == "roll":
        log.roll()
    elif name == "store anew":
        store_anew(data, log)
    elif name == "drop":
        log.drop(place)
    else:
        log.trim(place, NOW + number)
        log.commit(log.sync())


def wants(wanted: Selection, record: Record) -> bool:
    batch = build_records([record])
    return bool(list(batch.records(wanted)))


def check_pieces(pieces: list[SeqnoRange], low: int, high: int, size: int) -> None:
    if low >= high:
        assert pieces == []
        return
    assert (pieces[0].seqno_from, pieces[-1].seqno_until) == (low, high)
    assert all(one.seqno_until == other.seqno_from for one, other in pairwise(pieces))
    assert all(piece.seqno_from < piece.seqno_until and piece.size >= 0 for piece in pieces)
    assert sum(piece.size for piece in pieces) <= size


@settings(max_examples=60)
@given(st.lists(steps, max_size=30), wishes, st.data())
def test_any_part_of_any_log_is_read_exactly(done: list[Any], wanted: Selection | None, draw: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root, DataDirectory.open(f"{root}/data") as data:
        data.create_topic("events", 1, Settings(segment=SegmentSettings(bytes=8192)))
        (log,) = data.open_topic("events")
        for number, step in enumerate(done):
            carry_out(data, log, step, number)
        with FileReader(f"{root}/data", "events", 0) as reader:
            rows = {record.seqno: record for record in reader.records()}
            first, committed = reader.first, reader.committed
            assert list(rows) == list(range(first, committed))
            ends = st.integers(first, committed)
            low, high = draw.draw(ends), draw.draw(ends | st.just(committed + 5))
            max_bytes = draw.draw(st.sampled_from([1, 1000, 20_000, 1 << 20]))
            columns = draw.draw(st.none() | st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
            reader.seek(low)
            found = []
            for table in reader.tables(columns, max_bytes=max_bytes, until=high, where=wanted):
                assert table.column_names == list(COLUMNS if columns is None else columns)
                found += plain_rows(table)
            expected = [
                record
                for seqno, record in rows.items()
                if low <= (seqno or 0) < high and (wanted is None or wants(wanted, record))
            ]
            assert found == [shown(record, columns or COLUMNS) for record in expected]
            assert reader.seqno == max(low, min(high, committed))
            every = draw.draw(st.sampled_from([1, 500, 5_000, 1 << 30]))
            check_pieces(reader.cut(low, high, every), low, min(high, committed), log.size_bytes)
            whole = reader.cut(0, 2**62, every)
            check_pieces(whole, first, committed, log.size_bytes)
            read = []
            for piece in whole:
                reader.seek(piece.seqno_from)
                for table in reader.tables(["seqno"], until=piece.seqno_until):
                    read += table.column(0).to_pylist()
            assert read == list(rows)


def shown(record: Record, columns: Any) -> dict[str, Any]:
    row = {
        "seqno": record.seqno,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "channel": record.channel,
        "tags": list(record.tags),
        "headers": [{"key": key, "value": value} for key, value in record.headers],
    }
    return {name: row[name] for name in columns}


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Times as numbers: `datetime` does not reach so far."""
    if "timestamp" in table.column_names:
        at = table.column_names.index("timestamp")
        table = table.set_column(at, "timestamp", table.column(at).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
