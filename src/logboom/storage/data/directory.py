"""A data directory: one writer, the `state` file, and the logs below it.

    DATA/node.json   node id, cluster id, format version; another's, or a newer format, is refused
    DATA/lock        held while open; says who holds it, whether the last shut-down was clean, and if terms are owed
    DATA/state       where every log stands
    DATA/topics/<name>~<topic id, 32 hex digits>/<partition>/    one log each
    DATA/trash/      what deleted topics left

A log is a path whose last two parts carry its identity. Logs are opened concurrently, because opening is mostly waiting
for the disk.

An unclean end may have taken back what readers of a log with flush = os have seen: a new term tells them. Until every
such log has one, durably, the directory is never called clean again, whoever opens and closes it meanwhile.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Final

import msgspec

from logboom.errors import DirectoryUnusable, SyncFailed, TopicExists, TopicNotFound
from logboom.storage.config import LogConfig
from logboom.storage.data.near_names import near_names
from logboom.storage.data.state import StateFile
from logboom.storage.data.topic import Settings, Topic, read_topics, take_back_topic, write_topic
from logboom.storage.files.disk import Disk, File, OsDisk, read_file, replace_file
from logboom.storage.files.envelope import UNREADABLE
from logboom.storage.files.open_files import RESERVE_BYTES, OpenFiles
from logboom.storage.log import Log
from logboom.storage.means import SYSTEM, Means, new_id
from logboom.storage.recovery import begin_log
from logboom.storage.segment import parse_name
from logboom.storage.tail import Snapshot

FORMAT: Final = 1
OPEN_THREADS: Final = 16
HOLDER_SIZE: Final = 64
_TOPIC_ID: Final = re.compile(r"~([0-9a-f]{32})$")
_IDENTITY: Final = re.compile(r"(?:.*/)?[^/]*~([0-9a-f]{32})/(\d+)/*")


class NodeIdentity(msgspec.Struct, frozen=True):
    """Whose directory this is."""

    node_id: str
    cluster_id: str = ""
    """Empty only in a file that an earlier release wrote, until the next writer opens the directory."""
    format: int = FORMAT


class Holder(msgspec.Struct, frozen=True):
    """What the lock file says: the process that writes here, and how it left the directory.

    Releases that do not know `closed` take a directory that owes terms for one with an unclean end, and begin them.
    """

    pid: int
    clean: bool
    """Whether it closed the directory properly, and no log is owed a term."""
    closed: bool = False
    """Whether it closed the directory properly."""

    @property
    def is_done(self) -> bool:
        """Whether nobody has the directory open, and everything of it is on disk."""
        return self.clean or self.closed


class DataDirectory:
    def __init__(
        self,
        path: str,
        disk: Disk,
        files: OpenFiles,
        lock: File,
        node: NodeIdentity,
        left: Holder,
        means: Means = SYSTEM,
    ) -> None:
        self.path = path
        self.files = files
        self.node = node
        self.means = means
        self.was_clean = left.is_done
        """Whether whoever wrote here last closed it properly; true for a new directory."""
        self.owes_terms = not left.clean
        """Whether a term is to begin in the logs with flush = os. Whoever has begun it in all of them, and synced that,
        says False here; until then no close calls the directory clean.
        """
        self._disk = disk
        self._lock: File | None = lock
        self._state = StateFile.open(disk, f"{path}/state")
        self._logs: dict[str, Log] = {}
        self._topics = {topic.name: topic for topic in read_topics(disk, path)}
        self._failure: str | None = None
        self.release_trash()

    @classmethod
    def open(
        cls,
        path: str,
        disk: Disk | None = None,
        files_max: int = 512,
        reserve_bytes: int = RESERVE_BYTES,
        cluster_id: str | None = None,
        node_id: str | None = None,
        means: Means = SYSTEM,
    ) -> DataDirectory:
        """Take the directory for writing; it is made where there is none.

        One of another node or cluster than the ones named is refused; a new one takes these names.
        """
        path = path.rstrip("/") or "/"
        if disk is None:
            disk = OsDisk.at(path)
        disk.make_directory(path)
        lock = disk.lock(f"{path}/lock")
        is_new = not disk.exists(f"{path}/node.json")
        node = _claim_node(disk, path, node_id, cluster_id, means.chance)
        left = Holder(0, True, True) if is_new else decode_holder(lock.read(lock.size(), 0))
        write_holder(lock, Holder(os.getpid(), False))
        return cls(path, disk, OpenFiles(disk, files_max, reserve_bytes), lock, node, left, means)

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open_log(self, name: str, config: LogConfig | None = None) -> Log:
        """Open, or begin, the log at this path below the directory, such as `topics/events~<topic id>/0`."""
        (log,) = self.open_logs([name], config)
        return log

    def open_logs(self, names: Iterable[str], config: LogConfig | None = None) -> list[Log]:
        """Open many logs at once. One that is open already is given as it is: a log has one owner."""
        names = list(names)
        closed = [name for name in dict.fromkeys(names) if name not in self._logs or self._logs[name].closed]
        slots = [self._state.claim(*identity(name)) for name in closed]
        with self.means.threads(min(OPEN_THREADS, max(1, len(closed))), "logboom-open") as threads:
            opened = threads.map(
                lambda name, slot: Log.open(self.files, f"{self.path}/{name}", config, slot), closed, slots
            )
            self._logs.update(zip(closed, opened, strict=True))
        return [self._logs[name] for name in names]

    def owes_term(self, topic: Topic) -> bool:
        """Whether what is appended to the logs of this topic must be of a new term."""
        return self.owes_terms and topic.settings.flush.may_lose

    def topics(self) -> list[Topic]:
        """By name."""
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(name, self.path, near_names(name, self._topics))
        return topic

    def create_topic(self, name: str, partitions: int = 1, settings: Settings = Settings()) -> Topic:  # noqa: B008
        topic = Topic.make(name, partitions, settings, chance=self.means.chance)
        self.adopt_topic(topic)
        return topic

    def adopt_topic(self, topic: Topic) -> None:
        """Make this topic exist, with the id it has."""
        if topic.name in self._topics:
            raise TopicExists(topic.name, self._topics[topic.name].id)
        try:
            write_topic(self._disk, self.path, topic)
        except OSError:
            take_back_topic(self._disk, self.path, topic)
            raise
        self._topics[topic.name] = topic

    def configure_topic(self, name: str, settings: Settings) -> Topic:
        """Give a topic other settings. Logs that are open roll by the new ones."""
        topic = msgspec.structs.replace(self.topic(name), settings=settings.check())
        write_topic(self._disk, self.path, topic)
        self._topics[name] = topic
        for log_name in topic.log_names:
            if log_name in self._logs:
                self._logs[log_name].config = settings.log_config()
        return topic

    def open_topic(self, name: str) -> list[Log]:
        """The logs of all partitions. What was recovered is committed: a single node knows it to be synced."""
        topic = self.topic(name)
        return self._open_committed(topic, topic.log_names)

    def open_partition(self, name: str, partition: int) -> Log:
        """One of these logs."""
        topic = self.topic(name)
        (log,) = self._open_committed(topic, [topic.log_name(partition)])
        return log

    def _open_committed(self, topic: Topic, names: list[str]) -> list[Log]:
        closed = [name for name in names if name not in self._logs or self._logs[name].closed]
        self.open_logs(closed, topic.settings.log_config())
        for name in closed:
            self._logs[name].commit_synced()
        return [self._logs[name] for name in names]

    def delete_topic(self, name: str) -> None:
        """Gone for readers and for a restart when this returns; `empty_trash` frees the space."""
        topic = self.topic(name)
        logs = {log_name: self._logs[log_name] for log_name in topic.log_names if log_name in self._logs}
        if any(log.syncing for log in logs.values()):
            raise RuntimeError(f"{topic.directory}: a sync is under way")
        trash = f"{self.path}/trash"
        self._disk.make_directory(trash)
        directories = [self._disk.open_directory(path) for path in (trash, f"{self.path}/topics")]
        for log_name, log in logs.items():
            with suppress(SyncFailed):
                log.close()
            del self._logs[log_name]
        entry = topic.directory.rpartition("/")[2]
        while self._disk.exists(f"{trash}/{entry}"):  # a topic that was loaded again has the id it had
            entry = f"again-{entry}"
        self._disk.rename(f"{self.path}/{topic.directory}", f"{trash}/{entry}")
        del self._topics[name]
        for directory in directories:
            directory.sync()
        self._state.release(topic.id_bytes)

    def empty_trash(self) -> int:
        """Unlink what deleted topics left; returns how many there were."""
        return self.remove_trash(self.release_trash())

    def remove_trash(self, names: list[str], before_each: Callable[[], None] = lambda: None) -> int:
        """The second half of it, on any thread; `before_each` file may stop it by raising."""
        failure = None
        for name in names:
            try:
                _remove_tree(self._disk, f"{self.path}/trash/{name}", before_each)
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure
        return len(names)

    def release_trash(self) -> list[str]:
        """Topics whose deletion a crash cut short are gone for readers too; returns what is in the trash."""
        trash = f"{self.path}/trash"
        names = self._disk.list(trash) if self._disk.exists(trash) else []
        alive = {topic.id for topic in self._topics.values()}
        for name in names:
            match = _TOPIC_ID.search(name)
            if match is not None and match[1] not in alive:
                self._state.release(bytes.fromhex(match[1]))
        return names

    def forget_log(self, name: str) -> None:
        """No file is left of this log: what the state file says of it is of another life."""
        slot = self._state.claim(*identity(name))
        if slot.standing is not None:
            slot.clear()
            slot.sync()

    def begin_anew(self, name: str, snapshot: Snapshot, config: LogConfig | None = None) -> Log:
        """Throw away what a log holds, and begin it with these numbers. Nobody else may be using it.

        After a crash half way there is some end of the old log, or an empty one: then this is to be done again.
        """
        old = self.open_log(name, config)
        old.close()
        self.forget_log(name)
        old.clear()
        generation = max(old.generation, snapshot.generation) + 1
        begin_log(self._disk, old.directory, msgspec.structs.replace(snapshot, generation=generation))
        return self.open_log(name, config)

    def log_names(self) -> list[str]:
        """The logs there are, by their paths below the directory."""
        return sorted(path[len(self.path) + 1 :] for path in find_logs(self._disk, f"{self.path}/topics"))

    def sync(self) -> None:
        """Group commit: make everything written to any log durable, with one sync, and commit it."""
        for log in self.sync_logs():
            log.commit_synced()

    def sync_logs(self) -> list[Log]:
        """Make everything written to any log durable, with one sync; returns those that had anything to sync.

        What of it is committed, the owner knows.
        """
        if self._failure is not None:
            raise SyncFailed(self._failure)
        pending = [(log, begun) for log in self._logs.values() if (begun := log.begin_sync()) is not None]
        try:
            self._disk.sync([begun.file for _, begun in pending])
        except OSError as error:
            # The news of a failed write-back may have been meant for any of them.
            self._failure = f"{self.path}: a sync failed: {error}; reopen the directory to recover"
            for log in self._logs.values():
                log.fail_sync(error)
            raise SyncFailed(self._failure) from error
        for log, begun in pending:
            log.end_sync(begun)
        return [log for log, _ in pending]

    def sync_state(self) -> None:
        """Make durable what the state file says of the logs. On any thread; a failure is one of the whole node."""
        try:
            self._state.sync()
        except OSError as error:
            raise SyncFailed(f"{self.path}/state: a sync failed: {error}") from error

    def close(self) -> None:
        """Close all logs and let go of the directory. It counts as closed properly only if everything is on disk.

        A term that is owed stays so.
        """
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        for log in self._logs.values():
            try:
                log.close()
            except SyncFailed as error:
                self._failure = self._failure or str(error)
        self.files.clear()
        if any(log.failed for log in self._logs.values()):
            raise SyncFailed(self._failure or f"{self.path}: a log failed")
        try:
            self._state.sync()
            write_holder(lock, Holder(os.getpid(), not self.owes_terms, True))
        except OSError as error:  # then it was not closed properly, which the next start makes good
            raise SyncFailed(f"{self.path}: a sync failed: {error}") from error


def identity(name: str) -> tuple[bytes, int]:
    """The topic id and partition that a log's path carries."""
    match = _IDENTITY.fullmatch(name)
    if match is None or ".." in name.split("/"):
        raise ValueError(f"{name!r} does not end in NAME~TOPIC_ID/PARTITION with 32 hex digits as topic id")
    return bytes.fromhex(match[1]), int(match[2])


