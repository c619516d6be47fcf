"""From requests to calls of the broker, and back: one handler for each connection.

Commands take effect in the order in which they came, and are answered in that order. Appends that follow one another
overlap; every other command waits until what came before it is answered, runs alone, and is a task of its own. While a
command waits its turn the connection is not read from.

A follow or a feed goes on beside that: from then on the connection takes only what ALLOWED says. All tasks end with the
connection.

Who must sign in, and has not, is answered PING, CLOSE and AUTH. After an AUTH that fails the connection ends: what may
have been sent behind it was meant to be done in that name, and in no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from logboom.batch.header import Buffer
from logboom.broker.api import Feed, LogPlace, ReadRequest, Start, Subscription
from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded, LogboomError, PartitionNotFound, QuotaExceeded, SignInFailed
from logboom.protocols.logd import answers
from logboom.protocols.logd.answer_line import AnswerLine
from logboom.protocols.logd.errors import INVALID_REQUEST, SIGN_IN_EXPOSED, SLIPS, reason_of
from logboom.protocols.logd.pages import CHUNK_BYTES, NO_LIMIT, follow, push_stored, read_page
from logboom.protocols.logd.requests import (
    Access,
    Auth,
    Close,
    Deleted,
    Groups,
    Head,
    LogName,
    Messages,
    Mixed,
    Ping,
    Read,
    Refusal,
    Refused,
    Replicate,
    Request,
    Show,
    Shutdown,
    Switch,
    Tail,
)
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, BookmarkSet

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd

TURN: Final = 256
"""Requests that a connection may begin before others have their turn, an append may be written at once; or lines."""
NAME_MAX: Final = 249
"""No topic has a longer name, so a longer one is nothing to remember."""
ALLOWED: Final[dict[type, tuple[type, ...]]] = {
    Read: (Ping, Close, Refusal),
    Replicate: (Ping, Close, Refusal, Replicate),
}
"""What a connection takes that follows a log, or feeds a copy."""
STRANGERS: Final = (Ping, Close, Auth, Refusal)
"""What one takes from somebody who has to sign in first."""


class Peer(Protocol):
    """Whoever is at the other end."""

    caller: Caller

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what comes."""
        ...

    def send(self, data: Buffer) -> None: ...
    async def writable(self) -> None:
        """Returns when it has read enough of what it was sent."""
        ...

    def regulate(self) -> None:
        """Something was answered: there may be room for more, or nothing left to do."""
        ...

    def become(self, caller: Caller) -> None:
        """He has signed in. Raises QuotaExceeded."""
        ...

    def part(self, reason: bytes | None) -> None:
        """The conversation is over: because it was asked for, or for a reason the peer is to be told."""
        ...


