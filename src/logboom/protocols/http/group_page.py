"""What a member of a group polls: a page of records of the logs that it holds, from where the group stands in each.

The front-end keeps nothing of a member. How far a page came goes out with it as `next`: each log that this page, or
those it follows, went on in, the place there, and the generation in which the member held it. That is what a member
commits; and it says which logs the member still has records of. Any other that it is asked for a poll gives back.

A poll that waits is a member that lives: it beats meanwhile, and reads what it holds by then.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from crc32c import crc32c
from starlette.requests import Request

from logboom.broker.api import Grant, GroupMove, GroupStanding, HeldLog, ReadRequest, Start
from logboom.broker.read.log_names import TEXT_MAX
from logboom.protocols.http.problem import BadParameter
from logboom.protocols.http.record_page import SEQNO_MAX, PageRequest, while_wanted
from logboom.protocols.http.schema.operation import caller_of
from logboom.protocols.http.topics_page import LogKey, TopicsPage, read_topics
from logboom.storage.bookmark import Bookmark, BookmarkSet

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

NEXT_MAX: Final = 1024 * 1024
"""Characters of a `next`."""
_CRC: Final = Struct("<I")
_U32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)]
_Place = tuple[_U32, _Count, _U32, Annotated[int, msgspec.Meta(ge=0)], _Count]
"""Partition, seqno, term, lineage, generation."""
_Topic = tuple[str, Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]]


class PollRequest(NamedTuple):
    group: str
    member: str
    limit: int
    wait_s: float
    gaps: Literal["raise", "skip"]
    after: list[GroupMove]
    """How far the member has come without a commit."""


class GroupPage(NamedTuple):
    standing: GroupStanding
    moves: list[GroupMove]
    """To be committed."""
    page: TopicsPage


class MovesText:
    """What a member has not committed yet, as the one text that goes out as `next` and comes back."""

    _encoder: Final = msgspec.msgpack.Encoder()
    _decoder: Final = msgspec.msgpack.Decoder(list[tuple[_Topic, list[_Place]]])

    @classmethod
    def write(cls, moves: Iterable[GroupMove]) -> str:
        topics: dict[_Topic, list[_Place]] = {}
        for move in moves:
            topic_id, *place = Bookmark.parse(move.bookmark)
            partition, seqno, term, lineage = place
            topics.setdefault((move.topic, topic_id), []).append((partition, seqno, term, lineage, move.generation))
        if not topics:
            return ""
        fields = cls._encoder.encode(list(topics.items()))
        return base64.urlsafe_b64encode(fields + _CRC.pack(crc32c(fields))).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, parameter: str) -> list[GroupMove]:
        """Raises BadParameter. Of none, which is what a page without records has, nothing is moved."""
        if not text:
            return []
        try:
            if len(text) > NEXT_MAX:
                raise ValueError(len(text))
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            fields = data[: -_CRC.size]
            if data[len(fields) :] != _CRC.pack(crc32c(fields)):
                raise ValueError(text)
            topics = cls._decoder.decode(fields)
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            raise BadParameter(parameter, f"{text[:100]!r} is no `next` of a page", "give it as it came") from None
        return [
            GroupMove(topic, partition, str(Bookmark(topic_id, partition, seqno, term, lineage)), generation)
            for (topic, topic_id), places in topics
            for partition, seqno, term, lineage, generation in places
        ]


def held_of(moves: Iterable[GroupMove]) -> list[HeldLog]:
    """The logs that somebody who has not committed these yet still holds."""
    return [HeldLog(Bookmark.parse(move.bookmark).topic_id.hex(), move.partition) for move in moves]


async def poll_group(front_end: HttpFrontEnd, request: Request, wanted: PollRequest) -> GroupPage:
    return await _Poll(front_end, request, wanted).run()


class _Poll:
    def __init__(self, front_end: HttpFrontEnd, asked: Request, wanted: PollRequest) -> None:
        self._front_end = front_end
        self._asked = asked
        self._caller = caller_of(asked)
        self._wanted = wanted
        self._after: dict[LogKey, GroupMove] = {
            (Bookmark.parse(move.bookmark).topic_id.hex(), move.partition): move for move in wanted.after
        }
        self._standing = GroupStanding(0, 0, [])
        wait_s = min(wanted.wait_s, front_end.limits.read_wait_ms / 1000)
        self._until = front_end.world.monotonic_s() + wait_s

    async def run(self) -> GroupPage:
        self._standing = await self._beat(held_of(self._wanted.after))
        if len(self._held()) < len(self._standing.grants):
            self._standing = await self._beat(self._held())
        while True:
            grants = self._readable()
            page = await self._read_on(grants) if grants else await self._wait()
            if page is not None:
                return GroupPage(self._standing, self._moves(page, grants), page)

    def _held(self) -> list[HeldLog]:
        """What is not to be given back: nothing was asked for it, or the member has records of it."""
        return [
            HeldLog(grant.topic_id, grant.partition)
            for grant in self._standing.grants
            if not grant.is_asked_back or self._uncommitted(grant) is not None
        ]

    def _uncommitted(self, grant: Grant) -> GroupMove | None:
        move = self._after.get((grant.topic_id, grant.partition))
        return move if move is not None and move.generation == grant.generation else None

    def _readable(self) -> list[Grant]:
        """What the next page is of. More than one read may be of take turns, by chance."""
        found = [grant for grant in self._standing.grants if not grant.is_asked_back]
        longest = max((len(grant.topic) + 12 for grant in found), default=1)
        most = min(self._front_end.limits.logs_per_subscription, TEXT_MAX // longest)
        return found if len(found) <= most else self._front_end.world.chance.sample(found, most)

    async def _beat(self, held: list[HeldLog], wait_ms: int = 0) -> GroupStanding:
        wanted, generation = self._wanted, self._standing.generation
        return await self._front_end.broker.beat_group(
            wanted.group, wanted.member, generation, held, wait_ms, caller=self._caller
        )

    def _rest_ms(self) -> int:
        """How long may be waited, at most until the member must beat again."""
        rest_ms = round((self._until - self._front_end.world.monotonic_s()) * 1000)
        return max(0, min(rest_ms, self._standing.beat_ms))

    async def _wait(self) -> TopicsPage | None:
        """Until the member may have been given something. An empty page where it was not."""
        rest_ms = self._rest_ms()
        if rest_ms:
            beat = self._beat(self._held(), rest_ms)
            standing = await while_wanted(self._front_end, self._asked, beat)
            if standing is not None:
                self._standing = standing
                return None
        return TopicsPage("", {}, True)

    async def _read_on(self, grants: list[Grant]) -> TopicsPage | None:
        """None where the member holds something else before anything has come."""
        if not self._rest_ms():
            return await self._read(grants, 0)
        rest_s = self._until - self._front_end.world.monotonic_s()
        reading = asyncio.ensure_future(self._read(grants, max(0.0, rest_s)))
        tasks: list[asyncio.Future[Any]] = [reading]
        try:
            while True:
                beating = asyncio.ensure_future(self._beat(self._held(), self._rest_ms() or self._standing.beat_ms))
                tasks = [reading, beating]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    return reading.result()
                before, self._standing = self._standing, beating.result()
                if self._standing.grants != before.grants:
                    return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, grants: list[Grant], wait_s: float) -> TopicsPage:
        bookmarks = [self._place(grant) for grant in grants]
        known = BookmarkSet(Bookmark.parse(text) for text in bookmarks if text is not None)
        start = Start(bookmark=str(known)) if known else Start()
        topics = ",".join(f"{grant.topic}/{grant.partition}" for grant in grants)
        request = ReadRequest(topics, start, gaps=self._wanted.gaps, whole=True)
        return await read_topics(self._front_end, self._asked, PageRequest(request, self._wanted.limit, wait_s=wait_s))

    def _place(self, grant: Grant) -> str | None:
        move = self._uncommitted(grant)
        return grant.bookmark if move is None else move.bookmark

    def _moves(self, page: TopicsPage, grants: list[Grant]) -> list[GroupMove]:
        """Of every log where the member is not where the group is."""
        known = {(grant.topic_id, grant.partition): grant for grant in self._standing.grants}
        moves = {key: move for key, grant in known.items() if (move := self._uncommitted(grant)) is not None}
        for grant in grants:
            key = grant.topic_id, grant.partition
            place = page.places.get(key)
            if place is None or key not in known:
                continue
            begun = place.first if grant.bookmark is None else Bookmark.parse(grant.bookmark).seqno
            if place.seqno != begun:
                moves[key] = GroupMove(grant.topic, grant.partition, str(place.bookmark), grant.generation)
        return list(moves.values())
