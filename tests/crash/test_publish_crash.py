"""Staged publish where the machine goes, or a call of the disk fails, anywhere: all or nothing, once, truly said."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Literal

import pytest

from logboom.batch import build
from logboom.broker.api import Part, Publication, PublishKey, Receipt, Settings
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher
from logboom.errors import LogboomError, OutcomeUnknown, StageError, Unavailable
from logboom.storage.data.topic import FlushSettings, SegmentSettings
from logboom.storage.staged import stage
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.effort import some_of, strides
from support.simulation.crashes import CONFIG, FAULTS, LOGS, break_off, do_nothing, fail_once
from support.simulation.staged import Log, Machine, Values, append, fill, killed, publish_values, read_logs, tell

VALUE_BYTES = 900
"""Two make a batch, and two batches a segment where segments are as small as can be."""


def named(prefix: str, *counts: int) -> Values:
    return {
        log: [f"{prefix}:{log[0]}{log[1]}:{n}".encode().ljust(VALUE_BYTES) for n in range(count)]
        for log, count in zip(LOGS, counts, strict=True)
        if count
    }


FIRST = named("p1x", 6, 3, 5), named("p1y", 4, 0, 2)
SECOND = (named("p2x", 3, 0, 2),)
THROWN_AWAY = named("d", 2, 2, 0)
STAGED = {1: FIRST, 2: SECOND}


def whole(number: int, log: Log) -> list[bytes]:
    return [value for values in STAGED[number] for value in values.get(log, ())]


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "SLICE_BYTES", 300)
    monkeypatch.setattr(stage, "LARGE_BYTES", 1500)
    monkeypatch.setattr(finisher, "RETRY_S", 0.005)
    monkeypatch.setattr(finisher, "RETRY_MAX_S", 0.02)


@dataclass
class Account:
    """What was said to whom."""

    outcomes: dict[int, str] = field(default_factory=dict)
    receipts: dict[int, list[Receipt]] = field(default_factory=dict)
    promised: list[bytes] = field(default_factory=list)
    """Of another writer, by its durable appends."""
    finished: bool = False


Policy = Literal["each", "os", "segments"]
POLICIES: tuple[Policy, ...] = "each", "os", "segments"
"""When the topics are synced; with `os` what others wrote is often not synced when a publish begins. With `segments`
they are synced each time, and so small that most of what is staged becomes segments.
"""
SIZES: tuple[Policy, ...] = "each", "segments"


@cache
def prepared(policy: Policy) -> SimulatedDisk:
    disk = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        flush = FlushSettings("os" if policy == "os" else "each")
        segment = SegmentSettings(4096) if policy == "segments" else SegmentSettings()
        settings = Settings(flush=flush, segment=segment)
        await broker.create_topic("a", 2, settings)
        await broker.create_topic("b", 1, settings)
        for n in range(3):
            await append(broker, f"o:{n}".encode())

    tell(disk, story, CONFIG)
    return disk


async def write_others(broker: LocalBroker, account: Account, name: str) -> None:
    """One that is promised, and one of which only the machine knows whether it is synced."""
    with suppress(LogboomError):
        await append(broker, f"o:{name}".encode())
        account.promised.append(f"o:{name}".encode())
    for topic in ("a", "b"):
        broker.append([Part(topic, [build([f"u:{name}:{n}".encode()]) for n in range(3)], 0)], "leader")


async def publish(broker: LocalBroker, account: Account, number: int) -> None:
    account.outcomes[number] = "refused"
    account.receipts[number] = []
    try:
        for values in STAGED[number]:
            account.receipts[number].append((await fill(broker, values))[1])
        await write_others(broker, account, f"with {number}")
        account.outcomes[number] = "unknown"
        publication = await broker.publish(PublishKey("k", number), account.receipts[number])
    except (OutcomeUnknown, Unavailable):
        return
    except LogboomError:
        account.outcomes[number] = "refused"
    else:
        assert not publication.repeat
        account.outcomes[number] = "published"


def story_of(account: Account) -> Callable[[LocalBroker], Awaitable[None]]:
    async def story(broker: LocalBroker) -> None:
        await publish(broker, account, 1)
        with suppress(LogboomError):
            thrown_away, _ = await fill(broker, THROWN_AWAY)
            await broker.discard([thrown_away.id])
        if account.outcomes[1] == "published":
            await publish(broker, account, 2)
        await write_others(broker, account, "last")
        account.finished = True

    return story


def check_published(found: dict[Log, list[bytes]], number: int, is_there: bool) -> None:
    for log in LOGS:
        mine = [value for value in found[log] if value.startswith(f"p{number}".encode())]
        assert mine == (whole(number, log) if is_there else [])


def is_there(found: dict[Log, list[bytes]], number: int) -> bool:
    return any(value.startswith(f"p{number}".encode()) for values in found.values() for value in values)


def check_content(found: dict[Log, list[bytes]], account: Account) -> None:
    for number, outcome in account.outcomes.items():
        there = is_there(found, number)
        check_published(found, number, there)
        if outcome != "unknown":
            assert there == (outcome == "published")
    others = [value for value in found["a", 0] if value.startswith((b"o", b"u"))]
    assert len(set(others)) == len(others)
    assert [value for value in others if value.startswith(b"o")][: 3 + len(account.promised)] == [
        b"o:0",
        b"o:1",
        b"o:2",
        *account.promised,
    ]
    assert not any(value.startswith(b"d") for values in found.values() for value in values)


async def say_again(broker: LocalBroker, account: Account, number: int) -> None:
    before = await read_logs(broker, LOGS)
    there = is_there(before, number)
    key, receipts = PublishKey("k", number), account.receipts.get(number, [])
    if len(receipts) < len(STAGED[number]):
        receipts = [Receipt("f" * 32)]
    try:
        publication = await broker.publish(key, receipts)
    except StageError:
        assert not there
        publication = await publish_values(broker, key, *STAGED[number])
    assert publication.repeat == there
    after = await read_logs(broker, LOGS)
    check_published(after, number, True)
    check_parts(publication, after, number)
    if there:
        assert after == before
    account.outcomes[number] = "published"


def check_parts(publication: Publication, found: dict[Log, list[bytes]], number: int) -> None:
    if publication.parts is None:
        assert publication.repeat
        return
    for part in publication.parts:
        log = part.topic, part.partition
        assert part.records == len(whole(number, log))
        among = found[log][part.first : part.next]
        assert [value for value in among if value.startswith(f"p{number}".encode())] == whole(number, log)


def verify(disk: SimulatedDisk, account: Account) -> None:
    """What is on the disk, what is said about it, and that everything goes on."""

    async def story(broker: LocalBroker) -> None:
        check_content(await read_logs(broker, LOGS), account)
        for number in (1, 2):
            await say_again(broker, account, number)
        await append(broker, b"o:after")

    async def later(broker: LocalBroker) -> None:
        found = await read_logs(broker, LOGS)
        for number in (1, 2):
            check_published(found, number, True)
        assert (await broker.publish(PublishKey("k", 2), [])).repeat
        for topic in ("a", "b"):
            await broker.delete_topic(topic)

    said = tell(disk, story, CONFIG)
    assert not any("cannot be finished" in line for line in said)
    tell(killed(disk), later, CONFIG)


def copied(account: Account) -> Account:
    return Account(dict(account.outcomes), {n: list(r) for n, r in account.receipts.items()}, list(account.promised))


def broken_off(at: int, policy: Policy = "each") -> tuple[SimulatedDisk, Account]:
    """The disk after the machine died at this call of the story."""
    disk, account = killed(prepared(policy)), Account()
    break_off(disk, story_of(account), at)
    return disk, account


@cache
def calls(policy: Policy = "each") -> int:
    disk, account = broken_off(10**9, policy)
    assert account.outcomes == {1: "published", 2: "published"}
    verify(killed(disk), copied(account))
    return disk.calls


PARTS = 24
"""Every so many calls are a part of the walk: CI takes one, a soak the others."""


@pytest.mark.parametrize("policy", SIZES)
@pytest.mark.parametrize("part", some_of(range(PARTS), 1))
def test_a_kill_at_any_call_leaves_all_or_nothing_and_the_answer_is_true(part: int, policy: Policy) -> None:
    for at in range(1 + part, calls(policy) + 5, PARTS):
        disk, account = broken_off(at, policy)
        verify(killed(disk), copied(account))


@pytest.mark.parametrize("part", some_of(range(PARTS), 4))
def test_a_power_loss_at_any_call_leaves_all_or_nothing_and_the_answer_is_true(part: int) -> None:
    for policy in POLICIES:
        for at in range(1 + part, calls(policy) + 5, PARTS):
            disk, account = broken_off(at, policy)
            verify(disk.power_loss(random.Random(at)), copied(account))


@pytest.mark.parametrize("policy", SIZES)
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("stride", strides(20))
def test_a_call_that_fails_leaves_all_or_nothing_and_the_answer_is_true(kind: str, policy: Policy, stride: int) -> None:
    at, is_met = 1, True
    while is_met:
        disk, account = killed(prepared(policy)), Account()
        is_met = fail_once(disk, story_of(account), kind, at)
        assert account.finished
        choose = random.Random(at)
        verify(killed(disk), copied(account))
        verify(disk.power_loss(choose), copied(account))
        at += stride


@pytest.mark.parametrize("policy", SIZES)
@pytest.mark.parametrize("second", ["sync", "truncate"])
@pytest.mark.parametrize("stride", strides(10))
def test_a_write_that_fails_and_cannot_be_cut_off_leaves_all_or_nothing(
    second: str, policy: Policy, stride: int
) -> None:
    for at in range(1, 40 if policy == "each" else 60, stride):
        disk, account, writes, armed = killed(prepared(policy)), Account(), list[Call](), list[bool]()

        def fault(call: Call, at: int = at, writes: list[Call] = writes, armed: list[bool] = armed) -> int | None:
            if armed and call.name == "write":
                writes.append(call)
                return call.size // 2 if len(writes) == at else None
            if call.name == second and len(writes) == at:
                raise OSError(errno.EIO, "injected", call.path)
            return None

        async def story(broker: LocalBroker, account: Account = account, armed: list[bool] = armed) -> None:
            armed.append(True)
            await story_of(account)(broker)

        Machine(disk, fault).run(story, CONFIG, cut=True)
        verify(killed(disk), copied(account))
        verify(disk.power_loss(random.Random(at)), copied(account))


@pytest.mark.parametrize("policy", SIZES)
@pytest.mark.parametrize("part", some_of(range(PARTS), 2))
def test_a_node_that_is_closed_at_any_call_leaves_all_or_nothing_and_the_answer_is_true(
    part: int, policy: Policy
) -> None:
    for at in range(1 + part, calls(policy) + 1, PARTS):
        disk, account = killed(prepared(policy)), Account()
        Machine(disk).run(partial(close_at, disk, at, account), CONFIG)
        verify(killed(disk), account)


async def close_at(disk: SimulatedDisk, at: int, account: Account, broker: LocalBroker) -> None:
    loop, before = asyncio.get_running_loop(), disk.fault
    closing: list[asyncio.Task[None]] = []

    def fault(call: Call) -> int | None:
        if call.number == at:
            loop.call_soon_threadsafe(lambda: closing.append(loop.create_task(broker.close())))
        return None if before is None else before(call)

    disk.fault = fault
    await story_of(account)(broker)
    for task in closing:
        await task


OPEN_PARTS = 16


@cache
def half_published(policy: Policy, part: int) -> tuple[tuple[SimulatedDisk, Account], ...]:
    """Disks on which a publish is open, in various degrees of completeness: a part of them."""
    found = []
    for at in range(1 + part, calls(policy) + 1, OPEN_PARTS):
        disk, account = broken_off(at, policy)
        said = tell(killed(disk), do_nothing, CONFIG)
        if any("was finished" in line for line in said):
            found.append((disk, account))
    return tuple(found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", some_of(range(OPEN_PARTS), 0))
def test_finishing_a_publish_may_be_broken_off_any_number_of_times(part: int, policy: Policy) -> None:
    every = 3 if policy == "segments" else 1
    for number, (disk, account) in enumerate(half_published(policy, part)[::every]):
        choose = random.Random(part)
        left, at, is_broken = disk.power_loss(choose) if number % 2 else killed(disk), 1, True
        while is_broken:
            is_broken = break_off(left, do_nothing, at)
            left = killed(left) if at % 3 else left.power_loss(choose)
            at += 1
        verify(left, copied(account))


class Unlucky(random.Random):
    """All that is not synced is lost; names are kept."""

    def random(self) -> float:
        return 0.0


def test_what_others_had_not_synced_may_be_lost_and_nothing_is_published_twice() -> None:
    disk, account, committed = killed(prepared("os")), Account(), []

    def before_the_first_append(call: Call) -> None:
        if call.name == "write" and call.path.endswith(".log"):
            if "/_publish~" in call.path:
                committed.append(call)
            elif committed:
                raise PowerLoss

    def before_it_is_done(call: Call) -> None:
        if call.name == "write" and "/_publish~" in call.path and call.path.endswith(".log"):
            raise PowerLoss

    for fault, story in ((before_the_first_append, story_of(account)), (before_it_is_done, do_nothing)):
        machine = Machine(disk, fault)
        machine.run(story, CONFIG)
        assert machine.died
        disk = disk.power_loss(Unlucky())
    assert account.outcomes == {1: "unknown"}
    verify(disk, account)


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
def test_many_power_losses_at_any_call_leave_all_or_nothing(policy: Policy) -> None:
    for at in range(1, calls(policy) + 5):
        disk, account = broken_off(at, policy)
        choose = random.Random(at)
        for _ in range(20):
            verify(disk.power_loss(choose), copied(account))
