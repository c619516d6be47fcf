"""Records of several logs in the order of their timestamps. No input or output.

Each log is read a piece at a time, when what there was of it is used up, and nothing is given before every log has a
piece or is at its end: so what is there is merged exactly, and about `PIECE_BYTES` of each log are held. What comes
meanwhile is given when it is found: a log at its end holds up no other, and a record that is older than what was given
already comes after it. Inside a log the order stays that of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import Any, Final, Literal

from logboom.batch import Record
from logboom.broker.api import Chunk, ReadRequest, Start
from logboom.client.read.topics_core import LogKey, TopicsCore
from logboom.errors import LogboomError, TopicDeleted, TopicNotFound, TopicRecreated

PIECE_BYTES: Final = 256 * 1024
_GONE: Final = (TopicDeleted, TopicNotFound, TopicRecreated)


@dataclass(slots=True)
class _Head:
    """What comes next of one log."""

    batches: Iterator[tuple[Sequence[int], Iterator[Record]]]
    times: Sequence[int] = ()
    records: Iterator[Record] = field(default_factory=lambda: iter(()))
    taken: int = 0

    def time(self) -> int | None:
        """Of the next record; None where there is none at hand."""
        while self.taken == len(self.times):
            found = next(self.batches, None)
            if found is None:
                return None
            (self.times, self.records), self.taken = found, 0
        return self.times[self.taken]

    def take(self) -> Record:
        self.taken += 1
        return next(self.records)


class MergedCore(TopicsCore):
    def wanting(self) -> LogKey | None:
        """A log of which something has to be fetched before anything can be given."""
        for key, log in self._logs.items():
            if log.current is None and not log.at_end:
                return key
        return None

    def request_of(self, key: LogKey) -> ReadRequest:
        log = self._logs[key]
        gaps: Literal["raise", "skip"] = "skip" if self._skip else "raise"
        start = Start(bookmark=log.bookmark)
        return ReadRequest(log.topic, start, log.partition, log.topic_id, PIECE_BYTES, filter=self._filter, gaps=gaps)

    def fetched(self, key: LogKey, chunk: Chunk) -> None:
        self.arrived(chunk._replace(topic=self._logs[key].topic))

    def missed(self, key: LogKey, error: LogboomError) -> None:
        """A log could not be read: it leaves, or that is raised."""
        log = self._logs[key]
        is_named = any(name.topic == log.topic for name in self._names.exact)
        if not isinstance(error, _GONE) or (is_named and not self._skip):
            raise error
        self._skipped += self._logs.pop(key).skipped
        self.last_gap = error

    def records(self) -> Iterator[Iterator[Record]]:
        merged = self._merge()
        first = next(merged, None)
        if first is not None:
            yield chain((first,), merged)

    def _merge(self) -> Iterator[Record]:
        """Until one of the logs has to be fetched."""
        if self.wanting() is not None:
            return
        heads = {key: _Head(log.timed()) for key, log in self._logs.items() if log.current is not None}
        coming = [(time, key) for key, head in heads.items() if (time := head.time()) is not None]
        heapify(coming)
        while coming and self.wanting() is None:
            _, key = coming[0]
            head = heads[key]
            while True:
                yield head.take()
                time = head.time()
                if time is None or time > coming[0][0]:
                    break
            if time is not None:
                heapreplace(coming, (time, key))
            else:
                heappop(coming)

    def lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        raise ValueError("order='time' is for records, one by one: sort lists and tables yourself")

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        return self.lists(())

    def batches(self) -> Iterator[Any]:
        return self.lists(())
