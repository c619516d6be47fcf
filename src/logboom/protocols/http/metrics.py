"""What a node counts, as text that Prometheus reads: exposition format 0.0.4.

FAMILIES is all there is: each with its name, kind, meaning and labels, and where its samples come from. Seconds and
bytes, never parts of them; counters begin with the process. Of topics at most TOPICS_MAX are shown, the first by name,
of cursors the CURSORS_MAX that lag most, of groups the GROUPS_MAX: how many there are is a metric itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate, islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from logboom.broker.api import (
    Broker,
    CursorInfo,
    DiskStats,
    GroupInfo,
    Measures,
    NodeStats,
    QuotaStats,
    ReplicaStats,
    TopicInfo,
)
from logboom.broker.caller import Caller
from logboom.broker.monitor.measures import BOUNDS_S, Durations, Measured
from logboom.broker.state.cursors import OF_GROUP
from logboom.broker.upkeep.stats import UpkeepStats, Waiting
from logboom.errors import NotAllowed
from logboom.results.job_standings import JobInfo, known_jobs, stand
from logboom.results.pipeline_state import PipelineState

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NONE: Final = "none"
"""As a prefix of topics: not even those whose name begins with it."""
TOPICS_MAX: Final = 1_000
CURSORS_MAX: Final = 1_000
GROUPS_MAX: Final = 1_000
GROUP_LAGS_MAX: Final = 5_000
"""Lines with a lag of a group in a topic."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_BOUNDS: Final = (*(repr(bound) for bound in BOUNDS_S), "+Inf")

Value = int | float | Durations
Samples = Iterable[tuple[tuple[str, ...], Value]]


@dataclass(frozen=True, slots=True)
class MetricFacts:
    stats: NodeStats
    measures: Measures
    topics: list[TopicInfo]
    """Those asked for, by name."""
    cursors: list[CursorInfo]
    prefix: str = ""
    jobs: Sequence[JobInfo] = ()
    groups: Sequence[GroupInfo] = ()

    @property
    def upkeep(self) -> UpkeepStats | None:
        upkeep = self.stats.upkeep
        return None if upkeep is None else msgspec.convert(upkeep, UpkeepStats)

    @property
    def shown(self) -> list[TopicInfo]:
        return self.topics[:TOPICS_MAX]

    @property
    def measured(self) -> dict[str, Measured]:
        found = self.measures.topics
        return {info.name: found[info.name] for info in self.shown if info.name in found}

    @property
    def lagging(self) -> list[CursorInfo]:
        known = [info for info in self.cursors if info.lag is not None]
        return nlargest(CURSORS_MAX, known, key=lambda info: info.lag or 0)

    @property
    def shown_groups(self) -> list[GroupInfo]:
        """Those that lag most, by name."""
        return sorted(nlargest(GROUPS_MAX, self.groups, key=lambda info: info.lag), key=lambda info: info.group)


class Family(NamedTuple):
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...]
    samples: Callable[[MetricFacts], Samples]


async def collect(broker: Broker, caller: Caller, pipeline: PipelineState, prefix: str = "") -> MetricFacts:
    """What there is to tell of the node, its pipeline, and of the topics whose name begins so."""
    stats, measures = await broker.stats(caller=caller), await broker.measures(caller=caller)
    if prefix == NONE:
        jobs = await known_jobs(broker, stand(pipeline, [], stats.now), stats.now, caller)
        return MetricFacts(stats, measures, [], [], prefix, jobs)
    topics = await broker.list_topics(prefix, internal=True, caller=caller)
    try:
        listed = await broker.list_cursors(caller=caller)
        cursors = [info for info in listed if info.topic.startswith(prefix) and not info.cursor.startswith(OF_GROUP)]
    except NotAllowed:
        cursors = []
    try:
        groups = await broker.list_groups(caller=caller)
    except NotAllowed:
        groups = []
    jobs = await known_jobs(broker, stand(pipeline, topics, stats.now), stats.now, caller)
    return MetricFacts(stats, measures, topics, cursors, prefix, jobs, groups)


