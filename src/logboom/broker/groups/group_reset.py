"""Putting the places of a group elsewhere, while it has no members who would not know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from logboom.broker.api.groups import GroupReset
from logboom.broker.api.reads import LogPlace, ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.groups.live_group import LiveGroup
from logboom.broker.groups.wishes import mark
from logboom.errors import CursorNotFound, GroupBusy, InvalidPattern, SeqnoOutOfRange
from logboom.storage.bookmark import Bookmark


class GroupResets:
    def __init__(self, coordinator: Coordinator) -> None:
        self._groups = coordinator

    async def reset(self, name: str, topics: str, start: Start, dry_run: bool, caller: Caller) -> list[GroupReset]:
        group = self._groups.groups.get(name)
        if group is not None and group.entry.members:
            raise GroupBusy(name, len(group.entry.members))
        request = ReadRequest(topics, start, gaps="skip", whole=True)
        places = await self._groups.reads.locate(request, caller, self._groups.limits.group_logs)
        if start.cursor is not None:
            places = self._with_cursor(places, start.cursor, topics)
        self._check(places, topics)
        found = []
        for place in places:
            bookmark = self._groups.cursors.fetch(mark(name), place.topic, place.partition)
            seqno_from = None if bookmark is None else Bookmark.parse(bookmark).seqno
            found.append(GroupReset(place.topic, place.partition, seqno_from, place.seqno))
        if not dry_run:
            bookmarks = {(place.topic, place.partition): str(place.bookmark) for place in places}
            while not await self._groups.do(self._reset(self._groups.take(name, "logs"), bookmarks)):
                pass  # it was deleted meanwhile: another one is made
        return found

    def _with_cursor(self, places: list[LogPlace], cursor: str, topics: str) -> list[LogPlace]:
        """Those where there is such a cursor: in the others the group stays where it is."""
        found = [each for each in places if self._groups.cursors.fetch(cursor, each.topic, each.partition) is not None]
        if places and not found:
            raise CursorNotFound(cursor, topics[:300])
        return found

    def _check(self, places: list[LogPlace], topics: str) -> None:
        """A trial says what the reset would."""
        if not places:
            raise InvalidPattern(f"no topic fits {topics[:300]!r}")
        for place in places:
            if place.seqno > place.committed:
                raise SeqnoOutOfRange(place.seqno, place.first, place.committed)

    async def _reset(self, group: LiveGroup, bookmarks: Mapping[tuple[str, int], str]) -> bool:
        async with self._groups.hold(group) as is_there:
            if not is_there:
                return False
            if group.entry.members:
                raise GroupBusy(group.name, len(group.entry.members))
            await self._groups.settle(group, replace(group.entry, emptied=self._groups.world.now_us()))
            put = {(self._groups.catalog.find(topic).topic.id, partition) for topic, partition in bookmarks}
            await self._groups.on_forgotten(group.name, put)
            moves = [
                self._groups.move(group.name, self._groups.catalog.find(topic), partition, bookmark, True)
                for (topic, partition), bookmark in bookmarks.items()
            ]
            await asyncio.gather(*moves)
            return True
