"""What a task does with its rows, with a stage that keeps what it is given."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from logboom.batch import build
from logboom.batch.partitioner import partition_of
from logboom.errors import BatchTooLarge, InvalidColumn, LimitExceeded, TopicNotAllowed
from logboom.spark.write import rows
from logboom.spark.write.json_texts import encode_rows
from logboom.spark.write.layout import ColumnLayout
from logboom.spark.write.options import Order
from logboom.spark.write.rows import RowWriter, gather

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ListStage:
    """Topics `t`, `u` and so on, of four partitions each; batches of no more than `limit_bytes`."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.calls: list[tuple[str, int | None, list[Any]]] = []
        self._limit_bytes = limit_bytes

    def partitions(self, topic: str) -> int:
        if topic == "forbidden":
            raise TopicNotAllowed(topic, "the node makes no topics")
        return 4

    def write_many(self, topic: str, values: Any, *others: Any, partition: int | None = None, **named: Any) -> None:
        size = len(build(values, **named).data)
        if size > self._limit_bytes:
            raise BatchTooLarge(size, self._limit_bytes)
        self.calls.append((topic, partition, values.to_pylist()))

    def values(self, topic: str, partition: int) -> list[Any]:
        return [
            value for name, number, values in self.calls if (name, number) == (topic, partition) for value in values
        ]


def write(columns: dict[str, Any], topic: str | None = None, stage: ListStage | None = None) -> ListStage:
    batch = pa.RecordBatch.from_pydict(columns)
    layout = ColumnLayout(tuple(name for name in columns if topic is None or name != "topic"), topic, False, ())
    stage = stage or ListStage()
    writer = RowWriter(stage, layout, 3)
    writer.write(batch)
    return stage


def refusal(columns: dict[str, Any], topic: str | None = None, stage: ListStage | None = None) -> str:
    with pytest.raises(InvalidColumn) as caught:
        write(columns, topic, stage)
    return str(caught.value)


def texts(batches: list[pa.RecordBatch], name: str = "value") -> list[Any]:
    return [entry for batch in batches for entry in batch.column(name).to_pylist()]


def test_rows_without_topic_or_partition_go_on_as_they_are() -> None:
    assert write({"value": ["a", None, "b"]}, "t").calls == [("t", None, [b"a", None, b"b"])]


def test_rows_go_to_the_topic_of_their_column_in_their_order() -> None:
    stage = write({"value": ["1", "2", "3", "4"], "topic": ["t", "u", "t", "u"]})
    assert sorted(stage.calls) == [("t", None, [b"1", b"3"]), ("u", None, [b"2", b"4"])]


def test_rows_go_to_the_partition_of_their_column_and_else_where_key_or_channel_say() -> None:
    names = [f"k{number}" for number in range(20)]
    numbers = [number % 4 if number % 2 else None for number in range(20)]
    places = [
        partition_of(name.encode(), 4) if number is None else number
        for name, number in zip(names, numbers, strict=True)
    ]
    kinds = {"key": names, "channel": names}
    for column, named in kinds.items():
        stage = write({"value": names, column: named, "partition": pa.array(numbers, pa.int32())}, "t")
        for partition in range(4):
            expected = [name.encode() for name, place in zip(names, places, strict=True) if place == partition]
            assert stage.values("t", partition) == expected
    plain = write({"value": names, "partition": pa.array(numbers, pa.int32())}, "t")
    assert sum(len(values) for _, _, values in plain.calls) == 20
    assert {partition for _, partition, _ in plain.calls} <= set(range(4)), "all in the order of their logs"


def test_rows_that_cannot_be_records_are_named_with_number_and_content() -> None:
    assert refusal({"value": ["a", "b"], "topic": ["t", None]}) == (
        "topic: is null, and no option says where to write; in row 1 of task 3 (value b'b')"
    )
    said = refusal({"value": ["a", "b"], "topic": ["t", "forbidden"]})
    assert said.startswith("topic: ")
    assert "in row 1 of task 3 (topic 'forbidden', value b'b')" in said
    for partition in (4, -1):
        said = refusal({"value": ["a", "b"], "partition": pa.array([0, partition], pa.int32())}, "t")
        assert f"partition: topic 't' has partitions 0 to 3: {partition} is not one of them; in row 1" in said
    said = refusal({"key": ["k1", "k2"], "value": ["a", "b" * 5000]}, "t", ListStage(4096))
    assert "value: a record of 5," in said
    assert "allowed are 4,096; in row 1 of task 3 (topic 't', key b'k2', value b'bbb" in said
    assert len(said) < 250
    broken = pa.array([b"a", b"\xff"]).view(pa.string())
    assert "channel: " in refusal({"value": ["a", "b"], "channel": broken}, "t")
    assert "row 1 of task 3" in refusal({"value": ["a", "b"], "channel": broken}, "t")
    assert "tags: an item of a list is None; in row 1" in refusal(
        {"value": ["a", "b"], "tags": [["x"], ["y", None]]}, "t"
    )
    lacking = pa.array([[("h", b"v")], [("h", None)]], HEADERS)
    assert "headers: a header lacks its key or its value; in row 1" in refusal(
        {"value": ["a", "b"], "headers": lacking}, "t"
    )


