"""One connection that brings batches of many logs, and their way into the copy.

Logs are asked for one after another, because a refusal does not say whose it is; what comes of the others meanwhile is
taken. A connection is read from only while what it brought before, together with all others, is not too much.

A feed cannot be called off: where a log cannot go on, the connection ends, and the next one brings the others. When
`run` returns or raises, nothing is on its way into any of its logs.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Final

from logboom.broker.api import Answer
from logboom.broker.replica import LogCopy, Replica
from logboom.errors import (
    ConnectionLost,
    LogboomError,
    RemoteProtocolError,
    ReplicaDiverged,
    TopicDeleted,
    Unavailable,
)
from logboom.replication.facts import SourceLog, read_origin
from logboom.replication.source_link import SourceLink
from logboom.replication.source_stream import Event, SourceAnswer, SourceLogGone, SourcePiece, SourceRefusal

FEEDS_MAX: Final = 256
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all connections: what has come and is not synced. Each may bring one piece more."""
RETRY_FIRST_S: Final = 1.0
RETRY_LONGEST_S: Final = 60.0
ENDED_MAX: Final = 3
"""A feed that the source ends so often, and brings nothing new, is in trouble there."""
NOT_THERE: Final = "not found"
TOO_FAR: Final = "invalid request"
logger = logging.getLogger("logboom.replica")


@dataclass(slots=True, eq=False)
class FollowedLog:
    """A log of the source, and how far the copying has come with it."""

    listed: SourceLog
    carrier: Carrier | None = None
    """What brings it."""
    error: str | None = None
    """Why it is not copied."""
    told: type[LogboomError] | tuple[()] = ()
    """Of what kind that is: the same again and again is logged once."""
    diverged: bool = False
    """Then it is not tried again: only a new log of that name is."""
    is_same: bool = False
    """It comes in just now, and the last batch that both have was compared."""
    ended: int = 0
    """How often the source has ended the feed without anything new."""
    retry_s: float = 0.0
    retry_at: float = 0.0

    def fail(self, error: LogboomError, now: float) -> None:
        self.diverged = isinstance(error, ReplicaDiverged)
        name, said = self.listed.name, str(error)
        self.error = said if said.startswith(f"{name}: ") else f"{name}: {said}"
        if not isinstance(error, self.told):
            logger.log(logging.ERROR if self.diverged else logging.WARNING, "%s", self.error)
        self.told = type(error)
        self.retry_s = min(RETRY_LONGEST_S, max(RETRY_FIRST_S, 2 * self.retry_s))
        self.retry_at = now + self.retry_s

    def succeed(self) -> None:
        if self.error is not None:
            logger.info("%s: copied again", self.listed.name)
        self.error, self.told, self.retry_s = None, (), 0.0


class Held:
    """Bytes that have come and are not synced."""

    def __init__(self) -> None:
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > HELD_BYTES_MAX:
            self._room.clear()
        else:
            self._room.set()

    async def room(self) -> None:
        await self._room.wait()


