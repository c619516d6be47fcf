"""A log as far back as its archive goes: what retention has dropped from the files, and behind that the files.

The archive counts only where it reaches up to the first record of the files without a gap, and never below the floor
of a trim. Both may move while they are read: what was read is looked at again before it is believed.
"""

from __future__ import annotations

from logboom.client.files.file_archives import FileArchives
from logboom.errors import Damage
from logboom.results.archived import ArchivedLogReader
from logboom.storage.data.topic import Topic
from logboom.storage.readable_log import SeqnoRange
from logboom.storage.run import Run
from logboom.storage.view import LogView


class WholeLog:
    def __init__(self, view: LogView, archives: FileArchives, topic: Topic, partition: int) -> None:
        self.view = view
        self._archives = archives
        self._topic = topic
        self._partition = partition

    @property
    def first(self) -> int:
        """The first readable seqno."""
        view = self.view
        last = self.archive_of(view.first - 1)
        return view.first if last is None else max(last.first, view.standing.floor)

    def archive_of(self, seqno: int) -> ArchivedLogReader | None:
        """The archive, if it has this record and all from there to the files' own."""
        if self._topic.name.startswith("_"):
            return None
        view = self.view
        floor = view.standing.floor
        found = self._archives.find(self._topic.id, self._partition, view.first, floor)
        return found if found is not None and max(found.first, floor) <= seqno < view.first else None

    def read_archive(self, archive: ArchivedLogReader, seqno: int, max_bytes: int, limit: int | None) -> Run | None:
        """None where a trim or another archive came meanwhile, which may not have the same files."""
        view = self.view
        try:
            run = archive.read(seqno, max_bytes, None if limit is None else limit - seqno)
        except Damage:
            view.refresh()
            if self.archive_of(seqno) is archive:
                raise
            return None
        view.refresh()
        return run if seqno >= view.standing.floor else None

    def term_before(self, seqno: int) -> int | None:
        """The term of the record before this one; None where nobody knows any more."""
        archive = self.archive_of(seqno) if seqno < self.view.first else None
        return self.view.term_before(seqno) if archive is None else archive.term_before(seqno)

    def seqno_at(self, moment: int) -> int:
        """The first record at or after this time; behind the last one where there is none."""
        view, first = self.view, self.first
        archive = self.archive_of(first) if first < view.first else None
        found = None if archive is None else archive.seqno_at(moment, first)
        return max(view.first, view.seqno_at(moment)) if found is None or found >= view.first else found

    def cut(self, seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
        """What there is of these records, in pieces of about so many bytes."""
        view = self.view
        seqno_from = max(seqno_from, self.first)
        archive = self.archive_of(seqno_from) if seqno_from < view.first else None
        if archive is None:
            return view.cut(seqno_from, seqno_until, every_bytes)
        own = max(seqno_from, min(view.first, seqno_until))
        return archive.cut(seqno_from, own, every_bytes) + view.cut(own, seqno_until, every_bytes)
