"""A log that begins anew behind a gap: whatever call a crash comes at, the next start can do it again."""

from __future__ import annotations

import random
from copy import deepcopy
from functools import cache

import pytest

from logboom.batch import build
from logboom.storage.config import LogConfig
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.tail import Snapshot
from support.disks.simulated import Call, PowerLoss, SimulatedDisk

ROOT = "/data"
CONFIG = LogConfig(segment_bytes=4096)
BEHIND = Snapshot(1000, 900, term=3, append_time=5_000_000, generation=2)
BATCHES = 20


@cache
def written() -> SimulatedDisk:
    """A log of several segments."""
    disk = SimulatedDisk()
    with DataDirectory.open(ROOT, disk) as data:
        data.create_topic("t", settings=Settings(segment=SegmentSettings(bytes=4096)))
        (log,) = data.open_topic("t")
        for number in range(BATCHES):
            log.append_one(build([b"%d" % number * 500]), number)
            data.sync()
        assert len(log.segments) > 2
    return disk


def begin_anew(disk: SimulatedDisk) -> tuple[int, int]:
    """First and next seqno afterwards."""
    data = DataDirectory.open(ROOT, disk)
    (log,) = data.open_topic("t")
    assert (log.refusal, log.recovered.damage) == (None, None)
    assert log.last_index <= BATCHES or log.last_index == BEHIND.next_index - 1
    log = data.begin_anew(data.topic("t").log_name(0), BEHIND, CONFIG)
    assert (log.first_index, log.last_index, log.term, log.refusal) == (900, 899, 3, None)
    log.append_one(build([b"x"]), 6_000_000)
    data.sync()
    found = log.first, log.next
    data.close()
    return found


@cache
def calls() -> int:
    disk = deepcopy(written())
    assert begin_anew(disk) == (1000, 1001)
    return disk.calls


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_at_any_call_leaves_a_log_that_can_begin_anew(seed: int) -> None:
    chance = random.Random(seed)
    for at in range(written().calls + 1 + seed % 4, calls(), 4):
        disk = deepcopy(written())

        def fault(call: Call, at: int = at) -> None:
            if call.number == at:
                raise PowerLoss(call.size // 2)

        disk.fault = fault
        with pytest.raises(PowerLoss):
            begin_anew(disk)
        disk.fault = None
        disk.kill()
        if seed % 2:
            disk = disk.power_loss(chance)
        data = DataDirectory.open(ROOT, disk)
        (log,) = data.open_topic("t")
        if log.last_index == BEHIND.next_index:  # the record behind it is written
            data.close()
            continue
        disk.kill()
        assert begin_anew(disk) == (1000, 1001)
