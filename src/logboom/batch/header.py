"""The 96 bytes in front of every batch, on disk and on the wire the same.

Bytes 0..40 are the stamp, written by the leader when it appends; bytes 40..92 are what the producer says.
`batch_crc` covers 40..88, the stored body and its padding, and is never rewritten on append;
`header_crc` covers 0..92. docs/formats/batch.md draws the layout.

`read_header` is the way in from bytes: what it returns had a sound header_crc and a possible size. `read_signed` is for
whoever was restamping a batch when the machine died.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.errors import HeaderCorrupt, NotABatch

Buffer = bytes | bytearray | memoryview

MAGIC: Final = b"LGBM"
HEADER_SIZE: Final = 96
STAMP_SIZE: Final = 40
SIGNED_END: Final = 88
BATCH_SIZE_MAX: Final = 64 * 1024 * 1024
BATCH_SIZE_DEFAULT: Final = 16 * 1024 * 1024
VERSION: Final = 1
NO_TIMESTAMP: Final = -(2**63)
SYNCED_UNKNOWN: Final = 2**32 - 1
SEQUENCE_MODULUS: Final = 2**31
STAGED_IDS: Final = 2**63
"""Producer ids from here on are given by servers to stages: no log keeps a sequence for them."""
ISSUED_IDS: Final = 0x2D9A4D << 41
"""From here up to `ISSUED_END` servers give producer ids to writers, in rising order. All others writers make."""
ISSUED_END: Final = ISSUED_IDS + (1 << 41)

KIND_DATA: Final = 0
KIND_CONTROL: Final = 1
KIND_LOST: Final = 2

ENCODING_COLUMNS: Final = 1
ENCODING_KAFKA: Final = 2

PADDING_MASK: Final = 0b111

_HEADER = Struct("<4sIQQqIIBBBBIIHHqqQIIII")
_STAMP = Struct("<QQqII")
_SIGNED = Struct("<BBBBIIHHqqQII")
_CRC = Struct("<I")


def own_id(number: int) -> int:
    """The producer id that somebody makes of 64 bits: none that servers give, and not 0."""
    number = number >> 1 or 1
    return number ^ 1 << 62 if ISSUED_IDS <= number < ISSUED_END else number


class Header(NamedTuple):
    """The fields of the header, in their order on disk."""

    magic: bytes
    size: int
    base_seqno: int
    index: int  # type: ignore[assignment]
    append_time: int
    term: int
    synced: int
    version: int
    kind: int
    encoding: int
    codec: int
    record_count: int
    body_size: int
    columns: int
    producer_epoch: int
    min_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_seq: int
    flags: int
    batch_crc: int
    header_crc: int

    @property
    def next_seqno(self) -> int:
        return self.base_seqno + self.record_count

    @property
    def padding(self) -> int:
        return self.flags & PADDING_MASK

    @property
    def stored_size(self) -> int:
        """Bytes of the body as stored, without padding."""
        return self.size - HEADER_SIZE - (self.flags & PADDING_MASK)

    def newest_timestamp(self, append_time: int) -> int:
        """The newest timestamp a reader of this batch sees: records without one show the append time."""
        if self.kind != KIND_DATA:
            return NO_TIMESTAMP
        if self.min_timestamp == NO_TIMESTAMP and append_time > self.max_timestamp:
            return append_time
        return self.max_timestamp


class Producer(NamedTuple):
    """Who wrote a batch and where it stands in that producer's stream. Id 0 is nobody."""

    id: int = 0
    epoch: int = 0
    seq: int = 0


def read_header(data: Buffer, position: int = 0) -> Header:
    """Parse and check the header at `position`: magic, header_crc, and a size a batch can have."""
    try:
        header = Header._make(_HEADER.unpack_from(data, position))
    except StructError:
        raise NotABatch(f"{max(0, len(data) - position)} bytes are too few for a header of {HEADER_SIZE}") from None
    if header.magic != MAGIC:
        raise NotABatch(f"magic is {header.magic!r}, not {MAGIC!r}")
    if crc32c(data[position : position + 92]) != header.header_crc:
        raise HeaderCorrupt("header_crc does not match")
    if header.size < HEADER_SIZE or header.size > BATCH_SIZE_MAX or header.size & 7:
        raise NotABatch(f"a batch cannot have {header.size} bytes")
    return header


def read_signed(data: Buffer, position: int = 0) -> Header:
    """As `read_header`, where the stamp may be torn: all but bytes 8..40 is sound if batch_crc, checked next, is."""
    try:
        header = Header._make(_HEADER.unpack_from(data, position))
    except StructError:
        raise NotABatch(f"{max(0, len(data) - position)} bytes are too few for a header of {HEADER_SIZE}") from None
    if header.magic != MAGIC or header.size < HEADER_SIZE or header.size > BATCH_SIZE_MAX or header.size & 7:
        raise NotABatch(f"magic is {header.magic!r}, the size {header.size}")
    return header


def pack_signed(
    kind: int,
    encoding: int,
    codec: int,
    record_count: int,
    body_size: int,
    columns: int,
    min_timestamp: int,
    max_timestamp: int,
    producer: Producer,
    flags: int,
) -> bytes:
    """Bytes 40..88: what the producer says and batch_crc begins with."""
    return _SIGNED.pack(
        VERSION,
        kind,
        encoding,
        codec,
        record_count,
        body_size,
        columns,
        producer.epoch,
        min_timestamp,
        max_timestamp,
        producer.id,
        producer.seq,
        flags,
    )


_UNSTAMPED = Struct("<4sI32x48sI")


def pack_unstamped(size: int, signed: bytes, batch_crc: int) -> bytes:
    """A whole header as a producer sends it: the stamp holds magic and size, else zeros."""
    front = _UNSTAMPED.pack(MAGIC, size, signed, batch_crc)
    return front + _CRC.pack(crc32c(front))


def stamp(data: Buffer, base_seqno: int, index: int, append_time: int, term: int, synced: int) -> bytes:
    """The header of the batch `data` with bytes 8..40 and 92..96 rewritten, as the leader does on append."""
    numbers = _STAMP.pack(base_seqno, index, append_time, term, min(synced, SYNCED_UNKNOWN))
    front = b"".join((data[:8], numbers, data[STAMP_SIZE:92]))
    return front + _CRC.pack(crc32c(front))
