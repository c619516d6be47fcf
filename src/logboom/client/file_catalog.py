"""The catalog of a data directory: it looks at the files and the state file, and asks no node."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from logboom.batch import Selection
from logboom.client.catalog import Ends, ListedTopic, LogPoint, matches
from logboom.client.files.file_archives import FileArchives
from logboom.client.files.file_reader import FileReader
from logboom.client.read.start import Gaps
from logboom.errors import Damage, DirectoryUnusable, LogboomError, NotLocal, NotOpened, TopicNotFound
from logboom.results.archived import ArchivedLogReader
from logboom.storage.bookmark import Bookmark, Term
from logboom.storage.data.directory import read_node
from logboom.storage.data.state import LogState, StateReader
from logboom.storage.data.topic import Topic, find_topic, read_topics
from logboom.storage.files.disk import OsDisk, is_network
from logboom.storage.readable_log import SeqnoRange

READERS_MAX: Final = 256
OPENING_S: Final = 1.0
"""How long a log may have files and no place in the state file yet."""


class FileCatalog:
    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory: str | None = os.path.abspath(directory)
        self.servers: tuple[str, ...] = ()
        self.incarnation = 0
        self.is_copy = False
        self._path = os.path.abspath(directory)
        if not os.path.isdir(self._path):
            raise DirectoryUnusable(
                f"{self._path} is not there: name a data directory, or a node as logboom://host:port"
            )
        self._disk = OsDisk(self._path, read_only=True)
        if self._disk.file_system is not None and is_network(self._disk.file_system):
            raise NotLocal(self._path, self._disk.file_system)
        self._states: StateReader | None = None
        self._archives = FileArchives(self._disk, self._path)
        self._readers: OrderedDict[tuple[str, int], FileReader] = OrderedDict()
        self._identity = identify(self._path)
        self.node_id = self._read_node_id()

    def _read_node_id(self) -> str:
        node = read_node(self._disk, self._path)
        if node is None:
            raise DirectoryUnusable(f"{self._path} is no data directory: it has no node.json")
        return node.node_id

    def find(self, names: Sequence[str] = (), pattern: str | None = None) -> list[ListedTopic]:
        if self._identity != (identity := identify(self._path)):
            self.close()
            self._identity, self.node_id = identity, self._read_node_id()
        with suppress(FileNotFoundError):
            if self._states is None:
                self._states = StateReader(self._disk, f"{self._path}/state")
            else:
                self._states.reopen()
        if pattern is not None:
            found = [topic for topic in read_topics(self._disk, self._path) if matches(topic.name, names, pattern)]
        else:
            sought = (find_topic(self._disk, self._path, name) for name in sorted(set(names)))
            found = [topic for topic in sought if topic is not None]
        return [self._list(topic) for topic in found]

    def _list(self, topic: Topic) -> ListedTopic:
        return ListedTopic(topic.name, topic.id, tuple(self._ends(topic, number) for number in range(topic.partitions)))

    def _ends(self, topic: Topic, partition: int) -> Ends:
        path = f"{self._path}/{topic.log_name(partition)}"
        give_up = time.monotonic() + OPENING_S
        while True:
            standing = None if self._states is None else self._states.standing(topic.id_bytes, partition)
            if standing is not None:
                return self._ends_of(topic, standing)
            names = self._disk.list(path) if self._disk.exists(path) else []
            if not any(name.endswith(".log") for name in names):
                return Ends(0, 0)
            if time.monotonic() > give_up:
                raise NotOpened(path)
            time.sleep(0.01)  # a writer that opens a log makes its file first

    def _ends_of(self, topic: Topic, standing: LogState) -> Ends:
        stored, floor = standing.first, standing.floor
        archived = None
        if not topic.name.startswith("_"):
            archived = self._archives.find(topic.id, standing.partition, stored, floor)
        if archived is None:
            return Ends(stored, standing.committed, standing.term)
        return Ends(max(archived.first, floor), standing.committed, standing.term, stored)

    def archived(self, topic: ListedTopic, partition: int) -> ArchivedLogReader | None:
        return self._archives.get(topic.id, partition)

    def reader(self, topic: ListedTopic, partition: int) -> FileReader:
        """Stands anywhere. The ones used last stay open. Raises TopicNotFound where another topic has the name."""
        reader = self._readers.pop((topic.id, partition), None)
        if reader is None:
            reader = FileReader(self._path, topic.name, partition, at="earliest")
            if reader.topic.id != topic.id:
                reader.close()
                raise TopicNotFound(topic.name, self._path)
        self._readers[topic.id, partition] = reader
        while len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)[1].close()
        return reader

    def seqno_at(self, topic: ListedTopic, partition: int, moment: int, gaps: Gaps = "raise") -> int:
        try:
            return self.reader(topic, partition).seqno_at(moment)
        except Damage as damage:
            if gaps == "raise" or damage.seqno_until is None:
                raise
            return self._find_time(topic, partition, moment, damage.seqno_until)

    def _find_time(self, topic: ListedTopic, partition: int, moment: int, seqno: int) -> int:
        """As `seqno_at`, from this record on; damage is passed over."""
        with FileReader(self._path, topic.name, partition, seqno=seqno, gaps="skip") as reader:
            for table in reader.tables(["seqno"], where=Selection(time_from=moment)):
                if table.num_rows:
                    return int(table.column(0)[0].as_py())
            return reader.committed

    def cut(
        self, topic: ListedTopic, partition: int, seqno_from: int, seqno_until: int, every_bytes: int
    ) -> list[SeqnoRange]:
        return self.reader(topic, partition).cut(seqno_from, seqno_until, every_bytes)

    def terms_before(self, places: Sequence[LogPoint]) -> list[Term | None]:
        return [self._term_before(place) for place in places]

    def _term_before(self, place: LogPoint) -> Term | None:
        try:
            reader = self.reader(place.topic, place.partition)
            term = reader.term_before(place.seqno)
            return None if term is None else Term(term, reader.lineage_of(term))
        except (LogboomError, OSError):
            return None

    def commit_cursor(self, cursor: str, bookmarks: Sequence[tuple[str, Bookmark]]) -> None:
        raise DirectoryUnusable(f"cursors are kept by a running node: read from logboom://host:port, not {self._path}")

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._archives.close()
        self._states = None


def identify(directory: str) -> tuple[int, int, int]:
    """Another value where another directory has taken the name, or another node the directory."""
    try:
        found = os.stat(f"{directory}/node.json")
    except OSError:
        return 0, 0, 0  # whoever opens it is told
    return found.st_dev, found.st_ino, found.st_ctime_ns


def open_files(directory: str | None, node_id: str) -> FileCatalog | None:
    """The files of this very node, where they can be read from here."""
    if directory is None:
        return None
    try:
        files = FileCatalog(directory)
    except (LogboomError, OSError):
        return None
    return files if files.node_id == node_id else None
