"""Membership in a group over HTTP: join, poll, commit, leave, and beat where polls are far apart.

A member that polls needs to know nothing but its id: what came as `next` goes back with the next poll as `commit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import (
    GroupJoin,
    GroupMode,
    GroupMove,
    GroupStanding,
    HeldLog,
    QueueSettings,
    RefusedMove,
)
from logboom.broker.groups.wishes import GIVE_BACK_MS, SESSION_MS
from logboom.errors import ShuttingDown
from logboom.protocols.http.api.cursors import bookmark_at
from logboom.protocols.http.api.groups import JSON, TAG, shown
from logboom.protocols.http.formats import MEDIA_TYPES, Format, RecordShown, RecordSource, choose, encode, respond
from logboom.protocols.http.group_page import GroupPage, MovesText, PollRequest, held_of, poll_group
from logboom.protocols.http.problem import BadParameter, RequestError
from logboom.protocols.http.record_page import MEANINGS, SEQNO_MAX, parse_start, while_wanted
from logboom.protocols.http.schema.operation import (
    Content,
    NoQuery,
    Operation,
    PageLimit,
    Text,
    caller_of,
    check_limit,
    parse_body,
    parse_query,
)
from logboom.storage.bookmark import Bookmark

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

MOVES_MAX: Final = 1_000
HELD_MAX: Final = 100_000
SHOWN_MAX: Final = 100
"""Of logs in a header."""
CLIENT_MAX: Final = 100
"""Characters of a User-Agent that are shown."""
MemberId = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{16,64}$")]
SessionMs = Annotated[int, msgspec.Meta(ge=SESSION_MS[0], le=SESSION_MS[1])]
GiveBackMs = Annotated[int, msgspec.Meta(ge=GIVE_BACK_MS[0], le=GIVE_BACK_MS[1])]
Number = Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)]
Wait = Annotated[float, msgspec.Meta(ge=0)]


class NewMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topics: Text
    """A topic, one of its logs as `orders/2`, a pattern as `orders.*`; or several of these with commas."""
    member: MemberId | None = None
    """An id that nobody else has: 16 to 64 letters, digits, `-` or `_`. Without one the node makes one up."""
    mode: GroupMode = "logs"
    """Whether members share the logs, or single records of all of them."""
    instance: str = ""
    """A name that outlives the process: who joins with it takes over what the one before had."""
    client: Text | None = None
    """What the program calls itself, for people. Default: its User-Agent."""
    session_ms: SessionMs = 60_000
    """Who neither polls nor beats for so long is out."""
    give_back_ms: GiveBackMs = 60_000
    """A log that it was asked for and keeps for so long is taken."""
    start: Text = msgspec.field(default="earliest", name="from")
    """For logs in which the group has no place yet: `earliest`, `latest`, or a time as 2026-01-31T12:00:00Z."""
    queue: QueueSettings | None = None
    """For the mode `queue`."""


class HeldPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic_id: str
    partition: Number


class GrantedLog(msgspec.Struct, frozen=True):
    """A log that a member holds."""

    topic: str
    topic_id: str
    partition: int
    generation: int
    """In which it was given to the member."""
    bookmark: str | None
    """Where the group stands in it; null where it has no place there: its first record."""
    is_asked_back: bool
    """To be given back: commit, then leave it out of what is held."""


class MemberStanding(msgspec.Struct, frozen=True):
    """What a member is told. Logs that are not here it does not hold, whatever it was told before."""

    member: str
    """Its id."""
    generation: int
    beat_ms: int
    """Within so much it should poll or beat again: the sooner it does, the sooner logs move."""
    grants: list[GrantedLog]


class MemberBeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    generation: Number = 0
    """What the member was told last: with `wait`, the answer waits for a higher one."""
    next: str = ""
    """Of the last page: of these logs it still has records, any other that it was asked for it gives back."""
    held: Annotated[list[HeldPartition], msgspec.Meta(max_length=HELD_MAX)] = []
    """More logs that it does not give back."""


class BeatQuery(msgspec.Struct, frozen=True):
    wait: Wait = 0.0


class PollQuery(msgspec.Struct, frozen=True):
    limit: PageLimit | None = None
    wait: Wait = 0.0
    gaps: Literal["raise", "skip"] = "raise"
    format: Format | None = None


class MemberPoll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    commit: str = ""
    """`next` of a page whose records are done with: it is committed first."""
    after: str = ""
    """`next` of a page that is not: the page goes on behind it, and its logs are not given back."""


class PlaceDone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a member is done with one log."""

    topic: Text
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    seqno: Number
    """Of the record that is to be read next: the last one done, plus 1."""
    generation: Number
    """In which the member holds the log."""


class MemberCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`next` of a page, for all of it; or places."""

    rule: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["next"], "properties": {"next": {"type": "string"}}},
            {"required": ["places"], "properties": {"places": {"type": "array"}}},
        ]
    }
    next: str | None = None
    places: Annotated[list[PlaceDone], msgspec.Meta(max_length=MOVES_MAX)] | None = None


class Committed(msgspec.Struct, frozen=True):
    committed: int
    """In so many logs."""
    refused: list[RefusedMove]
    """Other logs, which the member does not hold any more: somebody else reads those records."""


class MemberPage(msgspec.Struct, frozen=True):
    records: list[RecordShown]
    group: str
    member: str
    generation: int
    beat_ms: int
    """Within so much it should poll or beat again: the sooner it does, the sooner logs move."""
    logs: int
    """That the member holds."""
    places: list[PlaceDone]
    """What `next` commits: the place behind the last record of each log."""
    next: str
    """To be committed when the records are done. Empty where there is nothing to commit."""
    at_end: bool
    """There is nothing more now."""
    refused: list[RefusedMove]
    """Of what was to be committed."""


async def join_group(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    new = await parse_body(request, NewMember)
    member = front_end.world.new_id() if new.member is None else new.member
    client = _program(request) if new.client is None else new.client
    start = parse_start(new.start, "from")
    if start.seqno is not None or start.bookmark is not None:
        raise BadParameter("from", "is earliest, latest, or a time: a seqno or a bookmark is a place in one log")
    join = GroupJoin(
        *(request.path_params["group"], member, new.topics, new.mode, new.instance, client),
        *(new.session_ms, new.give_back_ms, start, new.queue),
    )
    return _standing(await front_end.broker.join_group(join, caller=caller_of(request)))


def _standing(found: GroupStanding) -> Response:
    grants = [GrantedLog(*msgspec.structs.astuple(grant)) for grant in found.grants]
    return shown(MemberStanding(found.member, found.generation, found.beat_ms, grants))


def _program(request: Request) -> str:
    return "".join(each for each in request.headers.get("user-agent", "")[:CLIENT_MAX] if each.isprintable())


async def beat_group(front_end: HttpFrontEnd, request: Request) -> Response:
    query, beat = parse_query(request, BeatQuery), await parse_body(request, MemberBeat)
    held = held_of(MovesText.read(beat.next, "next"))
    held += (HeldLog(log.topic_id, log.partition) for log in beat.held)
    wait_ms = round(min(_seconds(query.wait) * 1000, front_end.limits.read_wait_ms))
    beating = front_end.broker.beat_group(*_member(request), beat.generation, held, wait_ms, caller=caller_of(request))
    if not wait_ms:
        return _standing(await beating)
    standing = await while_wanted(front_end, request, beating)
    if standing is None:
        raise ShuttingDown
    return _standing(standing)


async def poll_records(front_end: HttpFrontEnd, request: Request) -> Response:
    query, poll = parse_query(request, PollQuery), await parse_body(request, MemberPoll)
    choice = choose(", ".join(request.headers.getlist("accept")), query.format)
    settings = front_end.settings
    usual = min(settings.page_records, settings.page_records_max)
    limit = usual if query.limit is None else check_limit(front_end, query.limit)
    done, after = MovesText.read(poll.commit, "commit"), MovesText.read(poll.after, "after")
    wanted = PollRequest(*_member(request), limit, _seconds(query.wait), query.gaps, after)
    refused = await _commit(front_end, request, done) if done else []
    found = await poll_group(front_end, request, wanted)
    facts, page = _facts(wanted, found, refused), found.page
    pieces = encode(choice.format, page.tables, RecordSource("", 0), facts)
    return await respond(front_end.threads, pieces, page.size, choice.media_type, _headers(facts))


async def commit_group(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    commit = await parse_body(request, MemberCommit)
    if (commit.next is None) is (commit.places is None):
        raise RequestError("the body has next or places, one of both", fix="send what a page had as `next`")
    moves = MovesText.read(commit.next or "", "next")
    for done in commit.places or ():
        bookmark = await bookmark_at(front_end, caller_of(request), done.topic, done.partition, done.seqno)
        moves.append(GroupMove(done.topic, done.partition, bookmark, done.generation))
    refused = await _commit(front_end, request, moves)
    return shown(Committed(len(moves) - len(refused), refused))


async def leave_group(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    await front_end.broker.leave_group(*_member(request), caller=caller_of(request))
    return Response(status_code=204)


async def _commit(front_end: HttpFrontEnd, request: Request, moves: list[GroupMove]) -> list[RefusedMove]:
    return await front_end.broker.commit_group(*_member(request), moves, caller=caller_of(request))


def _member(request: Request) -> tuple[str, str]:
    return request.path_params["group"], request.path_params["member"]


def _seconds(wait: float) -> float:
    if wait != wait:
        raise BadParameter("wait", "is no number of seconds")
    return wait


def _facts(wanted: PollRequest, found: GroupPage, refused: list[RefusedMove]) -> MemberPage:
    """Everything but the records."""
    standing = found.standing
    places = [
        PlaceDone(move.topic, move.partition, Bookmark.parse(move.bookmark).seqno, move.generation)
        for move in found.moves
    ]
    return MemberPage(
        *([], wanted.group, wanted.member, standing.generation, standing.beat_ms, len(standing.grants)),
        *(places, MovesText.write(found.moves), found.page.at_end, refused),
    )


def _headers(facts: MemberPage) -> dict[str, str]:
    refused = ", ".join(f"{move.topic}/{move.partition}" for move in facts.refused[:SHOWN_MAX])
    return {
        "Cache-Control": "no-store",
        "Logboom-Next": facts.next,
        "Logboom-At-End": str(facts.at_end).lower(),
        "Vary": "Accept",
        **({"Logboom-Refused": refused} if refused else {}),
    }


_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_MEMBER: Final = "3f1c9a7e52b84d06a1e7c0d95b42f8aa"
_BOOKMARK: Final = str(Bookmark(bytes.fromhex(_TOPIC_ID), 0, 13, 1))
_NEXT: Final = MovesText.write([GroupMove("orders", 0, _BOOKMARK, 4)])
_STANDING: Final = msgspec.to_builtins(
    MemberStanding(_MEMBER, 4, 20_000, [GrantedLog("orders", _TOPIC_ID, 0, 4, _BOOKMARK, is_asked_back=False)])
)
_RECORD: Final = {
    "seqno": 12,
    "timestamp": "2026-01-31T12:00:00.000000Z",
    "key": "customer-7",
    "value": {"total": 21.5},
    "channel": None,
    "tags": [],
    "headers": [],
    "topic": "orders",
    "partition": 0,
}
_PAGE: Final = {
    "records": [_RECORD],
    "group": "billing",
    "member": _MEMBER,
    "generation": 4,
    "beat_ms": 20_000,
    "logs": 1,
    "places": [{"topic": "orders", "partition": 0, "seqno": 13, "generation": 4}],
    "next": _NEXT,
    "at_end": True,
    "refused": [],
}
_PATH: Final = "/groups/{group:path}/members"
_WAIT: Final = "Wait so many seconds where there is nothing new; limits.read_wait_ms is the longest."

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "POST",
        _PATH,
        join_group,
        "Join a group",
        TAG,
        "The group is made where there is none. A repeat with the same member changes nothing, or which topics it "
        "reads. What the answer grants is for programs that read and beat by themselves: who polls needs `member` "
        "alone.",
        query=NoQuery,
        body={JSON: Content(NewMember, {"topics": "orders", "session_ms": 60_000})},
        answers={200: {JSON: Content(MemberStanding, _STANDING)}},
        problems=(404, 409),
    ),
    Operation(
        "POST",
        f"{_PATH}/{{member}}/beat",
        beat_group,
        "Stay a member",
        TAG,
        "For those whose polls are further apart than their session is long, and for programs that read by themselves. "
        "A log that is asked back (`is_asked_back`) is given back by the first beat that does not hold it.",
        query=BeatQuery,
        meanings={"wait": _WAIT},
        body={JSON: Content(MemberBeat, {"next": _NEXT})},
        body_required=False,
        answers={200: {JSON: Content(MemberStanding, _STANDING)}},
    ),
    Operation(
        "POST",
        f"{_PATH}/{{member}}/poll",
        poll_records,
        "Poll for records",
        TAG,
        "Records of the logs that the member holds, from where the group stands in each; in order inside each "
        "partition. `next` is what to commit once they are done: alone, or as `commit` of the next poll. Who polls "
        "again without either gets the same records again; with `after`, those behind them. A poll that waits also "
        "beats. Arrow and Parquet have the columns that a page of records has; what JSON says besides the records is "
        "in headers that begin with Logboom-.",
        query=PollQuery,
        meanings={
            "limit": "Return no more than so many records.",
            "wait": _WAIT,
            "gaps": MEANINGS["gaps"],
            "format": "What Accept says otherwise.",
        },
        body={JSON: Content(MemberPoll, {"commit": _NEXT})},
        body_required=False,
        answers={
            200: {
                MEDIA_TYPES["json"][0]: Content(MemberPage, _PAGE),
                MEDIA_TYPES["ndjson"][0]: Content(RecordShown, _RECORD),
                MEDIA_TYPES["arrow"][0]: Content(bytes),
                MEDIA_TYPES["parquet"][0]: Content(bytes),
            }
        },
        problems=(406, 409, 410, 416),
        answer_headers={
            "Logboom-Next": "What to commit when the records are done; empty where that is nothing.",
            "Logboom-At-End": "`true` where there is nothing more now.",
            "Logboom-Refused": "Logs whose commit was refused: the member does not hold them any more.",
        },
    ),
    Operation(
        "POST",
        f"{_PATH}/{{member}}/commit",
        commit_group,
        "Commit what is done",
        TAG,
        "It is durable when this is answered. Logs that the member does not hold any more, in that generation, are "
        "refused; the others are moved all the same.",
        query=NoQuery,
        body={JSON: Content(MemberCommit, {"next": _NEXT})},
        answers={200: {JSON: Content(Committed, {"committed": 1, "refused": []})}},
        problems=(404, 409, 410, 416),
    ),
    Operation(
        "DELETE",
        f"{_PATH}/{{member}}",
        leave_group,
        "Leave a group",
        TAG,
        "The others have its logs at once.",
        query=NoQuery,
        answers={204: {}},
    ),
)
