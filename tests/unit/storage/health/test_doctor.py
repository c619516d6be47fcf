from __future__ import annotations

import errno
import os
import random
import re
import shutil
import stat
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from logboom.broker.allowances import Allowances
from logboom.errors import Damage, DirectoryUnusable
from logboom.storage import DataDirectory
from logboom.storage.data.topic import (
    HookSettings,
    RetentionSettings,
    SegmentSettings,
    Settings,
    Topic,
    ValidatorSettings,
    write_topic,
)
from logboom.storage.files.disk import OsDisk
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.health.backlog import Unusable
from logboom.storage.health.doctor import examine
from logboom.storage.health.findings import Diagnosis, Finding
from logboom.storage.health.glance import Glance
from logboom.storage.health.repair import hold, plan_repair
from logboom.storage.health.surroundings import FileAccess, Surroundings, look_around
from logboom.storage.recovery import find_segments
from logboom.storage.segment import Segment
from logboom.storage.upkeep.hooks import HookEntry, HookQueue
from logboom.storage.upkeep.scrub import ScrubLedger, ScrubResult
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.broken import overwrite, remove, resize, segments, sound_disk
from support.simulation.model import DIRECTORY, TOPIC_ID, make_batch

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000
RETENTION = RetentionSettings(bytes=8_000, hard_bytes=100_000)
SETTINGS = Settings(segment=SegmentSettings(bytes=4096), hook=HookSettings(delete="archive"), retention=RETENTION)
QUIET = Surroundings(uid=1000)
ALL_WELL = Allowances({"archive": "true", "x": "true"}).unusable
"""Nothing to say."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one topic of two partitions, of six segments each, closed properly."""
    path = tmp_path / "data"
    with DataDirectory.open(str(path)) as directory:
        directory.create_topic("events", 2, SETTINGS)
        for log in directory.open_topic("events"):
            for number in range(100):
                log.append_one(make_batch(number, 3, 0), 1 + number)
                directory.sync()
    return path


def examined(
    data: Path, quick: bool = False, around: Surroundings | None = QUIET, unusable: Unusable | None = ALL_WELL
) -> Diagnosis:
    return examine(OsDisk(str(data)), str(data), NOW, quick, surroundings=around, unusable=unusable)


def only(report: Diagnosis) -> Finding:
    (finding,) = report.findings
    assert finding.reason
    assert finding.advice
    return finding


def topic_of(data: Path) -> Path:
    (path,) = (data / "topics").glob("events~*")
    return path


def parts(data: Path, partition: int = 0) -> list[Segment]:
    return find_segments(OpenFiles(OsDisk(str(data))), str(topic_of(data) / str(partition)))


def log_name(data: Path, partition: int = 0) -> str:
    return f"topics/{topic_of(data).name}/{partition}"


def flip(path: str | Path, position: int) -> None:
    content = bytearray(Path(path).read_bytes())
    content[position] ^= 1
    Path(path).write_bytes(content)


@pytest.mark.parametrize("quick", [False, True])
def test_nothing_is_said_of_a_healthy_directory(data: Path, quick: bool) -> None:
    report = examined(data, quick)
    assert report.findings == []
    assert not report.wrong
    assert (report.topics, report.logs, report.segments) == (1, 2, 12)
    assert report.bytes == sum(path.stat().st_size for path in data.rglob("*.log"))
    assert (report.bytes_read == report.bytes) is not quick
    assert report.bytes_read


@pytest.mark.parametrize("quick", [False, True])
def test_nothing_is_said_of_a_new_directory_without_topics(tmp_path: Path, quick: bool) -> None:
    DataDirectory.open(str(tmp_path / "data")).close()
    assert examined(tmp_path / "data", quick).findings == []


@pytest.mark.parametrize("quick", [False, True])
def test_what_was_deleted_through_the_front_door_leaves_nothing_to_say(data: Path, quick: bool) -> None:
    with DataDirectory.open(str(data)) as directory:
        directory.create_topic("other", 3)
        directory.open_topic("other")
        directory.delete_topic("other")
        directory.empty_trash()
    assert examined(data, quick).findings == []


