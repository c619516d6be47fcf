"""One file of consecutive batches, and how to find a place in it.

Names: `<first seqno>-<first index>-<generation>.log` and `.idx`, `<first seqno>-<first index>.snap`; all decimal,
padded with zeros so that they sort. The highest generation of a segment wins.

A segment knows where it begins; where it ends is its owner's to say (`end`), because what lies behind may be torn or
not yet committed. Lookups bisect the sparse index and walk headers from there: every header passed is checked, so a
position returned is the true start of a batch with the number asked for, or `Damage` is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from logboom.batch.batch import Batch
from logboom.batch.header import HEADER_SIZE, KIND_DATA, NO_TIMESTAMP, Header
from logboom.errors import BatchError, Damage
from logboom.storage.files.disk import File, publish_file, read_file, replace_file, write_aside
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.index import BatchPlace, SparseIndex, Summary
from logboom.storage.labels import COLUMNS, Labels, label_columns
from logboom.storage.scan import Gap, Window, walk
from logboom.storage.tail import Snapshot

_WALK_BYTES: Final = 4096


_NAME: Final = r"(0\d{19}-0\d{19})(?:\.snap|-([0-3]\d{9})\.(?:log|idx))"
parse_name: Final = re.compile(_NAME, re.ASCII).fullmatch
"""Matches the name of a file of ours: its first seqno and index as they stand, and its generation if it has one."""
_are_ours: Final = re.compile(f"(?:{_NAME}/)*", re.ASCII).fullmatch
NUMBERS_SIZE: Final = 41
"""So many characters of each name say its first seqno and index."""


def own_names(names: list[str]) -> list[str]:
    """Those that `parse_name` matches. Mostly that is all of them, and they may be thousands: one look tells."""
    return names if _are_ours("/".join([*names, ""])) else [name for name in names if parse_name(name)]


def snap_path(directory: str, seqno: int, index: int) -> str:
    return f"{directory}/{seqno:020}-{index:020}.snap"


class Before(NamedTuple):
    """Of all batches before a segment: the newest timestamp, the last one's append time and term, lineages of terms."""

    max_timestamp: int
    append_time: int
    term: int
    lineages: dict[int, int]


