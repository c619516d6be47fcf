"""Where a reader of several logs stands in each of them, and what it makes of the chunks that come. No input or output.

It is to a `Fetcher` what a `ReaderCore` is, and has one of those for each log. Which logs there are the node says: when
they are located, and with the first chunk of one that has come since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.msgpack import Decoder

from logboom.batch import Batch, Record
from logboom.batch.arrow import ORDER
from logboom.broker.api import Chunk, Filter, LogPlace, ReadRequest, Start
from logboom.broker.read.log_names import LogNames
from logboom.client.read.reader_core import CHUNK_BYTES, ReaderCore
from logboom.errors import LocalProtocolError, LogboomError, RemoteProtocolError, TopicDeleted, TopicNotFound
from logboom.protocols.binary.messages import Kind, Locate
from logboom.storage.bookmark import BookmarkSet
from logboom.values.serializer import ValueCoder

if TYPE_CHECKING:
    import pyarrow as pa

LogKey = tuple[str, int]
"""The topic's id, and the partition."""
COLUMNS: Final = ("topic", "partition", *ORDER)
"""Of a table, where none are named."""
_places = Decoder(list[LogPlace])


class TopicsCore:
    state: None = None
    """No checkpoint comes before several logs."""
    topic_id: None = None
    partition: None = None

    def __init__(
        self,
        topics: str,
        start: Start,
        wanted: Filter | None = None,
        skip: bool = False,
        coder: ValueCoder | None = None,
    ) -> None:
        self.topic = topics
        """As `LogNames` are written."""
        self._names = LogNames.parse(topics)
        self._start = start
        self._filter = wanted
        self._skip = skip
        self._coder = coder
        self._logs: dict[LogKey, ReaderCore] = {}
        self._is_located = False
        self._current: ReaderCore | None = None
        self._skipped = 0
        self.last_gap: LogboomError | None = None

    @classmethod
    def of(cls, reading: ReaderCore) -> TopicsCore:
        """The same of all partitions of a topic, where there are several."""
        return cls(reading.topic, reading.start, reading.filter, reading.skips, reading.coder)

    @property
    def logs(self) -> list[ReaderCore]:
        return sorted(self._logs.values(), key=lambda log: (log.topic, log.partition or 0))

    @property
    def is_located(self) -> bool:
        return self._is_located

    @property
    def seqno(self) -> int | None:
        """Of the only log; None where there are several, or none."""
        logs = list(self._logs.values())
        return logs[0].seqno if len(logs) == 1 else None

    @property
    def first(self) -> int:
        return self._only("first").first

    @property
    def committed(self) -> int:
        return self._only("committed").committed

    @property
    def at_end(self) -> bool:
        return all(log.at_end for log in self._logs.values())

    @property
    def skipped(self) -> int:
        return self._skipped + sum(log.skipped for log in self._logs.values())

    @property
    def bookmark(self) -> str:
        if not self._is_located:
            raise LocalProtocolError(f"the reader of {self.topic} has not been opened: nobody knows where it stands")
        return str(BookmarkSet(log.place for log in self._logs.values()))

    def _only(self, what: str) -> ReaderCore:
        if len(self._logs) != 1:
            raise LocalProtocolError(
                f"the reader of {self.topic} reads {len(self._logs)} logs: `logs` has {what} of each"
            )
        return next(iter(self._logs.values()))

    # What a Fetcher asks.

    def question(self) -> tuple[Kind, Locate]:
        """Which logs there are, where they begin, and how far they reach."""
        return Kind.CALL, Locate(self._request(self._start if not self._is_located else Start(bookmark=self.bookmark)))

    def answered(self, answer: Any) -> None:
        try:
            places = _places.decode(answer)
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError(f"a look for logs was answered with something else: {error}") from None
        known, self._logs = self._logs, {}
        for place in places:
            key = place.topic_id, place.partition
            self._logs[key] = known.get(key) or self._make(place.topic, place.partition)
            self._logs[key].placed(place)
        self._skipped += sum(log.skipped for key, log in known.items() if key not in self._logs)
        self._is_located = True

    def _make(self, topic: str, partition: int) -> ReaderCore:
        return ReaderCore(topic, partition, Start(), self._filter, self._skip, self._coder)

    def request(self) -> ReadRequest:
        return self._request(Start(bookmark=self.bookmark))

    def _request(self, start: Start) -> ReadRequest:
        gaps: Literal["raise", "skip"] = "skip" if self._skip else "raise"
        return ReadRequest(self.topic, start, max_bytes=CHUNK_BYTES, filter=self._filter, gaps=gaps, whole=True)

    def arrived(self, chunk: Chunk) -> None:
        key = chunk.topic_id, chunk.partition
        if chunk.is_gone:
            log = self._logs.pop(key, None)
            self._skipped += 0 if log is None else log.skipped
            self.last_gap = TopicDeleted(chunk.topic, chunk.topic_id)
            return
        if key not in self._logs:
            facts = chunk.seqno, chunk.first, chunk.committed, chunk.term if chunk.next_seqno == chunk.seqno else None
            self._logs[key] = self._make(chunk.topic, chunk.partition)
            self._logs[key].stand_at(chunk.topic_id, *facts)
        log = self._current = self._logs[key]
        if self._skip and log.seqno is not None and chunk.seqno > log.seqno:
            log.pass_to(chunk)
            self.last_gap = log.last_gap
        log.arrived(chunk)

    def failed(self, error: LogboomError) -> bool:
        """What the node leaves out by itself is no error here; a topic that is gone may come again."""
        if self._skip and isinstance(error, TopicNotFound) and self._is_located:
            self.last_gap = error
            return False
        raise error

    def cursor_places(self) -> list[tuple[str, int | None, str]]:
        """Where a cursor is to stand in each log."""
        return [(log.topic, log.partition, log.bookmark) for log in self.logs]

    @property
    def end(self) -> dict[LogKey, int]:
        """How far the logs reach, as far as the node has said."""
        return {key: log.committed for key, log in self._logs.items()}

    def has_reached(self, end: dict[LogKey, int]) -> bool:
        """A log that is gone has no more to come."""
        found = ((self._logs.get(key), committed) for key, committed in end.items())
        return all(log is None or (log.seqno or 0) >= committed for log, committed in found)

    def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> None:
        found = [log for log in self._logs.values() if (log.topic, log.partition or 0) == (topic, partition or 0)]
        (found[0] if found else self._only("seqno")).seek(seqno)

    # What the current chunk holds.

    def records(self) -> Iterator[Iterator[Record]]:
        return iter(()) if self._current is None else self._current.records()

    def batches(self) -> Iterator[Batch]:
        raise ValueError("stored batches do not say which log they are of: read one partition, or take tables")

    def lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        return iter(()) if self._current is None else self._current.lists(columns)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        return iter(()) if self._current is None else self._current.tables(COLUMNS if columns is None else columns)
