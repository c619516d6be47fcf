"""Publishes that move cursors, where the machine goes or a call of the disk fails, anywhere: records and places move
together or not at all, and a place that was committed later stays."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache

import pytest

from logboom.broker.api import CursorMove, Publication, PublishKey, Settings
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher, key_book
from logboom.errors import LogboomError, OutcomeUnknown, Unavailable
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from logboom.storage.data.topic import FlushSettings
from support.disks.simulated import SimulatedDisk
from support.effort import some_of, strides
from support.simulation.crashes import CONFIG, break_off, do_nothing, fail_once
from support.simulation.staged import Log, append, fill, killed, plain_parts, read_log, tell

OUT: Log = ("out", 0)
POLICIES = "each", "os"
KINDS = "full", "write", "short", "sync", "directory", "create", "truncate"
PARTS = 8
"""Every so many calls are a part of the walk: CI takes one, a soak the others."""
NUMBERS = 1, 2, 3
MOVED: dict[int, tuple[int | str, int]] = {1: ("", 2), 2: (2, 4), 3: (1, 3)}
"""From where to where each publish moves the cursor; before the last one it is put back to 1."""
PUT_BACK = 1
Said = dict[str, str]
"""What came of each step, as its caller was told."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "RETRY_S", 0.005)
    monkeypatch.setattr(finisher, "RETRY_MAX_S", 0.02)
    monkeypatch.setattr(key_book, "SETTLE_S", 0.002)
    monkeypatch.setattr(key_book, "SETTLE_AGAIN_S", 0.002)


@cache
def prepared(policy: str) -> SimulatedDisk:
    disk = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        settings = Settings(flush=FlushSettings("os" if policy == "os" else "each"))
        await broker.create_topic("in", 1)
        await broker.create_topic("out", 1, settings)
        for number in range(4):
            await append(broker, b"%d" % number, "in")

    tell(disk, story, CONFIG)
    return disk


async def mark(broker: LocalBroker, seqno: int | str) -> str:
    if isinstance(seqno, str):
        return seqno
    topic_id = bytes.fromhex((await broker.describe_topic("in")).id)
    return str(Bookmark(topic_id, 0, seqno, TERM_UNKNOWN))


def records_of(number: int) -> list[bytes]:
    return [b"p%d:%d" % (number, at) for at in range(3)]


async def publish(broker: LocalBroker, number: int) -> Publication:
    """The first of them through a stage."""
    start, end = MOVED[number]
    moves = [CursorMove("c", "in", 0, await mark(broker, end), await mark(broker, start))]
    values = {OUT: records_of(number)}
    if number > 1:
        return await broker.publish_batches(PublishKey("job", number), plain_parts(values), moves)
    receipts = [] if await broker.list_keys("job") else [(await fill(broker, values))[1]]
    return await broker.publish(PublishKey("job", number), receipts, moves)


async def put_back(broker: LocalBroker) -> None:
    await broker.commit_cursor("c", "in", 0, await mark(broker, PUT_BACK), force=True)


async def note(said: Said, step: str, work: Awaitable[object]) -> bool:
    said[step] = "unknown"
    try:
        await work
    except (OutcomeUnknown, Unavailable):
        return False
    except LogboomError:
        said[step] = "refused"
        return False
    said[step] = "done"
    return True


def story_of(said: Said) -> Callable[[LocalBroker], Awaitable[None]]:
    async def story(broker: LocalBroker) -> None:
        for number in NUMBERS:
            if number == 3 and not await note(said, "put back", put_back(broker)):
                return
            if not await note(said, f"publish {number}", publish(broker, number)):
                return
        with suppress(LogboomError):
            await append(broker, b"o:last", "out")

    return story


async def stands(broker: LocalBroker) -> int | None:
    bookmark = await broker.fetch_cursor("c", "in", 0)
    return None if bookmark is None else Bookmark.parse(bookmark).seqno


async def count_published(broker: LocalBroker) -> int:
    """All of some publishes is there, and of those behind them nothing."""
    found = [value for value in await read_log(broker, OUT) if value.startswith(b"p")]
    whole: list[bytes] = []
    for number in (0, *NUMBERS):
        whole += records_of(number) if number else []
        if found == whole:
            return number
    raise AssertionError(f"{found} is there")


def allowed_places(published: int, said: Said) -> Sequence[int | None]:
    if published == 2 and "put back" in said:
        return {"done": [PUT_BACK], "refused": [4], "unknown": [4, PUT_BACK]}[said["put back"]]
    return [MOVED[published][1] if published else None]


def verify(disk: SimulatedDisk, said: Said) -> None:
    async def story(broker: LocalBroker) -> None:
        published = await count_published(broker)
        for number in NUMBERS:
            outcome = said.get(f"publish {number}", "refused")
            assert outcome == "unknown" or (outcome == "done") == (number <= published)
        assert await stands(broker) in allowed_places(published, said)
        for number in NUMBERS:
            if number == 3 > published:
                await put_back(broker)
            before = await stands(broker)
            assert (await publish(broker, number)).repeat == (number <= published)
            assert await stands(broker) == (before if number <= published else MOVED[number][1])
        assert await count_published(broker) == 3

    async def later(broker: LocalBroker) -> None:
        assert (await count_published(broker), await stands(broker)) == (3, 3)
        for number in NUMBERS:
            assert (await publish(broker, number)).repeat
        await broker.delete_cursor("c")
        await broker.delete_topic("in")

    heard = tell(disk, story, CONFIG)
    assert not any("cannot be finished" in line for line in heard)
    tell(killed(disk), later, CONFIG)


def broken_off(at: int, policy: str) -> tuple[SimulatedDisk, Said]:
    """The disk after the machine died at this call of the story."""
    disk, said = killed(prepared(policy)), Said()
    break_off(disk, story_of(said), at)
    return disk, said


@cache
def calls(policy: str) -> int:
    disk, said = broken_off(10**9, policy)
    assert set(said.values()) == {"done"}
    verify(killed(disk), said)
    return disk.calls


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", some_of(range(PARTS), 1))
def test_a_kill_or_a_power_loss_at_any_call_leaves_records_and_cursor_or_neither(part: int, policy: str) -> None:
    for at in range(1 + part, calls(policy) + 5, PARTS):
        disk, said = broken_off(at, policy)
        verify(killed(disk), said)
        verify(disk.power_loss(random.Random(at)), said)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", strides(9))
def test_a_call_that_fails_leaves_records_and_cursor_or_neither(kind: str, stride: int) -> None:
    at, is_met = 1, True
    while is_met:
        disk, said = killed(prepared("each")), Said()
        is_met = fail_once(disk, story_of(said), kind, at)
        verify(killed(disk), said)
        verify(disk.power_loss(random.Random(at)), said)
        at += stride


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stride", strides(12))
def test_moving_them_at_a_start_may_be_broken_off_any_number_of_times(policy: str, stride: int) -> None:
    for start in range(1, calls(policy) + 1, stride):
        disk, said = broken_off(start, policy)
        left, at, is_broken = killed(disk), 1, True
        while is_broken:
            is_broken = break_off(left, do_nothing, at)
            left, at = killed(left), at + 7
        verify(left, said)
