"""Named, durable bookmarks: one for each cursor, topic and partition.

A cursor is known by its topic's name and carries the topic's id, so that one left over from a topic that was deleted
and made again is noticed where it is used. Commits that come while another is being written share one append.

A cursor goes forward: a commit that would put it back is refused, unless it says `force`. A place in another topic of
that name, or behind a tail that was lost, is no place of the same log any more: leaving it is not going back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from logboom.broker.api import CursorInfo
from logboom.broker.slices import in_order, slices
from logboom.broker.state.internal_log import StateLog
from logboom.errors import (
    CursorMovedBack,
    InvalidBookmark,
    InvalidCursorName,
    TopicRecreated,
    UnexpectedCursor,
)
from logboom.storage.bookmark import Bookmark, Term

TOPIC: Final = "_cursors"
"""The internal topic behind them."""
FILE: Final = "cursors"
"""Their snapshot, below DATA/internal."""
LIMIT: Final = "limits.cursors"
CursorKey = tuple[str, str, int]
"""A cursor's name, its topic's, and the partition."""
_NAME: Final = re.compile(r"[A-Za-z0-9._/:-]{1,249}", re.ASCII)


class CursorEntry(msgspec.Struct, frozen=True, array_like=True):
    """Where a cursor stands, as it is kept. Fields may be added with defaults; never moved."""

    topic_id: bytes
    seqno: int
    term: int
    updated: int
    lineage: int = 0


class Cursors:
    def __init__(self, state: StateLog) -> None:
        self._state = state
        self._under_way: dict[bytes, CursorEntry] = {}
        """The last commit of each cursor that is being written: the next one is compared with it."""

    def __len__(self) -> int:
        return len(self._state)

    @property
    def changes(self) -> int:
        """Rises whenever a cursor comes or goes."""
        return self._state.changes

    def keys(self) -> list[bytes]:
        """As `split_key` takes them."""
        return [key for key, _ in self._state.items()]

    def standing(self, key: bytes) -> CursorEntry | None:
        value = self._state.get(key)
        return None if value is None else _decode(value)

    async def commit(
        self,
        cursor: str,
        topic: str,
        topic_id: str,
        partition: int,
        bookmark: str,
        now: int,
        force: bool = False,
        expect: str | None = None,
        is_lost: Callable[[Bookmark], bool] = lambda _: False,
    ) -> None:
        """Durable when this returns; broker.api.Broker says what is refused.

        `is_lost` says whether what stood before a place is not in the log any more.
        """
        check_name(cursor)
        place = Bookmark.parse(bookmark)
        if place.topic_id.hex() != topic_id:
            raise TopicRecreated(topic, place.topic_id.hex(), topic_id)
        if place.partition != partition:
            raise InvalidBookmark(f"the bookmark is of partition {place.partition}, not of {partition}")
        key, standing = _key(cursor, topic, partition), _standing(place, now)
        found = self._under_way.get(key) or self.standing(key)
        log = f"{topic}/{partition}"
        if expect is not None and not _is_expected(found, expect, partition) and not _is_at(found, place):
            raise UnexpectedCursor(cursor, log, None if found is None else found.seqno)
        if found is not None and not force and _is_before(place, found) and not is_lost(_bookmark(found, partition)):
            raise CursorMovedBack(cursor, log, place.seqno, found.seqno)
        self._under_way[key] = standing
        try:
            await self._state.put({key: msgspec.msgpack.encode(standing)})
        finally:
            if self._under_way.get(key) is standing:
                del self._under_way[key]

    def fetch(self, cursor: str, topic: str, partition: int) -> str | None:
        """Its bookmark; None where nobody has committed it."""
        check_name(cursor)
        value = self._state.get(_key(cursor, topic, partition))
        return None if value is None else str(_bookmark(_decode(value), partition))

    async def list(self, topic: str | None = None, prefix: str = "") -> list[CursorInfo]:
        """By name, topic and partition. What lies between them and the ends of their logs is not known here."""
        found: list[tuple[CursorKey, CursorEntry]] = []
        async for some in slices(self.keys()):
            for key in some:
                place, standing = split_key(key), self.standing(key)
                if standing is not None and place[0].startswith(prefix) and topic in (None, place[1]):
                    found.append((place, standing))
        found = await in_order(found, lambda each: each[0])
        return [_info(*place, standing) async for some in slices(found) for place, standing in some]

    async def delete(self, cursor: str, topic: str | None = None) -> int:
        """Returns how many there were: one for each partition."""
        check_name(cursor)
        found = self._find(lambda name, of_topic: name == cursor and topic in (None, of_topic))
        gone: dict[bytes, bytes | None] = {key: None for key, _, _ in found}
        await self._state.put(gone)
        return len(gone)

    async def copy(self, bookmarks: Mapping[CursorKey, str | None], now: int) -> None:
        """As another node has them; those that are None are gone there. Durable when this returns."""
        changes: dict[bytes, bytes | None] = {}
        for (cursor, topic, partition), bookmark in bookmarks.items():
            check_name(cursor)
            place = None if bookmark is None else Bookmark.parse(bookmark)
            standing = None if place is None else _standing(place, now)
            changes[_key(cursor, topic, partition)] = None if standing is None else msgspec.msgpack.encode(standing)
        await self._state.put(changes)

    async def forget_topic(self, topic_id: str) -> None:
        """The topic with this id was deleted."""
        wanted = bytes.fromhex(topic_id)
        await self._state.put({key: None for key, value in self._state.items() if _decode(value).topic_id == wanted})

    async def close(self) -> None:
        await self._state.close()

    def _find(self, wanted: Callable[[str, str], bool]) -> Iterator[tuple[bytes, tuple[str, str, int], bytes]]:
        for key, value in self._state.items():
            place = split_key(key)
            if wanted(place[0], place[1]):
                yield key, place, value


def check_name(cursor: str) -> None:
    if _NAME.fullmatch(cursor) is None:
        raise InvalidCursorName(cursor)


def split_key(key: bytes) -> CursorKey:
    cursor, topic, partition = key.decode().split("\0")
    return cursor, topic, int(partition)


def _key(cursor: str, topic: str, partition: int) -> bytes:
    return f"{cursor}\0{topic}\0{partition}".encode()


def _decode(value: bytes) -> CursorEntry:
    return msgspec.msgpack.decode(value, type=CursorEntry)


def _is_before(place: Bookmark, found: CursorEntry) -> bool:
    return found.topic_id == place.topic_id and place.seqno < found.seqno


def _is_at(found: CursorEntry | None, place: Bookmark) -> bool:
    if found is None or (found.topic_id, found.seqno) != (place.topic_id, place.seqno):
        return False
    return not Term(found.term, found.lineage).differs(place.before)


def _is_expected(found: CursorEntry | None, expect: str, partition: int) -> bool:
    if not expect:
        return found is None
    place = Bookmark.parse(expect)
    return place.partition == partition and _is_at(found, place)


def _standing(place: Bookmark, now: int) -> CursorEntry:
    return CursorEntry(place.topic_id, place.seqno, place.term, now, place.lineage)


def _bookmark(standing: CursorEntry, partition: int) -> Bookmark:
    return Bookmark(standing.topic_id, partition, standing.seqno, standing.term, standing.lineage)


def _info(cursor: str, topic: str, partition: int, standing: CursorEntry) -> CursorInfo:
    bookmark = str(_bookmark(standing, partition))
    return CursorInfo(cursor, topic, standing.topic_id.hex(), partition, standing.seqno, bookmark, standing.updated)
