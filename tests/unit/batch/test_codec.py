from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from logboom.batch import HEADER_SIZE, Batch, build, build_records
from logboom.errors import BatchTooLarge, BodyCorrupt, InvalidColumn, UnsupportedBatch
from support.mutants.batches import mixed_records, with_body, with_fields

CODECS = {"none": 0, "lz4": 1, "zstd": 2}
PLAIN = build([b"a" * 1000] * 20)


def stored(batch: Batch) -> bytes:
    return bytes(batch.data[HEADER_SIZE : HEADER_SIZE + batch.header.stored_size])


def with_stored(batch: Batch, content: bytes, **fields: Any) -> bytes:
    """The batch with these bytes as its stored body, and body_size left as it is."""
    padding = -len(content) & 7
    data = bytes(batch.data[:HEADER_SIZE]) + content + bytes(padding)
    return with_fields(data, size=len(data), flags=padding, **fields)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_reads_the_same_with_every_codec(codec: str) -> None:
    batch = build_records(mixed_records(200), codec=codec)
    again = Batch.parse(batch.data)
    assert again.header.codec == CODECS[codec]
    assert list(again.records()) == list(build_records(mixed_records(200)).records())
    assert again.body == build_records(mixed_records(200)).body


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compression_makes_a_repetitive_batch_smaller(codec: str) -> None:
    batch = build([b"a" * 1000] * 20, codec=codec)
    assert batch.header.size * 10 < PLAIN.header.size
    assert batch.header.body_size == PLAIN.header.body_size


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_batch_that_compression_would_not_shrink_is_stored_as_it_is(codec: str) -> None:
    batch = build([b"x"], codec=codec)
    assert batch.header.codec == 0
    assert batch.data == build([b"x"]).data


def test_lz4_is_the_frame_format_and_zstd_a_zstd_frame() -> None:
    assert stored(build([b"a" * 1000], codec="lz4")).startswith(b"\x04\x22\x4d\x18")
    assert stored(build([b"a" * 1000], codec="zstd")).startswith(b"\x28\xb5\x2f\xfd")


def test_a_codec_nobody_knows_is_refused_by_the_builder() -> None:
    with pytest.raises(InvalidColumn, match="codec") as caught:
        build([b"a"], codec="snappy")
    assert caught.value.column == "codec"


def test_a_codec_nobody_knows_is_refused_by_the_reader() -> None:
    with pytest.raises(UnsupportedBatch, match="codec 3"):
        Batch.parse(with_fields(PLAIN.data, codec=3)).verify()


@pytest.mark.parametrize("codec", [1, 2])
@pytest.mark.parametrize("difference", [-8, -1, 1, 8, 4096])
def test_a_body_that_inflates_to_another_size_than_it_says_is_corrupt(codec: int, difference: int) -> None:
    body = bytes(PLAIN.body)
    with pytest.raises(BodyCorrupt):
        Batch.parse(with_body(PLAIN.data, body, codec, body_size=len(body) + difference)).verify()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_body_that_is_cut_off_anywhere_is_corrupt(codec: str) -> None:
    batch = build([b"a" * 1000, b"b" * 1000], codec=codec)
    content = stored(batch)
    for length in range(len(content)):
        with pytest.raises(BodyCorrupt):
            Batch.parse(with_stored(batch, content[:length])).verify()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("tail", [b"\x00", b"junk", bytes(8)])
def test_bytes_after_the_compressed_frame_are_corruption(codec: str, tail: bytes) -> None:
    batch = build([b"a" * 1000, b"b" * 1000], codec=codec)
    with pytest.raises(BodyCorrupt):
        Batch.parse(with_stored(batch, stored(batch) + tail)).verify()


@pytest.mark.parametrize("codec", [1, 2])
def test_a_body_that_is_not_compressed_at_all_is_corrupt(codec: int) -> None:
    with pytest.raises(BodyCorrupt):
        Batch.parse(with_fields(PLAIN.data, codec=codec)).verify()


@pytest.mark.parametrize("codec", [1, 2])
def test_a_batch_that_would_inflate_beyond_the_limit_is_refused_before_it_is_inflated(codec: int) -> None:
    data = with_body(PLAIN.data, bytes(PLAIN.body), codec)
    with pytest.raises(BatchTooLarge) as caught:
        Batch.parse(data).verify(limit_bytes=10_000)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (PLAIN.header.body_size, 10_000)


BOMB = """
import sys
import pyarrow as pa
from logboom.batch import Batch
from logboom.errors import BodyCorrupt

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

Batch.parse(bytes.fromhex(sys.argv[1])).verify()  # whatever is imported for this is imported now
data = sys.stdin.buffer.read()
before = peak()
try:
    Batch.parse(data).verify()
except BodyCorrupt:
    print("corrupt", peak() - before, pa.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("claimed", [80, 1 << 20])
def test_a_bomb_that_lies_about_its_size_cannot_make_the_reader_allocate(codec: str, claimed: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        for _ in range(256):
            stream.write(bytes(1 << 20))
    innocent = build([b"a" * 1000] * 20, codec=codec)
    bomb = with_stored(innocent, sink.getvalue().to_pybytes(), body_size=claimed)
    child = subprocess.run(
        [sys.executable, "-c", BOMB, bytes(innocent.data).hex()], input=bomb, capture_output=True, check=False
    )
    assert child.stderr == b""
    word, resident, pool = child.stdout.split()
    assert word == b"corrupt"
    assert int(resident) < 32 << 20
    assert int(pool) < 32 << 20
