"""Frames: 16 bytes in front, a head in msgpack, then bytes as they are.

     0 size         u32   of the whole frame, a multiple of 8
     4 kind         u8
     5 flags        u8    zero
     6 reserved     u16   zero
     8 correlation  u32
    12 head         u32   bytes of the head without its padding
    16 head, padded with zeros to a multiple of 8; then the payload up to `size`

So what follows the head stays aligned as long as the stream is. `FrameReader` is where the stream is cut into frames:
it never copies a payload, allocates nothing before a frame's length was checked, and gives the same frames wherever the
stream was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from logboom.batch.header import Buffer
from logboom.errors import RemoteProtocolError

FRONT: Final = Struct("<IBBHII")
FRONT_SIZE: Final = FRONT.size
FRAME_BYTES_FIRST: Final = 64 * 1024
"""The largest frame before the hello is through."""
FRAME_BYTES_DEFAULT: Final = 64 * 1024 * 1024 + 64 * 1024
RECEIVE_BYTES: Final = 256 * 1024
OWN_BYTES_MIN: Final = 4096

_encoder = msgspec.msgpack.Encoder()
_ZEROS: Final = tuple(bytes(size) for size in range(8))


class Frame(NamedTuple):
    kind: int
    correlation: int
    head: memoryview
    payload: memoryview


def encode_front(kind: int, correlation: int, head: Any, payload_size: int = 0) -> bytes:
    """Everything of a frame but its payload, which is to follow: `payload_size` bytes, a multiple of 8."""
    packed = b"" if head is None else _encoder.encode(head)
    padding = -len(packed) & 7
    size = FRONT_SIZE + len(packed) + padding + payload_size
    return FRONT.pack(size, kind, 0, 0, correlation, len(packed)) + packed + _ZEROS[padding]


def encode(kind: int, correlation: int, head: Any = None, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """A frame as buffers to be sent one after another."""
    return [encode_front(kind, correlation, head, sum(map(len, payload))), *payload]


class FrameReader:
    """Receives into memory it hands out (`buffer`), and cuts what has come (`received`) into frames.

    The frames of one call are views of that memory: valid until the next call of `buffer`. Whoever keeps one longer
    calls `keep` first, and then the memory is the keeper's. `shared` is a buffer that many readers of one thread take
    turns with: between two calls a reader holds on to bytes only where a frame is incomplete, in memory of its own.
    """

    def __init__(self, limit_bytes: int = FRAME_BYTES_FIRST, shared: SharedBuffer | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._shared = shared or SharedBuffer()
        self._own: bytearray | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes are to go. Never empty."""
        if self._own is not None:
            return memoryview(self._own)[self._filled :]
        return self._shared.view

    def received(self, count: int) -> Iterator[Frame]:
        """Every frame that is complete now. Raises RemoteProtocolError at the first that cannot be one.

        To be exhausted before the next call of `buffer`.
        """
        if self._own is None:
            data = self._shared.view[:count]
        else:
            self._filled += count
            data = memoryview(self._own)[: self._filled]
        offset, end = 0, len(data)
        while end - offset >= FRONT_SIZE:
            size, kind, flags, reserved, correlation, head_size = FRONT.unpack_from(data, offset)
            body = FRONT_SIZE + head_size + (-head_size & 7)
            if size > self.limit_bytes or size & 7 or body > size or flags or reserved:
                raise RemoteProtocolError(_complaint(size, self.limit_bytes))
            if size > end - offset:
                self._make_room(data, offset, size)
                return
            start = offset + FRONT_SIZE
            frame = Frame(kind, correlation, data[start : start + head_size], data[offset + body : offset + size])
            offset += size
            yield frame
        if offset == end:
            self._own, self._filled = None, 0
        else:
            self._make_room(data, offset, FRONT_SIZE)

    def _make_room(self, data: memoryview, offset: int, size: int) -> None:
        """What is left of the stream goes to memory of our own, which has room for the whole frame."""
        rest = data[offset:]
        if self._own is not None and not offset and len(self._own) >= size:
            return
        own = bytearray(max(size, OWN_BYTES_MIN))
        own[: len(rest)] = rest
        self._own, self._filled = own, len(rest)

    def keep(self) -> None:
        """Frames of this call will be used after the next `buffer`: that must not be the memory they are in."""
        if self._own is None:
            self._shared.renew()

    @property
    def held_bytes(self) -> int:
        """Memory this reader has of its own."""
        return 0 if self._own is None else len(self._own)


class SharedBuffer:
    """Memory to receive into that all connections of one event loop share: each use ends before the next begins."""

    def __init__(self, size: int = RECEIVE_BYTES) -> None:
        self._size = size
        self.view = memoryview(bytearray(size))

    def renew(self) -> None:
        """Somebody keeps what is in there."""
        self.view = memoryview(bytearray(self._size))


def _complaint(size: int, limit_bytes: int) -> str:
    if size > limit_bytes:
        return f"a frame of {size:,} bytes is over the limit of {limit_bytes:,}, or this is another protocol"
    return "bytes that are no frame"