def log_name(topic: str, topic_id: uuid.UUID, partition: int) -> str:
    """The path below a data directory of a log. `topic` must be safe as a file name."""
    return f"topics/{topic}~{topic_id.hex}/{partition}"


def find_logs(disk: Disk, path: str, is_directory: Callable[[str], bool] = os.path.isdir) -> Iterator[str]:
    """Every directory at or below `path` that holds segments."""
    if not disk.exists(path):
        return
    names = disk.list(path)
    if any(map(parse_name, names)):
        yield path
        return
    for name in sorted(names):
        if is_directory(f"{path}/{name}"):
            yield from find_logs(disk, f"{path}/{name}", is_directory)


def _remove_tree(disk: Disk, path: str, before_each: Callable[[], None]) -> None:
    before_each()
    try:
        disk.unlink(path)  # a symbolic link goes, what it points to stays
    except IsADirectoryError:
        for name in disk.list(path):
            _remove_tree(disk, f"{path}/{name}", before_each)
        disk.remove_directory(path)


def _claim_node(disk: Disk, path: str, node_id: str | None, cluster_id: str | None, chance: Random) -> NodeIdentity:
    found = read_node(disk, path)
    node = found or NodeIdentity(node_id or new_id(chance))
    if not node.cluster_id:
        node = msgspec.structs.replace(node, cluster_id=cluster_id or new_id(chance))
    _refuse_other(path, "node", node.node_id, node_id)
    _refuse_other(path, "cluster", node.cluster_id, cluster_id)
    if node != found:
        replace_file(disk, f"{path}/node.json", msgspec.json.encode(node))
    return node


