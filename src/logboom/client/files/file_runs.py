"""The runs of a log's files from a seqno on, beside the writer and whatever happens to the files.

`FileRuns` is where a reader of files stands: the topic and the log as they are now, the seqno that is read next, and
what is known of the record before it. It opens the log when a writer has, looks again where it stands, sleeps until
there is more, goes to the archive for what was dropped, and passes over what is gone or raises it by its name.

Knows ranges of files and no record in them: `file_reader` does. One thread at a time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import datetime
from typing import Final

from logboom.batch import Selection, microseconds
from logboom.client.files.file_archives import FileArchives
from logboom.client.files.file_watch import FileWatch, ReadPace
from logboom.client.files.whole_log import WholeLog
from logboom.client.read.start import check_seqno
from logboom.errors import (
    BookmarkLost,
    Damage,
    DirectoryUnusable,
    InvalidBookmark,
    LogboomError,
    NotLocal,
    NotOpened,
    PartitionNotFound,
    SeqnoOutOfRange,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.results.archived import ArchivedLogReader
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, Term
from logboom.storage.data.directory import read_node
from logboom.storage.data.near_names import near_names
from logboom.storage.data.state import StateReader
from logboom.storage.data.topic import Topic, find_topic, read_topics
from logboom.storage.files.disk import OsDisk, is_network
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.readable_log import SeqnoRange
from logboom.storage.run import Run
from logboom.storage.view import LogGone, LogView

FILES_MAX: Final = 64
RETRIES: Final = 3
_WHOLE: Final = "name one, or read all of them with TopicFileReader"
LOOK_AGAIN_S: Final = 1.0
"""How long a reader sleeps at most before it looks whether its files are still the ones that have the names."""


class FileRuns:
    def __init__(
        self,
        directory: str | os.PathLike[str],
        topic: str,
        partition: int | None,
        *,
        seqno: int | None,
        timestamp: datetime | int | None,
        bookmark: str | Bookmark | None,
        at_end: bool,
        skip_gaps: bool,
    ) -> None:
        self.directory = os.path.abspath(directory)
        if not os.path.isdir(self.directory):
            raise DirectoryUnusable(f"{self.directory} is not there: name a data directory")
        self._disk = OsDisk(self.directory, read_only=True)
        file_system = self._disk.file_system
        if file_system is not None and is_network(file_system):
            raise NotLocal(self.directory, file_system)
        node = read_node(self._disk, self.directory)
        if node is None:
            raise DirectoryUnusable(f"{self.directory} is no data directory: it has no node.json")
        self.node_id = node.node_id
        self._files = OpenFiles(self._disk, FILES_MAX)
        self._watch: FileWatch | None = None  # made when it first waits: the kernel takes milliseconds to forget one
        self._pace = ReadPace()
        self._states: StateReader | None = None
        self._archives = FileArchives(self._disk, self.directory)
        self._skip = skip_gaps
        self.skipped = 0
        """Records that were passed over."""
        self.last_gap: LogboomError | None = None
        self._topic = _find_topic(self._disk, self.directory, topic)
        self.partition = _choose_partition(self._topic, partition)
        self._log: WholeLog | None = None
        """None while no writer has opened the log."""
        self._moment = None if timestamp is None else microseconds(timestamp)
        self._at_end = at_end
        self._seqno = None if seqno is None else check_seqno(seqno)
        self._term: int | None = None
        self._lineage = 0
        """Of a bookmark that was given; what was read since has the one that its term has in the log."""
        self._log_term: int | None = None
        self._run: Run | None = None
        self._retries = 0
        self._looked = time.monotonic()
        self._unsure = False
        """Whether what stands before the position has to be compared with what was read."""
        if bookmark is not None:
            self._resume(bookmark if isinstance(bookmark, Bookmark) else Bookmark.parse(bookmark))
        self.refresh()
        if self._log is None and not self._disk.exists(self._log_path):
            self._at_end = False  # nobody has begun the log: all of it is still to come

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._files.clear()
        self._archives.close()
        self._log = self._states = None

    @property
    def topic(self) -> Topic:
        """The topic as its file says; another one after it was made again."""
        return self._topic

    @property
    def seqno(self) -> int | None:
        """The seqno that is read next; None while no writer has opened the log yet."""
        return self._seqno

    @property
    def first(self) -> int:
        """The first readable seqno, at the last look."""
        return self._log.first if self._log else 0

    @property
    def committed(self) -> int:
        """The seqno behind the last readable one, at the last look."""
        return self._log.view.committed if self._log else 0

    @property
    def stated(self) -> int:
        """As `committed`, by the state file alone: more than that where the end of the log is damaged."""
        return self._log.view.standing.committed if self._log else 0

    @property
    def bookmark(self) -> str:
        """Where the reader stands, to be given to a later one. Inside a loop: behind what the loop was given last."""
        seqno = self._seqno or 0
        term = self._term
        if term is None and self._log is not None:
            term = self._log.term_before(seqno)
        if term is None or term == TERM_UNKNOWN:
            return str(Bookmark(self._topic.id_bytes, self.partition, seqno, TERM_UNKNOWN))
        lineage = self._lineage or self.lineage_of(term)
        return str(Bookmark(self._topic.id_bytes, self.partition, seqno, term, lineage))

    def seek(self, seqno: int) -> None:
        """The next call of `records`, `tables` and so on begins there."""
        self._seqno, self._term, self._lineage, self._run = check_seqno(seqno), None, 0, None

    def seqno_at(self, timestamp: datetime | int) -> int:
        """The first record at or after this time; behind the last one where there is none."""
        self.refresh()
        try:
            return 0 if self._log is None else self._find_moment(self._log, microseconds(timestamp))
        except LogGone:
            self._lose_log()
            return 0

    def term_before(self, seqno: int) -> int | None:
        """The term of the record before this one; None where nobody knows any more."""
        self.refresh()
        return None if self._log is None else self._log.term_before(seqno)

    def lineage_of(self, term: int) -> int:
        """Which of all terms of this number the log has; 0 where nobody knows."""
        return 0 if self._log is None else self._log.view.lineage_of(term)

    def cut(self, seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
        """What there is of these records, in pieces of about so many bytes, for several to read."""
        self.refresh()
        try:
            return [] if self._log is None else self._log.cut(seqno_from, seqno_until, every_bytes)
        except LogGone:
            self._lose_log()
            return []

    def refresh(self) -> bool:
        """Look where the log stands now; whether that is news. Reading does this by itself."""
        try:
            if time.monotonic() - self._looked >= LOOK_AGAIN_S:
                self._look_again()
            news = self._log.view.refresh() if self._log is not None else self._open_log()
            if news:
                if self._watch is not None:
                    self._watch.found()
                self._settle()
        except LogGone:
            self._lose_log()
            return False
        return news

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until there is something to read; False where nothing has come for `timeout_s`."""
        began = time.monotonic()
        while True:
            self.refresh()
            if self._log is not None and self._seqno is not None and self._seqno < self._log.view.committed:
                return True
            now = time.monotonic()
            rest_s = LOOK_AGAIN_S if timeout_s is None else began + timeout_s - now
            if rest_s <= 0:
                return False
            if self._watch is None:
                self._watch = FileWatch(f"{self.directory}/state")
                continue  # what was written before it watched is to be seen first
            self._watch.wait(min(rest_s, LOOK_AGAIN_S))
            self._pace.begin()

    def until(self, follow: bool) -> int | None:
        """Where a loop that does not follow ends: a busy log has no end of its own."""
        self.refresh()
        return None if follow else self.committed

    def next(
        self,
        max_bytes: int,
        follow: bool,
        timeout_s: float | None,
        until: int | None,
        limit: int | None = None,
        where: Selection | None = None,
    ) -> Run | None:
        """What comes next, as a range of one file; None at the end. No batch comes that begins at `limit` or later."""
        if follow:
            self._pace.rest()
        self._pace.begin()
        self.refresh()
        while not self._has_ended(until, limit):
            log, seqno = self._log, self._seqno
            if log is None and not follow and self._has_files():
                raise NotOpened(self._log_path)
            if log is not None and seqno is not None:
                try:
                    if (archive := self._archive_needed(log, seqno, follow)) is not None:
                        if (held := log.read_archive(archive, seqno, max_bytes, limit)) is None:
                            continue
                        self._run = held
                        return held
                    if seqno < log.view.committed:
                        if where is not None and self._skip_segments(log.view, seqno, where, until):
                            continue
                        return self._read_files(log.view, seqno, max_bytes, limit)
                    if log.view.damage is not None and not (follow and self._skip):
                        raise log.view.damage
                except (Damage, SeqnoOutOfRange) as gap:
                    self.pass_over(gap)
                    continue
                except LogGone:
                    self._lose_log()
                    continue
            if not follow or not self.wait(timeout_s):
                return None
        return None

    def _has_ended(self, until: int | None, limit: int | None) -> bool:
        """Whether a loop that ends is at its end. Damage there is an error, unless nobody wants what is damaged."""
        if self._log is None or self._seqno is None or until is None:
            return False
        view, seqno = self._log.view, self._seqno
        if not until <= seqno <= view.committed:
            return False
        return view.damage is None or seqno != view.committed or seqno == limit

    def _archive_needed(self, log: WholeLog, seqno: int, follow: bool) -> ArchivedLogReader | None:
        """The archive, where the files do not have this record any more. Raises where nothing has it, or ever will."""
        view = log.view
        if view.damage is not None and view.committed < seqno < view.standing.committed and not follow:
            raise view.damage
        archive = log.archive_of(seqno) if seqno < view.first else None
        if archive is None and (seqno < view.first or (seqno > view.committed and not follow)):
            raise SeqnoOutOfRange(seqno, log.first, view.committed)
        return archive

    def _skip_segments(self, view: LogView, seqno: int, where: Selection, until: int | None) -> bool:
        """Pass over segments that cannot hold what is wanted; whether there were any."""
        behind = view.skip(seqno, where)
        if behind <= seqno:
            return False
        self.pass_to(behind if until is None else min(behind, until))
        return True

    def _read_files(self, view: LogView, seqno: int, max_bytes: int, limit: int | None) -> Run | None:
        count = None if limit is None else limit - seqno
        self._run = run = view.read(seqno, max_bytes, count, after=self._run)
        self._pace.end(run.size if run else 0)
        return run

    def move(self, seqno: int, term: int) -> None:
        self._seqno, self._term, self._lineage = seqno, term, 0
        self._retries = 0

    def return_to(self, seqno: int) -> None:
        """Stand inside the batch that was given last."""
        self._seqno, self._run = seqno, None

    def pass_to(self, seqno: int) -> None:
        """Nothing before this is wanted."""
        if seqno > (self._seqno or 0):
            self._seqno, self._term, self._lineage, self._retries = seqno, None, 0, 0

    def pass_over(self, gap: Damage | SeqnoOutOfRange) -> None:
        """Go on behind what cannot be read, or raise."""
        if self._log is None or self._seqno is None:
            raise gap
        view = self._log.view
        if isinstance(gap, SeqnoOutOfRange):
            until: int | None = gap.first if gap.seqno < gap.first else None
        else:
            # What looks like damage may be a file that was swapped for another meanwhile.
            self._retries += 1
            try:
                if self._retries <= RETRIES and view.refresh(relist=True):
                    return
                if gap.seqno_until is None:
                    gap = view.locate_damage(gap)
            except LogGone:
                self._lose_log()
                return
            until = gap.seqno_until
        if not self._skip or until is None or until <= self._seqno:
            raise gap
        self.skipped += until - self._seqno
        self.last_gap = gap
        self._seqno, self._term, self._lineage, self._retries = until, None, 0, 0

    def forget_last(self) -> None:
        """The run that was given last may not be one: whatever comes next is looked up anew."""
        self._run = None

    def end_read(self, size: int) -> None:
        """So many bytes of a run were used: what a reader that follows may rest for."""
        self._pace.end(size)

    def _open_log(self) -> bool:
        """Whether a writer has opened the log by now."""
        if self._states is None:
            try:
                self._states = StateReader(self._disk, f"{self.directory}/state")
            except FileNotFoundError:
                raise LogGone from None
        view = LogView.open(self._files, self._log_path, self._states, self._topic.id_bytes, self.partition)
        self._log = WholeLog(view, self._archives, self._topic, self.partition)
        return True

    @property
    def _log_path(self) -> str:
        return f"{self.directory}/{self._topic.log_name(self.partition)}"

    def _settle(self) -> None:
        """Find the position, where it is not a seqno yet; compare what stands before it, where that is in doubt."""
        log = self._log
        assert log is not None
        view = log.view
        if self._seqno is None:
            if self._moment is not None:
                self._seqno = self._find_moment(log, self._moment)
            else:
                self._seqno = view.committed if self._at_end else log.first
        if view.standing.term != self._log_term:
            self._unsure, self._log_term = True, view.standing.term
        if not self._unsure or self._seqno > view.committed:
            return
        self._unsure = False
        if self._term is None or self._term == TERM_UNKNOWN:
            return
        found = log.term_before(self._seqno)
        lineage = view.lineage_of(found) if found is not None and self._lineage else 0
        if found is not None and Term(self._term, self._lineage).differs(Term(found, lineage)):
            lost = BookmarkLost(self._seqno, self._term, found)
            if not self._skip:
                raise lost
            self.last_gap, self._term, self._lineage = lost, found, lineage

    def _find_moment(self, log: WholeLog, moment: int) -> int:
        try:
            return log.seqno_at(moment)
        except Damage as damage:
            if not self._skip or damage.seqno_until is None:
                raise
            self.last_gap = damage
            return max(log.first, damage.seqno_until)

    def _has_files(self) -> bool:
        """Whether somebody has written to the log."""
        names = self._disk.list(self._log_path) if self._disk.exists(self._log_path) else []
        return any(name.endswith(".log") for name in names)

    def _resume(self, bookmark: Bookmark) -> None:
        if bookmark.topic_id != self._topic.id_bytes:
            recreated = TopicRecreated(self._topic.name, bookmark.topic_id.hex(), self._topic.id)
            if not self._skip:
                raise recreated
            self.last_gap = recreated
            return
        if bookmark.partition != self.partition:
            raise InvalidBookmark(f"the bookmark is of partition {bookmark.partition}, not {self.partition}")
        self._seqno, self._term, self._lineage = bookmark.seqno, bookmark.term, bookmark.lineage
        self._unsure = True

    def _lose_log(self) -> None:
        """The state file knows nothing of the log: was the topic deleted, or has no writer opened it yet?"""
        self._log = None
        old, found = self._topic, find_topic(self._disk, self.directory, self._topic.name)
        if found is not None and found.id == old.id:
            return
        gap = TopicDeleted(old.name, old.id) if found is None else TopicRecreated(old.name, old.id, found.id)
        if not self._skip:
            raise gap
        self.last_gap = gap
        if found is not None:
            self.partition = _choose_partition(found, self.partition)
            self._topic = found
            self._seqno = self._term = self._moment = None
            self._at_end = False

    def _look_again(self) -> None:
        """The state file may be another one than the reader has open; the log's directory may be gone."""
        self._looked = time.monotonic()
        if self._watch is not None:
            self._watch.renew()
        if self._states is not None:
            with suppress(FileNotFoundError):
                self._states.reopen()
        if self._log is not None and not self._disk.exists(self._log.view.directory):
            raise LogGone


def _find_topic(disk: OsDisk, directory: str, name: str) -> Topic:
    topic = find_topic(disk, directory, name)
    if topic is None:
        names = [topic.name for topic in read_topics(disk, directory)]
        raise TopicNotFound(name, directory, near_names(name, names))
    return topic


def _choose_partition(topic: Topic, partition: int | None) -> int:
    if partition is None and topic.partitions == 1:
        return 0
    if partition is None or not 0 <= partition < topic.partitions:
        error = PartitionNotFound(topic.name, partition, topic.partitions)
        if partition is None:
            error.args = (f"topic {topic.name!r} has {topic.partitions} partitions: {_WHOLE}",)
        raise error
    return partition