def test_rows_are_counted_through_the_batches_of_a_task() -> None:
    writer = RowWriter(ListStage(), ColumnLayout(("value", "topic"), None, False, ()), 0)
    writer.write(pa.RecordBatch.from_pydict({"value": ["a"] * 1500, "topic": ["t"] * 1500}))
    with pytest.raises(InvalidColumn, match=r"in row 1,501 of task 0"):
        writer.write(pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["t", None]}))


def test_values_and_keys_that_are_text_need_not_be_utf8() -> None:
    broken = pa.array([b"\xff\xfe", None]).view(pa.string())
    calls = write({"value": broken, "key": broken}, "t").calls
    assert {value for _, _, values in calls for value in values} == {b"\xff\xfe", None}


def test_small_batches_are_joined_and_large_ones_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "GATHERED_BYTES", 4096)
    layout = ColumnLayout(("value",), "t", False, ())
    small = [pa.RecordBatch.from_pydict({"value": [f"{number:0100}"]}) for number in range(100)]
    large = pa.RecordBatch.from_pydict({"value": ["x" * 5000]})
    found = list(gather(iter([*small, large, *small]), layout))
    assert texts(found) == texts([*small, large, *small])
    assert len(found) < 10
    assert any(batch is large for batch in found)
    assert list(gather(iter([large.slice(0, 0)]), layout)) == []


def test_an_order_is_that_of_spark_with_nulls_first_and_kept_among_equals() -> None:
    nan = float("nan")
    given = pa.RecordBatch.from_pydict(
        {"value": list("abcdefg"), "x": [2.0, None, nan, 1.0, 2.0, nan, None], "y": [1, 2, 3, 4, 5, 6, 7]}
    )
    halves = [given.slice(0, 3), given.slice(3)]

    def ordered(*order: Order) -> str:
        return "".join(texts(list(gather(iter(halves), ColumnLayout(("value",), "t", False, order)))))

    assert ordered(Order("x")) == "bgdaecf"
    assert ordered(Order("x", True)) == "cfaedbg"
    assert ordered(Order("x"), Order("y", True)) == "gbdeafc"
    assert ordered(Order("value", True)) == "gfedcba"


def test_more_than_a_task_may_hold_to_sort_it_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SORTED_BYTES", 1000)
    batch = pa.RecordBatch.from_pydict({"value": ["x" * 900]})
    with pytest.raises(LimitExceeded, match="sortWithinPartitions"):
        list(gather(iter([batch, batch]), ColumnLayout(("value",), "t", False, (Order("value"),))))


def test_structs_maps_and_arrays_become_json_as_to_json_has_it() -> None:
    kind = pa.struct(
        [
            ("a", pa.int64()),
            ("b", pa.struct([("c", pa.string()), ("d", pa.bool_())])),
            ("e", pa.list_(pa.struct([("f", pa.int32())]))),
            ("g", pa.map_(pa.string(), pa.struct([("h", pa.float64())]))),
            ("i", pa.decimal128(10, 2)),
            ("j", pa.binary()),
            ("k", pa.timestamp("us", "UTC")),
            ("l", pa.date32()),
        ]
    )
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    entries = [
        {"a": 1, "b": {"c": "ü", "d": None}, "e": [{"f": None}, None, {"f": 2}], "g": [("x", {"h": 0.5}), ("y", None)]},
        None,
        {"i": Decimal("1.50"), "j": b"\xff", "k": moment, "l": moment.date()},
        {},
    ]
    encoded, failed = encode_rows(pa.array(entries, kind))
    assert failed is None
    assert encoded.to_pylist() == [
        '{"a":1,"b":{"c":"ü"},"e":[{},null,{"f":2}],"g":{"x":{"h":0.5},"y":null}}'.encode(),
        None,
        b'{"i":1.50,"j":"/w==","k":"2026-01-31T12:00:00Z","l":"2026-01-31"}',
        b"{}",
    ]
    numbers, _ = encode_rows(pa.array([[(1, [1, None])], []], pa.map_(pa.int32(), pa.list_(pa.int8()))))
    assert [json.loads(text) for text in numbers.to_pylist()] == [{"1": [1, None]}, {}]


def test_floats_and_what_is_no_number_are_written_as_spark_does() -> None:
    nan, inf = float("nan"), float("inf")
    kind = pa.struct([("f", pa.float32()), ("d", pa.float64()), ("l", pa.list_(pa.float32())), ("h", pa.float16())])
    rows = [
        {"f": 0.1, "d": 0.1, "l": [3.4e38, None, 16777216.0], "h": 0.1},
        {"f": nan, "d": inf, "l": [-inf], "h": None},
        {"f": None, "d": nan, "l": None, "h": inf},
    ]
    encoded, failed = encode_rows(pa.array(rows, kind))
    assert failed is None
    assert encoded.to_pylist() == [
        b'{"f":0.1,"d":0.1,"l":[3.4e38,null,16777216.0],"h":0.1}',
        b'{"f":"NaN","d":"Infinity","l":["-Infinity"]}',
        b'{"d":"NaN","h":"Infinity"}',
    ]


def test_a_value_that_cannot_become_json_is_named() -> None:
    broken = pa.StructArray.from_arrays([pa.array([b"ok", b"\xff"]).view(pa.string())], ["a"])
    writer = RowWriter(ListStage(), ColumnLayout(("value",), "t", True, ()), 7)
    with pytest.raises(InvalidColumn, match=r"value: cannot become JSON: .*; in row 1 of task 7"):
        writer.write(pa.RecordBatch.from_arrays([broken], ["value"]))