def render(facts: MetricFacts) -> bytes:
    """The page. Takes long where there are many topics: not on the event loop."""
    return "".join(line for family in FAMILIES for line in _lines(family, facts)).encode()


def _lines(family: Family, facts: MetricFacts) -> Iterator[str]:
    name, begun = family.name, False
    for labels, value in family.samples(facts):
        if not begun:
            yield f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"
            begun = True
        pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in zip(family.labels, labels, strict=True))
        if isinstance(value, Durations):
            yield _buckets(name, pairs, value)
        else:
            yield f"{name}{{{pairs}}} {value!r}\n" if pairs else f"{name} {value!r}\n"


def _buckets(name: str, pairs: str, durations: Durations) -> str:
    within, around = (f"{pairs},", f"{{{pairs}}}") if pairs else ("", "")
    counts = list(accumulate(durations.counts))
    lines = [f'{name}_bucket{{{within}le="{bound}"}} {count}\n' for bound, count in zip(_BOUNDS, counts, strict=True)]
    return "".join([*lines, f"{name}_sum{around} {durations.sum_s!r}\n", f"{name}_count{around} {counts[-1]}\n"])


def _one(get: Callable[[MetricFacts], Value | None]) -> Callable[[MetricFacts], Samples]:
    def samples(facts: MetricFacts) -> Samples:
        value = get(facts)
        return [] if value is None else [((), value)]

    return samples


def _each(get: Callable[[MetricFacts], Mapping[str, Value]]) -> Callable[[MetricFacts], Samples]:
    return lambda facts: [((key,), value) for key, value in sorted(get(facts).items())]


def _counter(name: str, meaning: str, get: Callable[[MetricFacts], Value | None]) -> Family:
    return Family(f"logboom_{name}_total", "counter", meaning, (), _one(get))


def _gauge(name: str, meaning: str, get: Callable[[MetricFacts], Value | None]) -> Family:
    return Family(f"logboom_{name}", "gauge", meaning, (), _one(get))


def _counters(name: str, meaning: str, label: str, get: Callable[[MetricFacts], Mapping[str, Value]]) -> Family:
    return Family(f"logboom_{name}_total", "counter", meaning, (label,), _each(get))


def _gauges(name: str, meaning: str, label: str, get: Callable[[MetricFacts], Mapping[str, Value]]) -> Family:
    return Family(f"logboom_{name}", "gauge", meaning, (label,), _each(get))


def _writes(key: str) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: facts.stats.writes.get(key)


def _reads(key: str) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: facts.stats.reads.get(key)


def _staging(key: str) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: facts.stats.staging.get(key)


def _grouping(key: str) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: facts.stats.groups.get(key)


def _queued(key: str) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: facts.stats.queues.get(key)


def _group_lags(facts: MetricFacts) -> Samples:
    found = (
        ((info.group, topic), lag)
        for info in facts.shown_groups
        for topic, lag in sorted(info.lags.items())
        if topic.startswith(facts.prefix)
    )
    return islice(found, GROUP_LAGS_MAX)


def _upkeep(get: Callable[[UpkeepStats], Value]) -> Callable[[MetricFacts], Value | None]:
    def value(facts: MetricFacts) -> Value | None:
        upkeep = facts.upkeep
        return None if upkeep is None else get(upkeep)

    return value


def _waiting(facts: MetricFacts) -> list[Waiting]:
    return [] if facts.upkeep is None else facts.upkeep.waiting


def _unarchived_bytes(facts: MetricFacts) -> Mapping[str, Value]:
    found: dict[str, int] = {}
    for log in _waiting(facts):
        found[log.topic] = found.get(log.topic, 0) + log.bytes
    return found


def _hard_bytes_used(facts: MetricFacts) -> Mapping[str, Value]:
    found: dict[str, float] = {}
    for log in _waiting(facts):
        if log.hard_bytes:
            found[log.topic] = max(found.get(log.topic, 0), log.log_bytes / log.hard_bytes)
    return found


def _dropped(what: Literal["segments", "bytes"]) -> Callable[[MetricFacts], Mapping[str, Value]]:
    def values(facts: MetricFacts) -> Mapping[str, Value]:
        upkeep = facts.upkeep
        dropped = {} if upkeep is None else upkeep.dropped
        return {reason: getattr(amount, what) for reason, amount in dropped.items()}

    return values