class Carrier:
    def __init__(self, link: SourceLink, replica: Replica, held: Held) -> None:
        self._link = link
        self._replica = replica
        self._held = held
        self._carried: set[FollowedLog] = set()
        self._wanted: deque[FollowedLog] = deque()
        self._asked: FollowedLog | None = None
        self._fed: dict[str, tuple[FollowedLog, LogCopy]] = {}
        self._ending: set[FollowedLog] = set()
        """No more comes of these, and some of it is still on its way into the copy."""
        self._under_way: dict[Future[list[Answer]], FollowedLog] = {}
        self._is_full = False
        self._broken = False

    @property
    def has_ended(self) -> bool:
        return self._broken

    @property
    def has_room(self) -> bool:
        return len(self._carried) < FEEDS_MAX and not self._is_full and not self._broken

    def add(self, followed: FollowedLog) -> None:
        followed.carrier = self
        self._carried.add(followed)
        self._wanted.append(followed)

    def _release(self, followed: FollowedLog) -> None:
        """Nothing comes of this log, and nothing is on its way into it."""
        followed.carrier, followed.is_same = None, False
        self._carried.discard(followed)

    async def run(self) -> None:
        """Until one of its logs cannot go on. Raises where the source cannot, or is none."""
        try:
            while not self._broken:
                self._ask()
                await self._held.room()
                for event in await self._link.receive():
                    await self._take(event)
        finally:
            self._broken = True
            self._link.close()
            if self._under_way:
                await asyncio.wait(self._under_way)
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything, with nothing under way: also where `run` was cancelled before it began."""
        self._broken = True
        self._link.close()
        for followed in tuple(self._carried):
            self._release(followed)

    def _ask(self) -> None:
        if self._asked is None and self._wanted:
            self._asked = followed = self._wanted.popleft()
            listed = followed.listed
            log = self._replica.log(listed.topic, listed.topic_id, listed.partition)
            self._link.send(f"REPLICATE {listed.name} {1 if log is None else max(1, log.last_index)}")

    async def _take(self, event: Event) -> None:
        if self._broken:
            return
        if isinstance(event, SourcePiece):
            await self._store(event)
        elif isinstance(event, SourceAnswer):
            await self._begin(self._answered(), event)
        elif isinstance(event, SourceRefusal):
            if self._asked is None:
                raise ConnectionLost(f"the source says: {event.reason}")  # such as that it stops
            self._refused(self._answered(), event.reason)
        elif isinstance(event, SourceLogGone) and event.log in self._fed:
            self._end(event.log)

    def _answered(self) -> FollowedLog:
        followed, self._asked = self._asked, None
        if followed is None:
            raise RemoteProtocolError("the source sent an answer without a request")
        return followed

    async def _begin(self, followed: FollowedLog, event: SourceAnswer) -> None:
        origin = read_origin(event.body)
        listed = followed.listed
        wanted = listed.topic, listed.partition, self._replica.role.node_id
        if (origin.topic, origin.partition, origin.node_id) != wanted:
            raise RemoteProtocolError(f"{listed.name}: the source answers for another log, or is another node")
        if listed.name in self._fed:  # of a topic that had this name: what comes next could be of either
            self._broken = True
            return
        followed.listed = listed._replace(topic_id=origin.topic_id)
        try:
            copy = await self._replica.begin(origin)
        except (LogboomError, OSError) as error:
            self._fail(followed, error)
            return
        self._fed[listed.name] = followed, copy

    def _refused(self, followed: FollowedLog, reason: str) -> None:
        """The others go on."""
        self._release(followed)
        name, listed = followed.listed.name, followed.listed
        if reason == NOT_THERE:
            return  # deleted just now: the next list of topics says so
        log = self._replica.log(listed.topic, listed.topic_id, listed.partition)
        if reason == TOO_FAR and log is not None and log.last_index:
            error: LogboomError = ReplicaDiverged(name, log.last_index, "the log ends before it there")
        else:
            error = Unavailable(f"{name}: the source answers: {reason}")
            self._is_full = bool(self._fed)  # perhaps it feeds no more over one connection
        followed.fail(error, asyncio.get_running_loop().time())

    async def _store(self, piece: SourcePiece) -> None:
        if piece.log not in self._fed:
            return
        followed, copy = self._fed[piece.log]
        listed = followed.listed
        followed.listed = listed._replace(first=piece.first, committed=piece.committed)
        try:
            copy.check_end(piece.committed_index)
            future = await copy.take(piece.data) if len(piece.data) else None
        except (LogboomError, OSError) as error:
            self._fail(followed, error)
            return
        followed.is_same = copy.is_same
        if future is None:
            followed.ended = 0
            followed.succeed()
            return
        self._held.add(len(piece.data))
        self._under_way[future] = followed
        future.add_done_callback(partial(self._stored, len(piece.data)))

    def _stored(self, size: int, future: Future[list[Answer]]) -> None:
        """Called by the event loop, soon after the answers are there."""
        self._held.add(-size)
        followed = self._under_way.pop(future)
        answers = future.result()
        errors = [answer for answer in answers if isinstance(answer, LogboomError)]
        if errors and not isinstance(errors[0], TopicDeleted):
            self._fail(followed, errors[0])
        elif answers and not errors:
            followed.ended = 0
            followed.succeed()
        if followed in self._ending and followed not in self._under_way.values():
            self._ending.discard(followed)
            self._release(followed)

    def _end(self, log: str) -> None:
        """It may be asked for again when nothing is on its way any more."""
        followed, _ = self._fed.pop(log)
        followed.ended += 1
        if followed.ended >= ENDED_MAX:
            followed.fail(Unavailable(f"{log}: the source cannot go on with it"), asyncio.get_running_loop().time())
        if followed in self._under_way.values():
            self._ending.add(followed)
        else:
            self._release(followed)

    def _fail(self, followed: FollowedLog, error: LogboomError | OSError) -> None:
        if not isinstance(error, LogboomError):
            error = Unavailable(f"{followed.listed.name}: {error}")
        if not self._broken:  # what follows from that is no news
            followed.fail(error, asyncio.get_running_loop().time())
        self._broken = True
