"""Layers of a checkpoint: a later one hides what those before have of a key, however each is cut into files."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from logboom.batch import Record
from logboom.errors import ResultsUnreadable
from logboom.results.checkpoint import (
    FORMAT,
    MANIFEST,
    Checkpoint,
    CheckpointManifest,
    CheckpointMark,
    Layer,
    buckets_of,
    encode_manifest,
    latest,
)
from logboom.results.pipeline_state import Result
from logboom.results.places import ResultPlace
from support.results.checkpointed import write_layer


def make(root: Path, layers: list[Layer]) -> Result:
    manifest = CheckpointManifest(FORMAT, "t", "00" * 16, "key", None, {0: CheckpointMark(1000)}, tuple(layers))
    place = ResultPlace(str(root)).below("runs/1")
    return Result("1", place.uri, manifest=place.write(MANIFEST, encode_manifest(manifest)))


def seqnos_of(result: Result, floor: int = 0) -> list[int]:
    tables = Checkpoint.open(result).tables(0, floor, ["seqno"])
    return [seqno for table in tables for seqno in table.column("seqno").to_pylist()]


@pytest.mark.parametrize("buckets", [(1, 1, 1), (8, 1, 2), (1, 4, 8), (2, 16, 1), (4, 4, 4)])
def test_each_key_is_shown_once_as_the_last_layer_has_it(tmp_path: Path, buckets: tuple[int, ...]) -> None:
    rng = random.Random(str(buckets))
    expected: dict[bytes, int] = {}
    layers, seqno = [], 0
    for number, count in enumerate((300, 60, 60)):
        records = []
        for key in rng.sample(range(400), count):
            value = b"v" if number == 0 or rng.random() < 0.7 else None
            records.append(Record(value, key=b"key %d" % key, seqno=seqno))
            expected.pop(b"key %d" % key, None)
            if value is not None:
                expected[b"key %d" % key] = seqno
            seqno += 1
        layers.append(
            write_layer(ResultPlace(str(tmp_path)), "1", {0: records, 1: records[:5]}, buckets=buckets[number])
        )
    result = make(tmp_path, layers)
    assert sorted(seqnos_of(result)) == sorted(expected.values())
    assert sorted(seqnos_of(result, 350)) == sorted(seqno for seqno in expected.values() if seqno >= 350)
    if buckets == (1, 1, 1):
        assert seqnos_of(result) == sorted(expected.values()), "one file for each layer has them in their order"


def test_files_that_are_gone_or_not_what_was_written_are_said_to_be(tmp_path: Path) -> None:
    noise = random.Random(5).randbytes(100)
    layer = write_layer(ResultPlace(str(tmp_path)), "1", {0: [Record(noise, key=b"k", seqno=3)]})
    result = make(tmp_path, [layer])
    file = tmp_path / layer.files[0].path
    whole = file.read_bytes()
    for wrong in (whole[:-1], whole.replace(noise, noise[::-1]), b""):
        assert wrong != whole
        file.write_bytes(wrong)
        with pytest.raises(ResultsUnreadable, match="cannot be read"):
            seqnos_of(result)
    file.unlink()
    with pytest.raises(ResultsUnreadable, match="Begin again with the newest"):
        seqnos_of(result)
    (tmp_path / "runs/1" / MANIFEST).unlink()
    with pytest.raises(ResultsUnreadable, match="Begin again with the newest"):
        seqnos_of(result)


def test_the_latest_of_each_key_is_the_one_with_the_highest_seqno_in_whatever_order_they_come() -> None:
    import pyarrow as pa

    rng = random.Random(3)
    seqnos = rng.sample(range(10_000), 2000)
    keys = [b"%d" % rng.randrange(300) for _ in seqnos]
    found = latest(pa.table({"key": keys, "seqno": seqnos}), "key")
    best: dict[bytes, int] = {}
    for key, seqno in zip(keys, seqnos, strict=True):
        best[key] = max(seqno, best.get(key, -1))
    assert dict(zip(found.column("key").to_pylist(), found.column("seqno").to_pylist(), strict=True)) == best
    assert found.num_rows == len(best)


def test_keys_of_one_partition_are_spread_over_all_buckets() -> None:
    """The partitioner takes the same hash."""
    import pyarrow as pa

    from logboom.batch.partitioner import partition_of

    keys = [key for key in (b"key %d" % number for number in range(4000)) if partition_of(key, 8) == 3]
    counts = [int(count) for count in np.bincount(buckets_of(pa.chunked_array([keys]), 8))]
    assert len(counts) == 8
    assert min(counts) > len(keys) / 16