def _refuse_other(path: str, what: str, is_of: str, wanted: str | None) -> None:
    if wanted is not None and wanted != is_of:
        raise DirectoryUnusable(
            f"{path} belongs to {what} {is_of}, this is {what} {wanted}: "
            f"name another directory, or start as {what} {is_of}"
        )


def read_node(disk: Disk, path: str) -> NodeIdentity | None:
    """Whose directory this is; None where nobody has begun it. Raises DirectoryUnusable where it is not for us."""
    data = read_file(disk, f"{path}/node.json")
    if data is None:
        return None
    try:
        node = msgspec.json.decode(data, type=NodeIdentity)
    except UNREADABLE as error:
        raise DirectoryUnusable(f"{path}/node.json is not ours: {error}; name another directory") from None
    if node.format > FORMAT:
        raise DirectoryUnusable(
            f"{path} has format {node.format}, this release writes {FORMAT}: use the release that wrote it"
        )
    return node


def decode_holder(said: bytes) -> Holder:
    """What the lock file says; what cannot be read was not written by a proper close."""
    try:
        return msgspec.json.decode(said.rstrip(b"\n\0 "), type=Holder)
    except UNREADABLE:
        return Holder(0, False)


def write_holder(lock: File, holder: Holder) -> None:
    """Durably, and in place: a lock file is never empty but in a new directory."""
    lock.write([msgspec.json.encode(holder).ljust(HOLDER_SIZE - 1) + b"\n"], 0)
    lock.sync()
