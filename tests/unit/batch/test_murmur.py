"""A whole column is hashed as its entries are, one by one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from logboom.batch.murmur import LONG_BYTES, hash_column, is_hashable, partitions_of_column
from logboom.batch.partitioner import murmur2, partitions_of
from logboom.errors import InvalidColumn

SIZES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 100, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, 3 * LONG_BYTES]


def entries(seed: int, count: int) -> list[bytes | None]:
    chance = random.Random(seed)
    return [None if chance.random() < 0.1 else chance.randbytes(chance.choice(SIZES)) for _ in range(count)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 17, 500])
def test_every_entry_goes_where_it_goes_alone(kind: Any, count: int) -> None:
    for seed in range(10):
        given = entries(seed, count)
        column = pa.array(given, kind)
        for start in (0, count // 3, count):
            part = column.slice(start)
            assert partitions_of_column(part, 7).tolist() == partitions_of(given[start:], 7).tolist()


def test_the_hash_is_that_of_single_entries() -> None:
    given = [bytes([size & 0xFF]) * size for size in range(40)]
    assert hash_column(pa.array(given)).tolist() == [murmur2(entry) & 0xFFFF_FFFF for entry in given]


def test_text_is_hashed_as_its_bytes() -> None:
    texts = ["", "a", "Größe", "日本語のキー", None]
    for kind in (pa.string(), pa.large_string()):
        found = partitions_of_column(pa.array(texts, kind), 11).tolist()
        assert found == partitions_of([None if text is None else text.encode() for text in texts], 11).tolist()


def test_an_empty_channel_is_none_and_an_empty_key_is_a_key() -> None:
    column = pa.array(["", "a", None])
    assert partitions_of_column(column, 1).tolist() == [0, 0, -1]
    assert partitions_of_column(column, 1, empty=False).tolist() == [-1, 0, -1]


def test_other_columns_are_not_taken() -> None:
    assert is_hashable(pa.array([b"a"]))
    assert is_hashable(pa.array(["a"]))
    for other in ([b"a"], "a", None, pa.array([1]), pa.array(["a"]).dictionary_encode(), pa.chunked_array([["a"]])):
        assert not is_hashable(other)


def test_offsets_that_lie_outside_are_an_error_and_nothing_is_read() -> None:
    offsets = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 4_000_000, 8)))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abcdefgh")])
    with pytest.raises(InvalidColumn):
        hash_column(broken)
