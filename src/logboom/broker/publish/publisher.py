"""Publishing: what is in stages goes into its logs, all of it, once.

    claim → sync and verify → reserve room → intent (durable: the commit point) → append in slices → done

Invariants. Before the intent is durable nothing is appended, and a publish that fails leaves its stages as they were.
From then on it does not fail: what stands in its way (a full volume) is waited out, and what stops the node (a failed
sync, a kill) is made good by the next start, which finishes open intents before anybody is served. How far one came is
read from the logs themselves: the intent says where in each to look, behind all that no crash takes back, and batches
of a stage carry its producer id and their place in its stream.

A key is a name and a number. The highest number of each name is kept with what it has put where, so a repeat is
answered as the first was. Publishes of one name come one after another. Names that do not last are kept as long as
there is room for them; one is forgotten only when the files of its stages are gone for good, so that what was published
under it can never be published again: a repeat finds no stages, and is told that nobody knows.

Where both have a digest, what differs in it is no repeat, and refused; nor is a number below the highest.

An open intent holds the logs' retention, and the deletion of its topics is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from logboom.batch import Batch
from logboom.batch.header import SEQUENCE_MODULUS
from logboom.broker.api import KeyInfo, Part, Publication, PublishedPart, PublishKey, Receipt
from logboom.broker.append.commitment import Due
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import Adoption, Entry, Promise
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.publish.stages import Stage, Stages, all_done
from logboom.broker.publish.unnamed_keys import KEPT, UnnamedKeys
from logboom.broker.slices import slices
from logboom.broker.state.internal_log import StateLog
from logboom.broker.world import REAL, World
from logboom.errors import (
    AppendRefused,
    KeyBusy,
    KeyMismatch,
    LimitExceeded,
    LogboomError,
    LogReadOnly,
    LowSpace,
    OutcomeUnknown,
    Overloaded,
    StageIncomplete,
    StageNotFound,
    StorageError,
    SyncFailed,
    WriteFailed,
)
from logboom.storage.append import Appended
from logboom.storage.config import MIB
from logboom.storage.files.disk import SCARCE
from logboom.storage.files.open_files import Space
from logboom.storage.log import Log
from logboom.storage.staged.piece import StagePiece
from logboom.storage.staged.stage import StagedBatch, StageFile, StageTarget

TOPIC: Final = "_publish"
"""The internal topic behind the keys."""
FILE: Final = "publish"
"""Their snapshot, below DATA/internal."""
LIMIT: Final = "limits.publish_keys"
SLICE_BYTES: Final = 4 * MIB
"""So much of a stage is appended at a time: others write in between."""
SLICE_BATCHES: Final = 1024
"""And so many batches, however small they are."""
ADOPTED_PART: Final = 8
"""A piece becomes a segment if it has at least the eighth part of the bytes of one."""
ADOPTED_BATCHES: Final = 4096
"""And no more batches than this: others wait while they are stamped."""
ADOPTED_AT_ONCE: Final = 2
"""Pieces of one publish: a log that waits for a thread takes nothing else, and a pause waits for all of them."""
PARTS_KEPT: Final = 64
TOPICS_KEPT: Final = 64
STAGES_KEPT: Final = 256
"""More are kept only until they are gone."""
KEY_EXPIRY_US: Final = 86_400_000_000
"""A name that is not lasting is kept for so long after it was published."""
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
RECOVERY_S: Final = 60.0
"""So long a start waits for open intents; what waits for room on the volume is finished while others are served."""
_TRANSIENT: Final = (LowSpace, WriteFailed, Overloaded)

logger = logging.getLogger("logboom.broker")


class Into(msgspec.Struct, frozen=True, array_like=True):
    """A log that an intent has records for."""

    target: StageTarget
    index: int
    """Of the first batch that may be one of the publish."""


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """What was last published under a name, as it is kept. Fields may be added with defaults; never moved."""

    number: int
    at: int
    lasting: bool
    is_open: bool = True
    """Whether records of it may still be missing in their logs."""
    stages: list[str] = []
    """Where its records are; when it is done, what is to be removed, until many are known to be gone."""
    into: list[Into] = []
    records: int = 0
    """In all of the stages together."""
    parts: list[PublishedPart] | None = None
    """Where everything went; None while it is on its way, and where that would be too much to keep."""
    digest: str = ""
    topics: dict[str, str] = {}
    """Those that anything was published to under this name, and their ids: of a lasting one, the last TOPICS_KEPT."""

    @property
    def known_topics(self) -> dict[str, str]:
        return self.topics or {part.topic: part.topic_id for part in self.parts or ()}

    @property
    def expires(self) -> int | None:
        return None if self.lasting else self.at + KEY_EXPIRY_US

    def has_expired(self, now: int) -> bool:
        return self.expires is not None and not self.is_open and self.expires <= now


@dataclass(slots=True)
class _Log:
    """One of the logs, while records go into it."""

    target: StageTarget
    hosted: Hosted
    writer: LogWriter
    index: int
    """Of the first batch that may be one of the publish."""
    records: int
    """What it is to get."""
    next: int
    first: int | None = None
    due: Due | None = None
    """What is to be durable before the publish is done."""
    done: dict[int, int] = field(default_factory=dict)
    """How far it has them already: where in a stage's stream, by the producer id of the stage."""

    def note(self, appended: Appended) -> None:
        self.first = appended.base_seqno if self.first is None else self.first
        self.next, self.due = appended.next_seqno, self.writer.due(appended.index)

    def part(self) -> PublishedPart:
        first = self.next if self.first is None else self.first
        return PublishedPart(*_fields(self.target), first, self.next, self.records)


