"""Single records into batches: what goes together, in which order, and who learns what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.api import Acks, Answer, Appended, Part, ReadRequest
from logboom.broker.append.gatherer import GATHER_RECORDS, Gatherer, Placed, RecordColumns
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.errors import (
    BatchTooLarge,
    ConnectionLost,
    InvalidColumn,
    LogboomError,
    OutcomeUnknown,
    PartitionNotFound,
    RecordsRejected,
    TopicNotFound,
    UnexpectedSeqno,
)
from support.brokers.any_broker import AnyBroker
from support.brokers.memory import MemoryBroker


class Held(MemoryBroker):
    """Keeps no promise before it is told to; refuses batches that hold a bad value."""

    def __init__(self, hold: bool = True) -> None:
        super().__init__(hold)
        self.bad: set[bytes] = set()

    def append(
        self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller = EVERYBODY
    ) -> asyncio.Future[list[Answer]]:
        if not self.bad.intersection(value for value in parts[0].batches[0].values() if value):
            return super().append(parts, acks, caller=caller)
        self.appends.append((parts, acks))
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        refusal: list[Answer] = [RecordsRejected(parts[0].topic, "http://validator", 422, "bad")]
        if self.hold:
            self.held.append((future, refusal))
        else:
            future.set_result(refusal)
        return future

    @property
    def sent(self) -> list[list[bytes | None]]:
        return [parts[0].batches[0].values() for parts, _ in self.appends]

    async def release_all(self) -> None:
        while self.held:
            self.release()
            await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    complaints: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(300):
            await story()

    asyncio.run(watched())
    assert complaints == []


async def held() -> tuple[Held, Gatherer]:
    broker = Held()
    await broker.create_topic("t")
    return broker, Gatherer(broker)


def add(gatherer: Gatherer, *values: bytes, acks: Acks | None = None, **where: Any) -> asyncio.Future[Placed]:
    partition = where.get("partition")
    return gatherer.add(
        where.get("topic", "t"), partition, RecordColumns(list(values)), sum(map(len, values)), acks, caller=EVERYBODY
    )


def test_to_an_idle_log_a_record_goes_at_once_and_what_comes_meanwhile_goes_together() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        places = [add(gatherer, b"0"), add(gatherer, b"1"), add(gatherer, b"2", b"3"), add(gatherer, b"4")]
        assert broker.sent == [[b"0"]]
        await broker.release_all()
        assert broker.sent == [[b"0"], [b"1", b"2", b"3", b"4"]]
        assert [(await place).seqno for place in places] == [0, 1, 2, 4]
        assert [place.result().record_count for place in places] == [1, 1, 2, 1]

    run(story)


def test_logs_do_not_wait_for_each_other() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        await broker.create_topic("u")
        add(gatherer, b"t")
        place = add(gatherer, b"u", topic="u")
        assert broker.sent == [[b"t"], [b"u"]]
        broker.release(1)
        assert (await place).seqno == 0
        await broker.release_all()

    run(story)


def test_a_group_is_full_by_bytes_and_by_records_and_has_one_kind_of_promise() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        add(gatherer, b"first")
        add(gatherer, *[b""] * (GATHER_RECORDS - 1))
        add(gatherer, b"a", b"b")
        add(gatherer, bytes(1024 * 1024))
        add(gatherer, b"c", acks="leader")
        add(gatherer, b"d", acks="leader")
        add(gatherer, b"e")
        await broker.release_all()
        assert [len(values) for values in broker.sent] == [1, GATHER_RECORDS - 1, 2, 1, 2, 1]
        assert [acks for _, acks in broker.appends] == [None, None, None, None, "leader", None]

    run(story)


def test_a_batch_holds_records_of_callers_who_are_alike_and_goes_in_the_name_of_the_first() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        ann = [Caller("ann", protocol="logd", address=f"127.0.0.1:{port}") for port in (1, 2)]
        bob = Caller("bob")
        first = add(gatherer, b"0")
        given = ((b"1", ann[0]), (b"2", ann[1]), (b"3", bob), (b"4", ann[0]))
        later = [gatherer.add("t", None, RecordColumns([value]), 1, caller=caller) for value, caller in given]
        await broker.release_all()
        assert broker.sent == [[b"0"], [b"1", b"2"], [b"3"], [b"4"]]
        assert broker.callers == [EVERYBODY, ann[0], bob, ann[0]]
        assert [(await placed).seqno for placed in (first, *later)] == [0, 1, 2, 3, 4]

    run(story)


def test_columns_that_some_have_and_others_lack_are_filled_up() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        add(gatherer, b"first")
        gatherer.add("t", None, RecordColumns([b"a", None], keys=[b"k", None], tags=[["x"], []]), 2, caller=EVERYBODY)
        gatherer.add(
            "t",
            None,
            RecordColumns([b"b"], timestamps=[5], channels=["c"], headers=[[("h", b"v")]]),
            2,
            caller=EVERYBODY,
        )
        await broker.release_all()
        (parts, _) = broker.appends[1]
        batch = parts[0].batches[0]
        assert (batch.values(), batch.keys()) == ([b"a", None, b"b"], [b"k", None, None])
        assert (batch.tags(), batch.channels()) == ([("x",), (), ()], [None, None, "c"])
        assert batch.headers() == [(), (), (("h", b"v"),)]
        assert batch.timestamps()[2] == 5

    run(story)


def test_one_that_cannot_become_part_of_a_batch_spoils_nobody_elses() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        places = [add(gatherer, b"0"), add(gatherer, b"1")]
        broken = gatherer.add("t", None, RecordColumns([b"x"], channels=["\ud800"]), 1, caller=EVERYBODY)
        wrong: Any = [3.5]
        worse = gatherer.add("t", None, RecordColumns(wrong), 1, caller=EVERYBODY)
        places.append(add(gatherer, b"2"))
        await broker.release_all()
        assert [(await place).seqno for place in places] == [0, 1, 2]
        with pytest.raises(InvalidColumn):
            await broken
        with pytest.raises(LogboomError):
            await worse

    run(story)


def test_one_that_is_refused_for_what_it_holds_spoils_nobody_elses_and_the_order_is_kept() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        broker.bad = {b"4", b"7"}
        places = [add(gatherer, b"%d" % number) for number in range(10)]
        await broker.release_all()
        outcomes = await asyncio.gather(*places, return_exceptions=True)
        assert [number for number in (4, 7) if isinstance(outcomes[number], RecordsRejected)] == [4, 7]
        assert [outcome.seqno for outcome in outcomes if isinstance(outcome, Placed)] == list(range(8))

    run(story)


def test_a_group_that_is_too_large_for_the_node_is_sent_in_pieces(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(limits=Limits(batch_bytes=4096)))
        gatherer = Gatherer(broker)
        places = [add(gatherer, bytes(1500)) for _ in range(20)]
        large = add(gatherer, bytes(5000))
        assert [(await place).seqno for place in places] == list(range(20))
        with pytest.raises(BatchTooLarge):
            await large
        await broker.close()

    run(story)


def test_what_must_stand_alone_comes_after_everything_added_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        gatherer = Gatherer(broker)
        places = [add(gatherer, b"%d" % number) for number in range(5)]
        alone = gatherer.append_alone("t", None, build([b"alone"]), None, expect_seqno=5, caller=EVERYBODY)
        stale = gatherer.append_alone("t", None, build([b"stale"]), None, expect_seqno=5, caller=EVERYBODY)
        last = add(gatherer, b"last")
        (answer,) = await alone
        assert isinstance(answer, Appended)
        assert answer.base_seqno == 5
        assert isinstance((await stale)[0], UnexpectedSeqno)
        assert [(await place).seqno for place in [*places, last]] == [0, 1, 2, 3, 4, 6]
        await broker.close()

    run(story)


def test_what_must_stand_alone_waits_for_those_that_are_sent_again_in_pieces() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        broker.bad = {b"bad"}
        places = [add(gatherer, value) for value in (b"0", b"1", b"bad", b"2")]
        alone = [gatherer.append_alone("t", None, build([value]), None, caller=EVERYBODY) for value in (b"3", b"4")]
        last = add(gatherer, b"5")
        await broker.release_all()
        outcomes = await asyncio.gather(*places, *alone, last, return_exceptions=True)
        assert isinstance(outcomes.pop(2), RecordsRejected)
        taken = [values for values in broker.sent if b"bad" not in values]
        assert taken == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]
        assert not any(isinstance(outcome, BaseException) for outcome in outcomes)

    run(story)


def test_who_stands_alone_learns_of_every_kind_of_failure() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        await broker.create_topic("u")
        add(gatherer, b"0")
        given_up, gone = [gatherer.append_alone("t", None, build([b"x"]), None, caller=EVERYBODY) for _ in range(2)]
        gone.cancel()
        broker.release()
        while not broker.held:
            await asyncio.sleep(0)
        broker.held.pop(0)[0].cancel()
        await broker.release_all()
        with pytest.raises(OutcomeUnknown):
            await given_up
        add(gatherer, b"1")
        failed = gatherer.append_alone("t", None, build([b"x"]), None, caller=EVERYBODY)

        def append(
            parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller = EVERYBODY
        ) -> asyncio.Future[list[Answer]]:
            raise ConnectionLost("gone")

        broker.append = append  # type: ignore[method-assign]
        await broker.release_all()
        with pytest.raises(ConnectionLost):
            await failed

    run(story)


async def partitions_of(broker: AnyBroker, topic: str) -> list[list[bytes | None]]:
    found = []
    for info in (await broker.describe_topic(topic)).partitions:
        chunk = await broker.read(ReadRequest(topic, partition=info.partition))
        found.append([record.value for record in chunk.records()])
    return found


def test_without_a_partition_records_go_to_any_and_with_one_there(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        await broker.create_topic("t", 3)
        gatherer = Gatherer(broker)
        places = await asyncio.gather(*[add(gatherer, b"%d" % number) for number in range(30)])
        assert {place.partition for place in places} == {0, 1, 2}
        assert (await add(gatherer, b"there", partition=2)).partition == 2
        found = await partitions_of(broker, "t")
        for number, place in enumerate(places):
            assert found[place.partition][place.seqno] == b"%d" % number
        with pytest.raises(PartitionNotFound):
            await add(gatherer, b"nowhere", partition=3)
        await broker.close()

    run(story)


def test_a_topic_made_anew_with_fewer_partitions_is_noticed(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        gatherer = Gatherer(broker)
        for partitions in (5, 1, 3, 2):
            await broker.create_topic("t", partitions)
            places = await asyncio.gather(*[add(gatherer, b"x") for _ in range(10)])
            assert {place.partition for place in places} == set(range(partitions))
            await broker.delete_topic("t")
        await broker.close()

    run(story)


def test_everyone_of_a_group_learns_why_it_failed_and_the_next_group_goes_on() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        places = [add(gatherer, b"0", topic="nothing"), add(gatherer, b"1", topic="nothing")]
        await broker.release_all()
        for place in places:
            with pytest.raises(TopicNotFound):
                await place
        first, second = add(gatherer, b"2"), add(gatherer, b"3")
        future, _ = broker.held.pop()
        future.cancel()
        while not broker.held:
            await asyncio.sleep(0)
        await broker.release_all()
        with pytest.raises(OutcomeUnknown):
            await first
        assert (await second).record_count == 1

    run(story)


def test_a_broker_that_raises_fails_the_group_and_nothing_else() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        first, second = add(gatherer, b"0"), add(gatherer, b"1")
        usual = broker.append

        def append(
            parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller = EVERYBODY
        ) -> asyncio.Future[list[Answer]]:
            raise ConnectionLost("gone")

        broker.append = append  # type: ignore[method-assign]
        await broker.release_all()
        assert (await first).seqno == 0
        with pytest.raises(ConnectionLost):
            await second
        broker.append = usual  # type: ignore[method-assign]
        third = add(gatherer, b"2")
        await broker.release_all()
        assert (await third).seqno == 1

    run(story)


def test_who_added_may_go_away_and_nobody_complains() -> None:
    async def story() -> None:
        broker, gatherer = await held()
        broker.bad = {b"1"}
        add(gatherer, b"0").cancel()
        add(gatherer, b"1")
        last = add(gatherer, b"2")
        await broker.release_all()
        assert (await last).seqno == 1

    run(story)
