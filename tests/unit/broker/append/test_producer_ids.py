"""Producer ids that a node gives out: each once, in rising order, and known when they come back."""

from __future__ import annotations

import errno

import pytest

from logboom.batch import Producer, build
from logboom.batch.header import ISSUED_END, ISSUED_IDS, own_id
from logboom.broker.api import Appended, Part
from logboom.broker.append.producer_ids import AHEAD, ProducerIds
from logboom.broker.local import LocalBroker
from logboom.errors import ProducerForgotten, SequenceGap, UnknownProducer
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.staged import ROOT, killed, read_log, tell

NOW_MS = 1_800_000_000_000


def opened(disk: SimulatedDisk, now_ms: int = NOW_MS, seen: int = 0) -> ProducerIds:
    ids = ProducerIds.open(disk, ROOT, now_ms, seen)
    ids.reserve()
    return ids


def test_no_id_is_given_twice_whatever_the_clock_says_and_however_often_the_node_starts() -> None:
    disk, given = SimulatedDisk(), list[int]()
    for now_ms in (NOW_MS, NOW_MS - 10**9, 0, NOW_MS + 5):
        ids = opened(disk, now_ms)
        assert not given or ids.highest >= given[-1]
        given += [ids.next() for _ in range(1000)]
        disk.kill()
    assert given == sorted(set(given))
    assert all(ISSUED_IDS <= number < ISSUED_END for number in given)


def test_ids_are_above_all_that_a_log_has_seen_also_where_the_file_is_lost() -> None:
    disk = SimulatedDisk()
    assert opened(disk, 0, ISSUED_IDS + 10**9).next() == ISSUED_IDS + 10**9 + 1
    ids = opened(SimulatedDisk())
    ids.outrun(ids.highest + 10**9)
    assert ids.next() == 0
    ids.reserve()
    assert ids.next() > ISSUED_IDS + 10**9


def test_no_more_ids_are_given_than_the_file_says() -> None:
    disk = SimulatedDisk()
    ids = opened(disk)
    given = [ids.next() for _ in range(AHEAD)]
    assert 0 not in given
    assert ids.is_low
    assert ids.next() == 0

    def fault(call: Call) -> int | None:
        raise OSError(errno.EIO, "injected")

    disk.fault = fault
    with pytest.raises(OSError, match="injected"):
        ids.reserve()
    disk.fault = None
    assert ids.next() == 0
    ids.reserve()
    assert ids.next() > given[-1]


def test_ids_that_others_make_are_none_that_a_node_gives() -> None:
    assert own_id(0) == own_id(1) == 1
    for number in (ISSUED_IDS, ISSUED_END - 1):
        made = own_id(number * 2)
        assert 0 < made < 2**63
        assert not ISSUED_IDS <= made < ISSUED_END
    assert own_id(2 * (ISSUED_IDS - 1)) == ISSUED_IDS - 1


async def send(broker: LocalBroker, producer_id: int, seq: int = 0) -> object:
    (answer,) = await broker.append([Part("t", [build([b"%d" % seq], producer=Producer(producer_id, 0, seq))])])
    return answer


def test_a_producer_that_must_not_go_on_is_given_another_id() -> None:
    disk = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        mine = broker.issue_id()
        assert isinstance(await send(broker, mine), Appended)
        unknown, gap = await send(broker, broker.issue_id(), 5), await send(broker, mine, 7)
        assert isinstance(unknown, UnknownProducer)
        assert isinstance(gap, SequenceGap)
        assert mine < unknown.fresh_id < gap.fresh_id
        foreign = await send(broker, gap.fresh_id + 1000)
        assert isinstance(foreign, ProducerForgotten)
        assert isinstance(await send(broker, foreign.fresh_id), Appended)

    async def again(broker: LocalBroker) -> None:
        assert broker.issue_id() > broker._ids._seen_id()
        assert await read_log(broker, ("t", 0)) == [b"0", b"0"]

    tell(disk, story)
    tell(killed(disk), again)
