"""Columns given at once are cut into batches by size and dealt out by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from logboom.batch import Producer
from logboom.batch.partitioner import partition_of
from logboom.client.write.slices import BuildColumns
from logboom.errors import InvalidColumn


def cut(columns: BuildColumns, partitions: int = 1, batch_bytes: int = 1000) -> list[tuple[int | None, list[Any]]]:
    return [
        (part.partition, part.columns.make("none")(Producer()).values())
        for part in columns.slices(partitions, batch_bytes)
    ]


VALUES = [b"%0*d" % (number % 50, number) for number in range(1000)]


@pytest.mark.parametrize("given", [VALUES, tuple(VALUES), iter(VALUES), pa.array(VALUES), pa.chunked_array([VALUES]),
                                   pd.Series(VALUES), [value.decode() for value in VALUES],
                                   [bytearray(value) for value in VALUES], np.array(VALUES, dtype=object)],
                         ids=lambda given: type(given).__name__)  # fmt: skip
def test_all_records_are_in_the_batches_in_their_order_and_none_is_much_too_large(given: Any) -> None:
    parts = cut(BuildColumns.of(given))
    assert [value for _, values in parts for value in values] == VALUES
    assert all(sum(map(len, values)) <= 1060 for _, values in parts)
    assert len(parts) < 60


def test_a_few_records_are_one_batch_of_which_more_may_come() -> None:
    (part,) = BuildColumns.of([b"1", None, "3"]).slices(1, 1000)
    assert part.is_rest
    assert part.columns.plain_values() == [b"1", None, b"3"]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    assert [len(values) for _, values in cut(BuildColumns.of([b"1", bytes(5000), b"2", b"3"]))] == [2, 2]


def test_records_with_the_same_key_are_in_one_partition_and_the_others_anywhere() -> None:
    keys = [None if number % 4 == 0 else b"k%d" % (number % 7) for number in range(1000)]
    for given in (keys, pa.array(keys)):
        parts = cut(BuildColumns.of(VALUES, keys=given), partitions=5)
        found = {value: partition for partition, values in parts for value in values}
        expected = [None if key is None else partition_of(key, 5) for key in keys]
        assert [found[value] for value in VALUES[100:]] == expected[100:]


def test_the_channel_stands_in_for_a_key() -> None:
    channels = ["", "a", "b", None]
    parts = cut(
        BuildColumns.of([b"0", b"1", b"2", b"3"], keys=[None, None, b"k", None], channels=channels), partitions=5
    )
    found = {value: partition for partition, values in parts for value in values}
    assert found == {b"0": None, b"1": partition_of(b"a", 5), b"2": partition_of(b"k", 5), b"3": None}


def test_what_was_cut_before_the_partitions_were_known_is_dealt_out_by_key() -> None:
    keys = [b"k%d" % (number % 7) for number in range(1000)]
    columns = BuildColumns.of(VALUES, keys=keys)
    found = {
        value: piece.partition
        for part in columns.slices(1, 1000)
        for piece in part.again(1, 5, 1000)
        for value in piece.columns.make("none")(Producer()).values()
    }
    assert [found[value] for value in VALUES[100:]] == [partition_of(key, 5) for key in keys[100:]]
    (part,) = BuildColumns.of([b"1"]).slices(1, 1000)
    assert [*part.again(1, 1, 1000)] == [part]


def test_one_channel_may_be_for_all() -> None:
    ((partition, values),) = cut(BuildColumns.of([b"0", b"1"], channels="a", timestamps=3), partitions=5)
    assert (partition, values) == (partition_of(b"a", 5), [b"0", b"1"])


@pytest.mark.parametrize("wrong", [{"values": b"one"}, {"values": 3}, {"values": [1, 2]}, {"values": [1] * 100},
                                   {"values": [b"1"], "keys": [b"1", b"2"]}, {"values": pa.array([1, 2])}],
                         ids=["bytes", "number", "numbers", "many", "short", "arrow"])  # fmt: skip
def test_what_cannot_be_a_column_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidColumn):
        cut(BuildColumns.of(**wrong))
