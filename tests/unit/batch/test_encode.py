"""The builder has a plain path for few records and an Arrow path for many: nobody can tell which one was taken."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from logboom.batch import Record, build, build_records, encode
from support.mutants.batches import mixed_records

LIMIT = encode.SHORT


def random_records(seed: int, count: int) -> list[Record]:
    random = Random(seed)

    def text(*choices: str | None) -> Any:
        return random.choice(choices)

    return [
        Record(
            random.choice((None, b"", random.randbytes(random.randrange(20)))),
            random.choice((None, b"", b"key")),
            random.choice((None, 5, random.getrandbits(63))),
            text(None, "", "a/b", "größe/ü"),
            tuple(text("", "red", "größe") for _ in range(random.randrange(4))),
            tuple((text("", "h", "ü"), random.randbytes(random.randrange(4))) for _ in range(random.randrange(4))),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", range(1, LIMIT + 1))
def test_the_short_and_the_long_path_give_the_same_bytes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [mixed_records(count), random_records(count, count), [Record(b"")] * count, [Record(None)] * count]
    short = [bytes(build_records(records).data) for records in samples]
    monkeypatch.setattr(encode, "SHORT", 0)
    assert [bytes(build_records(records).data) for records in samples] == short


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, LIMIT, LIMIT + 1, 1000])
def test_lists_and_arrow_arrays_give_the_same_bytes(count: int) -> None:
    records = random_records(1, count)
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    from_arrow = build(
        pa.array([r.value for r in records], pa.binary()),
        keys=pa.array([r.key for r in records], pa.binary()),
        timestamps=pa.array([r.timestamp for r in records], pa.int64()),
        channels=pa.array([r.channel for r in records], pa.string()),
        tags=pa.array([r.tags for r in records], pa.list_(pa.string())),
        headers=pa.array([[{"key": k, "value": v} for k, v in r.headers] for r in records], pa.list_(pair)),
    )
    assert from_arrow.data == build_records(records).data


@pytest.mark.parametrize("count", [1, 17, LIMIT])
def test_more_items_than_records_take_the_short_path_as_well(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, Any] = {
        "tags": [[f"t{i}" for i in range(100)]] * count,
        "headers": [[(f"h{i}", b"x" * i) for i in range(100)]] * count,
    }
    short = build([b"v"] * count, **columns).data
    monkeypatch.setattr(encode, "SHORT", 0)
    assert build([b"v"] * count, **columns).data == short


@pytest.mark.parametrize("count", [3, 100])
def test_bytes_under_a_null_are_left_out_or_ignored_by_every_reader(count: int) -> None:
    full = pa.array([b"%05d" % i for i in range(count)])
    odd = pa.array([i % 2 == 1 for i in range(count)])
    bitmap = pa.array([None if bit.as_py() else 1 for bit in odd], pa.int8()).buffers()[0]
    array = pa.Array.from_buffers(pa.binary(), count, [bitmap, *full.buffers()[1:]])
    expected = [None if i % 2 else b"%05d" % i for i in range(count)]
    batch = build(array, keys=array)
    assert batch.values() == batch.keys() == expected
    assert [record.value for record in batch.records()] == batch.to_arrow().column("value").to_pylist() == expected
