from __future__ import annotations

from operator import length_hint
from typing import Any

import msgspec
import pytest

from logboom.batch import (
    HEADER_SIZE,
    KIND_CONTROL,
    KIND_LOST,
    Batch,
    Record,
    build,
    build_control,
    build_records,
    microseconds,
    stamp,
)
from logboom.errors import BodyCorrupt, UnsupportedBatch
from support.mutants.batches import mixed_records, with_fields

COUNTS = [1, 7, 8, 9, 16, 17, 48, 49, 1000, 1024, 1025, 2500]
CODECS = ["none", "lz4", "zstd"]
BASE, APPENDED = 5_000, 1_800_000_000_000_000


class Note(msgspec.Struct):
    text: str


def stamped(batch: Batch) -> Batch:
    """The batch as a reader gets it from a log."""
    return Batch.parse(stamp(batch.data[:HEADER_SIZE], BASE, 3, APPENDED, 1, 1) + bytes(batch.data[HEADER_SIZE:]))


def seen(records: list[Record]) -> list[Record]:
    return [
        msgspec.structs.replace(
            record, seqno=seqno, timestamp=APPENDED if record.timestamp is None else record.timestamp
        )
        for seqno, record in enumerate(records, BASE)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", COUNTS)
def test_records_lists_and_arrow_agree(count: int, codec: str) -> None:
    expected = seen(mixed_records(count))
    batch = stamped(build_records(mixed_records(count), codec=codec))
    assert list(batch.records()) == expected
    assert batch.values() == [record.value for record in expected]
    assert batch.keys() == [record.key for record in expected]
    assert batch.timestamps() == [record.timestamp for record in expected]
    assert batch.channels() == [record.channel for record in expected]
    assert batch.tags() == [record.tags for record in expected]
    assert batch.headers() == [record.headers for record in expected]
    assert list(batch.seqnos()) == [record.seqno for record in expected]
    rows: list[dict[str, Any]] = batch.to_arrow().to_pylist()
    assert [
        Record(
            row["value"],
            row["key"],
            microseconds(row["timestamp"]),
            row["channel"],
            tuple(row["tags"]),
            tuple((item["key"], item["value"]) for item in row["headers"]),
            row["seqno"],
        )
        for row in rows
    ] == expected


@pytest.mark.parametrize("count", COUNTS)
def test_a_record_takes_its_seqno_when_it_is_made_and_no_sooner(count: int) -> None:
    batch = stamped(build([b"%d" % number for number in range(count)]))
    skip = count // 3
    seqnos = iter(range(skip, count))
    for number, record in enumerate(batch.numbered(seqnos, skip), skip):
        assert (record.seqno, record.value) == (number, b"%d" % number)
        assert length_hint(seqnos) == count - number - 1
    assert number == count - 1


@pytest.mark.parametrize("count", COUNTS)
def test_records_with_nothing_but_a_key_come_as_often_as_they_are(count: int) -> None:
    batch = stamped(build([None] * count, keys=[b"%d" % number for number in range(count)]))
    records = list(batch.records())
    assert [record.key for record in records] == [b"%d" % number for number in range(count)]
    assert [record.seqno for record in records] == list(range(BASE, BASE + count))
    assert {record.value for record in records} == {None}


@pytest.mark.parametrize("count", COUNTS)
def test_records_without_timestamps_show_the_append_time(count: int) -> None:
    batch = stamped(build([b"v"] * count))
    assert batch.timestamps() == [APPENDED] * count
    assert [record.timestamp for record in batch.records()] == [APPENDED] * count
    assert {microseconds(moment) for moment in batch.to_arrow(["timestamp"]).column(0).to_pylist()} == {APPENDED}


@pytest.mark.parametrize("source", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_a_batch_is_parsed_from_any_bytes_even_where_they_are_not_aligned(source: Any) -> None:
    data = bytes(build_records(mixed_records(100)).data)
    batch = Batch.parse(source(data))
    assert list(batch.records()) == list(build_records(mixed_records(100)).records())
    batch.to_arrow().validate(full=True)


def test_a_batch_ends_where_its_size_says_and_others_may_follow() -> None:
    first, second = build([b"a"] * 3), build([b"b"] * 4)
    stream = bytes(first.data) + bytes(second.data)
    assert Batch.parse(stream).data == first.data
    assert Batch.parse(memoryview(stream)[first.header.size :]).values() == [b"b"] * 4


def test_a_batch_does_not_copy_its_body() -> None:
    data = bytearray(build([b"value"]).data)
    batch = Batch.parse(data)
    batch.verify()
    data[data.index(b"value")] = ord("V")
    assert batch.values() == [b"Value"]


def test_the_length_of_a_batch_is_its_record_count() -> None:
    assert len(build([b"v"] * 5)) == 5


def test_a_batch_is_shown_with_its_place_in_the_log() -> None:
    assert repr(stamped(build([b"v"] * 5))) == "<Batch 3 with seqnos 5000..5004, 136 bytes>"


@pytest.mark.parametrize(
    "read", [Batch.values, Batch.to_arrow, lambda batch: list(batch.records()), lambda batch: batch.body]
)
@pytest.mark.parametrize("count", [3, 100])
def test_no_way_to_read_goes_past_the_checks(read: Any, count: int) -> None:
    data = bytearray(build([b"value"] * count).data)
    data[-8] ^= 1
    with pytest.raises(BodyCorrupt):
        read(Batch.parse(data))


def test_a_batch_that_failed_its_checks_fails_them_again() -> None:
    data = bytearray(build([b"value"]).data)
    data[-8] ^= 1
    batch = Batch.parse(data)
    for _ in range(2):
        with pytest.raises(BodyCorrupt):
            batch.verify()


def test_a_batch_is_checked_once() -> None:
    data = bytearray(build([b"value"]).data)
    batch = Batch.parse(data)
    batch.verify()
    data[-8] ^= 1
    batch.verify()
    with pytest.raises(BodyCorrupt):
        Batch.parse(data).verify()


@pytest.mark.parametrize(("kind", "count"), [(KIND_CONTROL, 0), (KIND_LOST, 12)])
def test_a_control_batch_holds_a_message_and_no_records(kind: int, count: int) -> None:
    batch = stamped(build_control(Note("hi"), kind, count))
    batch.verify()
    assert msgspec.msgpack.decode(batch.body, type=Note) == Note("hi")
    assert (batch.header.kind, batch.header.encoding, batch.header.columns, batch.header.codec) == (kind, 0, 0, 0)
    assert batch.seqnos() == range(BASE, BASE + count)
    for read in (Batch.values, Batch.keys, Batch.tags, Batch.to_arrow, lambda batch: list(batch.records())):
        with pytest.raises(UnsupportedBatch, match=f"kind {kind}"):
            read(batch)


def test_a_kafka_batch_shows_its_header_and_refuses_to_be_read() -> None:
    batch = Batch.parse(with_fields(build([b"v"]).data, encoding=2))
    assert (batch.header.encoding, batch.header.record_count) == (2, 1)
    with pytest.raises(UnsupportedBatch, match="encoding 2"):
        batch.verify()
    with pytest.raises(UnsupportedBatch, match="encoding 2"):
        batch.values()
