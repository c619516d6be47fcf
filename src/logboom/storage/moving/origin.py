"""Where a dump comes from: a data directory that nobody writes to, or one beside its writer.

Where there is no writer the directory is taken and recovered, so that nothing that was acknowledged is left out, also
after a power loss. Beside a writer, and where the directory cannot be written to, logs are read as another process
sees them. There files come and go: `refresh` catches up.

Close rule: what was taken is given back as a proper shut-down; a term that is owed stays so.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType
from typing import Final

from logboom.errors import Damage, DirectoryInUse, DirectoryUnusable, DumpOvertaken
from logboom.storage.config import LogConfig
from logboom.storage.data.directory import DataDirectory, find_logs, read_node
from logboom.storage.data.state import StateReader
from logboom.storage.data.topic import Topic, read_topics
from logboom.storage.files.disk import Disk, OsDisk
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.health.check import find_place, writer_of
from logboom.storage.log import Log
from logboom.storage.readable_log import ReadableLog
from logboom.storage.recovery import snapshot_of
from logboom.storage.segment import parse_name
from logboom.storage.staged.unfinished import TOPIC as PUBLISH_TOPIC
from logboom.storage.staged.unfinished import check_finished, find_unfinished
from logboom.storage.tail import Snapshot
from logboom.storage.view import LogGone, LogView

_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
_CONFIG: Final = LogConfig()


class DumpOrigin:
    def __init__(self, path: str, files: OpenFiles, node_id: str, data: DataDirectory | None) -> None:
        self.path = path
        self.node_id = node_id
        self._files = files
        self._data = data
        self._taken: dict[str, Log] = {}
        self._states = StateReader(files.disk, f"{path}/state")
        self.takes_unfinished = False
        """Whether logs are dumped that a publish was cut off on its way into: then what they have of it goes along."""

    @classmethod
    def of(cls, data: DataDirectory) -> DumpOrigin:
        """A directory that the caller has taken, and closes."""
        return cls(data.path, data.files, data.node.node_id, data)

    @classmethod
    def beside(cls, path: str, disk: Disk | None = None) -> DumpOrigin:
        """A directory that somebody else may be writing to."""
        disk = disk or OsDisk(path, read_only=True)
        node = read_node(disk, path)
        if node is None:
            raise DirectoryUnusable(f"{path} has no node.json: name a data directory")
        return cls(path, OpenFiles(disk), node.node_id, None)

    @classmethod
    def open(cls, path: str) -> DumpOrigin:
        """Whatever is right for this data directory now."""
        path = os.path.abspath(path)
        disk = OsDisk(path, read_only=True) if os.path.isdir(path) else None
        if disk is None or find_place(disk, path).root != path or not disk.exists(f"{path}/node.json"):
            raise DirectoryUnusable(f"{path} is not a data directory")
        active, holder = writer_of(disk, path)
        if active:
            return cls.beside(path)
        try:
            return cls.of(_take(path))
        except DirectoryInUse:
            return cls.beside(path)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            if holder is None or not holder.is_done:
                raise DirectoryUnusable(
                    f"{path} was not closed properly, and cannot be opened to recover it ({error.strerror}): "
                    "run this as the user that owns it, or on a copy"
                ) from None
            return cls.beside(path)

    def __enter__(self) -> DumpOrigin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._data is not None:
            self._data.close()

    @property
    def live(self) -> bool:
        """Whether somebody may be writing."""
        return self._data is None

    def topics(self) -> list[Topic]:
        return self._data.topics() if self._data is not None else read_topics(self._files.disk, self.path)

    def log(self, topic: Topic, partition: int) -> ReadableLog | None:
        """What is committed of a log; None where it was never begun. Raises where it was, and cannot be found."""
        name = topic.log_name(partition)
        if self._data is not None:
            if name not in self._taken:
                if not self._was_begun(topic, partition, ".snap"):
                    return None
                self._taken[name] = self._data.open_partition(topic.name, partition)
            return self._taken[name]
        try:
            return LogView.open(self._files, f"{self.path}/{name}", self._states, topic.id_bytes, partition)
        except LogGone:
            self.check_there(topic)
            if self._was_begun(topic, partition, ".log"):
                raise DirectoryUnusable(
                    f"{self.path}/{name}: the log's files and the state file do not belong together: "
                    f"run `logboom doctor {shlex.quote(self.path)}`"
                ) from None
            return None

    def check_there(self, topic: Topic) -> None:
        """Raises where a topic was deleted meanwhile."""
        if not self._files.disk.exists(f"{self.path}/{topic.directory}/topic.json"):
            raise DirectoryUnusable(f"topic {topic.name} was deleted while it was dumped: begin a new dump")

    def _was_begun(self, topic: Topic, partition: int, *endings: str) -> bool:
        """Whether the state file knows the log, or a file with one of these endings, or any .log, is there."""
        disk, directory = self._files.disk, f"{self.path}/{topic.log_name(partition)}"
        names = disk.list(directory) if disk.exists(directory) else []
        if any(parse_name(name) and name.endswith((".log", *endings)) for name in names):
            return True
        return self._states.standing(topic.id_bytes, partition) is not None

    def check_accounted(self) -> None:
        """Raises where something below topics/ belongs to no topic: a dump of everything would leave it out."""
        strays = self._strays()
        if strays and self.live:
            strays &= self._strays()  # topics come and go
        if strays:
            raise DirectoryUnusable(
                f"{', '.join(sorted(strays))}: no topic accounts for what is there, and a dump would leave it out: "
                f"run `logboom doctor {shlex.quote(self.path)}`, or name the topics to dump with --topic"
            )

    def check_finished(self, logs: Collection[tuple[str, int]]) -> None:
        """Raises where one of these logs, by topic id and partition, may have a part of a publish alone.

        Beside a writer that is no matter: it is on its way, and a publish is no snapshot across logs.
        """
        topic = next((topic for topic in self.topics() if topic.name == PUBLISH_TOPIC), None)
        if self._data is None and writer_of(self._files.disk, self.path)[0]:
            return
        log = None if topic is None or self.takes_unfinished else self.log(topic, 0)
        if topic is not None and log is not None:
            found = find_unfinished(self._files.disk, self.path, topic, log)
            check_finished(found, logs, "; or dump what is there of it with --unfinished")

    def _strays(self) -> set[str]:
        """Logs, and directories with a topic.json, that are not those of the topics; below the data directory."""
        disk, below = self._files.disk, f"{self.path}/topics"
        try:
            names = disk.list(below) if disk.exists(below) else []
            logs = {path.removeprefix(f"{self.path}/") for path in find_logs(disk, below, disk.is_directory)}
            described = {f"topics/{name}" for name in names if disk.exists(f"{below}/{name}/topic.json")}
        except FileNotFoundError:  # deleted just now
            return self._strays()
        topics = {topic.name: topic for topic in self.topics()}.values()
        logs -= {name for topic in topics for name in topic.log_names}
        return logs | (described - {topic.directory for topic in topics})

    def refresh(self, log: ReadableLog, index: int) -> bool:
        """Look again at files that may have changed; False where nothing can have. Raises where a batch is gone."""
        if isinstance(log, LogView):
            try:
                log.refresh(relist=True)
            except LogGone:
                raise DirectoryUnusable(f"{log.directory} was deleted while it was dumped") from None
        if index < log.first_index:
            raise DumpOvertaken(log.directory, index, log.first_index)
        return self.live

    def damage(self, log: ReadableLog) -> tuple[Damage | None, Damage | None]:
        """What is known to be missing at the front of a log, and at its end."""
        if isinstance(log, Log):
            return log.recovered.missing, log.recovered.damage
        return None, log.damage if isinstance(log, LogView) else None

    def snapshot(self, log: ReadableLog, number: int) -> Snapshot:
        """The snapshot of a segment, or what it must have said."""
        snapshot, damage = snapshot_of(self._files, list(log.segments), number, _CONFIG, write=False)
        if damage is not None:
            raise damage
        return snapshot


def _take(path: str) -> DataDirectory:
    data = DataDirectory.open(path)
    try:
        recover_all(data)
    except BaseException:
        with suppress(Exception):
            data.close()
        raise
    return data


def recover_all(data: DataDirectory) -> None:
    """Recover every log after a crash, not only those that are wanted: the directory will count as closed properly."""
    if not data.was_clean:
        for topic in data.topics():
            for log in data.open_topic(topic.name):
                log.close()
