"""The topics a node has, each with the owners of its logs.

A topic is here from when it exists on disk until its deletion begins. Making, changing and deleting topics takes long
(files, syncs): that runs on a thread, one at a time, and what it gives is taken up by the event loop, also where who
asked for it has gone away meanwhile: else a topic could be on disk and not here. Finding a topic is a look at a
dictionary.

A log that cannot be opened is its own trouble: it answers with why, its siblings go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from logboom.batch import BATCH_SIZE_MAX
from logboom.broker.allowances import Allowances
from logboom.broker.api import PIPELINE_TOPIC, PartitionInfo, TopicInfo
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.sync_rounds import SyncRounds, logger
from logboom.broker.caller import Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import said_again
from logboom.broker.monitor.measures import Meter
from logboom.broker.read.archives import Archives
from logboom.errors import (
    LogboomError,
    PartitionNotFound,
    StorageError,
    TopicBusy,
    TopicDeleted,
    TopicExists,
    TopicNotAllowed,
    TopicNotFound,
    TopicRecreated,
)
from logboom.storage.config import LogConfig
from logboom.storage.data.deletions import Deletions
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.near_names import near_names
from logboom.storage.data.topic import FlushSettings, Settings, Topic, unreadable_topics
from logboom.storage.log import Log
from logboom.storage.tail import Snapshot, new_lineage

Maker = Literal["user", "write", "node"]


@dataclass(slots=True, eq=False)
class Hosted:
    """A topic and its partitions."""

    topic: Topic
    writers: list[LogWriter | LogboomError]
    """The owner of each log, or why it cannot be opened."""
    refused: str | None = None
    meter: Meter = field(default_factory=Meter)
    archives: Archives = field(default_factory=Archives)
    allowed: Allowances = field(default_factory=Allowances)

    def writer(self, partition: int | None) -> LogWriter:
        """The owner of this partition's log; of the only one, where none is named."""
        writers = self.writers
        if partition is None and len(writers) == 1:
            partition = 0
        if partition is None or not 0 <= partition < len(writers):
            raise PartitionNotFound(self.topic.name, partition, len(writers))
        writer = writers[partition]
        if isinstance(writer, LogboomError):
            raise said_again(writer)
        return writer

    @property
    def numbered(self) -> list[tuple[int, LogWriter]]:
        """The owners of the logs that are open, by partition."""
        return [(number, writer) for number, writer in enumerate(self.writers) if isinstance(writer, LogWriter)]

    @property
    def open_writers(self) -> list[LogWriter]:
        return [writer for writer in self.writers if isinstance(writer, LogWriter)]

    def describe(self) -> TopicInfo:
        return TopicInfo(
            name=self.topic.name,
            id=self.topic.id,
            partitions=[self.describe_log(number) for number in range(len(self.writers))],
            settings=self.topic.settings,
            refused=self.refused,
            unusable=self.allowed.unusable(self.topic.settings),
        )

    def describe_log(self, number: int) -> PartitionInfo:
        writer = self.writers[number]
        if isinstance(writer, LogboomError):
            return PartitionInfo(number, 0, 0, 0, refusal=str(writer))
        log = writer.log
        first = self.archives.first_of(self.topic.id, number, log)
        return PartitionInfo(
            partition=number,
            first=first,
            committed=log.committed,
            next=log.next,
            floor=log.floor,
            size_bytes=log.size_bytes,
            segments=len(log.segments),
            newest=log.append_time if log.next else None,
            refusal=log.refusal,
            first_stored=None if first == log.first else log.first,
        )


