"""What the pipeline knows of itself: jobs, who runs them, and their results, as the internal log `_pipeline` tells it.

    leased → beat, beat, … → ended (with a result, or with an error)

Every record of that log is one event, as JSON, and was appended only if its writer had read all before it
(`expect_seqno`): so all who fold the log know the same. What was not allowed and is there all the same counts for
nothing. A result counts from its `ended` on, and for nothing before.

A job is named by what it makes (`archive/events`), not by who configured it: two that would make the same are one. Its
lease has an epoch, which rises with each run. Only the newest epoch may beat and end. Who finds a lease whose beats
have stopped, for as long as the lease says and by its own clock, takes the job over with the next epoch; the one before
can do no more harm than leave files, in a directory of its own, that nobody refers to.

From time to time a `whole` stands for everything before it, and the log is trimmed up to there.

A record that is no event, or one of a release to come, is passed over. What it said may have been a lease, or a result:
so its job counts as leased by somebody unknown, whoever had it has it no more, and until a `whole` comes nothing is
removed that the record may refer to. Only at the beginning of a trimmed log nothing is passed over: it stands for all
that was before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from logboom.batch import Record
from logboom.broker.api import PIPELINE_TOPIC
from logboom.errors import LeaseLost, ResultsUnreadable

RESULTS_KEPT: Final = 2
"""Of a job, the newest last: who reads the one before may finish."""
RUNS_KEPT: Final = 20
TAKEN_OVER: Final = "its runner was not heard of any more, and another took over"
"""The error of a run that could not say one itself."""
UNREAD: Final = "something that cannot be read was said of the job, and it may be another's"
UNKNOWN: Final = "an unknown runner"
UNKNOWN_LEASE_MS: Final = 30_000
"""Of a runner who could not be read, where nobody before him has said how long."""

logger = logging.getLogger("logboom.pipeline")


class Covered(msgspec.Struct, frozen=True):
    """The records of a topic that a result is made of."""

    topic_id: str
    spans: dict[int, tuple[int, int]]
    """By partition: from a seqno, until before another."""


class ResultFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a result."""

    path: str
    """Below the place of the result."""
    size: int
    crc: int
    """crc32c of its bytes."""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run has made."""

    run: str
    place: str
    """A directory, as a URI or an absolute path; the same for whoever reads it."""
    covers: dict[str, Covered] = {}
    """By topic."""
    manifest: ResultFile | None = None
    """The file that lists all others, as the kind of job has it."""
    records: int = 0
    bytes: int = 0
    facts: dict[str, Any] = {}
    """What else is to be known without opening anything."""
    at: int = 0
    """When it was published, microseconds; the log says."""


class Leased(msgspec.Struct, frozen=True, tag="leased", tag_field="event"):
    """Somebody runs the job from now on."""

    job: str
    kind: str
    epoch: int
    run: str
    runner: str
    lease_ms: int
    """Without a beat for so long, another may take over."""
    topics: tuple[str, ...] = ()


class Beat(msgspec.Struct, frozen=True, tag="beat", tag_field="event"):
    """It still does, and has come so far."""

    job: str
    epoch: int
    done: int = 0
    total: int = 0
    doing: str = ""


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="event", omit_defaults=True):
    """It is done: with a result, with none because there was nothing new, or with an error."""

    job: str
    epoch: int
    run: str
    result: Result | None = None
    error: str | None = None
    summary: dict[str, Any] = {}
    seconds: float = 0.0


class LeaseHolder(msgspec.Struct):
    """Who runs a job now."""

    epoch: int
    run: str
    runner: str
    lease_ms: int
    since: int
    seqno: int
    """Of the last beat, or of the lease: as long as it does not rise, nobody is there."""
    heard: int
    """When that was, microseconds, by the node's clock."""
    done: int = 0
    total: int = 0
    doing: str = ""


class PastRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One that is over."""

    run: str
    epoch: int
    runner: str
    began: int
    ended: int
    error: str | None = None
    summary: dict[str, Any] = {}
    has_result: bool = False


class PipelineJob(msgspec.Struct):
    kind: str
    topics: tuple[str, ...] = ()
    epoch: int = 0
    lease: LeaseHolder | None = None
    results: list[Result] = []
    runs: list[PastRun] = []

    @property
    def result(self) -> Result | None:
        """The one that counts."""
        return self.results[-1] if self.results else None

    @property
    def succeeded(self) -> int | None:
        """When a run last ended without an error, whether it found something to do or not, microseconds."""
        ends = [run.ended for run in self.runs if run.error is None]
        return ends[-1] if ends else None if self.result is None else self.result.at

    @property
    def failures(self) -> int:
        """Runs that failed since the last that did not."""
        return next((number for number, run in enumerate(reversed(self.runs)) if run.error is None), len(self.runs))


class Whole(msgspec.Struct, frozen=True, tag="whole", tag_field="event"):
    """All that came before."""

    jobs: dict[str, PipelineJob]


Event = Leased | Beat | Ended | Whole

_decoder: Final = msgspec.json.Decoder(Event)
_encoder: Final = msgspec.json.Encoder()


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


class PipelineState:
    """The log, folded up to `next`."""

    def __init__(self) -> None:
        self.next = 0
        self.jobs: dict[str, PipelineJob] = {}
        self.since_whole = 0
        """Events since the last `whole`, or record that was passed over, or since the log began."""
        self.unread: dict[int, str] = {}
        """The seqnos of records that were passed over, since the last `whole`, and their keys."""

    def fold(self, records: Iterable[Record]) -> None:
        """Take in what comes next. Raises ResultsUnreadable where all that was before may be in what makes no sense."""
        for record in records:
            assert record.seqno is not None
            if self.next:  # else the log begins there
                self.reach(record.seqno)
            try:
                event = _decoder.decode(record.value or b"")
            except msgspec.MsgspecError as error:
                self._pass_over(record, record.seqno, str(error))
            else:
                self._take(event, record.seqno, record.timestamp or 0)
            self.next = record.seqno + 1

    def reach(self, seqno: int) -> None:
        """What was to come before this seqno is lost: a repair could not save it."""
        if seqno > self.next:
            what = f"{PIPELINE_TOPIC}, partition 0, seqnos {self.next} to {seqno - 1}"
            logger.warning("%s are lost, and are passed over", what)
            self.unread[self.next] = ""
            self.since_whole, self.next = 0, seqno

    def _pass_over(self, record: Record, seqno: int, reason: str) -> None:
        where = f"{PIPELINE_TOPIC}, partition 0, seqno {seqno}"
        if seqno and not self.next:
            raise ResultsUnreadable(
                f"{where} cannot be read, and stands for all before it: {reason}. Use the release that wrote it"
            )
        logger.warning("%s cannot be read, and is passed over: %s", where, reason)
        name = (record.key or b"").decode(errors="replace")
        self.unread[seqno] = name
        self.since_whole = 0
        job, at = self.jobs.get(name), record.timestamp or 0
        if job is None:
            return
        lease_ms = UNKNOWN_LEASE_MS
        if job.lease is not None:
            lease_ms = job.lease.lease_ms
            self._end(job, job.lease, at, UNREAD, {}, None)
        job.epoch += 1
        job.lease = LeaseHolder(job.epoch, "", UNKNOWN, lease_ms, at, seqno, at, doing=f"{where} cannot be read")

    def may_have_more(self, job: str) -> bool:
        """Whether something was passed over that may have been a result of the job."""
        return any(name in (job, "") for name in self.unread.values())

    def _take(self, event: Event, seqno: int, at: int) -> None:
        self.since_whole += 1
        if isinstance(event, Whole):
            self.jobs, self.since_whole, self.unread = event.jobs, 0, {}
            return
        job = self.jobs.get(event.job)
        if isinstance(event, Leased):
            if job is None:
                job = self.jobs[event.job] = PipelineJob(event.kind)
            if event.epoch <= job.epoch:
                return
            if job.lease is not None:
                self._end(job, job.lease, at, TAKEN_OVER, {}, None)
            job.kind, job.topics, job.epoch = event.kind, event.topics, event.epoch
            job.lease = LeaseHolder(event.epoch, event.run, event.runner, event.lease_ms, at, seqno, at)
            return
        lease = None if job is None else job.lease
        if job is None or lease is None or lease.epoch != event.epoch:
            return
        if isinstance(event, Beat):
            lease.seqno, lease.heard = seqno, at
            lease.done, lease.total, lease.doing = event.done, event.total, event.doing
        elif event.run == lease.run:
            result = None if event.result is None else msgspec.structs.replace(event.result, at=at)
            self._end(job, lease, at, event.error, event.summary, result)
            job.lease = None

    @staticmethod
    def _end(
        job: PipelineJob, lease: LeaseHolder, at: int, error: str | None, summary: dict[str, Any], result: Result | None
    ) -> None:
        run = PastRun(lease.run, lease.epoch, lease.runner, lease.since, at, error, summary, result is not None)
        job.runs = [*job.runs, run][-RUNS_KEPT:]
        if result is not None:
            job.results = [*job.results, result][-RESULTS_KEPT:]

    def check(self, job: str, epoch: int, run: str) -> PipelineJob:
        """The job, if this run still has it. Raises LeaseLost.

        In a node that was restored from an older copy an epoch may come twice: it is not enough.
        """
        found = self.jobs.get(job)
        lease = None if found is None else found.lease
        if found is None or lease is None or (lease.epoch, lease.run) != (epoch, run):
            newer = "it has ended" if lease is None else f"{lease.runner} has it since, with epoch {lease.epoch}"
            raise LeaseLost(job, epoch, newer)
        return found

    def result(self, job: str) -> Result | None:
        found = self.jobs.get(job)
        return None if found is None else found.result

    def whole(self) -> Whole:
        return Whole(self.jobs)