class Handler:
    __slots__ = (
        "_front_end",
        "_is_over",
        "_is_resting",
        "_is_stopping",
        "_line",
        "_mode",
        "_peer",
        "_pushes",
        "_queue",
        "_takes_endless",
        "_task",
        "_topics",
    )

    def __init__(self, peer: Peer, front_end: LogdFrontEnd, takes_endless: bool = True) -> None:
        self._peer = peer
        self._front_end = front_end
        self._takes_endless = takes_endless
        """Whether commands that never end are taken."""
        self._is_resting = False
        """Whether the next requests begin soon, and not now."""
        self._is_stopping = False
        self._line = AnswerLine(front_end, peer.send, self._settled)
        self._queue: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        """The command that runs."""
        self._pushes: set[asyncio.Task[None]] = set()
        self._mode: type | None = None
        self._topics: set[str] = set()
        self._is_over = False

    @property
    def is_new(self) -> bool:
        """Whether he has to sign in, and has not."""
        return self._front_end.demands_sign_in(self._peer.caller)

    def take(self, requests: list[Request]) -> None:
        self._queue.extend(requests)
        self._proceed()

    def is_full(self, now_paused: bool) -> bool:
        """Whether the connection is to be read no further: there is room again when half of it is free."""
        most = self._front_end.limits.in_flight_bytes
        if self._task is not None and self.is_new:
            return True
        return self._line.held_bytes > (most // 2 if now_paused else most) or bool(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not (self._line or self._queue or self._task or self._pushes)

    @property
    def may_be_silent(self) -> bool:
        """Who follows a log with nothing but a shell cannot ping."""
        return bool(self._pushes)

    def stop(self, reason: LogboomError | None) -> None:
        """End what never ends. What waits for its turn is begun, unless the node ends."""
        self._is_stopping = True
        if reason is not None:
            self._queue.clear()
        for task in self._pushes:
            task.cancel()

    def drop(self) -> None:
        """The connection is gone."""
        self._is_over = True
        self._queue.clear()
        self._line.drop()
        for task in (*self._pushes, *((self._task,) if self._task else ())):
            task.cancel()

    # One after another.

    def _proceed(self) -> None:
        """Begin what can begin, some of it at once: other connections are to have their turn."""
        queue = self._queue
        for _ in range(0 if self._is_resting else TURN):
            if not queue or self._task is not None or not self._begin(queue[0]):
                return
            if queue:
                queue.popleft()
        if queue and not self._is_resting:
            self._is_resting = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_resting = False
        self._settled()

    def _begin(self, request: Request) -> bool:
        """Whether it could begin: most must wait until everything before them is answered."""
        if self._mode is not None and not isinstance(request, ALLOWED[self._mode]):
            self._refuse(request, INVALID_REQUEST)
        elif not isinstance(request, STRANGERS) and self.is_new:
            self._refuse(request, self._front_end.refuse_stranger(self._peer.caller))
        elif isinstance(request, Messages | Mixed):
            self._line.append(request, self._check_topic, self._peer.caller)
        elif isinstance(request, Ping):
            self._line.answer(answers.PONG)
        elif isinstance(request, Refusal) and not request.is_last:
            self._count(request)
            self._line.answer(answers.encode_refusal(request.reason))
        elif self._line:
            return False
        elif isinstance(request, Refusal):
            self._count(request)
            self._end(request.reason)
        elif isinstance(request, Close):
            self._peer.send(answers.DONE)
            self._end(None)
        else:
            self._task = task = self._front_end.spawn(self._perform(request))
            task.add_done_callback(self._performed)
        return True

    def _refuse(self, request: Request, reason: bytes) -> None:
        due = request.answers_due if isinstance(request, Messages | Mixed) else 1
        self._line.answer(answers.encode_refusal(reason) * due)

    def _end(self, reason: bytes | None) -> None:
        self._queue.clear()
        self._peer.part(reason)

    def _count(self, refusal: Refusal) -> None:
        rejections, reason = self._front_end.rejections, refusal.reason.decode()
        if refusal.reason in SLIPS:
            rejections[f"logd.{reason}"] += 1
        else:
            rejections.count(f"logd.{reason}", f"a request was refused: {reason}")

    def _check_topic(self, name: str) -> None:
        """Raises where the connection has named too many."""
        if name not in self._topics and len(name) <= NAME_MAX:
            most = self._front_end.limits.topics_per_connection
            if len(self._topics) >= most:
                raise LimitExceeded("limits.topics_per_connection", most, "use another connection")
            self._topics.add(name)

    # What runs alone.

    async def _perform(self, request: Request) -> None:
        try:
            await self._peer.writable()
            log = getattr(request, "log", None)
            if log is not None:
                self._check_topic(log.topic)
            answer = await _PERFORM[type(request)](self, request)
        except Refused as refused:
            answer = answers.encode_refusal(refused.reason)
        except LogboomError as error:
            if isinstance(error, LimitExceeded):
                self._front_end.rejections.note(error)
            answer = answers.encode_error(error)
        except Exception as error:
            self._front_end.report(error)
            answer = answers.encode_error(error)
        if answer:
            self._peer.send(answer)

    def _performed(self, _: asyncio.Task[None]) -> None:
        self._task = None
        self._settled()

    def _settled(self) -> None:
        """Something is answered: what waited for that may begin."""
        if not self._is_over:
            self._proceed()
            self._peer.regulate()

    async def _auth(self, request: Auth) -> bytes:
        sign_in, peer = self._front_end.sign_in, self._peer
        if sign_in is None or not self._takes_endless:
            raise Refused(INVALID_REQUEST)
        if not peer.is_private:
            self._end(SIGN_IN_EXPOSED)
            return b""
        try:
            if request.user is None:
                caller = await sign_in.with_token(peer.caller, request.secret)
            else:
                caller = await sign_in.with_password(peer.caller, request.user, request.secret)
        except SignInFailed as error:
            self._end(reason_of(self._front_end.rejections.note(error)))
            return b""
        try:
            peer.become(caller)
        except QuotaExceeded as error:
            self._end(reason_of(self._front_end.rejections.note(error)))
            return b""
        return answers.DONE

    async def _read(self, request: Read) -> bytes:
        if not request.limit:
            return await self._follow(request.log, request.start)
        page = await read_page(self._front_end, self._peer.caller, request.log, request.start, request.limit)
        return answers.encode_page(page)

    async def _tail(self, request: Tail) -> bytes:
        log = request.log
        self._check_endless()
        if request.is_whole:
            return await self._follow_all(log, request.count)
        info = await self._front_end.broker.describe_topic(log.topic, caller=self._peer.caller)
        place = info.partitions[_only(log, len(info.partitions))]
        return await self._follow(log, max(place.first, place.committed - request.count))

    async def _head(self, request: Head) -> bytes:
        log = request.log
        info = await self._front_end.broker.describe_topic(log.topic, caller=self._peer.caller)
        place = info.partitions[_only(log, len(info.partitions))]
        return answers.encode_ok(place.committed - 1, 1) if place.committed > place.first else answers.DONE

    async def _follow(self, log: LogName, start: int) -> bytes:
        """What is there already is sent before anything else is; what comes later, as it comes."""
        self._check_endless()
        page = await read_page(self._front_end, self._peer.caller, log, start, NO_LIMIT)
        if page.batches:
            self._peer.send(answers.encode_page(page))
        if page.error is not None:
            raise page.error
        request = ReadRequest(log.topic, Start(seqno=page.next_seqno), log.partition, page.topic_id)
        subscription = await self._front_end.broker.subscribe(request, caller=self._peer.caller)
        self._push(Read, subscription, follow(self._peer, self._front_end, log, subscription))
        return b""

    async def _follow_all(self, log: LogName, count: int) -> bytes:
        """All logs that the name stands for, each from so many records before its end."""
        broker, caller = self._front_end.broker, self._peer.caller
        request = ReadRequest(log.text.decode("latin-1"), Start(at="latest"), whole=True)
        places = await broker.locate(request, caller=caller)
        marks = (place.bookmark if not count else _before(place, count) for place in places)
        start = Start(bookmark=str(BookmarkSet(marks)))
        subscription = await broker.subscribe(msgspec.structs.replace(request, start=start), caller=caller)
        self._push(Read, subscription, follow(self._peer, self._front_end, None, subscription))
        return b""

    async def _replicate(self, request: Replicate) -> bytes:
        self._check_endless()
        feeds, log, most = self._front_end.feeds, request.log, self._front_end.limits.subscriptions_per_connection
        if feeds is None:
            raise Refused(INVALID_REQUEST)
        if len(self._pushes) >= most:
            raise LimitExceeded("limits.subscriptions_per_connection", most, "use another connection")
        feed = await feeds.feed(log.topic, log.partition, request.index, caller=self._peer.caller)
        line = b"origin: %b\r\n" % msgspec.json.encode(feed.origin)
        self._peer.send(answers.encode_facts([line]))
        self._push(Replicate, feed, push_stored(self._peer, self._front_end, log, feed, self._share))
        return b""

    async def _deleted(self, request: Deleted) -> bytes:
        feeds = self._front_end.feeds
        if feeds is None:
            raise Refused(INVALID_REQUEST)
        found = feeds.deleted(request.topic_ids, caller=self._peer.caller)
        return answers.encode_facts([*map(answers.encode_deletion, found)])

    async def _access(self, request: Access) -> bytes:
        feeds = self._front_end.feeds
        if feeds is None:
            raise Refused(INVALID_REQUEST)
        self._check_endless()  # it goes to a node that keeps it, and through nobody else's hands
        return await self._tell_kept(*feeds.access(request.version, caller=self._peer.caller))

    async def _groups(self, request: Groups) -> bytes:
        feeds = self._front_end.feeds
        if feeds is None:
            raise Refused(INVALID_REQUEST)
        self._check_endless()
        return await self._tell_kept(*feeds.groups(request.version, caller=self._peer.caller))

    async def _tell_kept(self, version: str, entries: dict[bytes, bytes] | None) -> bytes:
        lines = answers.encode_kept(version, entries)
        return answers.encode_facts([line async for line in _in_turns(lines)])

    def _share(self) -> int:
        """What one feed may hold, so that all of them hold no more than a connection may."""
        return max(1, min(CHUNK_BYTES, self._front_end.limits.in_flight_bytes // max(1, len(self._pushes))))

    def _check_endless(self) -> None:
        if not self._takes_endless:
            raise Refused(INVALID_REQUEST)

    def _push(self, mode: type, source: Subscription | Feed, work: Coroutine[Any, Any, None]) -> None:
        self._mode = mode
        task = self._front_end.spawn(work)
        self._pushes.add(task)
        task.add_done_callback(lambda task: self._pushed(task, source))
        if self._is_stopping or self._is_over:
            task.cancel()

    def _pushed(self, task: asyncio.Task[None], source: Subscription | Feed) -> None:
        self._front_end.spawn(source.close())  # not by the task: it may have been cancelled before it began
        self._pushes.discard(task)
        if self._mode is Read:
            self._mode = None
        self._settled()

    async def _show(self, request: Show) -> bytes:
        broker, caller = self._front_end.broker, self._peer.caller
        lines: Iterable[bytes]
        if request.what == b"STATS":
            lines = answers.encode_tree(msgspec.to_builtins(await broker.stats(caller=caller)))
        elif request.what == b"CONFIG":
            await broker.stats(caller=caller)  # who may not know how the node is may not know how it is set
            known = answers.encode_known(self._front_end.address, self._front_end.limits)
            lines = chain(known, answers.encode_tree(msgspec.to_builtins(self._front_end.config())))
        elif request.what == b"TOPICS":
            topics = await broker.list_topics(caller=caller)
            lines = (line for topic in topics for line in answers.encode_topic(topic))
        else:
            lines = map(answers.encode_cursor, await broker.list_cursors(caller=caller))
        return answers.encode_facts([line async for line in _in_turns(lines)])

    async def _switch(self, request: Switch) -> bytes:
        broker, caller = self._front_end.broker, self._peer.caller
        if request.what == b"REFUSE":
            await broker.refuse(request.topic, caller=caller)
        else:
            await broker.accept(request.topic, caller=caller)
        return answers.DONE

    async def _shutdown(self, _: Shutdown) -> bytes:
        shutdown = self._front_end.shutdown
        if shutdown is None or not self._front_end.settings.shutdown:
            raise Refused(INVALID_REQUEST)
        self._front_end.check_end(self._peer.caller)
        self._peer.send(answers.DONE)
        shutdown()
        return b""


async def _in_turns(lines: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The same, but others have their turn, however many there are."""
    for number, line in enumerate(lines, 1):
        yield line
        if number % TURN == 0:
            await asyncio.sleep(0)


def _before(place: LogPlace, count: int) -> Bookmark:
    """So many records before a place, where there are so many."""
    return Bookmark(bytes.fromhex(place.topic_id), place.partition, max(place.first, place.seqno - count), TERM_UNKNOWN)


def _only(log: LogName, partitions: int) -> int:
    if log.partition is None and partitions == 1:
        return 0
    if log.partition is None or log.partition >= partitions:
        raise PartitionNotFound(log.topic, log.partition, partitions)
    return log.partition


_PERFORM: Final[dict[type, Callable[[Handler, Any], Awaitable[bytes]]]] = {
    Read: Handler._read,
    Tail: Handler._tail,
    Head: Handler._head,
    Replicate: Handler._replicate,
    Deleted: Handler._deleted,
    Access: Handler._access,
    Groups: Handler._groups,
    Show: Handler._show,
    Switch: Handler._switch,
    Shutdown: Handler._shutdown,
    Auth: Handler._auth,
}
