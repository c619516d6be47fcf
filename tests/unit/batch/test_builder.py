from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from logboom.batch import (
    BATCH_SIZE_MAX,
    HEADER_SIZE,
    NO_TIMESTAMP,
    Batch,
    Producer,
    Record,
    build,
    build_records,
    build_table,
    stamp,
)
from logboom.errors import BatchTooLarge, InvalidColumn
from support.mutants.batches import mixed_records

COUNTS = [1, 3, 48, 49, 200]
"""Around where the builder goes from plain Python to Arrow."""


def data_of(batch: Batch) -> bytes:
    """The bytes of a batch that was just built, after it has proved to be sound."""
    Batch.parse(batch.data).verify()
    return bytes(batch.data)


def column_of(name: str, entries: Any) -> dict[str, Any]:
    return {name: entries}


def repeated(entries: list[Any], count: int) -> list[Any]:
    return (entries * count)[:count]


def test_values_alone_make_a_batch() -> None:
    batch = build([b"a", b"", None])
    assert batch.values() == [b"a", b"", None]
    assert batch.keys() == [None] * 3
    assert batch.channels() == [None] * 3
    assert batch.tags() == [()] * 3
    assert batch.headers() == [()] * 3


@pytest.mark.parametrize("count", COUNTS)
def test_text_becomes_utf8_and_any_bytes_will_do(count: int) -> None:
    entries = repeated([b"a", "ü", bytearray(b"c"), memoryview(b"d"), None], count)
    assert build(entries).values() == repeated([b"a", "ü".encode(), b"c", b"d", None], count)
    assert build([b""] * count, keys=entries).keys() == repeated([b"a", "ü".encode(), b"c", b"d", None], count)


@pytest.mark.parametrize("count", COUNTS)
def test_any_iterable_is_a_column(count: int) -> None:
    values = [b"%d" % i for i in range(count)]
    expected = data_of(build(values, keys=values, timestamps=list(range(count))))
    assert data_of(build(iter(values), keys=tuple(values), timestamps=range(count))) == expected
    assert (
        data_of(build((v for v in values), keys=dict.fromkeys(values).keys(), timestamps=iter(range(count))))
        == expected
    )


@pytest.mark.parametrize("count", COUNTS)
def test_one_timestamp_or_channel_may_stand_for_all_records(count: int) -> None:
    batch = build([b"v"] * count, timestamps=5, channels="a/b")
    assert data_of(batch) == data_of(build([b"v"] * count, timestamps=[5] * count, channels=["a/b"] * count))
    assert batch.timestamps() == [5] * count
    assert batch.header.columns & 1 == 0
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert build([b"v"] * count, timestamps=moment).timestamps() == [1_000_000] * count


@pytest.mark.parametrize("count", COUNTS)
def test_a_column_that_every_record_lacks_is_left_out(count: int) -> None:
    nothing = [None] * count
    batch = build(nothing, keys=nothing, timestamps=nothing, channels=nothing, tags=nothing, headers=nothing)
    assert data_of(batch) == data_of(build(pa.nulls(count)))
    assert (batch.header.columns, batch.header.size) == (0, HEADER_SIZE)
    assert data_of(build(nothing, channels=[""] * count, tags=[[]] * count, headers=[()] * count)) == data_of(batch)
    assert batch.header.min_timestamp == batch.header.max_timestamp == NO_TIMESTAMP


@pytest.mark.parametrize("count", COUNTS)
def test_an_empty_value_is_not_a_missing_one(count: int) -> None:
    assert build([b""] * count, keys=[b""] * count).values() == [b""] * count
    assert build([b""] * count, keys=[b""] * count).keys() == [b""] * count


@pytest.mark.parametrize("count", COUNTS)
def test_records_come_back_as_they_went_in(count: int) -> None:
    records = mixed_records(count)
    batch = build_records(iter(records))
    data_of(batch)
    assert list(batch.records()) == [
        Record(r.value, r.key, 0 if r.timestamp is None else r.timestamp, r.channel, r.tags, r.headers, seqno)
        for seqno, r in enumerate(records)
    ]


def test_seqnos_of_records_are_not_kept() -> None:
    assert [record.seqno for record in build_records([Record(b"a", seqno=7), Record(b"b", seqno=3)]).records()] == [
        0,
        1,
    ]


def test_the_producer_is_written_into_the_header() -> None:
    header = build([b"a"], producer=Producer(2**64 - 1, 2**16 - 1, 2**31 - 1)).header
    assert (header.producer_id, header.producer_epoch, header.producer_seq) == (2**64 - 1, 2**16 - 1, 2**31 - 1)


