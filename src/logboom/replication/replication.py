"""A node that copies another one: finds the source, keeps up with it, and says how far behind it is.

Every second the source is asked for its logs and cursors, and for users and rules if they have changed. What it has and
this node has not is asked for. What it lacks is deleted here only where it says that somebody deleted it there: it may
have come back from an older backup. Segments go, and cursors move, with those of the source only where the log is known
to be the same. Batches come over connections of their own, see replica_carrier. Where the source is gone, or the
connection, it is tried again for ever; one that is another node than the first time is left alone, whatever it has.

Closing stops the copying; when `close` returns, what has come is synced. `Replica.take_over` does that first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from logboom.broker.api import ReplicaStats
from logboom.broker.local import LocalBroker
from logboom.broker.replica import NOT_COPYING, Replica, check_role
from logboom.client.link.backoff import Backoff
from logboom.errors import AccessError, ConfigError, DirectoryUnusable, LogboomError, Unavailable
from logboom.protocols.endpoint import Endpoint
from logboom.replication.access_copier import AccessCopier
from logboom.replication.carrier import Carrier, FollowedLog, Held, logger
from logboom.replication.facts import (
    SourceLog,
    read_cursors,
    read_deleted,
    read_identity,
    read_topics,
    read_unreadable,
    tells_access,
    tells_deletions,
    tells_groups,
)
from logboom.replication.group_copier import GroupCopier
from logboom.replication.source_access import ReplicateSettings, parse_source, write_source
from logboom.replication.source_link import SourceLink
from logboom.storage.data.role import Role, is_copying, read_role
from logboom.storage.data.topic import Topic
from logboom.storage.files.disk import OsDisk

FIRST_START_S: Final = 10.0
"""So long the first start of a replica waits for its source."""
POLL_S: Final = 1.0
POLL_SHARE: Final = 0.05
"""Of the time, at most, is spent on asking: many logs or cursors are asked for less often."""
LAG_LOGS_MAX: Final = 10
_KEPT: Final = (
    "topic {topic} is kept: the source does not have it, and does not say that it was deleted there; "
    "`logboom topic delete {topic}` on this node removes it"
)
KEPT_MAX: Final = 100
"""So many topics are named that the source does not have."""
ASKED_MAX: Final = 100
"""So many topics are asked about in one line."""


async def prepare(
    address: str | None,
    directory: str,
    cluster_id: str | None = None,
    settings: ReplicateSettings = ReplicateSettings(),  # noqa: B008
) -> Role | None:
    """What a node is to open its directory as, before it does: the copy of whoever is at this address.

    Without an address None; then the directory itself knows what it is. Raises ConfigError or DirectoryUnusable, and,
    where the source of a new replica does not answer, Unavailable, or where it does not know it an AccessError.
    """
    role = await asyncio.to_thread(_role_of, directory)
    if address is None:
        if role is not None and is_copying(role):
            logger.warning("%s is a replica: %s", directory, NOT_COPYING.format(source=role.source))
        return None
    source = parse_source(address)
    if role is not None:
        check_role(directory, role, msgspec.structs.replace(role, source=write_source(source)))
    try:
        wanted = await _identify(source, FIRST_START_S if role is None else 0.0, settings)
    except (Unavailable, AccessError) as error:
        if role is None and isinstance(error, AccessError):
            raise
        if role is None:
            raise Unavailable(f"a replica needs its source when it is started for the first time: {error}") from None
        return msgspec.structs.replace(role, source=write_source(source))
    if role is not None:
        check_role(directory, role, wanted)
    if cluster_id not in (None, wanted.cluster_id):
        raise ConfigError(
            "cluster_id", f"is {cluster_id}, and {source} is of cluster {wanted.cluster_id}: leave it out"
        )
    return wanted


def _role_of(directory: str) -> Role | None:
    return read_role(OsDisk(directory, read_only=True), directory) if os.path.isdir(directory) else None


async def _identify(source: Endpoint, patience_s: float, settings: ReplicateSettings) -> Role:
    """Who is there, tried again and again for so long."""
    clock, backoff = asyncio.get_running_loop().time, Backoff(immediate=0)
    gives_up_at = clock() + patience_s
    while True:
        try:
            link = await SourceLink.connect(source, settings=settings)
            try:
                return Role(write_source(source), *read_identity(await link.ask("STATS")))
            finally:
                link.close()
        except Unavailable:
            if clock() >= gives_up_at:
                raise
        await asyncio.sleep(backoff.next_s())


class Replication:
    def __init__(self, replica: Replica, source: Endpoint, settings: ReplicateSettings) -> None:
        self._replica = replica
        self._source = source
        self._settings = settings
        self._where = write_source(source)
        self._logs: dict[str, FollowedLog] = {}
        self._carriers: list[Carrier] = []
        self._held = Held()
        self._access = AccessCopier(replica)
        self._groups = GroupCopier(replica)
        self._connected = False
        self._heard_at: int | None = None
        self._error: str | None = None
        self._unreadable: frozenset[str] = frozenset()
        """Ids of topics that the source has and cannot serve: what is here of them may be all there is."""
        self._tells_deletions = False
        self._cursors_said: bytes | None = None
        """What the source said last, where all of it is done."""
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    def start(cls, broker: LocalBroker, settings: ReplicateSettings = ReplicateSettings()) -> Replication:  # noqa: B008
        """Begin to copy, for a broker that was opened as a replica."""
        replica = broker.replica
        if replica is None:
            raise DirectoryUnusable(f"{broker.directory} is no replica")
        replication = cls(replica, parse_source(replica.role.source), settings)
        replica.stats, replica.stop = replication.stats, replication.close
        replication._task = asyncio.create_task(replication._run(), name="logboom-replication")
        return replication

    async def close(self) -> None:
        """When this returns nothing is copied any more, and what has come is synced. May be called again."""
        self._closing = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def stats(self) -> ReplicaStats:
        lags = {name: lag for name, followed in self._logs.items() if (lag := self._lag(followed.listed))}
        most = sorted(lags, key=lags.__getitem__, reverse=True)[:LAG_LOGS_MAX]
        kept = sorted(self._replica.kept)
        return ReplicaStats(
            source=self._where,
            connected=self._connected,
            lag_records=sum(lags.values()),
            lag_logs={name: lags[name] for name in most},
            heard=self._heard_at,
            error=NOT_COPYING.format(source=self._where) if self._closing else self._error or self._trouble(),
            kept=kept[:KEPT_MAX],
            kept_topics=len(kept),
            access=self._access.state,
        )

    def _lag(self, listed: SourceLog) -> int:
        log = self._replica.log(listed.topic, listed.topic_id, listed.partition)
        return max(0, listed.committed - (listed.first if log is None else max(log.committed, listed.first)))

    def _trouble(self) -> str | None:
        errors = [followed.error for followed in self._logs.values() if followed.error is not None]
        return f"{errors[0]} (and {len(errors) - 1} more)" if len(errors) > 1 else errors[0] if errors else None

    def _hear(self) -> None:
        self._heard_at = time.time_ns() // 1000

    async def _run(self) -> None:
        backoff = Backoff(immediate=0)
        while not self._closing:  # a cancellation that meets an error is not seen
            try:
                await self._follow(backoff.reset)
            except* LogboomError as group:
                self._note(_first(group))
            except* Exception as group:
                logger.exception("copying failed; it is tried again", exc_info=group)
                self._note(_first(group))
            if not self._closing:
                await asyncio.sleep(backoff.next_s())

    def _note(self, error: BaseException) -> None:
        if str(error) != self._error:
            logger.warning("%s", error)
        self._error = str(error)

    async def _follow(self, begun: Callable[[], None]) -> None:
        """As long as the source answers."""
        link = await SourceLink.connect(self._source, self._hear, self._settings)
        try:
            stats = await link.ask("STATS")
            self._check_source(*read_identity(stats))
            self._unreadable = read_unreadable(stats)
            self._tells_deletions = tells_deletions(stats)
            async with asyncio.TaskGroup() as carrying:
                self._connected, self._error = True, None
                logger.info("copying from %s", self._where)
                self._access.begin(link.has_signed_in, tells_access(stats))
                self._groups.begin(tells_groups(stats))
                begun()
                await self._watch(link, carrying)
        finally:
            self._connected = False
            for carrier in self._carriers:
                carrier.abandon()
            self._carriers.clear()
            link.close()

    def _check_source(self, node_id: str, cluster_id: str) -> None:
        role = self._replica.role
        check_role("this node", role, Role(self._where, node_id, cluster_id))

    async def _watch(self, link: SourceLink, carrying: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            await self._reconcile(link, read_topics(await link.ask("TOPICS")))
            await self._want(carrying)
            await self._copy_cursors(await link.ask("CURSORS"))
            await self._access.copy(link)
            await self._groups.copy(link)
            await self._drop()
            await asyncio.sleep(max(POLL_S, (clock() - began) / POLL_SHARE))

    async def _reconcile(self, link: SourceLink, listed: list[SourceLog]) -> None:
        """What was deleted at the source goes; what it has is followed, unless another topic has that name here."""
        ids = {log.topic: log.topic_id for log in listed}
        lacking = [
            topic
            for topic in self._replica.topics()
            if ids.get(topic.name) != topic.id and topic.id not in self._unreadable
        ]
        deleted = await self._ask_deleted(link, lacking)
        for topic in lacking:
            if topic.id in deleted:
                logger.info("topic %s, id %s, was deleted at the source: deleted", topic.name, topic.id)
                await self._replica.delete(topic)
        self._keep([topic for topic in lacking if topic.id not in deleted])
        before, self._logs = self._logs, {}
        for log in listed:
            followed = before.get(log.name)
            if followed is None or followed.listed.topic_id != log.topic_id:
                followed = FollowedLog(log)
            else:
                followed.listed = log
            if log.topic in self._replica.kept:
                followed.error = f"{log.name}: {_KEPT.format(topic=log.topic)}, and has another one of that name"
            self._logs[log.name] = followed

    async def _ask_deleted(self, link: SourceLink, topics: list[Topic]) -> frozenset[str]:
        """The ids of those that were deleted at the source, as far as it can tell."""
        found: frozenset[str] = frozenset()
        for at in range(0, len(topics) if self._tells_deletions else 0, ASKED_MAX):
            ids = " ".join(topic.id for topic in topics[at : at + ASKED_MAX])
            found |= read_deleted(await link.ask(f"DELETED {ids}"))
        return found

    def _keep(self, topics: list[Topic]) -> None:
        for topic in topics:
            if topic.name not in self._replica.kept:
                logger.warning("%s", _KEPT.format(topic=topic.name))
        self._replica.kept = {topic.name: topic.id for topic in topics}

    async def _want(self, carrying: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time()
        self._carriers = [carrier for carrier in self._carriers if not carrier.has_ended]
        for followed in self._logs.values():
            if followed.carrier is not None or followed.diverged or followed.retry_at > now:
                continue
            if followed.listed.topic in self._replica.kept:
                continue
            carrier = next((carrier for carrier in self._carriers if carrier.has_room), None)
            if carrier is None:
                link = await SourceLink.connect(self._source, self._hear, self._settings)
                carrier = Carrier(link, self._replica, self._held)
                self._carriers.append(carrier)
                carrying.create_task(carrier.run())
            carrier.add(followed)

    async def _copy_cursors(self, body: memoryview) -> None:
        said = bytes(body)
        if said == self._cursors_said:
            return
        self._cursors_said = None
        if await self._replica.set_cursors(read_cursors(body), time.time_ns() // 1000, self._same):
            self._cursors_said = said

    async def _drop(self) -> None:
        logs = [followed.listed for followed in self._logs.values() if followed.is_same]
        await self._replica.drop({(log.topic, log.partition): log.first for log in logs})

    def _same(self, topic: str, partition: int) -> bool:
        """Whether this log is known to be what the source has."""
        followed = self._logs.get(f"{topic}/{partition}")
        return followed is not None and followed.is_same


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
