from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from logboom.batch import HEADER_SIZE, KIND_LOST, Batch, build, build_control, build_records, schema, stamp
from logboom.errors import InvalidColumn, UnsupportedBatch
from support.mutants.batches import mixed_records

COUNTS = [1, 7, 8, 9, 16, 17, 48, 49, 1000]


class Note(msgspec.Struct):
    x: int


def full_batch(count: int, codec: str = "none") -> Batch:
    """Every column, no gaps in the channel, every record with its own timestamp."""
    batch = build(
        [None if i % 3 == 2 else b"value%d" % i for i in range(count)],
        keys=[b"k"] * count,
        timestamps=list(range(count)),
        channels=[f"c/{i}" for i in range(count)],
        tags=[["a", "b"][: 1 + i % 2] for i in range(count)],
        headers=[[("h", b"x")] for _ in range(count)],
        codec=codec,
    )
    return Batch.parse(batch.data)


def buffers(array: Any) -> Iterator[Any]:
    return (buffer for buffer in array.buffers() if buffer is not None and buffer.size)


def test_the_types_are_exactly_those_spark_takes() -> None:
    assert schema() == pa.schema(
        [
            ("seqno", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("channel", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    assert all(field.nullable for field in schema())


@pytest.mark.parametrize("batch", [build([b"a"]), full_batch(3), full_batch(100), build_records(mixed_records(100))])
def test_every_batch_has_the_same_schema(batch: Batch) -> None:
    assert batch.to_arrow().schema == schema()
    batch.to_arrow().validate(full=True)


def test_columns_come_in_the_order_they_were_asked_for() -> None:
    table = full_batch(20).to_arrow(["value", "seqno"])
    assert table.schema == schema(("value", "seqno"))
    assert table.schema.names == ["value", "seqno"]


@pytest.mark.parametrize("name", ["colour", "topic", ""])
def test_an_unknown_column_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidColumn) as caught:
        schema(("value", name))
    assert caught.value.column == name
    with pytest.raises(InvalidColumn) as caught:
        full_batch(20).to_arrow(["value", name])
    assert caught.value.column == name


@pytest.mark.parametrize("count", [1, 9, 1000])
def test_arrow_shares_the_memory_the_batch_was_parsed_from(count: int) -> None:
    batch = full_batch(count)
    source = pa.py_buffer(batch.data)
    table = batch.to_arrow(["timestamp", "key", "value", "channel", "tags", "headers"])
    for name in table.schema.names:
        if name == "timestamp" and count == 1:
            continue  # one timestamp for all is not in the body
        for buffer in buffers(table.column(name)):
            assert source.address + HEADER_SIZE <= buffer.address, name
            assert buffer.address + buffer.size <= source.address + source.size, name


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_arrow_shares_the_memory_of_the_body_once_it_is_inflated(codec: str) -> None:
    batch = full_batch(1000, codec)
    assert batch.header.codec
    body = pa.py_buffer(batch.body)
    for column in (*batch.to_arrow().columns[1:], *batch.to_arrow().columns[1:]):
        for buffer in buffers(column):
            assert body.address <= buffer.address < body.address + body.size


def test_a_channel_with_gaps_shares_all_but_its_bitmap() -> None:
    batch = Batch.parse(build([b"v"] * 100, channels=["a", None] * 50).data)
    source = pa.py_buffer(batch.data)
    _, offsets, text = batch.to_arrow(["channel"]).column(0).buffers()
    assert source.address < offsets.address < text.address < source.address + source.size


def test_an_arrow_view_outlives_its_batch() -> None:
    view = Batch.parse(bytes(full_batch(100).data)).to_arrow(["value"])
    assert view.column(0).to_pylist() == full_batch(100).values()


@pytest.mark.parametrize("count", COUNTS)
def test_what_a_record_lacks_is_null_but_lists_are_empty(count: int) -> None:
    table = build([None] * count).to_arrow()
    assert [table.column(name).null_count for name in ("key", "value", "channel")] == [count] * 3
    assert [table.column(name).null_count for name in ("seqno", "timestamp", "tags", "headers")] == [0] * 4
    assert table.column("tags").to_pylist() == table.column("headers").to_pylist() == [[]] * count


@pytest.mark.parametrize("count", COUNTS)
def test_seqnos_count_up_from_the_stamp(count: int) -> None:
    data = build([b"v"] * count).data
    for base in (0, 5, 20_000, 7, 2**63 - count - 1):
        stamped = Batch.parse(stamp(data[:HEADER_SIZE], base, 1, 0, 1, 1) + bytes(data[HEADER_SIZE:]))
        assert (
            stamped.to_arrow(["seqno"]).column(0).to_pylist()
            == list(range(base, base + count))
            == list(stamped.seqnos())
        )


@pytest.mark.parametrize("columns", [None, ["seqno"], ["value"]])
def test_a_batch_without_records_has_no_rows_to_show(columns: list[str] | None) -> None:
    for empty in (build_control(Note(1)), build_control(Note(1), KIND_LOST, 2**32 - 1)):
        with pytest.raises(UnsupportedBatch, match="kind"):
            Batch.parse(empty.data).to_arrow(columns)
