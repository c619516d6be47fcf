"""From frames to calls of the broker, and back: one handler for each connection.

Appends are called as they come, which is their order in the logs. Everything else that may wait is a task of its own,
so answers come in any order; no more than REQUESTS_MAX run at once, the others wait their turn while the connection is
not read from. All tasks end with the connection. What fails is answered with an ERROR frame for its correlation id, and
the conversation goes on; only what contradicts the protocol ends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from msgspec.msgpack import Decoder

from logboom.broker.api import (
    Answer,
    Outcome,
    Part,
    ReadRequest,
    Start,
    TakeJobs,
    call_when_done,
)
from logboom.broker.caller import Caller
from logboom.broker.publish.publication import BUNDLE_BYTES_MAX
from logboom.errors import LimitExceeded, LogboomError, ProtocolError, RemoteProtocolError
from logboom.protocols.binary.append_run import AppendRun, cut
from logboom.protocols.binary.codec import Frame, encode_front
from logboom.protocols.binary.messages import Append, Call, Credit, Hello, Kind, PublishBatches, Read, SpokenFor
from logboom.protocols.binary.push import Push, encode_chunk, encode_jobs
from logboom.protocols.binary.spoken_for import spoken_for

if TYPE_CHECKING:
    from logboom.protocols.binary.connection import BinaryConnection
    from logboom.protocols.binary.front_end import BinaryFrontEnd

REQUESTS_MAX: Final = 256
"""Of one connection: reads and calls that run at the same time."""
NAME_MAX: Final = 249
"""No topic has a longer name, so a longer one is nothing to remember."""
MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

METHODS: Final[dict[type, str]] = {call: str(call.__struct_config__.tag) for call in get_args(Call)}
"""The broker's method for each call. Its arguments have the names of the call's fields."""

_NIL: Final = msgspec.Raw(b"\xc0")
_append = Decoder(Append)
_publish = Decoder(PublishBatches)
_read: Decoder[Read] = Decoder(Read)
_credit = Decoder(Credit)
_take_jobs = Decoder(TakeJobs)
_spoken_for = Decoder(SpokenFor)
_call: Decoder[Any] = Decoder(Call)

Work = Callable[[], Coroutine[Any, Any, None]]


class Handler:
    __slots__ = (
        "_caller",
        "_connection",
        "_front_end",
        "_held_bytes",
        "_pushes",
        "_queue",
        "_run",
        "_tasks",
        "_topics",
    )
    is_new: Final = False
    hello: Final = 0
    may_be_silent: Final = False  # the welcome says limits.idle_ms, and clients ping: who does not is gone

    def __init__(self, connection: BinaryConnection, front_end: BinaryFrontEnd) -> None:
        self._connection = connection
        self._front_end = front_end
        self._caller = connection.caller
        """Whose requests come now."""
        self._run: AppendRun | None = None
        self._held_bytes = 0
        """Of appends that have no answer yet."""
        self._tasks: dict[asyncio.Task[None], int] | None = None
        """What runs; where it waits for news its correlation id, else 0."""
        self._queue: deque[tuple[int, bool, Work]] | None = None
        self._pushes: dict[int, Push] | None = None
        self._topics: set[str] | None = None

    def take(self, frame: Frame) -> Handler:
        """Handle one frame. Raises where the connection cannot go on."""
        if not frame.correlation:
            raise RemoteProtocolError("a request has a correlation id other than 0")
        try:
            _TAKE.get(frame.kind, Handler._take_unknown)(self, frame)
        except MALFORMED as error:
            self._refuse(frame, RemoteProtocolError(f"the head of a frame of kind {frame.kind} is wrong: {error}"))
        except ProtocolError:
            raise
        except LogboomError as error:
            self._refuse(frame, error)
        return self

    def _refuse(self, frame: Frame, error: LogboomError) -> None:
        self._front_end.rejections.note(error)
        self._connection.fail(frame.correlation, error)

    def _take_unknown(self, frame: Frame) -> None:
        self._refuse(frame, RemoteProtocolError(f"a frame of kind {frame.kind} makes no sense from a client"))

    def _take_hello(self, frame: Frame) -> None:
        raise RemoteProtocolError("there was a hello already")

    def _take_speak_for(self, frame: Frame) -> None:
        self.end_run()
        try:
            self._caller = spoken_for(self._connection.caller, _spoken_for.decode(frame.head))
        except MALFORMED as error:
            raise RemoteProtocolError(f"who is spoken for is said wrongly: {error}") from None

    def _take_ping(self, frame: Frame) -> None:
        self._connection.send(encode_front(Kind.PONG, frame.correlation, None))

    def _take_append(self, frame: Frame) -> None:
        head = _append.decode(frame.head)
        for part in head.parts:
            if self._topics is None or part.topic not in self._topics:
                self._note_topic(part.topic)
        run = self._run
        if run is not None and not run.takes(head):
            self.end_run()
            run = None
        if run is None:
            run = AppendRun(head)
        for error in run.add(frame.correlation, head, frame.payload):
            self._front_end.rejections.note(error)
        self._run = run

    def end_run(self) -> None:
        """Append what was gathered. Called after the last frame that has come."""
        run, self._run = self._run, None
        if run is None:
            return
        self._held_bytes += run.size
        broker, caller, then = self._front_end.broker, self._caller, partial(self._appended, run)
        try:
            if run.stage is None:
                broker.append_then(run.parts, run.acks, then, caller=caller)
            else:
                call_when_done(broker.stage(run.stage, run.parts, caller=caller), then)
        except Exception as error:
            if not run.is_answered:
                self._appended(run, error)
        if not run.is_answered:
            self._connection.keep()
            if self.is_full(False):
                self._connection.regulate()

    def _appended(self, run: AppendRun, outcome: Outcome) -> None:
        run.is_answered = True
        self._held_bytes -= run.size
        if isinstance(outcome, BaseException):
            self._fail(run, outcome)
        else:
            self._answer(run, outcome)
        self._connection.relieve()

    def _answer(self, run: AppendRun, answers: list[Answer]) -> None:
        if run.stage is None:
            run.measure(self._front_end.meter, answers)
        if run.acks != "none":
            self._connection.send(run.answer(answers))
        elif refused := sum(isinstance(answer, LogboomError) for answer in answers):
            self._front_end.rejections["unanswered"] += refused

    def _fail(self, run: AppendRun, error: BaseException) -> None:
        if not isinstance(error, LogboomError):
            self._front_end.report(error)
        if run.acks != "none":
            self._connection.send(run.fail(error))
        else:
            self._front_end.rejections["unanswered"] += len(run.frames)

    def _take_read(self, frame: Frame) -> None:
        request, correlation = _read.decode(frame.head).request, frame.correlation
        self._note_topic(request.topic)
        caller = self._caller
        self._start(correlation, lambda: self._read(correlation, request, caller), waits=request.wait_ms > 0)

    async def _read(self, correlation: int, request: ReadRequest, caller: Caller) -> None:
        connection = self._connection
        await connection.writable()
        began = perf_counter()
        chunk = await self._front_end.broker.read(request, caller=caller)
        if request.wait_ms:
            began = perf_counter()  # how much of it was waiting for news nobody says
        while connection.blocked:
            # What cannot be sent is not held on to: it is read again when it can be.
            request = msgspec.structs.replace(request, start=Start(seqno=chunk.seqno), wait_ms=0)
            del chunk
            await connection.writable()
            chunk = await self._front_end.broker.read(request, caller=caller)
        connection.send_all(encode_chunk(correlation, chunk)[0])
        if chunk.record_count:
            self._front_end.meter.note_read(chunk.record_count, len(chunk.data), perf_counter() - began)

    def _take_jobs(self, frame: Frame) -> None:
        request, correlation, caller = _take_jobs.decode(frame.head), frame.correlation, self._caller
        self._start(correlation, lambda: self._lease(correlation, request, caller), waits=request.wait_ms > 0)

    async def _lease(self, correlation: int, request: TakeJobs, caller: Caller) -> None:
        """Answered whole, since they are the member's by now: no more at once than a connection may hold."""
        connection = self._connection
        await connection.writable()
        jobs = await self._front_end.broker.take_jobs(request, caller=caller)
        began = perf_counter()
        connection.send_all(encode_jobs(correlation, jobs))
        if jobs.chunks:
            size = sum(len(leased.chunk.data) for leased in jobs.chunks)
            self._front_end.meter.note_read(jobs.record_count, size, perf_counter() - began)

    def _take_subscribe(self, frame: Frame) -> None:
        head = _read.decode(frame.head)
        pushes = self._pushes = {} if self._pushes is None else self._pushes
        if frame.correlation in pushes:
            raise RemoteProtocolError(f"there is a subscription {frame.correlation} already")
        most = self._front_end.limits.subscriptions_per_connection
        if len(pushes) >= most:
            raise LimitExceeded("limits.subscriptions_per_connection", most, "use another connection")
        self._note_topic(head.request.topic)
        pushes[frame.correlation] = push = Push(
            self._connection, self._front_end, frame.correlation, head, self._caller
        )
        push.task = self._spawn(frame.correlation, lambda: self._push(push), waits=True)

    async def _push(self, push: Push) -> None:
        try:
            await push.run(self._share)
        finally:
            if self._pushes is not None and self._pushes.get(push.correlation) is push:
                del self._pushes[push.correlation]

    def _share(self) -> int:
        """What one subscription may hold, so that all of them hold no more than a connection may."""
        return self._front_end.limits.in_flight_bytes // max(1, len(self._pushes or ()))

    def _take_credit(self, frame: Frame) -> None:
        credit = _credit.decode(frame.head).bytes
        if credit < 0:
            raise RemoteProtocolError("credit is never taken back")
        push = (self._pushes or {}).get(frame.correlation)
        if push is not None:
            push.add_credit(credit)

    def _take_unsubscribe(self, frame: Frame) -> None:
        push = (self._pushes or {}).pop(frame.correlation, None)
        if push is not None:
            push.task.cancel()
        self._connection.send(encode_front(Kind.RESULT, frame.correlation, _NIL))

    def _take_call(self, frame: Frame) -> None:
        call, correlation, caller = _call.decode(frame.head), frame.correlation, self._caller
        self._start(correlation, lambda: self._call(correlation, call, caller))

    async def _call(self, correlation: int, call: Any, caller: Caller) -> None:
        method = getattr(self._front_end.broker, METHODS[type(call)])
        given = {name: getattr(call, name) for name in call.__struct_fields__}
        result = await method(**given, caller=caller)
        await self._connection.writable()
        self._connection.send(encode_front(Kind.RESULT, correlation, _NIL if result is None else result))

    def _take_publish(self, frame: Frame) -> None:
        head, correlation, size = _publish.decode(frame.head), frame.correlation, len(frame.payload)
        if size > BUNDLE_BYTES_MAX:
            raise LimitExceeded("bytes of a publish in one call", BUNDLE_BYTES_MAX, "use a stage")
        for part in head.parts:
            self._note_topic(part.topic)
        parts, slots = cut(Append(head.parts), frame.payload)
        if not isinstance(slots, int) and (broken := next(filter(None, slots), None)):
            raise broken
        self._connection.keep()
        self._held_bytes += size
        caller = self._caller
        self._start(correlation, lambda: self._publish(correlation, head, parts, size, caller))
        self._connection.regulate()

    async def _publish(
        self, correlation: int, head: PublishBatches, parts: list[Part], size: int, caller: Caller
    ) -> None:
        try:
            result = await self._front_end.broker.publish_batches(head.key, parts, head.moves, caller=caller)
        finally:
            self._held_bytes -= size
        self._connection.send(encode_front(Kind.RESULT, correlation, result))

    def welcome(self, correlation: int, hello: Hello, last: bytes) -> None:
        """`last` is what the sign-in ends with."""
        front_end, caller = self._front_end, self._connection.caller
        if not hello.topics:
            self._connection.send(front_end.encode_welcome(correlation, [], caller, last))
            return

        async def describe() -> None:
            self._connection.send(await front_end.describe(correlation, hello.topics, caller, last))

        self._start(correlation, describe)

    def _note_topic(self, name: str) -> None:
        topics = self._topics = set() if self._topics is None else self._topics
        if name not in topics and len(name) <= NAME_MAX:
            most = self._front_end.limits.topics_per_connection
            if len(topics) >= most:
                raise LimitExceeded("limits.topics_per_connection", most, "use another connection")
            topics.add(name)

    # Tasks.

    def _start(self, correlation: int, work: Work, waits: bool = False) -> None:
        """Run this now, or when it is its turn. `waits` says that it may wait for news, and so for long."""
        if self._tasks is not None and len(self._tasks) - len(self._pushes or ()) >= REQUESTS_MAX:
            queue = self._queue = deque() if self._queue is None else self._queue
            queue.append((correlation, waits, work))
            self._connection.regulate()
        else:
            self._spawn(correlation, work, waits)

    def _spawn(self, correlation: int, work: Work, waits: bool) -> asyncio.Task[None]:
        tasks = self._tasks = {} if self._tasks is None else self._tasks
        task = self._front_end.spawn(self._guard(correlation, work))
        tasks[task] = correlation if waits else 0
        task.add_done_callback(self._ended)
        return task

    async def _guard(self, correlation: int, work: Work) -> None:
        try:
            await work()
        except LogboomError as error:
            self._connection.fail(correlation, error)
        except Exception as error:
            self._front_end.report(error)
            self._connection.fail(correlation, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._tasks is None:
            return
        self._tasks.pop(task, None)
        if self._queue:
            correlation, waits, work = self._queue.popleft()
            self._spawn(correlation, work, waits)
        self._connection.regulate()

    def is_full(self, now_paused: bool) -> bool:
        """Whether the connection is to be read no further: there is room again when half of it is free."""
        most = self._front_end.limits.in_flight_bytes
        return self._held_bytes > (most // 2 if now_paused else most) or bool(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not self._held_bytes and not self._tasks

    def stop(self, reason: LogboomError | None) -> None:
        """End what waits for news; the rest is soon done."""
        stopped = []
        for task, correlation in (self._tasks or {}).items():
            if correlation:
                task.cancel()
                stopped.append(correlation)
        stopped += [correlation for correlation, waits, _ in self._queue or () if waits]
        self._queue = deque(entry for entry in self._queue or () if not entry[1])
        self._pushes = None
        if reason is not None:
            for correlation in stopped:
                self._connection.fail(correlation, reason)

    def drop(self) -> None:
        """The connection is gone. Appends go on; nobody is told."""
        tasks, self._tasks = self._tasks or {}, None
        self._queue = self._pushes = None
        for task in tasks:
            task.cancel()


_TAKE: Final[dict[int, Callable[[Handler, Frame], None]]] = {
    Kind.HELLO: Handler._take_hello,
    Kind.PING: Handler._take_ping,
    Kind.SPEAK_FOR: Handler._take_speak_for,
    Kind.APPEND: Handler._take_append,
    Kind.READ: Handler._take_read,
    Kind.TAKE_JOBS: Handler._take_jobs,
    Kind.SUBSCRIBE: Handler._take_subscribe,
    Kind.CREDIT: Handler._take_credit,
    Kind.UNSUBSCRIBE: Handler._take_unsubscribe,
    Kind.CALL: Handler._take_call,
    Kind.PUBLISH: Handler._take_publish,
}
