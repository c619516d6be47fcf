"""A log as another process sees it, on a simulated disk."""

from __future__ import annotations

import pytest

from logboom.errors import SeqnoOutOfRange
from logboom.storage.data.state import StateFile, StateReader
from logboom.storage.view import LogGone, LogView
from support.disks.simulated import SimulatedDisk
from support.simulation.model import DIRECTORY, TOPIC_ID, make_batch, open_log, open_view


def test_a_view_follows_commits_and_sees_no_further() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    view = open_view(disk)
    for number in range(60):
        log.append_one(make_batch(number, 3, number), number)
        if number % 7 == 0:
            log.commit(log.sync())
        view.refresh()
        assert view.committed == log.committed
        assert view.damage is None
        with pytest.raises(SeqnoOutOfRange):
            view.read(log.committed + 1)
    assert not view.refresh()


def test_a_view_goes_back_where_the_state_file_does() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(60):
        log.append_one(make_batch(number, 3, number), number)
    log.commit(log.sync())
    view = open_view(disk)
    assert view.committed == 180
    StateFile.open(disk, "/data/state").claim(TOPIC_ID, 0).write(0, 0, 90, 30, 1)
    assert view.refresh()
    assert view.committed == 90
    assert sum(len(batch) for batch in view.batches()) == 90


def test_a_log_that_the_state_file_does_not_know_is_gone() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, 1, 0), 0)
    log.commit(log.sync())
    view = open_view(disk)
    StateFile.open(disk, "/data/state").release(TOPIC_ID)
    with pytest.raises(LogGone):
        view.refresh()
    with pytest.raises(LogGone):
        LogView.open(view._files, DIRECTORY, StateReader(disk, "/data/state"), TOPIC_ID, 0)


def test_a_slot_is_found_again_when_it_has_moved() -> None:
    disk = SimulatedDisk()
    state = StateFile.open(disk, "/data/state")
    state.claim(bytes(16), 7).write(1, 2, 3, 4, 5)
    state.claim(TOPIC_ID, 0).write(1, 2, 3, 4, 5)
    reader = StateReader(disk, "/data/state")
    assert reader.standing(TOPIC_ID, 0) == (TOPIC_ID, 0, 1, 2, 3, 4, 5, 0)
    state.release(TOPIC_ID)
    state.release(bytes(16))
    assert reader.standing(TOPIC_ID, 0) is None
    state.claim(bytes(15) + b"\2", 0).write(9, 9, 9, 9, 9)
    state.claim(TOPIC_ID, 0).write(2, 2, 3, 4, 5)
    assert reader.standing(TOPIC_ID, 0) == (TOPIC_ID, 0, 2, 2, 3, 4, 5, 0)
