"""What the hook queue has said is durable, at every call a power loss may come in."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from logboom.storage.upkeep.hooks import HookEntry, HookQueue
from support.disks.simulated import Call, PowerLoss, SimulatedDisk

PATH = "/data/internal/hooks"
TOPIC = "topics/a~" + "a" * 32
NOW = 1_000_000
Facts = dict[tuple[str, int], bool]
"""Every segment that was queued, and whether it is done."""


def make(partition: int, number: int) -> HookEntry:
    return HookEntry(f"{TOPIC}/{partition}", number * 10, 1 + number, number * 10 + 10, 2 + number, "age", NOW)


def facts_of(queue: HookQueue) -> Facts:
    return {(entry.log, entry.first_seqno): entry.done for entry in queue.entries}


def work(queue: HookQueue) -> Iterator[Facts]:
    """A life of the queue. What it yields is what every call that has returned so far has promised."""
    yield {}
    queue.push([make(0, 0), make(0, 1), make(1, 0)])
    yield facts_of(queue)
    queue.succeeded(make(0, 0))
    yield facts_of(queue)
    queue.failed(make(0, 1), NOW, "exit code 1", 1_000, 2_000)
    yield facts_of(queue)
    queue.push([make(1, 1), make(0, 1)])
    yield facts_of(queue)
    queue.succeeded(make(1, 0))
    yield facts_of(queue)
    queue.succeeded(make(0, 1))
    yield facts_of(queue)


def lives() -> list[Facts]:
    return list(work(HookQueue.open(SimulatedDisk(), PATH)))


def calls() -> int:
    disk = SimulatedDisk()
    list(work(HookQueue.open(disk, PATH)))
    return disk.calls


def broken_off(at: int, written: int | None = None) -> tuple[SimulatedDisk, int]:
    """The disk after the power went at this call, a write perhaps in part, and how many steps had returned."""
    disk = SimulatedDisk()

    def fault(call: Call) -> None:
        if call.number == at:
            raise PowerLoss(*([] if written is None else [written]))

    disk.fault = fault
    steps = 0
    try:
        for _ in work(HookQueue.open(disk, PATH)):
            steps += 1
    except PowerLoss:
        pass
    disk.kill()
    return disk, steps


def verify(disk: SimulatedDisk, steps: int) -> None:
    """As the last step that returned left it, or as the next one would have: nothing else, and never damaged."""
    queue = HookQueue.open(disk, PATH)
    assert queue.damaged is None
    assert facts_of(queue) in lives()[steps - 1 : steps + 1]
    queue.push([make(5, 5)])
    queue.succeeded(make(5, 5))
    assert HookQueue.open(disk, PATH).done_until(f"{TOPIC}/5") == 60


@pytest.mark.parametrize("at", range(1, calls() + 2))
def test_what_a_call_has_returned_survives_power_loss(at: int) -> None:
    disk, steps = broken_off(at)
    for left in disk.power_losses():
        verify(left, steps)


@pytest.mark.parametrize("at", range(1, calls() + 1))
def test_a_torn_write_of_the_queue_is_never_seen(at: int) -> None:
    choose = random.Random(at)
    for written in (0, 1, 15, 16, 17, 100, 300):
        disk, steps = broken_off(at, written)
        for _ in range(10):
            verify(disk.power_loss(choose), steps)


@pytest.mark.parametrize("at", range(1, calls() + 2))
def test_a_killed_process_leaves_a_queue_that_goes_on(at: int) -> None:
    disk, steps = broken_off(at)
    verify(disk, steps)


def test_queueing_again_after_a_loss_loses_no_success() -> None:
    """Retention does so at each of its rounds: segments that wait stay queued, those that are done stay done."""
    for at in range(1, calls() + 2):
        disk, _ = broken_off(at)
        queue = HookQueue.open(disk, PATH)
        before = facts_of(queue)
        queue.push([make(partition, number) for partition in (0, 1) for number in (0, 1)])
        after = facts_of(queue)
        assert len(after) == 4
        assert after.items() >= before.items()
