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
from typing import Any, Final

import msgspec

from logboom.batch.header import Buffer
from logboom.errors import LimitExceeded, RemoteProtocolError

FRONT: Final = Struct("<IBBHII")
FRONT_SIZE: Final = FRONT.size
FRAME_BYTES_FIRST: Final = 64 * 1024
"""The largest frame before the hello is through."""
FRAME_BYTES_DEFAULT: Final = 64 * 1024 * 1024 + 64 * 1024
FRAME_BYTES_MAX: Final = 2**32 - 8
RECEIVE_BYTES: Final = 512 * 1024
OWN_BYTES_MIN: Final = 4096
POOL_BYTES: Final = 32 * 1024 * 1024
POOLED_BYTES_MIN: Final = 128 * 1024
"""Smaller blocks the allocator keeps for itself."""

_encoder = msgspec.msgpack.Encoder()
_ZEROS: Final = tuple(bytes(size) for size in range(8))


class Frame(msgspec.Struct, frozen=True, gc=False):
    kind: int
    correlation: int
    head: memoryview
    payload: memoryview

    @property
    def size(self) -> int:
        """Of the whole frame."""
        return FRONT_SIZE + len(self.head) + (-len(self.head) & 7) + len(self.payload)


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
    calls `keep` before that, and then the memory is the keeper's. `shared` is a buffer that many readers of one thread
    take turns with: between two calls a reader holds on to bytes only of an incomplete frame, in memory of its own.
    """

    __slots__ = ("_filled", "_own", "_shared", "_used", "head_limit_bytes", "limit_bytes")

    def __init__(
        self,
        limit_bytes: int = FRAME_BYTES_FIRST,
        shared: SharedBuffer | None = None,
        head_limit_bytes: int = FRAME_BYTES_MAX,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.head_limit_bytes = head_limit_bytes
        self._shared = shared or SharedBuffer()
        self._own: memoryview | None = None
        self._filled = 0
        self._used = 0
        """Bytes of the shared memory that the frames of the last call are in."""

    def buffer(self) -> memoryview:
        """Where the next bytes are to go. Never empty."""
        if self._own is not None:
            return self._own[self._filled :]
        return self._shared.view

    def unread(self, count: int) -> memoryview:
        """What has come and is no frame yet, with so many bytes that `received` was not told of."""
        if self._own is None:
            return self._shared.view[:count]
        return self._own[: self._filled + count]

    def received(self, count: int) -> Iterator[Frame]:
        """Every frame that is complete now. To be exhausted before the next call of `buffer`.

        Raises RemoteProtocolError at the first that cannot be one, LimitExceeded where there is no memory for it.
        """
        data = self.unread(count)
        if self._own is None:
            self._used = count
        else:
            self._used = 0
            self._filled += count
        offset, end = 0, len(data)
        while end - offset >= FRONT_SIZE:
            size, kind, flags, reserved, correlation, head_size = FRONT.unpack_from(data, offset)
            body = FRONT_SIZE + head_size + (-head_size & 7)
            if size > self.limit_bytes or size & 7 or body > size or flags or reserved:
                raise RemoteProtocolError(_complaint(size, self.limit_bytes))
            if head_size > self.head_limit_bytes:
                raise RemoteProtocolError(f"a head of {head_size:,} bytes is over {self.head_limit_bytes:,}")
            if size > end - offset:
                self._make_room(data, offset, size)
                return
            start = offset + FRONT_SIZE
            frame = Frame(kind, correlation, data[start : start + head_size], data[offset + body : offset + size])
            offset += size
            yield frame
        if offset < end:
            self._make_room(data, offset, FRONT_SIZE)
        elif self._own is not None:
            self.close()

    def _make_room(self, data: memoryview, offset: int, size: int) -> None:
        """What is left of the stream goes to memory of our own, which has room for the whole frame."""
        if self._own is not None and not offset and len(self._own) >= size:
            return
        rest = data[offset:]
        # Who sends frame after frame gets room for more than one, so that one call receives several; not a stranger.
        least = OWN_BYTES_MIN if not offset or self.limit_bytes <= FRAME_BYTES_FIRST else RECEIVE_BYTES
        room = max(size, least)
        self._shared.claim(room - self.held_bytes)
        own = memoryview(self._shared.pool.take(room))[:room]
        own[: len(rest)] = rest
        self._own, self._filled = own, len(rest)

    def keep(self) -> None:
        """Frames of the last `received` will be used after the next `buffer`: that must be other memory."""
        self._shared.give_away(self._used)
        self._used = 0

    def close(self) -> None:
        """Nothing more will be received: what has come of a frame is dropped."""
        self._shared.claim(-self.held_bytes)
        self._own, self._filled = None, 0

    @property
    def held_bytes(self) -> int:
        """Memory this reader has of its own, for a frame that has not come whole."""
        return 0 if self._own is None else len(self._own)


class Pool:
    """Memory for large frames, used again when nobody has a view of it any more.

    What comes fresh from the operating system is slow to write to, page by page, and so large a block goes back there
    as soon as it is not used.
    """

    def __init__(self, most: int = POOL_BYTES) -> None:
        self._most = most
        self._blocks: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """At least so many bytes, at most twice as many, with anything in them."""
        if not POOLED_BYTES_MIN <= size <= self._most // 4:
            return bytearray(size)
        for block in self._blocks:
            if size <= len(block) <= 2 * size and _is_free(block):
                return block
        if sum(map(len, self._blocks)) + size > self._most:
            self._blocks = [block for block in self._blocks if not _is_free(block)]  # they were too small or too large
        block = bytearray(size)
        if sum(map(len, self._blocks)) + size <= self._most:
            self._blocks.append(block)
        return block


def _is_free(block: bytearray) -> bool:
    """Whether there is no view of it: while there is one, its size cannot change."""
    try:
        block.append(block.pop())
    except BufferError:
        return False
    return True


class SharedBuffer:
    """Memory to receive into that all readers of one thread share: each use ends before the next begins.

    `own_bytes_max` bounds what they all have of their own, for frames that have not come whole.
    """

    def __init__(self, size: int = RECEIVE_BYTES, own_bytes_max: int | None = None) -> None:
        self._size = size
        self.pool = Pool()
        self.view = self._fresh()
        self.own_bytes = 0
        self._own_bytes_max = own_bytes_max

    def give_away(self, size: int) -> None:
        """Somebody keeps the first `size` bytes."""
        rest = self.view[size + (-size & 7) :]
        self.view = rest if len(rest) >= self._size // 2 else self._fresh()

    def _fresh(self) -> memoryview:
        return memoryview(self.pool.take(self._size))[: self._size]

    def claim(self, size: int) -> None:
        """A reader takes so much more of its own, or gives it back where `size` is negative."""
        most = self._own_bytes_max
        if most is not None and size > 0 and self.own_bytes + size > most:
            raise LimitExceeded("limits.receive_bytes", most, "too many large frames are under way at once")
        self.own_bytes += size


def _complaint(size: int, limit_bytes: int) -> str:
    if size > limit_bytes:
        return f"a frame of {size:,} bytes is over the limit of {limit_bytes:,}, or this is another protocol"
    return "bytes that are no frame"