ARROW_TEXT = [
    pa.binary(),
    pa.string(),
    pa.large_binary(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.binary()),
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", ARROW_TEXT, ids=str)
def test_every_arrow_type_of_text_gives_the_same_bytes_as_a_list(kind: Any, count: int) -> None:
    entries = repeated(["a", None, "", "üü", "a"], count)
    expected = data_of(build(entries, keys=entries, channels=entries))
    array = pa.array(entries, kind)
    assert data_of(build(array, keys=array, channels=array)) == expected


@pytest.mark.parametrize("count", COUNTS)
def test_fixed_size_binary_is_a_column_of_values(count: int) -> None:
    entries = repeated([b"ab", b"cd", None], count)
    assert build(pa.array(entries, pa.binary(2))).values() == entries


TAG_TYPES = [
    pa.list_(pa.string()),
    pa.list_(pa.large_string()),
    pa.large_list(pa.string()),
    pa.large_list(pa.string_view()),
    pa.list_view(pa.string()),
    pa.list_view(pa.string_view()),
    pa.large_list_view(pa.string()),
    pa.list_(pa.dictionary(pa.int32(), pa.string())),
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", TAG_TYPES, ids=str)
def test_every_arrow_type_of_list_gives_the_same_tags_as_python_lists(kind: Any, count: int) -> None:
    entries = repeated([["red", "big"], [], None, ["ü"], [""]], count)
    expected = data_of(build([b"v"] * count, tags=entries))
    assert data_of(build([b"v"] * count, tags=pa.array(entries, kind))) == expected
    longer = pa.array([["cut"], *entries, ["off"]], kind).slice(1, count)
    assert data_of(build([b"v"] * count, tags=longer)) == expected


def test_lists_of_a_fixed_size_are_tags_too() -> None:
    tags = pa.array([["a", "b"], ["c", "d"], ["e", "f"]], pa.list_(pa.string(), 2)).slice(1)
    assert build([b"v"] * 2, tags=tags).tags() == [("c", "d"), ("e", "f")]


def test_list_views_may_overlap_and_run_backwards() -> None:
    views = pa.ListViewArray.from_arrays(
        pa.array([1, 0, 0], pa.int32()), pa.array([2, 2, 0], pa.int32()), pa.array(["a", "b", "c"])
    )
    assert build([b"v"] * 3, tags=views).tags() == [("b", "c"), ("a", "b"), ()]


PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADER_TYPES = [
    pa.list_(PAIR),
    pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    pa.list_(pa.struct([("value", pa.binary_view()), ("key", pa.string_view())])),
    pa.list_view(PAIR),
    pa.map_(pa.string(), pa.binary()),
    pa.map_(pa.large_string(), pa.large_binary()),
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", HEADER_TYPES, ids=str)
def test_every_arrow_type_of_pairs_gives_the_same_headers_as_python_pairs(kind: Any, count: int) -> None:
    entries = repeated([[("k", b"v"), ("k", b"")], [], None, [("ü", b"\xff")]], count)
    expected = data_of(build([b"v"] * count, headers=entries))
    rows = [[("cut", b"")], *entries, [("off", b"")]]
    if not pa.types.is_map(kind):
        rows = [row if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    assert data_of(build([b"v"] * count, headers=pa.array(rows, kind).slice(1, count))) == expected


@pytest.mark.parametrize("count", COUNTS)
def test_headers_may_be_pairs_of_any_kind_or_a_mapping(count: int) -> None:
    expected = data_of(build([b"v"] * count, headers=[(("ab", b"x"),)] * count))
    for headers in (
        [["ab", b"x"]],
        {"ab": b"x"},
        [{"key": "ab", "value": b"x"}],
        [("ab", "x")],
        [(b"ab", bytearray(b"x"))],
    ):
        assert data_of(build([b"v"] * count, headers=[headers] * count)) == expected


@pytest.mark.parametrize("count", COUNTS)
def test_tags_may_be_any_collection_but_a_string(count: int) -> None:
    expected = data_of(build([b"v"] * count, tags=[("ab",)] * count))
    for tags in (["ab"], {"ab"}, [b"ab"], np.array(["ab"], object)):
        assert data_of(build([b"v"] * count, tags=[tags] * count)) == expected


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("start", [0, 1, 3, 8])
def test_slices_and_chunks_of_arrow_give_the_same_bytes_as_a_list(count: int, start: int) -> None:
    records = mixed_records(start + count + 2)
    table = build_records(records).to_arrow(["value", "key", "timestamp", "channel", "tags", "headers"])
    part = build_records(records).to_arrow().slice(start, count)
    expected = data_of(build_table(pa.RecordBatch.from_pylist(part.to_pylist(), part.schema)))
    assert data_of(build_table(table.slice(start, count))) == expected
    cut = start + count // 2
    chunks = pa.Table.from_batches(
        [table.slice(start, cut - start), table.slice(cut, start + count - cut), table.slice(0, 0)]
    )
    assert data_of(build_table(chunks)) == expected


@pytest.mark.parametrize("count", COUNTS)
def test_what_was_read_may_be_written_again(count: int) -> None:
    batch = build_records(
        [r if r.timestamp is not None else Record(r.value, timestamp=1) for r in mixed_records(count)]
    )
    assert data_of(build_table(batch.to_arrow())) == data_of(batch)
    assert data_of(build_table(pa.Table.from_batches([batch.to_arrow()]))) == data_of(batch)
    assert data_of(build_records(batch.records())) == data_of(batch)


def test_a_table_may_lack_the_value_or_the_key_and_carry_where_it_came_from() -> None:
    table = pa.table({"key": ["a", "b"], "topic": ["t", "t"], "partition": [0, 0], "seqno": [5, 6]})
    assert build_table(table).keys() == [b"a", b"b"]
    assert build_table(table).values() == [None, None]


@pytest.mark.parametrize("count", COUNTS)
def test_a_pandas_frame_gives_the_same_bytes_as_lists(count: int) -> None:
    values = repeated([b"a", None, b"c"], count)
    channels = repeated(["x", "y", None], count)
    tags = repeated([["t"], [], ["u", "v"]], count)
    headers = repeated([[("k", b"v")], [], [("l", b""), ("l", b"w")]], count)
    moments = [datetime(2024, 1, 1, 0, 0, i % 60, 123456, tzinfo=UTC) for i in range(count)]
    frame = pd.DataFrame(
        {"value": values, "timestamp": moments, "channel": channels, "tags": tags, "headers": headers},
        index=range(5, 5 + count),
    )
    expected = build(values, timestamps=moments, channels=channels, tags=tags, headers=headers)
    assert data_of(build_table(frame)) == data_of(expected)


def test_pandas_series_and_categories_are_columns() -> None:
    series = pd.Series(["a", "b", None, "a"])
    assert build(series, channels=series.astype("category")).values() == [b"a", b"b", None, b"a"]
    assert build(series, channels=series.astype("category")).channels() == ["a", "b", None, "a"]
    assert build(pd.Series([b"x", "y", float("nan")], dtype=object)).values() == [b"x", b"y", None]


def test_numpy_strings_are_columns() -> None:
    assert build(np.array([b"ab", b"c"])).values() == [b"ab", b"c"]
    assert build(np.array(["ab", "ü"])).values() == [b"ab", "ü".encode()]
    assert build(np.array([b"ab", "c", None], object)).values() == [b"ab", b"c", None]


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
MICROSECONDS = 1_709_209_815_123_456


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "column",
    [
        lambda n: [MICROSECONDS] * n,
        lambda n: [MOMENT] * n,
        lambda n: [MOMENT.replace(tzinfo=None)] * n,
        lambda n: [MOMENT.astimezone(timezone(timedelta(hours=5)))] * n,
        lambda n: [np.int64(MICROSECONDS)] * n,
        lambda n: [pd.Timestamp(MOMENT)] * n,
        lambda n: np.full(n, MICROSECONDS),
        lambda n: np.array([MOMENT.replace(tzinfo=None)] * n, "M8[us]"),
        lambda n: np.array([MOMENT.replace(tzinfo=None)] * n, "M8[us]").astype("M8[ns]") + np.timedelta64(999, "ns"),
        lambda n: pd.Series([MOMENT] * n),
        lambda n: pa.array([MICROSECONDS] * n),
        lambda n: pa.array([MICROSECONDS] * n, pa.uint64()),
        lambda n: pa.array([MOMENT] * n, pa.timestamp("us", "Europe/Berlin")),
        lambda n: pa.array([MOMENT] * n, pa.timestamp("ns")),
        lambda n: pa.chunked_array([pa.array([MOMENT] * n, pa.timestamp("us"))]),
    ],
)
def test_a_moment_is_the_same_in_every_type(column: Callable[[int], Any], count: int) -> None:
    batch = build([b"v"] * count, timestamps=column(count))
    data_of(batch)
    assert batch.timestamps() == [MICROSECONDS] * count


def test_seconds_days_and_milliseconds_are_moments_too() -> None:
    assert build([b"v"], timestamps=np.array(["2024-02-29"], "M8[D]")).timestamps() == [1_709_164_800_000_000]
    assert build([b"v"], timestamps=pa.array([5], pa.timestamp("s"))).timestamps() == [5_000_000]
    assert build([b"v"], timestamps=pa.array([5], pa.timestamp("ms"))).timestamps() == [5_000]


@pytest.mark.parametrize("count", COUNTS)
def test_records_with_and_without_a_timestamp_may_be_mixed_in_one_batch(count: int) -> None:
    moments = [1, None, MOMENT, MOMENT.replace(tzinfo=None), pd.NaT, np.int64(7)]
    batch = build([b"v"] * (6 * count), timestamps=moments * count)
    data_of(batch)
    shown = Batch.parse(stamp(batch.data[:HEADER_SIZE], 0, 1, 99, 1, 1) + bytes(batch.data[HEADER_SIZE:]))
    assert shown.timestamps() == [1, 99, MICROSECONDS, MICROSECONDS, 99, 7] * count
    assert build([b"v"] * 3, timestamps=pd.Series([MOMENT, pd.NaT, MOMENT])).header.min_timestamp == NO_TIMESTAMP


def test_the_extremes_of_64_bits_are_timestamps() -> None:
    batch = build([b"v"] * 3, timestamps=[2**63 - 1, 0, -(2**63) + 1])
    assert (batch.header.min_timestamp, batch.header.max_timestamp) == (-(2**63) + 1, 2**63 - 1)
    assert batch.timestamps() == [2**63 - 1, 0, -(2**63) + 1]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("column", "entry"),
    [
        ("values", 5),
        ("values", "\ud800"),
        ("keys", 1.5),
        ("keys", ["nested"]),
        ("timestamps", "2024-01-01"),
        ("timestamps", "12"),
        ("timestamps", 1.5),
        ("timestamps", 2**63),
        ("timestamps", -(2**63) - 1),
        ("timestamps", date(2024, 1, 1)),
        ("timestamps", [1]),
        ("channels", b"\xff"),
        ("channels", 5),
        ("channels", "\ud800"),
        ("tags", "red"),
        ("tags", b"red"),
        ("tags", 5),
        ("tags", {"red": 1}),
        ("tags", [None]),
        ("tags", [5]),
        ("tags", [b"\xff"]),
        ("tags", ["\ud800"]),
        ("headers", "ab"),
        ("headers", ["ab"]),
        ("headers", 5),
        ("headers", [("a", b"b", b"c")]),
        ("headers", [("a", None)]),
        ("headers", [(None, b"b")]),
        ("headers", [("a", 5)]),
        ("headers", [(b"\xff", b"")]),
    ],
)
def test_an_entry_that_does_not_fit_is_refused_by_the_name_of_its_column(column: str, entry: Any, count: int) -> None:
    columns: dict[str, Any] = {"values": [b"v"] * count, column: [entry] * count}
    with pytest.raises(InvalidColumn) as caught:
        build(**columns)
    assert caught.value.column == column
    assert str(caught.value) == f"{column}: {caught.value.reason}"


@pytest.mark.parametrize("column", ["values", "keys", "timestamps", "channels", "tags", "headers"])
@pytest.mark.parametrize("entries", [5, b"one", object()])
def test_what_is_no_column_is_refused_by_its_name(column: str, entries: Any) -> None:
    if column == "timestamps" and entries == 5:
        entries = 2**63
    with pytest.raises(InvalidColumn) as caught:
        build(**{"values": [b"v"], column: entries})
    assert caught.value.column == column


@pytest.mark.parametrize("column", ["keys", "timestamps", "channels", "tags", "headers"])
@pytest.mark.parametrize("length", [0, 2, 100])
@pytest.mark.parametrize("count", [1, 60])
def test_columns_of_another_length_are_refused(column: str, length: int, count: int) -> None:
    entry = {"timestamps": 1, "tags": [], "headers": []}.get(column, "x")
    for entries in ([entry] * length, pa.array([entry] * length)):
        with pytest.raises(InvalidColumn, match=f"{length} entries for {count} records") as caught:
            build([b"v"] * count, **column_of(column, entries))
        assert caught.value.column == column


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("values", pa.array([1])),
        ("values", pa.array([[b"a"]])),
        ("keys", pa.array([1.5])),
        ("channels", pa.array([5])),
        ("channels", pa.array([True])),
        ("channels", pa.array([b"\xff"])),
        ("tags", pa.array([[5]])),
        ("tags", pa.array(["red"])),
        ("tags", pa.array([[None]], pa.list_(pa.string()))),
        ("tags", pa.array([[b"\xff"]])),
        ("headers", pa.array([["a"]])),
        ("headers", pa.array(["a"])),
        ("headers", pa.array([[{"key": "a", "value": None}]])),
        ("headers", pa.array([[{"key": "a"}]])),
        ("timestamps", pa.array([1.5])),
        ("timestamps", pa.array([True])),
        ("timestamps", pa.array([2**63], pa.uint64())),
        ("timestamps", pa.array([2**60], pa.timestamp("s"))),
        ("values", np.zeros((1, 2))),
        ("values", np.array([1])),
    ],
)
def test_an_arrow_array_that_does_not_fit_is_refused_by_the_name_of_its_column(column: str, array: Any) -> None:
    with pytest.raises(InvalidColumn) as caught:
        build(**{"values": [b"v"], column: array})
    assert caught.value.column == column


