"""What a running node says is wrong with it: each with a cause and a way out, the worst first, and never too much."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import (
    AccessStats,
    Broker,
    CursorInfo,
    DiskStats,
    Incident,
    KeyInfo,
    NodeStats,
    Part,
    PartitionInfo,
    ReplicaStats,
    Settings,
    StageInfo,
    TopicInfo,
)
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.checkup import FINDINGS_MAX, REASON_MAX, Complaint, Examiner, examine
from logboom.errors import SyncFailed
from logboom.storage.health.findings import SEVERITIES
from support.disks.gated import GatedDisk

GIB = 2**30
MINUTE = 60_000_000
NOW = 1_769_860_800_000_000
WELL = NodeStats("n", "c", "1", NOW, NOW, 1, 1, {}, {}, {}, {})


class Said:
    """A node that says just this of itself."""

    def __init__(
        self, topics: list[TopicInfo] | None = None, cursors: list[CursorInfo] | None = None, /, **more: Any
    ) -> None:
        self.said = msgspec.structs.replace(WELL, **more)
        self.topics = topics or []
        self.cursors = cursors or []
        self.stages: list[StageInfo] = []
        self.keys: list[KeyInfo] = []
        self.noted: list[Incident] = []
        self.asked = 0

    async def stats(self, *, caller: Caller) -> NodeStats:
        self.asked += 1
        await asyncio.sleep(0)
        return self.said

    async def incidents(self, *, caller: Caller) -> list[Incident]:
        return self.noted

    async def list_topics(self, prefix: str, internal: bool, *, caller: Caller) -> list[TopicInfo]:
        return self.topics

    async def list_cursors(self, *, caller: Caller) -> list[CursorInfo]:
        return self.cursors

    async def list_stages(self, *, caller: Caller) -> list[StageInfo]:
        return self.stages

    async def list_keys(self, *, caller: Caller) -> list[KeyInfo]:
        return self.keys


def findings(said: Said) -> list[Complaint]:
    return asyncio.run(examine(cast(Broker, said), EVERYBODY))


def only(said: Said) -> Complaint:
    (complaint,) = findings(said)
    assert complaint.reason
    assert complaint.advice
    return complaint


def topic(number: int, **more: Any) -> TopicInfo:
    return TopicInfo(f"t{number}", f"{number:032x}", [PartitionInfo(0, 0, 10, 10, **more)], Settings())


def cursor(name: str, number: int = 0, seqno: int = 10, lag: int | None = 0) -> CursorInfo:
    return CursorInfo(name, f"t{number}", f"{number:032x}", 0, seqno, "", NOW - 5 * MINUTE, lag)


def test_of_a_node_that_is_well_it_has_nothing_to_say() -> None:
    disk = DiskStats(100 * GIB, 50 * GIB, GIB, 10 * GIB)
    said = Said([topic(0)], [cursor("a")], disk=disk, open_files=10, open_files_limit=1000)
    assert findings(said) == []


def test_a_node_whose_sync_failed_is_to_be_restarted() -> None:
    complaint = only(Said(failure="a sync failed", refused="a sync failed"))
    assert (complaint.severity, complaint.kind, complaint.reason) == ("damage", "writes have failed", "a sync failed")
    assert "restart" in complaint.advice


def test_what_an_operator_refused_is_a_warning() -> None:
    assert only(Said(refused="maintenance")).kind == "writes refused"
    said = only(Said([msgspec.structs.replace(topic(3), refused="moving")]))
    assert (said.severity, said.where, said.reason) == ("warning", "t3", "moving")
    assert "logboom accept t3" in said.advice


def test_a_topic_that_cannot_be_read_is_damage() -> None:
    complaint = only(Said(unreadable=["ab" * 16]))
    assert (complaint.severity, complaint.kind) == ("damage", "unreadable topic")
    assert "ab" * 16 in complaint.where


def test_a_log_that_takes_no_writes_is_damage() -> None:
    complaint = only(Said([topic(1, refusal="a bit flipped")]))
    assert (complaint.severity, complaint.where, complaint.reason) == ("damage", "t1/0", "a bit flipped")


@pytest.mark.parametrize(
    ("free", "total", "severity"),
    [
        (GIB - 1, 100 * GIB, "damage"),
        (GIB, 100 * GIB, "warning"),
        (2 * GIB - 1, 10 * GIB, "warning"),
        (5 * GIB - 1, 100 * GIB, "warning"),
        (5 * GIB, 100 * GIB, None),
    ],
)
def test_how_bad_it_is_that_a_volume_fills(free: int, total: int, severity: str | None) -> None:
    found = findings(Said(disk=DiskStats(total, free, GIB, 0)))
    assert [complaint.severity for complaint in found] == ([] if severity is None else [severity])


def test_a_full_volume_says_that_writes_are_refused_and_how_to_make_room() -> None:
    complaint = only(Said(disk=DiskStats(100 * GIB, GIB // 2, GIB, 0)))
    assert complaint.reason == "512.0 MiB of 100.0 GiB are free, less than the reserve of 1.0 GiB: writes are refused"
    assert "retention" in complaint.advice


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"open_files": 800, "open_files_limit": 1000}, "open files of the process"),
        ({"memory_bytes": 8 * GIB, "memory_limit_bytes": 10 * GIB}, "memory"),
        ({"topics": 80, "limits": {"topics": 100}}, "limits.topics"),
        ({"connections": {"http": 50, "binary": 30}, "limits": {"connections": 100}}, "limits.connections"),
        ({"writes": {"unsynced_bytes": 8}, "limits": {"unsynced_bytes": 10}}, "limits.unsynced_bytes"),
        ({"staging": {"stages": 8}, "limits": {"stages": 10}}, "limits.stages"),
        ({"staging": {"staged_bytes": 8}, "limits": {"staged_bytes": 10}}, "limits.staged_bytes"),
        ({"staging": {"keys": 8}, "limits": {"publish_keys": 10}}, "limits.publish_keys"),
    ],
    ids=["open-files", "memory", "topics", "connections", "unsynced-bytes", "stages", "staged-bytes", "publish-keys"],
)
def test_a_limit_is_near_from_four_fifths_of_it_on(more: dict[str, Any], where: str) -> None:
    complaint = only(Said(**more))
    assert (complaint.severity, complaint.kind, complaint.where) == ("warning", "near a limit", where)


def test_limits_that_nobody_knows_are_never_near() -> None:
    assert findings(Said(open_files=800, memory_bytes=GIB)) == []


def said_of_stage(unused: int, kept: int = 100 * MINUTE, **more: Any) -> Said:
    said = Said(staging={"stages": 1})
    facts = StageInfo("ab" * 16, 2**63, NOW - unused, NOW - unused, NOW - unused + kept, 5, GIB)
    said.stages = [msgspec.structs.replace(facts, **more)]
    return said


def test_a_stage_that_nobody_uses_is_told_of_before_it_expires() -> None:
    assert findings(said_of_stage(89 * MINUTE)) == []
    complaint = only(said_of_stage(91 * MINUTE, note="import"))
    assert (complaint.severity, complaint.kind) == ("warning", "stage expires")
    assert complaint.where == f"stage {'ab' * 16} (import)"
    assert complaint.reason == "1.0 GiB, unused for 1 hour: it expires in 9 minutes"


def test_a_stage_that_was_not_read_since_a_restart_may_hold_something() -> None:
    assert only(said_of_stage(91 * MINUTE, producer_id=0, records=0)).kind == "stage expires"


def test_nobody_misses_a_stage_without_records_or_one_that_is_being_published() -> None:
    assert findings(said_of_stage(99 * MINUTE, records=0)) == []
    assert findings(said_of_stage(99 * MINUTE, state="publishing")) == []


def test_a_failed_stage_is_harmless() -> None:
    complaint = only(said_of_stage(MINUTE, state="failed"))
    assert (complaint.severity, complaint.kind) == ("harmless", "failed stage")
    assert f"logboom stage discard {'ab' * 16}" in complaint.advice


@pytest.mark.parametrize(
    ("staged", "free", "words"),
    [
        (19 * GIB, 50 * GIB, None),
        (20 * GIB, 50 * GIB, "20.0 GiB of a volume of 100.0 GiB are staged"),
        (9 * GIB, 10 * GIB, None),
        (10 * GIB, 10 * GIB, "10.0 GiB are staged, and 9.0 GiB can be written: not all can be published"),
    ],
)
def test_stages_that_hold_much_of_a_volume_are_a_warning(staged: int, free: int, words: str | None) -> None:
    said = Said(disk=DiskStats(100 * GIB, free, GIB, 0), staging={"staged_bytes": staged})
    assert [complaint.reason for complaint in findings(said)] == ([] if words is None else [words])


def test_a_publish_that_waits_is_a_warning_with_a_way_out() -> None:
    said = Said(staging={"publishing": 1})
    said.keys = [
        KeyInfo("done", 7, 5, NOW - 5 * MINUTE),
        KeyInfo("new", 7, 5, NOW - MINUTE // 2, is_open=True),
        KeyInfo("stuck", 7, 5, NOW - 5 * MINUTE, is_open=True),
    ]
    complaint = only(said)
    assert (complaint.severity, complaint.kind, complaint.where) == ("warning", "publish waits", "key stuck, number 7")
    assert "5 minutes" in complaint.reason
    assert "logboom stage forget stuck" in complaint.advice


def test_cursors_are_held_against_their_limit() -> None:
    cursors = [cursor(f"c{number}") for number in range(8)]
    assert only(Said([topic(0)], cursors, limits={"cursors": 10})).where == "limits.cursors"


def test_a_limit_that_said_no_is_a_warning_and_other_rejections_are_not() -> None:
    said = Said(rejections={"Overloaded": 1, "TopicNotFound": 5, "limits.topics": 2})
    said.noted = [Incident("rejection", "Overloaded", "later", 1, NOW, NOW)]
    limit, other = findings(said)
    assert (limit.severity, limit.kind, limit.where) == ("warning", "limit reached", "limits.topics")
    assert "2 times" in limit.reason
    assert (other.severity, other.kind, other.where) == ("info", "rejections", "Overloaded")


def test_a_replica_without_its_source_is_a_warning() -> None:
    replica = ReplicaStats("there:1774", False, 0, {}, NOW - 3 * MINUTE, "connection refused")
    complaint = only(Said(replica=replica))
    assert (complaint.severity, complaint.kind) == ("warning", "replica not connected")
    assert complaint.reason == "the source was not heard of for 3 minutes: connection refused"
    assert "logboom promote" in complaint.advice


@pytest.mark.parametrize(("lag", "severity"), [(1, "info"), (5_000_000, "warning")])
def test_a_replica_that_is_far_behind_is_a_warning(lag: int, severity: str) -> None:
    complaint = only(Said(replica=ReplicaStats("there:1774", True, lag, {"t/0": lag}, NOW)))
    assert (complaint.severity, complaint.kind) == (severity, "replica lag")
    assert f"t/0 by {lag:,}" in complaint.reason


def test_a_replica_that_cannot_copy_something_says_what() -> None:
    replica = ReplicaStats("there:1774", True, 0, {}, NOW, "t/0 differs")
    assert only(Said(replica=replica)).reason == "t/0 differs"


def test_a_cursor_behind_what_is_kept_is_a_warning() -> None:
    part = PartitionInfo(0, 7, 10, 10)
    complaint = only(Said([TopicInfo("t0", f"{0:032x}", [part], Settings())], [cursor("a", seqno=3, lag=7)]))
    assert (complaint.severity, complaint.kind) == ("warning", "cursor left behind")
    assert "4 records dropped unread" in complaint.reason


def test_the_places_of_a_group_are_told_by_its_name() -> None:
    lost, lagging = findings(Said([topic(0)], [cursor("@slow", seqno=4, lag=6), cursor("@lost", 9, lag=None)]))
    assert lagging.where.startswith("group slow on t0/0")
    assert "`logboom group delete lost`" in lost.advice


def test_a_cursor_without_a_topic_and_one_that_lags_are_information() -> None:
    lost, lagging = findings(Said([topic(0)], [cursor("slow", seqno=4, lag=6), cursor("lost", 9, lag=None)]))
    assert (lost.kind, lagging.kind) == ("cursor without a topic", "cursor lag")
    assert lagging.reason == "6 records behind, last moved 5 minutes ago"


def test_of_many_cursors_those_most_behind_are_named() -> None:
    cursors = [cursor(f"c{number}", seqno=0, lag=number) for number in range(1, 2001)]
    found = findings(Said([topic(0)], cursors))
    assert len(found) == FINDINGS_MAX
    assert found[0].where == "c2000 on t0/0"
    assert found[-1].reason == f"not shown here: {2000 - FINDINGS_MAX + 1:,} info"


def test_ten_thousand_refused_topics_make_a_short_answer_that_says_how_many() -> None:
    refused = [msgspec.structs.replace(topic(number), refused="x" * 10_000) for number in range(10_000)]
    found = findings(Said(refused, failure="broken", refused="broken"))
    assert len(found) == FINDINGS_MAX
    assert found[0].kind == "writes have failed"
    assert (found[-1].severity, found[-1].kind) == ("warning", "more findings")
    assert found[-1].reason == f"not shown here: {10_000 - FINDINGS_MAX + 2:,} warning"
    assert max(len(complaint.reason) for complaint in found) == REASON_MAX
    assert len(msgspec.json.encode(found)) < 300_000


def test_the_worst_come_first() -> None:
    refused = [msgspec.structs.replace(topic(number), refused="no") for number in range(300)]
    said = Said([*refused, topic(301, refusal="damaged")], [cursor("a", seqno=1, lag=9)], rejections={"x": 1})
    found = findings(said)
    places = [SEVERITIES.index(complaint.severity) for complaint in found]
    assert places == sorted(places)
    assert found[0].kind == "log takes no writes"


def test_those_who_ask_at_once_are_told_what_one_examination_found() -> None:
    async def run() -> None:
        said = Said(refused="maintenance")
        examiner = Examiner(cast(Broker, said), EVERYBODY)
        answers = await asyncio.gather(*(examiner.findings() for _ in range(20)))
        assert all(answer == answers[0] for answer in answers)
        assert said.asked == 1

    asyncio.run(run())


def test_one_who_gives_up_holds_up_nobody() -> None:
    async def run() -> None:
        said = Said(refused="maintenance")
        examiner = Examiner(cast(Broker, said), EVERYBODY)
        first = asyncio.create_task(examiner.findings())
        await asyncio.sleep(0)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        assert [complaint.kind for complaint in await examiner.findings()] == ["writes refused"]

    asyncio.run(run())


def test_a_broker_that_refuses_and_one_that_failed_say_so(tmp_path: Path) -> None:
    async def run() -> None:
        disk = GatedDisk(str(tmp_path))
        broker = await LocalBroker.open(str(tmp_path), disk=disk)
        try:
            await broker.create_topic("t")
            await broker.refuse("t", "moving")
            assert ("writes refused", "t") in [(found.kind, found.where) for found in await examine(broker, EVERYBODY)]
            await broker.accept("t")
            disk.failing = True
            await broker.append([Part("t", [build([b"x"])])], "durable")
            found = await examine(broker, EVERYBODY)
            assert found[0].kind == "writes have failed"
            assert ("log takes no writes", "t/0") in [(each.kind, each.where) for each in found]
        finally:
            with suppress(SyncFailed):
                await broker.close()

    asyncio.run(run())


def test_nobody_is_told_to_delete_the_cursors_of_a_topic_that_is_only_damaged() -> None:
    unopened = TopicInfo("t0", f"{0:032x}", [PartitionInfo(0, 0, 0, 0, refusal="damaged")], Settings())
    cursors = [cursor("a", 0, seqno=3, lag=None), cursor("b", 1, seqno=3, lag=None), cursor("new", 2, seqno=3, lag=1)]
    found = findings(Said([unopened], cursors, unreadable=[f"{1:032x}"]))
    assert {complaint.kind for complaint in found} == {"log takes no writes", "unreadable topic"}


@pytest.mark.parametrize(
    ("expires", "reason"),
    [(NOW + 29 * 24 * 60 * MINUTE, "it expires in 29 days"), (NOW - MINUTE, "it expired 1 minute ago")],
)
def test_a_certificate_that_expires_soon_is_a_warning(expires: int, reason: str) -> None:
    found = only(Said(access=AccessStats("none", certificate_expires=expires)))
    assert (found.severity, found.kind, found.reason) == ("warning", "certificate", reason)
    assert "logboom cert server" in found.advice


def test_an_insecure_node_is_a_warning_and_a_secured_one_is_none() -> None:
    found = only(Said(access=AccessStats("all", insecure=True)))
    assert (found.severity, found.kind) == ("warning", "insecure")
    later = NOW + 31 * 24 * 60 * MINUTE
    assert findings(Said(access=AccessStats("none", certificate_expires=later))) == []