def test_an_examination_changes_nothing(data: Path) -> None:
    flip(parts(data)[1].log_path, 300)
    before = [(path, path.stat().st_mtime_ns) for path in sorted(data.rglob("*"))]
    examined(data)
    examined(data, quick=True)
    assert [(path, path.stat().st_mtime_ns) for path in sorted(data.rglob("*"))] == before


def test_what_a_check_finds_a_doctor_finds(data: Path) -> None:
    flip(parts(data)[1].log_path, 300)
    finding = only(examined(data))
    assert (finding.kind, finding.severity, finding.file) == ("damage", "damage", parts(data)[1].log_path)


def test_the_worst_comes_first(data: Path) -> None:
    flip(parts(data)[1].log_path, 300)
    (data / "notes.txt").touch()
    (topic_of(data) / "topic.json").write_text("{")
    kinds = [finding.severity for finding in examined(data, around=replace(QUIET, read_only=True)).findings]
    assert kinds == ["damage", "damage", "warning", "info"]


def test_something_that_is_no_data_directory_cannot_be_examined(data: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="it has no node"):
        examined(data.parent)
    with pytest.raises(DirectoryUnusable, match=f"name {data}$"):
        examined(topic_of(data) / "0")


# A quick look


def test_a_quick_look_reads_the_last_segments_and_finds_damage_there(data: Path) -> None:
    flip(parts(data)[-1].log_path, 300)
    finding = only(examined(data, quick=True))
    assert (finding.kind, finding.file) == ("damage", parts(data)[-1].log_path)


def test_a_quick_look_does_not_read_sealed_segments(data: Path) -> None:
    flip(parts(data)[1].log_path, 300)
    assert examined(data, quick=True).findings == []
    disk = sound_disk()
    last = segments(disk)[-1].log_path
    read = set()

    def watch(call: Call) -> None:
        if call.name == "read" and call.path.endswith(".log"):
            read.add(call.path)

    disk.fault = watch
    report = examine(disk, "/data", NOW, quick=True)
    assert read == {last}
    assert [finding.kind for finding in report.findings] == ["unfinished topic"]


@pytest.mark.parametrize("gone", ["log", "tail", "snapshot", "first"])
def test_a_quick_look_notices_by_names_and_sizes_what_is_missing(gone: str) -> None:
    disk = sound_disk()
    first, second, _ = segments(disk)
    if gone == "log":
        remove(disk, second.log_path)
    elif gone == "tail":
        resize(disk, second.log_path, 500)
    elif gone == "snapshot":
        remove(disk, second.snap_path)
    else:
        remove(disk, first.log_path, first.snap_path, first.index_path)
    whole, quick = (
        [
            (finding.kind, finding.severity, finding.file)
            for finding in examine(disk, "/data", NOW, quick).findings
            if finding.kind != "unfinished topic"
        ]
        for quick in (False, True)
    )
    if gone == "log":  # the index of a segment that is gone is a leftover, in both
        assert "missing segment" in {kind for kind, _, _ in quick}
    assert quick == [found for found in whole if found[0] != "bad index"]


def test_a_quick_look_stops_reading_when_its_budget_is_spent() -> None:
    disk = sound_disk()
    for glance in (Glance(budget_batches=3), Glance(budget_bytes=400)):
        survey = glance.survey(disk, DIRECTORY, None, None)
        assert [part.segment.log_path for part in survey.segments] == [part.log_path for part in segments(disk)]
        assert [part.size for part in survey.segments] == [disk.open(p.log_path).size() for p in segments(disk)]
        assert not any(part.holes for part in survey.segments)
        assert glance.bytes_read < survey.segments[-1].size


