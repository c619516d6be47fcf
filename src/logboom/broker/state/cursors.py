"""Named, durable bookmarks: one for each cursor, topic and partition.

A cursor is known by its topic's name and carries the topic's id, so that one left over from a topic that was deleted
and made again is noticed where it is used. Commits that come while another is being written share one append.

A cursor goes forward: a commit that would put it back is refused, unless it says `force`. A place in another topic of
that name, or behind a tail that was lost, is no place of the same log any more: leaving it is not going back.

A commit may be part of a publish. Then it is decided here (`begin`), comes true with the intent, and is written here
later (`write`), after a crash once more. Each place of a cursor has a higher version than the one before it, also where
that is not written yet, and none is replaced by one of a lower version: so it does not matter how late a place is
written, nor how often. Such a cursor is deleted only when no restart can bring it back.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from logboom.broker.api import CursorInfo
from logboom.broker.slices import in_order, slices
from logboom.broker.state.internal_log import StateLog
from logboom.errors import (
    CursorBusy,
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
OF_GROUP: Final = "@"
"""The places of a consumer group are those of a cursor with its name behind this, which no client can give."""
BUSY_S: Final = 10.0
"""So long a deletion waits for what moves the cursor."""
_NAME: Final = re.compile(r"[A-Za-z0-9._/:-]{1,249}", re.ASCII)


class CursorEntry(msgspec.Struct, frozen=True, array_like=True):
    """Where a cursor stands, as it is kept. Fields may be added with defaults; never moved."""

    topic_id: bytes
    seqno: int
    term: int
    updated: int
    lineage: int = 0
    version: int = 0
    """Higher than that of the place before."""


@dataclass(slots=True, eq=False)
class CursorChange:
    """A place that was found right for a cursor, until it is written, or is not to be."""

    key: bytes
    entry: CursorEntry
    is_reserved: bool
    settled: Future[None]
    """Done when it is written, or taken back; failed where only a restart tells which."""
    ended: Future[None] | None = None
    """Of a publish: done when no restart writes it again."""
    writing: Future[None] | None = None


class Cursors:
    def __init__(self, state: StateLog) -> None:
        self._state = state
        self._under_way: dict[bytes, list[CursorChange]] = {}
        """What is not ended yet, of each cursor: the next commit is compared with the last of it."""

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
        await self.carry_out(self.begin(cursor, topic, topic_id, partition, bookmark, now, force, expect, is_lost))

    def begin(
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
        with_publish: bool = False,
    ) -> CursorChange:
        """A commit, as far as it is decided: later ones are compared with it, until it has been given to `end`.

        `with_publish`: it is part of one, and no repeat where the cursor stands there by somebody else's commit.
        """
        check_kept_name(cursor)
        place = Bookmark.parse(bookmark)
        if place.topic_id.hex() != topic_id:
            raise TopicRecreated(topic, place.topic_id.hex(), topic_id)
        if place.partition != partition:
            raise InvalidBookmark(f"the bookmark is of partition {place.partition}, not of {partition}")
        key, log = cursor_key(cursor, topic, partition), f"{topic}/{partition}"
        found = self._newest(key)
        is_repeat = not with_publish and _is_at(found, place)
        if expect is not None and not _is_expected(found, expect, partition) and not is_repeat:
            raise UnexpectedCursor(cursor, log, None if found is None else found.seqno)
        if found is not None and not force and _is_before(place, found) and not is_lost(bookmark_of(found, partition)):
            raise CursorMovedBack(cursor, log, place.seqno, found.seqno)
        version = 1 if found is None else found.version + 1
        return self._note(key, _standing(place, now, version), self._state.reserve(key), with_publish)

    def _newest(self, key: bytes) -> CursorEntry | None:
        """Where it stands, or is going to."""
        places = [change.entry for change in self._under_way.get(key, ())]
        standing = self.standing(key)
        if standing is not None:
            places.append(standing)
        return max(places, key=lambda entry: entry.version, default=None)

    def _note(self, key: bytes, entry: CursorEntry, is_reserved: bool, with_publish: bool) -> CursorChange:
        future = asyncio.get_running_loop().create_future
        change = CursorChange(key, entry, is_reserved, future(), future() if with_publish else None)
        self._under_way.setdefault(key, []).append(change)
        return change

    def resume(self, key: bytes, entry: CursorEntry) -> CursorChange:
        """After a restart: this was committed with a publish, and may not be written yet."""
        return self._note(key, entry, False, True)

    async def carry_out(self, change: CursorChange) -> None:
        """Durable when this returns. A caller who goes away takes nothing back."""
        work = asyncio.create_task(self.write([change]), name="logboom-cursor")
        work.add_done_callback(lambda _: self._end_written(work, change))
        await asyncio.shield(work)

    def _end_written(self, work: asyncio.Task[None], change: CursorChange) -> None:
        if not work.cancelled():
            work.exception()  # whoever asked may have gone away
        self.end([change])

    async def write(self, changes: Sequence[CursorChange]) -> None:
        """Durable when this returns: these, or what came after them. Where it raises it can be tried again."""
        while later := {writing for change in changes for writing in self._later_writes(change)}:
            await asyncio.wait(later)
        entries = {change.key: change.entry for change in changes if self._is_due(change)}
        writing = asyncio.get_running_loop().create_future()
        for change in changes:
            change.writing = writing
        try:
            await self._state.put({key: msgspec.msgpack.encode(entry) for key, entry in entries.items()}, True)
        finally:
            writing.set_result(None)
            for change in changes:
                change.writing = None
        for change in changes:
            _settle(change.settled)

    def _later_writes(self, change: CursorChange) -> Iterator[Future[None]]:
        for other in self._under_way.get(change.key, ()):
            if other.writing is not None and other.entry.version > change.entry.version:
                yield other.writing

    def _is_due(self, change: CursorChange) -> bool:
        standing = self.standing(change.key)
        return standing is None or standing.version < change.entry.version

    def end(self, changes: Iterable[CursorChange]) -> None:
        """These are written, and no restart writes them again; or they are not to be written."""
        for change in changes:
            rest = [other for other in self._under_way.get(change.key, ()) if other is not change]
            if rest:
                self._under_way[change.key] = rest
            else:
                self._under_way.pop(change.key, None)
            if change.is_reserved:
                self._state.release(change.key)
            _settle(change.settled)
            if change.ended is not None:
                _settle(change.ended)

    def doubt(self, changes: Iterable[CursorChange], error: Exception) -> None:
        """Only a restart tells whether these are committed."""
        for change in changes:
            if not change.settled.done():
                change.settled.set_exception(error)
                change.settled.exception()  # perhaps nobody waits for it

    async def settled(self, cursor: str, topic: str, partition: int) -> None:
        """Until what is under way now for this cursor is written, or refused: then `fetch` shows it.

        Whoever gives a log to somebody else waits for this first. Raises where only a restart tells.
        """
        for change in list(self._under_way.get(cursor_key(cursor, topic, partition), ())):
            await asyncio.shield(change.settled)

    def fetch(self, cursor: str, topic: str, partition: int) -> str | None:
        """Its bookmark; None where nobody has committed it."""
        check_kept_name(cursor)
        value = self._state.get(cursor_key(cursor, topic, partition))
        return None if value is None else str(bookmark_of(_decode(value), partition))

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
        """Returns how many there were: one for each partition. Raises CursorBusy."""
        check_kept_name(cursor)

        def is_meant(name: str, of_topic: str) -> bool:
            return name == cursor and topic in (None, of_topic)

        until = asyncio.get_running_loop().time() + BUSY_S
        while moves := [
            change.ended or change.settled
            for key, changes in self._under_way.items()
            if is_meant(*split_key(key)[:2])
            for change in changes
        ]:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise CursorBusy(cursor)
            await asyncio.wait(moves, timeout=left_s)
        gone: dict[bytes, bytes | None] = {key: None for key, _, _ in self._find(is_meant)}
        await self._state.put(gone)
        return len(gone)

    async def copy(self, bookmarks: Mapping[CursorKey, str | None], now: int) -> None:
        """As another node has them; those that are None are gone there. Durable when this returns."""
        changes: dict[bytes, bytes | None] = {}
        for (cursor, topic, partition), bookmark in bookmarks.items():
            check_kept_name(cursor)
            place = None if bookmark is None else Bookmark.parse(bookmark)
            standing = None if place is None else _standing(place, now)
            changes[cursor_key(cursor, topic, partition)] = (
                None if standing is None else msgspec.msgpack.encode(standing)
            )
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
    """One that a client gives. Raises InvalidCursorName."""
    if _NAME.fullmatch(cursor) is None:
        raise InvalidCursorName(cursor)


def check_kept_name(cursor: str) -> None:
    """One that a place is kept under: a client's, or a group's."""
    if _NAME.fullmatch(cursor.removeprefix(OF_GROUP)) is None:
        raise InvalidCursorName(cursor)


def split_key(key: bytes) -> CursorKey:
    cursor, topic, partition = key.decode().split("\0")
    return cursor, topic, int(partition)


def cursor_key(cursor: str, topic: str, partition: int) -> bytes:
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


def _settle(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _standing(place: Bookmark, now: int, version: int = 0) -> CursorEntry:
    return CursorEntry(place.topic_id, place.seqno, place.term, now, place.lineage, version)


def bookmark_of(standing: CursorEntry, partition: int) -> Bookmark:
    return Bookmark(standing.topic_id, partition, standing.seqno, standing.term, standing.lineage)


def _info(cursor: str, topic: str, partition: int, standing: CursorEntry) -> CursorInfo:
    bookmark = str(bookmark_of(standing, partition))
    return CursorInfo(cursor, topic, standing.topic_id.hex(), partition, standing.seqno, bookmark, standing.updated)
