"""Limits say what stays at least; whole segments go, oldest first, and never one that is held or not committed."""

from __future__ import annotations

import pytest

from logboom.storage import Log
from logboom.storage.data.topic import RetentionSettings
from logboom.storage.upkeep.retention import beyond_limit, expired, is_idle
from support.disks.simulated import SimulatedDisk
from support.simulation.model import make_batch, open_log

HOUR = 3_600_000_000
RECORDS = 10


def filled(segments: int = 5) -> Log:
    """Sealed segments of ten records each, an hour apart, the first at hour 0; the active one is empty."""
    log = open_log(SimulatedDisk())
    for number in range(segments):
        log.append_one(make_batch(number, RECORDS, None), number * HOUR)
        log.commit(log.sync())
        log.roll()
    return log


def firsts(log: Log, retention: RetentionSettings, now: int = 0) -> list[tuple[int, str]]:
    return [(item.segment.first_seqno, item.reason) for item in expired(log, retention, now)]


def test_without_limits_everything_stays() -> None:
    assert firsts(filled(), RetentionSettings(), 10**18) == []


@pytest.mark.parametrize("keep", range(0, 60, 3))
def test_at_least_so_many_records_stay_and_no_segment_more_than_needed(keep: int) -> None:
    log = filled()
    found = firsts(log, RetentionSettings(records=keep))
    left = 50 - RECORDS * len(found)
    assert left >= min(keep, 50)
    assert left - RECORDS < keep or not left
    assert found == [(RECORDS * number, "records") for number in range(len(found))]


def test_at_least_so_many_bytes_stay_and_no_segment_more_than_needed() -> None:
    log = filled()
    size = log.segments[0].size
    for keep in range(0, 6 * size, size // 3):
        left = log.size_bytes - sum(item.segment.size for item in expired(log, RetentionSettings(bytes=keep), 0))
        assert left >= min(keep, log.size_bytes)
        assert left - size < keep or not left


@pytest.mark.parametrize("hours", range(8))
def test_a_segment_goes_when_its_newest_batch_is_old_enough(hours: int) -> None:
    log = filled()
    retention = RetentionSettings(age_ms=2 * HOUR // 1000)
    assert firsts(log, retention, hours * HOUR) == [
        (RECORDS * number, "age") for number in range(5) if number <= hours - 2
    ]
    assert firsts(log, retention, hours * HOUR - 1) == [
        (RECORDS * number, "age") for number in range(5) if number < hours - 2
    ]


def test_any_limit_that_is_passed_is_enough() -> None:
    retention = RetentionSettings(records=40, age_ms=2 * HOUR // 1000, bytes=10**9)
    assert firsts(filled(), retention, 3 * HOUR) == [(0, "records"), (10, "age")]


def test_what_a_user_trimmed_goes_whatever_the_limits_say() -> None:
    log = filled()
    log.trim(25, 5 * HOUR)
    assert firsts(log, RetentionSettings()) == []
    log.commit(log.sync())
    assert firsts(log, RetentionSettings(records=1000)) == [(0, "trim"), (10, "trim")]


def test_the_segment_that_takes_appends_stays() -> None:
    log = filled(2)
    log.append_one(make_batch(9, RECORDS, None), 2 * HOUR)
    log.commit(log.sync())
    assert firsts(log, RetentionSettings(bytes=0)) == [(0, "bytes"), (10, "bytes")]


def test_what_is_not_committed_stays() -> None:
    log = open_log(SimulatedDisk())
    for number in range(3):
        log.append_one(make_batch(number, RECORDS, None), 0)
        log.roll()
    log.commit(1)
    assert firsts(log, RetentionSettings(bytes=0)) == [(0, "bytes")]
    assert [segment.first_seqno for segment in beyond_limit(log, 0)] == [0]


@pytest.mark.parametrize(("held", "stays_from"), [(0, 0), (9, 0), (10, 10), (25, 20), (50, 50)])
def test_nothing_that_is_held_goes_not_even_beyond_the_hard_limit(held: int, stays_from: int) -> None:
    log = filled()
    log.hold("reader", held)
    wanted = list(range(0, stays_from, RECORDS))
    assert [seqno for seqno, _ in firsts(log, RetentionSettings(bytes=0))] == wanted
    assert [segment.first_seqno for segment in beyond_limit(log, 0)] == wanted
    log.release("reader")
    assert len(firsts(log, RetentionSettings(bytes=0))) == len(beyond_limit(log, 0)) == 5


def test_beyond_the_hard_limit_as_few_segments_go_as_can_be() -> None:
    log = filled()
    size, whole = log.segments[0].size, log.size_bytes
    for limit, count in ((whole, 0), (whole - 1, 1), (whole - size, 1), (whole - size - 1, 2), (0, 5)):
        assert len(beyond_limit(log, limit)) == count


def test_what_may_go_can_be_dropped() -> None:
    log = filled()
    found = expired(log, RetentionSettings(records=25), 0)
    assert log.drop(found[-1].next_seqno) == len(found) == 2
    assert (log.first, log.committed) == (20, 50)
    assert firsts(log, RetentionSettings(records=25)) == []


def test_a_log_is_idle_when_all_of_its_last_segment_is_too_old() -> None:
    log = filled(1)
    retention = RetentionSettings(age_ms=HOUR // 1000)
    assert not is_idle(log, retention, 10 * HOUR)
    log.append_one(make_batch(1, RECORDS, None), HOUR)
    assert not is_idle(log, retention, 10 * HOUR)
    log.commit(log.sync())
    assert not is_idle(log, retention, 2 * HOUR - 1)
    assert is_idle(log, retention, 2 * HOUR)
    assert not is_idle(log, RetentionSettings(bytes=0), 2 * HOUR)
    log.roll()
    assert not is_idle(log, retention, 2 * HOUR)
    assert firsts(log, retention, 2 * HOUR) == [(0, "age"), (10, "age")]
