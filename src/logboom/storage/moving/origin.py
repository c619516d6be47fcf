"""Where a dump comes from: a data directory that nobody writes to, or one beside its writer.

Where there is no writer the directory is taken and recovered, so that nothing that was acknowledged is left out, also
after a power loss. Beside a writer, and where the directory cannot be written to, logs are read as another process
sees them. There files come and go: `refresh` catches up.

Close rule: what was taken is given back as a proper shut-down.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from types import TracebackType
from typing import Final

import msgspec

from logboom.errors import Damage, DirectoryInUse, DirectoryUnusable, DumpOvertaken
from logboom.storage.config import LogConfig
from logboom.storage.directory import DataDirectory, Node
from logboom.storage.disk import Disk, OsDisk, read_file
from logboom.storage.files import OpenFiles
from logboom.storage.health.check import find_place, writer_of
from logboom.storage.log import Log
from logboom.storage.reading import ReadableLog
from logboom.storage.recovery import snapshot_of
from logboom.storage.state import StateReader
from logboom.storage.tail import Snapshot
from logboom.storage.topic import Topic, read_topics
from logboom.storage.view import LogGone, LogView

_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
_CONFIG: Final = LogConfig()


class Origin:
    def __init__(self, path: str, files: OpenFiles, node_id: str, data: DataDirectory | None) -> None:
        self.path = path
        self.node_id = node_id
        self._files = files
        self._data = data
        self._taken: dict[str, list[Log]] = {}
        self._states = None if data is not None else StateReader(files.disk, f"{path}/state")

    @classmethod
    def of(cls, data: DataDirectory) -> Origin:
        """A directory that the caller has taken, and closes."""
        return cls(data.path, data.files, data.node.node_id, data)

    @classmethod
    def beside(cls, path: str, disk: Disk | None = None) -> Origin:
        """A directory that somebody else may be writing to."""
        disk = disk or OsDisk(path, read_only=True)
        said = read_file(disk, f"{path}/node.json")
        if said is None:
            raise DirectoryUnusable(f"{path} has no node.json: name a data directory")
        return cls(path, OpenFiles(disk), msgspec.json.decode(said, type=Node).node_id, None)

    @classmethod
    def open(cls, path: str) -> Origin:
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
            if holder is None or not holder.clean:
                raise DirectoryUnusable(
                    f"{path} was not closed properly, and cannot be opened to recover it ({error.strerror}): "
                    "run this as the user that owns it, or on a copy"
                ) from None
            return cls.beside(path)

    def __enter__(self) -> Origin:
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
        """What is committed of a log; None where it was never begun."""
        if self._data is not None:
            if topic.id not in self._taken:
                self._taken[topic.id] = self._data.open_topic(topic.name)
            return self._taken[topic.id][partition]
        assert self._states is not None
        directory = f"{self.path}/{topic.log_name(partition)}"
        try:
            return LogView.open(self._files, directory, self._states, topic.id_bytes, partition)
        except LogGone:
            return None

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
