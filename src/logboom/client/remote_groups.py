"""The calls of a RemoteBroker that are about groups of consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from msgspec.msgpack import Decoder

from logboom.broker import api
from logboom.broker.caller import EVERYBODY, Caller
from logboom.client.link.async_link import AsyncLink
from logboom.errors import RemoteProtocolError
from logboom.protocols.binary import group_messages as messages
from logboom.protocols.binary.messages import Kind

PIECE_BYTES: Final = 48 * 1024
THING_BYTES: Final = 64
"""What one takes besides its texts, at most."""
Thing = TypeVar("Thing")
_standing = Decoder(api.GroupStanding)
_refused = Decoder(list[api.RefusedMove])
_groups = Decoder(list[api.GroupInfo])
_group = Decoder(api.GroupDescription)
_resets = Decoder(list[api.GroupReset])
_refused_jobs = Decoder(list[api.RefusedSettlement])
_nothing = Decoder(None)


class RemoteGroups:
    async def _call(self, head: Any, result: Decoder[Any], caller: Caller) -> Any:
        raise NotImplementedError

    def _as(self, caller: Caller) -> AsyncLink:
        raise NotImplementedError

    async def join_group(self, join: api.GroupJoin, *, caller: Caller = EVERYBODY) -> api.GroupStanding:
        standing: api.GroupStanding = await self._call(messages.JoinGroup(join), _standing, caller)
        return standing

    async def beat_group(
        self,
        group: str,
        member: str,
        generation: int,
        held: list[api.HeldLog],
        wait_ms: int = 0,
        *,
        caller: Caller = EVERYBODY,
    ) -> api.GroupStanding:
        head = messages.BeatGroup(group, member, generation, held, wait_ms)
        standing: api.GroupStanding = await self._call(head, _standing, caller)
        return standing

    async def leave_group(self, group: str, member: str, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.LeaveGroup(group, member), _nothing, caller)

    async def commit_group(
        self, group: str, member: str, moves: list[api.GroupMove], *, caller: Caller = EVERYBODY
    ) -> list[api.RefusedMove]:
        refused: list[api.RefusedMove] = []
        for some in _pieces(moves, lambda move: len(move.topic) + len(move.bookmark)):
            refused += await self._call(messages.CommitGroup(group, member, some), _refused, caller)
        return refused

    async def list_groups(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[api.GroupInfo]:
        groups: list[api.GroupInfo] = await self._call(messages.ListGroups(prefix), _groups, caller)
        return groups

    async def describe_group(self, group: str, *, caller: Caller = EVERYBODY) -> api.GroupDescription:
        found: api.GroupDescription = await self._call(messages.DescribeGroup(group), _group, caller)
        return found

    async def reset_group(
        self, group: str, topics: str, start: api.Start, dry_run: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[api.GroupReset]:
        head = messages.ResetGroup(group, topics, start, dry_run)
        resets: list[api.GroupReset] = await self._call(head, _resets, caller)
        return resets

    async def delete_group(self, group: str, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.DeleteGroup(group), _nothing, caller)

    async def take_jobs(self, request: api.TakeJobs, *, caller: Caller = EVERYBODY) -> api.LeasedJobs:
        jobs: api.LeasedJobs = await self._as(caller).request(Kind.TAKE_JOBS, request, decode=_jobs)
        return jobs

    async def settle_jobs(
        self, group: str, member: str, settlements: list[api.Settlement], *, caller: Caller = EVERYBODY
    ) -> list[api.RefusedSettlement]:
        refused: list[api.RefusedSettlement] = []
        for some in _pieces(settlements, lambda each: len(each.topic_id)):
            refused += await self._call(messages.SettleJobs(group, member, some), _refused_jobs, caller)
        return refused


def _pieces(things: list[Thing], size_of: Callable[[Thing], int]) -> Iterator[list[Thing]]:
    """As many as go into the head of one frame; none is a piece, too, so that somebody hears of it."""
    some: list[Thing] = []
    size = 0
    for thing in things:
        size += THING_BYTES + size_of(thing)
        if some and size > PIECE_BYTES:
            yield some
            some, size = [], THING_BYTES + size_of(thing)
        some.append(thing)
    yield some


def _jobs(answer: object) -> api.LeasedJobs:
    if not isinstance(answer, api.LeasedJobs):
        raise RemoteProtocolError("records to work on were asked for, and something else came")
    return answer
