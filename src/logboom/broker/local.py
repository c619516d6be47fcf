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
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from logboom.access.quota import OUT_OF
from logboom.batch import Batch
from logboom.broker.access.access_admin import AccessAdmin
from logboom.broker.access.access_rules import AccessRules
from logboom.broker.access.access_state import FILE as ACCESS_FILE
from logboom.broker.access.access_state import LIMIT as ACCESS_LIMIT
from logboom.broker.access.access_state import TOPIC as ACCESS_TOPIC
from logboom.broker.access.access_state import AccessState
from logboom.broker.access.audit_trail import TOPIC as AUDIT_TOPIC
from logboom.broker.access.audit_trail import AuditTrail
from logboom.broker.access.audited_acts import audited
from logboom.broker.access.local_access import LocalAccess
from logboom.broker.access.metered_reads import MeteredFeed, MeteredSubscription
from logboom.broker.access.quotas import Quotas
from logboom.broker.access.sign_in import SignIn
from logboom.broker.access.write_screen import WriteScreen
from logboom.broker.admission import Admission, check_not_internal
from logboom.broker.api import (
    PIPELINE_TOPIC,
    AccessStats,
    Acks,
    Activity,
    ActivityRequest,
    Answer,
    Chunk,
    CursorInfo,
    CursorMove,
    History,
    Incident,
    KeyInfo,
    LogPlace,
    Measures,
    NodeStats,
    Outcome,
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
from logboom.broker.append.id_issuer import IdIssuer
from logboom.broker.append.router import MAKE_TOPIC, AppendRouter
from logboom.broker.append.sync_rounds import SyncRounds, logger
from logboom.broker.append.validation import Validation, Validators
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.catalog import Catalog
from logboom.broker.chores import Chores, drain
from logboom.broker.config import BrokerConfig
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.groups.group_entry import FILE as GROUPS_FILE
from logboom.broker.groups.group_entry import LIMIT as GROUPS_LIMIT
from logboom.broker.groups.group_entry import TOPIC as GROUPS_TOPIC
from logboom.broker.groups.group_report import GroupReport
from logboom.broker.groups.group_reset import GroupResets
from logboom.broker.groups.local_groups import LocalGroups
from logboom.broker.groups.member_calls import MemberCalls
from logboom.broker.monitor.counters import Counters
from logboom.broker.monitor.discretion import discreet_incident, discreet_replica
from logboom.broker.monitor.incidents import listening
from logboom.broker.monitor.lags import list_with_lags
from logboom.broker.monitor.segments import SegmentLists
from logboom.broker.monitor.watcher import Watcher, look_at_volume
from logboom.broker.publish.key_book import LIMIT as PUBLISH_LIMIT
from logboom.broker.publish.moves import CursorMoves, WantedMoves
from logboom.broker.publish.publisher import FILE as PUBLISH_FILE
from logboom.broker.publish.publisher import TOPIC as PUBLISH_TOPIC
from logboom.broker.publish.publisher import Publisher
from logboom.broker.publish.stages import Stages
from logboom.broker.queues.lease_entry import FILE as QUEUES_FILE
from logboom.broker.queues.lease_entry import LIMIT as QUEUES_LIMIT
from logboom.broker.queues.lease_entry import TOPIC as QUEUES_TOPIC
from logboom.broker.queues.local_queues import LocalQueues
from logboom.broker.queues.queue_state import QueueState
from logboom.broker.queues.queues import Queues
from logboom.broker.read.archives import Archives
from logboom.broker.read.feed import begin_feed
from logboom.broker.read.log_names import LogNames
from logboom.broker.read.log_reader import LocalSubscription, LogReader, ReadPoint
from logboom.broker.read.topic_reads import TopicReads
from logboom.broker.recovered import describe_recovery, describe_topics
from logboom.broker.replica import Replica, claim_role, recover_logs
from logboom.broker.rules import ObjectKind, Right, Rules
from logboom.broker.state.cursors import FILE as CURSORS_FILE
from logboom.broker.state.cursors import LIMIT as CURSORS_LIMIT
from logboom.broker.state.cursors import OF_GROUP, Cursors, check_name
from logboom.broker.state.cursors import TOPIC as CURSORS_TOPIC
from logboom.broker.state.homes import StateHome, append_to, open_state
from logboom.broker.state.internal_log import StateLog
from logboom.broker.state.log_cursors import commit_in
from logboom.broker.topics import Topics
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.broker.world import REAL, World
from logboom.errors import LogboomError, NotAllowed, ShuttingDown, SyncFailed
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.deletions import Deletion
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.role import Role, is_copying
from logboom.storage.data.topic import FlushSettings, unreadable_topics
from logboom.storage.files.disk import Disk

WRITE_THREADS: Final = 2
STAGE_THREADS: Final = 4
VALIDATION_SHARE: Final = 0.5
"""Of the time there is for closing: for validators; the rest is the disk's."""
CLOCKS_APART_US: Final = 60_000_000
"""The clock of a node that is copied may be ahead by so much."""
Result = TypeVar("Result")


@audited
class LocalBroker(LocalAccess, LocalGroups, LocalQueues):
    """Implements broker.api.Broker; see there for what the methods promise."""

    def __init__(
        self,
        data: DataDirectory,
        config: BrokerConfig,
        validators: Validators | None = None,
        role: Role | None = None,
        world: World = REAL,
        rules: Rules | None = None,
    ) -> None:
        """`rules` are for tests: else users and rules that the node keeps decide."""
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
        self._access = AccessState()
        secrets = world.threads(1, "logboom-sign-in")
        self._pools += (secrets,)
        is_open = config.anonymous == "all"
        decides = AccessRules(self._access, is_open, world.now_us)
        self.sign_in = SignIn(self._access, secrets, world, is_required=not is_open)
        """For front-ends: who somebody is."""
        self.audit = AuditTrail(world, config.is_audited)
        decides.on_refusal, self.sign_in.on_failure = self.audit.note_refusal, self.audit.note_failure
        self.sign_in.on_stranger = self.audit.note_stranger
        self._rules = rules = rules or decides
        self.quotas = quotas = Quotas(self._access, world.monotonic_s)
        """How much anybody may take; front-ends ask how long somebody is to rest."""
        quotas.makers, catalog.check_quota = catalog.makers, quotas.check_topics
        self._admin = AccessAdmin(self._access, rules, decides, self.sign_in, quotas, world)
        self._reading = LogReader(loop, reads, config.limits, self._fetch, archives)
        self._topic_reads = TopicReads(self._reading, catalog, rules)
        self._access.on_change.append(catalog.tell)
        self._segments = SegmentLists(loop, reads)
        self._validation = Validation(loop, reads, self._rounds, validators, config.allowed.validators)
        self._admission = admission = Admission(self.rejections, None if role is None or role.promoted else role.source)
        self._ids = IdIssuer(self._rounds, admission, self._spawn)
        self._validation.on_refusal = decides.on_refusal
        writing = catalog, self._rounds, self._validation, admission
        self._router = AppendRouter(loop, *writing, self._ids, config, self._spawn, rules, quotas)
        self._router.on_made = self.audit.note_act
        self._wake, self._ending = asyncio.Event(), asyncio.Event()
        self._topics = Topics(*writing, archives, self._its_cursors, self._wake)
        wake_upkeep = partial(loop.call_soon_threadsafe, self._wake.set)
        self._upkeep = Upkeep(data, config.upkeep, wake_upkeep, archives=archives, allowed=config.allowed, world=world)
        archives.on_change = self._wake.set
        self._cursors: Cursors | None = None
        self._groups: Coordinator | None = None
        self._queues: Queues | None = None
        staging = world.threads(STAGE_THREADS, "logboom-stage")
        self._pools += (staging,)
        self._stages = Stages(
            *(loop, staging, data.files, f"{self.directory}/staging", config.limits, self.rejections),
            *(self._router.admit, self._validation.judge, world),
        )
        self._publishing: Publisher | None = None
        self._moves = CursorMoves(catalog, self._its_cursors, world.now_us, self)
        """Cursors that publishes move."""
        self._chores = Chores(
            *(data, config, catalog, self._rounds, self._upkeep, self._stages, self._its_publishing),
            *(admission, self._wake, self._ending),
        )
        self.counters = counters = Counters(
            *(data.node, self.started, config.limits, catalog, self._rounds, self._reading, self._upkeep),
            *(self._stages, lambda: self._publishing, self._access.__len__),
            lambda: {} if self._groups is None else self._groups.counted(),
            lambda: {} if self._queues is None else self._queues.counted(),
        )
        self.connections, self.meters = counters.connections, counters.meters
        self.describe_access: Callable[[], AccessStats | None] = lambda: None
        """Who reaches the node that has this broker."""
        volume = partial(look_at_volume, self.directory)
        self.watcher = Watcher(counters, lambda: self._cursors, volume, config.reserve_bytes, world)
        self.replica: Replica | None = None
        """While the node is a copy of another one: for whoever does the copying."""
        if role is not None and not role.promoted:
            self.replica = Replica(
                data,
                catalog,
                self._rounds,
                self._its_cursors,
                self._topics.delete,
                role,
                self._access,
                self._its_groups,
            )
            self._reading.is_copy = True
        self._rounds.counts.issue_id = self.issue_id
        self._promoting = asyncio.Lock()
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
        rules: Rules | None = None,
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
            broker = cls(data, config, validators, role, world, rules)
            ears.enter_context(listening(broker.rejections.incidents))
            logs = await asyncio.to_thread(recover_logs, data, broker._catalog, role)
            for topic in data.topics():
                broker._catalog.host(topic, logs)
            broker.unreadable = await asyncio.to_thread(unreadable_topics, data.files.disk, data.path)
            here = [*broker.unreadable, *(topic.id for topic in data.topics())]
            await asyncio.to_thread(broker._catalog.deletions.take_back, *here)
            broker.recovered = [
                *describe_topics(data, broker.unreadable, config.allowed),
                *describe_recovery(data, logs, world.monotonic_s() - began),
            ]
            await broker._open_states()
            await broker._ids.open(data, world.now_us() // 1000)
        except BaseException:
            ears.close()
            await asyncio.to_thread(data.close)
            raise
        broker._listening = ears
        for chore in broker._chores.begin():
            broker._spawn(chore)
        broker._spawn(broker.watcher.run())
        broker._spawn(broker._its_groups().run())
        return broker

    async def _open_states(self) -> None:
        """What the node keeps for itself; and what was published before is finished."""
        opened = partial(open_state, self._data, self._catalog, self._rounds, self._topics.trim_log)
        self._cursors = Cursors(
            await opened(StateHome(CURSORS_TOPIC, CURSORS_FILE, (CURSORS_LIMIT, self.limits.cursors)))
        )
        self._access.load(
            await opened(StateHome(ACCESS_TOPIC, ACCESS_FILE, (ACCESS_LIMIT, self.limits.access_entries)))
        )
        await self._open_audit()
        await self._catalog.create(PIPELINE_TOPIC, 1, Settings(flush=FlushSettings("each")), "node")
        await asyncio.to_thread(self._stages.find_all)
        keys = await opened(StateHome(PUBLISH_TOPIC, PUBLISH_FILE, (PUBLISH_LIMIT, sys.maxsize)))  # Publishing counts
        self._publishing = Publisher(
            *(keys, self._stages, self._catalog, self._cursors, self._data.files.space),
            *(self._router.admit, self._validation.judge, self.limits, self.world),
        )
        self.recovered[-1:-1] = await self._publishing.recover(asyncio.to_thread)  # what was opened is said last
        self._open_groups(
            await opened(StateHome(GROUPS_TOPIC, GROUPS_FILE, (GROUPS_LIMIT, self.limits.groups))), self._cursors
        )
        blocks = await opened(StateHome(QUEUES_TOPIC, QUEUES_FILE, (QUEUES_LIMIT, sys.maxsize)))  # QueueState counts
        await self._open_queues(QueueState(blocks, self.limits.queue_blocks, self.world), self._its_groups())

    def _open_groups(self, state: StateLog, cursors: Cursors) -> None:
        about = self._catalog, self._topic_reads, self.limits, self.world
        self._groups = Coordinator(state, cursors, *about, self.replica is not None, self._spawn)
        self._members, self._group_resets = MemberCalls(self._groups), GroupResets(self._groups)
        self._group_report = GroupReport(self._groups, cursors, self._catalog, self.world.monotonic_s)

    async def _open_queues(self, state: QueueState, groups: Coordinator) -> None:
        about = self._reading, self._rules, self._router.append, self._spawn
        self._queues = queues = Queues(state, groups, *about)
        groups.on_gone, groups.on_forgotten = queues.note_gone, queues.forget_group
        self._group_report.queued_of = queues.standings
        self._topics.on_deleted = self._forget_topic
        if self.replica is None:
            await queues.tidy(self.unreadable)

    async def _forget_topic(self, topic_id: str) -> None:
        self._its_groups().forget_topic(topic_id)
        await self._its_queues().forget_topic(topic_id)

    async def _open_audit(self) -> None:
        if self.audit.is_on:
            settings = self.config.audit.topic_settings
            hosted = await self._catalog.create(AUDIT_TOPIC, 1, settings, "node")
            if hosted.topic.settings != settings:
                await self._catalog.configure(AUDIT_TOPIC, settings, "node")
            self._spawn(self.audit.run(partial(append_to, self._rounds, hosted)))

    def _ask(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        """Raises what the rules raise, and counts it. Whoever does not see all topics is not told names of others."""
        try:
            self._rules.check(caller, right, kind, name)
            if kind == "topic" and name and right != "create" and not self._rules.sees_all(caller, kind):
                self._catalog.check_there(name, lambda other: self._rules.allows(caller, "describe", "topic", other))
        except LogboomError as error:
            self.rejections.note(error)
            raise

    def _sieve(self, caller: Caller, kind: ObjectKind) -> Callable[[str], bool] | None:
        """Which objects of a kind the caller may know of; None where that is all."""
        if self._rules.sees_all(caller, kind):
            return None
        return lambda name: self._rules.allows(caller, "describe", kind, name)

    def issue_id(self) -> int:
        """A producer id that no writer has had; 0 where there is none."""
        return self._ids.issue()

    async def create_topic(
        self, name: str, partitions: int | None = None, settings: Settings | None = None, *, caller: Caller = EVERYBODY
    ) -> TopicInfo:
        self._ask(caller, "create", "topic", name)
        return await self._topics.create(name, partitions, settings, caller)

    async def configure_topic(self, name: str, settings: Settings, *, caller: Caller = EVERYBODY) -> TopicInfo:
        self._ask(caller, "configure", "topic", name)
        return await self._topics.configure(name, settings)

    async def describe_topic(self, name: str, create: bool = False, *, caller: Caller = EVERYBODY) -> TopicInfo:
        is_new = create and self._catalog.get(name) is None
        if is_new:
            self._rules.check(caller, "describe", "topic", name)
            self._ask(caller, "create", "topic", name)
        else:
            self._ask(caller, "describe", "topic", name)
        found = await self._topics.describe(name, create, caller)
        if is_new:
            self.audit.note_act(caller, MAKE_TOPIC, name)
        return found

    async def list_topics(
        self, prefix: str = "", internal: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[TopicInfo]:
        self._ask(caller, "describe", "topic")
        return await self._topics.list(prefix, internal, self._sieve(caller, "topic"))

    async def delete_topic(self, name: str, topic_id: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        self._ask(caller, "delete", "topic", name)
        with self._admission.counting(self.replica is not None and self.replica.keeps(name)):
            check_not_internal(name)
            await self._settle_publishes()
            await asyncio.shield(self._spawn(self._topics.delete(name, topic_id)))  # who asked may wait no longer

    async def trim(self, topic: str, partition: int | None, seqno: int, *, caller: Caller = EVERYBODY) -> PartitionInfo:
        self._ask(caller, "delete", "topic", topic)
        return await self._topics.trim(topic, partition, seqno)

    def append(
        self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller = EVERYBODY
    ) -> asyncio.Future[list[Answer]]:
        return self._router.append(parts, acks, caller)

    def append_then(
        self, parts: Sequence[Part], acks: Acks | None, then: Callable[[Outcome], None], *, caller: Caller = EVERYBODY
    ) -> None:
        self._router.append_then(parts, acks, then, caller)

    async def open_stage(self, note: str = "", *, caller: Caller = EVERYBODY) -> StageInfo:
        self._ask(caller, "create", "transaction")
        with self._admission.counting():
            self._admission.check_node()
            return await self._stages.open(note)

    def stage(self, stage: str, parts: Sequence[Part], *, caller: Caller = EVERYBODY) -> asyncio.Future[list[Answer]]:
        try:
            for part in parts:
                self._ask(caller, "write", "topic", part.topic)
        except LogboomError as error:
            refused: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        if self.quotas.is_on:
            self.quotas.charge_parts(caller, parts)
        return self._stages.stage(stage, parts, WriteScreen.of(self._rules, caller))

    async def publish(
        self,
        key: PublishKey,
        stages: Sequence[Receipt],
        moves: Sequence[CursorMove] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> Publication:
        self._ask(caller, "write", "transaction", key.name)
        with self._admission.counting():
            wanted = self._want_moves(moves, caller)
            checks = partial(self._check_stage, caller), partial(self._look_through, caller)
            done = await self._its_publishing().publish(key, stages, *checks, wanted)
        return self._shown(done, caller)

    def _want_moves(self, moves: Sequence[CursorMove], caller: Caller) -> WantedMoves | None:
        """Who moves a cursor may commit it. Of a group's its coordinator says so."""
        wanted = self._moves.want(moves, caller)
        for move in moves:
            if not move.member:
                self._ask(caller, "write", "cursor", move.cursor)
            self._ask(caller, "read", "topic", move.topic)
        return wanted

    def _shown(self, done: Publication, caller: Caller) -> Publication:
        """Without topics that the caller may not know of: what he repeats, others may have published."""
        knows = self._sieve(caller, "topic")
        if knows is None or done.parts is None:
            return done
        return msgspec.structs.replace(done, parts=[part for part in done.parts if knows(part.topic)])

    def _check_stage(self, caller: Caller, stage: str, topics: set[str]) -> None:
        """Who publishes it writes to its topics, whoever has filled it, and whatever he was allowed then."""
        if not all(self._rules.allows(caller, "write", "topic", topic) for topic in topics):
            raise NotAllowed(caller.principal, "write", "transaction", stage)

    async def _look_through(self, caller: Caller, batches: Iterable[Batch]) -> LogboomError | None:
        """So it is with channels and tags of its records."""
        screen = WriteScreen.of(self._rules, caller)
        return None if screen is None else await self._validation.look_through(screen, batches)

    async def publish_batches(
        self,
        key: PublishKey,
        parts: Sequence[Part],
        moves: Sequence[CursorMove] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> Publication:
        self._ask(caller, "write", "transaction", key.name)
        for part in parts:
            self._ask(caller, "write", "topic", part.topic)
        if self.quotas.is_on:
            self.quotas.charge_parts(caller, parts)
        with self._admission.counting():
            wanted = self._want_moves(moves, caller)
            screen = WriteScreen.of(self._rules, caller)
            done = await self._its_publishing().publish_batches(key, parts, screen, wanted)
        return self._shown(done, caller)

    async def _settle_publishes(self) -> None:
        """What is published holds its topics no longer. Where that cannot be written down, whoever asks is told."""
        if self._publishing is not None:
            with suppress(LogboomError):
                await self._publishing.keys.settle()

    async def discard(self, stages: Sequence[str], *, caller: Caller = EVERYBODY) -> int:
        for stage in stages:
            self._ask(caller, "delete", "transaction", stage)
        self._admission.check_open()
        return self._stages.discard(stages)

    async def list_stages(self, *, caller: Caller = EVERYBODY) -> list[StageInfo]:
        self._ask(caller, "describe", "transaction")
        sees, knows = self._sieve(caller, "transaction"), self._sieve(caller, "topic")
        if sees is None or knows is None:
            return self._stages.list()
        shown = [info for info in self._stages.list() if sees(info.id)]
        known = ([log for log in info.logs if knows(log.rpartition("/")[0])] for info in shown)
        return [msgspec.structs.replace(info, logs=logs) for info, logs in zip(shown, known, strict=True)]

    async def list_keys(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[KeyInfo]:
        self._ask(caller, "describe", "transaction")
        found = await self._its_publishing().list_keys(prefix)
        sees, knows = self._sieve(caller, "transaction"), self._sieve(caller, "topic")
        if sees is None or knows is None:
            return found
        shown = [info for info in found if sees(info.name)]
        known = ({topic: each for topic, each in info.topics.items() if knows(topic)} for info in shown)
        return [msgspec.structs.replace(info, topics=topics) for info, topics in zip(shown, known, strict=True)]

    async def forget_key(self, name: str, *, caller: Caller = EVERYBODY) -> bool:
        self._ask(caller, "delete", "transaction", name)
        with self._admission.counting():
            return await self._its_publishing().forget(name)

    def _its_publishing(self) -> Publisher:
        if self._publishing is None:
            raise ShuttingDown("the node is starting")
        return self._publishing

    async def read(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> Chunk:
        quotas, most = self.quotas, request.max_bytes
        if quotas.is_on:
            await quotas.rest(caller, OUT_OF)
            most = quotas.read_bytes(caller, most)
        position = await self._begin(request, caller)
        chunk = await self._reading.next(position, most, request.max_records, request.wait_ms)
        if request.wait_ms:
            self._ask(caller, "read", "topic", request.topic)  # that may have changed meanwhile
        if quotas.is_on:
            quotas.charge(caller, bytes_out=len(chunk.data), records_out=chunk.record_count)
        return chunk

    async def subscribe(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> MeteredSubscription:
        if request.whole:
            self._ask_whole(request, caller)
            return MeteredSubscription(await self._topic_reads.subscribe(request, caller), self.quotas, caller)
        position = await self._begin(request, caller)
        self._reading.counts.subscriptions += 1
        subscription = LocalSubscription(self._reading, position, request.max_records)
        return MeteredSubscription(subscription, self.quotas, caller)

    async def locate(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> list[LogPlace]:
        self._ask_whole(request, caller)
        return await self._topic_reads.locate(request, caller)

    def _ask_whole(self, request: ReadRequest, caller: Caller) -> None:
        """For all that is named; what fits a pattern is asked for one by one."""
        names = LogNames.parse(request.topic)
        if names.patterns:
            self._ask(caller, "read", "topic")
        for name in names.exact:
            self._ask(caller, "read", "topic", name.topic)
            hosted = self._catalog.find(name.topic)
            if name.partition is not None:
                hosted.writer(name.partition)
        if request.start.cursor is not None:
            self._ask(caller, "read", "cursor", request.start.cursor)
        self._admission.check_open()

    async def _begin(self, request: ReadRequest, caller: Caller) -> ReadPoint:
        self._ask(caller, "read", "topic", request.topic)
        restriction = self._rules.restriction(caller, "read")
        if request.start.cursor is not None:
            self._ask(caller, "read", "cursor", request.start.cursor)
        self._admission.check_open()
        hosted = self._catalog.find(request.topic, request.topic_id)
        partition = request.partition
        if partition is None and request.start.bookmark is not None:
            partition = Bookmark.parse(request.start.bookmark).partition
        writer = hosted.writer(partition)
        point = await self._reading.begin(hosted.topic, writer, hosted.writers.index(writer), hosted.meter, request)
        point.restriction, point.restrict = restriction, partial(self._rules.restriction, caller, "read")
        point.check_reader = partial(self._rules.check, caller, "read", "topic", request.topic)
        return point

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
        self._ask(caller, "write", "cursor", cursor)
        self._ask(caller, "read", "topic", topic)
        with self._admission.counting():
            hosted = self._catalog.find(topic)
            check_name(cursor)
            move = CursorMove(cursor, topic, partition, bookmark, expect, force)
            await commit_in(hosted, self._its_cursors(), move, self.world.now_us())

    async def fetch_cursor(
        self, cursor: str, topic: str, partition: int | None = None, *, caller: Caller = EVERYBODY
    ) -> str | None:
        self._ask(caller, "read", "cursor", cursor)
        self._ask(caller, "read", "topic", topic)
        hosted = self._catalog.find(topic)
        check_name(cursor)
        return self._its_cursors().fetch(cursor, topic, hosted.writers.index(hosted.writer(partition)))

    async def list_cursors(
        self, topic: str | None = None, prefix: str = "", *, caller: Caller = EVERYBODY
    ) -> list[CursorInfo]:
        self._ask(caller, "describe", "cursor")
        found = await list_with_lags(self._its_cursors(), self._catalog, topic, prefix)
        sees, knows, of_group = (self._sieve(caller, kind) for kind in ("cursor", "topic", "group"))

        def is_shown(info: CursorInfo) -> bool:
            """Whose name begins with OF_GROUP is the place of a group."""
            name = info.cursor.removeprefix(OF_GROUP)
            may_know = sees if name == info.cursor else of_group
            return (may_know is None or may_know(name)) and (knows is None or knows(info.topic))

        return found if sees is knows is of_group is None else [info for info in found if is_shown(info)]

    async def delete_cursor(self, cursor: str, topic: str | None = None, *, caller: Caller = EVERYBODY) -> int:
        self._ask(caller, "delete", "cursor", cursor)
        with self._admission.counting():
            check_name(cursor)
            return await self._its_cursors().delete(cursor, topic)

    async def _fetch(self, cursor: str, topic: str, partition: int) -> str | None:
        check_name(cursor)
        return self._its_cursors().fetch(cursor, topic, partition)

    def _its_cursors(self) -> Cursors:
        if self._cursors is None:
            raise ShuttingDown("the node is starting")
        return self._cursors

    async def refuse(self, topic: str | None = None, reason: str = "", *, caller: Caller = EVERYBODY) -> None:
        self._ask(caller, "manage", "node" if topic is None else "topic", topic or "")
        self._topics.switch(topic, reason or "switched to read-only")

    async def accept(self, topic: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        self._ask(caller, "manage", "node" if topic is None else "topic", topic or "")
        self._topics.switch(topic, None)

    async def stats(self, *, caller: Caller = EVERYBODY) -> NodeStats:
        self._ask(caller, "describe", "node")
        replica = None if self.replica is None else self.replica.stats()
        if replica is not None and not self._rules.gives_all(caller, "describe", "topic"):
            replica = discreet_replica(replica, partial(self._rules.allows, caller, "describe", "topic"))
        found = self.counters.stats(self._admission.refused, replica, self.unreadable, self.watcher.disk)
        return msgspec.structs.replace(found, access=self.describe_access(), quotas=self.quotas.stats())

    async def history(self, since: int = 0, *, caller: Caller = EVERYBODY) -> History:
        self._ask(caller, "describe", "node")
        return self.watcher.history(since)

    async def activity(self, request: ActivityRequest, *, caller: Caller = EVERYBODY) -> Activity:
        self._ask(caller, "describe", "topic")
        return await self.watcher.activity(request, self._sieve(caller, "topic"))

    async def topic_history(self, topic: str, *, caller: Caller = EVERYBODY) -> TopicHistory:
        self._ask(caller, "describe", "topic", topic)
        return await self.watcher.topic_history(topic)

    async def measures(self, *, caller: Caller = EVERYBODY) -> Measures:
        self._ask(caller, "describe", "topic")
        return await self.counters.measures(self._sieve(caller, "topic"))

    async def segments(
        self, topic: str, partition: int | None = None, limit: int = 1000, *, caller: Caller = EVERYBODY
    ) -> list[SegmentInfo]:
        self._ask(caller, "describe", "topic", topic)
        self._admission.check_open()
        hosted = self._catalog.find(topic)
        writer = hosted.writer(partition)
        findings = self._upkeep.findings_of(hosted.topic.log_name(hosted.writers.index(writer)))
        return await self._segments.show_of(writer, findings, limit)

    async def incidents(self, *, caller: Caller = EVERYBODY) -> list[Incident]:
        self._ask(caller, "describe", "node")
        found = self.rejections.incidents.recent()
        return found if self._rules.gives_all(caller, "describe", "topic") else list(map(discreet_incident, found))

    @property
    def _keeps_users(self) -> bool:
        return self.replica is None or not self.replica.copies_access

    async def feed(self, topic: str, partition: int | None, index: int, *, caller: Caller = EVERYBODY) -> MeteredFeed:
        """See broker.api.Feeds."""
        self._ask(caller, "read", "topic", topic)
        check_reader = partial(self._check_copier, caller, topic)
        check_reader()
        self._admission.check_open()
        check_not_internal(topic)
        feed = await begin_feed(self._data, self._reading, self._catalog.find(topic), partition, index)
        feed.check_reader = check_reader
        return MeteredFeed(feed, self.quotas, caller)

    def _check_copier(self, caller: Caller, topic: str) -> None:
        """A copy has all records, or it is none."""
        self._rules.check(caller, "read", "topic", topic)
        if self._rules.restriction(caller, "read") is not None:
            error = NotAllowed(caller.principal, "copy", "topic", topic, "rules on channels or tags leave records out")
            self.rejections.note(error)
            raise error

    def deleted(self, topic_ids: Sequence[str], *, caller: Caller = EVERYBODY) -> list[Deletion]:
        """See broker.api.Feeds."""
        self._ask(caller, "describe", "topic")
        sees, found = self._sieve(caller, "topic"), self._catalog.deletions.find(topic_ids)
        return found if sees is None else [deletion for deletion in found if sees(deletion.name)]

    async def promote(self, *, caller: Caller = EVERYBODY) -> None:
        self._ask(caller, "manage", "node")
        self._admission.check_open()
        await asyncio.shield(self._spawn(self._take_over()))  # who asked may wait no longer

    async def _take_over(self) -> None:
        async with self._promoting:
            if self.replica is None:
                return
            await self.replica.take_over()
            logger.info("promoted: %s is copied no more", self.replica.role.source)
            self.replica, self._admission.source = None, None
            self._upkeep.retains, self._reading.is_copy = True, False
            self._its_groups().take_over()
            self._ids.outrun()
            await self._its_publishing().keys.forget_until(self.world.now_us() + CLOCKS_APART_US)
            self._wake.set()

    def replica_of(self) -> str | None:
        """Where it copies from; None where it takes writes."""
        return self._admission.source

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, deadline_s: float = 10.0) -> None:
        """Finish what was promised, sync, let go. Raises SyncFailed or TimeoutError where that could not be done."""
        if self._admission.closing:
            return
        self._admission.closing = self._reading.closing = True
        self.quotas.close()
        self._ending.set()
        for writer in self._rounds.writers:
            writer.wake()
        self._wake.set()
        self._catalog.tell()
        self.watcher.stop()
        if self._groups is not None:
            self._groups.end()
        if self._queues is not None:
            self._queues.end()
        try:
            async with asyncio.timeout(deadline_s):
                await self._validation.close(deadline_s * VALIDATION_SHARE)
                if self._publishing is not None:
                    await self._publishing.close()
                await self._stages.close()
                self.audit.close()
                if self._tasks:
                    await asyncio.wait(self._tasks)
                if self._queues is not None:
                    await self._queues.close()
                if self._groups is not None:
                    await self._groups.close()
                if self._cursors is not None:
                    await self._cursors.close()
                await self._access.close()
                async with self._catalog.changing:  # what was begun is ended
                    await drain(self._rounds)
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
