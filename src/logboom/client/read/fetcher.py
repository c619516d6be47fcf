"""What a reader does to get its next chunk: connect, find its start, subscribe, wait; and all of it again after a loss.

No input, no output: each procedure is a generator that yields steps (`Connect`, `Ask`, `LongWork`, `Subscribe`, `Next`,
`Drop`, `Sleep`), is sent what came of them, and is thrown what went wrong. The blocking reader and the asyncio one
carry out the same steps. One immediate try follows a lost connection, then the waits grow; servers are tried in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from msgspec.msgpack import Decoder

from logboom.broker.api import Chunk, CursorMove, ReadRequest
from logboom.client.link.address import Address
from logboom.client.link.backoff import Backoff
from logboom.client.read.cursor_marks import CursorMarks
from logboom.client.read.merged_core import MergedCore
from logboom.client.read.reader_core import ReaderCore
from logboom.client.read.topics_core import TopicsCore
from logboom.errors import LogboomError, PartitionNotFound, ReadOnlyReplica, TopicRecreated, Unavailable
from logboom.protocols.binary.messages import CommitCursor, FetchCursor, Kind, Read

LOOK_S: Final = 0.05
"""How often a reader by time looks for news at the end of all its logs."""
_text: Final = Decoder(str | None)
RETRY_S: Final = 30.0
"""How long a reader that does not follow goes on trying to reach a node."""


class Connect(NamedTuple):
    address: Address


class Ask(NamedTuple):
    """A request with one answer."""

    kind: Kind
    head: Any


class Subscribe(NamedTuple):
    request: ReadRequest


class Next(NamedTuple):
    """The next chunk of the subscription; None where none came in time. None waits for ever."""

    timeout_s: float | None


class LongWork(NamedTuple):
    """Something that takes long and asks no node, such as reading files."""

    do: Callable[[], Any]


class Drop(NamedTuple):
    """End the subscription, and where `connection` is true the connection with it."""

    connection: bool


class Sleep(NamedTuple):
    seconds: float


Step = Connect | Ask | LongWork | Subscribe | Next | Drop | Sleep
Steps = Generator[Step, Any, Any]


class Fetcher:
    """The connection and the subscription of one reader, as far as they are known here."""

    def __init__(
        self,
        reading: ReaderCore | TopicsCore,
        servers: Sequence[Address],
        clock: Callable[[], float],
        prepare: Callable[[], Steps] | None = None,
    ) -> None:
        """`prepare` is done before the start is looked for, once there is a connection."""
        self.reading = reading
        """Another one, of several logs, once the topic proves to have them."""
        self._prepare = prepare
        self._may_widen = prepare is None
        self._servers = list(servers)
        self._clock = clock
        self._backoff = Backoff()
        self._server = 0
        self._connected = self._subscribed = False
        self._proven = False
        """Whether this connection, or the last one, was of any use."""

    def open(self, patience_s: float = 0.0) -> Steps:
        """Reach a node and find the start. Every server is tried once, and again as long as there is patience."""
        give_up, tries = self._clock() + patience_s, 0
        while True:
            try:
                yield from self._connect()
                if self._prepare is not None:
                    yield from self._prepare()
                    self._prepare = None
                yield from self._locate()
                return self._backoff.reset()
            except TopicRecreated as error:
                self.reading.failed(error)
            except PartitionNotFound:
                if (
                    not isinstance(self.reading, ReaderCore)
                    or self.reading.partition is not None
                    or not self._may_widen
                ):
                    raise
                self.reading = TopicsCore.of(self.reading)
            except Unavailable:
                yield from self._lose()
                tries += 1
                if tries < len(self._servers):
                    continue
                wait_s = self._backoff.next_s()
                if self._clock() + wait_s >= give_up:
                    raise
                yield Sleep(wait_s)

    def until(self) -> Steps:
        """Where a loop that does not follow ends: a busy log has no end of its own. None where there is no log now."""

        def look() -> Steps:
            while True:
                try:
                    yield from self._locate()
                    return self.reading.end
                except Unavailable:
                    raise
                except LogboomError as error:
                    yield from self._unsubscribe()
                    if not self.reading.failed(error):
                        return None

        return self._persist(look, self._clock() + RETRY_S)

    def deadline(self, timeout_s: float | None) -> float | None:
        return None if timeout_s is None else self._clock() + timeout_s

    def is_late(self, deadline: float | None) -> bool:
        return deadline is not None and self._clock() > deadline

    def next(
        self, follow: bool, deadline: float | None, patience: Literal["deadline"] | float | None = "deadline"
    ) -> Steps:
        """The reading's current chunk is the next one; False where nothing came in time, or ever will.

        A node that is gone is looked for until the deadline, too, or for as long as `patience` says.
        """
        give_up = self._clock() + RETRY_S if not follow else deadline if patience == "deadline" else patience
        if isinstance(self.reading, MergedCore):
            return self._persist(partial(self._fetch, self.reading, follow, deadline), give_up)

        def receive() -> Steps:
            while True:
                try:
                    if not self.reading.is_located:
                        yield from self._locate()
                    if not self._subscribed:
                        yield Subscribe(self.reading.request())
                        self._subscribed = True
                    chunk: Chunk | None = yield Next(None if deadline is None else max(0.0, deadline - self._clock()))
                    if chunk is None:
                        return False
                    self.reading.arrived(chunk)
                    return True
                except Unavailable:
                    raise
                except LogboomError as error:
                    yield from self._unsubscribe()
                    if self.reading.failed(error):
                        continue
                    wait_s = max(self._backoff.next_s(), 0.05)
                    if not follow or (deadline is not None and self._clock() + wait_s > deadline):
                        return False
                    yield Sleep(wait_s)

        return self._persist(receive, give_up)

    def _fetch(self, reading: MergedCore, follow: bool, deadline: float | None) -> Steps:
        """What one log needs that others wait for; where none does, what has come since."""
        if not reading.is_located:
            yield from self._locate()
        key = reading.wanting()
        if key is not None:
            try:
                chunk = yield Ask(Kind.READ, Read(reading.request_of(key)))
                reading.fetched(key, chunk)
            except Unavailable:
                raise
            except LogboomError as error:
                reading.missed(key, error)
            self._backoff.reset()
            return True
        if not follow or (deadline is not None and self._clock() >= deadline):
            return False
        rest_s = LOOK_S if deadline is None else min(LOOK_S, deadline - self._clock())
        yield Sleep(max(rest_s, 0.001))
        yield from self._locate()
        return True

    def commit(self, cursor: str, force: bool = False, expect: str | None = None) -> Steps:
        reading = self.reading

        def ask() -> Steps:
            try:
                for place in reading.cursor_places():
                    yield Ask(Kind.CALL, CommitCursor(cursor, *place, force, expect))
            except ReadOnlyReplica as error:
                if len(self._servers) == 1:
                    raise
                self._proven = False  # to read from, perhaps: the next one's turn
                raise Unavailable(str(error)) from error

        return self._persist(ask, self._clock() + RETRY_S)

    def moves(self, cursor: str, marks: CursorMarks) -> Steps:
        """The cursor's way to where the reader stands, in each log where that is not the same."""
        reading = self.reading

        def ask() -> Steps:
            moves: list[CursorMove] = []
            for log in reading.logs:
                if not marks.knows(log):
                    found = yield Ask(Kind.CALL, FetchCursor(cursor, log.topic, log.partition))
                    marks.learn(cursor, log, _text.decode(found))
                move = marks.move(cursor, log)
                if move is not None:
                    moves.append(move)
            return moves

        return self._persist(ask, self._clock() + RETRY_S)

    def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> Steps:
        self.reading.seek(seqno, topic, partition)
        yield from self._unsubscribe()

    def restart(self) -> Steps:
        """The next chunk is one of those that the reading requests by then."""
        return self._unsubscribe()

    def close(self) -> Steps:
        yield from self._unsubscribe()
        self._connected = False
        yield Drop(True)

    def _persist(self, work: Callable[[], Steps], give_up: float | None) -> Steps:
        """Do it, and again on another connection where one is lost, until `give_up`."""
        while True:
            try:
                yield from self._connect()
                done = yield from work()
                self._proven = True
                self._backoff.reset()
                return done
            except Unavailable:
                yield from self._lose()
                wait_s = self._backoff.next_s()
                if give_up is not None and self._clock() + wait_s > give_up:
                    raise
                if wait_s:
                    yield Sleep(wait_s)

    def _connect(self) -> Steps:
        if not self._connected:
            self._proven = False
            yield Connect(self._servers[self._server])
            self._connected = True

    def _locate(self) -> Steps:
        self.reading.answered((yield Ask(*self.reading.question())))
        self._proven = True

    def _unsubscribe(self) -> Steps:
        if self._subscribed:
            self._subscribed = False
            yield Drop(False)

    def _lose(self) -> Steps:
        """The first try is for the server there was; where that was it already, the next one's turn has come."""
        if not self._proven:
            self._server = (self._server + 1) % len(self._servers)
        self._connected = self._subscribed = False
        yield Drop(True)