@dataclass(slots=True)
class _Room:
    """What is promised to a publish on the volume, and not yet written by it."""

    space: Space
    left: int = 0

    def redeem(self, size: int) -> None:
        size = min(size, self.left)
        self.left -= size
        self.space.redeem(size)


@dataclass(slots=True)
class _Work:
    """A publish whose intent is durable."""

    name: str
    intent: Intent
    stages: Sequence[Stage]
    logs: dict[StageTarget, _Log]
    room: _Room
    adopting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ADOPTED_AT_ONCE))
    slicing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One piece at a time is appended in slices: its batches are read on the loop."""


class Publisher:
    def __init__(
        self,
        state: StateLog,
        stages: Stages,
        catalog: Catalog,
        space: Space,
        admit: Callable[[Part], Hosted],
        keys_max: int,
        world: World = REAL,
    ) -> None:
        self._state = state
        self._stages = stages
        self._catalog = catalog
        self._space = space
        self._now_us = world.now_us
        self._admit = admit
        self._keys_max = keys_max
        kept = {name.decode(): _decode(value) for name, value in state.items()}
        self._named = {name for name, intent in kept.items() if intent.lasting}
        done = [name for name, intent in kept.items() if not intent.lasting and not intent.is_open]
        self._unnamed = UnnamedKeys(min(keys_max, KEPT), sorted(done, key=lambda name: kept[name].at))
        self._evicting: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._busy: dict[str, asyncio.Task[Publication]] = {}
        """Names under which something is being published now."""
        self._doubtful: dict[str, OutcomeUnknown] = {}
        """Names of which only a restart tells whether something was published under them."""
        self._ending = asyncio.Event()
        self.published = self.records = self.repeats = 0

    def __len__(self) -> int:
        """Names that last."""
        return len(self._named)

    @property
    def under_way(self) -> int:
        """Publishes; also those that are committed and cannot be finished."""
        return len(self._busy.keys() | {name for names in self._catalog.busy.values() for name in names})

    async def publish(self, key: PublishKey, receipts: Sequence[Receipt]) -> Publication:
        """What has begun goes on, also when the caller has gone away."""
        key.check()
        while key.name in self._busy:
            await asyncio.wait([self._busy[key.name]])
        known = self._known(key.name)
        if known is not None and (known.is_open or known.number >= key.number):
            return self._repeat(key, known, receipts)
        if key.name in self._doubtful:
            raise OutcomeUnknown(str(self._doubtful[key.name]))
        return await asyncio.shield(self._begin(key.name, self._publish(key, receipts)))

    def _begin(self, name: str, work: Coroutine[Any, Any, Publication]) -> asyncio.Task[Publication]:
        task = self._busy[name] = asyncio.create_task(work, name=f"logboom-publish-{name}")
        task.add_done_callback(partial(self._ended, name))
        return task

    def _ended(self, name: str, task: asyncio.Task[Publication]) -> None:
        del self._busy[name]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone away

    def _known(self, name: str) -> Intent | None:
        value = self._state.get(name.encode())
        return None if value is None else _decode(value)

    def _repeat(self, key: PublishKey, known: Intent, receipts: Sequence[Receipt]) -> Publication:
        if known.is_open:
            raise OutcomeUnknown(
                f"key {key.name!r}: number {known.number} is published and not in all of its logs; "
                "a restart of the node finishes it, where nothing is in its way"
            )
        if key.digest and known.digest and (key.number, key.digest) != (known.number, known.digest):
            raise KeyMismatch(key.name, key.number, key.digest, known.number, known.digest)
        self._stages.discard([receipt.stage for receipt in receipts])
        self.repeats += 1
        return Publication(key.name, key.number, True, known.parts if known.number == key.number else None)

    async def _publish(self, key: PublishKey, receipts: Sequence[Receipt]) -> Publication:
        was_lasting = key.name in self._named
        lasting = key.lasting or was_lasting
        await self._make_room_for(key.name, lasting)
        try:
            stages = self._claim(key, lasting, receipts)
            return await self._publish_stages(key, lasting, stages, receipts)
        finally:
            if not was_lasting and not self._is_lasting(key.name):
                self._named.discard(key.name)

    def _is_lasting(self, name: str) -> bool:
        known = self._known(name)
        return known is not None and known.lasting

    async def _publish_stages(
        self, key: PublishKey, lasting: bool, stages: Sequence[Stage], receipts: Sequence[Receipt]
    ) -> Publication:
        room, logs = _Room(self._space), dict[StageTarget, _Log]()
        try:
            await self._stages.prepare(stages, receipts)
            logs = self._find_logs(stages)
            self._keep(key.name, logs)
            size = sum(stage.size_bytes for stage in stages)
            self._space.promise(size)
            room.left = size
            into = [Into(log.target, log.index) for log in logs.values()]
            records = sum(stage.loaded.records for stage in stages)
            topics = _merged(self._known(key.name), into) if lasting else {}
            intent = Intent(
                key.number,
                self._now_us(),
                lasting,
                stages=[stage.id for stage in stages],
                into=into,
                records=records,
                digest=key.digest,
                topics=topics,
            )
            await self._commit(key.name, intent)
            self._unnamed.drop(key.name)
        except OutcomeUnknown as error:  # a restart may need the stages, and the topics
            self._doubtful[key.name] = error
            raise
        except BaseException:
            room.redeem(room.left)
            self._let_go(key.name, logs)
            self._stages.release(stages)
            raise
        return await self._finish(_Work(key.name, intent, stages, logs, room))

    async def _make_room_for(self, name: str, lasting: bool) -> None:
        """Raises LimitExceeded. Names that last and others do not take the room of each other."""
        if lasting and name not in self._named:
            if len(self._named) >= self._keys_max:
                raise LimitExceeded(LIMIT, self._keys_max, "delete some, or raise it")
            self._named.add(name)
        if not lasting and self._unnamed.is_full:
            await self._evict()
            if self._unnamed.is_full:
                raise LimitExceeded(LIMIT, self._keys_max, "stages that were published could not be removed: see why")

    def _claim(self, key: PublishKey, lasting: bool, receipts: Sequence[Receipt]) -> list[Stage]:
        try:
            return self._stages.claim(receipts)
        except StageNotFound as error:
            if lasting:
                raise
            raise OutcomeUnknown(
                f"{error}; key {key.name!r} does not last, so nobody knows whether it was published before"
            ) from error

    def _find_logs(self, stages: Sequence[Stage]) -> dict[StageTarget, _Log]:
        """As they are now. Nobody else has a turn until they are kept."""
        logs = {}
        for target, records in _count(stages).items():
            hosted = self._admit(Part(target.topic, (), target.partition, None, target.topic_id))
            writer = hosted.writer(target.partition)
            log = writer.log
            if log.refusal is not None:
                raise LogReadOnly(log.refusal)
            logs[target] = _Log(target, hosted, writer, writer.durable_index + 1, records, log.next)
        return logs

    def _keep(self, name: str, logs: dict[StageTarget, _Log]) -> None:
        """Nothing of the logs is dropped, and no topic deleted, until they are let go."""
        for log in logs.values():
            log.writer.log.hold(_holder(name), log.writer.log.next if log.first is None else log.first)
            self._catalog.busy.setdefault(log.target.topic_id, set()).add(name)

    def _let_go(self, name: str, targets: Iterable[StageTarget]) -> None:
        for target in targets:
            names = self._catalog.busy.get(target.topic_id, set())
            names.discard(name)
            if not names:
                self._catalog.busy.pop(target.topic_id, None)
            with suppress(LogboomError):  # it is gone, or could not be opened
                hosted = self._catalog.find(target.topic, target.topic_id)
                hosted.writer(target.partition).log.release(_holder(name))

    async def _commit(self, name: str, intent: Intent) -> None:
        try:
            await self._state.put({name.encode(): msgspec.msgpack.encode(intent)})
        except (AppendRefused, OutcomeUnknown):
            raise
        except StorageError as error:  # a sync failed: after a restart it is there, or not
            raise OutcomeUnknown(
                f"key {name!r}: whether it is published, the next start of the node tells: {error}"
            ) from error

    async def _finish(self, work: _Work) -> Publication:
        """From here on nothing takes it back: whatever goes wrong, the next start goes on."""
        try:
            publication = await self._carry_out(work)
        except OutcomeUnknown:
            raise
        except Exception as error:
            raise OutcomeUnknown(
                f"key {work.name!r} is published, and not in all of its logs: {error}; the next start of the node "
                "finishes it"
            ) from error
        finally:
            work.room.redeem(work.room.left)
        self._let_go(work.name, work.logs)
        return publication

    async def _carry_out(self, work: _Work) -> Publication:
        """Append what is not in the logs yet, and say so."""
        intent, logs = work.intent, work.logs.values()
        for stage in work.stages:
            await self._pour(stage, work)
        for log in logs:
            refusal = log.writer.log.refusal
            if not log.writer.is_kept(log.due):
                if refusal is not None:
                    raise SyncFailed(refusal)
                await log.writer.durable(log.due)
        parts = [log.part() for log in logs]
        kept = parts if len(parts) <= PARTS_KEPT else None
        done = msgspec.structs.replace(intent, is_open=False, into=[], parts=kept)
        wait_s = 0.0
        while True:
            try:
                await self._commit(work.name, done)
                break
            except _TRANSIENT as refusal:
                wait_s = await self._wait(f"key {work.name!r}", refusal, wait_s)
        self._stages.remove(work.stages)
        if not intent.lasting:
            self._unnamed.note(work.name)
        if self._unnamed.is_crowded and self._evicting is None:
            self._evicting = self._spawn(self._evict())
        if len(intent.stages) > STAGES_KEPT:
            self._spawn(self._shorten(work.name, done))
        self.published += 1
        self.records += intent.records
        return Publication(work.name, intent.number, False, parts)

    async def _pour(self, stage: Stage, work: _Work) -> None:
        """What is large becomes segments, of two logs at once; of the rest one slice after the other, each into all."""
        file = stage.loaded
        logs = [work.logs[target] for target in file.targets]
        producer_id = file.opened.producer_id
        await self._open(file, f"key {work.name!r}")
        await self._pour_batches(file.batches(), [0] * len(logs), producer_id, logs, work)
        file.let_go()
        pieces: dict[int, list[StagePiece]] = {}
        for piece in file.pieces:
            pieces.setdefault(piece.number, []).append(piece)
        await all_done(self._pour_pieces(some, producer_id, logs, work) for some in pieces.values())

    async def _pour_pieces(
        self, pieces: Sequence[StagePiece], producer_id: int, logs: Sequence[_Log], work: _Work
    ) -> None:
        """Of one log, in their order."""
        for piece in pieces:
            self._check_not_ending(work)
            log = logs[piece.number]
            if log.done.get(producer_id, 0) <= piece.first and await self._adopt(piece, log, work):
                work.room.redeem(piece.size_bytes)
                continue
            async with work.slicing:
                await self._pour_piece(piece, producer_id, logs, work)

    async def _pour_piece(self, piece: StagePiece, producer_id: int, logs: Sequence[_Log], work: _Work) -> None:
        """In slices."""
        self._check_not_ending(work)
        await self._open(piece, logs[piece.number].writer.name)
        counts = [0] * len(logs)
        counts[piece.number] = piece.first
        batches = (StagedBatch(piece.number, batch) for batch in piece.batches())
        await self._pour_batches(batches, counts, producer_id, logs, work)
        piece.let_go()

    async def _open(self, file: StagePiece | StageFile, where: str) -> None:
        """Where there are no more files, or no memory for maps, that may pass."""
        wait_s = 0.0
        while True:
            try:
                await asyncio.to_thread(file.data)
                return
            except OSError as error:
                if error.errno not in SCARCE:
                    raise
                wait_s = await self._wait(where, WriteFailed(f"{file.path}: {error.strerror}"), wait_s)

    async def _adopt(self, piece: StagePiece, log: _Log, work: _Work) -> bool:
        """Make a piece a segment of its log. Whether that was worth it, and done."""
        small = piece.size_bytes < log.writer.log.config.segment_bytes // ADOPTED_PART
        if small or piece.is_torn or piece.batch_count > ADOPTED_BATCHES:
            return False
        promise = Promise(asyncio.get_running_loop(), 0, 1)
        async with work.adopting:
            self._check_not_ending(work)
            log.writer.submit(Adoption(promise, piece, log.hosted.meter))
            appended = [answer for answer in await promise.future if isinstance(answer, Appended)]
        for answer in appended:
            log.note(answer)
        return bool(appended)

    async def _pour_batches(
        self,
        batches: Iterable[StagedBatch],
        counts: list[int],
        producer_id: int,
        logs: Sequence[_Log],
        work: _Work,
    ) -> None:
        """`counts` says how many records of the stage each log has got or is to get before these."""
        slice_: dict[int, list[Batch]] = {}
        size = count = 0
        for number, batch in batches:
            header = batch.header
            size += header.size
            count += 1
            counts[number] += header.record_count
            if counts[number] > logs[number].done.get(producer_id, 0):
                slice_.setdefault(number, []).append(batch)
            if size >= SLICE_BYTES or count >= SLICE_BATCHES:
                work.room.redeem(size)
                await self._append(slice_, logs)
                slice_, size, count = {}, 0, 0
                self._check_not_ending(work)
        work.room.redeem(size)
        await self._append(slice_, logs)

    def _check_not_ending(self, work: _Work) -> None:
        if self._ending.is_set():
            raise OutcomeUnknown(f"key {work.name!r} is published; the next start of the node finishes it")

    async def _append(self, slice_: dict[int, list[Batch]], logs: Sequence[_Log]) -> None:
        await all_done(self._append_to(logs[number], batches) for number, batches in slice_.items())

    async def _append_to(self, log: _Log, batches: Sequence[Batch]) -> None:
        """Until all are written; each only after the one before it."""
        loop, wait_s, most = asyncio.get_running_loop(), 0.0, log.writer.log.config.batch_bytes_max
        if any(max(batch.header.size, batch.header.body_size) > most for batch in batches):
            raise OutcomeUnknown(f"{log.writer.name}: a batch is over limits.batch_bytes = {most:,}: raise it, restart")
        while batches:
            promise = Promise(loop, len(batches), 1)
            log.writer.submit(Entry(promise, 0, batches, "leader", meter=log.hosted.meter))
            refusal: LogboomError | None = None
            taken = 0
            for answer in await promise.future:
                if isinstance(answer, LogboomError):
                    refusal = answer
                    break
                log.note(answer)
                taken += 1
            batches = batches[taken:]
            if refusal is None:
                return
            if not isinstance(refusal, _TRANSIENT):
                raise OutcomeUnknown(f"{log.writer.name} has not all that is published: {refusal}") from refusal
            wait_s = await self._wait(log.writer.name, refusal, wait_s)

    async def _wait(self, where: str, refusal: LogboomError, waited_s: float) -> float:
        """Something is in the way that may pass. Returns how long that was."""
        if self._ending.is_set():
            raise OutcomeUnknown(f"{where}: a publish is left to the next start of the node: {refusal}") from refusal
        if not waited_s:
            logger.warning("%s: a publish waits: %s", where, refusal)
        wait_s = min(RETRY_MAX_S, 2 * waited_s or RETRY_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), wait_s)
        return wait_s

    async def recover(self, on_thread: Callable[[Callable[[], None]], Awaitable[None]]) -> list[str]:
        """Before anybody is served: finish what was published and is not in all of its logs."""
        said, tasks = [], {}
        intents = {name.decode(): _decode(value) for name, value in self._state.items()}
        self._stages.give_up([stage for intent in intents.values() if not intent.is_open for stage in intent.stages])
        for name, intent in intents.items():
            if not intent.is_open:
                continue
            what = f"publish {name!r}, number {intent.number},"
            try:
                work = await self._find_again(name, intent, on_thread)
            except (LogboomError, OSError) as error:
                said.append(f"{what} cannot be finished, and its topics cannot be deleted: {error}")
                continue
            tasks[what] = self._begin(work.name, self._finish(work))
        if tasks:
            await asyncio.wait(tasks.values(), timeout=RECOVERY_S)
        for what, task in tasks.items():
            if not task.done():
                said.append(f"{what} is being finished")
            elif (failure := task.exception()) is not None:
                said.append(f"{what} cannot be finished, and its topics cannot be deleted: {failure}")
            else:
                said.append(f"{what} was finished")
        return said

    async def _find_again(
        self, name: str, intent: Intent, on_thread: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> _Work:
        for into in intent.into:
            self._catalog.busy.setdefault(into.target.topic_id, set()).add(name)
            with suppress(LogboomError):  # the others are kept all the same
                storage = self._find_writer(into.target)[1].log
                storage.hold(_holder(name), storage.first)
        stages = self._stages.reclaim(intent.stages)
        for stage in stages:
            await self._stages.load(stage)
        found = sum(stage.loaded.records for stage in stages)
        if found != intent.records:
            raise StageIncomplete(intent.stages[0], intent.records, found)
        logs, counts = {}, _count(stages)
        for into in intent.into:
            hosted, writer = self._find_writer(into.target)
            records = counts.get(into.target, 0)
            logs[into.target] = _Log(into.target, hosted, writer, into.index, records, writer.log.next)
        producers = {stage.loaded.opened.producer_id for stage in stages}
        for log in logs.values():
            await on_thread(partial(_look, log, producers))
        self._keep(name, logs)
        return _Work(name, intent, stages, logs, _Room(self._space))

    def _find_writer(self, target: StageTarget) -> tuple[Hosted, LogWriter]:
        hosted = self._catalog.find(target.topic, target.topic_id)
        return hosted, hosted.writer(target.partition)

    async def list_keys(self, prefix: str) -> list[KeyInfo]:
        found = []
        async for some in slices(list(self._state.items())):
            for name, value in some:
                if name.decode().startswith(prefix):
                    kept = _decode(value)
                    facts = kept.number, kept.records, kept.at, kept.expires, kept.is_open, kept.digest
                    found.append(KeyInfo(name.decode(), *facts, kept.known_topics))
        return sorted(found, key=lambda info: info.name)

    async def forget(self, name: str) -> bool:
        known = self._known(name)
        if known is None:
            return False
        if name in self._busy:
            raise KeyBusy(name)
        if known.is_open:
            self._give_up(name, known)
        await self._state.put({name.encode(): None})
        self._named.discard(name)
        self._unnamed.drop(name)
        return True

    def _give_up(self, name: str, intent: Intent) -> None:
        """An operator does not want what cannot be finished: what is in the logs stays there, the rest goes."""
        logger.error("publish %r, number %d, is given up: its logs may have a part of it", name, intent.number)
        self._let_go(name, [into.target for into in intent.into])
        self._stages.give_up(intent.stages)

    async def expire(self) -> None:
        """Forget names nobody will say again."""
        now = self._now_us()
        old: list[str] = []
        async for some in slices(list(self._state.items())):
            old += [name.decode() for name, value in some if _decode(value).has_expired(now)]
        await self._forget_done(old)

    async def _evict(self) -> None:
        """Forget the oldest names that do not last, where there are too many."""
        try:
            while self._unnamed.is_crowded and await self._forget_done(self._unnamed.surplus()):
                pass  # others were published meanwhile
        except LogboomError as error:
            logger.warning("names that do not last could not be forgotten: %s", error)
        finally:
            self._evicting = None

    async def _forget_done(self, names: Sequence[str]) -> int:
        """Those whose stages are gone for good: one that a crash brings back could be published again. How many."""
        values = {name: value for name in names if (value := self._state.get(name.encode())) is not None}
        intents = {name: _decode(value) for name, value in values.items()}
        gone = await self._stages.find_gone({stage for intent in intents.values() for stage in intent.stages})
        # Meanwhile somebody may have published under one of them once more.
        forgotten = [
            name
            for name, intent in intents.items()
            if not intent.lasting
            and not intent.is_open
            and gone >= set(intent.stages)
            and name not in self._busy
            and self._state.get(name.encode()) == values[name]
        ]
        if forgotten:
            await self._state.put({name.encode(): None for name in forgotten})
        for name in forgotten:
            self._unnamed.drop(name)
        return len(forgotten)

    async def _shorten(self, name: str, done: Intent) -> None:
        """Many stages are not to be kept for ever: when they are gone, nobody needs to know which they were."""
        gone = await self._stages.find_gone(done.stages)
        if gone >= set(done.stages) and self._known(name) == done and name not in self._busy:
            with suppress(LogboomError):
                await self._commit(name, msgspec.structs.replace(done, stages=[]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="logboom-publish-chore")
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    async def close(self) -> None:
        """Of what was committed the slices under way are ended; the next start goes on."""
        self._ending.set()
        if self._busy:
            await asyncio.wait(list(self._busy.values()))
        if self._chores:
            await asyncio.wait(list(self._chores))
        await self._state.close()


def _look(log: _Log, producers: set[int]) -> None:
    """On a thread: which of these producers' batches are in the log, from where they can be on."""
    storage = log.writer.log
    index = max(log.index, storage.first_index)
    for batch in _batches(storage, index):
        header = batch.header
        if header.producer_id in producers:
            log.note(Appended(header.base_seqno, header.record_count, header.index, header.append_time))
            done = log.done.get(header.producer_id, 0)
            ahead = (header.producer_seq + header.record_count - done) % SEQUENCE_MODULUS
            log.done[header.producer_id] = done + ahead


def _batches(log: Log, index: int) -> Iterator[Batch]:
    while index <= log.last_index:
        run = log.read_index(index)
        if run is None:
            return
        yield from run.batches()
        index = run.next_index


def _count(stages: Sequence[Stage]) -> dict[StageTarget, int]:
    """The records for each log."""
    counts: dict[StageTarget, int] = {}
    for stage in stages:
        for target, number in stage.loaded.targets.items():
            counts[target] = counts.get(target, 0) + stage.loaded.counts[number]
    return counts


def _merged(known: Intent | None, into: Sequence[Into]) -> dict[str, str]:
    """The topics of a name, with those it has records for now last."""
    now = {log.target.topic: log.target.topic_id for log in into}
    before = {} if known is None else {name: id_ for name, id_ in known.known_topics.items() if name not in now}
    return dict([*before.items(), *now.items()][-TOPICS_KEPT:])


def _holder(name: str) -> str:
    return f"publish {name}"


def _decode(value: bytes) -> Intent:
    return msgspec.msgpack.decode(value, type=Intent)


def _fields(target: StageTarget) -> tuple[str, str, int]:
    return target.topic, target.topic_id, target.partition