@pytest.mark.parametrize("quick", [False, True])
def test_an_examination_beside_a_writer_says_that_there_is_one_and_no_more(data: Path, quick: bool) -> None:
    with DataDirectory.open(str(data)) as directory:
        log, _ = directory.open_topic("events")
        log.append_one(make_batch(0, 3, 0), 1_000)
        (data / "topics" / f"new~{'b' * 32}").mkdir()  # a topic in the making
        finding = only(examined(data, quick))
        assert (finding.kind, finding.severity) == ("writer active", "info")
        (data / "topics" / f"new~{'b' * 32}").rmdir()


@pytest.mark.parametrize("quick", [False, True])
def test_segments_that_a_writer_is_just_dropping_are_not_missing(data: Path, quick: bool) -> None:
    first, second, third, *_ = parts(data)
    kept = {path: Path(path).read_bytes() for path in (first.log_path, first.snap_path, second.snap_path)}
    with DataDirectory.open(str(data)) as directory:
        log, _ = directory.open_topic("events")
        log.drop(third.first_seqno)
        for path, content in kept.items():  # half way: the second file has gone, the first is still there
            Path(path).write_bytes(content)
        assert only(examined(data, quick)).kind == "writer active"
    assert "missing segment" in {finding.kind for finding in examined(data, quick).findings}


def test_an_unclean_shut_down_is_told_and_is_not_wrong(data: Path) -> None:
    lock = data / "lock"
    lock.write_text('{"pid": 1, "clean": false}')
    report = examined(data)
    assert only(report).kind == "unclean shut-down"
    assert not report.wrong


@pytest.mark.parametrize("seed", range(30))
def test_what_a_power_loss_leaves_is_not_wrong(seed: int) -> None:
    choose = random.Random(seed)
    disk = SimulatedDisk()
    last_call = choose.randrange(10, 400)

    def fail(call: Call) -> None:
        if call.number == last_call:
            raise PowerLoss

    with suppress(PowerLoss):
        directory = DataDirectory.open("/data", disk)
        disk.fault = fail
        for name in ("a", "b", "c"):
            directory.create_topic(name, 2, SETTINGS)
            for log in directory.open_topic(name):
                for number in range(30):
                    log.append_one(make_batch(number, 3, 0), 1 + number)
                    directory.sync()
                log.drop(log.segments[-1].first_seqno)
            if name == "b":
                directory.delete_topic("a")
        directory.empty_trash()
    disk.fault = None
    left = disk.power_loss(choose)
    for quick in (False, True):
        report = examine(left, "/data", NOW, quick)
        assert not report.wrong, report.findings


# Node and state


def test_a_broken_node_file_is_damage_and_the_rest_is_still_examined(data: Path) -> None:
    (data / "node.json").write_bytes(b"\xff{")
    report = examined(data)
    finding = only(report)
    assert (finding.kind, finding.severity) == ("bad node file", "damage")
    assert f"rm {data}/node.json" in finding.advice
    assert report.batches == 200


def test_a_missing_node_file_is_a_warning(data: Path) -> None:
    (data / "node.json").unlink()
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("bad node file", "warning")


def test_of_a_newer_format_nothing_else_is_believed(data: Path) -> None:
    (data / "node.json").write_text('{"node_id": "n", "format": 99}')
    (topic_of(data) / "topic.json").write_text("{")
    report = examined(data)
    assert only(report).kind == "unknown format"
    assert (report.wrong, report.logs) == (True, 0)


def test_a_missing_state_file_is_a_warning(data: Path) -> None:
    (data / "state").unlink()
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("missing state", "warning")


def test_a_log_that_is_gone_with_its_directory_is_damage_and_the_advice_mends_it(data: Path) -> None:
    shutil.rmtree(topic_of(data) / "1")
    finding = only(examined(data))
    assert (finding.kind, finding.severity, finding.file) == ("missing log", "damage", str(topic_of(data) / "1"))
    assert (finding.seqno_from, finding.seqno_until) == (0, 300)
    (topic_of(data) / "1").mkdir()
    disk = OsDisk(str(data))
    with hold(disk, str(data)):
        for step in plan_repair(disk, str(data)).steps:
            step.run()
    report = examined(data)
    assert not report.wrong
    assert {finding.kind for finding in report.findings} == {"lost"}


