"""Work queues over HTTP: a member takes records, and says what became of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import JobVerdict, LeasedJobs, RefusedSettlement, Settlement, TakeJobs
from logboom.broker.groups.wishes import DELAY_MS
from logboom.errors import ShuttingDown
from logboom.protocols.http.api.groups import JSON, TAG, shown
from logboom.protocols.http.formats import RecordShown, rows
from logboom.protocols.http.problem import BadParameter
from logboom.protocols.http.record_page import SEQNO_MAX, take, while_wanted
from logboom.protocols.http.schema.operation import (
    Content,
    NoQuery,
    Operation,
    PageLimit,
    caller_of,
    check_limit,
    parse_body,
    parse_query,
)

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

SETTLED_MAX: Final = 1_000
Number = Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)]


class TakeQuery(msgspec.Struct, frozen=True):
    limit: PageLimit | None = None
    wait: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class LeasedJobShown(msgspec.Struct, frozen=True):
    tries: int
    """How often it was leased to somebody, this time included."""
    topic_id: str
    record: RecordShown


class LeasedJobsPage(msgspec.Struct, frozen=True):
    jobs: list[LeasedJobShown]
    lease_ms: int
    """So long they are this member's, unless it asks for more time."""


class JobSettlement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a record, or of several that follow each other."""

    topic_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    seqno: Number
    until: Number | None = None
    """The seqno behind the last one that is meant; only the one record, where it is left out."""
    verdict: JobVerdict = "ack"
    """`ack`: done. `release`: somebody else is to try it. `reject`: nobody is. `extend`: it takes longer."""
    delay_ms: Annotated[int, msgspec.Meta(ge=DELAY_MS[0], le=DELAY_MS[1])] | None = None
    """How long a record that is released rests; else as the group says."""


class JobSettlements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settlements: Annotated[list[JobSettlement], msgspec.Meta(max_length=SETTLED_MAX)]


class JobsSettled(msgspec.Struct, frozen=True):
    refused: list[RefusedSettlement]
    """Records that the member does not hold: their lease is over, or they are settled."""


async def take_jobs(front_end: HttpFrontEnd, request: Request) -> Response:
    query, settings = parse_query(request, TakeQuery), front_end.settings
    usual = min(settings.page_records, settings.page_records_max)
    limit = usual if query.limit is None else check_limit(front_end, query.limit)
    if query.wait != query.wait:
        raise BadParameter("wait", "is no number of seconds")
    wait_ms = round(min(query.wait * 1000, front_end.limits.read_wait_ms))
    wanted = TakeJobs(*_member(request), limit, wait_ms=wait_ms)
    taking = front_end.broker.take_jobs(wanted, caller=caller_of(request))
    jobs = await while_wanted(front_end, request, taking) if wait_ms else await taking
    if jobs is None:
        raise ShuttingDown
    return shown(await front_end.loop.run_in_executor(front_end.threads, _show, jobs))


def _show(jobs: LeasedJobs) -> LeasedJobsPage:
    """On a thread."""
    found: list[LeasedJobShown] = []
    for chunk, tries in jobs.chunks:
        taken = take(chunk, chunk.record_count, chunk.next_seqno, chunk.data.nbytes * 1000, True, chunk.topic)
        for table in taken.tables:
            for record in rows(table):
                placed = msgspec.structs.replace(record, topic=chunk.topic, partition=chunk.partition)
                found.append(LeasedJobShown(tries, chunk.topic_id, placed))
    return LeasedJobsPage(found, jobs.lease_ms)


async def settle_jobs(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    said = await parse_body(request, JobSettlements)
    settlements = [
        Settlement(
            *(each.topic_id, each.partition, each.seqno),
            *(each.seqno + 1 if each.until is None else each.until, each.verdict, each.delay_ms),
        )
        for each in said.settlements
    ]
    refused = await front_end.broker.settle_jobs(*_member(request), settlements, caller=caller_of(request))
    return shown(JobsSettled(refused))


def _member(request: Request) -> tuple[str, str]:
    return request.path_params["group"], request.path_params["member"]


_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_JOB: Final = {
    "tries": 1,
    "topic_id": _TOPIC_ID,
    "record": {
        "seqno": 12,
        "timestamp": "2026-01-31T12:00:00.000000Z",
        "key": None,
        "value": {"mail": "ann"},
        "channel": None,
        "tags": [],
        "headers": [],
        "topic": "jobs",
        "partition": 0,
    },
}
_PATH: Final = "/groups/{group:path}/members/{member}/jobs"

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "POST",
        _PATH,
        take_jobs,
        "Take records to work on",
        TAG,
        "Of a group with mode `queue`: records that nobody else works on, leased to this member when this is answered. "
        "Say what became of each before the lease is over.",
        query=TakeQuery,
        meanings={
            "limit": "Return no more than so many records.",
            "wait": "Wait so many seconds while none is free; limits.read_wait_ms is the longest.",
        },
        answers={200: {JSON: Content(LeasedJobsPage, {"jobs": [_JOB], "lease_ms": 30_000})}},
        problems=(404, 409),
    ),
    Operation(
        "POST",
        f"{_PATH}/settle",
        settle_jobs,
        "Say what became of records",
        TAG,
        "It is durable when this is answered. Records that the member does not hold are refused; the others are "
        "settled all the same.",
        query=NoQuery,
        body={JSON: Content(JobSettlements, {"settlements": [{"topic_id": _TOPIC_ID, "partition": 0, "seqno": 12}]})},
        answers={200: {JSON: Content(JobsSettled, {"refused": []})}},
        problems=(404, 409),
    ),
)
