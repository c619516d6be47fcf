"""Single records into batches, at the edge: what comes for a log while its last append is under way goes as one batch.

Nothing waits on a timer: to an idle log a record goes at once, alone. Every contribution takes its place in its log's
order when it is added, and is answered by itself: where its first record went, or why it did not. One that cannot
become part of a batch, or is refused for what it holds, spoils nobody else's: the others are sent again without it.

Built on the calls of the broker alone, so any front-end that receives single records can have one, and all its
connections share it. A batch holds records of callers who are alike, and is appended in the name of the first.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from logboom.batch import Batch, build
from logboom.broker.api import Acks, Answer, AppendCalls, Appended, Part
from logboom.broker.caller import Caller
from logboom.errors import (
    BatchError,
    LogboomError,
    OutcomeUnknown,
    PartitionNotFound,
    RecordNotAllowed,
    RecordsRejected,
)

GATHER_BYTES: Final = 1024 * 1024
GATHER_RECORDS: Final = 16 * 1024
STICKY_MAX: Final = 100_000
"""Topics whose number of partitions is remembered."""
MOVES_MAX: Final = 4
"""How often a contribution looks for another partition: a topic may be made anew with fewer, or more."""
_CONTENTS: Final = (RecordsRejected, RecordNotAllowed, BatchError)
"""What a batch is refused with for what is in it."""
_VALUES_ONLY: Final = (None,) * 5


class RecordColumns(NamedTuple):
    """Records as `batch.build` takes them. A column that all of them lack is None."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    timestamps: list[int | None] | None = None
    channels: list[str | None] | None = None
    tags: list[Any] | None = None
    headers: list[Any] | None = None

    def build(self) -> Batch:
        """Raises InvalidColumn, BatchTooLarge."""
        if self[1:] == _VALUES_ONLY:
            return build(self.values)
        return build(
            self.values,
            keys=self.keys,
            timestamps=self.timestamps,
            channels=self.channels,
            tags=self.tags,
            headers=self.headers,
        )


class Placed(NamedTuple):
    """Where a contribution went."""

    partition: int
    seqno: int
    """Of its first record; the others follow."""
    record_count: int
    append_time: int


@dataclass(slots=True)
class _Contribution:
    columns: RecordColumns
    size: int
    done: Future[Placed]
    anywhere: bool
    """Whether its partition was left to us."""
    caller: Caller
    moves: int = 0


class _Alone(NamedTuple):
    part: Part
    caller: Caller
    done: Future[list[Answer]]


@dataclass(slots=True)
class _Lane:
    """One log, as the callers name it."""

    topic: str
    partition: int | None
    under_way: int = 0
    waiting: deque[tuple[Acks | None, list[_Contribution] | _Alone]] = field(default_factory=deque)
    bytes: int = 0
    records: int = 0
    """Of the last group that waits."""


