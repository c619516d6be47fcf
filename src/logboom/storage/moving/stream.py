"""The frames of a dump: a preamble, then kind, codec, lengths, number, two checksums, and a payload, again and again.

Invariant: nothing is believed before its checksum holds, and no length is allocated before it was checked against its
limit and the bytes have come. `chain` runs over every frame's header, so that frames cannot be lost, doubled, swapped
or taken from another dump unnoticed. docs/formats/dump.md has every byte.

Crash rule: a stream may end anywhere; what precedes the first frame that is not whole is as good as ever.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from struct import Struct
from types import TracebackType
from typing import Final, NamedTuple, Protocol, TypeVar

from crc32c import crc32c

from logboom.batch import codec as codecs
from logboom.batch.header import BATCH_SIZE_MAX, Buffer
from logboom.errors import BodyCorrupt, DumpCorrupt, DumpIncomplete, DumpUnsupported
from logboom.storage.means import SYSTEM, Threads

MAGIC: Final = b"LGDUMP"
VERSION: Final = 1
PREAMBLE: Final = MAGIC + VERSION.to_bytes(2, "little")

HEAD: Final = 1
TOPIC: Final = 2
LOG: Final = 3
SEGMENT: Final = 4
BATCHES: Final = 5
LOG_END: Final = 6
END: Final = 7

PAYLOAD_MAX: Final = BATCH_SIZE_MAX
"""Of any frame, inflated: batches make about a MiB, but one alone may have this size."""

OUTLINE_MAX: Final = 4 * 1024 * 1024
"""Of a frame that is neither a snapshot nor batches: what it says is decoded as a whole."""

_HEADER = Struct("<BBHIIII")
_CRC = Struct("<I")
HEADER_SIZE: Final = _HEADER.size + _CRC.size
_PIECE: Final = 1024 * 1024
_THREADS: Final = 2
_UNDER_WAY: Final = 4
_AHEAD: Final = 3
_WORTH_COMPRESSING: Final = 256
_SAMPLE_BYTES: Final = 16 * 1024


class DumpSource(Protocol):
    """Where a dump comes from. May give fewer bytes than asked for; none at the end."""

    def read(self, size: int, /) -> bytes | None: ...


class DumpSink(Protocol):
    """Where a dump goes. May take fewer bytes than offered, and says how many."""

    def write(self, data: Buffer, /) -> int | None: ...


class DumpFrame(NamedTuple):
    kind: int
    payload: Buffer
    number: int
    position: int
    """Of its first byte in the stream."""
    end: int
    """The position behind its last byte."""
    chain: int
    """The CRC of the headers of all frames before it."""
    chain_after: int


class DumpFrameReader:
    """Frames one after another, each one checked. Ends after END, and only there."""

    def __init__(self, source: DumpSource) -> None:
        self._source = source
        self._position = 0

    def frames(self) -> Iterator[DumpFrame]:
        self._check_preamble()
        number = chain = 0
        kind = None
        while kind != END:
            start = self._position
            front = self._take(HEADER_SIZE)
            kind, codec, stored_size, raw_size, payload_crc = _check_header(front, number, start)
            stored = self._take(stored_size)
            if crc32c(stored) != payload_crc:
                raise DumpCorrupt(start, "the checksum of a frame's payload does not hold")
            payload = _inflated(stored, codec, raw_size, start)
            chain_after = crc32c(front, chain)
            yield DumpFrame(kind, payload, number, start, self._position, chain, chain_after)
            number, chain = number + 1, chain_after
        if self._source.read(1):
            raise DumpCorrupt(self._position, "bytes follow the end of the dump")

    def _check_preamble(self) -> None:
        found = self._some(len(PREAMBLE))
        if found[: len(MAGIC)] != MAGIC[: len(found)]:
            raise DumpUnsupported("this is not a dump: it does not begin with LGDUMP")
        if len(found) < len(PREAMBLE):
            raise DumpIncomplete(len(found))
        if found != PREAMBLE:
            version = int.from_bytes(found[len(MAGIC) :], "little")
            raise DumpUnsupported(f"the dump has format {version}, this release reads {VERSION}: use a newer release")

    def _take(self, size: int) -> bytes:
        data = self._some(size)
        if len(data) < size:
            raise DumpIncomplete(self._position)
        return data

    def _some(self, size: int) -> bytes:
        """So many bytes, or fewer at the end of the stream. Grows with what comes, not with what was promised."""
        data = self._source.read(min(size, _PIECE)) or b""
        self._position += len(data)
        if len(data) == size or not data:
            return data
        pieces, missing = [data], size - len(data)
        while missing and (data := self._source.read(min(missing, _PIECE)) or b""):
            pieces.append(data)
            missing -= len(data)
            self._position += len(data)
        return b"".join(pieces)


def _check_header(front: bytes, number: int, position: int) -> tuple[int, int, int, int, int]:
    kind, codec, flags, stored_size, raw_size, found_number, payload_crc = _HEADER.unpack_from(front)
    if crc32c(front[: _HEADER.size]) != _CRC.unpack_from(front, _HEADER.size)[0]:
        raise DumpCorrupt(position, "the checksum of a frame's header does not hold")
    if not HEAD <= kind <= END or codec > codecs.ZSTD or flags:
        raise DumpUnsupported(
            f"byte {position}: a frame of kind {kind}, codec {codec}, flags {flags:#x}: use a newer release"
        )
    if found_number != number & 0xFFFFFFFF:
        raise DumpCorrupt(position, f"frame {found_number} stands where {number} must be")
    limit = PAYLOAD_MAX if kind in (SEGMENT, BATCHES) else OUTLINE_MAX
    if raw_size > limit or stored_size > raw_size or (codec == codecs.NONE and stored_size != raw_size):
        raise DumpCorrupt(position, f"a frame cannot have {stored_size} bytes for {raw_size}")
    return kind, codec, stored_size, raw_size, payload_crc


def _inflated(stored: bytes, codec: int, raw_size: int, position: int) -> Buffer:
    if codec == codecs.NONE:
        return stored
    try:
        payload = codecs.inflate(stored, codec, raw_size)
    except BodyCorrupt as error:
        raise DumpCorrupt(position, str(error)) from None
    if len(payload) != raw_size:
        raise DumpCorrupt(position, f"a payload inflates to {len(payload)} bytes, not {raw_size}")
    return payload


Made = TypeVar("Made")


def ahead(things: Iterator[Made], threads: Threads = SYSTEM.threads) -> Iterator[Made]:
    """The same things in the same order, made a few ahead on a thread; an error comes in its place.

    Whoever stops early does not wait for a thing that is being made: it may wait for bytes that never come.
    """
    nothing = object()
    thread = threads(1, "logboom-ahead")
    try:
        under_way = deque(thread.submit(next, things, nothing) for _ in range(_AHEAD))
        while (made := under_way.popleft().result()) is not nothing:
            under_way.append(thread.submit(next, things, nothing))
            yield made  # type: ignore[misc]
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


class _Packed(NamedTuple):
    codec: int
    stored: Buffer
    raw_size: int
    crc: int


class DumpFrameWriter:
    """Writes frames in the order they are put; compression and checksums run ahead on two threads, a few frames far."""

    def __init__(
        self, sink: DumpSink, codec: int, number: int = 0, chain: int = 0, threads: Threads = SYSTEM.threads
    ) -> None:
        """`number` and `chain` are those of a stream that is gone on with; a new one gets its preamble."""
        self._sink = sink
        self._codec = codec
        self._number = number
        self.chain = chain
        """Of all frames written; `flush` makes that all that were put."""
        self.written_bytes = 0
        self._threads = threads(_THREADS, "logboom-pack")
        self._waiting: deque[tuple[int, Future[_Packed]]] = deque()
        if not number:
            self._write(PREAMBLE)

    def __enter__(self) -> DumpFrameWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    @property
    def frames(self) -> int:
        """How many frames the stream has, those included that wait."""
        return self._number + len(self._waiting)

    def put(self, kind: int, payload: Buffer) -> None:
        self._waiting.append((kind, self._threads.submit(_pack, payload, self._codec)))
        while len(self._waiting) > _UNDER_WAY:
            self._write_next()

    def flush(self) -> None:
        while self._waiting:
            self._write_next()

    def _write_next(self) -> None:
        kind, packed = self._waiting.popleft()
        codec, stored, raw_size, crc = packed.result()
        front = _HEADER.pack(kind, codec, 0, len(stored), raw_size, self._number & 0xFFFFFFFF, crc)
        front += _CRC.pack(crc32c(front))
        self._write(front)
        self._write(stored)
        self._number += 1
        self.chain = crc32c(front, self.chain)

    def _write(self, data: Buffer) -> None:
        view = memoryview(data)
        self.written_bytes += len(view)
        while view:
            taken = self._sink.write(view)
            if not taken:
                raise OSError(errno.EAGAIN, "the dump's output takes nothing")
            view = view[taken:]


def _pack(payload: Buffer, codec: int) -> _Packed:
    """A payload as it is stored: compressed only where that is worth it."""
    stored = payload
    if codec != codecs.NONE and _shrinks(payload, codec):
        stored = codecs.deflate(payload, codec)
    if len(stored) >= len(payload):
        codec, stored = codecs.NONE, payload
    return _Packed(codec, stored, len(payload), crc32c(stored))


def _shrinks(payload: Buffer, codec: int) -> bool:
    """A guess from two samples, so that what is compressed already costs little."""
    size = len(payload)
    if size < 8 * _SAMPLE_BYTES:
        return size >= _WORTH_COMPRESSING
    view = memoryview(payload)
    samples = (view[start : start + _SAMPLE_BYTES] for start in (size // 4, size * 3 // 4))
    return any(len(codecs.deflate(sample, codec)) < _SAMPLE_BYTES * 15 // 16 for sample in samples)
