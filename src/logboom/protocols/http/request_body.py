"""The body of a request on its way to its handler: inflated, and bounded while it is.

Stands in for the server's `receive`. What it gives is counted against http.body_bytes as it comes, as sent and as
inflated, and against what the node may hold for all requests together; `release` gives that back when the request is
answered. A small piece that inflates to much is inflated step by step, and the others have their turn in between.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from starlette.types import Message, Receive, Scope

from logboom.protocols.http.problem import RequestError

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

STEP_BYTES: Final = 256 * 1024
BITE_BYTES: Final = 8 * 1024
"""What is inflated in one go: it may be hundreds of streams, and what follows each of them is copied."""
DRAIN_BYTES: Final = 64 * 1024
"""So much of a body that nobody wants is read all the same: then the connection can stay."""
_ENCODINGS: Final = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate", b"identity": None}
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class Inflater:
    """Of gzip, also where several follow each other, and of deflate, with its envelope or without."""

    def __init__(self, encoding: str) -> None:
        self._raw = encoding == "deflate"
        self._begun = False
        self._inside = zlib.decompressobj(_GZIP_OR_ZLIB)

    def inflate(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most STEP_BYTES, some of them empty. Raises zlib.error."""
        if data and not self._begun:
            self._begun = True
            if self._raw and data[0] & 0x0F != zlib.DEFLATED:
                self._inside = zlib.decompressobj(-zlib.MAX_WBITS)
        for at in range(0, len(data), BITE_BYTES):
            yield from self._bite(data[at : at + BITE_BYTES])
            yield b""

    def _bite(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inside.eof:
                self._inside = zlib.decompressobj(_GZIP_OR_ZLIB)
            piece = self._inside.decompress(data, STEP_BYTES)
            data = self._inside.unconsumed_tail or self._inside.unused_data
            if piece:
                yield piece
        while not self._inside.eof and (piece := self._inside.decompress(b"", STEP_BYTES)):
            yield piece

    @property
    def is_whole(self) -> bool:
        return self._inside.eof


class RequestBody:
    def __init__(self, front_end: HttpFrontEnd, scope: Scope, receive: Receive) -> None:
        self._front_end = front_end
        self._limit_bytes = front_end.settings.body_bytes
        self._receive = receive
        self._is_over = self._is_begun = self._is_announced = False
        self._received_bytes = 0
        self._held_bytes = 0
        self._length: int | None = None
        self._encoding: bytes = b""
        for name, value in scope["headers"]:
            if name == b"content-encoding":
                self._encoding += (b"," if self._encoding else b"") + value.strip().lower()
            elif name == b"content-length":
                self._length = int(value)
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                self._encoding = value.strip().lower().removesuffix(b"chunked").rstrip(b", ") + b", chunked"
            elif name == b"expect":
                self._is_announced = True
        self._inflater: Inflater | None = None

    def check(self) -> None:
        """What can be said before anything is read."""
        if self._length is not None and self._length > self._limit_bytes:
            raise _too_large(self._limit_bytes)
        encoding = _ENCODINGS.get(self._encoding) if self._encoding else None
        if self._encoding and self._encoding not in _ENCODINGS:
            raise RequestError(
                f"bodies encoded as {self._encoding[:50].decode('latin-1')!r} are not understood",
                415,
                "unknown-encoding",
                "send it as it is, or with Content-Encoding gzip or deflate",
            )
        self._inflater = Inflater(encoding) if encoding else None

    async def __call__(self) -> Message:
        self._is_begun = True
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        data = message["body"]
        self._is_over = not message["more_body"]
        self._received_bytes += len(data)
        if self._received_bytes > self._limit_bytes:
            raise _too_large(self._limit_bytes)
        if self._inflater is None:
            self._hold(len(data))
            return message
        return {**message, "body": await self._inflate(self._inflater, data)}

    async def _inflate(self, inflater: Inflater, data: bytes) -> bytes:
        pieces: list[bytes] = []
        try:
            for piece in inflater.inflate(data):
                self._hold(len(piece))
                pieces.append(piece)
                if len(pieces) > 2:
                    await asyncio.sleep(0)
        except zlib.error as error:
            raise _broken(str(error)) from None
        if self._is_over and self._received_bytes and not inflater.is_whole:
            raise _broken("it ends too early")
        return b"".join(pieces)

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._front_end.hold(size)
        if self._held_bytes > self._limit_bytes:
            raise _too_large(self._limit_bytes)

    async def drain(self) -> None:
        """Read what nobody wanted, if it is little and on its way."""
        if self._is_announced and not self._is_begun:
            return  # who waits to be asked for it is not asked
        while not self._is_over and self._length is not None and self._length <= DRAIN_BYTES:
            message = await self._receive()
            self._is_over = message["type"] != "http.request" or not message["more_body"]

    def release(self) -> None:
        """The request is answered."""
        self._front_end.hold(-self._held_bytes)
        self._held_bytes = 0


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(
        f"the body is over the limit of {limit_bytes:,} bytes, as sent or inflated",
        413,
        "body-too-large",
        "send it in several requests, or raise http.body_bytes",
    )


def _broken(reason: str) -> RequestError:
    return RequestError(f"the body is not what its Content-Encoding says: {reason}", 400, "bad-encoding")
