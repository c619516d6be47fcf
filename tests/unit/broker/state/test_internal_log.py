from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from logboom.batch import Batch
from logboom.broker.state import internal_log
from logboom.broker.state.internal_log import StateLog
from logboom.errors import DirectoryUnusable, LimitExceeded, OutcomeUnknown, ShuttingDown
from logboom.storage.append import Appended
from logboom.storage.files import envelope
from logboom.storage.health.repair import plan_repair
from logboom.storage.staged.unfinished import MAGIC, SNAPSHOT, InternalSnapshot
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.internal import PATH, ROOT, Backing, open_state

Changes = Mapping[bytes, bytes | None]


def content(state: StateLog) -> dict[bytes, bytes]:
    return dict(state.items())


def reopened(disk: SimulatedDisk, path: str = PATH) -> StateLog:
    disk.kill()
    return open_state(disk, path=path)[1]


def put_all(state: StateLog, *changes: Changes) -> None:
    async def run() -> None:
        for change in changes:
            await state.put(change)
        await state.close()

    asyncio.run(run())


def gathered(*coroutines: Coroutine[Any, Any, None]) -> list[BaseException | None]:
    async def run() -> list[BaseException | None]:
        return await asyncio.gather(*coroutines, return_exceptions=True)

    return asyncio.run(run())


def test_what_was_put_is_there_after_a_restart() -> None:
    disk = SimulatedDisk()
    _, state = open_state(disk)
    put_all(state, {b"a": b"1", b"b": b"2"}, {b"a": b"3"}, {b"b": None, b"gone": None})
    assert content(state) == {b"a": b"3"} == content(reopened(disk))
    assert not disk.exists(PATH)


def test_nothing_shows_before_it_is_durable() -> None:
    async def run() -> None:
        _, state = open_state(SimulatedDisk())
        putting = asyncio.create_task(state.put({b"a": b"1"}))
        await asyncio.sleep(0)
        assert state.get(b"a") is None
        await putting
        assert state.get(b"a") == b"1"

    asyncio.run(run())


def test_changes_that_come_during_an_append_share_the_next_one_and_the_latest_wins() -> None:
    disk = SimulatedDisk()
    backing, state = open_state(disk)
    assert gathered(*(state.put({b"a": b"%d" % n, b"k%d" % n: b"x"}) for n in range(100))) == [None] * 100
    assert [len(batch) for batch in backing.appended] == [101]
    assert state.get(b"a") == b"99"
    assert len(reopened(disk)) == 101


def test_each_append_begins_when_the_one_before_it_has_ended() -> None:
    async def run() -> None:
        backing, state = open_state(SimulatedDisk())
        gate = Gate(backing)
        state = StateLog.open(SimulatedDisk(), PATH, gate.log, ("limit", 100))
        first = asyncio.create_task(state.put({b"a": b"1"}))
        await gate.entered.wait()
        later = [asyncio.create_task(state.put({b"b": b"%d" % n})) for n in range(10)]
        await asyncio.sleep(0)
        assert [len(batch) for batch in gate.batches] == [1]
        gate.open.set()
        await asyncio.gather(first, *later)
        assert [batch.values() for batch in gate.batches] == [[b"1"], [b"9"]]

    asyncio.run(run())


class Gate:
    """A log that takes nothing until it is opened."""

    def __init__(self, backing: Backing, error: Exception | None = None) -> None:
        self.entered, self.open = asyncio.Event(), asyncio.Event()
        self.batches: list[Batch] = []
        self.error = error
        self._append = backing.internal.append
        self.log = dataclasses.replace(backing.internal, append=self.append)

    async def append(self, batch: Batch) -> Appended:
        self.batches.append(batch)
        self.entered.set()
        await self.open.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return await self._append(batch)


def test_a_failed_append_fails_those_who_wait_for_it_and_changes_nothing() -> None:
    async def run() -> None:
        gate = Gate(open_state(SimulatedDisk())[0], OutcomeUnknown("who knows"))
        state = StateLog.open(SimulatedDisk(), PATH, gate.log, ("limit", 2))
        first = asyncio.create_task(state.put({b"a": b"1", b"b": b"1"}))
        await gate.entered.wait()
        gate.open.set()
        with pytest.raises(OutcomeUnknown):
            await first
        assert content(state) == {}
        await state.put({b"c": b"1", b"d": b"1"})
        assert content(state) == {b"c": b"1", b"d": b"1"}

    asyncio.run(run())


def test_a_caller_who_goes_away_takes_nothing_back_and_harms_nobody() -> None:
    async def run() -> None:
        gate = Gate(open_state(SimulatedDisk())[0])
        state = StateLog.open(SimulatedDisk(), PATH, gate.log, ("limit", 100))
        first = asyncio.create_task(state.put({b"a": b"1"}))
        await gate.entered.wait()
        second, third = (asyncio.create_task(state.put({key: b"1"})) for key in (b"b", b"c"))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        gate.open.set()
        await third
        assert set(content(state)) == {b"a", b"b", b"c"}

    asyncio.run(run())


def test_there_are_never_more_keys_than_allowed_also_counting_those_on_their_way() -> None:
    _, state = open_state(SimulatedDisk(), limit=3)
    outcomes = gathered(*(state.put({b"k%d" % n: b"x"}) for n in range(5)))
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [LimitExceeded] * 2
    put_all(state, {b"k0": b"y"}, {b"k1": None}, {b"k9": b"x"})
    assert set(content(state)) == {b"k0", b"k2", b"k9"}


