"""One connection's side of the binary protocol, without input or output: bytes in, events out; requests in, bytes out.

Both shells, blocking and asyncio, drive this. A session lives as long as its connection: after a lost one a new session
begins. Answers come in any order; each carries the correlation id of its request.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from logboom.access.credential import MECHANISMS
from logboom.access.scram import NONCE_BYTES, ScramClient
from logboom.batch.header import Buffer
from logboom.broker.api import Chunk, LeasedChunk, LeasedJobs
from logboom.client.link.profile import Profile
from logboom.errors import LocalProtocolError, LogboomError, RemoteProtocolError
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, Frame, FrameReader, encode
from logboom.protocols.binary.errors import decode_failure
from logboom.protocols.binary.messages import (
    TOKEN,
    Appends,
    ChunkHead,
    Failure,
    Hello,
    JobsHead,
    Kind,
    SignInStep,
    Welcome,
)
from logboom.protocols.binary.stranger import describe_server

FRAME_BYTES_LIMIT: Final = 256 * 1024 * 1024
"""No server makes us take a larger frame, whatever it says."""

FIRST_BYTES: Final = 8
"""Enough to know a frame from another protocol."""

_welcome = msgspec.msgpack.Decoder(Welcome)
_failure = msgspec.msgpack.Decoder(Failure)
_appends = msgspec.msgpack.Decoder(Appends)
_chunk = msgspec.msgpack.Decoder(ChunkHead)
_jobs = msgspec.msgpack.Decoder(JobsHead)
_step = msgspec.msgpack.Decoder(SignInStep)


class Reply(NamedTuple):
    """What the server wants to hear before its welcome: to be sent as it is."""

    buffers: list[Buffer]


class Event(NamedTuple):
    """Something came: a Welcome, an Appends, a Chunk, LeasedJobs, a LogboomError, None for a pong, the raw bytes of a
    result; or something that is to be replied to.

    A Chunk is a view of memory that is the receiver's from now on. Correlation 0 is about the connection: it ends.
    """

    correlation: int
    what: Welcome | Appends | Chunk | LeasedJobs | LogboomError | Reply | bytes | None
    size: int = 0
    """Of a chunk's whole frame: so much of a subscription's credit it has used."""


class Session:
    def __init__(self, hello: Hello, profile: Profile | None = None) -> None:
        """`profile` says who signs in."""
        self._hello = hello
        self._scram: ScramClient | None = None
        if profile is not None and profile.client is not None:
            hello.client = profile.client
        if profile is not None and profile.token is not None:
            hello.mechanism, hello.sign_in = TOKEN, profile.token.encode()
        elif profile is not None and profile.user is not None and profile.password is not None:
            self._scram = ScramClient(MECHANISMS[0], profile.user, profile.password, os.urandom(NONCE_BYTES))
            hello.mechanism, hello.sign_in = MECHANISMS[0], self._scram.begin()
        self._frames = FrameReader(FRAME_BYTES_FIRST)
        self._first = b""
        """What has come first, until it is known whether a node has sent it."""
        self._room = memoryview(b"")
        self.newest = 0
        """The correlation id of the newest request."""
        self.welcome: Welcome | None = None
        """What the server said; None until then."""

    @property
    def is_silent(self) -> bool:
        """Whether the server has not said a word yet."""
        return self.welcome is None and not self._first

    def hello(self) -> list[Buffer]:
        """The first bytes to send."""
        return self.request(Kind.HELLO, self._hello)[1]

    def request(self, kind: int, head: Any = None, payload: Sequence[Buffer] = ()) -> tuple[int, list[Buffer]]:
        """The correlation id of a new request, and the buffers to send."""
        if self.welcome is None and kind != Kind.HELLO:
            raise LocalProtocolError("nothing is sent before the welcome")
        self.newest = self.newest % 0xFFFF_FFFF + 1
        return self.newest, encode(kind, self.newest, head, payload)

    def about(self, correlation: int, kind: int, head: Any = None) -> list[Buffer]:
        """A frame about an earlier request: credit, or the end of a subscription."""
        return encode(kind, correlation, head)

    def buffer(self) -> memoryview:
        """Where to receive to; see FrameReader."""
        self._room = self._frames.buffer()
        return self._room

    def received(self, count: int) -> Iterator[Event]:
        """What has come with so many more bytes. Raises RemoteProtocolError: close the connection then."""
        if self.welcome is None:
            self._first += self._room[: min(count, FIRST_BYTES)]
            stranger = describe_server(self._first)
            if stranger is not None:
                raise RemoteProtocolError(stranger)
        for frame in self._frames.received(count):
            try:
                event = self._event(frame)
            except msgspec.MsgspecError as error:
                raise RemoteProtocolError(f"the head of a frame of kind {frame.kind} is wrong: {error}") from None
            if event is not None:
                yield event

    def _event(self, frame: Frame) -> Event | None:
        kind = frame.kind
        if kind == Kind.APPENDED:
            return Event(frame.correlation, _appends.decode(frame.head))
        if kind == Kind.CHUNK:
            return Event(frame.correlation, self._chunk_of(frame), frame.size)
        if kind == Kind.JOBS:
            return Event(frame.correlation, self._jobs_of(frame), frame.size)
        if kind == Kind.RESULT:
            return Event(frame.correlation, bytes(frame.head))
        if kind == Kind.ERROR:
            return Event(frame.correlation, decode_failure(_failure.decode(frame.head)))
        if kind == Kind.PONG:
            return Event(frame.correlation, None) if frame.correlation else None  # it is there, and rests
        if kind == Kind.WELCOME:
            self.welcome = _welcome.decode(frame.head)
            if self._scram is not None:
                self._scram.verify(self.welcome.sign_in)
            self._frames.limit_bytes = min(self.welcome.limits.frame_bytes, FRAME_BYTES_LIMIT)
            return Event(frame.correlation, self.welcome)
        if kind == Kind.CHALLENGE and self._scram is not None and self.welcome is None:
            answer = SignInStep(self._scram.answer(_step.decode(frame.head).data))
            return Event(frame.correlation, Reply(encode(Kind.SIGN_IN, frame.correlation, answer)))
        raise RemoteProtocolError(f"a frame of kind {kind} makes no sense from a server")

    def _chunk_of(self, frame: Frame) -> Chunk:
        (chunk,) = self._chunks_of(frame, [_chunk.decode(frame.head)])
        return chunk

    def _jobs_of(self, frame: Frame) -> LeasedJobs:
        head = _jobs.decode(frame.head)
        if len(head.tries) != len(head.chunks):
            raise RemoteProtocolError("chunks of records that were leased do not say how often each was")
        chunks = self._chunks_of(frame, head.chunks)
        return LeasedJobs(list(map(LeasedChunk, chunks, head.tries)), head.lease_ms)

    def _chunks_of(self, frame: Frame, heads: Sequence[ChunkHead]) -> list[Chunk]:
        """Views of the frame's payload, which is theirs one after another."""
        payload, chunks, at = frame.payload, [], 0
        for head in heads:
            middle = at + head.size
            end = middle + 8 * (head.seqnos or 0)
            if not 0 <= at <= middle <= end <= len(payload):
                raise RemoteProtocolError("a chunk is not as long as it says")
            facts = head.topic_id, head.partition, head.seqno, head.next_seqno, head.first, head.committed, head.term
            seqnos = None if head.seqnos is None else payload[middle:end]
            chunks.append(Chunk(*facts, payload[at:middle], seqnos, head.lineage, head.topic))
            at = end
        if at != len(payload):
            raise RemoteProtocolError("a chunk is not as long as it says")
        if at:
            self._frames.keep()
        return chunks
