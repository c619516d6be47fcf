"""The state file: a hint that survives what it can, and never says what is not so."""

from __future__ import annotations

import pytest

from logboom.errors import DirectoryUnusable
from logboom.storage import StateFile
from logboom.storage.data.state import SLOT_SIZE, decode
from support.disks.simulated import Call, SimulatedDisk

PATH = "/data/state"
ONE, TWO = bytes(15) + b"\1", bytes(15) + b"\2"


def test_every_log_has_its_slot_and_finds_it_again() -> None:
    disk = SimulatedDisk()
    state = StateFile.open(disk, PATH)
    for partition in range(3):
        state.claim(ONE, partition).write(partition, 10, 20, 30, 0)
    state.claim(TWO, 0).write(7, 1, 2, 3, 0)
    assert state.claim(ONE, 1) is state.claim(ONE, 1)
    state = StateFile.open(disk, PATH)
    assert [state.claim(ONE, partition).standing for partition in range(3)] == [
        (ONE, partition, partition, 10, 20, 30, 0, 0) for partition in range(3)
    ]
    assert state.claim(TWO, 0).standing == (TWO, 0, 7, 1, 2, 3, 0, 0)
    assert state.claim(TWO, 1).standing is None


def test_a_slot_with_any_bit_flipped_says_nothing_and_is_used_again() -> None:
    disk = SimulatedDisk()
    slot = StateFile.open(disk, PATH).claim(ONE, 0)
    slot.write(1, 2, 3, 4, 0)
    slot.sync()
    content = disk.names[PATH].cached
    for position in range(SLOT_SIZE, 2 * SLOT_SIZE):
        broken = bytearray(content)
        broken[position] ^= 1 << position % 8
        assert decode(bytes(broken), SLOT_SIZE) is None
    content[SLOT_SIZE] ^= 1
    disk.names[PATH].durable[:] = content
    StateFile.open(disk, PATH).claim(TWO, 0).write(1, 2, 3, 4, 0)
    assert len(content) == 2 * SLOT_SIZE


def test_a_damaged_front_costs_no_slot() -> None:
    disk = SimulatedDisk()
    slot = StateFile.open(disk, PATH).claim(ONE, 0)
    slot.write(1, 2, 3, 4, 0, floor=9)
    slot.sync()
    disk.names[PATH].cached[1] ^= 1
    disk.names[PATH].durable[:] = disk.names[PATH].cached
    assert StateFile.open(disk, PATH).claim(ONE, 0).standing == (ONE, 0, 1, 2, 3, 4, 0, 9)


def test_a_newer_format_is_refused() -> None:
    disk = SimulatedDisk()
    StateFile.open(disk, PATH)
    from crc32c import crc32c

    front = disk.names[PATH].cached
    front[4] = 2
    front[60:64] = crc32c(bytes(front[:60])).to_bytes(4, "little")
    with pytest.raises(DirectoryUnusable, match="newer"):
        StateFile.open(disk, PATH)


def test_what_a_failed_sync_left_in_the_cache_is_not_believed() -> None:
    disk = SimulatedDisk()
    state = StateFile.open(disk, PATH)
    slot = state.claim(ONE, 0)
    slot.write(1, 2, 3, 9, 0)
    state.sync()
    slot.write(1, 2, 3, 4, 0)

    def fault(call: Call) -> None:
        if call.name == "sync":
            raise OSError(5, "injected")

    disk.fault = fault
    with pytest.raises(OSError, match="injected"):
        state.sync()
    disk.fault = None
    standing = StateFile.open(disk, PATH).claim(ONE, 0).standing
    assert standing is not None
    assert standing.synced_index == 9
