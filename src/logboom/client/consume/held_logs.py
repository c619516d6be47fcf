"""The logs that a member of a group holds, as a `Fetcher` reads them: they come and go. No input, no output.

What of a log was processed is what its reader has come back for: behind all that was given, but while the caller has a
record, or a piece, in its hands, before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from logboom.batch import Record
from logboom.batch.batch import Latch
from logboom.broker.api import Chunk, Filter, Grant, LogPlace, ReadRequest, Start
from logboom.client.read.reader_core import ReaderCore
from logboom.client.read.topics_core import LogKey, TopicsCore
from logboom.errors import (
    LogboomError,
    PartitionNotFound,
    TopicDeleted,
    TopicError,
    TopicNotFound,
    TopicRecreated,
    ValueUnreadable,
)
from logboom.protocols.binary.messages import Kind, Locate
from logboom.storage.bookmark import Bookmark, BookmarkSet
from logboom.values.serializer import ValueCoder

if TYPE_CHECKING:
    import pyarrow as pa

_GONE = (TopicDeleted, TopicNotFound, TopicRecreated, PartitionNotFound)


class HeldLogCore(ReaderCore):
    """One of them."""

    def __init__(self, grant: Grant, latch: Latch, wanted: Filter | None, skip: bool, coder: ValueCoder | None) -> None:
        start = Start() if grant.bookmark is None else Start(bookmark=grant.bookmark)
        super().__init__(grant.topic, grant.partition, start, wanted, skip, coder)
        self.grant = grant
        self.latch = latch
        self.topic_id = grant.topic_id
        self.said: Bookmark | None = None
        """The place of the group, as it was told last."""

    @property
    def key(self) -> LogKey:
        return self.grant.topic_id, self.grant.partition

    def placed(self, place: LogPlace) -> None:
        is_first = not self.is_located
        super().placed(place)
        if is_first:
            self.said = place.bookmark

    @property
    def place_before(self) -> Bookmark:
        """Before the record that was given last."""
        given = self._given
        taken = 0 if given is None else given.taken
        if given is None or not taken:
            return self.place
        return self.place_at(given.seqnos[taken - 1], given.given_term if taken > 1 else given.start_term)

    def go_to(self, place: Bookmark) -> None:
        """It is fetched from there."""
        self.current = None
        self.stand_again(place)

    def stand_again(self, place: Bookmark) -> None:
        """At a place in what has come."""
        self._move(place.seqno, place.term)

    @property
    def place_behind(self) -> Bookmark:
        """Behind the piece that is being given, to its last record."""
        given = self._given
        if given is None or not given.seqnos:
            return self.place
        return self.place_at(given.seqnos[-1] + 1, given.given_term)

    def place_after(self, seqno: int) -> Bookmark:
        """Behind a record."""
        given = self._given
        is_given = given is not None and given.seqnos and given.seqnos[0] <= seqno <= given.seqnos[-1]
        return self.place_at(seqno + 1, given.given_term if given is not None and is_given else None)


class HeldLogs(TopicsCore):
    def __init__(
        self,
        topics: str,
        latch: Latch,
        wanted: Filter | None = None,
        skip: bool = False,
        coder: ValueCoder | None = None,
    ) -> None:
        super().__init__(topics, Start(), wanted, skip, coder)
        self._latch = latch
        self.held: dict[LogKey, HeldLogCore] = {}
        """Those of topics that are gone, too, until the group takes them back."""
        self.is_changed = False
        """Whether a subscription is of other logs than these."""
        self._begun: tuple[HeldLogCore, Bookmark] | None = None
        """Where the current one stood before the piece that is being given."""
        self._is_one_by_one = False
        """Whether a piece is records that are taken one by one, and counts as processed up to the one in hand."""

    def hold(self, grant: Grant) -> HeldLogCore:
        log = HeldLogCore(grant, self._latch, self._filter, self._skip, self._coder)
        self.held[log.key] = self._logs[log.key] = log
        self.is_changed = True
        return log

    def drop(self, key: LogKey) -> HeldLogCore:
        """Give nothing more of it."""
        log = self.held.pop(key)
        self._leave(key)
        return log

    def _leave(self, key: LogKey) -> None:
        gone = self._logs.pop(key, None)
        self._skipped += 0 if gone is None else gone.skipped
        if gone is not None and gone is self._current:
            self._current = None
        self.is_changed = True

    @property
    def current(self) -> HeldLogCore | None:
        """The one that something was given of last."""
        log = self._current
        return log if isinstance(log, HeldLogCore) else None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read from."""
        return not self._logs

    @property
    def is_located(self) -> bool:
        return all(log.is_located for log in self._logs.values())

    @property
    def bookmark(self) -> str:
        return str(BookmarkSet(log.place for log in self._logs.values() if log.is_located))

    def _request(self, start: Start) -> ReadRequest:
        names = ",".join(sorted(f"{log.topic}/{log.partition}" for log in self._logs.values()))
        return replace(super()._request(start), topic=names)

    def question(self) -> tuple[Kind, Locate]:
        places = [
            log.place if log.is_located else Bookmark.parse(log.start.bookmark or "")
            for log in self._logs.values()
            if log.is_located or log.start.bookmark is not None
        ]
        start = Start(bookmark=str(BookmarkSet(places))) if places else Start()
        return Kind.CALL, Locate(self._request(start))

    def answered(self, answer: Any) -> None:
        before = self._logs.keys()
        super().answered(answer)
        for key in self._logs.keys() - self.held.keys():
            self._leave(key)  # another topic of the same name
        self.is_changed |= self._logs.keys() != before

    def arrived(self, chunk: Chunk) -> None:
        if (chunk.topic_id, chunk.partition) in self._logs:
            super().arrived(chunk)
        else:
            self._current = None

    def failed(self, error: LogboomError) -> bool:
        """A topic that is gone is read no more; the group takes its logs back."""
        gone = [
            key
            for key, log in self._logs.items()
            if isinstance(error, _GONE) and isinstance(error, TopicError) and error.name == log.topic
        ]
        if not gone:
            raise error
        self.last_gap = error
        for key in gone:
            self._leave(key)
        return not self.is_empty

    # What the current chunk holds.

    def begin_piece(self) -> None:
        """The next piece is about to be given."""
        log = self.current
        self._begun = None if log is None else (log, log.place)

    def place_in_hand(self, log: HeldLogCore) -> Bookmark:
        """How far a log was processed while the program has the piece that was given last."""
        if self._begun is None or self._begun[0] is not log:
            return log.place
        return log.place_before if self._is_one_by_one else self._begun[1]

    def place_ahead(self, log: HeldLogCore) -> Bookmark:
        """Behind the piece."""
        return log.place_behind if self._is_one_by_one else log.place

    def take_back(self) -> None:
        """What was to be given is not given: it comes again."""
        if self._begun is not None:
            log, place = self._begun
            log.go_to(place)
            self.is_changed = True

    def rewind(self) -> None:
        """All of them stand again where the group does."""
        for log in self.held.values():
            if log.said is not None and log.is_located:
                log.go_to(log.said)
        self._current, self.is_changed = None, True

    def records(self) -> Iterator[Iterator[Record]]:
        self._is_one_by_one = True
        return super().records()

    def lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        self._is_one_by_one = False
        return super().lists(columns)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        self._is_one_by_one = False
        return super().tables(columns)

    def some(self, count: int) -> Iterator[list[Record]]:
        """Up to so many records that have come, at once; up to the first whose value cannot be decoded."""
        self._is_one_by_one = False
        found: list[Record] = []
        for records in super().records():
            try:
                found += islice(records, count - len(found))
            except ValueUnreadable:
                log = self.current
                if not found or log is None:
                    raise
                log.stand_again(log.place_before)
                break
            if len(found) == count:
                break
        if found:
            yield found
