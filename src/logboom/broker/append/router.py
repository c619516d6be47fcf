"""The way of an append: from its parts to the owners of their logs.

A part takes its place in its log's order when it is routed, at once; only where the topic is still to be made it waits
for that, and those that follow wait behind it. What is refused here was not appended, and is answered so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logboom.broker.access.quotas import Quotas
from logboom.broker.access.write_screen import WriteScreen
from logboom.broker.admission import Admission, check_not_internal
from logboom.broker.api import PIPELINE_TOPIC, Acks, Answer, Part, count_batches
from logboom.broker.append.id_issuer import IdIssuer, Spawn
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import Entry, Promise, fulfil
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.append.validation import Validation
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import said_again
from logboom.broker.rules import Rules
from logboom.errors import (
    LogboomError,
    MalformedBatch,
    ProducerForgotten,
    QuotaExceeded,
    ReadOnlyReplica,
    WritesRefused,
)

MAKE_TOPIC: Final = "create topic by writing"
_STRENGTH: Final = {"none": 0, "leader": 1, "durable": 2}


class AppendRouter:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        catalog: Catalog,
        rounds: SyncRounds,
        validation: Validation,
        admission: Admission,
        ids: IdIssuer,
        config: BrokerConfig,
        spawn: Spawn,
        rules: Rules,
        quotas: Quotas,
    ) -> None:
        self._loop = loop
        self._catalog = catalog
        self._rounds = rounds
        self._rejections = rounds.rejections
        self._validation = validation
        self._admission = admission
        self._ids = ids
        self._config = config
        self._spawn = spawn
        self._rules = rules
        self._quotas = quotas
        self._making: dict[str, list[tuple[Part, Promise, int, Acks | None, Caller]]] = {}
        """Appends that wait for their topic to be made."""
        self.on_made: Callable[[Caller, str, str], None] = lambda caller, act, name: None
        """Called where a write has made a topic."""

    def append(self, parts: Sequence[Part], acks: Acks | None, caller: Caller) -> asyncio.Future[list[Answer]]:
        future: asyncio.Future[list[Answer]] = self._loop.create_future()
        self.append_then(parts, acks, partial(fulfil, future), caller)
        return future

    def append_then(
        self, parts: Sequence[Part], acks: Acks | None, then: Callable[[list[Answer]], None], caller: Caller
    ) -> None:
        if self._quotas.is_on:
            self._quotas.charge_parts(caller, parts)
        promise = Promise(then, count_batches(parts), len(parts))
        offset = 0
        for part in parts:
            self._route(part, promise, offset, acks, caller)
            offset += len(part.batches)

    def _route(self, part: Part, promise: Promise, offset: int, acks: Acks | None, caller: Caller) -> None:
        """From a part to the owner of its log."""
        try:
            self._rules.check(caller, "write", "topic", part.topic)
            if part.topic in self._making or (part.topic_id is None and self._catalog.get(part.topic) is None):
                self._route_later(part, promise, offset, acks, caller)
                return
            hosted = self.admit(part)
            writer = hosted.writer(part.partition)
        except (WritesRefused, ReadOnlyReplica) as error:
            self._refuse(part, promise, offset, acks, error)
            return
        except LogboomError as error:
            self._rejections.note(error)
            promise.settle(offset, [error] * len(part.batches))
            return
        if not part.batches:
            promise.settle(offset, [])
            return
        entry = _entry(hosted, part, promise, offset, acks)
        if entry.is_staged:
            self._rounds.refuse(entry, MalformedBatch("its producer id is one that servers give to stages"))
            return
        if self._ids.is_foreign(entry.issued_id):  # it may be a repeat
            forgotten = ProducerForgotten(entry.issued_id, part.batches[0].header.producer_seq)
            forgotten.fresh_id = self._ids.issue()
            self._rounds.refuse(entry, forgotten)
            return
        self._submit(hosted, part, writer, entry, caller)

    def _submit(self, hosted: Hosted, part: Part, writer: LogWriter, entry: Entry, caller: Caller) -> None:
        """To the owner of the log; by way of the validators, and of rules about records, where there are such."""
        screen = WriteScreen.of(self._rules, caller)
        if screen is not None and part.topic == PIPELINE_TOPIC:
            screen = None  # what jobs say has no channel
        if screen is not None and screen.is_quick(part.batches):
            refusal = self._validation.look_at_once(screen, part.batches)
            if refusal is not None:
                return writer.refuse(entry, refusal)
            screen = None
        if screen is not None or hosted.topic.settings.validators.urls or writer in self._validation.lanes:
            return self._validation.submit(hosted, part.partition or 0, writer, entry, screen)
        return writer.submit(entry)

    def _refuse(self, part: Part, promise: Promise, offset: int, acks: Acks | None, error: LogboomError) -> None:
        """Nothing is written any more; what was, and is sent again, is told where it is."""
        try:
            hosted = self._catalog.find(part.topic, part.topic_id)
            hosted.writer(part.partition).refuse(_entry(hosted, part, promise, offset, acks), error)
        except LogboomError:
            self._rejections.note(error)
            promise.settle(offset, [error] * len(part.batches))

    def admit(self, part: Part) -> Hosted:
        """The topic of a part, where it may be written to."""
        self._admission.check_changeable()
        hosted = self._catalog.find(part.topic, part.topic_id)
        self._admission.check_accepted(hosted)
        # Who appends at a seqno that he names has read what is before it: that is what keeps this log in order.
        check_not_internal(part.topic, PIPELINE_TOPIC if part.expect_seqno is not None else None)
        return hosted

    def _route_later(self, part: Part, promise: Promise, offset: int, acks: Acks | None, caller: Caller) -> None:
        """The topic is not there yet: a write makes it, where the rules allow that."""
        self._admission.check_changeable()
        if part.topic not in self._making:
            self._rules.check(caller, "create", "topic", part.topic)
            self._config.topics.admit(part.topic, len(self._catalog), self._config.limits, by_write=True)
            self._quotas.check_topics(caller)
            self._making[part.topic] = []
            self._spawn(self._make(part.topic, caller))
        self._making[part.topic].append((part, promise, offset, acks, caller))

    async def _make(self, name: str, maker: Caller) -> None:
        error: LogboomError | None = None
        try:
            await self._catalog.create(name, by="write", caller=maker)
            self.on_made(maker, MAKE_TOPIC, name)
        except LogboomError as failure:
            error = failure
        except OSError as failure:
            error = LogboomError(f"topic {name!r} could not be made: {failure}")
        for part, promise, offset, acks, caller in self._making.pop(name):
            if error is None or (isinstance(error, QuotaExceeded) and not caller.is_like(maker)):
                self._route(part, promise, offset, acks, caller)  # another one's quota is nothing to him
            else:
                self._rejections.note(said_again(error))
                promise.settle(offset, [error] * len(part.batches))


def _entry(hosted: Hosted, part: Part, promise: Promise, offset: int, acks: Acks | None) -> Entry:
    """As strong as the topic demands at least."""
    rules = hosted.topic.settings.acks
    wanted = acks or rules.default
    if _STRENGTH[wanted] < _STRENGTH[rules.least]:
        wanted = rules.least
    return Entry(promise, offset, part.batches, wanted, part.expect_seqno, hosted.meter)
