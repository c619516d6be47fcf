"""The jobs of the pipeline: how each stands, what it has made, and the page of a report.

What is known of them is in the node's log `_pipeline`, which is read on whenever somebody asks. The page of a report
holds what records held: the browser gets it with a policy that lets it do nothing but be shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import PIPELINE_TOPIC, TopicInfo
from logboom.broker.caller import ITSELF, Caller
from logboom.errors import LogboomError, NotAllowed, ResultsUnreadable, TopicNotFound
from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.record_page import check_reader
from logboom.protocols.http.schema.operation import Content, Operation, caller_of, parse_query
from logboom.results.job_standings import JobInfo, RunningInfo, known_jobs, stand
from logboom.results.pipeline_state import Covered, PastRun, Result, ResultFile
from logboom.results.places import ResultPlace

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
HTML: Final = "text/html"
TAG: Final = "Pipeline"
PAGE: Final = "page"
"""The fact of a result that names its page."""
PAGE_BYTES_MAX: Final = 64 << 20
POLICY: Final = "; ".join(
    f"{name} {source}".strip()
    for name, source in {
        "sandbox": "",
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }.items()
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class JobsQuery(msgspec.Struct, frozen=True):
    prefix: str = ""


class PageQuery(msgspec.Struct, frozen=True):
    job: str


class JobList(msgspec.Struct, frozen=True):
    jobs: list[JobInfo]
    now: int
    """What time it is for the node, microseconds."""


async def list_jobs(front_end: HttpFrontEnd, request: Request) -> Response:
    prefix = parse_query(request, JobsQuery).prefix
    caller, now = caller_of(request), front_end.world.now_us()
    await _check_allowed(front_end, caller)
    found = [info for info in await standings(front_end, caller, now) if info.job.startswith(prefix)]
    return Response(msgspec.json.encode(JobList(found, now)), headers={"Cache-Control": "no-store"}, media_type=JSON)


async def show_report(front_end: HttpFrontEnd, request: Request) -> Response:
    job = parse_query(request, PageQuery).job
    caller = caller_of(request)
    await _check_allowed(front_end, caller)
    pipeline = await front_end.pipeline.refresh()
    result, known = pipeline.result(job), pipeline.jobs.get(job)
    topics = () if known is None else (*known.topics, *(() if result is None else result.covers))
    if result is None or PAGE not in result.facts or not await _reads(front_end, topics, caller):
        raise RequestError(f"{job[:249]!r} has made no page", 404, "report-not-found", "GET /pipeline shows all jobs")
    front_end.places.demand(result.place)
    return Response(await asyncio.to_thread(_read_page, result), headers=_HEADERS, media_type=HTML)


async def _check_allowed(front_end: HttpFrontEnd, caller: Caller) -> None:
    """Raises where he may not know of the pipeline."""
    try:
        await front_end.broker.describe_topic(PIPELINE_TOPIC, caller=caller)
    except TopicNotFound:
        raise NotAllowed(caller.principal, "describe", "pipeline") from None


async def seen_jobs(front_end: HttpFrontEnd, caller: Caller, infos: Sequence[JobInfo]) -> list[JobInfo]:
    """Those that he may know of: none where the pipeline is nothing to him."""
    try:
        if infos:
            await _check_allowed(front_end, caller)
    except NotAllowed:
        return []
    sees = await _sight_of(front_end, caller)
    return [info for info in infos if all(map(sees, info.topics))]


async def _sight_of(front_end: HttpFrontEnd, caller: Caller) -> Callable[[str], bool]:
    """Which topics he may know of, also where they are gone."""
    if front_end.sees_all(caller):
        return lambda topic: True
    return {info.name for info in await _topics(front_end, caller, internal=True)}.__contains__


async def _topics(front_end: HttpFrontEnd, caller: Caller, internal: bool = False) -> list[TopicInfo]:
    """Those that he may know of, where there are any."""
    try:
        return await front_end.broker.list_topics(internal=internal, caller=caller)
    except NotAllowed:
        return []


async def _reads(front_end: HttpFrontEnd, topics: Iterable[str], caller: Caller) -> bool:
    """Whether he may read all records of these topics: what was made of them shows what they hold."""
    if front_end.sees_all(caller):
        return True
    for topic in topics:
        try:
            await check_reader(front_end.broker, topic, caller)
        except LogboomError:
            return False
        await asyncio.sleep(0)  # others have their turn, however many there are
    return True


async def standings(front_end: HttpFrontEnd, caller: Caller, now: int) -> list[JobInfo]:
    """Every job whose topics he may know of, as of now."""
    pipeline = await front_end.pipeline.refresh()
    names = {name for job in pipeline.jobs.values() if job.result for name in job.result.covers}
    topics = await _topics(front_end, caller) if names else []
    found = await known_jobs(front_end.broker, stand(pipeline, topics, now), now, ITSELF)
    sees = await _sight_of(front_end, caller)
    return [info for info in found if all(map(sees, info.topics))]


def _read_page(result: Result) -> bytes:
    """Raises ResultsUnreadable."""
    try:
        file = msgspec.convert(result.facts[PAGE], ResultFile)
    except msgspec.ValidationError as error:
        raise ResultsUnreadable(f"{result.place}: {error}") from None
    if file.size > PAGE_BYTES_MAX or "/" in file.path:
        raise ResultsUnreadable(f"{result.place}/{file.path} is no page: it has {file.size:,} bytes")
    return ResultPlace(result.place).read(file)


_RESULT: Final = Result(
    "20260131T120000-9b2e7c40",
    "/var/lib/results/archive/events/runs/00000007-20260131T120000-9b2e7c40",
    {"events": Covered("9b2e7c40d5a1468f8e13f0a7c6d4b259", {0: (0, 250_000)})},
    ResultFile("manifest.json", 1234, 2903511202),
    250_000,
    9_437_184,
    at=1769860920000000,
)
_RUN: Final = PastRun("20260131T120000-9b2e7c40", 7, "host:4711", 1769860800000000, 1769860920000000, has_result=True)
_JOB: Final = JobInfo(
    "archive/events",
    "archive",
    ("events",),
    "running",
    running=RunningInfo("20260131T121000-1f00ab12", "host:4711", 1769861400000000, 1769861406000000, 3, 12, "writes"),
    result=_RESULT,
    lag=1_250,
    succeeded=1769860920000000,
    runs=[_RUN],
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/pipeline",
        list_jobs,
        "List jobs of the pipeline",
        TAG,
        "What runs, what was made and where it is, and how many records came since.",
        query=JobsQuery,
        meanings={"prefix": "Only jobs whose id begins so, such as archive/events."},
        answers={200: {JSON: Content(JobList, {"jobs": [msgspec.to_builtins(_JOB)], "now": 1769861407000000})}},
    ),
    Operation(
        "GET",
        "/pipeline/report",
        show_report,
        "The page of a report",
        TAG,
        "One page without scripts, to be shown and nothing else. It is for those who may read its topics.",
        query=PageQuery,
        meanings={"job": "Its id, such as report/all."},
        answers={200: {HTML: Content(str)}},
        problems=(404,),
    ),
)