def test_many_changes_at_once_are_spread_over_several_batches() -> None:
    disk = SimulatedDisk()
    backing, state = open_state(disk, limit=10_000)
    put_all(state, {b"%05d" % n: bytes(1000) for n in range(5_000)})
    assert len(backing.appended) > 4
    assert max(len(batch.data) for batch in backing.appended) < 2 * internal_log.BATCH_BYTES
    assert len(reopened(disk)) == 5_000


def test_a_snapshot_lets_the_log_be_cut_below_it() -> None:
    disk = SimulatedDisk()
    backing, state = open_state(disk, snapshot_bytes=2_000)
    for number in range(100):
        put_all_open(state, {b"k%d" % (number % 7): b"%d" % number, b"old": None if number else b"x"})
    expected = content(state)
    assert len(backing.trimmed) > 3
    assert backing.log.first == backing.trimmed[-1] > 50
    assert len(backing.log.segments) <= 3
    assert content(reopened(disk)) == expected


def put_all_open(state: StateLog, changes: Changes) -> None:
    """Put, and let a snapshot that has begun come to its end."""

    async def run() -> None:
        await state.put(changes)
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)

    asyncio.run(run())


def test_puts_go_on_while_a_snapshot_is_made() -> None:
    disk = SimulatedDisk()
    backing, state = open_state(disk, snapshot_bytes=500)
    gathered(*(put_slowly(state, n) for n in range(20)))
    assert backing.trimmed
    assert len(reopened(disk)) == 20


async def put_slowly(state: StateLog, number: int) -> None:
    for again in range(5):
        await state.put({b"k%d" % number: b"%d" % again})


def test_a_snapshot_that_cannot_be_written_is_told_and_tried_again_and_the_log_is_not_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()

    def fault(call: Call) -> None:
        if call.name == "create" and call.path.startswith(PATH):
            raise OSError(28, "No space left on device")

    backing, state = open_state(disk, snapshot_bytes=500)
    disk.fault = fault
    for number in range(20):
        put_all_open(state, {b"k%d" % number: bytes(50)})
    assert "No space left" in caplog.text
    assert backing.trimmed == []
    disk.fault = None
    for number in range(20):
        put_all_open(state, {b"k%d" % number: bytes(60)})
    assert backing.trimmed
    assert len(reopened(disk)) == 20


def cut_state(snapshots: int = 1) -> tuple[SimulatedDisk, dict[bytes, bytes]]:
    """A state whose log begins behind its first record."""
    disk = SimulatedDisk()
    backing, state = open_state(disk, snapshot_bytes=500)
    while len(backing.trimmed) < snapshots:
        put_all_open(state, {b"k%d" % len(state): bytes(50)})
    put_all_open(state, {b"last": b"x"})
    disk.kill()
    return disk, content(state)


def test_what_a_damaged_snapshot_held_is_never_guessed() -> None:
    disk, expected = cut_state()
    assert content(reopened(disk)) == expected
    disk.names[PATH].cached[-3] ^= 1
    with pytest.raises(DirectoryUnusable, match=r"checksum.*restore it from a backup"):
        reopened(disk)


def test_a_missing_snapshot_is_noticed_where_the_log_was_cut() -> None:
    disk, _ = cut_state()
    del disk.names[PATH]
    with pytest.raises(DirectoryUnusable, match="is not there"):
        reopened(disk)


def test_a_snapshot_the_log_does_not_reach_is_refused() -> None:
    older, _ = cut_state(1)
    newer, _ = cut_state(3)
    snapshot = envelope.unpack(MAGIC, bytes(newer.names[PATH].cached), SNAPSHOT)
    for seqno in (0, 10_000):
        moved = InternalSnapshot(snapshot.topic_id, seqno, snapshot.entries)
        newer.names[PATH].cached[:] = envelope.pack(MAGIC, moved)
        with pytest.raises(DirectoryUnusable, match=f"goes on at seqno {seqno}"):
            reopened(newer)
    newer.names[PATH] = older.names[PATH]
    with pytest.raises(DirectoryUnusable, match="another log"):
        reopened(newer)


def test_a_damaged_log_is_refused_until_repair_has_given_up_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    backing, state = open_state(disk)
    put_all_open(state, {b"a": b"1"})
    put_all_open(state, {b"a": b"2", b"b": b"2"})
    backing.log.roll()
    put_all_open(state, {b"c": b"3"})
    file = disk.names[backing.log.segments[0].log_path]
    file.cached[-3] ^= 1
    file.durable[:] = file.cached
    with pytest.raises(DirectoryUnusable, match=r"seqnos 1 to 2.*repair it first"):
        reopened(disk)
    disk.kill()
    for step in plan_repair(disk, ROOT, is_directory=disk.is_directory).steps:
        step.run()
    assert content(reopened(disk)) == {b"a": b"1", b"c": b"3"}
    assert "the node's own state are lost" in caplog.text


def test_a_damaged_snapshot_does_no_harm_while_the_log_reaches_back_to_its_first_record() -> None:
    disk = SimulatedDisk()
    _, state = open_state(disk)
    put_all(state, {b"a": b"1"}, {b"b": b"2"})
    disk.make_directory("/data/internal")
    disk.create(PATH).write([b"LGIS nonsense"], 0)
    assert content(reopened(disk)) == {b"a": b"1", b"b": b"2"}


def test_a_closed_state_takes_nothing_more() -> None:
    _, state = open_state(SimulatedDisk())
    put_all(state, {b"a": b"1"})
    (outcome,) = gathered(state.put({b"b": b"1"}))
    assert isinstance(outcome, ShuttingDown)