def test_slots_of_a_topic_that_is_gone_are_told(data: Path) -> None:
    topic_id = topic_of(data).name.rpartition("~")[2]
    shutil.rmtree(topic_of(data))
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("slot without a topic", "info")
    assert finding.reason.startswith(f"2 slots of topic {topic_id}")


# Topics


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"partitions": 2', '"partitions": 0', "partitions is 0"),
        ('"partitions": 2', '"partitions": "x"', r"Expected `int`"),
        ('"name": "events"', '"name": "other"', "the topic name other, the name of its directory events"),
        ('"bytes": 4096', '"bytes": 1', "segment.bytes: is 1, allowed are 4096 to"),
        ('"settings"', '"settings": {"wat": 1}, "_"', "unknown field `wat`"),
        ('"name": "events"', '"name": "\udcff"', "."),
    ],
)
def test_a_topic_file_that_a_server_cannot_use_is_damage(data: Path, old: str, new: str, reason: str) -> None:
    file = topic_of(data) / "topic.json"
    text = file.read_text()
    assert old in text
    file.write_bytes(text.replace(old, new).encode("utf-8", "surrogateescape"))
    finding = only(examined(data))
    assert (finding.kind, finding.severity, finding.file) == ("bad topic", "damage", str(file))
    assert re.search(reason, finding.reason)


def test_a_topic_file_that_is_a_directory_is_told(data: Path) -> None:
    (topic_of(data) / "topic.json").unlink()
    (topic_of(data) / "topic.json").mkdir()
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("unreadable", "warning")


@pytest.mark.parametrize("broken", ["missing", "garbage"])
def test_the_command_that_writes_a_topic_file_anew_brings_the_topic_back(data: Path, broken: str) -> None:
    file = topic_of(data) / "topic.json"
    if broken == "missing":
        file.unlink()
    else:
        file.write_bytes(os.urandom(100))
    finding = only(examined(data))
    command = finding.advice[finding.advice.index("echo ") :]
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert examined(data).findings == []
    with DataDirectory.open(str(data)) as directory:
        assert [log.next for log in directory.open_topic("events")] == [300, 300]


def test_a_load_that_did_not_finish_is_a_warning_and_a_creation_is_not(data: Path) -> None:
    (topic_of(data) / "topic.json").unlink()
    load = only(examined(data))
    assert (load.kind, load.severity) == ("unfinished topic", "warning")
    assert "a load did not finish" in load.reason
    assert "logboom load" in load.advice
    shutil.rmtree(topic_of(data))
    (data / "state").unlink()
    (data / "topics" / f"new~{'b' * 32}").mkdir()
    (data / "topics" / f"new~{'b' * 32}" / "topic.json.tmp").touch()
    creation = only(examined(data))
    assert (creation.kind, creation.severity) == ("unfinished topic", "info")
    assert "creating the topic did not finish" in creation.reason
    subprocess.run(["/bin/sh", "-c", creation.advice.rpartition(": ")[2]], check=True)
    assert examined(data).findings == []


def test_nobody_is_told_to_remove_a_topic_whose_segments_are_gone(data: Path) -> None:
    (topic_of(data) / "topic.json").unlink()
    for path in topic_of(data).glob("*/*"):
        path.unlink()
    report = examined(data)
    assert {"missing segment", "unfinished topic"} <= {finding.kind for finding in report.findings}
    assert not any("rm " in finding.advice for finding in report.findings)


def test_two_topics_with_one_name_are_damage(data: Path) -> None:
    write_topic(OsDisk(str(data)), str(data), Topic("f" * 32, "events"))
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("two topics", "damage")
    assert "the name events" in finding.reason


def test_a_partition_that_the_topic_does_not_have_is_a_warning(data: Path) -> None:
    shutil.copytree(topic_of(data) / "0", topic_of(data) / "2")
    finding = only(examined(data))
    assert (finding.kind, finding.severity, finding.file) == ("extra partition", "warning", str(topic_of(data) / "2"))
    assert "partitions to 3" in finding.advice


