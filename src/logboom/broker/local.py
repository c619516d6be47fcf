"""The broker in the process: a data directory, opened, with everything that keeps it.

One event loop owns all of it. What takes long (writes while a file is synced, syncs, filters, reads of what is not in
memory, making topics) runs on threads, and comes back to the loop.

Closing takes nothing new, finishes what was promised, syncs, and lets go of the directory. After a crash `open`
recovers every log before anything is served, and says what it found.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from logboom.broker.api import (
    PIPELINE_TOPIC,
    Acks,
    Activity,
    ActivityRequest,
    Answer,
    Chunk,
    CursorInfo,
    History,
    Incident,
    KeyInfo,
    Measures,
    NodeStats,
    Part,
    PartitionInfo,
    Publication,
    PublishKey,
    ReadRequest,
    Receipt,
    SegmentInfo,
    Settings,
    StageInfo,
    TopicHistory,
    TopicInfo,
)
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.producer_ids import ProducerIds
from logboom.broker.append.promise import Entry, Promise
from logboom.broker.append.sync_rounds import SyncRounds, logger
from logboom.broker.append.validation import Validation, Validators
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import said_again
from logboom.broker.monitor.counters import Counters
from logboom.broker.monitor.incidents import listening
from logboom.broker.monitor.lags import with_lag
from logboom.broker.monitor.measures import Measured
from logboom.broker.monitor.segments import SegmentLists
from logboom.broker.monitor.watcher import Watcher, look_at_volume
from logboom.broker.publish.publisher import FILE as PUBLISH_FILE
from logboom.broker.publish.publisher import LIMIT as PUBLISH_LIMIT
from logboom.broker.publish.publisher import TOPIC as PUBLISH_TOPIC
from logboom.broker.publish.publisher import Publisher
from logboom.broker.publish.stages import Stages
from logboom.broker.read.archives import Archives
from logboom.broker.read.feed import LocalFeed, begin_feed
from logboom.broker.read.log_reader import LocalSubscription, LogReader, ReadPoint, term_before
from logboom.broker.recovered import describe_recovery
from logboom.broker.replica import Replica, claim_role, recover_logs
from logboom.broker.slices import slices
from logboom.broker.state.cursors import FILE as CURSORS_FILE
from logboom.broker.state.cursors import LIMIT as CURSORS_LIMIT
from logboom.broker.state.cursors import TOPIC as CURSORS_TOPIC
from logboom.broker.state.cursors import Cursors
from logboom.broker.state.homes import StateHome, open_state
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.broker.world import REAL, World
from logboom.errors import (
    BookmarkLost,
    LogboomError,
    MalformedBatch,
    ProducerForgotten,
    ReadOnlyReplica,
    ShuttingDown,
    SyncFailed,
    TopicNotAllowed,
    WritesRefused,
)
from logboom.storage.bookmark import Bookmark, Term
from logboom.storage.data.deletions import Deletion
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.role import Role, is_copying
from logboom.storage.data.topic import FlushSettings, unreadable_topics
from logboom.storage.files.disk import Disk
from logboom.storage.log import Log

WRITE_THREADS: Final = 2
STAGE_THREADS: Final = 4
STATE_SYNC_S: Final = 1.0
"""How long after a commit the state file is synced: until then a damaged end may be taken for a torn one."""
EXPIRE_S: Final = 60.0
"""How often names are looked for that nobody will publish under any more."""
VALIDATION_SHARE: Final = 0.5
"""Of the time there is for closing: for validators; the rest is the disk's."""
Result = TypeVar("Result")
_STRENGTH: Final = {"none": 0, "leader": 1, "durable": 2}


