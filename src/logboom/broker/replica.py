"""A broker that is a copy of another node: what whoever does the copying may change here, and nobody else.

Topics have the name, id, partitions and settings they have at the source; logs hold the source's own batches, *equal*
but for how they are compressed and when they were synced. They go through the logs' owners as appends do, so committed
here means synced here. A log follows its source only as far as it is known to be the same: the last batch that both
have is compared before anything is added, and a difference is ReplicaDiverged.

Where retention at the source was quicker than the copying, a log begins anew behind the gap: seqnos stay what they are.

Taking over is written down before it has any effect. A crash in the middle leaves a copy, or a node that has taken over
and begins the missing terms at its next start.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from logboom.batch import Batch
from logboom.batch.rewrite import equal
from logboom.broker.access.access_state import AccessState
from logboom.broker.api import Answer, FeedOrigin, ReplicaStats
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import AwaitedPromise, CopiedEntry
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.limits import said_again
from logboom.broker.state.cursors import CursorKey, Cursors
from logboom.errors import (
    BatchError,
    DirectoryUnusable,
    LogboomError,
    RemoteProtocolError,
    ReplicaDiverged,
    StorageError,
    TopicDeleted,
    TopicRecreated,
)
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.role import Role, is_copying, read_role, write_role
from logboom.storage.data.topic import Topic
from logboom.storage.log import Log
from logboom.storage.run import Run
from logboom.storage.tail import Snapshot, known_lineage

NOT_COPYING: Final = (
    "nothing is copied: start the node with --replicate-from {source} to go on, or let it take writes with "
    "`logboom promote`"
)


def claim_role(data: DataDirectory, wanted: Role | None) -> Role | None:
    """What a directory is from now on: what it was, or, where it may become that, the copy that is wanted."""
    disk, path = data.files.disk, data.path
    role = read_role(disk, path)
    if wanted is None:
        return role
    if role is not None:
        check_role(path, role, wanted)
    elif any(not topic.name.startswith("_") for topic in data.topics()):
        raise DirectoryUnusable(
            f"{path} has topics of its own and cannot become a copy of {wanted.source}: name an empty directory, "
            "or start without replicate_from"
        )
    if role != wanted:
        write_role(disk, path, wanted)
    return wanted


def check_role(path: str, role: Role, wanted: Role) -> None:
    """Raises where a directory cannot be the copy that is wanted."""
    if role.promoted:
        raise DirectoryUnusable(
            f"{path} was promoted and holds writes of its own: start it without replicate_from; "
            f"for another copy of {wanted.source} name an empty directory"
        )
    if role.node_id != wanted.node_id:
        raise DirectoryUnusable(
            f"{path} is a copy of node {role.node_id}, and at {wanted.source} is node {wanted.node_id}: "
            "name the address of the former, or an empty directory"
        )


def recover_logs(data: DataDirectory, catalog: Catalog, role: Role | None) -> dict[str, Log | LogboomError]:
    """On a thread. Logs that were another node's begin a term: once, where that can be written down in all of them."""
    if role is None or not role.promoted or role.settled:
        return catalog.open_logs()
    logs = catalog.open_logs(takes_over=True)
    if not catalog.terms_missing:
        write_role(data.files.disk, data.path, msgspec.structs.replace(role, settled=True))
    return logs