@pytest.mark.parametrize("values", [[], (), iter(()), pa.array([], pa.binary()), np.array([], "S1")])
def test_a_batch_needs_at_least_one_record(values: Any) -> None:
    with pytest.raises(InvalidColumn, match="at least one record"):
        build(values)
    with pytest.raises(InvalidColumn, match="at least one record"):
        build_records([])


@pytest.mark.parametrize(
    "producer",
    [Producer(-1), Producer(2**64), Producer(1, 2**16), Producer(1, -1), Producer(1, 0, 2**31), Producer(1, 0, -1)],
)
def test_a_producer_that_does_not_fit_the_header_is_refused(producer: Producer) -> None:
    with pytest.raises(InvalidColumn) as caught:
        build([b"a"], producer=producer)
    assert caught.value.column == "producer"


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (pa.table({"value": ["a"], "colour": ["b"]}), "colour"),
        (pa.table({"channel": ["a"]}), "value"),
        (pa.table([pa.array(["a"]), pa.array(["b"])], names=["value", "value"]), "table"),
        (pd.DataFrame({"value": ["a"], 7: ["b"]}), "7"),
        (pd.DataFrame([["a", "b"]], columns=["value", "value"]), "table"),
        ({"value": ["a"]}, "table"),
        (pa.table({"value": pa.array([], pa.binary())}), "values"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: Any, column: str) -> None:
    with pytest.raises(InvalidColumn) as caught:
        build_table(table)
    assert caught.value.column == column


