"""How far cursors lie behind the ends of their logs: now, by topic, and in the last samples.

Of few cursors all are followed; of many those of topics that somebody has asked for lately, never more than
FOLLOWED_MAX. Which cursors a topic has is looked up in an index that is made again where cursors came or went, and only
if anybody wants to know.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from logboom.broker.api import CursorInfo
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.monitor.activity import LagHistory
from logboom.broker.monitor.pulses import SLOTS, shown_numbers
from logboom.broker.slices import slices
from logboom.broker.state.cursors import Cursors, split_key

FOLLOWED_MAX: Final = 1_000
"""Cursors, each partition's by itself."""
COUNTED_MAX: Final = 10_000
"""Cursors whose lag is looked at for each sample while somebody asks; of more, what was found lasts for longer."""
ASKED_S: Final = 600.0
"""So long a topic that was asked for counts as interesting."""
UNKNOWN: Final = -1


def _ring() -> array[int]:
    return array("q", [UNKNOWN]) * SLOTS


@dataclass(slots=True, eq=False)
class CursorLag:
    """One cursor in one partition."""

    topic_id: bytes
    lag: array[int] = field(default_factory=_ring)


class Lags:
    def __init__(self, catalog: Catalog, cursors: Callable[[], Cursors | None]) -> None:
        self._catalog = catalog
        self._cursors = cursors
        self._followed: dict[bytes, CursorLag] = {}
        self._asked: dict[str, float] = {}
        """Topics that somebody wanted the history of, and when; the latest last."""
        self._counted: dict[Hosted, tuple[int, int | None]] = {}
        """What `of_topic` has found since the sample before `_count_at`."""
        self._count_at = 0
        self._index: dict[str, list[bytes]] = {}
        """The keys of each topic's cursors."""
        self._indexed = UNKNOWN
        self._indexing = asyncio.Lock()

    def note_asked(self, topic: str, now_s: float) -> None:
        self._asked.pop(topic, None)
        self._asked[topic] = now_s
        if len(self._asked) > FOLLOWED_MAX:
            del self._asked[next(iter(self._asked))]

    async def take(self, number: int, now_s: float) -> None:
        """One sample."""
        cursors, followed = self._cursors(), {}
        if number >= self._count_at:
            self._counted, self._count_at = {}, number + 1 + (0 if cursors is None else len(cursors) // COUNTED_MAX)
        keys = [] if cursors is None else await self._interesting(cursors, now_s)
        async for some in slices(keys):
            for key in some:
                standing = None if cursors is None else cursors.standing(key)
                if standing is None:
                    continue
                before = self._followed.get(key)
                if before is None or before.topic_id != standing.topic_id:
                    before = CursorLag(standing.topic_id)
                lag = self._lag(key, standing.topic_id, standing.seqno)
                before.lag[number % SLOTS] = UNKNOWN if lag is None else lag
                followed[key] = before
        self._followed = followed

    async def _interesting(self, cursors: Cursors, now_s: float) -> Sequence[bytes]:
        self._asked = {topic: when for topic, when in self._asked.items() if when > now_s - ASKED_S}
        if len(cursors) <= FOLLOWED_MAX:
            return cursors.keys()
        found: list[bytes] = []
        if self._asked:
            index = await self._its_index(cursors)
            for topic in reversed(self._asked):
                found += index.get(topic, ())[: FOLLOWED_MAX - len(found)]
        return found

    async def history(self, hosted: Hosted, number: int) -> list[LagHistory]:
        """Of those cursors of a topic that are followed, by name and partition."""
        cursors, found = self._cursors(), []
        index = {} if cursors is None else await self._its_index(cursors)
        slots = [each % SLOTS for each in shown_numbers(number)]
        async for some in slices(index.get(hosted.topic.name, ())):
            for key in some:
                followed = self._followed.get(key)
                if followed is not None and followed.topic_id == hosted.topic.id_bytes:
                    cursor, _, partition = split_key(key)
                    lags = [None if followed.lag[slot] < 0 else followed.lag[slot] for slot in slots]
                    found.append(LagHistory(cursor, partition, lags))
        return sorted(found, key=lambda each: (each.cursor, each.partition))

    async def of_topic(self, hosted: Hosted) -> tuple[int, int | None]:
        """How many names of cursors a topic has, and the lag of the one that is furthest behind."""
        cursors = self._cursors()
        if cursors is None or not len(cursors):
            return 0, None
        keys = (await self._its_index(cursors)).get(hosted.topic.name)
        if keys is None:
            return 0, None
        found = self._counted.get(hosted)
        if found is None:
            found = self._counted[hosted] = await _count(hosted, cursors, keys)
        return found

    def _lag(self, key: bytes, topic_id: bytes, seqno: int) -> int | None:
        _, topic, partition = split_key(key)
        return lag_of(self._catalog.get(topic), topic_id, partition, seqno)

    async def _its_index(self, cursors: Cursors) -> dict[str, list[bytes]]:
        async with self._indexing:
            changes = cursors.changes
            if changes != self._indexed:
                index: dict[str, list[bytes]] = {}
                async for some in slices(cursors.keys()):
                    for key in some:
                        index.setdefault(split_key(key)[1], []).append(key)
                self._index, self._indexed = index, changes
            return self._index


async def _count(hosted: Hosted, cursors: Cursors, keys: Sequence[bytes]) -> tuple[int, int | None]:
    names, furthest, topic_id = set(), UNKNOWN, hosted.topic.id_bytes
    ends = [writer.log.committed if isinstance(writer, LogWriter) else UNKNOWN for writer in hosted.writers]
    async for some in slices(keys):
        for key in some:
            standing = cursors.standing(key)
            if standing is None or standing.topic_id != topic_id:
                continue
            name, _, place = key.split(b"\0")
            names.add(name)
            partition = int(place)
            if partition < len(ends) and ends[partition] >= 0:
                furthest = max(furthest, ends[partition] - standing.seqno, 0)
    return len(names), None if furthest < 0 else furthest


def lag_of(hosted: Hosted | None, topic_id: bytes, partition: int, seqno: int) -> int | None:
    """Records between a place and the end of its log; None where that log is gone, or cannot be opened."""
    if hosted is None or hosted.topic.id_bytes != topic_id or partition >= len(hosted.writers):
        return None
    writer = hosted.writers[partition]
    return max(0, writer.log.committed - seqno) if isinstance(writer, LogWriter) else None


def with_lag(info: CursorInfo, catalog: Catalog) -> CursorInfo:
    lag = lag_of(catalog.get(info.topic), bytes.fromhex(info.topic_id), info.partition, info.seqno)
    return msgspec.structs.replace(info, lag=lag)


async def list_with_lags(cursors: Cursors, catalog: Catalog, topic: str | None, prefix: str) -> list[CursorInfo]:
    """By name, topic and partition."""
    found = await cursors.list(topic, prefix)
    return [with_lag(info, catalog) async for some in slices(found) for info in some]