class Gatherer:
    def __init__(self, broker: AppendCalls, bytes_max: int = GATHER_BYTES) -> None:
        """`bytes_max` is of what is gathered: a contribution that is larger by itself goes alone."""
        self._broker = broker
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[str, int | None], _Lane] = {}
        self._partitions: dict[str, int] = {}
        """Of topics with several, as far as an answer has told."""
        self._turn = 0

    def add(
        self,
        topic: str,
        partition: int | None,
        columns: RecordColumns,
        size: int,
        acks: Acks | None = None,
        *,
        caller: Caller,
    ) -> Future[Placed]:
        """Records for one log, of about `size` bytes. The future fails with the reason where they were not appended.

        Without a partition they go to the only one, or to any where there are several.
        """
        contribution = _Contribution(columns, size, self._loop.create_future(), partition is None, caller)
        self._add(topic, partition, contribution, acks)
        return contribution.done

    def _add(self, topic: str, partition: int | None, contribution: _Contribution, acks: Acks | None) -> None:
        if partition is None and topic in self._partitions:
            self._turn += 1
            partition = self._turn % self._partitions[topic]
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
        if not lane.under_way:
            self._send(lane, acks, [contribution])
            self._go_on(lane)
            return
        count = len(contribution.columns.values)
        full = lane.bytes + contribution.size > self._bytes_max or lane.records + count > GATHER_RECORDS
        last_acks, last = lane.waiting[-1] if lane.waiting else (None, None)
        if not isinstance(last, list) or full or last_acks != acks or not last[0].caller.is_like(contribution.caller):
            last = []
            lane.waiting.append((acks, last))
            lane.bytes = lane.records = 0
        last.append(contribution)
        lane.bytes += contribution.size
        lane.records += count

    def append_alone(
        self,
        topic: str,
        partition: int | None,
        batch: Batch,
        acks: Acks | None,
        expect_seqno: int | None = None,
        *,
        caller: Caller,
    ) -> Future[list[Answer]]:
        """A batch that must not be gathered with others; it comes after everything that was added before it.

        So it waits, too: what is under way may be refused for what it holds, and sent again in pieces.
        """
        part = Part(topic, [batch], partition, expect_seqno)
        lane = self._lanes.get((topic, partition))
        if lane is None or not lane.under_way:
            return self._broker.append([part], acks, caller=caller)
        alone = _Alone(part, caller, self._loop.create_future())
        lane.waiting.append((acks, alone))
        return alone.done

    def _send_next(self, lane: _Lane) -> None:
        acks, item = lane.waiting.popleft()
        if isinstance(item, list):
            self._send(lane, acks, item)
        else:
            self._send_alone(acks, item)

    def _send_alone(self, acks: Acks | None, alone: _Alone) -> None:
        try:
            future = self._broker.append([alone.part], acks, caller=alone.caller)
        except Exception as error:
            _fail(alone.done, error)
        else:
            future.add_done_callback(lambda future: _pass_on(future, alone.done))

    def _send(self, lane: _Lane, acks: Acks | None, group: list[_Contribution]) -> None:
        try:
            batch = (group[0].columns if len(group) == 1 else _merge(group)).build()
        except (LogboomError, ValueError, TypeError, OverflowError) as error:
            if len(group) > 1:
                for contribution in group:  # whoever it was, it is the only one to suffer
                    self._send(lane, acks, [contribution])
                return
            _fail(group[0].done, error if isinstance(error, LogboomError) else LogboomError(str(error)))
            return
        try:
            part = Part(lane.topic, [batch], lane.partition)
            future = self._broker.append([part], acks, caller=group[0].caller)
        except Exception as error:
            for contribution in group:
                _fail(contribution.done, error)
            return
        if future.done():
            self._settle(lane, acks, group, future)
            return
        lane.under_way += 1

        def sent(future: Future[list[Answer]]) -> None:
            lane.under_way -= 1
            self._settle(lane, acks, group, future)
            self._go_on(lane)

        future.add_done_callback(sent)

    def _settle(self, lane: _Lane, acks: Acks | None, group: list[_Contribution], future: Future[list[Answer]]) -> None:
        answer = _error_of(future) or future.result()[0]
        if isinstance(answer, Appended):
            _place(lane.partition or 0, group, answer)
        elif isinstance(answer, _CONTENTS) and len(group) > 1:
            self._halve(lane, acks, group)
        elif isinstance(answer, PartitionNotFound):
            self._move(lane, acks, group, answer)
        else:
            for contribution in group:
                _fail(contribution.done, answer)

    def _halve(self, lane: _Lane, acks: Acks | None, group: list[_Contribution]) -> None:
        """One half after the other, before what came later: the first may be refused again, and halved."""
        if not lane.waiting:
            lane.records = GATHER_RECORDS  # nobody joins them
        middle = len(group) // 2
        lane.waiting.extendleft([(acks, group[middle:]), (acks, group[:middle])])

    def _move(self, lane: _Lane, acks: Acks | None, group: list[_Contribution], answer: PartitionNotFound) -> None:
        """There is no such partition: those that do not insist on one go to another, and what waits behind them too."""
        if lane.partition is None:
            self._learn(lane.topic, answer.partitions)
        else:
            self._partitions.pop(lane.topic, None)
        items = [(acks, group), *lane.waiting]
        lane.waiting.clear()
        for wanted, item in items:
            if isinstance(item, _Alone):
                self._send_alone(wanted, item)
                continue
            for contribution in item:
                contribution.moves += 1
                if contribution.anywhere and contribution.moves <= MOVES_MAX:
                    self._add(lane.topic, None, contribution, wanted)
                else:
                    _fail(contribution.done, answer)

    def _go_on(self, lane: _Lane) -> None:
        while lane.waiting and not lane.under_way:
            self._send_next(lane)
        if not lane.under_way and self._lanes.get((lane.topic, lane.partition)) is lane:
            del self._lanes[lane.topic, lane.partition]

    def _learn(self, topic: str, partitions: int) -> None:
        if len(self._partitions) >= STICKY_MAX:
            self._partitions.clear()
        self._partitions[topic] = partitions


def _place(partition: int, group: list[_Contribution], answer: Appended) -> None:
    seqno = answer.base_seqno
    for contribution in group:
        count = len(contribution.columns.values)
        if not contribution.done.done():
            contribution.done.set_result(Placed(partition, seqno, count, answer.append_time))
        if seqno >= 0:  # below 0 nobody knows, with acks none
            seqno += count


def _error_of(future: Future[list[Answer]]) -> BaseException | None:
    return OutcomeUnknown("the append was given up") if future.cancelled() else future.exception()


def _pass_on(future: Future[list[Answer]], done: Future[list[Answer]]) -> None:
    error = _error_of(future)
    if error is not None:
        _fail(done, error)
    elif not done.done():
        done.set_result(future.result())


def _fail(done: Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # who added it may be gone: that is nothing to complain about


def _merge(group: list[_Contribution]) -> RecordColumns:
    """One set of columns; those that some have and others lack are filled up."""
    parts = [contribution.columns for contribution in group]
    values = [value for part in parts for value in part.values]
    rest: list[Any] = []
    for number, missing in ((1, None), (2, None), (3, None), (4, ()), (5, ())):
        if all(part[number] is None for part in parts):
            rest.append(None)
            continue
        column: list[Any] = []
        for part in parts:
            entries = part[number]
            column += [missing] * len(part.values) if entries is None else entries
        rest.append(column)
    return RecordColumns(values, *rest)
