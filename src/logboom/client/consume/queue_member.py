"""Keeps a program in its group of mode `queue`: joins, beats, takes records, settles them. A thread of its own.

    take → pieces → the loop of the program → verdicts → settled together, one call after the other

So a member lives however long the program takes over a record. What waits here to be given is leased anew in time;
where the program does not ask for records any more, it is given back. No more than `prefetch` records are held, those
that the program works on included.

A connection that is lost is made again, and what was not answered is said again: records that were leased meanwhile and
not heard of are free at once, because the member says what it knows of.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any, Final, NamedTuple

from logboom.broker.api import GroupJoin, JobRange, RefusedSettlement, Settlement, TakeJobs
from logboom.client.consume.job import JobWord, LeasedPiece
from logboom.client.link.address import Address
from logboom.client.link.async_link import AsyncLink
from logboom.client.link.backoff import Backoff
from logboom.client.link.calls import PASSING
from logboom.client.remote import RemoteBroker
from logboom.errors import JobNotHeld, LimitExceeded, LogboomError, MemberUnknown, ReadOnlyReplica

WAIT_MS: Final = 30_000
SETTLED_MOST: Final = 5_000
"""Settlements of one call."""
KNOWN_MOST: Final = 600
"""Ranges that go into the head of one frame."""
REFUSALS_MOST: Final = 1_000
"""That are remembered until somebody asks."""
LEAVE_S: Final = 5.0
PAUSE_S: Final = 1.0

Flush = Future[list[RefusedSettlement]]


class QueueTimes(NamedTuple):
    lease_s: float
    max_idle_s: float
    patience_s: float
    """How long a node is looked for at first."""


class QueueMember:
    def __init__(
        self,
        join: GroupJoin,
        servers: Sequence[Address],
        times: QueueTimes,
        prefetch: int,
        deliver: Callable[[LeasedPiece | BaseException], None],
    ) -> None:
        """`deliver` is called on this thread: with records, or why there will be no more."""
        self._join = join
        self._servers = servers
        self._times = times
        self._prefetch = prefetch
        self._deliver = deliver
        self._server = 0
        self._said: deque[JobWord | Flush] = deque()
        """What the program has said and nobody has heard yet."""
        self._is_told = False
        self._pieces: list[LeasedPiece] = []
        self._held = 0
        self._refusals: deque[RefusedSettlement] = deque(maxlen=REFUSALS_MOST)
        self.refused = 0
        """Records whose lease was over when they were settled."""
        self.asked_s = time.monotonic()
        """When the program asked for records last."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._joined: Future[None] = Future()
        self._heard = asyncio.Event()
        self._room = asyncio.Event()
        self._leaving = asyncio.Event()
        self._in_doubt: list[Settlement] = []
        """Said on a connection that was lost before the answer."""
        self._thread = Thread(target=self._run, name="logboom-queue-member", daemon=True)

    # From the loop of the program.

    def start(self) -> Future[None]:
        """Done when it has joined; fails with why it cannot."""
        self._thread.start()
        return self._joined

    def say(self, said: JobWord | Flush) -> None:
        self._said.append(said)
        if not self._is_told and self._loop is not None:
            self._is_told = True
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._heard.set)

    def flush(self) -> Flush:
        """Done when all that was said is durable: with what was refused since the last time."""
        done: Flush = Future()
        if not self._thread.is_alive():
            done.set_result([])
        else:
            self.say(done)
        return done

    def leave(self) -> None:
        """After all that was said. What was not given to the program is free at once."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._leaving.set)

    def ended(self, timeout_s: float) -> bool:
        """Waits for the end of the thread."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # The thread.

    def _run(self) -> None:
        error: BaseException = LogboomError("the consumer has left its group")
        try:
            asyncio.run(self._live())
        except BaseException as failure:
            error = failure
        if not self._joined.done():
            self._joined.set_exception(error)
        self._deliver(error)
        for said in list(self._said):
            if isinstance(said, Future) and not said.done():
                said.set_exception(error)

    async def _live(self) -> None:
        self._loop, backoff = asyncio.get_running_loop(), Backoff(len(self._servers))
        give_up_s = self._loop.time() + self._times.patience_s
        self._heard.set()
        while True:
            try:
                broker = await self._connect()
            except LogboomError as error:
                if not self._joined.done() and (not isinstance(error, PASSING) or self._loop.time() >= give_up_s):
                    raise
                if self._leaving.is_set():
                    return
                await asyncio.sleep(backoff.next_s())
                continue
            try:
                await broker.join_group(self._join)
                backoff.reset()
                if not self._joined.done():
                    self._joined.set_result(None)
                if await self._serve(broker):
                    return
            except MemberUnknown:
                self._forget_all()  # it was silent for too long, or the node was: what it held is another's
                await asyncio.sleep(backoff.next_s())
            except PASSING:
                await asyncio.sleep(backoff.next_s())
            finally:
                await broker.close()

    async def _connect(self) -> RemoteBroker:
        address = self._servers[self._server]
        self._server = (self._server + 1) % len(self._servers)
        link = await AsyncLink.connect(address)
        if link.welcome.replica_of is not None:
            await link.close()
            raise ReadOnlyReplica(link.welcome.replica_of)
        self._server = self._servers.index(address)
        return RemoteBroker(link)

    async def _serve(self, broker: RemoteBroker) -> bool:
        """While the connection lasts; True where it has left."""
        if self._in_doubt:  # before it says what it knows of
            await self._tell(broker, self._in_doubt, is_again=True)
        works: tuple[Coroutine[Any, Any, None], ...] = (
            *(self._beat(broker), self._take(broker), self._settle(broker), self._look_after(broker)),
            self._wait_for_leave(),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()
        with suppress(LogboomError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if self._in_doubt:
                    await self._tell(broker, self._in_doubt, is_again=True)
                await self._settle_said(broker)
                await broker.leave_group(self._join.group, self._join.member)
        return True

    async def _wait_for_leave(self) -> None:
        await self._leaving.wait()

    async def _beat(self, broker: RemoteBroker) -> None:
        while True:
            standing = await broker.beat_group(self._join.group, self._join.member, 0, [])
            await asyncio.sleep(standing.beat_ms / 1000)

    async def _take(self, broker: RemoteBroker) -> None:
        known: list[JobRange] | None = [
            JobRange(*piece.log, *each) for piece in self._pieces for each in piece.ranges()
        ]
        if len(known or ()) > KNOWN_MOST:  # then what got lost is free when its lease has run out
            known = None
        while True:
            room = self._prefetch - self._held
            if known is None and (room < (self._prefetch + 1) // 2 or self._is_idle):
                self._room.clear()
                await self._room.wait()
                continue
            about = self._join.group, self._join.member, max(1, room)
            wait_ms = WAIT_MS if known is None else 0
            try:
                jobs = await broker.take_jobs(TakeJobs(*about, wait_ms=wait_ms, known=known))
            except LimitExceeded:  # of the node: others are to settle theirs first
                await asyncio.sleep(PAUSE_S)
                continue
            known = None
            until_s = time.monotonic() + jobs.lease_ms / 1000
            for leased in jobs.chunks:
                piece = LeasedPiece.of(leased, until_s)
                self._pieces.append(piece)
                self._held += len(piece.held)
                self._deliver(piece)

    @property
    def _is_idle(self) -> bool:
        return time.monotonic() - self.asked_s > self._times.max_idle_s

    async def _settle(self, broker: RemoteBroker) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            await self._settle_said(broker)

    async def _settle_said(self, broker: RemoteBroker) -> None:
        """All that was said, and then those who wait for it."""
        self._is_told = False
        while self._said:
            settlements, flushes = self._gather()
            try:
                await self._tell(broker, settlements, is_again=False)
            except BaseException:
                self._said.extendleft(reversed(flushes))
                raise
            for flush in flushes:
                refused = list(self._refusals)
                self._refusals.clear()
                flush.set_result(refused)

    def _gather(self) -> tuple[list[Settlement], list[Flush]]:
        """What was said of records that follow each other, as one."""
        runs: list[list[Any]] = []
        flushes: list[Flush] = []
        said_of, said, before = None, self._said, -1
        while said and len(runs) < SETTLED_MOST:
            one = said.popleft()
            if isinstance(one, Future):
                flushes.append(one)
                continue
            piece, seqno, verdict, delay_ms = one
            if seqno == before and said_of == (piece, verdict, delay_ms):
                runs[-1][2] = before = seqno + 1
            else:
                runs.append([piece, seqno, seqno + 1, verdict, delay_ms])
                said_of, before = (piece, verdict, delay_ms), seqno + 1
        settlements = []
        for piece, seqno, until, verdict, delay_ms in runs:
            topic_id, partition = piece.log
            settlements.append(Settlement(topic_id, partition, seqno, until, verdict, delay_ms))
            if verdict == "extend":
                piece.until_s = max(piece.until_s, time.monotonic() + self._times.lease_s)
            else:
                self._drop(piece, range(seqno, until))
        return settlements, flushes

    def _drop(self, piece: LeasedPiece, seqnos: Sequence[int]) -> None:
        before = len(piece.held)
        piece.held.difference_update(seqnos)
        self._held -= before - len(piece.held)
        if self._prefetch - self._held >= (self._prefetch + 1) // 2:
            self._room.set()

    async def _tell(self, broker: RemoteBroker, settlements: list[Settlement], is_again: bool) -> None:
        """Of what is said again, that it was heard the first time is no news."""
        if not settlements:
            return
        self._in_doubt = settlements
        refused = await broker.settle_jobs(self._join.group, self._join.member, settlements)
        self._in_doubt = []
        if not is_again:
            self.refused += sum(each.until - each.seqno for each in refused)
            self._refusals.extend(refused)

    async def _look_after(self, broker: RemoteBroker) -> None:
        """Lease anew what waits to be given; give it back where nobody asks for it; forget what is over."""
        while True:
            await asyncio.sleep(max(0.02, min(self._times.lease_s / 3, self._times.max_idle_s / 4)))
            now_s, settlements = time.monotonic(), []
            for piece in list(self._pieces):
                if not piece.held or piece.until_s < now_s:
                    self._drop(piece, list(piece.held))
                    self._pieces.remove(piece)
                    continue
                waiting = list(piece.waiting())
                if self._is_idle and waiting:
                    piece.until_s = 0.0  # the loop passes it over
                    settlements += [Settlement(*piece.log, first, end, "release", 0) for first, end in waiting]
                elif waiting:
                    settlements += [Settlement(*piece.log, first, end, "extend") for first, end in waiting]
            for at in range(0, len(settlements), SETTLED_MOST):
                await broker.settle_jobs(self._join.group, self._join.member, settlements[at : at + SETTLED_MOST])
            for piece in self._pieces:
                if piece.until_s and piece.given < max(piece.held, default=-1):
                    piece.until_s = max(piece.until_s, now_s + self._times.lease_s)
            if not self._is_idle:
                self._room.set()

    def _forget_all(self) -> None:
        for piece in self._pieces:
            piece.until_s = 0.0
        self._pieces.clear()
        self._held = 0


def check_refused(refused: Sequence[RefusedSettlement], said: JobWord, group: str) -> None:
    """Raises JobNotHeld where this was refused."""
    for each in refused:
        if (each.topic_id, each.partition) == said.piece.log and each.seqno <= said.seqno < each.until:
            raise JobNotHeld(group, said.seqno, said.seqno + 1)