# Names


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        ".node.json.swp",
        "topics/README",
        "topics/events",
        "topics/T/topic.json~",
        "topics/T/00",
        "topics/T/0/x.bak",
        "topics/T/5/x.bak",
        "internal/hooks.orig",
        "trash/junk",
    ],
)
def test_foreign_files_are_named_wherever_they_are(data: Path, name: str) -> None:
    path = data / name.replace("T", topic_of(data).name)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    for quick in (False, True):
        report = examined(data, quick)
        assert (only(report).kind, only(report).file, report.wrong) == ("foreign file", str(path), False)


@pytest.mark.parametrize("name", ["topics/T/topic.json.tmp", "topics/T/0/x.log.tmp", "internal/hooks.tmp"])
def test_leftovers_are_named(data: Path, name: str) -> None:
    path = data / name.replace("T", topic_of(data).name)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert (only(examined(data)).kind, only(examined(data)).file) == ("leftover", str(path))


def test_lost_and_found_is_at_home_and_a_file_kept_by_nfs_is_explained(data: Path) -> None:
    (data / "lost+found").mkdir()
    assert examined(data).findings == []
    (topic_of(data) / ".nfs0001").touch()
    assert "still has open" in only(examined(data)).reason


def test_trash_that_is_not_emptied_is_told(data: Path) -> None:
    with DataDirectory.open(str(data)) as directory:
        directory.delete_topic("events")
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("trash", "info")
    assert "1 deleted topic; " in finding.reason


# Hooks, scrubs, limits


def queue_of(data: Path) -> HookQueue:
    return HookQueue.open(OsDisk(str(data)), f"{data}/internal/hooks")


def queued(data: Path, count: int) -> list[HookEntry]:
    """The oldest segments of partition 0, which wait for their hook."""
    entries = []
    for segment in parts(data)[:count]:
        assert segment.after is not None
        entries.append(
            HookEntry(log_name(data), segment.first_seqno, segment.first_index, *segment.after, "bytes", NOW)
        )
    queue_of(data).push(entries)
    return entries


def test_a_hook_that_waits_is_not_a_failing_one(data: Path) -> None:
    queued(data, 3)
    assert examined(data).findings == []


@pytest.mark.parametrize("quick", [False, True])
def test_a_failing_hook_says_since_when_how_often_why_and_what_it_holds(data: Path, quick: bool) -> None:
    first, *_ = queued(data, 3)
    queue_of(data).failed(first, NOW - 9 * MINUTE, "exit code 1", 1000, 1000)
    queue_of(data).failed(first, NOW, "exit code 3: no space\n on device\n", 60_000, 600_000)
    report = examined(data, quick)
    finding = only(report)
    assert (finding.kind, finding.severity, finding.file) == ("failing hook", "warning", f"{data}/{log_name(data)}")
    assert (finding.seqno_from, finding.seqno_until) == (first.first_seqno, first.next_seqno)
    held = sum(Path(segment.log_path).stat().st_size for segment in parts(data)[:3])
    size = sum(Path(segment.log_path).stat().st_size for segment in parts(data))
    for words in (
        "topic events has failed 2 times since 2027-01-15 07:51:00 UTC (last: exit code 3: no space on device)",
        "the next attempt is at 2027-01-15 08:02:00 UTC",
        f"it holds back 3 segments with {held:,} bytes",
        f"the log has {size:,} of 100,000 bytes ({size // 1000} %)",
    ):
        assert words in finding.reason
    assert "fix the command hooks.archive in the configuration" in finding.advice
    assert report.wrong


def test_a_hook_that_fails_without_a_hard_limit_holds_until_the_disk_is_full(data: Path) -> None:
    (entry,) = queued(data, 1)
    queue_of(data).failed(entry, NOW - MINUTE, "exit code 1", 1, 1)
    with DataDirectory.open(str(data)) as directory:
        directory.configure_topic("events", Settings(hook=HookSettings(delete="x")))
    finding = only(examined(data))
    assert "until the disk is full" in finding.reason
    assert "the next attempt is due" in finding.reason


