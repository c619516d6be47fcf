"""Publishing: what is in stages goes into its logs, all of it, once.

    claim → sync and verify → reserve room → intent (durable: the commit point) → append in slices → done

What comes in one call has no stage: verified, it goes with the intent itself, and then into its logs.

    verify → reserve room → intent with all batches (durable) → append, one round for all logs → answer; done later

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

Cursors that move with a publish are in its intent (`moves.py`): records and moves come true together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from logboom.batch import Batch
from logboom.batch.header import STAGED_IDS
from logboom.broker.access.write_screen import WriteScreen
from logboom.broker.api import KeyInfo, Part, Publication, PublishKey, Receipt
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.limits import Limits
from logboom.broker.publish.finisher import TRANSIENT, CommittedPublish, Finisher, ReservedRoom
from logboom.broker.publish.intent import Intent, Into, merge_topics
from logboom.broker.publish.key_book import KeyBook
from logboom.broker.publish.log_share import LogShare, count_records, find_progress
from logboom.broker.publish.moves import WantedMoves, keep_moves, resume_moves, size_of_moves
from logboom.broker.publish.publication import BUNDLE_BATCHES_MAX, BUNDLE_BYTES_MAX
from logboom.broker.publish.stage import Stage
from logboom.broker.publish.stages import Judge, Stages
from logboom.broker.state.cursors import CursorChange, Cursors
from logboom.broker.state.internal_log import StateLog
from logboom.broker.world import REAL, World
from logboom.errors import (
    KeyBusy,
    KeyMismatch,
    LimitExceeded,
    LogboomError,
    LogReadOnly,
    MalformedBatch,
    OutcomeUnknown,
    Overloaded,
    StageIncomplete,
    StageNotFound,
)
from logboom.storage.files.open_files import Space
from logboom.storage.staged.bundle import Bundle
from logboom.storage.staged.stage import StageTarget

TOPIC: Final = "_publish"
"""The internal topic behind the keys."""
FILE: Final = "publish"
"""Their snapshot, below DATA/internal."""
PARTS_KEPT: Final = 64
INLINE_BYTES: Final = 64 * 1024
"""More than this is verified on a thread."""
RECOVERY_S: Final = 60.0
"""So long a start waits for open intents; what waits for room on the volume is finished while others are served."""

logger = logging.getLogger("logboom.broker")


CheckStage = Callable[[str, set[str]], None]
LookThrough = Callable[[Iterable[Batch]], Awaitable[LogboomError | None]]
"""Why rules do not let these batches be written by who publishes them. Takes them only where some do not."""
Label = tuple[str, int]
"""Name and number of a publish."""


class Publisher:
    def __init__(
        self,
        state: StateLog,
        stages: Stages,
        catalog: Catalog,
        cursors: Cursors,
        space: Space,
        admit: Callable[[Part], Hosted],
        judge: Judge,
        limits: Limits,
        world: World = REAL,
    ) -> None:
        self._stages = stages
        self._catalog = catalog
        self._cursors = cursors
        self._moving: dict[Label, list[CursorChange]] = {}
        """The cursors that each publish moves, until no restart does it again."""
        self._order = 0
        """Of the last publish that moves some."""
        self._space = space
        self._world = world
        self._now_us = world.now_us
        self._admit = admit
        self._judge = judge
        self._limits = limits
        self._bundled_bytes = 0
        """Of publishes in one call, with their moves, from their beginning until they are written down as done."""
        self._busy: dict[str, asyncio.Task[Publication]] = {}
        """Names under which something is being published now."""
        self._doubtful: dict[str, OutcomeUnknown] = {}
        """Names of which only a restart tells whether something was published under them."""
        self.keys = KeyBook(state, stages, limits.publish_keys, self._busy)
        self._finisher = Finisher(cursors)
        self.published = self.records = self.repeats = 0

    @property
    def under_way(self) -> int:
        """Publishes; also those that are committed and cannot be finished."""
        held = {label for labels in self._catalog.busy.values() for label in labels}
        return len(self._busy.keys() | {name for name, _ in held.difference(self.keys.settled)})

    async def publish(
        self,
        key: PublishKey,
        receipts: Sequence[Receipt],
        check: CheckStage = lambda stage, topics: None,
        look: LookThrough | None = None,
        moves: WantedMoves | None = None,
    ) -> Publication:
        """What has begun goes on, also when the caller has gone away. `check` raises where he may not publish, or throw
        away, a stage with records for these topics; `look` is about the records of a stage that he publishes."""
        if moves is not None and not receipts:  # nothing would be gone where it is repeated: the number counts
            return await self.publish_batches(key, (), None, moves)
        return await self._publish_once(key, receipts, partial(self._publish, key, receipts, check, look, moves), check)

    async def publish_batches(
        self,
        key: PublishKey,
        parts: Sequence[Part],
        screen: WriteScreen | None = None,
        moves: WantedMoves | None = None,
    ) -> Publication:
        """The same, of what is here and small."""
        return await self._publish_once(key, (), partial(self._publish_parts, key, parts, screen, moves))

    async def _publish_once(
        self,
        key: PublishKey,
        receipts: Sequence[Receipt],
        work: Callable[[], Coroutine[Any, Any, Publication]],
        check: CheckStage = lambda stage, topics: None,
    ) -> Publication:
        key.check()
        while key.name in self._busy:
            await asyncio.wait([self._busy[key.name]])
        known = self.keys.known(key.name)
        if known is not None and (known.is_open or known.number >= key.number):
            return self._repeat(key, known, receipts, check)
        if key.name in self._doubtful:
            raise OutcomeUnknown(str(self._doubtful[key.name]))
        return await asyncio.shield(self._begin(key.name, work()))

    def _begin(self, name: str, work: Coroutine[Any, Any, Publication]) -> asyncio.Task[Publication]:
        task = self._busy[name] = asyncio.create_task(work, name=f"logboom-publish-{name}")
        task.add_done_callback(partial(self._ended, name))
        return task

    def _ended(self, name: str, task: asyncio.Task[Publication]) -> None:
        del self._busy[name]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone away

    def _repeat(self, key: PublishKey, known: Intent, receipts: Sequence[Receipt], check: CheckStage) -> Publication:
        if known.is_open:
            raise OutcomeUnknown(
                f"key {key.name!r}: number {known.number} is published and not in all of its logs; "
                "a restart of the node finishes it, where nothing is in its way"
            )
        if key.digest and known.digest and (key.number, key.digest) != (known.number, known.digest):
            raise KeyMismatch(key.name, key.number, key.digest, known.number, known.digest)
        for receipt in receipts:
            check(receipt.stage, self._stages.topics_of(receipt.stage))
        self._stages.discard([receipt.stage for receipt in receipts])
        self.repeats += 1
        return Publication(key.name, key.number, True, known.parts if known.number == key.number else None)

    async def _publish(
        self,
        key: PublishKey,
        receipts: Sequence[Receipt],
        check: CheckStage,
        look: LookThrough | None,
        moves: WantedMoves | None,
    ) -> Publication:
        was_lasting = key.name in self.keys
        lasting = key.lasting or was_lasting
        await self.keys.make_room_for(key.name, lasting)
        try:
            stages = self._claim(key, lasting, receipts)
            return await self._publish_stages(key, lasting, stages, receipts, check, look, moves)
        finally:
            self.keys.give_back(key.name, was_lasting)

    async def _publish_stages(
        self,
        key: PublishKey,
        lasting: bool,
        stages: Sequence[Stage],
        receipts: Sequence[Receipt],
        check: CheckStage,
        look: LookThrough | None,
        moves: WantedMoves | None,
    ) -> Publication:
        try:
            await self._stages.prepare(stages, receipts)
            for stage in stages:
                check(stage.id, self._stages.topics_of(stage.id))
                refusal = None if look is None else await look(stage.loaded.all_batches())
                if refusal is not None:
                    raise refusal
            work = await self._commit(key, lasting, stages, moves)
        except OutcomeUnknown:  # a restart may need the stages
            raise
        except BaseException:
            self._stages.release(stages)
            raise
        return await self._finish(work)

    async def _publish_parts(
        self, key: PublishKey, parts: Sequence[Part], screen: WriteScreen | None, moves: WantedMoves | None
    ) -> Publication:
        size = self._check_size(parts, moves)
        was_lasting = key.name in self.keys
        lasting = key.lasting or was_lasting
        self._bundled_bytes += size
        work: CommittedPublish | None = None
        try:
            await self.keys.make_room_for(key.name, lasting)
            if not lasting:
                self.keys.check_fresh(key, self._now_us())
            work = await self._commit(key, lasting, (), moves, await self._bundle(parts, screen), size)
            return await self._finish(work)
        finally:
            self.keys.give_back(key.name, was_lasting)
            if work is None:
                self._bundled_bytes -= size

    def _check_size(self, parts: Sequence[Part], moves: WantedMoves | None) -> int:
        """Raises LimitExceeded where it is too much for one call, Overloaded where it is for now."""
        size = sum(len(batch.data) for part in parts for batch in part.batches)
        if size > BUNDLE_BYTES_MAX:
            raise LimitExceeded("bytes of a publish in one call", BUNDLE_BYTES_MAX, "use a stage")
        if sum(len(part.batches) for part in parts) > BUNDLE_BATCHES_MAX or len(parts) > BUNDLE_BATCHES_MAX:
            raise LimitExceeded("batches of a publish in one call", BUNDLE_BATCHES_MAX, "use a stage")
        size += 0 if moves is None else moves.size_bytes
        most = self._limits.unsynced_bytes
        if self._bundled_bytes and self._bundled_bytes + size > most:
            raise Overloaded("publishes in one call", self._bundled_bytes, most)
        return size

    async def _bundle(self, parts: Sequence[Part], screen: WriteScreen | None) -> Bundle:
        """Verified, and agreed to by rules and the validators of its topics. Raises why it is refused."""
        entries: list[tuple[StageTarget, Batch]] = []
        for part in parts:
            if part.expect_seqno is not None:
                raise MalformedBatch("what is published demands no seqno")
            hosted = self._admit(part)
            partition = hosted.writers.index(hosted.writer(part.partition))
            target = StageTarget(hosted.topic.name, hosted.topic.id, partition)
            entries += [(target, batch) for batch in part.batches]
        work_bytes = sum(max(batch.header.size, batch.header.body_size) for _, batch in entries)
        producer_id = STAGED_IDS | self._world.chance.getrandbits(63)
        make = partial(Bundle.make, entries, producer_id, self._now_us(), self._limits.batch_bytes)
        bundle = make() if work_bytes <= INLINE_BYTES else await asyncio.to_thread(make)
        for part in parts:
            hosted = self._admit(part)
            refusal = await self._judge(hosted, part.partition or 0, part.batches, screen) if part.batches else None
            if refusal is not None:
                raise refusal
        return bundle

    async def _commit(
        self,
        key: PublishKey,
        lasting: bool,
        stages: Sequence[Stage],
        moves: WantedMoves | None,
        bundle: Bundle | None = None,
        bundled_bytes: int = 0,
    ) -> CommittedPublish:
        """Reserve what it needs and write the intent; where that fails, nothing has changed."""
        room, logs = ReservedRoom(self._space), dict[StageTarget, LogShare]()
        label = key.name, key.number
        try:
            logs = self._find_logs(count_records(stages, bundle))
            self._keep(label, logs)
            changes = [] if moves is None else moves.begin_all(self._cursors)
            self._keep_moves(label, changes)
            size = sum(stage.size_bytes for stage in stages) if bundle is None else len(bundle.data)
            size += size_of_moves(changes)
            self._space.promise(size)
            room.left = size
            into = [Into(log.target, log.index) for log in logs.values()]
            intent = Intent(
                key.number,
                self._now_us(),
                lasting,
                stages=[stage.id for stage in stages],
                into=into,
                records=sum(log.records for log in logs.values()),
                digest=key.digest,
                topics=merge_topics(self.keys.known(key.name), into) if lasting else {},
                in_one=bundle is not None,
                bundle=b"" if bundle is None else bundle.data,
                moves=keep_moves(changes),
                order=self._next_order() if changes else 0,
            )
            await self.keys.commit(key.name, intent)
            self.keys.note_open(key.name)
        except OutcomeUnknown as error:  # a restart may need the topics
            self._doubtful[key.name] = error
            self._cursors.doubt(self._moving.get(label, ()), error)
            raise
        except BaseException:
            room.redeem(room.left)
            self._let_go(label, logs)
            raise
        return CommittedPublish(key.name, intent, stages, logs, room, bundle, changes, bundled_bytes)

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _claim(self, key: PublishKey, lasting: bool, receipts: Sequence[Receipt]) -> list[Stage]:
        try:
            return self._stages.claim(receipts)
        except StageNotFound as error:
            if lasting:
                raise
            raise OutcomeUnknown(
                f"{error}; key {key.name!r} does not last, so nobody knows whether it was published before"
            ) from error

    def _find_logs(self, counts: dict[StageTarget, int]) -> dict[StageTarget, LogShare]:
        """As they are now. Nobody else has a turn until they are kept."""
        logs = {}
        for target, records in counts.items():
            hosted = self._admit(Part(target.topic, (), target.partition, None, target.topic_id))
            writer = hosted.writer(target.partition)
            log = writer.log
            if log.refusal is not None:
                raise LogReadOnly(log.refusal)
            logs[target] = LogShare(target, hosted, writer, writer.durable_index + 1, records, log.next)
        return logs

    def _keep(self, label: Label, logs: dict[StageTarget, LogShare]) -> None:
        """Nothing of the logs is dropped, and no topic deleted, until they are let go."""
        for log in logs.values():
            log.writer.log.hold(_holder(label), log.writer.log.next if log.first is None else log.first)
            self._catalog.busy.setdefault(log.target.topic_id, set()).add(label)

    def _keep_moves(self, label: Label, changes: list[CursorChange]) -> None:
        """Their topics stay as well: with one go its cursors."""
        if changes:
            self._moving[label] = changes
        for change in changes:
            self._catalog.busy.setdefault(change.entry.topic_id.hex(), set()).add(label)

    def _let_go(self, label: Label, targets: Iterable[StageTarget]) -> None:
        changes = self._moving.pop(label, [])
        self._cursors.end(changes)
        for change in changes:
            self._free_topic(label, change.entry.topic_id.hex())
        for target in targets:
            self._free_topic(label, target.topic_id)
            with suppress(LogboomError):  # it is gone, or could not be opened
                hosted = self._catalog.find(target.topic, target.topic_id)
                hosted.writer(target.partition).log.release(_holder(label))

    def _free_topic(self, label: Label, topic_id: str) -> None:
        labels = self._catalog.busy.get(topic_id, set())
        labels.discard(label)
        if not labels:
            self._catalog.busy.pop(topic_id, None)

    async def _finish(self, work: CommittedPublish) -> Publication:
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
        return publication

    async def _carry_out(self, work: CommittedPublish) -> Publication:
        """Append what is not in the logs yet, and say so."""
        intent = work.intent
        await self._finisher.finish(work)
        parts = [log.part() for log in work.logs.values()]
        kept = parts if len(parts) <= PARTS_KEPT else None
        done = msgspec.structs.replace(intent, is_open=False, into=[], parts=kept, bundle=b"", moves=[])
        self.published += 1
        self.records += intent.records
        if work.bundle is None:
            await self._write_down(work, done)
        else:
            self.keys.settle_later(work.name, done, partial(self._release, work))
        return Publication(work.name, intent.number, False, parts)

    async def _write_down(self, work: CommittedPublish, done: Intent) -> None:
        wait_s = 0.0
        while True:
            try:
                await self.keys.commit(work.name, done)
                break
            except TRANSIENT as refusal:
                wait_s = await self._finisher.wait(f"key {work.name!r}", refusal, wait_s)
        self._stages.remove(work.stages)
        self.keys.note_done(work.name, done)
        self._release(work)

    def _release(self, work: CommittedPublish) -> None:
        """No restart has anything to do with it any more."""
        self._let_go((work.name, work.intent.number), work.logs)
        self._bundled_bytes -= work.bundled_bytes

    async def recover(self, on_thread: Callable[[Callable[[], None]], Awaitable[None]]) -> list[str]:
        """Before anybody is served: finish what was published and is not in all of its logs."""
        said, tasks = [], {}
        intents = self.keys.intents()
        self._stages.give_up([stage for intent in intents.values() if not intent.is_open for stage in intent.stages])
        open_ones = [item for item in intents.items() if item[1].is_open]
        before: asyncio.Task[Publication] | None = None
        for name, intent in sorted(open_ones, key=lambda item: item[1].order):
            self._order = max(self._order, intent.order)
            what = f"publish {name!r}, number {intent.number},"
            moves = resume_moves(intent.moves, self._cursors, self._catalog)
            self._keep_moves((name, intent.number), moves)
            try:
                work = await self._find_again(name, intent, moves, on_thread)
            except (LogboomError, OSError) as error:
                said.append(f"{what} cannot be finished, and its topics cannot be deleted: {error}")
                await self._move_alone(name, moves)
                continue
            task = tasks[what] = self._begin(work.name, self._finish_behind(before, work))
            before = task if intent.order else None
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

    async def _finish_behind(self, before: asyncio.Task[Publication] | None, work: CommittedPublish) -> Publication:
        """What reads on from where another publish has moved a cursor stands behind its records."""
        if before is not None:
            await asyncio.wait([before])
        return await self._finish(work)

    async def _move_alone(self, name: str, moves: Sequence[CursorChange]) -> None:
        """What is to become of the records an operator must say; the cursors stand where they were moved to."""
        if moves:
            with suppress(LogboomError, TimeoutError):
                async with asyncio.timeout(RECOVERY_S):
                    await self._finisher.move(name, moves, ReservedRoom(self._space))

    async def _find_again(
        self,
        name: str,
        intent: Intent,
        moves: Sequence[CursorChange],
        on_thread: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> CommittedPublish:
        label = name, intent.number
        for into in intent.into:
            self._catalog.busy.setdefault(into.target.topic_id, set()).add(label)
            with suppress(LogboomError):  # the others are kept all the same
                storage = self._find_writer(into.target)[1].log
                storage.hold(_holder(label), storage.first)
        stages = self._stages.reclaim(intent.stages)
        for stage in stages:
            await self._stages.load(stage)
        bundle = Bundle.load([into.target for into in intent.into], intent.bundle) if intent.in_one else None
        logs, counts = {}, count_records(stages, bundle)
        if sum(counts.values()) != intent.records:
            raise StageIncomplete(", ".join(intent.stages[:1]), intent.records, sum(counts.values()))
        for into in intent.into:
            hosted, writer = self._find_writer(into.target)
            records = counts.get(into.target, 0)
            logs[into.target] = LogShare(into.target, hosted, writer, into.index, records, writer.log.next)
        producers = {stage.loaded.opened.producer_id for stage in stages}
        bundled_bytes = 0
        if bundle is not None:
            producers.add(bundle.producer_id)
            bundled_bytes = len(bundle.data) + size_of_moves(moves)
            self._bundled_bytes += bundled_bytes
        for log in logs.values():
            await on_thread(partial(find_progress, log, producers))
        self._keep(label, logs)
        return CommittedPublish(name, intent, stages, logs, ReservedRoom(self._space), bundle, moves, bundled_bytes)

    def _find_writer(self, target: StageTarget) -> tuple[Hosted, LogWriter]:
        hosted = self._catalog.find(target.topic, target.topic_id)
        return hosted, hosted.writer(target.partition)

    async def list_keys(self, prefix: str) -> list[KeyInfo]:
        return await self.keys.list_keys(prefix)

    async def forget(self, name: str) -> bool:
        await self.keys.settle()
        known = self.keys.known(name)
        if known is None:
            return False
        if name in self._busy:
            raise KeyBusy(name)
        if known.is_open:
            self._give_up(name, known)
        await self.keys.remove(name)
        return True

    def _give_up(self, name: str, intent: Intent) -> None:
        """An operator does not want what cannot be finished: what is in the logs stays there, the rest goes."""
        logger.error("publish %r, number %d, is given up: its logs may have a part of it", name, intent.number)
        self._let_go((name, intent.number), [into.target for into in intent.into])
        self._stages.give_up(intent.stages)

    async def expire(self) -> None:
        """Forget names nobody will say again."""
        await self.keys.expire(self._now_us())

    async def close(self) -> None:
        """Of what was committed the slices under way are ended; the next start goes on."""
        self._finisher.end()
        if self._busy:
            await asyncio.wait(list(self._busy.values()))
        await self.keys.close()


def _holder(label: Label) -> str:
    """Two of one name may hold a log at once: one that is settled, and the next."""
    name, number = label
    return f"publish {name} {number}"
