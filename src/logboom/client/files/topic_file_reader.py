"""Reads several logs straight from their files: all partitions of a topic, several topics, or all that fit a pattern.

A `FileReader` for each, and one watch for all: whatever is committed in the directory wakes it. Records come in order
inside each partition. Topics that come while it follows join with their first record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from logboom.batch import Record, Selection
from logboom.batch.arrow import ORDER, PARTITION, TOPIC, complete_lists, complete_tables, stored
from logboom.batch.tables import join_tables
from logboom.broker.read.log_names import LogNames, join_names
from logboom.client.files.file_reader import FileReader
from logboom.client.files.file_watch import FileWatch
from logboom.client.keywords import explained
from logboom.client.read.log_position import LogPosition
from logboom.client.read.start import At, Gaps, check_start
from logboom.errors import LogboomError, PartitionNotFound, TopicDeleted, TopicNotFound, TopicRecreated
from logboom.storage.bookmark import Bookmark, BookmarkSet
from logboom.storage.data.near_names import near_names
from logboom.storage.data.topic import Topic, read_topics
from logboom.storage.files.disk import OsDisk
from logboom.values.serializer import Serializer, ValueFormat, coder_of

if TYPE_CHECKING:
    import pyarrow as pa

LOOK_AGAIN_S: Final = 1.0
"""How often it looks for topics while it follows."""
COLUMNS: Final = (TOPIC, PARTITION, *ORDER)
LogKey = tuple[str, int]
"""The topic's id, and the partition."""
Piece = TypeVar("Piece")


