"""Upkeep on a real directory with real hooks: what goes, when, in which order, and what stays when something fails."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.batch import Selection, build
from logboom.broker.config import UpkeepSettings
from logboom.broker.upkeep.stats import Dropped
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.errors import StorageError, SyncFailed
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import HookSettings, RecompressionSettings, RetentionSettings, Settings
from logboom.storage.files.disk import OsDisk
from logboom.storage.segment import Segment
from logboom.storage.upkeep.hooks import HookQueue
from logboom.storage.upkeep.scrub import ScrubLedger, ScrubResult
from support.brokers.any_hook import ANY_HOOK

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND
ENOUGH_S = 300.0
FAST = UpkeepSettings(recompress_bytes_per_second=None, scrub_bytes_per_second=None)
EVERYTHING = RetentionSettings(bytes=0)
ZSTD = RecompressionSettings(codec="zstd")


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    with DataDirectory.open(str(tmp_path / "data"), reserve_bytes=0) as directory:
        yield directory


@pytest.fixture
def upkeep(data: DataDirectory) -> Iterator[Upkeep]:
    made = Upkeep(data, FAST, allowed=ANY_HOOK)
    yield made
    made.close()


def fill(data: DataDirectory, log: Log, segments: int, now: int = NOW) -> None:
    """Sealed segments of ten records each."""
    for number in range(segments):
        values = [b"%d of %d, and then the same again and again" % (number, offset) for offset in range(10)]
        log.append_one(build(values), now)
        data.sync()
        log.roll()


def topic(
    data: DataDirectory,
    name: str = "events",
    hook: str | None = None,
    retention: RetentionSettings = EVERYTHING,
    recompression: RecompressionSettings = RecompressionSettings(),  # noqa: B008
    segments: int = 3,
    partitions: int = 1,
    timeout_ms: int = 60_000,
) -> list[Log]:
    hooks = HookSettings(delete=hook, timeout_ms=timeout_ms)
    data.create_topic(name, partitions, Settings(retention=retention, hook=hooks, recompression=recompression))
    logs = data.open_topic(name)
    for log in logs:
        fill(data, log, segments)
    return logs


def configure(data: DataDirectory, name: str, **changes: object) -> None:
    data.configure_topic(name, msgspec.structs.replace(data.topic(name).settings, **changes))


def run(upkeep: Upkeep, now: int = NOW) -> None:
    """Until nothing is due at this time and nothing runs."""
    while True:
        again_at = upkeep.step(now)
        if upkeep.under_way:
            upkeep.wait(ENOUGH_S)
        elif again_at is None or again_at > now:
            return


def step_until(upkeep: Upkeep, path: Path, now: int = NOW) -> None:
    """A hook makes this file when it has come so far."""
    while not path.exists():
        upkeep.step(now)
        upkeep.wait(0.01)


def seqnos(log: Log) -> list[int]:
    return [seqno for batch in log.batches() for seqno in batch.seqnos()]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def log_firsts(log: Log) -> list[int]:
    return [segment.first_seqno for segment in log.segments[:-1]]


def test_without_a_hook_what_may_go_goes_at_once(data: DataDirectory, upkeep: Upkeep) -> None:
    (log,) = topic(data, retention=RetentionSettings(records=15))
    size = log.segments[0].size
    upkeep.step(NOW)
    assert seqnos(log) == list(range(10, 30))
    assert upkeep.stats.dropped == {"records": Dropped(1, size)}


@pytest.mark.parametrize(
    ("retention", "reason"),
    [
        (RetentionSettings(bytes=0), "bytes"),
        (RetentionSettings(records=0), "records"),
        (RetentionSettings(age_ms=3_600_000), "age"),
        (RetentionSettings(hard_bytes=0), "hard_bytes"),
    ],
)
def test_what_goes_is_counted_by_its_reason(
    data: DataDirectory, upkeep: Upkeep, retention: RetentionSettings, reason: str
) -> None:
    topic(data, retention=retention)
    run(upkeep, NOW + HOUR)
    stats = upkeep.stats
    assert {name: dropped.segments for name, dropped in stats.dropped.items()} == {reason: 3}
    assert stats.dropped_without_hook == Dropped()


def test_trimmed_segments_get_their_hook_too(data: DataDirectory, upkeep: Upkeep, tmp_path: Path) -> None:
    hook = f"echo $LOGBOOM_FIRST_SEQNO $LOGBOOM_REASON >> {tmp_path}/said"
    (log,) = topic(data, hook=hook, retention=RetentionSettings())
    log.trim(25, NOW)
    data.sync()
    run(upkeep)
    assert lines(tmp_path / "said") == ["0 trim", "10 trim"]
    assert log_firsts(log) == [20]


def test_a_hook_is_told_about_its_segment_and_the_segment_is_still_there(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    told = (
        "TOPIC",
        "PARTITION",
        "FIRST_SEQNO",
        "LAST_SEQNO",
        "FIRST_INDEX",
        "LAST_INDEX",
        "REASON",
        "ATTEMPT",
        "BYTES",
    )
    words = " ".join(f"$LOGBOOM_{name}" for name in told)
    (log,) = topic(data, hook=f'echo {words} $(wc -c < "$LOGBOOM_SEGMENT") >> {tmp_path}/said')
    size = log.segments[0].size
    run(upkeep)
    assert lines(tmp_path / "said") == [
        f"events 0 {n * 10} {n * 10 + 9} {n + 1} {n + 1} bytes 1 {size} {size}" for n in range(3)
    ]
    assert seqnos(log) == []
    stats = upkeep.stats
    assert (stats.hooks.run, stats.hooks.failed, stats.hooks.pending, stats.errors) == (3, 0, 0, 0)
    assert stats.dropped == {"bytes": Dropped(3, 3 * size)}


def test_a_failing_hook_holds_its_segment_and_waits_longer_each_time(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = topic(data, hook=f"echo x >> {tmp_path}/said; echo the archive is full; exit 7")
    now, waits = NOW, []
    for attempt in range(1, 5):
        run(upkeep, now)
        run(upkeep, now)
        (failing,) = upkeep.stats.hooks.failing
        assert (failing.topic, failing.first_seqno, failing.next_seqno, failing.attempts) == ("events", 0, 10, attempt)
        assert (failing.error, failing.since) == ("exit code 7: the archive is full", NOW)
        waits.append(failing.next_attempt_at - now)
        now = failing.next_attempt_at
    assert waits == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]
    assert len(lines(tmp_path / "said")) == 4
    assert seqnos(log) == list(range(30))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert "events/0: the delete hook of seqnos 0 to 9 failed (attempt 1)" in warnings[0]
    configure(data, "events", hook=HookSettings(delete="true"))
    run(upkeep, now + HOUR)
    assert (upkeep.stats.hooks.failing, seqnos(log)) == ([], [])


def test_step_says_when_a_hook_is_to_be_tried_again(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, hook="exit 1")
    run(upkeep)
    assert upkeep.step(NOW) == NOW + SECOND
    assert upkeep.step(NOW + SECOND - 1) == NOW + SECOND


def test_a_hook_that_hangs_is_ended_and_has_failed(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, hook="exec sleep 1000", timeout_ms=200)
    run(upkeep)
    (failing,) = upkeep.stats.hooks.failing
    assert failing.error == "took longer than 0.2 s"


def test_a_hook_that_prints_megabytes_is_logged_in_bounds(
    data: DataDirectory, upkeep: Upkeep, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "logboom.upkeep")
    (log,) = topic(data, hook="yes 'and on it goes' | head -c 5000000", segments=1)
    run(upkeep)
    said = [record.getMessage() for record in caplog.records]
    assert sum(line == "events/0: hook: and on it goes" for line in said) == 200
    assert any("more lines" in line for line in said)
    assert seqnos(log) == []


def test_what_a_hook_leaves_behind_is_killed(data: DataDirectory, upkeep: Upkeep, tmp_path: Path) -> None:
    topic(data, hook=f"sleep 1000 & echo $! > {tmp_path}/pid", segments=1)
    run(upkeep)
    pid = int((tmp_path / "pid").read_text())
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        os.sched_yield()
    assert upkeep.stats.hooks.run == 1


def gate(tmp_path: Path) -> str:
    """A hook that says that it runs, and goes on when the file `go` is there."""
    return (
        f"echo $LOGBOOM_PARTITION >> {tmp_path}/$LOGBOOM_TOPIC; touch {tmp_path}/started-$LOGBOOM_TOPIC; "
        f"while ! [ -e {tmp_path}/go ]; do sleep 0.01; done"
    )


def test_hooks_of_one_topic_run_one_at_a_time_and_those_of_several_at_once(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    logs = [log for name in "ab" for log in topic(data, name, gate(tmp_path), partitions=2)]
    for name in "ab":
        step_until(upkeep, tmp_path / f"started-{name}")
    upkeep.step(NOW)
    assert upkeep.stats.hooks.running == 2
    assert [lines(tmp_path / name) for name in "ab"] == [["0"], ["0"]]
    (tmp_path / "go").touch()
    run(upkeep)
    assert [lines(tmp_path / name) for name in "ab"] == [["0"] * 3 + ["1"] * 3] * 2
    assert [seqnos(log) for log in logs] == [[]] * 4


def test_no_more_hooks_run_than_allowed(data: DataDirectory, tmp_path: Path) -> None:
    for name in "abc":
        topic(data, name, gate(tmp_path))
    upkeep = Upkeep(data, UpkeepSettings(hooks_max=2), allowed=ANY_HOOK)
    for name in "ab":
        step_until(upkeep, tmp_path / f"started-{name}")
    upkeep.step(NOW)
    assert upkeep.stats.hooks.running == 2
    assert not (tmp_path / "started-c").exists()
    (tmp_path / "go").touch()
    run(upkeep)
    assert upkeep.stats.hooks.run == 9
    upkeep.close()


def test_topics_take_turns(data: DataDirectory, tmp_path: Path) -> None:
    for name in "abc":
        topic(data, name, f"echo $LOGBOOM_TOPIC >> {tmp_path}/said")
    upkeep = Upkeep(data, UpkeepSettings(hooks_max=1), allowed=ANY_HOOK)
    run(upkeep)
    assert lines(tmp_path / "said") == list("abc" * 3)
    upkeep.close()


def test_beyond_the_hard_limit_segments_go_without_their_hook_and_loudly(
    data: DataDirectory, upkeep: Upkeep, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = topic(data, hook="exit 1", segments=5)
    run(upkeep)
    size = log.segments[0].size
    configure(data, "events", retention=RetentionSettings(bytes=0, hard_bytes=3 * size))
    run(upkeep, NOW + 20 * SECOND)
    assert log_firsts(log) == [20, 30, 40]
    stats = upkeep.stats
    assert stats.dropped == {"hard_bytes": Dropped(2, 2 * size)}
    assert stats.dropped_without_hook == Dropped(2, 2 * size)
    assert [failing.first_seqno for failing in stats.hooks.failing] == [20]
    assert stats.hooks.pending == 3
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [error.partition(" DROPPED WITHOUT ITS DELETE HOOK")[0] for error in errors] == [
        "events/0: seqnos 0 to 9",
        "events/0: seqnos 10 to 19",
    ]


def test_the_outcome_of_a_hook_whose_segment_went_meanwhile_is_ignored(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    (log,) = topic(data, hook=gate(tmp_path), segments=3)
    step_until(upkeep, tmp_path / "started-events")
    configure(data, "events", retention=RetentionSettings(hard_bytes=0))
    upkeep.step(NOW + 20 * SECOND)
    assert (log_firsts(log), upkeep.stats.hooks.running, upkeep.stats.hooks.pending) == ([], 1, 0)
    (tmp_path / "go").touch()
    run(upkeep, NOW + 20 * SECOND)
    assert (upkeep.stats.hooks.run, upkeep.stats.hooks.failing, upkeep.stats.errors) == (1, [], 0)


def test_what_is_held_gets_no_hook_and_stays_until_it_is_released(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    (log,) = topic(data, hook=f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said")
    log.hold("backup", 15)
    run(upkeep)
    assert (lines(tmp_path / "said"), log_firsts(log)) == (["0"], [10, 20])
    log.release("backup")
    run(upkeep, NOW + HOUR)
    assert (lines(tmp_path / "said"), log_firsts(log)) == (["0", "10", "20"], [])


def test_a_hold_that_comes_while_the_hook_runs_still_keeps_the_segment_and_the_hook_is_not_run_twice(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    (log,) = topic(data, hook=gate(tmp_path))
    step_until(upkeep, tmp_path / "started-events")
    log.hold("backup", 0)
    (tmp_path / "go").touch()
    run(upkeep)
    assert (lines(tmp_path / "events"), log_firsts(log)) == (["0"], [0, 10, 20])
    log.release("backup")
    run(upkeep, NOW + HOUR)
    assert (lines(tmp_path / "events"), log_firsts(log)) == (["0"] * 3, [])


def test_a_limit_that_is_raised_saves_what_waits_for_its_hook(data: DataDirectory, upkeep: Upkeep) -> None:
    (log,) = topic(data, hook="exit 1")
    run(upkeep)
    assert upkeep.stats.hooks.pending == 3
    settings = data.topic("events").settings
    configure(data, "events", retention=RetentionSettings(records=15), hook=HookSettings(delete="true"))
    assert settings != data.topic("events").settings
    run(upkeep, NOW + HOUR)
    assert log_firsts(log) == [10, 20]
    assert (upkeep.stats.hooks.pending, upkeep.stats.hooks.failing) == (0, [])


def test_without_its_hook_a_topic_no_longer_waits_for_it(data: DataDirectory, upkeep: Upkeep) -> None:
    (log,) = topic(data, hook="exit 1")
    run(upkeep)
    configure(data, "events", hook=HookSettings())
    run(upkeep, NOW + HOUR)
    assert (log_firsts(log), upkeep.stats.hooks.pending) == ([], 0)


def test_an_idle_log_is_rolled_so_that_its_last_records_can_go(data: DataDirectory, upkeep: Upkeep) -> None:
    (log,) = topic(data, retention=RetentionSettings(age_ms=HOUR // 1000))
    log.append_one(build([b"last"]), NOW + SECOND)
    data.sync()
    run(upkeep, NOW + HOUR)
    assert seqnos(log) == [30]
    run(upkeep, NOW + HOUR + 20 * SECOND)
    assert (seqnos(log), log.first, log.next, log.active_bytes) == ([], 31, 31, 0)


def test_a_segment_without_records_gets_its_hook_once_and_goes(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    hook = f"echo $LOGBOOM_FIRST_SEQNO $LOGBOOM_LAST_SEQNO >> {tmp_path}/said"
    (log,) = topic(data, hook=hook, retention=RetentionSettings(age_ms=HOUR // 1000), segments=1)
    log.trim(10, NOW)
    data.sync()
    run(upkeep)
    assert lines(tmp_path / "said") == ["0 9"]
    run(upkeep, NOW + HOUR)
    run(upkeep, NOW + 2 * HOUR)
    assert lines(tmp_path / "said") == ["0 9", "10 9"]
    assert log_firsts(log) == []
    assert upkeep.stats.hooks.pending == 0


def test_a_segment_and_those_without_records_behind_it_go_only_when_all_have_had_their_hooks(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    hook = f"echo $LOGBOOM_FIRST_INDEX >> {tmp_path}/said; [ $LOGBOOM_FIRST_INDEX != 3 ] || [ -e {tmp_path}/go ]"
    (log,) = topic(data, hook=hook, retention=RetentionSettings(records=10), segments=2)
    log.trim(5, NOW)
    data.sync()
    log.roll()
    fill(data, log, 1)
    run(upkeep)
    assert lines(tmp_path / "said") == ["1", "2", "3"]
    assert [segment.first_index for segment in log.segments[:-1]] == [2, 3, 4]
    (tmp_path / "go").touch()
    run(upkeep, NOW + HOUR)
    assert lines(tmp_path / "said") == ["1", "2", "3", "3"]
    assert [segment.first_index for segment in log.segments[:-1]] == [4]


def test_more_segments_than_are_queued_at_a_time_all_get_their_hooks(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.broker.upkeep.retainer.QUEUED_MAX", 2)
    (log,) = topic(data, hook=f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said", segments=7)
    upkeep.step(NOW)
    assert upkeep.stats.hooks.pending == 2
    run(upkeep)
    assert lines(tmp_path / "said") == [str(n * 10) for n in range(7)]
    assert log_firsts(log) == []


def test_cold_segments_are_recompressed_and_a_reader_of_the_old_file_reads_on(
    data: DataDirectory, upkeep: Upkeep
) -> None:
    (log,) = topic(data, retention=RetentionSettings(), recompression=ZSTD)
    paths = [segment.log_path for segment in log.segments[:-1]]
    begun = log.read(0)
    assert begun is not None
    run(upkeep)
    stats = upkeep.stats.recompression
    assert (stats.segments, stats.left_alone) == (3, 0)
    assert stats.bytes_after < stats.bytes_before
    assert stats.bytes_after == log.size_bytes
    assert not any(map(os.path.exists, paths))
    assert [value for batch in begun.batches() for value in batch.values()][3] == (
        b"0 of 3, and then the same again and again"
    )
    assert seqnos(log) == list(range(30))
    run(upkeep, NOW + HOUR)
    assert upkeep.stats.recompression == stats


def test_what_would_not_shrink_is_tried_once_and_again_with_other_settings(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, retention=RetentionSettings(), recompression=RecompressionSettings(codec="zstd", min_gain=0.99))
    run(upkeep)
    run(upkeep, NOW + HOUR)
    assert (upkeep.stats.recompression.segments, upkeep.stats.recompression.left_alone) == (0, 3)
    configure(data, "events", recompression=ZSTD)
    run(upkeep, NOW + 2 * HOUR)
    assert (upkeep.stats.recompression.segments, upkeep.stats.recompression.left_alone) == (3, 3)


def test_segments_that_wait_for_their_hook_are_not_recompressed(data: DataDirectory, upkeep: Upkeep) -> None:
    (log,) = topic(data, hook="exit 1", retention=RetentionSettings(records=15), recompression=ZSTD)
    first = log.segments[0].log_path
    run(upkeep)
    assert log.segments[0].log_path == first
    assert upkeep.stats.recompression.segments == 2


def test_a_swap_of_a_segment_that_is_dropped_meanwhile_is_thrown_away(data: DataDirectory, tmp_path: Path) -> None:
    (log,) = topic(data, retention=RetentionSettings(), recompression=ZSTD, segments=1)
    upkeep = Upkeep(data, UpkeepSettings(recompress_bytes_per_second=1), allowed=ANY_HOOK)
    upkeep.step(NOW)
    assert any("recompressing" in job for job in upkeep.under_way)
    log.drop(10)
    upkeep.close()
    assert not list((tmp_path / "data" / "topics").rglob("*.tmp"))
    assert len(list(Path(log.directory).iterdir())) == 1


def test_a_scrub_gives_segments_their_labels(data: DataDirectory, upkeep: Upkeep, tmp_path: Path) -> None:
    (log,) = topic(data, retention=RetentionSettings(), segments=0)
    for tag in ("red", "blue"):
        log.append_one(build([b"v"], tags=[[tag]]), NOW)
        data.sync()
        log.roll()
    assert log.skip(0, Selection(tags_any=("blue",))) == 0
    run(upkeep)
    assert log.skip(0, Selection(tags_any=("blue",))) == 1
    assert log.skip(1, Selection(tags_any=("red",))) == log.committed == 2
    assert not list(tmp_path.rglob("*.tmp"))


def test_damage_is_found_told_kept_and_forgotten_with_its_segment(
    data: DataDirectory, upkeep: Upkeep, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = topic(data, retention=RetentionSettings())
    path = Path(log.segments[1].log_path)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    run(upkeep)
    stats = upkeep.stats.scrub
    assert (stats.segments, stats.bytes) == (3, log.size_bytes)
    (finding,) = stats.findings
    assert (finding.file, finding.seqno_from, finding.seqno_until) == (path.name, 10, 20)
    assert [record.levelno for record in caplog.records if "a scrub found damage" in record.getMessage()] == [
        logging.ERROR
    ]
    upkeep.close()
    again = Upkeep(data, FAST, allowed=ANY_HOOK)
    run(again, NOW + HOUR)
    assert again.stats.scrub == msgspec.structs.replace(stats, segments=0, bytes=0)
    configure(data, "events", retention=RetentionSettings(records=10))
    run(again, NOW + 2 * HOUR)
    run(again, NOW + 3 * HOUR)
    assert again.stats.scrub.findings == []
    again.close()


def test_everything_is_scrubbed_again_when_it_is_time_or_when_asked(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, retention=RetentionSettings(), partitions=2)
    run(upkeep)
    run(upkeep, NOW + HOUR)
    assert upkeep.stats.scrub.segments == 6
    run(upkeep, NOW + 7 * 24 * HOUR)
    assert upkeep.stats.scrub.segments == 12
    upkeep.scrub_all()
    run(upkeep, NOW + 7 * 24 * HOUR)
    assert upkeep.stats.scrub.segments == 18


def test_a_forced_scrub_reads_also_what_is_recompressed_meanwhile(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, retention=RetentionSettings(), recompression=ZSTD, segments=8)
    upkeep.scrub_all()
    run(upkeep)
    assert upkeep.stats.recompression.segments == 8
    assert upkeep.stats.scrub.segments == 8
    assert upkeep.stats.scrub.findings == []


def test_trouble_with_one_log_does_not_stop_the_others(
    data: DataDirectory, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bad,) = topic(data, "bad")
    (good,) = topic(data, "good")

    def fail(seqno: int) -> int:
        raise StorageError("no")

    with monkeypatch.context() as patch:
        patch.setattr(bad, "drop", fail)
        run(upkeep)
    assert (len(seqnos(bad)), seqnos(good)) == (30, [])
    assert upkeep.stats.errors == 2
    assert upkeep.stats.last_error == "bad/0: no"
    run(upkeep, NOW + HOUR)
    assert (seqnos(bad), upkeep.stats.errors) == ([], 2)


def test_the_same_error_again_and_again_is_counted_and_logged_ever_less_often(
    data: DataDirectory, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = topic(data)
    upkeep.step(NOW - HOUR)
    fill(data, log, 1)

    def fail(seqno: int) -> int:
        raise StorageError("no")

    monkeypatch.setattr(log, "drop", fail)
    for hour in range(20):
        run(upkeep, NOW + hour * HOUR)
    assert upkeep.stats.errors == 20
    assert [record.getMessage() for record in caplog.records] == [
        "events/0: no",
        *(f"events/0: no ({times} times by now)" for times in (2, 4, 8, 16)),
    ]


def test_a_log_that_takes_no_writes_is_left_as_it_is_and_told_once(data: DataDirectory, upkeep: Upkeep) -> None:
    (log,) = topic(data)
    log.fail_sync(OSError(errno.EIO, "gone"))
    run(upkeep)
    run(upkeep, NOW + HOUR)
    assert len(seqnos(log)) == 30
    assert upkeep.stats.errors == 1
    assert "takes no writes" in (upkeep.stats.last_error or "")
    with pytest.raises(SyncFailed):
        data.close()


def test_a_success_that_cannot_be_recorded_drops_nothing_and_counts_as_failure(
    data: DataDirectory, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = topic(data, hook="true")

    def fail(queue: HookQueue, entry: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(HookQueue, "succeeded", fail)
        run(upkeep)
    assert len(seqnos(log)) == 30
    (failing,) = upkeep.stats.hooks.failing
    assert failing.error.startswith("could not be recorded: ")
    run(upkeep, NOW + HOUR)
    assert seqnos(log) == []


def test_a_recorded_success_leads_to_the_drop_without_another_run(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = topic(data, hook=f"echo $LOGBOOM_FIRST_SEQNO >> {tmp_path}/said")
    with monkeypatch.context() as patch:
        patch.setattr(log, "drop", lambda seqno: 0)
        run(upkeep)
    assert len(seqnos(log)) == 30
    upkeep.close()
    again = Upkeep(data, FAST, allowed=ANY_HOOK)
    run(again)
    assert (seqnos(log), lines(tmp_path / "said")) == ([], ["0", "10", "20"])
    assert again.stats.hooks.run == 0
    again.close()


def test_a_queue_that_cannot_be_read_is_told_and_hooks_run_again(data: DataDirectory, tmp_path: Path) -> None:
    (log,) = topic(data, hook=f"echo x >> {tmp_path}/said")
    path = tmp_path / "data" / "internal" / "hooks"
    path.parent.mkdir()
    path.write_bytes(b"garbage")
    upkeep = Upkeep(data, FAST, allowed=ANY_HOOK)
    run(upkeep)
    assert (upkeep.stats.errors, len(lines(tmp_path / "said")), seqnos(log)) == (1, 3, [])
    upkeep.close()


def test_a_topic_deleted_while_its_hook_runs_is_forgotten_and_its_files_go(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    topic(data, hook=gate(tmp_path))
    topic(data, "other", segments=0)
    step_until(upkeep, tmp_path / "started-events")
    data.delete_topic("events")
    (tmp_path / "go").touch()
    run(upkeep)
    run(upkeep, NOW + HOUR)
    stats = upkeep.stats
    assert (stats.hooks.run, stats.hooks.pending, stats.trash_emptied, stats.errors) == (0, 0, 1, 0)
    assert list((tmp_path / "data" / "trash").iterdir()) == []


def test_the_success_of_a_hook_counts_although_its_log_was_closed_meanwhile(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    (log,) = topic(data, hook=gate(tmp_path), segments=1)
    step_until(upkeep, tmp_path / "started-events")
    log.close()
    (tmp_path / "go").touch()
    run(upkeep)
    assert upkeep.stats.hooks.run == 1
    run(upkeep, NOW + HOUR)
    (log,) = data.open_topic("events")
    assert (log_firsts(log), upkeep.stats.hooks.run, upkeep.stats.errors) == ([], 1, 0)


def test_a_topic_deleted_while_it_is_recompressed_leaves_nothing(data: DataDirectory, tmp_path: Path) -> None:
    topic(data, retention=RetentionSettings(), recompression=ZSTD)
    upkeep = Upkeep(data, UpkeepSettings(recompress_bytes_per_second=1), allowed=ANY_HOOK)
    upkeep.step(NOW)
    assert any("recompressing" in job for job in upkeep.under_way)
    data.delete_topic("events")
    upkeep.step(NOW + HOUR)
    while "emptying the trash" in upkeep.under_way:
        upkeep.wait(0.01)
        upkeep.step(NOW + HOUR)
    upkeep.close()
    assert list((tmp_path / "data" / "topics").iterdir()) == []
    assert list((tmp_path / "data" / "trash").iterdir()) == []


class SlowDisk(OsDisk):
    """It takes as long as the test wants until a file is gone."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.unlinking = threading.Event()
        self.gate = threading.Event()

    def unlink(self, path: str) -> None:
        if "/trash/" in path:
            self.unlinking.set()
            assert self.gate.wait(ENOUGH_S)
        super().unlink(path)