def test_records_with_nothing_in_them_are_limited_in_number() -> None:
    assert len(Batch.parse(build([None] * 65_536).data).values()) == 65_536
    with pytest.raises(InvalidColumn, match="65536 records"):
        build([None] * 65_537)
    Batch.parse(build([None] * 65_536 + [b""]).data).verify()


def test_a_batch_over_64_mib_is_refused_whether_or_not_it_would_compress() -> None:
    value = bytes(BATCH_SIZE_MAX - HEADER_SIZE - 16)
    assert build([value]).header.size == BATCH_SIZE_MAX
    for codec in ("none", "zstd"):
        with pytest.raises(BatchTooLarge) as caught:
            build([value + b"x"], codec=codec)
        assert caught.value.size_bytes == BATCH_SIZE_MAX + 8
        assert caught.value.limit_bytes == BATCH_SIZE_MAX


@pytest.mark.parametrize("column", ["channels", "tags", "headers"])
def test_arrow_text_that_is_not_utf8_is_refused(column: str) -> None:
    broken = pa.StringArray.from_buffers(2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), broken)
    pairs = pa.StructArray.from_arrays([broken, pa.array([b"v", b"v"])], ["key", "value"])
    entries = {
        "channels": broken,
        "tags": lists,
        "headers": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pairs),
    }
    columns: dict[str, Any] = {column: entries[column]}
    with pytest.raises(InvalidColumn, match=column):
        build([b"a", b"b"], **columns)


def test_what_is_not_a_record_is_refused_by_its_type() -> None:
    with pytest.raises(InvalidColumn, match="int is not a Record"):
        build_records([Record(b"x"), 5])  # type: ignore[list-item]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("size", [100, 5000])
def test_a_large_batch_has_the_same_bytes_wherever_it_is_built(
    codec: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"%0*d" % (size, number) for number in range(200_000 // size)]
    timestamps = list(range(len(values)))
    in_arrow = build(values, keys=values, timestamps=timestamps, codec=codec)
    monkeypatch.setattr("logboom.batch.builder.LARGE_BYTES", 10**9)
    assert in_arrow.data == build(values, keys=values, timestamps=timestamps, codec=codec).data
    parsed = Batch.parse(bytes(in_arrow.data))
    parsed.verify()
    assert parsed.values() == values
