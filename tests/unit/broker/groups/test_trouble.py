"""Groups when things go wrong: who keeps what he is asked for, nodes that were paused, full disks, take-overs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Part, Start
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN
from logboom.broker.world import World
from logboom.errors import LimitExceeded, LogboomError
from logboom.storage.bookmark import Bookmark
from support.brokers.group_member import GroupMember
from support.disks.simulated import Call, SimulatedDisk

Story = Callable[[LocalBroker], Awaitable[None]]


class Clock:
    """The real one, which jumps where a machine was stopped."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


def tell(path: Path, *stories: Story, clock: Clock | None = None, config: BrokerConfig | None = None) -> None:
    """Each with the node begun anew on the same directory."""

    async def run(story: Story) -> None:
        async with asyncio.timeout(300):
            world = World(monotonic_s=clock or Clock())
            broker = await LocalBroker.open(str(path), config, world=world, rules=OPEN)
            try:
                await story(broker)
            finally:
                await broker.close()

    path.mkdir(exist_ok=True)
    for story in stories:
        asyncio.run(run(story))


def test_a_node_goes_on_after_it_has_taken_a_log_from_a_member_that_says_nothing_more(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 2)
        ann = await GroupMember(broker, "ann", give_back_ms=100).join()
        bob = await GroupMember(broker, "bob").join()
        ann.keeps = True
        await ann.beat()
        while not bob.logs:
            await bob.beat(100)
        for _ in range(5):
            await asyncio.sleep(0.01)

    tell(tmp_path / "data", story)


def test_the_time_a_node_was_stopped_is_not_counted(tmp_path: Path) -> None:
    clock = Clock()

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 2)
        ann = await GroupMember(broker, "ann", session_ms=30_000, give_back_ms=30_000).join()
        ann.keeps = True
        bob = await GroupMember(broker, "bob", session_ms=30_000).join()
        await ann.beat()
        for _ in range(3):
            clock.ahead_s += 100
            await asyncio.sleep(1)
        await ann.beat()
        await bob.beat()
        assert (len(ann.logs), len(bob.logs)) == (2, 0)

    tell(tmp_path / "data", story, clock=clock)


def test_who_is_silent_while_the_node_listens_is_out(tmp_path: Path) -> None:
    clock = Clock()

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 1)
        await GroupMember(broker, "ann", session_ms=2_000).join()
        clock.ahead_s += 100
        while (await broker.describe_group("billing")).members:
            await asyncio.sleep(0.01)

    tell(tmp_path / "data", story, clock=clock)


def test_what_cannot_be_written_down_is_tried_again_and_the_node_serves_on() -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        broker = await LocalBroker.open("/data", disk=disk, rules=OPEN)
        await broker.create_topic("rooms", 2)
        ann = await GroupMember(broker, "ann", session_ms=500).join()
        bob = await GroupMember(broker, "bob").join()
        topic = (await broker.describe_topic("_groups")).id
        is_full, refused = True, 0

        def fail(call: Call) -> int | None:
            nonlocal refused
            if is_full and call.name == "write" and topic in call.path:
                refused += 1
                raise OSError(28, "No space left on device")
            return None

        disk.fault = fail
        while not refused:
            await asyncio.sleep(0.05)
        await bob.beat()
        assert bob.logs == []
        with pytest.raises(LogboomError):
            await GroupMember(broker, "cid").join()
        is_full = False
        while len(bob.logs) < 2:
            await bob.beat(1_000)
        assert refused < 50
        assert ann.member not in [each.member for each in (await broker.describe_group("billing")).members]
        await broker.close()

    asyncio.run(asyncio.wait_for(story(), 300))


def test_a_topic_that_came_when_the_node_ended_is_shared_after_its_start(tmp_path: Path) -> None:
    members: list[GroupMember] = []

    async def before(broker: LocalBroker) -> None:
        await broker.create_topic("orders.eu", 1)
        members.append(await GroupMember(broker, "ann", topics="orders.*").join())
        broker._its_groups().end()  # what comes now it does not see
        await broker.create_topic("orders.us", 1)

    async def after(broker: LocalBroker) -> None:
        (ann,) = members
        ann.broker = broker
        while ("orders.us", 0) not in ann.logs:
            await ann.beat(100)

    tell(tmp_path / "data", before, after)


def test_a_join_that_is_refused_leaves_neither_group_nor_places(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 2)
        await GroupMember(broker, "ann").join()
        for number in range(3):
            with pytest.raises(LimitExceeded, match=r"limits\.groups"):
                await GroupMember(broker, "bob", group=f"other-{number}", start=Start(at="latest")).join()
        assert [info.group for info in await broker.list_groups()] == ["billing"]
        assert await broker.list_cursors() == []

    tell(tmp_path / "data", story, config=BrokerConfig(limits=Limits(groups=1)))


def test_who_joins_at_the_end_does_not_move_a_place_over_what_somebody_reads(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 1)
        await broker.append([Part("rooms", [build([b"a", b"b", b"c"])])])
        ann = await GroupMember(broker, "ann").join()
        bob = await GroupMember(broker, "bob", start=Start(at="latest")).join()
        assert await ann.commit(1) == []
        await ann.leave()
        await bob.beat()
        assert Bookmark.parse(bob.grants["rooms", 0].bookmark or "").seqno == 1

    tell(tmp_path / "data", story)


def test_an_instance_comes_back_into_a_group_that_is_full(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 2)
        await GroupMember(broker, "ann", instance="one").join()
        await GroupMember(broker, "bob").join()
        with pytest.raises(LimitExceeded, match=r"limits\.group_members"):
            await GroupMember(broker, "cid").join()
        again = await GroupMember(broker, "ann-again", instance="one").join()
        assert len(again.standing.grants) == 2

    tell(tmp_path / "data", story, config=BrokerConfig(limits=Limits(group_members=2)))


def test_what_members_of_one_group_want_is_bounded(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("rooms", 1)
        many = ",".join(f"nothing.{number:040}.*" for number in range(900))
        await GroupMember(broker, "ann", topics=f"rooms,{many}").join()
        with pytest.raises(LimitExceeded, match="topics"):
            await GroupMember(broker, "bob", topics=f"rooms,x*,{many}").join()

    tell(tmp_path / "data", story)