class Catalog:
    def __init__(
        self,
        data: DataDirectory,
        rounds: SyncRounds,
        config: BrokerConfig,
        is_copy: bool = False,
        archives: Archives | None = None,
    ) -> None:
        self._archives = archives or Archives()
        self.is_copy = is_copy
        """Whether another node writes these topics: then no term begins here, and only what is synced is shown."""
        self._data = data
        self._rounds = rounds
        self._commitment = rounds.commitment
        self._world = rounds.world
        self._config = config
        self.terms_missing = 0
        """In how many logs the term that was to begin in them is not written down."""
        self._topics: dict[str, Hosted] = {}
        self.makers: Counter[str] = Counter()
        """How many of them each principal has made, as far as that is known."""
        self.check_quota: Callable[[Caller], None] = lambda caller: None
        """Raises where a caller may make no more."""
        self._internal: set[str] = set()
        self._half_made: set[str] = set()
        """Names of topics whose making failed, and whose directory could not be taken back either."""
        self.deletions = Deletions.open(data.files.disk, data.path)
        """Of topics that are here no more, for copies of this node."""
        self.watchers: set[Callable[[Hosted | None], None]] = set()
        """Called with a topic that has come; with None where somebody may read others than before."""
        self.changing = asyncio.Lock()
        """Held by whoever changes which topics there are, or what their logs are made of."""
        self._change: asyncio.Task[Hosted] | None = None
        self.busy: dict[str, set[tuple[str, int]]] = {}
        """Topics, by id, that records are being published to, with name and number: they cannot be deleted."""
        self._terms: dict[str, int] = {}
        """Terms that could not be written down, by the log's name: the next append does it."""

    def __len__(self) -> int:
        """Without the node's own topics."""
        return len(self._topics) - len(self._internal)

    def get(self, name: str) -> Hosted | None:
        return self._topics.get(name)

    def find(self, name: str, topic_id: str | None = None) -> Hosted:
        hosted = self._topics.get(name)
        if hosted is None:
            if topic_id is not None:
                raise TopicDeleted(name, topic_id)
            raise TopicNotFound(name, "this node", near_names(name, self._topics))
        if topic_id is not None and topic_id != hosted.topic.id:
            raise TopicRecreated(name, topic_id, hosted.topic.id)
        return hosted

    def check_there(self, name: str, is_shown: Callable[[str], bool]) -> None:
        """Raises TopicNotFound where there is none of this name, with near names of those that are shown."""
        if name not in self._topics:
            raise TopicNotFound(name, "this node", list(filter(is_shown, near_names(name, self._topics))))

    def tell(self, hosted: Hosted | None = None) -> None:
        for watcher in list(self.watchers):
            watcher(hosted)

    def all(self) -> list[Hosted]:
        """By name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def unsorted(self) -> list[Hosted]:
        """The same, at once."""
        return list(self._topics.values())

    def log_config(self, name: str, settings: Settings) -> LogConfig:
        """What a topic's logs are to be like. The limit is for what clients send, not for what a node keeps itself."""
        is_own = name.startswith("_") and name != PIPELINE_TOPIC
        most = BATCH_SIZE_MAX if is_own else self._config.limits.batch_bytes
        return replace(settings.log_config(), batch_bytes_max=most)

    def open_logs(self, takes_over: bool = False) -> dict[str, Log | LogboomError]:
        """Recover every log, many at a time; by its name. On a thread, before anything else.

        `takes_over` begins a term in all of them: they were another node's.
        """
        groups: dict[LogConfig, list[str]] = {}
        for topic in self._data.topics():
            groups.setdefault(self.log_config(topic.name, topic.settings), []).extend(topic.log_names)
        opened: dict[str, Log | LogboomError] = {}
        for config, names in groups.items():
            try:
                opened.update(zip(names, self._data.open_logs(names, config), strict=True))
            except (OSError, LogboomError):
                opened.update({name: self._open_one(name, config) for name in names})
        if takes_over or (self._data.owes_terms and not self.is_copy):
            topics = [topic for topic in self._data.topics() if takes_over or self._shows_written(topic.settings)]
            self._begin_terms({name: opened[name] for topic in topics for name in topic.log_names})
            self._data.sync_logs()
        if self._data.owes_terms:  # a copy shows only what is synced: nobody has seen what it lost
            unknown = self.terms_missing or unreadable_topics(self._data.files.disk, self._data.path)
            self._data.owes_terms = bool(unknown) and not self.is_copy
        return opened

    def _begin_terms(self, logs: Mapping[str, Log | LogboomError]) -> None:
        """Readers may have seen records that are not here: with flush = os an unclean end may have taken some back,
        and what was a copy may have ended before its source did. A new term tells them.

        It is written down at once: the next end may come, clean or not, before the next record does.
        """
        self.terms_missing = 0
        for name, log in logs.items():
            if not isinstance(log, Log) or log.refusal is not None:
                self.terms_missing += 1
            else:
                term = log.term + 1
                try:
                    log.begin_term(term, self._world.now_us(), new_lineage(self._world.chance))
                except LogboomError as error:
                    logger.warning("%s: term %d is not written down yet: %s", name, term, error)
                    self._terms[name] = term
                    self.terms_missing += 1

    def begin_terms(self) -> None:
        """In all logs: they were another node's. On a thread, while nobody else has them; to be synced afterwards."""
        logs: dict[str, Log | LogboomError] = {}
        for hosted in self._topics.values():
            for number, writer in enumerate(hosted.writers):
                logs[hosted.topic.log_name(number)] = writer.log if isinstance(writer, LogWriter) else writer
        self._begin_terms(logs)

    def take_over(self) -> list[LogWriter]:
        """The topics are this node's own from now on; the owners of their logs."""
        self.is_copy = False
        owned = []
        for hosted in self._topics.values():
            for number, writer in hosted.numbered:
                writer.configure(hosted.topic.settings)
                unwritten = self._terms.pop(hosted.topic.log_name(number), None)
                if unwritten is not None:
                    writer.begin_term(unwritten)
                owned.append(writer)
        return owned

    def _open_one(self, name: str, config: LogConfig) -> Log | LogboomError:
        try:
            return self._data.open_log(name, config)
        except (OSError, LogboomError) as error:
            logger.error("%s cannot be opened: %s", name, error)
            return error if isinstance(error, LogboomError) else StorageError(f"{name} cannot be opened: {error}")

    def host(self, topic: Topic, logs: dict[str, Log | LogboomError]) -> Hosted:
        """From now on the topic is here."""
        writers = [self._own(topic, number, logs[name]) for number, name in enumerate(topic.log_names)]
        hosted = self._topics[topic.name] = Hosted(
            topic, writers, archives=self._archives, allowed=self._config.allowed
        )
        if topic.maker:
            self.makers[topic.maker] += 1
        if topic.name.startswith("_"):
            self._internal.add(topic.name)
        self._rounds.writers.update(dict.fromkeys(hosted.open_writers))
        self.tell(hosted)
        return hosted

    def _own(self, topic: Topic, partition: int, log: Log | LogboomError) -> LogWriter | LogboomError:
        if isinstance(log, LogboomError):
            return log
        log.commit(self._commitment.durable_index(log))
        term = self._terms.pop(topic.log_name(partition), None)
        return LogWriter(f"{topic.name}/{partition}", log, self._written_as(topic), self._rounds, term)

    def _shows_written(self, settings: Settings) -> bool:
        """Whether readers of such a topic see what a crash may take back."""
        return self._commitment.commits_written(settings.flush)

    def _written_as(self, topic: Topic) -> Settings:
        """A copy that showed what it can lose would have to take it back from its readers."""
        if not self.is_copy:
            return topic.settings
        return msgspec.structs.replace(topic.settings, flush=FlushSettings("each"))

    async def create(
        self,
        name: str,
        partitions: int | None = None,
        settings: Settings | None = None,
        by: Maker = "user",
        caller: Caller | None = None,
    ) -> Hosted:
        """Whoever makes it by writing, or needs it for the node itself, may find that it is there.

        The topic counts for `caller`, where there is one.
        """
        return await self._finish(lambda: self._create(name, partitions, settings, by, caller))

    async def adopt(self, topic: Topic) -> Hosted:
        """A topic of the node that this one copies, with the id it has there. It may be here already."""
        return await self._finish(lambda: self._adopt(topic))

    async def begin_anew(self, hosted: Hosted, partition: int, snapshot: Snapshot) -> Hosted:
        """Put a log that begins with these numbers in the place of one, of which nobody waits for anything."""
        return await self._finish(lambda: self._begin_anew(hosted, partition, snapshot))

    async def configure(self, name: str, settings: Settings, by: Maker = "user") -> Hosted:
        """Settings of the node that this one copies are taken as they are."""
        if name in self._internal and by != "node":
            raise TopicNotAllowed(name, "internal topics are kept by the node itself: its settings stay as they are")
        return await self._finish(lambda: self._configure(name, settings, by))

    async def delete(self, name: str, topic_id: str | None) -> Hosted:
        return await self._finish(lambda: self._delete(name, topic_id))

    async def _finish(self, change: Callable[[], Coroutine[Any, Any, Hosted]]) -> Hosted:
        """One change at a time; what was begun is ended, though who asked for it may wait no longer."""
        await self.changing.acquire()
        self._change = asyncio.create_task(change())
        self._change.add_done_callback(lambda _: self.changing.release())
        return await asyncio.shield(self._change)

    async def _create(
        self, name: str, partitions: int | None, settings: Settings | None, by: Maker, caller: Caller | None
    ) -> Hosted:
        known = self._topics.get(name)
        if known is not None:
            if by == "user":
                raise TopicExists(name, known.topic.id)
            return known
        rules = self._config.topics
        count = rules.partitions if partitions is None else partitions
        topic = Topic.make(name, count, settings or rules.settings, chance=self._world.chance)
        if by != "node":
            rules.admit(name, len(self), self._config.limits, by == "write")
            self._config.allowed.check(topic.settings)
        if caller is not None:
            self.check_quota(caller)
            topic = msgspec.structs.replace(topic, maker=caller.principal)
        return await self._begin(topic)

    async def _adopt(self, topic: Topic) -> Hosted:
        known = self._topics.get(topic.name)
        return known if known is not None and known.topic.id == topic.id else await self._begin(topic)

    async def _begin(self, topic: Topic) -> Hosted:
        if self._rounds.failure is not None:
            raise said_again(self._rounds.failure)
        try:
            return self.host(topic, await asyncio.to_thread(self._make, topic))
        except (OSError, RuntimeError) as error:  # the last one: no thread could be made
            raise StorageError(f"topic {topic.name!r} could not be made: {error}") from error

    def _make(self, topic: Topic) -> dict[str, Log | LogboomError]:
        """On a thread. A topic whose logs cannot be made is taken back; if need be, when it is made the next time."""
        if topic.name in self._half_made:
            self._data.delete_topic(topic.name)
            self._half_made.discard(topic.name)
        self.deletions.take_back(topic.id)
        self._data.adopt_topic(topic)
        config, names = self.log_config(topic.name, topic.settings), topic.log_names
        try:
            return dict(zip(names, self._data.open_logs(names, config), strict=True))
        except Exception:
            self._half_made.add(topic.name)
            with suppress(OSError, LogboomError):
                self._data.delete_topic(topic.name)
                self._half_made.discard(topic.name)
            raise

    async def _begin_anew(self, hosted: Hosted, partition: int, snapshot: Snapshot) -> Hosted:
        writer, name = hosted.writer(partition), hosted.topic.log_name(partition)
        async with self._rounds.pause():
            if writer.gone is not None:
                raise said_again(writer.gone)
            config = self.log_config(hosted.topic.name, hosted.topic.settings)
            try:
                log = await asyncio.to_thread(self._data.begin_anew, name, snapshot, config)
            except OSError as error:
                raise StorageError(f"{writer.name} could not be begun anew: {error}") from error
            log.commit(self._commitment.durable_index(log))
            writer.begin_anew(log)
        return hosted

    async def _configure(self, name: str, settings: Settings, by: Maker) -> Hosted:
        hosted = self.find(name)
        if by != "node":
            self._config.allowed.check(settings, hosted.topic.settings)
        try:
            if not self._shows_written(settings):
                await self._sync_shown(hosted, settings)
            hosted.topic = await asyncio.to_thread(self._data.configure_topic, name, settings)
        except OSError as error:
            raise StorageError(f"the settings of topic {name!r} could not be written: {error}") from error
        finally:
            for writer in hosted.open_writers:
                writer.configure(self._written_as(hosted.topic))
        for writer in hosted.open_writers:
            writer.wake()  # whoever copies the log must learn of this
            writer.log.config = self.log_config(hosted.topic.name, settings)
            if writer.unsynced_bytes:
                self._rounds.want(writer)  # it may be waiting for longer than is allowed now
        return hosted

    async def _sync_shown(self, hosted: Hosted, settings: Settings) -> None:
        """Whoever starts after a crash must find flush = os as long as readers have seen what it may take back."""
        if self._shows_written(hosted.topic.settings):
            for writer in hosted.open_writers:
                writer.configure(settings)
            await asyncio.gather(*(writer.durable(writer.end) for writer in hosted.open_writers))

    async def _delete(self, name: str, topic_id: str | None) -> Hosted:
        hosted = self.find(name, topic_id)
        self._check_idle(hosted.topic)
        try:
            await asyncio.to_thread(self.deletions.add, hosted.topic, self._world.now_us())
        except OSError as error:
            raise StorageError(f"topic {name!r} could not be deleted: {error}") from error
        try:
            await self._take_away(hosted)
        finally:
            if name in self._topics:
                await asyncio.to_thread(self.deletions.take_back, hosted.topic.id)
        return hosted

    def _check_idle(self, topic: Topic) -> None:
        if topic.id in self.busy:
            raise TopicBusy(topic.name, min(self.busy[topic.id])[0])

    async def _take_away(self, hosted: Hosted) -> None:
        name = hosted.topic.name
        async with self._rounds.pause():
            self._check_idle(hosted.topic)
            del self._topics[name]
            self._uncount(hosted.topic)
            self._internal.discard(name)
            for writer in hosted.open_writers:
                self._rounds.writers.pop(writer, None)
                writer.leave(TopicDeleted(name, hosted.topic.id))
            try:
                await asyncio.to_thread(self._data.delete_topic, name)
            except OSError as error:
                await self._take_back(hosted)
                raise StorageError(f"topic {name!r} could not be deleted: {error}") from error

    def _uncount(self, topic: Topic) -> None:
        if topic.maker:
            self.makers[topic.maker] -= 1
            if not self.makers[topic.maker]:
                del self.makers[topic.maker]

    async def _take_back(self, hosted: Hosted) -> None:
        """A deletion has failed: where the topic is still there on disk, it is here again."""
        topic = hosted.topic
        with suppress(TopicNotFound):
            self._data.topic(topic.name)
            config = self.log_config(topic.name, topic.settings)
            logs = await asyncio.to_thread(lambda: {name: self._open_one(name, config) for name in topic.log_names})
            self.host(topic, logs).refused = hosted.refused