def _replica(get: Callable[[ReplicaStats], Value | None]) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: None if facts.stats.replica is None else get(facts.stats.replica)


def _quotas(get: Callable[[QuotaStats], Value]) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: None if facts.stats.quotas is None else get(facts.stats.quotas)


def _throttled(what: Literal["throttled", "throttled_s"]) -> Callable[[MetricFacts], Mapping[str, Value]]:
    return lambda facts: {} if facts.stats.quotas is None else getattr(facts.stats.quotas, what)


def _disk(get: Callable[[DiskStats], Value]) -> Callable[[MetricFacts], Value | None]:
    return lambda facts: None if facts.stats.disk is None else get(facts.stats.disk)


def _info(facts: MetricFacts) -> Samples:
    stats = facts.stats
    return [((stats.version, stats.node_id, stats.cluster_id), 1)]


def _limits(limits: Mapping[str, int]) -> Iterator[tuple[str, Value]]:
    for name, value in limits.items():
        yield (f"{name.removesuffix('_ms')}_seconds", value / 1000) if name.endswith("_ms") else (name, value)


def _cursor_lags(facts: MetricFacts) -> Samples:
    found = sorted(facts.lagging, key=lambda info: (info.cursor, info.topic, info.partition))
    return [((info.cursor, info.topic, str(info.partition)), info.lag or 0) for info in found]


def _jobs(get: Callable[[JobInfo, int], Value | None]) -> Callable[[MetricFacts], Mapping[str, Value]]:
    def values(facts: MetricFacts) -> Mapping[str, Value]:
        found = ((info.job, get(info, facts.stats.now)) for info in facts.jobs)
        return {job: value for job, value in found if value is not None}

    return values


def _since_success(info: JobInfo, now: int) -> float | None:
    return None if info.succeeded is None else max(0, now - info.succeeded) / 1e6


def _topics(get: Callable[[TopicInfo], Value]) -> Callable[[MetricFacts], Mapping[str, Value]]:
    return lambda facts: {info.name: get(info) for info in facts.shown}


def _size_bytes(info: TopicInfo) -> int:
    return sum(partition.size_bytes for partition in info.partitions)


def _disk_bytes(facts: MetricFacts) -> Value | None:
    return None if facts.prefix == NONE else sum(map(_size_bytes, facts.topics))


def _refusing(facts: MetricFacts) -> Value | None:
    if facts.prefix == NONE:
        return None
    return sum(partition.refusal is not None for info in facts.topics for partition in info.partitions)


def _traffic(label: str, whose: str, get: Callable[[MetricFacts], Mapping[str, Measured]]) -> tuple[Family, ...]:
    """The same seven of everything that has a meter."""

    def field(name: str) -> Callable[[MetricFacts], Mapping[str, Any]]:
        return lambda facts: {key: getattr(measured, name) for key, measured in get(facts).items()}

    def durations(name: str) -> Callable[[MetricFacts], Samples]:
        """Of those that have any: most lines of a page are buckets."""
        return lambda facts: [pair for pair in _each(field(name))(facts) if sum(pair[1].counts)]  # type: ignore[union-attr]

    return (
        _counters(f"{label}_batches_appended", f"Batches appended, by {whose}.", label, field("batches_in")),
        _counters(f"{label}_records_appended", f"Records appended, by {whose}.", label, field("records_in")),
        _counters(f"{label}_bytes_appended", f"Bytes of batches appended, by {whose}.", label, field("bytes_in")),
        _counters(f"{label}_records_read", f"Records given to readers, by {whose}.", label, field("records_out")),
        _counters(f"{label}_bytes_read", f"Bytes given to readers, by {whose}.", label, field("bytes_out")),
        Family(
            f"logboom_{label}_append_seconds",
            "histogram",
            f"From an append to its promise kept, by {whose}.",
            (label,),
            durations("append"),
        ),
        Family(
            f"logboom_{label}_read_seconds",
            "histogram",
            f"Reads that found something, the wait for it left out, by {whose}.",
            (label,),
            durations("read"),
        ),
    )


