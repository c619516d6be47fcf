"""What a commit has returned for is there afterwards, at every call a power loss may come in."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import cache

import pytest

from logboom.broker.state.cursors import Cursors
from logboom.errors import LogboomError
from logboom.storage.bookmark import Bookmark
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.internal import open_cursors

ID = "c" * 32
SNAPSHOT_BYTES = 700
CURSORS, ROUNDS = 3, 8
Standings = dict[str, int]
"""The seqno of every cursor; 0 where it was never committed."""


def mark(seqno: int) -> str:
    return str(Bookmark(bytes.fromhex(ID), 0, seqno, 1))


async def standings(cursors: Cursors) -> Standings:
    return {info.cursor: info.seqno for info in await cursors.list()}


async def work(cursors: Cursors, promised: Standings, asked: Standings) -> None:
    """Some cursors at once, round by round; stops at the first that is not answered."""
    for round_number in range(1, ROUNDS + 1):
        results = await asyncio.gather(
            *(advance(cursors, f"c{n}", round_number * 10 + n, promised, asked) for n in range(CURSORS)),
            return_exceptions=True,
        )
        if any(isinstance(result, BaseException) for result in results):
            return
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)


async def advance(cursors: Cursors, name: str, seqno: int, promised: Standings, asked: Standings) -> None:
    asked[name] = seqno
    await cursors.commit(name, "events", ID, 0, mark(seqno), 0)
    promised[name] = seqno


def broken_off(at: int) -> tuple[SimulatedDisk, Standings, Standings]:
    """The disk after the power went at this call, what had been promised by then, and what had been asked for."""
    disk = SimulatedDisk()
    promised: Standings = {}
    asked: Standings = {}

    def fault(call: Call) -> None:
        if call.number >= at:
            raise PowerLoss

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # tasks of a machine that is gone
        _, cursors = open_cursors(disk, snapshot_bytes=SNAPSHOT_BYTES)
        await work(cursors, promised, asked)

    disk.fault = fault
    with suppress(PowerLoss):
        asyncio.run(run())
    disk.kill()
    return disk, promised, asked


@cache
def calls() -> int:
    disk, promised, _ = broken_off(10**9)
    assert promised == {f"c{n}": ROUNDS * 10 + n for n in range(CURSORS)}
    assert any(path.endswith("internal/cursors") for path in disk.names)
    return disk.calls


def verify(disk: SimulatedDisk, promised: Standings, asked: Standings) -> None:
    _, cursors = open_cursors(disk, snapshot_bytes=SNAPSHOT_BYTES)
    found = asyncio.run(standings(cursors))
    assert promised.keys() <= found.keys() <= asked.keys()
    assert all(found[name] in (promised.get(name, 0), asked[name]) for name in found)
    asyncio.run(advance(cursors, "after", 1, promised, asked))
    disk.kill()
    _, cursors = open_cursors(disk)
    assert asyncio.run(standings(cursors)) == found | {"after": 1}


@pytest.mark.parametrize("part", range(8))
def test_a_commit_that_was_answered_survives_power_loss_at_any_call(part: int) -> None:
    for at in range(1 + part, calls() + 2, 8):
        disk, promised, asked = broken_off(at)
        choose = random.Random(at)
        for _ in range(8):
            verify(disk.power_loss(choose), dict(promised), dict(asked))


@pytest.mark.parametrize("part", range(2))
def test_a_killed_process_leaves_cursors_that_go_on(part: int) -> None:
    for at in range(1 + part, calls() + 2, 2):
        disk, promised, asked = broken_off(at)
        verify(disk, promised, asked)


@pytest.mark.parametrize("name", ["write", "sync", "create", "rename", "sync_directory", "unlink"])
def test_a_call_that_fails_loses_no_commit_that_was_answered(name: str) -> None:
    for number in range(1, 40):
        disk, seen = SimulatedDisk(), 0
        promised: Standings = {}
        asked: Standings = {}

        def fault(call: Call, number: int = number) -> None:
            nonlocal seen
            seen += call.name == name
            if call.name == name and seen == number:
                raise OSError(5, "Input/output error", call.path)

        async def run(disk: SimulatedDisk, promised: Standings, asked: Standings) -> None:
            _, cursors = open_cursors(disk, snapshot_bytes=SNAPSHOT_BYTES)
            await work(cursors, promised, asked)

        disk.fault = fault
        try:
            asyncio.run(run(disk, promised, asked))
        except (OSError, LogboomError):
            assert not promised  # it could not even be opened
        disk.kill()
        verify(disk, promised, asked)