def test_nobody_waits_until_the_files_of_a_deleted_topic_are_gone(tmp_path: Path) -> None:
    disk = SlowDisk(str(tmp_path))
    with DataDirectory.open(str(tmp_path / "data"), disk, reserve_bytes=0) as data:
        topic(data, "events")
        data.delete_topic("events")
        upkeep = Upkeep(data, FAST, allowed=ANY_HOOK)
        upkeep.step(NOW)
        assert disk.unlinking.wait(ENOUGH_S)
        upkeep.step(NOW + HOUR)
        assert (upkeep.under_way, upkeep.stats.trash_emptied) == (["emptying the trash"], 0)
        threading.Timer(0.05, disk.gate.set).start()
        upkeep.close()  # which ends it after the file at hand
        assert len(list((tmp_path / "data" / "trash").iterdir())) == 1
        again = Upkeep(data, FAST, allowed=ANY_HOOK)
        run(again)
        assert (again.stats.trash_emptied, list((tmp_path / "data" / "trash").iterdir())) == (1, [])
        again.close()


def test_closing_stops_hooks_and_the_next_start_runs_them_again(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    (log,) = topic(data, hook=gate(tmp_path))
    step_until(upkeep, tmp_path / "started-events")
    upkeep.close()
    upkeep.close()
    assert upkeep.step(NOW) is None
    assert (len(seqnos(log)), upkeep.stats.hooks.failing, upkeep.stats.hooks.pending) == (30, [], 3)
    (tmp_path / "go").touch()
    again = Upkeep(data, FAST, allowed=ANY_HOOK)
    run(again)
    assert (seqnos(log), len(lines(tmp_path / "events"))) == ([], 4)
    again.close()


def test_the_owner_is_woken_when_a_job_has_ended(data: DataDirectory) -> None:
    woken: list[None] = []
    topic(data, hook="true", segments=1)
    upkeep = Upkeep(data, FAST, lambda: woken.append(None), allowed=ANY_HOOK)
    run(upkeep)
    upkeep.close()
    assert woken


def test_without_topics_nothing_is_pending_and_with_one_the_next_pass_is(data: DataDirectory, upkeep: Upkeep) -> None:
    assert upkeep.step(NOW) is None
    topic(data, retention=RetentionSettings(), segments=0)
    assert upkeep.step(NOW + 1) == NOW + 10 * SECOND
    assert upkeep.step(NOW + 10 * SECOND) == NOW + 20 * SECOND
    assert upkeep.step(NOW - HOUR) == NOW - HOUR + 10 * SECOND


def test_many_logs_are_looked_at_in_several_steps(
    data: DataDirectory, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.broker.upkeep.upkeep.LOGS_PER_STEP", 2)
    logs = topic(data, partitions=5, segments=1)
    assert upkeep.step(NOW) == NOW
    assert sum(not seqnos(log) for log in logs) == 2
    run(upkeep)
    assert sum(not seqnos(log) for log in logs) == 5


def test_the_stats_are_json(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, hook="exit 1", recompression=ZSTD)
    run(upkeep)
    assert msgspec.json.decode(msgspec.json.encode(upkeep.stats))["hooks"]["failing"][0]["error"] == "exit code 1"


@pytest.mark.parametrize(
    "wrong", [{"hooks_max": 0}, {"scrub_bytes_per_second": 0}, {"retention_every_ms": None}, {"scrub_every_ms": -1}]
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*, allowed are"):
        UpkeepSettings(**wrong)


def test_a_partition_that_takes_no_writes_does_not_stop_the_hooks_of_its_siblings(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    logs = topic(data, hook=gate(tmp_path), partitions=3)
    step_until(upkeep, tmp_path / "started-events")
    logs[0].fail_sync(OSError(errno.EIO, "gone"))
    (tmp_path / "go").touch()
    run(upkeep)
    assert lines(tmp_path / "events") == ["0"] + ["1"] * 3 + ["2"] * 3
    assert [len(log_firsts(log)) for log in logs] == [3, 0, 0]
    with pytest.raises(SyncFailed):
        data.close()


def test_many_logs_whose_hooks_cannot_run_are_passed_over_in_several_steps(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = topic(data, hook=gate(tmp_path), partitions=6, segments=1)
    step_until(upkeep, tmp_path / "started-events")
    for log in logs[1:5]:
        log.hold("backup", 0)
    monkeypatch.setattr("logboom.broker.upkeep.upkeep.LOGS_PER_STEP", 2)
    (tmp_path / "go").touch()
    run(upkeep)
    assert lines(tmp_path / "events") == ["0", "5"]


def test_settings_hold_at_once_also_between_two_passes(data: DataDirectory, upkeep: Upkeep, tmp_path: Path) -> None:
    (log,) = topic(data, hook=gate(tmp_path))
    step_until(upkeep, tmp_path / "started-events")
    configure(data, "events", retention=RetentionSettings(records=25))
    (tmp_path / "go").touch()
    run(upkeep)
    assert (log_firsts(log), lines(tmp_path / "events")) == ([0, 10, 20], ["0"])


def test_a_hook_that_was_changed_counts_from_the_next_segment_on(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path
) -> None:
    (log,) = topic(data, hook=gate(tmp_path))
    step_until(upkeep, tmp_path / "started-events")
    configure(data, "events", hook=HookSettings(delete=f"echo new >> {tmp_path}/events"))
    (tmp_path / "go").touch()
    run(upkeep)
    assert (log_firsts(log), lines(tmp_path / "events")) == ([], ["0", "new", "new"])


def test_recompression_that_is_switched_off_begins_with_no_other_segment(data: DataDirectory, upkeep: Upkeep) -> None:
    topic(data, retention=RetentionSettings(), recompression=ZSTD)
    upkeep.step(NOW)
    configure(data, "events", recompression=RecompressionSettings())
    run(upkeep)
    assert upkeep.stats.recompression.segments == 1


def made(tmp_path: Path, **settings: Any) -> list[Path]:
    """A data directory with a topic, closed; returns the directories of its logs."""
    with DataDirectory.open(str(tmp_path / "made"), reserve_bytes=0) as data:
        return [Path(log.directory) for log in topic(data, **settings)]


def lived(tmp_path: Path) -> Upkeep:
    """Do what is due in it."""
    with DataDirectory.open(str(tmp_path / "made"), reserve_bytes=0) as data:
        upkeep = Upkeep(data, FAST, allowed=ANY_HOOK)
        run(upkeep)
        upkeep.close()
    return upkeep


def test_a_partition_that_cannot_be_opened_does_not_stop_its_siblings(tmp_path: Path) -> None:
    directories = made(tmp_path, partitions=3)
    directories[1].rename(tmp_path / "elsewhere")
    directories[1].write_bytes(b"no directory")
    stats = lived(tmp_path).stats
    assert (stats.errors, stats.dropped["bytes"].segments) == (1, 6)
    assert (stats.last_error or "").startswith("events/1: ")


def test_a_log_whose_first_segments_are_missing_is_an_error(tmp_path: Path) -> None:
    (directory,) = made(tmp_path, retention=RetentionSettings())
    for path in directory.glob(f"{0:020}-*"):
        path.unlink()
    stats = lived(tmp_path).stats
    assert stats.errors == 1
    assert (stats.last_error or "").startswith("events/0: ")
    assert "the log begins at 0" in (stats.last_error or "")


def test_hooks_that_cannot_be_run_have_failed_and_wait(
    data: DataDirectory, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("boom")

    monkeypatch.setattr("logboom.broker.upkeep.upkeep.run_hook", fail)
    logs = [log for name in "ab" for log in topic(data, name, hook="true")]
    run(upkeep)
    stats = upkeep.stats.hooks
    assert [(hook.topic, hook.error, hook.attempts) for hook in stats.failing] == [
        (name, "could not be run: boom", 1) for name in "ab"
    ]
    assert (stats.run, stats.failed, [len(seqnos(log)) for log in logs]) == (2, 2, [30, 30])
    assert upkeep.step(NOW) == NOW + SECOND


class Reluctant(ThreadPoolExecutor):
    """Cannot make a thread, for a while."""

    willing = False

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        if not self.willing:
            raise RuntimeError("can't start new thread")
        return super().submit(work, *arguments, **named)


def test_without_threads_everything_is_an_error_and_tried_again_later(data: DataDirectory, tmp_path: Path) -> None:
    (hooked,) = topic(data, "hooked", hook=f"echo x >> {tmp_path}/said")
    topic(data, "swapped", retention=RetentionSettings(), recompression=ZSTD)
    with Reluctant(4) as threads:
        upkeep = Upkeep(data, FAST, threads=threads, allowed=ANY_HOOK)
        run(upkeep)
        assert (upkeep.under_way, len(seqnos(hooked)), upkeep.stats.errors) == ([], 30, 4)
        assert "can't start new thread" in (upkeep.stats.last_error or "")
        threads.willing = True
        run(upkeep, NOW + HOUR)
        stats = upkeep.stats
        assert (stats.errors, len(lines(tmp_path / "said")), seqnos(hooked)) == (4, 3, [])
        assert (stats.recompression.segments, stats.scrub.findings) == (3, [])
        upkeep.close()
    assert not list((tmp_path / "data" / "topics").rglob("*.tmp"))


def test_a_hook_that_its_pool_has_queued_without_a_thread_is_not_run_later(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic(data, hook=f"echo x >> {tmp_path}/said", segments=1)

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        run(upkeep)
    assert upkeep.stats.errors > 0
    run(upkeep, NOW + HOUR)
    assert lines(tmp_path / "said") == ["x"]


def test_a_lost_segment_does_not_stop_the_recompression_of_those_behind_it(tmp_path: Path) -> None:
    (directory,) = made(tmp_path, retention=RetentionSettings(), recompression=ZSTD)
    sorted(directory.glob("*.log"))[1].unlink()
    stats = lived(tmp_path).stats
    assert (stats.recompression.segments, stats.errors) == (2, 0)
    assert [(finding.seqno_from, finding.seqno_until) for finding in stats.scrub.findings] == [(10, 20)]


def test_a_segment_that_cannot_be_opened_is_a_finding_and_those_behind_it_are_scrubbed(
    data: DataDirectory, upkeep: Upkeep
) -> None:
    (log,) = topic(data, retention=RetentionSettings())
    path = Path(log.segments[0].log_path)
    path.unlink()
    path.mkdir()
    run(upkeep)
    stats = upkeep.stats.scrub
    (finding,) = stats.findings
    assert (stats.segments, finding.file, finding.seqno_from, finding.seqno_until) == (3, path.name, 0, 10)
    assert "Is a directory" in finding.reason


def test_a_scrub_that_lacks_something_is_no_finding_and_is_tried_again(
    data: DataDirectory, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic(data, retention=RetentionSettings())

    def fail(segment: Segment, throttle: object) -> ScrubResult:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("logboom.broker.upkeep.scrubber.scrub", fail)
        run(upkeep)
    assert (upkeep.stats.scrub.findings, upkeep.stats.scrub.segments, upkeep.stats.errors) == ([], 0, 1)
    run(upkeep, NOW + HOUR)
    assert (upkeep.stats.scrub.segments, upkeep.stats.errors) == (3, 1)


@pytest.mark.parametrize("is_new", [True, False])
def test_the_ledger_forgets_logs_that_no_topic_has_any_more(data: DataDirectory, upkeep: Upkeep, is_new: bool) -> None:
    topic(data, "old", retention=RetentionSettings())
    topic(data, "kept", retention=RetentionSettings())
    run(upkeep)
    path = f"{data.path}/internal/scrub"
    assert len(ScrubLedger.load(data.files.disk, path).logs) == 2
    data.delete_topic("old")
    now = Upkeep(data, FAST, allowed=ANY_HOOK) if is_new else upkeep
    run(now, NOW + HOUR)
    assert ScrubLedger.load(data.files.disk, path).logs == set(data.topic("kept").log_names)
    now.close()


def test_closing_leaves_the_threads_of_others_alone(data: DataDirectory, tmp_path: Path) -> None:
    topic(data, hook=gate(tmp_path))
    with ThreadPoolExecutor(4) as threads:
        upkeep = Upkeep(data, FAST, threads=threads, allowed=ANY_HOOK)
        step_until(upkeep, tmp_path / "started-events")
        upkeep.close()
        assert upkeep.under_way == []
        assert threads.submit(lambda: 1).result() == 1


def test_closing_does_not_wait_for_the_work_of_others(data: DataDirectory, tmp_path: Path) -> None:
    topic(data, hook=f"touch {tmp_path}/ran", recompression=ZSTD)
    done = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(done.wait)
        upkeep = Upkeep(data, FAST, threads=threads, allowed=ANY_HOOK)
        try:
            upkeep.step(NOW)
            under_way = upkeep.under_way
            upkeep.close()
        finally:
            done.set()
    assert (len(under_way), upkeep.under_way) == (2, [])
    assert not (tmp_path / "ran").exists()


def test_hooks_are_killed_at_once_where_closing_is_in_a_hurry(
    data: DataDirectory, upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.broker.upkeep.upkeep.TERM_GRACE_S", 10**6)
    topic(data, hook=f"trap '' TERM; {gate(tmp_path)}")
    step_until(upkeep, tmp_path / "started-events")
    upkeep.hurry()
    upkeep.close()
    assert (upkeep.stats.hooks.failing, upkeep.stats.hooks.pending) == ([], 3)
