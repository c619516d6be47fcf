"""Power loss, kills and failing calls at every step of a load: the same dump loaded again gives the same logs."""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Iterator

import pytest

from logboom.errors import LogboomError
from logboom.storage import DataDirectory
from logboom.storage.health.check import check
from logboom.storage.moving.background_sync import BackgroundSync
from logboom.storage.moving.load import load
from logboom.storage.moving.outline import Request
from logboom.storage.moving.reappend import AppendLoader
from logboom.storage.moving.restore import EqualLoader
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.dumps import NOW, assert_same, dumped, fill, load_equal, open_data


@pytest.fixture(scope="module")
def source() -> DataDirectory:
    data = open_data(SimulatedDisk())
    fill(data, 5)
    return data


@pytest.fixture(scope="module")
def content(source: DataDirectory) -> bytes:
    return dumped(source, Request(compress="zstd"))


@pytest.fixture(autouse=True)
def _sync_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs on their thread take part, although the dump is small."""
    begin = BackgroundSync.__init__
    monkeypatch.setattr(BackgroundSync, "__init__", lambda self, disk, threads: begin(self, disk, 200, threads))


def load_until(disk: SimulatedDisk, content: bytes, number: int, error: BaseException, append: bool = False) -> bool:
    """Load, and have this call fail, and with a power loss all that follow; whether it came so far."""
    hit = False

    def fault(call: Call) -> int | None:
        nonlocal hit
        if call.number == number or (call.number > number and isinstance(error, PowerLoss)):
            hit = True
            raise error
        return None

    disk.fault = fault
    try:
        data = open_data(disk)
        load(io.BytesIO(content), AppendLoader(data, NOW) if append else EqualLoader(data))
    except (PowerLoss, OSError, LogboomError):
        pass
    disk.fault = None
    return hit


def steps(content: bytes) -> Iterator[int]:
    disk = SimulatedDisk()
    load_equal(open_data(disk), content)
    return iter(range(1, disk.calls + 1))


def assert_sound(disk: SimulatedDisk) -> None:
    report = check(disk, "/data", is_directory=disk.is_directory)
    assert [finding for finding in report.findings if finding.severity == "damage"] == []


def test_a_load_cut_off_by_power_loss_at_any_call_is_made_whole_by_another(
    source: DataDirectory, content: bytes
) -> None:
    chance = random.Random(7)
    for number in steps(content):
        disk = SimulatedDisk()
        assert load_until(disk, content, number, PowerLoss())
        left = disk.power_loss(chance)
        with open_data(left) as data:
            whole = {topic.name for topic in data.topics()}
            for topic in whole:
                assert [log.refusal for log in data.open_topic(topic)] == [None] * data.topic(topic).partitions
                for log in data.open_topic(topic):
                    log.close()
            load_equal(data, content)
            assert_same(source, data)
        assert_sound(left)


def test_a_topic_is_there_only_when_all_of_it_is_durable(source: DataDirectory, content: bytes) -> None:
    chance = random.Random(11)
    seen = set()
    for number in (*steps(content), 10**9):
        disk = SimulatedDisk()
        load_until(disk, content, number, PowerLoss())
        with open_data(disk.power_loss(chance)) as data:
            for topic in data.topics():
                seen.add(topic.name)
                for here, there in zip(source.open_topic(topic.name), data.open_topic(topic.name), strict=True):
                    assert (here.first, here.committed_index) == (there.first, there.committed_index)
    assert seen == {"empty", "late", "many"}


def test_a_load_killed_twice_is_made_whole_by_a_third(source: DataDirectory, content: bytes) -> None:
    chance = random.Random(13)
    calls = list(steps(content))
    for number in calls[::3]:
        disk = SimulatedDisk()
        load_until(disk, content, number, PowerLoss())
        disk = disk.power_loss(chance)
        load_until(disk, content, chance.choice(calls), PowerLoss())
        disk.kill()
        with open_data(disk) as data:
            load_equal(data, content)
            assert_same(source, data)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_load_in_which_any_one_call_fails_is_made_whole_by_another(
    source: DataDirectory, content: bytes, code: int
) -> None:
    chance = random.Random(code)
    for number in steps(content):
        disk = SimulatedDisk()
        load_until(disk, content, number, OSError(code, "injected"))
        left = disk.power_loss(chance)
        with open_data(left) as data:
            load_equal(data, content)
            assert_same(source, data)


def test_an_append_cut_off_by_power_loss_at_any_call_doubles_and_loses_nothing(content: bytes) -> None:
    chance = random.Random(17)
    whole = open_data(SimulatedDisk())
    load(io.BytesIO(content), AppendLoader(whole, NOW))
    wanted = {topic.name: [log.next for log in whole.open_topic(topic.name)] for topic in whole.topics()}
    number = 0
    while True:
        number += 1
        disk = SimulatedDisk()
        if not load_until(disk, content, number, PowerLoss(), append=True):
            break
        with open_data(disk.power_loss(chance)) as data:
            load(io.BytesIO(content), AppendLoader(data, NOW))
            found = {topic.name: [log.next for log in data.open_topic(topic.name)] for topic in data.topics()}
        assert found == wanted
    assert number > 50
