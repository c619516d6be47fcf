"""Records go to the partitions that Kafka's Java client would choose."""

from __future__ import annotations

import random

import pytest

from logboom.batch.partitioner import ANYWHERE, murmur2, partition_of, partitions_of

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("data", VECTORS, ids=bytes.decode)
def test_the_hash_is_the_one_of_the_java_client(data: bytes) -> None:
    assert murmur2(data) == VECTORS[data]


@pytest.mark.parametrize("data", VECTORS, ids=bytes.decode)
def test_the_partition_is_the_hash_without_its_sign_modulo_their_number(data: bytes) -> None:
    assert partition_of(data, 7) == (VECTORS[data] & 0x7FFFFFFF) % 7


def test_many_keys_go_where_each_would_go() -> None:
    dice = random.Random(3)
    keys = [dice.choice([None, dice.randbytes(dice.randint(0, 40))]) for _ in range(500)]
    expected = [ANYWHERE if key is None else partition_of(key, 12) for key in keys]
    assert partitions_of(keys, 12).tolist() == expected


def test_an_empty_key_is_a_key() -> None:
    assert partitions_of([b""], 5).tolist() == [partition_of(b"", 5)]