class Replica:
    def __init__(
        self,
        data: DataDirectory,
        catalog: Catalog,
        rounds: SyncRounds,
        cursors: Callable[[], Cursors],
        delete: Callable[[str, str | None], Awaitable[None]],
        role: Role,
        access: AccessState,
        groups: Callable[[], Coordinator],
    ) -> None:
        assert is_copying(role)
        self.role = role
        self.stats: Callable[[], ReplicaStats] = self._idle_stats
        """How the copying goes; whoever does it says so."""
        self.stop: Callable[[], Awaitable[None]] = _nothing
        """Ends the copying; returns when what has come is synced."""
        self.kept: dict[str, str] = {}
        """Ids by name, of topics that the source has no more and was not told to delete."""
        self._data = data
        self._catalog = catalog
        self._rounds = rounds
        self._cursors = cursors
        self._delete = delete
        self._access = access
        self._groups = groups
        self.copies_access = False
        """Whether users and rules are the source's. Until it gives them, and where it does not, they are our own."""
        self._standings: dict[CursorKey, str] | None = None
        """The cursors as they are here, by what they are called; None where that must be looked up."""

    def _idle_stats(self) -> ReplicaStats:
        return ReplicaStats(self.role.source, False, 0, {}, error=NOT_COPYING.format(source=self.role.source))

    def topics(self) -> list[Topic]:
        return [hosted.topic for hosted in self._catalog.all() if not hosted.topic.name.startswith("_")]

    def log(self, topic: str, topic_id: str, partition: int) -> Log | None:
        """None where it is not here yet."""
        hosted = self._catalog.get(topic)
        if hosted is None or hosted.topic.id != topic_id:
            return None
        with suppress(LogboomError):
            return hosted.writer(partition).log
        return None

    def keeps(self, topic: str) -> bool:
        """Whether this is a topic that only an operator can remove, and here: the source does not have it."""
        hosted = self._catalog.get(topic)
        return hosted is not None and self.kept.get(topic) == hosted.topic.id

    async def delete(self, topic: Topic) -> None:
        """It was deleted at the source."""
        self._standings = None
        with suppress(TopicDeleted, TopicRecreated):
            await self._delete(topic.name, topic.id)

    async def begin(self, origin: FeedOrigin) -> LogCopy:
        """Make the log ready for the batches that follow. Nothing may be on its way into it."""
        if origin.topic.startswith("_"):
            raise RemoteProtocolError(f"{origin.topic}: internal topics are not copied")
        hosted = await self._topic(origin)
        writer = hosted.writer(origin.partition)
        if origin.snapshot:
            snapshot = Snapshot.decode(origin.snapshot)
            if snapshot is None or snapshot.next_index != origin.index:
                raise RemoteProtocolError(f"{writer.name}: the source sent no snapshot of batch {origin.index}")
            if origin.index == writer.log.last_index + 1:
                _check_follows(writer, snapshot)
            elif origin.index > writer.log.last_index:
                _check_beyond(writer, snapshot)
                await self._catalog.begin_anew(hosted, origin.partition, snapshot)
        return LogCopy(writer, hosted, origin.index)

    async def _topic(self, origin: FeedOrigin) -> Hosted:
        made = Topic.make(origin.topic, origin.partitions, origin.settings, origin.topic_id)
        wanted = msgspec.structs.replace(made, maker=origin.maker)
        hosted = self._catalog.get(wanted.name)
        if hosted is not None and hosted.topic.id != wanted.id:
            raise TopicRecreated(wanted.name, hosted.topic.id, wanted.id)  # whether this one may go, its source says
        if hosted is None:
            return await self._catalog.adopt(wanted)
        if hosted.topic.partitions != wanted.partitions:
            raise ReplicaDiverged(wanted.name, 0, f"it has {wanted.partitions} partitions there")
        if hosted.topic.settings != wanted.settings:
            return await self._catalog.configure(wanted.name, wanted.settings, "node")
        return hosted

    async def drop(self, firsts: Mapping[tuple[str, int], int]) -> None:
        """Drop whole segments below what the source calls first, by topic and partition."""
        due = [(log, first) for key, first in firsts.items() if (log := self._log(*key)) and _may_drop(log, first)]
        if not due:
            return
        async with self._catalog.changing, self._rounds.pause():
            for log, first in due:
                if log.closed or log.refusal is not None:
                    continue
                if first >= log.next and log.committed_index == log.last_index:
                    log.roll()
                log.drop(first)

    def _log(self, topic: str, partition: int) -> Log | None:
        hosted = self._catalog.get(topic)
        with suppress(LogboomError):
            return None if hosted is None else hosted.writer(partition).log
        return None

    async def set_cursors(self, found: Mapping[CursorKey, str], now: int, is_same: Callable[[str, int], bool]) -> bool:
        """Make the cursors what they are at the source; False where some stand at what has not come yet.

        Such a cursor stays where it is: whoever goes on here after a take-over must find what it stands at. So do those
        of logs that are not known to be the same: a source that came back from a backup knows less of them.
        """
        if self._standings is None:
            self._standings = {
                (info.cursor, info.topic, info.partition): info.bookmark for info in await self._cursors().list()
            }
        here = self._standings
        moved = {key: bookmark for key, bookmark in found.items() if here.get(key) != bookmark}
        ready = {
            key: bookmark
            for key, bookmark in moved.items()
            if is_same(*key[1:]) and self._holds(key, Bookmark.parse(bookmark))
        }
        gone = {key for key in here.keys() - found.keys() if is_same(*key[1:]) or not self._is_of_ours(key, here[key])}
        if ready or gone:
            self._standings = None  # until it is known that this was written
            await self._cursors().copy(ready | dict.fromkeys(gone), now)
            self._standings = {key: bookmark for key, bookmark in (here | ready).items() if key not in gone}
        return len(ready) == len(moved) and not here.keys() - found.keys() - gone

    async def set_access(self, entries: Mapping[bytes, bytes]) -> None:
        """Make users, tokens, roles, rules and quotas what they are at the source."""
        await self._access.copy(entries)

    async def set_groups(self, entries: Mapping[bytes, bytes]) -> None:
        """Make groups of consumers what they are at the source: who is a member, who holds what."""
        await self._groups().copy(entries)

    def _is_of_ours(self, key: CursorKey, bookmark: str) -> bool:
        """Whether its log is here."""
        return self.log(key[1], Bookmark.parse(bookmark).topic_id.hex(), key[2]) is not None

    def _holds(self, key: CursorKey, place: Bookmark) -> bool:
        """Whether what stands before this place is here."""
        _, topic, partition = key
        log = self.log(topic, place.topic_id.hex(), partition)
        return log is not None and place.partition == partition and place.seqno <= log.committed

    async def take_over(self) -> None:
        """Copy no more, and begin a term in every log. Where this fails it may be called again."""
        if self._rounds.failure is not None:
            raise said_again(self._rounds.failure)
        await self.stop()
        await self._write_role(msgspec.structs.replace(self.role, promoted=True))
        async with self._catalog.changing, self._rounds.pause():
            await asyncio.to_thread(self._catalog.begin_terms)
            writers = self._catalog.take_over()
        await asyncio.gather(*(writer.durable(writer.end) for writer in writers))
        if not self._catalog.terms_missing:  # else the next start sees to them
            await self._write_role(msgspec.structs.replace(self.role, settled=True))

    async def _write_role(self, role: Role) -> None:
        try:
            await asyncio.to_thread(write_role, self._data.files.disk, self._data.path, role)
        except OSError as error:
            raise StorageError(f"it could not be written down that this node takes over: {error}; try again") from error
        self.role = role


