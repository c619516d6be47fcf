"""A publish in one call where the machine goes, or a call of the disk fails, anywhere: all or nothing, truly said."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import pytest

from logboom.batch import build
from logboom.broker.api import Part, PublishKey, Settings
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher, key_book
from logboom.errors import LogboomError, OutcomeUnknown, Unavailable
from logboom.storage.data.topic import FlushSettings
from support.disks.simulated import SimulatedDisk
from support.effort import some_of, strides
from support.simulation.crashes import CONFIG, LOGS, break_off, do_nothing, fail_once
from support.simulation.staged import Log, Values, append, killed, plain_parts, read_logs, tell

POLICIES = "each", "os"
KINDS = "full", "write", "short", "sync", "directory", "create", "truncate"
PARTS = 8
"""Every so many calls are a part of the walk: CI takes one, a soak the others."""


def named(name: str, *counts: int) -> Values:
    return {
        log: [f"{name}:{log[0]}{log[1]}:{n}".encode().ljust(200) for n in range(count)]
        for log, count in zip(LOGS, counts, strict=True)
        if count
    }


KEYS = PublishKey("k", 1), PublishKey("k", 2), PublishKey("one", 1, False), PublishKey("two", 2, False)
"""Two after each other under a name that lasts, and two that do not: their numbers are times."""
PUBLISHED = dict(
    zip(KEYS, [named("p1", 4, 3, 2), named("p2", 2, 0, 3), named("p3", 1, 0, 0), named("p4", 1, 2, 1)], strict=True)
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "RETRY_S", 0.005)
    monkeypatch.setattr(finisher, "RETRY_MAX_S", 0.02)
    monkeypatch.setattr(key_book, "SETTLE_S", 0.002)
    monkeypatch.setattr(key_book, "SETTLE_AGAIN_S", 0.002)


@dataclass
class Account:
    outcomes: dict[PublishKey, str] = field(default_factory=dict)
    finished: bool = False


@cache
def prepared(policy: str) -> SimulatedDisk:
    disk = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        settings = Settings(flush=FlushSettings("os" if policy == "os" else "each"))
        await broker.create_topic("a", 2, settings)
        await broker.create_topic("b", 1, settings)
        await append(broker, b"o:first")

    tell(disk, story, CONFIG)
    return disk


def write_others(broker: LocalBroker, name: str) -> None:
    for topic in ("a", "b"):
        broker.append([Part(topic, [build([f"u:{name}:{n}".encode()]) for n in range(2)], 0)], "leader")


def story_of(account: Account) -> Callable[[LocalBroker], Awaitable[None]]:
    async def publish(broker: LocalBroker, key: PublishKey) -> None:
        account.outcomes[key] = "unknown"
        try:
            publication = await broker.publish_batches(key, plain_parts(PUBLISHED[key]))
        except (OutcomeUnknown, Unavailable):
            return
        except LogboomError:
            account.outcomes[key] = "refused"
        else:
            assert not publication.repeat
            account.outcomes[key] = "published"

    async def story(broker: LocalBroker) -> None:
        write_others(broker, "before")
        await publish(broker, KEYS[0])
        write_others(broker, "between")
        if account.outcomes[KEYS[0]] == "published":  # numbers of a name rise
            await asyncio.gather(*(publish(broker, key) for key in KEYS[1:]))
        with suppress(LogboomError):
            await append(broker, b"o:last")
        account.finished = True

    return story


def prefix_of(key: PublishKey) -> bytes:
    return f"p{KEYS.index(key) + 1}:".encode()


def mine(found: dict[Log, list[bytes]], key: PublishKey) -> dict[Log, list[bytes]]:
    some = {log: [value for value in values if value.startswith(prefix_of(key))] for log, values in found.items()}
    return {log: values for log, values in some.items() if values}


def verify(disk: SimulatedDisk, account: Account) -> None:
    """What is on the disk, what is said about it, and that everything goes on."""

    async def story(broker: LocalBroker) -> None:
        found = await read_logs(broker, LOGS)
        for key, values in PUBLISHED.items():
            outcome = account.outcomes.get(key, "refused")
            assert mine(found, key) in ({}, values)
            if outcome != "unknown":
                assert bool(mine(found, key)) == (outcome == "published")
        for key, values in PUBLISHED.items():
            there = bool(mine(found, key))
            publication = await broker.publish_batches(key, plain_parts(values))
            assert publication.repeat == there
            after = await read_logs(broker, LOGS)
            assert mine(after, key) == values
            for part in publication.parts or ():
                among = after[part.topic, part.partition][part.first : part.next]
                assert [value for value in among if value.startswith(prefix_of(key))] == values[
                    part.topic, part.partition
                ]
            assert publication.parts is not None or key == KEYS[0]
        await append(broker, b"o:after")

    async def later(broker: LocalBroker) -> None:
        found = await read_logs(broker, LOGS)
        for key, values in PUBLISHED.items():
            assert mine(found, key) == values
            assert (await broker.publish_batches(key, plain_parts(values))).repeat
        for topic in ("a", "b"):
            await broker.delete_topic(topic)

    said = tell(disk, story, CONFIG)
    assert not any("cannot be finished" in line for line in said)
    tell(killed(disk), later, CONFIG)


def broken_off(at: int, policy: str) -> tuple[SimulatedDisk, Account]:
    """The disk after the machine died at this call of the story."""
    disk, account = killed(prepared(policy)), Account()
    break_off(disk, story_of(account), at)
    return disk, account


@cache
def calls(policy: str) -> int:
    disk, account = broken_off(10**9, policy)
    assert account.outcomes == dict.fromkeys(KEYS, "published")
    verify(killed(disk), account)
    return disk.calls


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", some_of(range(PARTS), 1))
def test_a_kill_or_a_power_loss_at_any_call_leaves_all_or_nothing(part: int, policy: str) -> None:
    for at in range(1 + part, calls(policy) + 5, PARTS):
        disk, account = broken_off(at, policy)
        verify(killed(disk), account)
        verify(disk.power_loss(random.Random(at)), account)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", strides(8))
def test_a_call_that_fails_leaves_all_or_nothing_and_the_answer_is_true(kind: str, stride: int) -> None:
    at, is_met = 1, True
    while is_met:
        disk, account = killed(prepared("each")), Account()
        is_met = fail_once(disk, story_of(account), kind, at)
        assert account.finished
        verify(killed(disk), account)
        verify(disk.power_loss(random.Random(at)), account)
        at += stride


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stride", strides(10))
def test_finishing_it_may_be_broken_off_any_number_of_times(policy: str, stride: int) -> None:
    for start in range(1, calls(policy) + 1, stride):
        disk, account = broken_off(start, policy)
        left, at, is_broken = killed(disk), 1, True
        while is_broken:
            is_broken = break_off(left, do_nothing, at)
            left, at = killed(left), at + 7
        verify(left, account)
