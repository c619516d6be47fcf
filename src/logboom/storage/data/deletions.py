"""Topics that were deleted on purpose, for those who copy this node: `DATA/internal/deletions`.

A copy deletes a topic only where its source says so by the topic's id. What a source merely lacks may be lost, or not
be in the backup that it was restored from.

Invariants. A deletion is on disk before its topic goes, unless the volume is full: deleting topics makes room, and must
not wait for it. Then it is told from memory, and written when there is room; a crash before that forgets it, and copies
keep the topic. None is of a topic that is here: where a crash or a failure came between the two, the topic is still
here, and the deletion is taken back. There are at most DELETIONS_MAX, and the
oldest go first: a copy that was away for all the later ones keeps the topic, and says so.

Replaced whole and synced. A file that cannot be read counts as empty: copies keep more than they need to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from logboom.storage.data.topic import Topic
from logboom.storage.files import envelope
from logboom.storage.files.disk import NO_SPACE, Disk, read_file, replace_file

FILE: Final = "deletions"
"""Below DATA/internal."""
MAGIC: Final = b"LGDT"
DELETIONS_MAX: Final = 10_000

logger = logging.getLogger("logboom.storage")


class Deletion(msgspec.Struct, frozen=True, array_like=True):
    """Fields may be added with defaults; never moved."""

    topic_id: str
    name: str
    time: int
    """Microseconds."""


class _Body(msgspec.Struct, frozen=True):
    deletions: list[Deletion]
    """In the order in which they were made."""


_BODY: Final = msgspec.msgpack.Decoder(_Body)


class Deletions:
    def __init__(self, disk: Disk, root: str, found: Iterable[Deletion] = ()) -> None:
        self._disk = disk
        self._path = f"{root}/internal/{FILE}"
        self._by_id = {deletion.topic_id: deletion for deletion in found}
        self.is_owed = False
        """Whether the disk does not know all of it, for want of room."""

    @classmethod
    def open(cls, disk: Disk, root: str) -> Deletions:
        path = f"{root}/internal/{FILE}"
        try:
            data = read_file(disk, path)
            return cls(disk, root, () if data is None else envelope.unpack(MAGIC, data, _BODY).deletions)
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read: copies of this node keep the topics that it told of: %s", path, error)
            return cls(disk, root)

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, topic_ids: Iterable[str]) -> list[Deletion]:
        """Those of these topics that were deleted."""
        return [found for topic_id in topic_ids if (found := self._by_id.get(topic_id)) is not None]

    def add(self, topic: Topic, now: int) -> None:
        """Durable when this returns, where there is room. Waits for the disk."""
        others = [deletion for deletion in self._by_id.values() if deletion.topic_id != topic.id]
        kept = [*others[max(0, len(others) - DELETIONS_MAX + 1) :], Deletion(topic.id, topic.name, now)]
        self._write(kept)
        self._by_id = {deletion.topic_id: deletion for deletion in kept}

    def settle(self) -> None:
        """Write what is owed. Waits for the disk."""
        if self.is_owed:
            self._write(list(self._by_id.values()))

    def take_back(self, *topic_ids: str) -> None:
        """These topics are here. Where that cannot be written down, the next start does it."""
        kept = [deletion for deletion in self._by_id.values() if deletion.topic_id not in topic_ids]
        if len(kept) < len(self._by_id):
            self._by_id = {deletion.topic_id: deletion for deletion in kept}
            with suppress(OSError):
                self._write(kept)

    def _write(self, deletions: list[Deletion]) -> None:
        try:
            self._disk.make_directory(self._path.rpartition("/")[0])
            replace_file(self._disk, self._path, envelope.pack(MAGIC, _Body(deletions)))
            self.is_owed = False
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.is_owed = True