def configure(data: Path, hook: str | None = None, urls: tuple[str, ...] = ()) -> None:
    with DataDirectory.open(str(data)) as directory:
        directory.configure_topic("events", Settings(hook=HookSettings(hook), validators=ValidatorSettings(urls)))


@pytest.mark.parametrize("unusable", [None, ALL_WELL])
def test_a_command_of_an_older_release_is_told_with_what_to_do(data: Path, unusable: Unusable | None) -> None:
    (entry,) = queued(data, 1)
    queue_of(data).failed(entry, NOW - MINUTE, "exit code 1", 1, 1)
    configure(data, "cp $LOGBOOM_SEGMENT /backup")
    report = examined(data, unusable=unusable)
    finding = only(report)
    assert (finding.kind, finding.severity, finding.file) == (
        *("unknown hook", "warning"),
        f"{topic_of(data)}/topic.json",
    )
    assert "'cp $LOGBOOM_SEGMENT /backup'" in finding.reason
    assert "`logboom topic set events hook.delete=NAME`" in finding.advice
    assert report.wrong


def test_a_hook_that_the_configuration_lacks_is_told_where_that_is_known(data: Path) -> None:
    configure(data, "gone")
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("unknown hook", "warning")
    assert "'gone' is no hook of this node: [hooks] in its configuration has only archive, x" in finding.reason
    report = examined(data, unusable=None)
    assert (only(report).severity, report.wrong) == ("info", False)
    assert "--config" in only(report).advice


def test_a_validator_that_the_configuration_does_not_list_is_told_where_that_is_known(data: Path) -> None:
    configure(data, urls=("http://user:secret@judge.test/",))
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("validator not allowed", "warning")
    assert "appends are refused" in finding.reason
    assert "secret" not in finding.reason
    report = examined(data, unusable=None)
    assert (only(report).kind, report.wrong) == ("validator not allowed", False)


def test_a_damaged_hook_queue_is_a_warning(data: Path) -> None:
    queued(data, 1)
    flip(data / "internal" / "hooks", 30)
    finding = only(examined(data))
    assert (finding.kind, finding.severity) == ("bad hook queue", "warning")
    assert finding.reason == "the checksum does not hold"


def scrubbed(data: Path, number: int) -> None:
    """A scrub has found damage in this segment of partition 0."""
    disk, segment = OsDisk(str(data)), parts(data)[number]
    ledger = ScrubLedger.load(disk, f"{data}/internal/scrub")
    damage = Damage(segment.log_path, 224, segment.first_seqno + 3, segment.first_seqno + 6, "batch_crc does not match")
    ledger.record(log_name(data), segment, ScrubResult(1, 1, [damage]), NOW)
    ledger.save(disk)


def test_what_a_scrub_found_is_compared_with_what_is_found_now(data: Path) -> None:
    scrubbed(data, 1)
    quick = only(examined(data, quick=True))
    assert (quick.kind, quick.severity, quick.file) == ("found by a scrub", "damage", parts(data)[1].log_path)
    assert "2027-01-15 08:00:00 UTC: batch_crc does not match; this check did not read" in quick.reason
    assert f"`logboom doctor {data}`" in quick.advice
    whole = only(examined(data))
    assert (whole.kind, whole.severity) == ("found by a scrub", "info")
    assert "found the segment sound" in whole.reason
    flip(parts(data)[1].log_path, 300)
    now, before = examined(data).findings
    assert (now.kind, now.severity) == ("damage", "damage")
    assert (before.kind, before.severity) == ("found by a scrub", "info")
    assert "this check found the damage too" in before.reason


def test_what_a_scrub_found_is_past_when_the_segment_was_repaired_or_dropped(data: Path) -> None:
    flip(parts(data)[0].log_path, 300)
    scrubbed(data, 0)
    disk = OsDisk(str(data))
    with hold(disk, str(data)):
        for step in plan_repair(disk, str(data)).steps:
            step.run()
    scrub = [finding for finding in examined(data, quick=True).findings if finding.kind == "found by a scrub"]
    assert [finding.severity for finding in scrub] == ["info"]
    assert "was rewritten" in scrub[0].reason
    with DataDirectory.open(str(data)) as directory:
        log, _ = directory.open_topic("events")
        log.drop(log.segments[1].first_seqno)
    assert not any(finding.kind == "found by a scrub" for finding in examined(data, quick=True).findings)


