"""Compression of bodies: none, lz4 (frame format), zstd.

Inflating never allocates more than the size the header claims, which the caller has checked against its
limit, and what comes out must have exactly that size: a shorter or longer result is corruption.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from logboom.batch.header import Buffer
from logboom.errors import BodyCorrupt, UnsupportedBatch

NONE: Final = 0
LZ4: Final = 1
ZSTD: Final = 2

CodecName = Literal["none", "lz4", "zstd"]
CODECS: Final[dict[str, int]] = dict(zip(get_args(CodecName), (NONE, LZ4, ZSTD), strict=True))
ZSTD_LEVEL: Final = 1


def deflate(body: Buffer, codec: int, level: int | None = None) -> Buffer:
    """Compress a body. The result may be larger than the body; the caller decides what to keep.

    `level` is zstd's: higher takes longer and gains more; lz4 has none.
    """
    import pyarrow as pa

    if codec == LZ4:
        return memoryview(pa.Codec("lz4").compress(body)).cast("B")
    if codec == ZSTD:
        level = ZSTD_LEVEL if level is None else level
        return memoryview(pa.Codec("zstd", compression_level=level).compress(body)).cast("B")
    raise UnsupportedBatch(f"codec {codec}")


def inflate(stored: Buffer, codec: int, body_size: int) -> memoryview:
    """Decompress to exactly `body_size` bytes, 8-byte aligned."""
    import pyarrow as pa

    try:
        if codec == ZSTD:
            return memoryview(pa.decompress(stored, body_size, codec="zstd")).cast("B")
        if codec == LZ4:
            # The one-shot decoder does not say how much it wrote; the stream does, and stops one byte past the limit.
            stream = pa.CompressedInputStream(pa.BufferReader(stored), "lz4")
            body = memoryview(stream.read_buffer(body_size + 1)).cast("B")
            if len(body) == body_size:
                return body
            raise BodyCorrupt(f"the body inflates to {len(body)} bytes or more, its header says {body_size}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BodyCorrupt(f"the body does not inflate: {error}") from None
    raise UnsupportedBatch(f"codec {codec}")
