"""Keeps a program in its group: joins, beats, moves places, leaves. A thread of its own, with an event loop of its own.

So a member lives however long the program takes over a record, and with asyncio also while it lets its loop wait. What
is said is carried out in order: places are moved, and only then the logs are as the report says, so a log is given back
with its place in it. A call that fails because a node cannot be reached is said again until the session is over.

A member that was not heard of for as long as its session lasts, or whose program does not come by, is none any more:
nothing of what it held counts, before anybody has said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from logboom.broker.api import GroupJoin, GroupMove, GroupStanding, RefusedMove, Start
from logboom.client.consume.mailbox import Mailbox, MemberReport
from logboom.client.link.address import Address
from logboom.client.link.async_link import AsyncLink
from logboom.client.link.backoff import Backoff
from logboom.client.link.calls import PASSING
from logboom.client.remote import RemoteBroker
from logboom.errors import (
    ConnectionLost,
    LimitExceeded,
    LocalProtocolError,
    LogboomError,
    MemberUnknown,
    ReadOnlyReplica,
    Unavailable,
)

ANSWER_S: Final = 5.0
"""How much longer than it may wait a beat is waited for."""

IDLE_S: Final = 3_600.0
BESIDE: Final = -1
LAST: Final = -2
"""The versions of reports that only move places."""

Result = TypeVar("Result")
Ask = Callable[[RemoteBroker], Awaitable[Result]]
Refused = list[RefusedMove]


class MemberTimes(NamedTuple):
    session_s: float
    max_idle_s: float
    tick_s: float
    """How often the loop is to come by."""
    patience_s: float
    """How long a node is looked for at first."""


class GroupMembership:
    def __init__(self, join: GroupJoin, servers: Sequence[Address], mailbox: Mailbox, times: MemberTimes) -> None:
        self._join = join
        self._servers = servers
        self._mailbox = mailbox
        self._times = times
        self._server = 0
        self._broker: RemoteBroker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reports: asyncio.Queue[tuple[MemberReport, Future[Refused]]] = asyncio.Queue()
        self._reaching = asyncio.Lock()
        self._joined: Future[None] = Future()
        self._report = MemberReport(0, 0, ())
        """What is the case: its places are moved."""
        self._is_member = False
        self._wants_in = True
        self._heard = 0.0
        """When that was said which was answered last."""
        self._beat_s = times.session_s / 3
        self._pause: asyncio.Timeout | None = None
        """Of what the beats wait for, which ends with another report."""

    # From the loop of the program.

    def start(self) -> Future[None]:
        """Done when it has joined; fails with why it cannot."""
        Thread(target=self._run, name="logboom-member", daemon=True).start()
        return self._joined

    def say(self, report: MemberReport) -> Future[Refused]:
        """Done when its places are moved."""
        return self._send(report)

    def commit(self, moves: Sequence[GroupMove]) -> Future[Refused]:
        """What is said already is done before. Fails where it is no member any more."""
        return self._send(MemberReport(BESIDE, 0, (), tuple(moves)))

    def leave(self, moves: Sequence[GroupMove] = ()) -> Future[Refused]:
        """With its last moves, after all that was said before. Then the thread ends."""
        return self._send(MemberReport(LAST, 0, (), tuple(moves)))

    def abandon(self) -> None:
        """Leave, where nobody waits for it, and it may never have begun."""
        with suppress(LocalProtocolError):
            self.leave()

    def _send(self, report: MemberReport) -> Future[Refused]:
        done: Future[Refused] = Future()
        try:
            if self._loop is None:
                raise RuntimeError
            self._loop.call_soon_threadsafe(self._reports.put_nowait, (report, done))
        except RuntimeError:
            raise LocalProtocolError("the consumer has left its group: make another") from None
        return done

    # The thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if not self._joined.done():
                self._joined.set_exception(error)
            else:
                self._mailbox.end(error)
        while not self._reports.empty():
            self._reports.get_nowait()[1].set_result([])

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            try:
                await self._enter(self._loop.time() + self._times.patience_s)
            finally:
                self._wants_in = False
            self._joined.set_result(None)
            async with asyncio.TaskGroup() as tasks:
                keeping = [tasks.create_task(self._beat()), tasks.create_task(self._watch())]
                await self._carry_out()
                for task in keeping:
                    task.cancel()
        finally:
            if self._broker is not None:
                await self._broker.close()

    async def _carry_out(self) -> None:
        """What the program says, in order, until it leaves."""
        while True:
            report, done = await self._reports.get()
            try:
                done.set_result(await self._move(report))
            except LogboomError as error:
                if self._is_member and (report.version >= 0 or isinstance(error, MemberUnknown)):
                    self._end(error)
                done.set_exception(error)
            finally:
                done.cancel()  # where the thread ends
            if report.version >= 0:
                self._adopt(report)
            elif report.version == LAST:
                if self._is_member:
                    await self._leave()
                return

    async def _move(self, report: MemberReport) -> Refused:
        moves, group, member = list(report.moves), self._join.group, self._join.member
        if not moves:
            return []

        async def ask(broker: RemoteBroker) -> Refused:
            if not self._is_member:
                raise MemberUnknown(group, member)
            return await broker.commit_group(group, member, moves)

        refused = await self._persist(lambda: self._call(ask, ANSWER_S))
        if report.version >= 0 and refused:
            by_log = {(move.topic, move.partition): move for move in moves}
            self._mailbox.refuse([(by_log[each.topic, each.partition], each) for each in refused])
        return refused

    def _adopt(self, report: MemberReport) -> None:
        is_new = report.version != self._report.version or report.joins
        self._report = report
        self._wants_in |= report.joins
        if is_new and self._pause is not None and not self._pause.expired():
            self._pause.reschedule(asyncio.get_running_loop().time())

    async def _beat(self) -> None:
        """Each beat waits for news, until there is something else to say."""
        backoff = Backoff()
        while True:
            try:
                async with asyncio.timeout(None) as self._pause:
                    try:
                        await self._beat_once()
                        backoff.reset()
                    except PASSING:
                        await asyncio.sleep(min(backoff.next_s(), self._beat_s))
                    except LogboomError as error:
                        self._wants_in = False
                        self._end(error)
                    finally:
                        self._pause = None
            except TimeoutError:
                continue

    async def _beat_once(self) -> None:
        report = self._report
        generation = self._mailbox.generation_for(report)
        if not self._is_member:
            if self._wants_in:
                await self._enter(None)
                self._wants_in = False
            else:
                await asyncio.sleep(IDLE_S)
            return
        is_overdue = asyncio.get_running_loop().time() - self._heard > 2 * self._beat_s  # others have cut it short
        wait_s = 0.0 if is_overdue else self._beat_s
        if generation is None:  # what the node says now counts for nothing, but it hears
            await asyncio.sleep(self._beat_s / 2)
            wait_s = 0.0
        said = report.generation if generation is None else generation
        group, member, held, wait_ms = self._join.group, self._join.member, list(report.held), int(1000 * wait_s)

        def ask(broker: RemoteBroker) -> Awaitable[GroupStanding]:
            return broker.beat_group(group, member, said, held, wait_ms)

        standing = await self._hear(ask, wait_s + ANSWER_S)
        if standing.generation > said:
            self._mailbox.put(report.version, standing)

    async def _enter(self, give_up: float | None) -> None:
        """Join, as somebody new or as the one that it is still for the group."""

        def ask(broker: RemoteBroker) -> Awaitable[GroupStanding]:
            return broker.join_group(self._join)

        standing = await self._persist(lambda: self._hear(ask), give_up)
        self._join = replace(self._join, start=Start())  # what has come since is read from its first record on
        self._is_member = True
        self._mailbox.put(self._report.version, standing)

    async def _hear(self, ask: Ask[GroupStanding], patience_s: float = ANSWER_S) -> GroupStanding:
        began = asyncio.get_running_loop().time()
        standing = await self._call(ask, patience_s)
        self._heard, self._beat_s = began, standing.beat_ms / 1000
        return standing

    async def _watch(self) -> None:
        """Whether the session is over, and whether the program comes by."""
        loop, times = asyncio.get_running_loop(), self._times
        while True:
            await asyncio.sleep(times.tick_s)
            if not self._is_member:
                continue
            if loop.time() - self._heard > times.session_s:
                self._end(None)
            elif self._mailbox.idle_s > times.max_idle_s:
                await self._leave()
                self._end(None)
            else:
                self._mailbox.ring()

    def _end(self, error: LogboomError | None) -> None:
        """It is no member any more. Where it is unknown it may join again, unless another one has its instance."""
        if isinstance(error, MemberUnknown):
            is_fresh = asyncio.get_running_loop().time() - self._heard < self._times.session_s
            error = error if self._join.instance and is_fresh else None
        self._is_member = False
        self._mailbox.end(error)

    async def _leave(self) -> None:
        group, member = self._join.group, self._join.member
        with suppress(LogboomError):
            await self._call(lambda broker: broker.leave_group(group, member), ANSWER_S)

    # Nodes.

    async def _persist(self, call: Callable[[], Awaitable[Result]], give_up: float | None = None) -> Result:
        loop, backoff = asyncio.get_running_loop(), Backoff(len(self._servers))
        while True:
            try:
                return await call()
            except PASSING:
                wait_s = min(backoff.next_s(), self._beat_s)
                if give_up is not None and loop.time() + wait_s >= give_up:
                    raise
                await asyncio.sleep(wait_s)

    async def _call(self, ask: Ask[Result], patience_s: float) -> Result:
        """Raises Unavailable where no answer comes; the next call is on another connection then."""
        broker = await self._reach()
        try:
            async with asyncio.timeout(patience_s):
                return await ask(broker)
        except TimeoutError:
            await self._drop(broker)
            raise ConnectionLost(f"{self._servers[self._server]} did not answer in time") from None
        except (Unavailable, ReadOnlyReplica):
            await self._drop(broker)
            raise

    async def _reach(self) -> RemoteBroker:
        async with self._reaching:
            if self._broker is None:
                address = self._servers[self._server]
                try:
                    link = await AsyncLink.connect(address)
                    if link.welcome.replica_of is not None:
                        await link.close()
                        raise ReadOnlyReplica(link.welcome.replica_of)
                except LogboomError as error:
                    self._server = (self._server + 1) % len(self._servers)
                    if isinstance(error, LimitExceeded):
                        raise ConnectionLost(f"{address}: {error}") from None
                    raise
                self._broker = RemoteBroker(link)
            return self._broker

    async def _drop(self, broker: RemoteBroker) -> None:
        if self._broker is broker:
            self._broker = None
            await broker.close()