def test_a_damaged_scrub_ledger_is_harmless(data: Path) -> None:
    scrubbed(data, 1)
    flip(data / "internal" / "scrub", 30)
    report = examined(data)
    assert (only(report).kind, only(report).severity) == ("bad scrub ledger", "harmless")
    assert not report.wrong


@pytest.mark.parametrize(
    ("retention", "hook", "logs"),
    [
        (RetentionSettings(age_ms=1, hard_bytes=25_000), None, 2),
        (RetentionSettings(hard_bytes=25_000), "archive", 2),
        (RetentionSettings(age_ms=1, hard_bytes=30_000), None, 0),
        (RetentionSettings(hard_bytes=25_000), None, 0),
    ],
)
def test_a_log_near_its_hard_limit_is_a_warning_unless_that_is_its_only_limit(
    data: Path, retention: RetentionSettings, hook: str | None, logs: int
) -> None:
    with DataDirectory.open(str(data)) as directory:
        directory.configure_topic("events", Settings(retention=retention, hook=HookSettings(delete=hook)))
    kinds = [(finding.kind, finding.severity) for finding in examined(data, quick=True).findings]
    assert kinds == [("near the hard limit", "warning")] * logs


# The system


@pytest.mark.parametrize(
    ("free", "total", "words"),
    [
        (1 << 20, 1 << 40, "the server refuses writes"),
        (1 << 29, 1 << 31, "(25 % of the volume)"),
        (50 << 30, 1 << 40, "(4 % of the volume)"),
        (500 << 30, 1 << 40, None),
    ],
)
def test_low_space_is_a_warning(free: int, total: int, words: str | None) -> None:
    disk = sound_disk()
    disk.free = free
    write_topic(disk, "/data", Topic(TOPIC_ID.hex(), "t"))
    report = examine(disk, "/data", NOW, surroundings=replace(QUIET, total_bytes=total))
    assert report.free_bytes == free
    if words is None:
        assert report.findings == []
    else:
        assert (only(report).kind, only(report).severity) == ("low space", "warning")
        assert words in only(report).reason


@pytest.mark.parametrize(
    ("around", "kind", "severity"),
    [
        (replace(QUIET, free_files=3), "low space", "warning"),
        (replace(QUIET, read_only=True), "read-only", "warning"),
        (replace(QUIET, file_system="nfs4"), "network file system", "warning"),
        (replace(QUIET, file_system="fuse.sshfs"), "network file system", "warning"),
        (replace(QUIET, files_max=256), "low limit", "info"),
        (replace(QUIET, inotify_max=8), "low limit", "info"),
    ],
)
def test_what_the_system_lacks_is_told(data: Path, around: Surroundings, kind: str, severity: str) -> None:
    finding = only(examined(data, around=around))
    assert (finding.kind, finding.severity) == (kind, severity)


def test_this_machine_can_be_looked_at(data: Path) -> None:
    around = look_around(OsDisk(str(data)), str(data))
    assert around.uid == os.geteuid()
    assert {holding.path for holding in around.holdings} == {str(data), *map(str, data.rglob("*"))}
    assert around.holdings[0].path == str(data)
    assert around.total_bytes
    assert all(holding.readable and holding.writable for holding in around.holdings)


# Permissions

OWNER = 4000


def held(path: str, uid: int = OWNER, mode: int = 0o644, gid: int = OWNER, readable: bool = True) -> FileAccess:
    return FileAccess(path, uid, gid, stat.S_IFREG | mode, readable, readable)