FAMILIES: Final[tuple[Family, ...]] = (
    Family("logboom_info", "gauge", "Always 1.", ("version", "node_id", "cluster_id"), _info),
    _gauge("start_time_seconds", "When the node was started, since 1970.", lambda facts: facts.stats.started / 1e6),
    _gauge("memory_bytes", "Memory of the process.", lambda facts: facts.stats.memory_bytes),
    _gauge(
        "memory_limit_bytes",
        "Memory of the machine, or what the control group allows of it.",
        lambda facts: facts.stats.memory_limit_bytes or None,
    ),
    _gauge("open_files", "Files and sockets that the process has open.", lambda facts: facts.stats.open_files),
    _gauge("open_files_limit", "How many it may have open.", lambda facts: facts.stats.open_files_limit or None),
    _gauge("disk_total_bytes", "Bytes of the volume that the data is on.", _disk(lambda disk: disk.total_bytes)),
    _gauge("disk_free_bytes", "Of these, those that the node may still use.", _disk(lambda disk: disk.free_bytes)),
    _gauges("connections", "Open connections.", "protocol", lambda facts: facts.stats.connections),
    _gauges("limit", "What the node allows.", "limit", lambda facts: dict(_limits(facts.stats.limits))),
    _counters("rejections", "How often a rule or limit said no.", "reason", lambda facts: facts.stats.rejections),
    _gauge("quotas", "Quotas of users and groups.", _quotas(lambda quotas: quotas.quotas)),
    _gauge(
        "quota_resting", "Connections and requests that a quota makes wait.", _quotas(lambda quotas: quotas.resting)
    ),
    _counters("quota_throttles", "How often a quota made somebody wait.", "quota", _throttled("throttled")),
    _counters("quota_throttled_seconds", "How long quotas made callers wait.", "quota", _throttled("throttled_s")),
    _gauge(
        "failed", "1 where no writes are taken until a restart.", lambda facts: int(facts.stats.failure is not None)
    ),
    _gauge("refused", "1 where the node takes no writes.", lambda facts: int(facts.stats.refused is not None)),
    _gauge("topics", "Topics, without internal ones.", lambda facts: facts.stats.topics),
    _gauge("logs", "Logs that are open.", lambda facts: facts.stats.logs),
    _gauge("logs_refusing_writes", "Logs that are damaged or cannot be opened, of the topics asked for.", _refusing),
    _gauge("disk_bytes", "Bytes of the logs of all topics asked for.", _disk_bytes),
    _counter("batches_appended", "Batches appended.", _writes("batches")),
    _counter("records_appended", "Records appended.", _writes("records")),
    _counter("bytes_appended", "Bytes of batches appended.", _writes("bytes")),
    _counter("batches_repeated", "Batches that were in their log already.", _writes("repeats")),
    _counter("batches_refused", "Batches that were not appended.", _writes("refused")),
    _gauge("waiting_bytes", "Bytes that wait for validators or to be written.", _writes("waiting_bytes")),
    _gauge("unsynced_bytes", "Bytes written and not yet synced.", _writes("unsynced_bytes")),
    Family(
        "logboom_sync_seconds", "histogram", "Syncs of one or many logs.", (), _one(lambda facts: facts.measures.sync)
    ),
    _gauge("sync_longest_seconds", "The longest sync.", lambda facts: facts.stats.syncs.get("longest_s")),
    _counter("synced_logs", "Logs synced, each as often as it was.", lambda facts: facts.stats.syncs.get("logs")),
    _counter("chunks_read", "Reads that gave something.", _reads("chunks")),
    _counter("bytes_read", "Bytes given to readers.", _reads("bytes")),
    _counter("filtered_runs", "Ranges of files that a filter looked at.", _reads("filtered")),
    _counter("filter_skips", "Times a filter passed over whole segments.", _reads("skips")),
    _counter("cold_reads", "Reads of what was not in memory.", _reads("warmed")),
    _counter("archived_reads", "Reads of what only the archive has.", _reads("archived")),
    _gauge("subscriptions", "Open subscriptions.", _reads("subscriptions")),
    _gauge("readers_waiting", "Readers that wait for news.", _reads("waiting")),
    _gauge("stages", "Stages that are open, being published, or of no use any more.", _staging("stages")),
    _gauge("staged_bytes", "Bytes in them.", _staging("staged_bytes")),
    _counter("stages_opened", "Stages opened.", _staging("opened")),
    _counter("stages_discarded", "Stages discarded by a client or an operator.", _staging("discarded")),
    _counter("stages_expired", "Stages discarded because they were not used.", _staging("expired")),
    _gauge("publishing", "Publishes under way, those that cannot be finished included.", _staging("publishing")),
    _counter("published", "Publishes that have ended.", _staging("published")),
    _counter("published_records", "Records appended by them.", _staging("published_records")),
    _counter("publish_repeats", "Publishes that had been before, so that nothing was done.", _staging("repeats")),
    _gauge("publish_keys", "Names that last and that something was published under.", _staging("keys")),
    *_traffic("protocol", "protocol", lambda facts: facts.measures.protocols),
    *_traffic("topic", "topic", lambda facts: facts.measured),
    _gauges("topic_disk_bytes", "Bytes of its logs.", "topic", _topics(_size_bytes)),
    _gauges("topic_partitions", "Partitions.", "topic", _topics(lambda info: len(info.partitions))),
    _gauges(
        "topic_records",
        "Records that can be read.",
        "topic",
        _topics(lambda info: sum(partition.committed - partition.first for partition in info.partitions)),
    ),
    _gauges(
        "topic_refused",
        "1 where a topic takes no writes.",
        "topic",
        _topics(lambda info: int(info.refused is not None)),
    ),
    _gauge(
        "topics_left_out",
        "Topics asked for that are not on this page: there are too many.",
        lambda facts: max(0, len(facts.topics) - TOPICS_MAX),
    ),
    Family(
        "logboom_cursor_lag_records",
        "gauge",
        "Records between a cursor and the end of its log.",
        ("cursor", "topic", "partition"),
        _cursor_lags,
    ),
    _gauge("cursors", "Cursors of the topics asked for, each partition's.", lambda facts: len(facts.cursors)),
    _gauge("groups", "Groups of consumers.", _grouping("groups")),
    _gauge("members", "Members of all groups.", _grouping("members")),
    _gauge("member_logs", "Logs that they hold.", _grouping("logs")),
    _gauges(
        "group_members",
        "Members of a group.",
        "group",
        lambda facts: {info.group: info.members for info in facts.shown_groups},
    ),
    Family(
        "logboom_group_lag_records",
        "gauge",
        "Records between a group's places and the ends of their logs, in all partitions of a topic.",
        ("group", "topic"),
        _group_lags,
    ),
    _counter("group_joins", "Members that have joined a group.", _grouping("joins")),
    _counter("group_sessions_expired", "Members that were silent for too long.", _grouping("expired")),
    _counter("group_moves", "Logs that were given to a member.", _grouping("moves")),
    _counter("group_taken", "Logs that a member did not give back in time.", _grouping("taken")),
    _counter("group_commits", "Places of groups that were moved.", _grouping("commits")),
    _counter("group_commits_refused", "Moves of places that were refused.", _grouping("refused")),
    _gauge("queue_in_flight", "Records of work queues that somebody works on.", _queued("in_flight")),
    _gauge("queue_delayed", "Records of work queues that rest.", _queued("delayed")),
    _counter("queue_leases", "Records of work queues that were given to a member.", _queued("leases")),
    _counter("queue_redeliveries", "Of these, records that were given before.", _queued("redeliveries")),
    _counter("queue_acks", "Records that were acknowledged.", _queued("acks")),
    _counter("queue_releases", "Records that were given back.", _queued("releases")),
    _counter("queue_rejects", "Records that were rejected.", _queued("rejects")),
    _counter("queue_settlements_refused", "Records that were settled when their lease was over.", _queued("refused")),
    _counter("queue_dead_letters", "Dead letters that were written.", _queued("dead_letters")),
    _counter("queue_given_up", "Records tried in vain, without a dead-letter topic.", _queued("given_up")),
    _counter("queue_skipped", "Records that were gone before they were done.", _queued("skipped")),
    _gauges(
        "job_running",
        "1 where a job of the pipeline runs, and its runner is heard of.",
        "job",
        _jobs(lambda info, now: int(info.state == "running")),
    ),
    _gauges(
        "job_failing",
        "1 where the last run of a job has failed, or nothing is heard of its runner.",
        "job",
        _jobs(lambda info, now: int(info.state in ("failed", "silent"))),
    ),
    _gauges(
        "job_lag_records",
        "Records of a job's topics that came after what its result covers, of the topics asked for.",
        "job",
        _jobs(lambda info, now: info.lag),
    ),
    _gauges(
        "job_success_age_seconds",
        "Since a run of a job last ended without an error.",
        "job",
        _jobs(_since_success),
    ),
    _counters("dropped_segments", "Segments that retention dropped.", "reason", _dropped("segments")),
    _counters("dropped_bytes", "Bytes that retention dropped.", "reason", _dropped("bytes")),
    _counter(
        "dropped_without_hook_segments",
        "Of these, segments whose hook had not succeeded.",
        _upkeep(lambda upkeep: upkeep.dropped_without_hook.segments),
    ),
    _counter(
        "dropped_without_archive_segments",
        "Of these, segments that were to be archived before, and were not.",
        _upkeep(lambda upkeep: upkeep.dropped_without_archive.segments),
    ),
    _gauges(
        "topic_unarchived_bytes", "Bytes of segments that could go if they were archived.", "topic", _unarchived_bytes
    ),
    _gauges(
        "topic_hard_bytes_used",
        "Of topics with such segments: how much of retention.hard_bytes the largest log has, 1 is all.",
        "topic",
        _hard_bytes_used,
    ),
    _counter("hooks_run", "Delete hooks that ended.", _upkeep(lambda upkeep: upkeep.hooks.run)),
    _counter("hooks_failed", "Of these, those that failed.", _upkeep(lambda upkeep: upkeep.hooks.failed)),
    _gauge("hooks_pending", "Segments that wait for their hooks.", _upkeep(lambda upkeep: upkeep.hooks.pending)),
    _gauge("hooks_failing", "Of these, those whose hook fails.", _upkeep(lambda upkeep: len(upkeep.hooks.failing))),
    _counter("recompressed_segments", "Segments stored anew.", _upkeep(lambda upkeep: upkeep.recompression.segments)),
    _counter(
        "recompressed_bytes_before", "Their bytes before.", _upkeep(lambda upkeep: upkeep.recompression.bytes_before)
    ),
    _counter(
        "recompressed_bytes_after", "Their bytes after.", _upkeep(lambda upkeep: upkeep.recompression.bytes_after)
    ),
    _counter("scrubbed_segments", "Segments read to find damage.", _upkeep(lambda upkeep: upkeep.scrub.segments)),
    _counter("scrubbed_bytes", "Bytes read to find damage.", _upkeep(lambda upkeep: upkeep.scrub.bytes)),
    _gauge("scrub_findings", "Damage that was found.", _upkeep(lambda upkeep: len(upkeep.scrub.findings))),
    _counter("trash_emptied", "Deleted topics whose files were removed.", _upkeep(lambda upkeep: upkeep.trash_emptied)),
    _counter("upkeep_errors", "What went wrong in upkeep.", _upkeep(lambda upkeep: upkeep.errors)),
    _gauge("replica_connected", "1 where its source is connected.", _replica(lambda replica: int(replica.connected))),
    _gauge(
        "replica_kept_topics",
        "Topics that the source lacks and did not say it deleted.",
        _replica(lambda replica: replica.kept_topics),
    ),
    _gauge("replica_lag_records", "Records that the source has and we do not.", _replica(lambda it: it.lag_records)),
    _gauges(
        "replica_log_lag_records",
        "The same, of the logs that lag most.",
        "log",
        lambda facts: {} if facts.stats.replica is None else facts.stats.replica.lag_logs,
    ),
    _gauge(
        "replica_heard_seconds",
        "When its source was last heard of, since 1970.",
        _replica(lambda replica: None if replica.heard is None else replica.heard / 1e6),
    ),
)
