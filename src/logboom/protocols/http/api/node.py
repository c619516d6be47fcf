"""The node over HTTP: whether it lives, whether it can be used, what it counts, how it is configured.

`/healthz` says that the event loop runs, and no more: whoever restarts a node that does not answer loses nothing by it.
`/readyz` says whether writes and reads can succeed. What an operator has switched off, or what only delays copies, is a
warning, and does not take the node out of service. Both answer everybody; strangers learn no more than yes or no.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.access.principal import ANONYMOUS
from logboom.broker.api import NodeStats
from logboom.broker.caller import ITSELF, Caller
from logboom.errors import AccessError, LogboomError, ResultsUnreadable
from logboom.protocols.http import metrics
from logboom.protocols.http.api.pipeline import seen_jobs
from logboom.protocols.http.schema.operation import Content, Operation, caller_of, parse_query

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Node"


class MetricsQuery(msgspec.Struct, frozen=True):
    topics: str = ""


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    status: Literal["ready", "not ready"]
    reasons: list[str]
    """Why it is not."""
    warnings: list[str]


async def show_health(front_end: HttpFrontEnd, request: Request) -> Response:
    return _json(Health())


async def show_readiness(front_end: HttpFrontEnd, request: Request) -> Response:
    reasons, warnings = ["the node is shutting down"] if front_end.closing.is_set() else [], []
    try:
        stats = await front_end.broker.stats(caller=ITSELF)
    except LogboomError as error:
        reasons.append(str(error))
    else:
        if stats.failure is not None:
            reasons.append(stats.failure)
        warnings = _warnings(stats)
    if not await _knows(front_end, caller_of(request)):
        return _json(Readiness("not ready" if reasons else "ready", [], []), 503 if reasons else 200)
    if reasons:
        return _json(Readiness("not ready", reasons, warnings), 503)
    return _json(Readiness("ready", [], warnings))


async def _knows(front_end: HttpFrontEnd, caller: Caller) -> bool:
    """Whether he may be told how the node is. Probes, which come every few seconds, are not refused to find out."""
    if caller.principal == ANONYMOUS and front_end.sign_in is not None and front_end.sign_in.is_required:
        return False
    try:
        await front_end.broker.stats(caller=caller)
    except AccessError:
        return False
    except LogboomError:
        pass
    return True


def _warnings(stats: NodeStats) -> list[str]:
    found = []
    if stats.refused is not None and stats.refused != stats.failure:
        found.append(f"the node takes no writes: {stats.refused}")
    replica = stats.replica
    if replica is not None and not replica.connected:
        found.append(f"its source {replica.source} is not connected{f': {replica.error}' if replica.error else ''}")
    elif replica is not None and replica.error is not None:
        found.append(f"it copies {replica.source}, but not all: {replica.error}")
    return found


async def show_stats(front_end: HttpFrontEnd, request: Request) -> Response:
    return _json(await front_end.broker.stats(caller=caller_of(request)))


async def show_config(front_end: HttpFrontEnd, request: Request) -> Response:
    await front_end.broker.stats(caller=caller_of(request))  # whether he may know of the node
    return _json(front_end.config())


async def show_metrics(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, MetricsQuery)
    with suppress(ResultsUnreadable):
        await front_end.pipeline.refresh()
    caller = caller_of(request)
    facts = await metrics.collect(front_end.broker, caller, front_end.pipeline.pipeline, query.topics)
    facts = replace(facts, jobs=await seen_jobs(front_end, caller, facts.jobs))
    page = await asyncio.to_thread(metrics.render, facts)
    return Response(page, media_type=metrics.MEDIA_TYPE)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


_READY: Final = Readiness("ready", [], [])
_NOT_READY: Final = Readiness("not ready", ["a sync failed: Input/output error; restart it to recover"], [])

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/healthz",
        show_health,
        "Whether the node lives",
        TAG,
        "200 as long as the event loop runs: for a liveness probe.",
        answers={200: {JSON: Content(Health, msgspec.to_builtins(Health()))}},
    ),
    Operation(
        "GET",
        "/readyz",
        show_readiness,
        "Whether the node can be used",
        TAG,
        "503 with the reasons where writes have failed for good, or the node is shutting down: for a readiness probe. "
        "Warnings say what an operator has switched off, and what a replica does not get. Whoever may not know of the "
        "node is told no reasons and no warnings.",
        answers={
            200: {JSON: Content(Readiness, msgspec.to_builtins(_READY))},
            503: {JSON: Content(Readiness, msgspec.to_builtins(_NOT_READY))},
        },
    ),
    Operation(
        "GET",
        "/stats",
        show_stats,
        "What the node counts",
        TAG,
        answers={200: {JSON: Content(NodeStats)}},
    ),
    Operation(
        "GET",
        "/config",
        show_config,
        "How the node is configured",
        TAG,
        "Every key with its value, where that comes from, and what it means.",
        answers={200: {JSON: Content(dict[str, Any])}},
    ),
    Operation(
        "GET",
        "/metrics",
        show_metrics,
        "Metrics for Prometheus",
        TAG,
        f"Text exposition format 0.0.4. At most {metrics.TOPICS_MAX:,} topics are shown, the first by name, and the "
        f"{metrics.CURSORS_MAX:,} cursors that lag most.",
        query=MetricsQuery,
        meanings={"topics": "Only topics whose name begins so; `none` leaves all of them and their cursors out."},
        answers={200: {"text/plain": Content(str)}},
    ),
)
