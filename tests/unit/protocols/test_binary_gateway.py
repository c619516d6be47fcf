"""The front-end knows a Broker and nothing of what is behind it: one with files, or another node far away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from logboom.batch import Producer, build
from logboom.broker.api import (
    Appended,
    Filter,
    GroupJoin,
    GroupMove,
    Part,
    ReadRequest,
    Settlement,
    Start,
    TakeJobs,
)
from logboom.broker.local import LocalBroker
from logboom.client.remote import RemoteBroker, connect
from logboom.errors import (
    InvalidBookmark,
    InvalidPattern,
    InvalidTopicName,
    PartitionNotFound,
    SeqnoOutOfRange,
    TopicNotFound,
    TopicRecreated,
    UnexpectedSeqno,
)
from support.peers.binary import serve
from support.peers.served import run


@asynccontextmanager
async def through(gateways: int, path: Path) -> AsyncIterator[RemoteBroker]:
    """A client's broker, behind so many front-ends with a connection between each two."""
    local = await LocalBroker.open(str(path))
    try:
        async with serve(local) as node, connect(f"127.0.0.1:{node.port}") as broker:
            if gateways == 1:
                yield broker
            else:
                async with serve(broker) as gateway, connect(f"127.0.0.1:{gateway.port}") as behind:
                    yield behind
    finally:
        await local.close()


def test_a_member_says_more_at_once_than_the_head_of_a_frame_has_room_for(tmp_path: Path) -> None:
    async def story() -> None:
        many, member = 2_000, "member-0123456789"
        async with through(1, tmp_path) as broker:
            topic = await broker.create_topic("events", 1)
            await broker.append([Part("events", [build([b"x"] * many)])], "durable")
            (grant,) = (await broker.join_group(GroupJoin("readers", member, "events"))).grants
            places = await broker.locate(ReadRequest("events", Start(at="latest"), whole=True))
            moves = [GroupMove("events", 0, str(places[0].bookmark), grant.generation)] * many
            assert await broker.commit_group("readers", member, moves) == []
            await broker.join_group(GroupJoin("workers", member, "events", mode="queue"))
            await broker.take_jobs(TakeJobs("workers", member, many))
            one_by_one = [Settlement(topic.id, 0, seqno, seqno + 1) for seqno in range(0, many, 2)]
            again = [Settlement(topic.id, 0, seqno, seqno + 1) for seqno in range(0, many, 2)]
            assert await broker.settle_jobs("workers", member, one_by_one + again) == []
            (log,) = (await broker.describe_group("workers")).logs
            assert log.in_flight == many // 2

    run(story())


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_broker_is_the_same_through_any_number_of_front_ends(gateways: int, tmp_path: Path) -> None:
    async def story() -> None:
        async with through(gateways, tmp_path) as broker:
            topic = await broker.create_topic("events", 2)
            assert [partition.committed for partition in topic.partitions] == [0, 0]
            batches = [build([b"a", b"b"], producer=Producer(7, 0, 0)), build([b"c"], producer=Producer(7, 0, 2))]
            first = await broker.append([Part("events", batches, 1)], "durable")
            assert [answer.base_seqno for answer in first if isinstance(answer, Appended)] == [0, 2]
            again = await broker.append([Part("events", batches, 1)], "leader")
            assert again == [replace(answer, repeat=True) for answer in first if isinstance(answer, Appended)]
            chunk = await broker.read(ReadRequest("events", partition=1))
            assert [record.value for record in chunk.records()] == [b"a", b"b", b"c"]
            assert (chunk.next_seqno, chunk.at_end) == (3, True)

            subscription = await broker.subscribe(ReadRequest("events", Start(bookmark=chunk.bookmark), 1))
            await broker.append([Part("events", [build([b"d"])], 1)], "durable")
            assert [record.value for record in (await subscription.next()).records()] == [b"d"]
            await subscription.close()

            await broker.commit_cursor("reader", "events", 1, chunk.bookmark)
            assert await broker.fetch_cursor("reader", "events", 1) == chunk.bookmark
            assert (await broker.stats()).writes["records"] >= 4
            await broker.delete_topic("events")
            assert await broker.list_topics() == []

    run(story())


@pytest.mark.parametrize("gateways", [1, 2])
def test_errors_are_the_same_through_any_number_of_front_ends(gateways: int, tmp_path: Path) -> None:
    async def story() -> None:
        async with through(gateways, tmp_path) as broker:
            await broker.create_topic("events", 2)
            with pytest.raises(TopicNotFound) as missing:
                await broker.read(ReadRequest("nothing"))
            assert missing.value.name == "nothing"
            with pytest.raises(PartitionNotFound) as several:
                await broker.read(ReadRequest("events"))
            assert several.value.partitions == 2
            (answer,) = await broker.append([Part("events", [build([b"a"])], 0, expect_seqno=5)])
            assert isinstance(answer, UnexpectedSeqno)
            assert (answer.expected, answer.next_seqno) == (5, 0)
            subscription = await broker.subscribe(ReadRequest("nothing"))
            with pytest.raises(TopicNotFound):
                await subscription.next()

    run(story())


def test_what_is_wrong_with_a_request_is_named_and_no_fault_of_the_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with through(1, tmp_path) as broker:
            await broker.create_topic("events")
            for error, call in (
                (InvalidTopicName, broker.create_topic("a/b")),
                (SeqnoOutOfRange, broker.trim("events", 0, -1)),
                (PartitionNotFound, broker.trim("events", 7, 0)),
                (InvalidBookmark, broker.commit_cursor("c", "events", 0, "nonsense")),
                (SeqnoOutOfRange, broker.read(ReadRequest("events", Start(seqno=-5)))),
                (SeqnoOutOfRange, broker.read(ReadRequest("events", Start(seqno=2**63 + 1)))),
                (InvalidBookmark, broker.read(ReadRequest("events", Start(bookmark="1x")))),
                (TopicRecreated, broker.read(ReadRequest("events", topic_id="x"))),
                (InvalidPattern, broker.read(ReadRequest("events", filter=Filter(channel="a/#/b")))),
            ):
                with pytest.raises(error):
                    await call

    run(story())


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_name_that_is_nearly_right_is_suggested_through_any_number_of_front_ends(
    gateways: int, tmp_path: Path
) -> None:
    async def story() -> None:
        async with through(gateways, tmp_path) as broker:
            for name in ("orders", "payments"):
                await broker.create_topic(name)
            with pytest.raises(
                TopicNotFound, match=r"there is no topic 'ordres' in this node: did you mean 'orders'\?"
            ):
                await broker.read(ReadRequest("ordres"))
            with pytest.raises(TopicNotFound) as raised:
                await broker.describe_topic("paymnets")
            assert list(raised.value.near) == ["payments"]
            with pytest.raises(TopicNotFound, match=r"in this node$"):
                await broker.describe_topic("publish")

    run(story())
