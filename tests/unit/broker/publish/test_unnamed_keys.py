"""Names that do not last: any number of them, in bounded room, and nothing is published twice."""

from __future__ import annotations

import asyncio
import errno
import random
from itertools import islice

import pytest

from logboom.broker.api import Publication, PublishKey, Receipt
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.publish.unnamed_keys import UnnamedKeys
from logboom.errors import LimitExceeded, LogboomError, OutcomeUnknown
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.internal import open_state
from support.simulation.staged import Machine, fill, killed, publish_values, read_log, tell

A0 = ("a", 0)
KEPT = 8
CONFIG = BrokerConfig(Limits(publish_keys=KEPT), reserve_bytes=0)


def name(number: int) -> str:
    return f"{number:032x}"


def test_a_million_names_take_no_more_room_than_the_newest_do() -> None:
    keys = UnnamedKeys(20_000)
    for number in range(1_000_000):
        keys.note(name(number))
        if keys.is_crowded:
            for old in keys.surplus():
                keys.drop(old)
        assert len(keys) <= 20_000
    assert name(999_999) in keys
    assert name(999_999 - 18_000) in keys
    assert name(0) not in keys


def test_very_many_changes_leave_a_log_and_a_snapshot_of_what_is_kept() -> None:
    """What very many publishes say to the log behind the keys, a thousand at a time."""

    async def story() -> None:
        disk, kept = SimulatedDisk(), 1_000
        backing, state = open_state(disk, limit=4 * kept, snapshot_bytes=100_000)
        for start in range(0, 60_000, 1_000):
            fresh = {name(number).encode(): b"x" * 20 for number in range(start, start + 1_000)}
            old = dict.fromkeys(key for key, _ in islice(state.items(), max(0, len(state) - kept)))
            await state.put({**old, **fresh})
            while state._saving is not None:  # a thread that gets no turn would let the log grow meanwhile
                await asyncio.sleep(0.001)
        await state.close()
        assert len(state) <= 2 * kept
        sizes = [len(inode.cached) for path, inode in disk.names.items()]
        assert sum(sizes) < 2_000_000
        disk.kill()
        backing.data.close()
        _, again = open_state(disk, limit=2 * kept)
        assert dict(again.items()) == dict(state.items())

    asyncio.run(story())


def prepared() -> SimulatedDisk:
    disk = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("a")
        await broker.create_topic("b")

    tell(disk, story, CONFIG)
    return killed(disk)


async def publish_many(broker: LocalBroker, start: int, stop: int) -> list[Receipt]:
    receipts = []
    for number in range(start, stop):
        _, receipt = await fill(broker, {A0: [b"%d" % number]})
        await broker.publish(PublishKey(name(number), 0, False), [receipt])
        receipts.append(receipt)
    return receipts


async def quiet(broker: LocalBroker) -> None:
    """Until what was to be forgotten is."""
    assert broker._publishing is not None
    while broker._publishing.keys._chores:
        await asyncio.wait(broker._publishing.keys._chores)


async def repeat_all(broker: LocalBroker, receipts: list[Receipt]) -> list[Publication | LogboomError]:
    answers: list[Publication | LogboomError] = []
    for number, receipt in enumerate(receipts):
        try:
            answers.append(await broker.publish(PublishKey(name(number), 0, False), [receipt]))
        except OutcomeUnknown as error:
            answers.append(error)
    return answers


def check(answers: list[Publication | LogboomError]) -> None:
    """The newest are known, those before are not; none is published, and none is told that it was not."""
    for answer in answers:
        assert isinstance(answer, OutcomeUnknown) or (isinstance(answer, Publication) and answer.repeat), answer
    assert all(isinstance(answer, Publication) for answer in answers[-KEPT // 2 :])
    assert isinstance(answers[0], OutcomeUnknown)


def test_transactions_without_a_name_never_stop_and_are_never_published_twice() -> None:
    disk, receipts = prepared(), list[Receipt]()
    expected = [b"%d" % number for number in range(60)]

    async def story(broker: LocalBroker) -> None:
        for number in range(KEPT):
            await publish_values(broker, PublishKey(f"named{number}", 3), {("b", 0): [b"x"]})
        receipts.extend(await publish_many(broker, 0, 60))
        await quiet(broker)
        keys = await broker.list_keys()
        assert len(keys) <= 2 * KEPT
        assert sum(info.expires is None for info in keys) == KEPT
        check(await repeat_all(broker, receipts))
        assert await read_log(broker, A0) == expected
        with pytest.raises(LimitExceeded):
            await publish_values(broker, PublishKey("one-more"), {A0: [b"x"]})

    async def again(broker: LocalBroker) -> None:
        check(await repeat_all(broker, receipts))
        assert await read_log(broker, A0) == expected
        assert (await publish_values(broker, PublishKey("named0", 3), {A0: [b"x"]})).repeat
        await publish_many(broker, 60, 62)

    tell(disk, story, CONFIG)
    for seed in range(8):
        tell(disk.power_loss(random.Random(seed)), again, CONFIG)
    tell(killed(disk), again, CONFIG)


def test_a_name_is_not_forgotten_before_its_stages_are_gone_for_good() -> None:
    disk, receipts = prepared(), list[Receipt]()
    expected = [b"%d" % number for number in range(2 * KEPT)]

    def fault(call: Call) -> int | None:
        if call.name == "unlink" and "/staging/" in call.path:
            raise OSError(errno.EIO, "injected", call.path)
        return None

    async def story(broker: LocalBroker) -> None:
        receipts.extend(await publish_many(broker, 0, 2 * KEPT))
        await quiet(broker)
        assert len(await broker.list_keys()) == 2 * KEPT
        with pytest.raises(LimitExceeded):
            await publish_many(broker, 2 * KEPT, 2 * KEPT + 1)

    async def again(broker: LocalBroker) -> None:
        check_none_anew(await repeat_all(broker, receipts))
        assert await read_log(broker, A0) == expected
        await publish_many(broker, 100, 100 + 3 * KEPT)
        await quiet(broker)
        assert len(await broker.list_keys()) <= KEPT
        check_none_anew(await repeat_all(broker, receipts))
        assert (await read_log(broker, A0))[: len(expected)] == expected

    Machine(disk, fault).run(story, CONFIG)
    for seed in range(4):
        tell(disk.power_loss(random.Random(seed)), again, CONFIG)
    tell(killed(disk), again, CONFIG)


def check_none_anew(answers: list[Publication | LogboomError]) -> None:
    assert all(isinstance(answer, OutcomeUnknown) or answer.repeat for answer in answers)  # type: ignore[union-attr]


def test_a_name_that_lasts_stays_so_whatever_a_later_publish_says() -> None:
    async def story(broker: LocalBroker) -> None:
        await publish_values(broker, PublishKey("orders", 1), {A0: [b"1"]})
        await publish_values(broker, PublishKey("orders", 2, False), {A0: [b"2"]})
        await publish_many(broker, 0, 4 * KEPT)
        await quiet(broker)
        assert (await publish_values(broker, PublishKey("orders", 2), {A0: [b"2"]})).repeat

    tell(prepared(), story, CONFIG)


def test_a_publish_without_stages_and_without_a_name_is_nothing_however_often_it_is_said() -> None:
    async def story(broker: LocalBroker) -> None:
        for number in range(4 * KEPT):
            await broker.publish(PublishKey(name(number), 0, False), [])
        await quiet(broker)
        assert len(await broker.list_keys()) <= KEPT
        assert not (await broker.publish(PublishKey(name(0), 0, False), [])).repeat
        assert await read_log(broker, A0) == []

    tell(prepared(), story, CONFIG)