class LogCopy:
    """One log, from where its source goes on with it."""

    def __init__(self, writer: LogWriter, hosted: Hosted, index: int) -> None:
        self.name = writer.name
        self._writer = writer
        self._hosted = hosted
        self._index = index
        """Of the batch that comes next."""
        self._known = writer.log.last_index
        """Up to here it was here already."""
        self.is_same = index > self._known or not self._known
        """Whether nothing is here that is not there; until the last batch that both have is compared, nobody knows."""

    @property
    def committed(self) -> int:
        return self._writer.log.committed

    def check_end(self, committed_index: int) -> None:
        """Raises ReplicaDiverged where the source has less than was here."""
        if committed_index < self._known:
            raise ReplicaDiverged(self.name, self._known, "the log ends before it there")

    async def take(self, data: memoryview) -> Future[list[Answer]]:
        """Take batches of the source; the future has an answer for each that is new, when it is synced.

        Raises ReplicaDiverged where what both have is not the same.
        """
        new: list[Batch] = []
        for batch in self._parse(data):
            index = batch.header.index
            if index > self._known:
                new.append(batch)
            elif index == self._known:
                await self._compare(batch)
        promise = AwaitedPromise(asyncio.get_running_loop(), len(new), 1 if new else 0)
        if new:
            self._writer.submit(CopiedEntry(promise, 0, new, "durable", None, self._hosted.meter))
        return promise.future

    def _parse(self, data: memoryview) -> Iterator[Batch]:
        offset = 0
        while offset < len(data):
            try:
                batch = Batch.parse(data[offset:])
            except BatchError as error:
                raise RemoteProtocolError(f"{self.name}: the source sent what is no batch: {error}") from None
            if batch.header.index != self._index:
                raise RemoteProtocolError(
                    f"{self.name}: the source sent batch {batch.header.index} where {self._index} comes next"
                )
            offset += batch.header.size
            self._index += 1
            yield batch

    async def _compare(self, batch: Batch) -> None:
        log, header = self._writer.log, batch.header
        if self._known >= log.first_index:
            same = await asyncio.to_thread(_same, log.read_index(self._known, 1), batch)
        else:  # dropped here; what the log knows of its end is left
            same = (header.next_seqno, header.term, header.append_time) == (log.next, log.term, log.append_time)
        if not same:
            raise ReplicaDiverged(self.name, self._known, "it is another one there")
        self.is_same = True


def _same(run: Run | None, batch: Batch) -> bool:
    try:
        return run is not None and equal(next(run.batches()), batch)
    except BatchError as error:
        raise RemoteProtocolError(f"the source sent a batch that is not sound: {error}") from None


def _check_follows(writer: LogWriter, snapshot: Snapshot) -> None:
    """The source begins where the copy ends: then both say the same of the batch before."""
    log = writer.log
    end = log.next, log.term, log.append_time
    if (snapshot.next_seqno, snapshot.term, snapshot.append_time) != end or _is_elsewhere(log, snapshot):
        raise ReplicaDiverged(writer.name, log.last_index, "it was another one there")


def _check_beyond(writer: LogWriter, snapshot: Snapshot) -> None:
    """The source begins behind a gap: then its numbers there are not below what the copy has already."""
    log = writer.log
    if snapshot.next_seqno < log.next or snapshot.term < log.term or snapshot.append_time < log.append_time:
        raise ReplicaDiverged(writer.name, log.last_index, "what follows it there is older")
    if _is_elsewhere(log, snapshot):
        raise ReplicaDiverged(writer.name, log.last_index, f"term {log.term} was begun by another node there")


def _is_elsewhere(log: Log, snapshot: Snapshot) -> bool:
    """Whether the term in which the copy ends is another one there."""
    there, here = known_lineage(snapshot.lineages, log.term), log.lineage_of(log.term)
    return bool(there and here and there != here)


def _may_drop(log: Log, first: int) -> bool:
    segments = log.segments
    if len(segments) > 1 and segments[1].first_seqno <= first:
        return True
    return bool(log.active_bytes) and first >= log.next and log.committed_index == log.last_index


async def _nothing() -> None:
    """There is nothing to end."""
