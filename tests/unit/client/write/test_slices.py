"""Columns given at once are cut into batches by size and dealt out by key, while they are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from logboom.batch import Batch, Producer, build
from logboom.batch.partitioner import partition_of
from logboom.client.write.column_source import ColumnSource
from logboom.client.write.ledger import WriterLedger
from logboom.client.write.options import WriterOptions
from logboom.client.write.pieces import slices_of
from logboom.client.write.router import Router
from logboom.client.write.slices import Slice
from logboom.errors import InvalidColumn

VALUES = [b"%0*d" % (number % 50, number) for number in range(1000)]


def routing(partitions: int) -> Router:
    router = Router(WriterOptions(), WriterLedger("events"))
    router.know("events", partitions)
    return router


def slices(partitions: int = 1, batch_bytes: int = 1000, waiting: int = 10**6, **columns: Any) -> Iterator[Slice]:
    return slices_of(ColumnSource(**columns), routing(partitions), batch_bytes, waiting)


def built(part: Slice) -> Batch:
    return part.columns.make("none")(Producer())


def cut(partitions: int = 1, batch_bytes: int = 1000, **columns: Any) -> list[tuple[int | None, list[Any]]]:
    return [(part.partition, built(part).values()) for part in slices(partitions, batch_bytes, **columns)]


def test_what_is_less_than_a_batch_joins_what_is_gathered() -> None:
    *whole, last = slices(values=VALUES)
    assert not any(part.is_rest for part in whole)
    assert last.is_rest
    (part,) = slices(values=[b"1", None, "3"])
    assert part.is_rest
    assert part.columns.plain_values() == [b"1", None, b"3"]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    assert [len(values) for _, values in cut(values=[b"1", bytes(5000), b"2", b"3"])] == [1, 1, 2]


def test_records_with_the_same_key_are_in_one_partition_and_the_others_anywhere() -> None:
    keys = [None if number % 4 == 0 else b"k%d" % (number % 7) for number in range(1000)]
    for given in (keys, pa.array(keys), pd.Series(keys), iter(keys)):
        parts = cut(values=VALUES, keys=given, partitions=5)
        found = {value: partition for partition, values in parts for value in values}
        expected = [None if key is None else partition_of(key, 5) for key in keys]
        assert [found[value] for value in VALUES[100:]] == expected[100:]


def test_batches_of_every_partition_are_filled_and_in_order_however_the_columns_come() -> None:
    count, keys = 20_000, [b"k%d" % (number % 64) for number in range(20_000)]
    numbers = [b"%0100d" % number for number in range(count)]
    for given, names in ((numbers, keys), (pa.array(numbers), pa.array(keys)), (iter(numbers), iter(keys))):
        parts = list(slices(3, 20_000, values=given, keys=names, tags=[["a"]] * count))
        for partition in range(3):
            batches = [built(part).values() for part in parts if part.partition == partition]
            found = [int(value or b"") for values in batches for value in values]
            assert found == [n for n in range(count) if partition_of(b"k%d" % (n % 64), 3) == partition]
            sizes = [part.columns.size for part in parts if part.partition == partition]
            assert max(sizes) <= 20_000
            assert min(sizes[:-1]) >= 9_000


def test_what_waits_for_its_batch_is_bounded_however_many_partitions_there_are() -> None:
    keys = [b"k%d" % number for number in range(20_000)]
    given = taken = 0

    def values() -> Iterator[bytes]:
        nonlocal given
        for _ in keys:
            given += 1
            yield bytes(100)

    for part in slices(1000, 20_000, 100_000, values=values(), keys=keys):
        assert (given - taken) * 100 < 100_000 + 4 * 20_000
        taken += part.columns.count
    assert taken == 20_000


def test_before_a_piece_that_cannot_be_taken_everything_is_given_out() -> None:
    keys = [b"k%d" % (number % 7) for number in range(1000)]
    for bad in ({"values": [*VALUES[:900], 7, *VALUES[901:]]}, {"tags": [["a"]] * 900 + ["text"] + [["a"]] * 99}):
        found: list[bytes | None] = []
        columns: dict[str, Any] = {"values": VALUES, "keys": keys, **bad}
        with pytest.raises(InvalidColumn):
            found.extend(value for part in slices(5, 1000, **columns) for value in built(part).values())
        assert sorted(found) == sorted(VALUES[: len(found)])  # type: ignore[type-var]
        assert 700 < len(found) <= 900


def test_what_an_iterable_raises_is_raised_after_what_came_before() -> None:
    def values() -> Iterator[bytes]:
        yield from VALUES
        raise RuntimeError("the file ends here")

    found: list[bytes | None] = []
    parts = slices(5, 1000, values=values(), keys=[b"%d" % number for number in range(1000)])
    with pytest.raises(RuntimeError, match="ends here"):
        found.extend(value for part in parts for value in built(part).values())
    assert len(found) > 800


def test_the_channel_stands_in_for_a_key() -> None:
    channels = ["", "a", "b", None]
    parts = cut(values=[b"0", b"1", b"2", b"3"], keys=[None, None, b"k", None], channels=channels, partitions=5)
    found = {value: partition for partition, values in parts for value in values}
    assert found == {b"0": None, b"1": partition_of(b"a", 5), b"2": partition_of(b"k", 5), b"3": None}


def test_what_was_cut_before_the_partitions_were_known_is_dealt_out_by_key() -> None:
    keys = [b"k%d" % (number % 7) for number in range(1000)]
    router = Router(WriterOptions(batch_bytes=1000), WriterLedger("events"))
    parts = slices_of(ColumnSource(VALUES, keys=keys), router, 1000, 10**6)
    first = next(parts)
    router.know("events", 5)
    for part in (first, *parts):
        part.add_to(router, 1000, "none", 0.0)
    for partition in range(5):
        parcels = [Batch.parse(parcel.data) for parcel in router.lane(partition).queue if parcel.data is not None]
        found = [value for batch in parcels for value in batch.values()]
        assert found == [v for v, key in zip(VALUES, keys, strict=True) if partition_of(key, 5) == partition]


def test_one_channel_may_be_for_all() -> None:
    ((partition, values),) = cut(values=[b"0", b"1"], channels="a", timestamps=3, partitions=5)
    assert (partition, values) == (partition_of(b"a", 5), [b"0", b"1"])


@pytest.mark.parametrize("partitions", [1, 5])
def test_every_column_comes_through(partitions: int) -> None:
    count = 500
    columns: dict[str, Any] = {
        "values": [b"%d" % number for number in range(count)],
        "keys": [b"k%d" % (number % 9) for number in range(count)],
        "timestamps": [None if number % 3 == 0 else number for number in range(count)],
        "channels": [None if number % 2 else f"c{number}" for number in range(count)],
        "tags": [{"t"} if number % 5 else () for number in range(count)],
        "headers": [{"h": b"%d" % number} if number % 7 else [] for number in range(count)],
    }
    found = {record.value: record for part in slices(partitions, 5000, **columns) for record in built(part).records()}
    expected = {record.value: record for record in build(**columns).records()}
    fields = ("key", "timestamp", "channel", "tags", "headers")
    assert len(found) == count
    for value, record in expected.items():
        assert [getattr(found[value], name) for name in fields] == [getattr(record, name) for name in fields]


@pytest.mark.parametrize("wrong", [{"values": b"one"}, {"values": 3}, {"values": [1, 2]}, {"values": [1] * 100},
                                   {"values": [b"1"], "keys": [b"1", b"2"]}, {"values": pa.array([1, 2])}],
                         ids=["bytes", "number", "numbers", "many", "short", "arrow"])  # fmt: skip
def test_what_cannot_be_a_column_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidColumn):
        cut(**wrong)
