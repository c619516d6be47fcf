"""Validators: whoever a topic names is shown its records before the log is, and may refuse them.

    submit → (lane of its log) → asked → decided, and first of its lane → LogWriter.submit

Each batch is judged by itself, so that none is refused for another's sake; those that demand a seqno together stand or
fall together. All validators of a topic are asked at the same time, and the first that refuses decides.

Invariants. A log gets its batches in the order of `submit`: one that is decided waits for those before it, one that is
refused holds nobody up. What waits here is counted as waiting for its log, and bounded as that is. Of a topic no more
than `validators.concurrency` are with the validators at once, of the node no more than IN_HAND_BYTES.

A repeat gets the first answer: what the log has is not asked about, and what is with the validators, or on its way into
the log, is asked about once. The same number with other bytes is no repeat while the log does not have it.

A validator that the node's configuration does not list is not asked, and what it would have to agree to is refused.

What rules on channels and tags do not let a caller write is refused here too, and no validator is asked: also where a
topic has none.

Closing gives them some time; what is undecided then is refused.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Task
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from logboom.batch import BATCH_SIZE_MAX, Batch
from logboom.batch.header import NO_TIMESTAMP
from logboom.batch.ndjson import encode_record
from logboom.broker.access.write_screen import WriteScreen
from logboom.broker.allowances import shown
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import Entry
from logboom.broker.append.sync_rounds import SyncRounds, logger
from logboom.broker.append.validator_address import ValidatorRules
from logboom.broker.caller import Caller
from logboom.broker.catalog import Hosted
from logboom.errors import (
    BatchError,
    BatchTooLarge,
    LimitExceeded,
    LogboomError,
    NotAllowed,
    RecordsRejected,
    ShuttingDown,
    TopicDeleted,
    ValidatorFailed,
    ValidatorNotAllowed,
)
from logboom.storage.config import MIB
from logboom.storage.data.topic import ValidatorSettings

IN_HAND_BYTES: Final = 64 * MIB
"""Of records, about as large as they are in memory, that are with validators at once; one batch of any size may be."""
BODY_BYTES_MAX: Final = 128 * MIB
"""The longest JSON a validator is shown."""
RECORD_BYTES: Final = 128
"""What the JSON of a record needs besides its contents."""
UNVALIDATED: Final = "unvalidated"
"""The name under which appends are counted that were accepted because a validator did not answer."""


class Verdict(NamedTuple):
    status: int
    """Of HTTP: 2xx accepts, everything else refuses."""
    reason: str


class Validators(Protocol):
    async def ask(self, url: str, body: bytes, timeout_s: float) -> Verdict:
        """What this validator says of these records. Raises OSError where it says nothing in time, PermissionError
        where this node may not ask it."""
        ...


_Identity = tuple[LogWriter, tuple[tuple[int, int, int], ...], WriteScreen | None]


@dataclass(slots=True, eq=False)
class _Line:
    """The batches of one topic that wait for their turn with the validators."""

    hosted: Hosted
    waiting: deque[_Case] = field(default_factory=deque)
    in_hand: dict[Task[LogboomError | None], _Case] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Case:
    line: _Line
    partition: int
    writer: LogWriter
    entry: Entry
    cost: int
    screen: WriteScreen | None = None
    decided: bool = False
    refusal: LogboomError | None = None
    first: _Case | None = None
    """The one that this is a repeat of: what is decided there is decided here."""

    @property
    def is_decided(self) -> bool:
        return self.decided or (self.first is not None and self.first.decided)

    @property
    def verdict(self) -> LogboomError | None:
        return self.refusal if self.first is None else self.refusal or self.first.refusal


class Validation:
    def __init__(
        self,
        loop: AbstractEventLoop,
        threads: Executor,
        rounds: SyncRounds,
        validators: Validators | None,
        allowed: ValidatorRules,
    ) -> None:
        self.lanes: dict[LogWriter, deque[_Case]] = {}
        """What waits before each log, in its order. No log is here for which nothing does."""
        self._loop = loop
        self._threads = threads
        self._rounds = rounds
        self._validators = validators
        self._allowed = allowed
        self._lines: dict[Hosted, _Line] = {}
        self._held_up: dict[_Line, None] = {}
        """Those that other topics have left no room."""
        self._in_hand_bytes = 0
        self._firsts: dict[_Identity, _Case] = {}
        """What producers have numbered, until it is refused or the log has it."""
        self.on_refusal: Callable[[Caller, str, str, LogboomError], None] = lambda caller, act, name, error: None
        """Called with what rules have refused: the act, the channel or tag, and what the caller is told."""

    def submit(
        self, hosted: Hosted, partition: int, writer: LogWriter, entry: Entry, screen: WriteScreen | None = None
    ) -> None:
        """As LogWriter.submit, once the validators have agreed, and the screen lets it through."""
        for piece in entry.split():
            error = self._too_much(writer, piece)
            if error is not None:
                self._rounds.refuse(piece, error)
                continue
            line = self._lines.get(hosted) or _Line(hosted)
            case = _Case(line, partition, writer, piece, _cost(piece), screen)
            writer.count_waiting(piece.size)
            self.lanes.setdefault(writer, deque()).append(case)
            if self._is_repeat(case):
                self._pass_on(writer)
            else:
                self._lines[hosted] = line
                line.waiting.append(case)
                self._ask_more(line)

    def _is_repeat(self, case: _Case) -> bool:
        """Whether somebody has been asked already, or is being asked; else the case is the first one."""
        writer, batches = case.writer, case.entry.batches
        if all(writer.log.repeat_of(batch.header) is not None for batch in batches):
            case.entry.is_repeat = case.decided = True
            return True
        identity = _identity(writer, batches, case.screen)
        if identity is None:
            return False
        first = self._firsts.setdefault(identity, case)
        if first is case:
            case.entry.on_end = partial(self._firsts.pop, identity)
            return False
        if any(one.data != other.data for one, other in zip(first.entry.batches, batches, strict=True)):
            return False
        case.first = first
        return True

    def _too_much(self, writer: LogWriter, entry: Entry) -> LogboomError | None:
        if len(entry.batches) > 1 and entry.work_bytes > BATCH_SIZE_MAX:
            return BatchTooLarge(entry.work_bytes, BATCH_SIZE_MAX)
        return writer.overload(entry.size)

    def _ask_more(self, line: _Line) -> None:
        while line.waiting and len(line.in_hand) < line.hosted.topic.settings.validators.concurrency:
            case = line.waiting[0]
            if self._in_hand_bytes and self._in_hand_bytes + case.cost > IN_HAND_BYTES:
                self._held_up[line] = None
                return
            line.waiting.popleft()
            self._in_hand_bytes += case.cost
            task = self._loop.create_task(self._judge(case))
            line.in_hand[task] = case
            task.add_done_callback(lambda task: self._decide(line, task))

    def _decide(self, line: _Line, task: Task[LogboomError | None]) -> None:
        case = line.in_hand.pop(task)
        self._in_hand_bytes -= case.cost
        if not task.cancelled():  # else it was refused by whoever did that
            case.decided, case.refusal = True, _refusal(case, task)
            self._pass_on(case.writer)
        self._ask_more(line)
        if not line.waiting and not line.in_hand:
            self._lines.pop(line.hosted, None)
        while self._held_up:
            other = next(iter(self._held_up))
            del self._held_up[other]
            self._ask_more(other)
            if other in self._held_up:
                break

    def _pass_on(self, writer: LogWriter) -> None:
        """Those at the head of a lane that are decided."""
        lane = self.lanes.get(writer)
        while lane and lane[0].is_decided:
            case = lane.popleft()
            if not lane:
                del self.lanes[writer]
            writer.count_waiting(-case.entry.size)
            refusal = case.verdict
            if refusal is None:
                writer.submit(case.entry)
            else:
                self._rounds.refuse(case.entry, refusal)

    async def _judge(self, case: _Case) -> LogboomError | None:
        return await self.judge(case.line.hosted, case.partition, case.entry.batches, case.screen)

    async def judge(
        self, hosted: Hosted, partition: int, batches: Sequence[Batch], screen: WriteScreen | None = None
    ) -> LogboomError | None:
        """Why these records are refused; None where they are not. Whoever asks sees to it that it is not too much."""
        refusal = None if screen is None else await self.look_through(screen, batches)
        return refusal or await self._judge_contents(hosted, partition, batches)

    async def look_through(self, screen: WriteScreen, batches: Iterable[Batch]) -> LogboomError | None:
        """Why rules on channels and tags do not let these be written."""
        look = partial(screen.refusal, batches, self._rounds.limits.batch_bytes)
        return self._told(screen, await self._loop.run_in_executor(self._threads, look))

    def look_at_once(self, screen: WriteScreen, batches: Sequence[Batch]) -> LogboomError | None:
        """The same, for what is quick."""
        return self._told(screen, screen.refusal(batches, self._rounds.limits.batch_bytes))

    def _told(self, screen: WriteScreen, refusal: LogboomError | None) -> LogboomError | None:
        if isinstance(refusal, NotAllowed):
            self.on_refusal(screen.caller, f"write {refusal.kind}", refusal.name, refusal)
        return refusal

    async def _judge_contents(self, hosted: Hosted, partition: int, batches: Sequence[Batch]) -> LogboomError | None:
        topic = hosted.topic
        rules = topic.settings.validators
        if not rules.urls:
            return None
        for url in rules.urls:
            barred = self._allowed.refusal(url)
            if barred is not None:  # whatever becomes of those that fail: whoever cannot be asked has not agreed
                return ValidatorNotAllowed(topic.name, shown(url), barred)
        if self._validators is None:
            return self._unanswered(topic.name, rules, rules.urls[0], "this node cannot ask validators")
        work = partial(encode_body, topic.name, partition, batches, self._rounds.limits.batch_bytes)
        try:
            body = await self._loop.run_in_executor(self._threads, work)
        except LimitExceeded as error:
            return error
        if body is None:
            return None  # the log says what is wrong with it
        refusals: Sequence[BaseException] = ()
        try:
            async with asyncio.TaskGroup() as group:
                for url in rules.urls:
                    group.create_task(self._ask(self._validators, topic.name, rules, url, body))
        except* LogboomError as found:
            refusals = found.exceptions
        return next((error for error in refusals if isinstance(error, LogboomError)), None)

    async def _ask(self, validators: Validators, topic: str, rules: ValidatorSettings, url: str, body: bytes) -> None:
        """Raises where this one does not agree."""
        try:
            refusal: LogboomError | None
            status, reason = await validators.ask(url, body, rules.timeout_ms / 1000)
        except PermissionError as error:
            refusal = ValidatorNotAllowed(topic, shown(url), str(error))
        except OSError as error:
            refusal = self._unanswered(topic, rules, url, str(error) or type(error).__name__)
        else:
            refusal = None if 200 <= status < 300 else RecordsRejected(topic, shown(url), status, reason)
        if refusal is not None:
            raise refusal

    def _unanswered(self, topic: str, rules: ValidatorSettings, url: str, reason: str) -> LogboomError | None:
        failure = ValidatorFailed(topic, shown(url), reason)
        if rules.on_failure == "refuse":
            return failure
        times = self._rounds.rejections.count(UNVALIDATED, str(failure))
        if times & (times - 1) == 0:
            logger.warning("accepted all the same (%d times by now): %s", times, failure)
        return None

    def drop(self, hosted: Hosted) -> None:
        """The topic is gone."""
        self._give_up(hosted, TopicDeleted(hosted.topic.name, hosted.topic.id))

    def _give_up(self, hosted: Hosted, error: LogboomError) -> None:
        line = self._lines.get(hosted)
        if line is None:
            return
        line.waiting.clear()
        for task in line.in_hand:
            task.cancel()
        for writer in hosted.open_writers:
            for case in self.lanes.get(writer, ()):
                if case.refusal is None:
                    case.decided, case.refusal = True, error
            self._pass_on(writer)
        if not line.in_hand:
            del self._lines[hosted]

    async def close(self, grace_s: float) -> None:
        """Nothing new comes: wait for what was begun, and refuse what is not decided in time."""
        ends_at = self._loop.time() + grace_s
        while self._lines and self._loop.time() < ends_at:
            tasks = [task for line in self._lines.values() for task in line.in_hand]
            await asyncio.wait(tasks, timeout=ends_at - self._loop.time())
        for hosted in list(self._lines):
            self._give_up(hosted, ShuttingDown())
        while self._lines:
            await asyncio.wait([task for line in self._lines.values() for task in line.in_hand])


def encode_body(topic: str, partition: int, batches: Sequence[Batch], limit_bytes: int) -> bytes | None:
    """What a validator is shown, on a thread. Batches that are no good are left out; None where that is all of them."""
    pieces: list[bytes] = []
    size = 0
    for batch in batches:
        try:
            ours = Batch.parse(batch.data)  # what it inflates to is not to be kept while others are waited for
            ours.verify(limit_bytes)
        except BatchError:
            continue
        unknown = ours.header.append_time if ours.header.min_timestamp == NO_TIMESTAMP else None
        for record in ours.records():
            moment = None if record.timestamp == unknown else record.timestamp
            piece = encode_record(None, moment, record.key, record.value, record.channel, record.tags, record.headers)
            size += len(piece) + 1
            if size > BODY_BYTES_MAX:
                raise LimitExceeded("bytes of JSON for a validator", BODY_BYTES_MAX, "send smaller batches")
            pieces.append(piece)
    if not pieces:
        return None
    name = msgspec.json.encode(topic)
    return b'{"topic":%s,"partition":%d,"records":[%s]}' % (name, partition, b",".join(pieces))


def _identity(writer: LogWriter, batches: Sequence[Batch], screen: WriteScreen | None) -> _Identity | None:
    """What a producer calls these batches; None where nobody does. What one may not write another may."""
    headers = [batch.header for batch in batches]
    if not all(header.producer_id for header in headers):
        return None
    numbers = tuple((header.producer_id, header.producer_epoch, header.producer_seq) for header in headers)
    return writer, numbers, screen


def _cost(entry: Entry) -> int:
    return entry.work_bytes + RECORD_BYTES * sum(batch.header.record_count for batch in entry.batches)


def _refusal(case: _Case, task: Task[LogboomError | None]) -> LogboomError | None:
    error = task.exception()
    if error is None:
        return task.result()
    logger.error("validators could not be asked", exc_info=error)
    return ValidatorFailed(case.line.hosted.topic.name, "none of them", f"internal error: {type(error).__name__}")