class Segment:
    __slots__ = (
        "_before",
        "_files",
        "_index",
        "_size",
        "_summary",
        "after",
        "directory",
        "first_index",
        "first_seqno",
        "generation",
        "log_path",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        first_seqno: int,
        first_index: int,
        generation: int,
        log_path: str | None = None,
    ) -> None:
        self._files = files
        self.directory = directory
        self.first_seqno = first_seqno
        self.first_index = first_index
        self.generation = generation
        self.log_path = log_path or f"{directory}/{first_seqno:020}-{first_index:020}-{generation:010}.log"
        self._index: SparseIndex | None = None
        self._summary: Summary | None = None
        self._before: Before | None = None
        self._size: int | None = None
        self.after: tuple[int, int] | None = None
        """The seqno and index the next segment begins with; None while there is no next one."""

    @classmethod
    def named(cls, files: OpenFiles, directory: str, name: str) -> Segment:
        """By the name of its .log."""
        return cls(files, directory, int(name[:20]), int(name[21:41]), int(name[42:52]), f"{directory}/{name}")

    def __repr__(self) -> str:
        return f"<Segment {self.log_path}>"

    @property
    def index_path(self) -> str:
        return f"{self.log_path[:-4]}.idx"

    @property
    def temporary_path(self) -> str:
        """Where this file is written before it gets its name."""
        return f"{self.log_path}.tmp"

    @property
    def snap_path(self) -> str:
        return snap_path(self.directory, self.first_seqno, self.first_index)

    def file(self) -> File:
        return self._files.get(self.log_path)

    def open_anew(self) -> File:
        """The file that has the name now, whatever is open already."""
        return self._files.disk.open(self.log_path)

    @property
    def index(self) -> SparseIndex:
        """The sparse index: as written while the segment is active, as loaded, or made again from the file."""
        index = self._index if self._index is not None else self._files.indexes.get(self.log_path)
        return index if index is not None else self._load()[0]

    @property
    def labels(self) -> Labels:
        """What a sealed segment may hold. Blocks where it is not in memory. Raises OSError where nobody can tell."""
        labels = self._files.labels.get(self.log_path)
        if labels is None:
            labels = self._load()[2]
            self._files.labels.put(self.log_path, labels)
        return labels

    def write_labels(self, labels: Labels) -> None:
        """Somebody has read this sealed segment. Any thread: nobody sees them before `publish_labels`."""
        index, summary, _ = self._load()
        write_aside(self._files.disk, self.index_path, index.encode(summary, labels), durable=False)

    def publish_labels(self) -> None:
        publish_file(self._files.disk, f"{self.index_path}.tmp", self.index_path, durable=False)
        self._files.labels.forget(self.log_path)

    def discard_labels(self) -> None:
        """What was written is not wanted any more; what stays is removed when the log is opened."""
        with suppress(OSError):
            self._files.disk.unlink(f"{self.index_path}.tmp")

    @property
    def size(self) -> int:
        """Bytes of a sealed segment."""
        if self._summary is not None:
            return self._summary.size
        if self._size is None or self.after is None:
            self._size = self.file().size()
        return self._size

    @property
    def stored_bytes(self) -> int:
        """As `size`; none where the file is lost or cannot be asked: one of many must not hide the others."""
        try:
            return self.size
        except OSError:
            return 0

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in a sealed segment."""
        summary = self._summary or self._load()[1]
        return summary.max_timestamp

    @property
    def max_timestamp_before(self) -> int | None:
        """The newest timestamp of all before this segment, dropped or not; None where its snapshot is damaged."""
        before = self.before
        return None if before is None else before.max_timestamp

    @property
    def before(self) -> Before | None:
        """What the snapshot says of the batches before this segment; None where it is damaged."""
        if self._before is None:
            snapshot = Snapshot.decode(read_file(self._files.disk, self.snap_path))
            if snapshot is not None:
                self._before = Before(snapshot.max_timestamp, snapshot.append_time, snapshot.term, snapshot.lineages)
        return self._before

    def start_index(self, every_bytes: int) -> SparseIndex:
        """A fresh index, filled by whoever writes or scans this segment, and kept until it is sealed."""
        self._index = SparseIndex(every_bytes)
        self._summary = None
        return self._index

    def seal(self, summary: Summary) -> None:
        """Nothing will be appended here any more: write the index out. It is derived, so it is not synced."""
        replace_file(self._files.disk, self.index_path, self.index.encode(summary), durable=False)

    def sealed(self, summary: Summary) -> None:
        """The segment has a successor: its index need not stay in memory."""
        self.after = summary.next_seqno, summary.next_index
        self._files.indexes.put(self.log_path, self.index)
        self._summary, self._index = summary, None

    def adopt(self, index: SparseIndex, summary: Summary) -> None:
        """This file was written by somebody who knows what it holds."""
        self._keep(index, summary)

    def forget(self) -> None:
        """Believe nothing that was learnt of this file: another process may have changed it."""
        self._index = self._summary = self._size = self._before = None
        self._files.indexes.forget(self.log_path)
        self._files.labels.forget(self.log_path)

    def unseal(self) -> None:
        """Bytes will be taken away, and others added."""
        self.after = self._summary = self._size = None
        self._files.indexes.forget(self.log_path)
        self._files.labels.forget(self.log_path)
        if self._files.disk.exists(self.index_path):
            self._files.disk.unlink(self.index_path)

    def _load(self) -> tuple[SparseIndex, Summary, Labels]:
        data = read_file(self._files.disk, self.index_path)
        loaded = SparseIndex.decode(data) if data is not None else None
        if loaded is None or not self._fits(*loaded[:2]):
            index, summary = self._rebuild()
            loaded = index, summary, Labels.of_columns(index.columns)
        self._keep(*loaded[:2])
        return loaded

    def _fits(self, index: SparseIndex, summary: Summary) -> bool:
        """Whether an index is of this very file: it may be one that a crash brought back."""
        end = self._end()
        if index.last is None or summary[:3] != end:
            return False
        last: Header | None = None
        for found in walk(Window(self.file(), end.position, _WALK_BYTES), index.last, end):
            last = None if isinstance(found, Gap) else found[1]
        return last is not None and last.header_crc == summary.last_header_crc

    def _end(self) -> BatchPlace:
        """Where a sealed segment ends."""
        assert self.after is not None
        return BatchPlace(self.file().size(), *self.after)

    def _keep(self, index: SparseIndex, summary: Summary) -> None:
        self._summary = summary
        if self._index is None:
            self._files.indexes.put(self.log_path, index)

    def _rebuild(self) -> tuple[SparseIndex, Summary]:
        """From the headers in the file. Every batch behind a gap gets an entry, so that a gap hides only itself."""
        end = self._end()
        index = SparseIndex()
        newest, crc = NO_TIMESTAMP, 0
        after_gap = False
        for found in walk(Window(self.file(), end.position), self.start, end):
            if isinstance(found, Gap):
                after_gap = True
                index.columns = COLUMNS
                continue
            position, header = found
            index.add(header.base_seqno, header.index, position, newest, after_gap, label_columns(header))
            after_gap = False
            newest, crc = max(newest, header.newest_timestamp(header.append_time)), header.header_crc
        return index, Summary(*end, newest, crc)

    @property
    def start(self) -> BatchPlace:
        return BatchPlace(0, self.first_seqno, self.first_index)

    def find_seqno(self, seqno: int, end: BatchPlace, hint: BatchPlace | None = None) -> tuple[int, Header] | None:
        """The batch that holds this record; `hint` is a place at or before it, where one is known."""
        return self._find(
            hint or self.index.by_seqno(seqno),
            end,
            lambda header: header.next_seqno > seqno,
            lambda header: header.base_seqno <= seqno,
        )

    def find_index(self, index: int, end: BatchPlace) -> tuple[int, Header] | None:
        """The batch with this index."""
        return self._find(
            self.index.by_index(index),
            end,
            lambda header: header.index >= index,
            lambda header: header.index == index,
        )

    def find_term(self, term: int, end: BatchPlace) -> tuple[int, Header] | None:
        """The first batch of this term, or of a later one: terms never go back."""
        low, high, found = self.first_index, end.index, None
        while low < high:
            middle = (low + high) // 2
            batch = self.find_index(middle, end)
            if batch is not None and batch[1].term >= term:
                high, found = middle, batch
            else:
                low = middle + 1
        return found

    def find_time(self, timestamp: int, seqno_from: int, end: BatchPlace) -> tuple[int, Header] | None:
        """The first batch with a record at or after this time that is not wholly before `seqno_from`."""

        def wanted(header: Header) -> bool:
            if header.kind != KIND_DATA or header.next_seqno <= seqno_from:
                return False
            return header.newest_timestamp(header.append_time) >= timestamp

        places = (self.index.by_time(timestamp), self.index.by_seqno(seqno_from))
        return self._find(max((place for place in places if place), default=None), end, wanted, lambda header: False)

    def _find(
        self,
        place: BatchPlace | None,
        end: BatchPlace,
        wanted: Callable[[Header], bool],
        is_it: Callable[[Header], bool],
    ) -> tuple[int, Header] | None:
        """The first batch that is wanted. Behind damage only if `is_it`: else what is wanted may be what is damaged."""
        gap: Gap | None = None
        for found in walk(Window(self.file(), end.position, _WALK_BYTES), place or self.start, end):
            if isinstance(found, Gap):
                gap = found
            elif wanted(found[1]):
                if gap is None or is_it(found[1]):
                    return found
                break
        if gap is not None:
            raise Damage(self.log_path, gap.position, gap.seqno_from, gap.seqno_until, gap.reason)
        return None

    def end_of_run(self, first: tuple[int, Header], limit: int, seqno_until: int | None, end: BatchPlace) -> BatchPlace:
        """The last batch boundary at or before byte `limit`, with no batch from `seqno_until` on.

        At least the batch `first` lies before it.
        """
        position, header = first
        place = self.index.by_position(limit)
        if seqno_until is not None:
            by_seqno = self.index.by_seqno(seqno_until)
            place = min(place, by_seqno) if place and by_seqno else None
        if place is None or place.position <= position:
            place = BatchPlace(position + header.size, header.next_seqno, header.index + 1)
        for found in walk(Window(self.file(), end.position, _WALK_BYTES), place, end):
            if isinstance(found, Gap):
                break
            position, header = found
            if position + header.size > limit or (seqno_until is not None and header.base_seqno >= seqno_until):
                break
            place = BatchPlace(position + header.size, header.next_seqno, header.index + 1)
        return place

    def batch(self, position: int, end: BatchPlace) -> Batch:
        """The batch at this true start, verified."""
        window = Window(self.file(), end.position, HEADER_SIZE)
        header = window.header(position)
        try:
            return window.batch(position)
        except BatchError as error:
            raise Damage(self.log_path, position, header.base_seqno, header.next_seqno, str(error)) from None
