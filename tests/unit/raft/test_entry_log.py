"""The view of journal and tail together, against a plain list."""

from __future__ import annotations

from random import Random

import pytest

from logboom.raft import Effects, Membership, RaftEntry, RaftSnapshot
from logboom.raft.entry_log import TRIM_COUNT, EntryLog
from support.raft.disk import RaftDisk


def kept(*terms: int) -> RaftDisk:
    disk = RaftDisk(Membership((1,)))
    disk.log = [RaftEntry(index, term, 10) for index, term in enumerate(terms, 1)]
    disk.synced = list(disk.log)
    return disk


@pytest.mark.parametrize("seed", range(30))
def test_the_view_is_a_list_whatever_is_added_cut_written_and_forgotten(seed: int) -> None:
    random = Random(seed)
    disk = kept(*[1] * random.randrange(5))
    log = EntryLog(disk)
    model = [0, *(entry.term for entry in disk.log)]
    term, number = 2, 0
    for _ in range(300):
        step = random.random()
        if step < 0.5:
            log.append(RaftEntry(log.last_index + 1, term, random.randrange(50)))
            model.append(term)
        elif step < 0.6 and log.last_index > disk.base.index:
            index = random.randint(max(disk.base.index, log.last_index - 5) + 1, log.last_index)
            log.cut(index)
            del model[index:]
            term += 1
        elif step < 0.8:
            found = log.hand_over()
            if found:
                number += 1
                disk.write(Effects(number=number, entries=found))
        elif step < 0.9 and log.handed == log.last_index:
            disk.sync()
            log.persisted = log.last_index
            log.trim(log.last_index)
        elif log.persisted - disk.base.index > TRIM_COUNT and disk.synced_index >= log.persisted:
            disk.compact(random.randint(disk.base.index, log.persisted))
        assert log.last_index == len(model) - 1
        assert log.last_term == model[-1]
        first = log.first_index
        assert [log.term(index) for index in range(first - 1, len(model))] == model[first - 1 :]
        if first <= log.last_index:
            start = random.randint(first, log.last_index)
            entries = log.entries(start, random.randrange(500))
            assert entries
            assert [entry.index for entry in entries] == list(range(start, start + len(entries)))


def test_a_message_has_at_least_one_entry_and_no_more_bytes_than_it_may() -> None:
    log = EntryLog(kept())
    for index in range(1, 6):
        log.append(RaftEntry(index, 1, 68))
    assert [entry.index for entry in log.entries(2, 1)] == [2]
    assert [entry.index for entry in log.entries(2, 299)] == [2, 3]
    assert [entry.index for entry in log.entries(2, 300)] == [2, 3, 4]
    assert log.entries(6, 100) == ()


def test_logs_meet_at_the_last_entry_whose_term_is_not_higher() -> None:
    log = EntryLog(kept(1, 1, 2, 2, 4, 4, 6))
    expected = {(7, 5): (6, 4), (7, 9): (7, 6), (3, 9): (3, 2), (7, 3): (4, 2), (9, 1): (2, 1), (5, 0): (0, 0)}
    assert {asked: log.meeting_point(*asked) for asked in expected} == expected


def test_a_restart_from_a_snapshot_forgets_everything() -> None:
    log = EntryLog(disk := kept(1, 1, 1))
    log.append(RaftEntry(4, 2))
    disk.install(RaftSnapshot(9, 3, Membership((1,))))
    log.restart(9, 3)
    assert (log.first_index, log.last_index, log.last_term, log.persisted, log.handed) == (10, 9, 3, 9, 9)
    assert log.term(9) == 3
    assert log.term(8) is None