class TopicFileReader:
    """
    with TopicFileReader("data", "rooms") as reader:
        for record in reader.records(follow=True):
            print(record.topic, record.partition, record.seqno, record.value)

    `topics` is a topic, a pattern as `orders.*`, `rooms/2` for one partition, or a list of these. Starts at the first
    record at or after `timestamp`, at a `bookmark`, or `at` the earliest record or the latest. With `gaps="skip"` it
    goes on behind what is gone; a topic that was named and is deleted is then waited for. `value` as in `FileReader`.
    """

    @explained()
    def __init__(
        self,
        directory: str | os.PathLike[str],
        topics: str | Sequence[str],
        *,
        timestamp: datetime | int | None = None,
        bookmark: str | None = None,
        at: At | None = None,
        gaps: Gaps = "raise",
        value: ValueFormat | Serializer | None = None,
    ) -> None:
        check_start(at, gaps, seqno=None, timestamp=timestamp, bookmark=bookmark)
        self.directory = os.path.abspath(directory)
        self._names = LogNames.parse(join_names(topics))
        self._gaps: Gaps = gaps
        coder_of(value)  # what is wrong with it is said before a topic is there
        self._value = value
        self._disk = OsDisk(self.directory, read_only=True)
        self._watch: FileWatch | None = None
        self._readers: dict[LogKey, FileReader] = {}
        self._skipped = 0
        marks = {mark[:2]: mark for mark in (BookmarkSet.parse(bookmark) if bookmark is not None else ())}
        found = self._find(must=True)
        self._check_same(found, marks)
        for topic, partition in found:
            mark = marks.get((topic.id_bytes, partition))
            how: dict[str, Any] = {"timestamp": timestamp, "at": at} if not marks else {"bookmark": mark}
            self._join(topic, partition, **how)
        self._looked = time.monotonic()

    def _find(self, must: bool = False) -> list[tuple[Topic, int]]:
        """The logs that are meant. Raises TopicNotFound where one that is named has to be there."""
        topics = {topic.name: topic for topic in read_topics(self._disk, self.directory)}
        missing = next((name.topic for name in self._names.exact if name.topic not in topics), None)
        if missing is not None and must:
            raise TopicNotFound(missing, self.directory, near_names(missing, topics))
        parts = ((topics[name], self._names.partitions_of(name, topics[name].partitions)) for name in sorted(topics))
        return [(topic, partition) for topic, partitions in parts for partition in partitions]

    def _check_same(self, found: list[tuple[Topic, int]], marks: dict[tuple[bytes, int], Bookmark]) -> None:
        """Whether a topic that is named is the one that the bookmark speaks of."""
        here, known = {topic.id_bytes for topic, _ in found}, {topic_id for topic_id, _ in marks}
        lost, exact = sorted(known - here), {name.topic for name in self._names.exact}
        for topic, _ in found:
            if lost and topic.name in exact and topic.id_bytes not in known and self._gaps != "skip":
                raise TopicRecreated(topic.name, lost[0].hex(), topic.id)

    def _join(self, topic: Topic, partition: int, **how: Any) -> None:
        same: dict[str, Any] = {"gaps": self._gaps, "value": self._value}
        self._readers[topic.id, partition] = FileReader(self.directory, topic.name, partition, **same, **how)

    def __enter__(self) -> TopicFileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TopicFileReader of {len(self._readers)} logs>"

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        if self._watch is not None:
            self._watch.close()

    @property
    def logs(self) -> list[LogPosition]:
        """Where it stands in each log that it reads."""
        found = self._readers.values()
        return [LogPosition(one.topic.name, one.partition, one.seqno, one.first, one.committed) for one in found]

    @property
    def bookmark(self) -> str:
        """Where it stands in all logs, to be given to a later one. Inside a loop: behind what it was given last."""
        return str(BookmarkSet(Bookmark.parse(reader.bookmark) for reader in self._readers.values()))

    @property
    def skipped(self) -> int:
        """Records that were passed over because they are gone."""
        return self._skipped + sum(reader.skipped for reader in self._readers.values())

    def records(
        self, follow: bool = False, timeout_s: float | None = None, where: Selection | None = None
    ) -> Iterator[Record]:
        """Record by record; `where` leaves out what is not wanted."""
        return self._pieces(lambda reader: reader.records(where=where), follow, timeout_s)

    def lists(
        self, columns: Sequence[str] = ("value",), follow: bool = False, timeout_s: float | None = None
    ) -> Iterator[tuple[list[Any], ...]]:
        """Some columns as lists of Python objects, a batch at a time; topic and partition are columns, too."""

        def read(reader: FileReader) -> Iterator[tuple[list[Any], ...]]:
            return complete_lists(reader.lists(stored(columns)), columns, reader.topic.name, reader.partition)

        return self._pieces(read, follow, timeout_s)

    def tables(
        self,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        timeout_s: float | None = None,
        where: Selection | None = None,
    ) -> Iterator[pa.Table]:
        """Arrow tables, each of one log. Where no columns are named they begin with topic and partition."""
        names = COLUMNS if columns is None else columns

        def read(reader: FileReader) -> Iterator[pa.Table]:
            found = reader.tables(stored(names), where=where)
            return complete_tables(found, names, reader.topic.name, reader.partition)

        return self._pieces(read, follow, timeout_s)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything from where it stands to the ends of the logs as one table."""
        return join_tables(self.tables(columns), columns)

    def _pieces(
        self, read: Callable[[FileReader], Iterator[Piece]], follow: bool, timeout_s: float | None
    ) -> Iterator[Piece]:
        """What there is of each log in turn; with `follow`, again and again."""
        quiet_since = time.monotonic()
        while True:
            for key in list(self._readers):
                for piece in self._read(key, read):
                    yield piece
                    quiet_since = time.monotonic()
            if not follow or not self._wait(quiet_since, timeout_s):
                return

    def _read(self, key: LogKey, read: Callable[[FileReader], Iterator[Piece]]) -> Iterator[Piece]:
        reader = self._readers[key]
        try:
            yield from read(reader)
        except (TopicDeleted, TopicRecreated, PartitionNotFound):
            exact = {name.topic for name in self._names.exact}
            if reader.topic.name in exact and self._gaps != "skip":
                raise
            self._leave(key)
            return
        except LogboomError as error:
            if reader.topic.name not in str(error):
                error.args = (f"{reader.topic.name}/{reader.partition}: {error}",)
            raise
        if reader.topic.id != key[0]:  # it was made again, and the reader has gone over to that
            self._readers[reader.topic.id, reader.partition] = self._readers.pop(key)

    def _leave(self, key: LogKey) -> None:
        reader = self._readers.pop(key)
        self._skipped += reader.skipped
        reader.close()

    def _wait(self, quiet_since: float, timeout_s: float | None) -> bool:
        """Until something may have come; False where nothing has for too long."""
        if self._watch is None:
            self._watch = FileWatch(f"{self.directory}/state")
            return True  # what came before it watched wakes nobody
        now = time.monotonic()
        rest_s = LOOK_AGAIN_S if timeout_s is None else min(LOOK_AGAIN_S, quiet_since + timeout_s - now)
        if rest_s <= 0:
            return False
        self._watch.wait(rest_s)
        if time.monotonic() - self._looked >= LOOK_AGAIN_S:
            self._look_for_topics()
        return True

    def _look_for_topics(self) -> None:
        self._looked = time.monotonic()
        assert self._watch is not None
        self._watch.renew()
        known = {(reader.topic.name, reader.partition) for reader in self._readers.values()}
        for topic, partition in self._find():
            if (topic.name, partition) not in known:
                self._join(topic, partition)