def permissions(data: Path, *holdings: FileAccess, uid: int = 0, root_uid: int = OWNER) -> list[Finding]:
    root = FileAccess(str(data), root_uid, root_uid, stat.S_IFDIR | 0o755, True, uid in (0, root_uid))
    report = examined(data, around=Surroundings(uid=uid, holdings=(root, *holdings)))
    assert all(finding.kind == "permissions" for finding in report.findings)
    return report.findings


def test_root_may_look_at_what_belongs_to_another(data: Path) -> None:
    assert permissions(data, held("/d/state"), held("/d/lock")) == []
    assert permissions(data, held("/d/state"), uid=OWNER) == []


def test_files_of_root_in_the_directory_of_another_owner_are_one_warning(data: Path) -> None:
    (finding,) = permissions(data, held("/d/a", uid=0), held("/d/b", uid=0), held("/d/c"), uid=0)
    assert (finding.severity, finding.file) == ("warning", "/d/a")
    assert "it belongs to root" in finding.reason
    assert "(1 more like it)" in finding.reason
    assert finding.advice == f"chown -R {OWNER}:{OWNER} {data}"


def test_a_file_that_its_group_may_write_may_belong_to_anybody(data: Path) -> None:
    (finding,) = permissions(data, held("/d/a", uid=0, mode=0o664))
    assert finding.severity == "info"


def test_a_mode_that_keeps_the_owner_out_is_a_warning(data: Path) -> None:
    for mode in (0o444, 0o200):
        (finding,) = permissions(data, held("/d/a", mode=mode))
        assert (finding.severity, finding.file) == ("warning", "/d/a")
        assert finding.advice == f"chmod -R u+rwX {data}"


def test_a_visitor_is_told_what_he_may_not_read(data: Path) -> None:
    (finding,) = permissions(data, held("/d/a", readable=False), uid=5000)
    assert (finding.severity, finding.file) == ("warning", "/d/a")
    assert "was not checked" in finding.reason
    (finding,) = permissions(data, held("/d/a"), uid=5000)
    assert finding.severity == "info"


def test_lost_and_found_may_be_roots(data: Path) -> None:
    assert permissions(data, held(f"{data}/lost+found", uid=0, mode=0o700)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_given_away_is_found_on_a_real_disk(data: Path) -> None:
    for path in (data, *data.rglob("*")):
        os.chown(path, OWNER, OWNER)
    around = look_around(OsDisk(str(data)), str(data))
    assert examined(data, around=replace(around, total_bytes=None)).findings == []
    os.chown(data / "state", 0, 0)
    around = look_around(OsDisk(str(data)), str(data))
    assert only(examined(data, around=replace(around, total_bytes=None))).file == f"{data}/state"


@pytest.fixture
def failing_disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Directories that cannot be listed, and why."""
    broken: list[tuple[str, int]] = []
    listed = OsDisk.list

    def fail(disk: OsDisk, path: str) -> list[str]:
        for name, code in broken:
            if path == name:
                raise OSError(code, os.strerror(code), path)
        return listed(disk, path)

    monkeypatch.setattr(OsDisk, "list", fail)
    return broken


def test_a_topic_that_may_not_be_read_is_passed_over_and_never_to_be_removed(
    data: Path, failing_disk: list[tuple[str, int]]
) -> None:
    failing_disk.append((str(topic_of(data)), errno.EACCES))
    assert examined(data).findings == []


def test_a_device_that_fails_is_told(data: Path, failing_disk: list[tuple[str, int]]) -> None:
    failing_disk.append((str(data / "internal"), errno.EIO))
    (data / "internal").mkdir()
    finding = only(examined(data))
    assert (finding.kind, finding.severity, finding.file) == ("unreadable", "warning", str(data / "internal"))
    assert "the device fails" in finding.advice


def test_a_flipped_byte_in_a_segment_of_a_simulated_disk_is_found_too() -> None:
    disk = sound_disk()
    write_topic(disk, "/data", Topic(TOPIC_ID.hex(), "t"))
    overwrite(disk, segments(disk)[0].log_path, 100, b"XXXX")
    assert only(examine(disk, "/data", NOW)).kind == "damage"