class LocalBroker:
    """Implements broker.api.Broker; see there for what the methods promise."""

    def __init__(
        self,
        data: DataDirectory,
        config: BrokerConfig,
        validators: Validators | None = None,
        role: Role | None = None,
        world: World = REAL,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.world = world
        self.limits = config.limits
        self.node = data.node
        self.directory = os.path.abspath(data.path)
        self.recovered: list[str] = []
        """What opening found, in words."""
        self.unreadable: list[str] = []
        """Ids of topics that are on disk and cannot be served."""
        self.started = world.now_us()
        self._loop = loop
        self._data = data
        writes = world.threads(WRITE_THREADS, "logboom-write")
        syncs = world.threads(1, "logboom-sync")
        reads = world.threads(config.threads, "logboom-read")
        self._pools: tuple[Executor, ...] = (writes, syncs, reads)
        self._rounds = SyncRounds(loop, data.files, writes, syncs, config.limits, config.dirty_logs_max, world=world)
        self.rejections = self._rounds.rejections
        """How often each rule and limit has said no; front-ends count here too."""
        self.archives = archives = Archives()
        """What is archived of the logs: for whoever knows."""
        self._catalog = catalog = Catalog(data, self._rounds, config, is_copying(role), archives)
        self._reading = LogReader(loop, reads, config.limits, self._fetch, archives)
        self._segments = SegmentLists(loop, reads)
        self._validation = Validation(loop, reads, self._rounds, validators, config.allowed.validators)
        self._wake = asyncio.Event()
        self._upkeep = Upkeep(
            data, config.upkeep, self._wake_upkeep, archives=archives, allowed=config.allowed, world=world
        )
        archives.on_change = self._wake.set
        self._cursors: Cursors | None = None
        staging = world.threads(STAGE_THREADS, "logboom-stage")
        self._pools += (staging,)
        self._stages = Stages(
            *(loop, staging, data.files, f"{self.directory}/staging", config.limits, self.rejections),
            *(self._admit, self._validation.judge, world),
        )
        self._publishing: Publisher | None = None
        self.counters = counters = Counters(
            *(data.node, self.started, config.limits, catalog, self._rounds, self._reading, self._upkeep),
            *(self._stages, lambda: self._publishing),
        )
        self.connections, self.meters = counters.connections, counters.meters
        volume = partial(look_at_volume, self.directory)
        self.watcher = Watcher(counters, lambda: self._cursors, volume, config.reserve_bytes, world)
        self.replica: Replica | None = None
        """While the node is a copy of another one: for whoever does the copying."""
        if role is not None and not role.promoted:
            self.replica = Replica(data, catalog, self._rounds, self._its_cursors, self._delete, role)
            self._reading.is_copy = True
        self._ids: ProducerIds | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._rounds.counts.issue_id = self.issue_id
        self._promoting = asyncio.Lock()
        self._refused: str | None = None
        self._closing = False
        self._ending = asyncio.Event()
        self._making: dict[str, list[tuple[Part, Promise, int, Acks | None]]] = {}
        """Appends that wait for their topic to be made."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listening = ExitStack()
        """To what loggers say; until the broker is closed."""

    @classmethod
    async def open(
        cls,
        path: str,
        config: BrokerConfig | None = None,
        cluster_id: str | None = None,
        disk: Disk | None = None,
        validators: Validators | None = None,
        replicate: Role | None = None,
        world: World = REAL,
    ) -> LocalBroker:
        """Take the directory, recover every log, and begin to look after them.

        Without `validators` there is nobody to ask: topics that demand it refuse, or accept, as their settings say.
        `replicate` makes an empty directory a copy; one that is a copy already needs nobody to say so.
        """
        config = config or BrokerConfig()
        began = world.monotonic_s()
        limits = config.files_max, config.reserve_bytes
        take = partial(DataDirectory.open, path, disk, *limits, cluster_id, means=world)
        data = await asyncio.to_thread(take)
        ears = ExitStack()
        try:
            role = await asyncio.to_thread(claim_role, data, replicate)
            broker = cls(data, config, validators, role, world)
            ears.enter_context(listening(broker.rejections.incidents))
            logs = await asyncio.to_thread(recover_logs, data, broker._catalog, role)
            for topic in data.topics():
                broker._catalog.host(topic, logs)
            broker.unreadable = await asyncio.to_thread(unreadable_topics, data.files.disk, data.path)
            here = [*broker.unreadable, *(topic.id for topic in data.topics())]
            await asyncio.to_thread(broker._catalog.deletions.take_back, *here)
            broker.recovered = [
                *(
                    f"the topic with id {lost} cannot be served: its topic.json cannot be read"
                    for lost in broker.unreadable
                ),
                *(
                    f"topic {topic.name}: {key}: {reason}"
                    for topic in data.topics()
                    for key, reason in config.allowed.unusable(topic.settings).items()
                ),
                *describe_recovery(data, logs, world.monotonic_s() - began),
            ]
            await broker._open_states()
            await broker._open_ids()
        except BaseException:
            ears.close()
            await asyncio.to_thread(data.close)
            raise
        broker._listening = ears
        broker._spawn(broker._keep_up())
        broker._spawn(broker._keep_stages())
        broker._spawn(broker._keep_state())
        broker._spawn(broker.watcher.run())
        return broker

    async def _open_states(self) -> None:
        """What the node keeps for itself; and what was published before is finished."""
        opened = partial(open_state, self._data, self._catalog, self._rounds, self._trim)
        self._cursors = Cursors(
            await opened(StateHome(CURSORS_TOPIC, CURSORS_FILE, (CURSORS_LIMIT, self.limits.cursors)))
        )
        await self._catalog.create(PIPELINE_TOPIC, 1, Settings(flush=FlushSettings("each")), "node")
        await asyncio.to_thread(self._stages.find_all)
        keys = await opened(StateHome(PUBLISH_TOPIC, PUBLISH_FILE, (PUBLISH_LIMIT, sys.maxsize)))  # Publishing counts
        space, keys_max = self._data.files.space, self.limits.publish_keys
        self._publishing = Publisher(keys, self._stages, self._catalog, space, self._admit, keys_max, self.world)
        self.recovered[-1:-1] = await self._publishing.recover(asyncio.to_thread)  # what was opened is said last

    async def _open_ids(self) -> None:
        """Ids for producers: above all that the logs know."""
        disk, now_ms, seen = self._data.files.disk, self.world.now_us() // 1000, self._seen_id()
        self._ids = await asyncio.to_thread(ProducerIds.open, disk, self._data.path, now_ms, seen)
        await self._reserve_ids()

    def _seen_id(self) -> int:
        return max((writer.log.highest_issued for writer in self._rounds.writers), default=0)

    async def _reserve_ids(self) -> None:
        assert self._ids is not None
        try:
            await asyncio.to_thread(self._ids.reserve)
        except (OSError, RuntimeError) as error:
            logger.warning("no producer ids can be given out: %s; writers make their own", error)
        finally:
            self._reserving = None

    def issue_id(self) -> int:
        """A producer id that no writer has had; 0 where there is none."""
        if self._ids is None or self.replica is not None:
            return 0
        if self._ids.is_low and self._reserving is None and not self._closing:
            self._reserving = self._spawn(self._reserve_ids())
        return self._ids.next()

    @contextmanager
    def _counting(self, on_copies: bool = False) -> Iterator[None]:
        """A request that changes something, and is counted where it is refused."""
        try:
            self._check_open()
            if not on_copies:
                self._check_original()
            yield
        except LogboomError as error:
            self.rejections.note(error)
            raise

    async def create_topic(
        self, name: str, partitions: int | None = None, settings: Settings | None = None, *, caller: Caller = EVERYBODY
    ) -> TopicInfo:
        with self._counting():
            return (await self._catalog.create(name, partitions, settings)).describe()

    async def configure_topic(self, name: str, settings: Settings, *, caller: Caller = EVERYBODY) -> TopicInfo:
        with self._counting():
            return (await self._catalog.configure(name, settings)).describe()

    async def describe_topic(self, name: str, create: bool = False, *, caller: Caller = EVERYBODY) -> TopicInfo:
        hosted = self._catalog.get(name)
        if hosted is None and create:
            with self._counting():
                hosted = await self._catalog.create(name, by="write")
        return (hosted or self._catalog.find(name)).describe()

    async def list_topics(
        self, prefix: str = "", internal: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[TopicInfo]:
        return [
            hosted.describe()
            async for some in slices(self._catalog.all())
            for hosted in some
            if hosted.topic.name.startswith(prefix) and (internal or not hosted.topic.name.startswith("_"))
        ]

    async def delete_topic(self, name: str, topic_id: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        with self._counting(self.replica is not None and self.replica.keeps(name)):
            _check_not_internal(name)
            await asyncio.shield(self._spawn(self._delete(name, topic_id)))  # who asked may wait no longer

    async def _delete(self, name: str, topic_id: str | None) -> None:
        hosted = await self._catalog.delete(name, topic_id)
        self._validation.drop(hosted)
        await self._its_cursors().forget_topic(hosted.topic.id)
        self._wake.set()

    async def trim(self, topic: str, partition: int | None, seqno: int, *, caller: Caller = EVERYBODY) -> PartitionInfo:
        with self._counting():
            _check_not_internal(topic, PIPELINE_TOPIC)
            hosted = self._catalog.find(topic)
            writer = hosted.writer(partition)
            self._check_accepted(hosted)
            number = hosted.writers.index(writer)
            await self._trim(writer, seqno, lambda: self.archives.first_of(hosted.topic.id, number, writer.log))
        self._wake.set()
        return hosted.describe_log(number)

    async def _trim(self, writer: LogWriter, seqno: int, first: Callable[[], int] | None = None) -> None:
        async with self._rounds.pause():
            if writer.gone is not None:
                raise said_again(writer.gone)
            appended = writer.log.trim(seqno, self.world.now_us(), first=None if first is None else first())
        await writer.durable(writer.due(appended.index))

    def append(
        self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller = EVERYBODY
    ) -> asyncio.Future[list[Answer]]:
        promise = Promise(self._loop, sum(len(part.batches) for part in parts), len(parts))
        offset = 0
        for part in parts:
            self._route(part, promise, offset, acks)
            offset += len(part.batches)
        return promise.future

    def _route(self, part: Part, promise: Promise, offset: int, acks: Acks | None) -> None:
        """From a part to the owner of its log."""
        try:
            self._check_open()
            self._check_original()
            if part.topic in self._making or (part.topic_id is None and self._catalog.get(part.topic) is None):
                self._route_later(part, promise, offset, acks)
                return
            hosted = self._admit(part)
            writer = hosted.writer(part.partition)
        except (WritesRefused, ReadOnlyReplica) as error:
            self._refuse(part, promise, offset, acks, error)
            return
        except LogboomError as error:
            self.rejections.note(error)
            promise.settle(offset, [error] * len(part.batches))
            return
        if not part.batches:
            promise.settle(offset, [])
            return
        settings = hosted.topic.settings
        entry = _entry(hosted, part, promise, offset, acks)
        if entry.is_staged:
            self._rounds.refuse(entry, MalformedBatch("its producer id is one that servers give to stages"))
            return
        if self._ids is not None and entry.issued_id > self._ids.highest:  # another node's: it may be a repeat
            forgotten = ProducerForgotten(entry.issued_id, part.batches[0].header.producer_seq)
            forgotten.fresh_id = self.issue_id()
            self._rounds.refuse(entry, forgotten)
            return
        if settings.validators.urls or writer in self._validation.lanes:
            self._validation.submit(hosted, part.partition or 0, writer, entry)
        else:
            writer.submit(entry)

    def _refuse(self, part: Part, promise: Promise, offset: int, acks: Acks | None, error: LogboomError) -> None:
        """Nothing is written any more; what was, and is sent again, is told where it is."""
        try:
            hosted = self._catalog.find(part.topic, part.topic_id)
            hosted.writer(part.partition).refuse(_entry(hosted, part, promise, offset, acks), error)
        except LogboomError:
            self.rejections.note(error)
            promise.settle(offset, [error] * len(part.batches))

    def _admit(self, part: Part) -> Hosted:
        """The topic of a part, where it may be written to."""
        self._check_open()
        self._check_original()
        hosted = self._catalog.find(part.topic, part.topic_id)
        self._check_accepted(hosted)
        # Who appends at a seqno that he names has read what is before it: that is what keeps this log in order.
        _check_not_internal(part.topic, PIPELINE_TOPIC if part.expect_seqno is not None else None)
        return hosted

    def _route_later(self, part: Part, promise: Promise, offset: int, acks: Acks | None) -> None:
        """The topic is not there yet: a write makes it, where the rules allow that."""
        if part.topic not in self._making:
            self.config.topics.admit(part.topic, len(self._catalog), self.limits, by_write=True)
            self._making[part.topic] = []
            self._spawn(self._make(part.topic))
        self._making[part.topic].append((part, promise, offset, acks))

    async def _make(self, name: str) -> None:
        error: LogboomError | None = None
        try:
            await self._catalog.create(name, by="write")
        except LogboomError as failure:
            error = failure
        except OSError as failure:
            error = LogboomError(f"topic {name!r} could not be made: {failure}")
        for part, promise, offset, acks in self._making.pop(name):
            if error is None:
                self._route(part, promise, offset, acks)
            else:
                self.rejections.note(said_again(error))
                promise.settle(offset, [error] * len(part.batches))

    async def open_stage(self, note: str = "", *, caller: Caller = EVERYBODY) -> StageInfo:
        with self._counting():
            if self._refused is not None:
                raise WritesRefused("the node", self._refused)
            return await self._stages.open(note)

    def stage(self, stage: str, parts: Sequence[Part], *, caller: Caller = EVERYBODY) -> asyncio.Future[list[Answer]]:
        return self._stages.stage(stage, parts)

    async def publish(self, key: PublishKey, stages: Sequence[Receipt], *, caller: Caller = EVERYBODY) -> Publication:
        with self._counting():
            return await self._its_publishing().publish(key, stages)

    async def discard(self, stages: Sequence[str], *, caller: Caller = EVERYBODY) -> int:
        self._check_open()
        return self._stages.discard(stages)

    async def list_stages(self, *, caller: Caller = EVERYBODY) -> list[StageInfo]:
        return self._stages.list()

    async def list_keys(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[KeyInfo]:
        return await self._its_publishing().list_keys(prefix)

    async def forget_key(self, name: str, *, caller: Caller = EVERYBODY) -> bool:
        with self._counting():
            return await self._its_publishing().forget(name)

    def _its_publishing(self) -> Publisher:
        if self._publishing is None:
            raise ShuttingDown("the node is starting")
        return self._publishing

    async def _keep_stages(self) -> None:
        """Throw away what nobody wants any more, until the broker is closed."""
        async with asyncio.TaskGroup() as group:
            tending = group.create_task(self._stages.tend())
            while not self._closing:
                try:
                    async with asyncio.timeout(EXPIRE_S):
                        await self._ending.wait()
                except TimeoutError:
                    with suppress(LogboomError):
                        await self._its_publishing().expire()
            tending.cancel()

    async def read(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> Chunk:
        position = await self._begin(request)
        return await self._reading.next(position, request.max_bytes, request.max_records, request.wait_ms)

    async def subscribe(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> LocalSubscription:
        position = await self._begin(request)
        self._reading.counts.subscriptions += 1
        return LocalSubscription(self._reading, position, request.max_records)

    async def _begin(self, request: ReadRequest) -> ReadPoint:
        self._check_open()
        hosted = self._catalog.find(request.topic, request.topic_id)
        partition = request.partition
        if partition is None and request.start.bookmark is not None:
            partition = Bookmark.parse(request.start.bookmark).partition
        writer = hosted.writer(partition)
        return await self._reading.begin(hosted.topic, writer, hosted.writers.index(writer), hosted.meter, request)

    async def commit_cursor(
        self,
        cursor: str,
        topic: str,
        partition: int | None,
        bookmark: str,
        force: bool = False,
        expect: str | None = None,
        *,
        caller: Caller = EVERYBODY,
    ) -> None:
        with self._counting():
            hosted = self._catalog.find(topic)
            place = Bookmark.parse(bookmark)
            writer = hosted.writer(place.partition if partition is None else partition)
            if place.topic_id == hosted.topic.id_bytes and place.seqno > writer.log.committed:
                raise BookmarkLost(place.seqno, place.term, writer.log.term)
            number = hosted.writers.index(writer)
            whose = cursor, topic, hosted.topic.id, number
            is_lost = partial(_is_lost, writer.log)
            await self._its_cursors().commit(*whose, bookmark, self.world.now_us(), force, expect, is_lost)

    async def fetch_cursor(
        self, cursor: str, topic: str, partition: int | None = None, *, caller: Caller = EVERYBODY
    ) -> str | None:
        hosted = self._catalog.find(topic)
        return self._its_cursors().fetch(cursor, topic, hosted.writers.index(hosted.writer(partition)))

    async def list_cursors(
        self, topic: str | None = None, prefix: str = "", *, caller: Caller = EVERYBODY
    ) -> list[CursorInfo]:
        return [
            with_lag(info, self._catalog)
            async for some in slices(await self._its_cursors().list(topic, prefix))
            for info in some
        ]

    async def delete_cursor(self, cursor: str, topic: str | None = None, *, caller: Caller = EVERYBODY) -> int:
        with self._counting():
            return await self._its_cursors().delete(cursor, topic)

    async def _fetch(self, cursor: str, topic: str, partition: int) -> str | None:
        return self._its_cursors().fetch(cursor, topic, partition)

    def _its_cursors(self) -> Cursors:
        if self._cursors is None:
            raise ShuttingDown("the node is starting")
        return self._cursors

    async def refuse(self, topic: str | None = None, reason: str = "", *, caller: Caller = EVERYBODY) -> None:
        reason = reason or "switched to read-only"
        if topic is None:
            self._refused = reason
        else:
            self._catalog.find(topic).refused = reason

    async def accept(self, topic: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        if topic is None:
            self._refused = None
        else:
            self._catalog.find(topic).refused = None

    async def stats(self, *, caller: Caller = EVERYBODY) -> NodeStats:
        replica = None if self.replica is None else self.replica.stats()
        return self.counters.stats(self._refused, replica, self.unreadable, self.watcher.disk)

    async def history(self, since: int = 0, *, caller: Caller = EVERYBODY) -> History:
        return self.watcher.history(since)

    async def activity(self, request: ActivityRequest, *, caller: Caller = EVERYBODY) -> Activity:
        return await self.watcher.activity(request)

    async def topic_history(self, topic: str, *, caller: Caller = EVERYBODY) -> TopicHistory:
        return await self.watcher.topic_history(topic)

    async def measures(self, *, caller: Caller = EVERYBODY) -> Measures:
        topics: dict[str, Measured] = {}
        async for some in slices(self._catalog.all()):
            topics.update((hosted.topic.name, hosted.meter.shown()) for hosted in some)
        protocols = {protocol: meter.shown() for protocol, meter in self.meters.items()}
        return Measures(topics, protocols, self._rounds.counts.sync.shown())

    async def segments(
        self, topic: str, partition: int | None = None, limit: int = 1000, *, caller: Caller = EVERYBODY
    ) -> list[SegmentInfo]:
        self._check_open()
        hosted = self._catalog.find(topic)
        writer = hosted.writer(partition)
        findings = self._upkeep.findings_of(hosted.topic.log_name(hosted.writers.index(writer)))
        while True:
            log = writer.log
            found = await self._segments.show(log, findings, limit)
            if writer.gone is not None:  # its files are, too
                raise said_again(writer.gone)
            if writer.log is log:
                return found

    async def incidents(self, *, caller: Caller = EVERYBODY) -> list[Incident]:
        return self.rejections.incidents.recent()

    async def feed(self, topic: str, partition: int | None, index: int, *, caller: Caller = EVERYBODY) -> LocalFeed:
        """See broker.api.Feeds."""
        self._check_open()
        _check_not_internal(topic)
        return await begin_feed(self._data, self._reading, self._catalog.find(topic), partition, index)

    def deleted(self, topic_ids: Sequence[str], *, caller: Caller = EVERYBODY) -> list[Deletion]:
        """See broker.api.Feeds."""
        return self._catalog.deletions.find(topic_ids)

    async def promote(self, *, caller: Caller = EVERYBODY) -> None:
        self._check_open()
        await asyncio.shield(self._spawn(self._take_over()))  # who asked may wait no longer

    async def _take_over(self) -> None:
        async with self._promoting:
            if self.replica is None:
                return
            await self.replica.take_over()
            logger.info("promoted: %s is copied no more", self.replica.role.source)
            self.replica, self._upkeep.retains, self._reading.is_copy = None, True, False
            if self._ids is not None:
                self._ids.outrun(self._seen_id())
            self._wake.set()

    def _check_open(self) -> None:
        if self._closing:
            raise ShuttingDown

    def replica_of(self) -> str | None:
        """Where it copies from; None where it takes writes."""
        return None if self.replica is None else self.replica.role.source

    def _check_original(self) -> None:
        if self.replica is not None:
            raise ReadOnlyReplica(self.replica.role.source)

    def _check_accepted(self, hosted: Hosted) -> None:
        if self._refused is not None:
            raise WritesRefused("the node", self._refused)
        if hosted.refused is not None:
            raise WritesRefused(f"topic {hosted.topic.name!r}", hosted.refused)

    def _wake_upkeep(self) -> None:
        self._loop.call_soon_threadsafe(self._wake.set)

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep_up(self) -> None:
        """Retention, hooks, recompression, scrubbing; as often as they ask for it."""
        while not self._closing:
            self._wake.clear()
            again_at: int | None = None
            if self._rounds.failure is None:
                try:
                    async with self._catalog.changing, self._rounds.pause():
                        again_at = self._upkeep.step(self.world.now_us())
                    if self._catalog.deletions.is_owed:
                        async with self._catalog.changing:
                            await asyncio.to_thread(self._catalog.deletions.settle)
                except Exception:
                    logger.exception("upkeep failed; it is tried again")
            every_s = self.config.upkeep.retention_every_ms / 1000
            wait_s = every_s if again_at is None else (again_at - self.world.now_us()) / 1e6
            if wait_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(min(wait_s, every_s)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _keep_state(self) -> None:
        """The disk learns from time to time what was synced of the logs, above all of those that are idle then.

        Twice after the last round: where a thread has a log, the state file learns of the round a little later.
        """
        synced = seen = -1
        while not self._closing and self._rounds.failure is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), STATE_SYNC_S)
            count = self._rounds.counts.syncs
            if count == synced or self._closing:
                continue
            try:
                await asyncio.to_thread(self._data.sync_state)
            except SyncFailed as error:
                self._rounds.fail(error, error.__cause__)
            synced, seen = seen, count

    async def close(self, deadline_s: float = 10.0) -> None:
        """Finish what was promised, sync, let go. Raises SyncFailed or TimeoutError where that could not be done."""
        if self._closing:
            return
        self._closing = self._reading.closing = True
        self._ending.set()
        for writer in self._rounds.writers:
            writer.wake()
        self._wake.set()
        self.watcher.stop()
        try:
            async with asyncio.timeout(deadline_s):
                await self._validation.close(deadline_s * VALIDATION_SHARE)
                if self._publishing is not None:
                    await self._publishing.close()
                await self._stages.close()
                if self._tasks:
                    await asyncio.wait(self._tasks)
                if self._cursors is not None:
                    await self._cursors.close()
                async with self._catalog.changing:  # what was begun is ended
                    await self._drain()
                await asyncio.to_thread(self._upkeep.close)
                with suppress(OSError):
                    await asyncio.to_thread(self._catalog.deletions.settle)
                await asyncio.to_thread(self._data.close)
        finally:
            self._listening.close()
            for pool in self._pools:
                pool.shutdown(wait=False)
        if self._rounds.failure is not None:
            raise SyncFailed(str(self._rounds.failure))

    async def _drain(self) -> None:
        """Until everything that was taken is synced and answered."""
        rounds = self._rounds
        while rounds.failure is None:
            unsynced = [writer for writer in rounds.writers if writer.has_work or writer.unsynced_bytes]
            if not unsynced and rounds.is_quiet:
                return
            for writer in unsynced:
                rounds.want(writer)
            await asyncio.sleep(0.002)


def _entry(hosted: Hosted, part: Part, promise: Promise, offset: int, acks: Acks | None) -> Entry:
    """As strong as the topic demands at least."""
    rules = hosted.topic.settings.acks
    wanted = acks or rules.default
    if _STRENGTH[wanted] < _STRENGTH[rules.least]:
        wanted = rules.least
    return Entry(promise, offset, part.batches, wanted, part.expect_seqno, hosted.meter)


def _is_lost(log: Log, place: Bookmark) -> bool:
    """Whether what stood before this place is not there any more."""
    term = term_before(log, place.seqno)
    return place.seqno > log.committed or place.before.differs(Term(term, log.lineage_of(term)))


def _check_not_internal(name: str, but: str | None = None) -> None:
    if name.startswith("_") and name != but:
        raise TopicNotAllowed(name, "internal topics are written by the node itself")
