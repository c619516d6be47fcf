"""Groups of a broker: who gets which log, how logs move, whose commits count, what survives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.api import GroupDescription, Part, ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN
from logboom.errors import (
    CursorNotFound,
    GroupBusy,
    GroupMismatch,
    GroupNotFound,
    InvalidGroup,
    InvalidPattern,
    LimitExceeded,
    LogboomError,
    MemberUnknown,
    SeqnoOutOfRange,
    TopicNotFound,
)
from logboom.storage.bookmark import Bookmark
from support.brokers.group_member import GroupMember

Story = Callable[[LocalBroker], Awaitable[None]]


def tell(path: Path, *stories: Story, config: BrokerConfig | None = None) -> None:
    """Each with the node begun anew on the same directory."""

    async def run(story: Story) -> None:
        async with asyncio.timeout(300):
            broker = await LocalBroker.open(str(path), config, rules=OPEN)
            try:
                await story(broker)
            finally:
                await broker.close()

    path.mkdir(exist_ok=True)
    for story in stories:
        asyncio.run(run(story))


async def rooms(broker: LocalBroker, partitions: int = 4, records: int = 10, name: str = "rooms") -> None:
    await broker.create_topic(name, partitions)
    for partition in range(partitions):
        values = [b"%d" % number for number in range(records)]
        await broker.append([Part(name, [build(values)], partition)])


async def settle(*members: GroupMember) -> None:
    """Until nothing more is asked back."""
    for _ in range(10):
        for member in members:
            await member.beat()
    assert not any(grant.is_asked_back for member in members for grant in member.standing.grants)


def all_logs(*members: GroupMember) -> list[tuple[str, int]]:
    return sorted(log for member in members for log in member.logs)


async def describe(broker: LocalBroker) -> GroupDescription:
    return await broker.describe_group("billing")


def test_one_member_has_all_logs_and_two_share_them(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        ann = await GroupMember(broker, "ann").join()
        assert ann.logs == [("rooms", number) for number in range(4)]
        bob = await GroupMember(broker, "bob").join()
        assert bob.logs == []  # nobody has given anything back yet
        before = {log: grant.generation for log, grant in ann.grants.items()}
        await ann.beat()
        assert len(ann.logs) == 2
        assert {ann.grants[log].generation for log in ann.logs} == {before[log] for log in ann.logs}
        await ann.beat()
        await bob.beat()
        assert all_logs(ann, bob) == [("rooms", number) for number in range(4)]
        assert len(bob.logs) == 2
        assert min(grant.generation for grant in bob.grants.values()) > max(before.values())

    tell(tmp_path / "data", story)


def test_a_log_stays_with_its_holder_until_he_gives_it_back(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        ann = await GroupMember(broker, "ann").join()
        ann.keeps = True
        bob = await GroupMember(broker, "bob").join()
        for _ in range(3):
            await ann.beat()
            await bob.beat()
        assert bob.logs == []
        assert await ann.commit(5, partition=1) == []
        ann.keeps = False
        await ann.beat()
        await bob.beat()
        assert len(bob.logs) == len(ann.logs) == 1

    tell(tmp_path / "data", story)


def test_whoever_waits_is_told_at_once_of_what_is_new_to_him(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        ann = await GroupMember(broker, "ann").join()
        waiting = asyncio.create_task(ann.beat(60_000))
        bob = await GroupMember(broker, "bob").join()
        await waiting
        assert len(ann.logs) == 1
        waiting = asyncio.create_task(bob.beat(60_000))
        await ann.beat()
        await waiting
        assert len(bob.logs) == 1

    tell(tmp_path / "data", story)


def test_a_log_that_is_not_given_back_in_time_is_taken_and_its_holder_commits_no_more(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        ann = await GroupMember(broker, "ann", give_back_ms=200).join()
        old = dict(ann.grants)
        ann.keeps = True
        bob = await GroupMember(broker, "bob").join()
        await ann.beat()
        while not bob.logs:
            await bob.beat(1000)
        (lost,) = bob.logs
        (refused,) = await ann.commit_as(old[lost], 5)
        assert refused.code == "log-not-held"
        await ann.beat()
        assert len(ann.logs) == 1
        assert await ann.commit(5, partition=ann.logs[0][1]) == []

    tell(tmp_path / "data", story)


def test_a_holder_that_is_silent_after_a_log_was_taken_holds_up_nobody(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        ann = await GroupMember(broker, "ann", give_back_ms=300).join()
        bob = await GroupMember(broker, "bob").join()
        ann.keeps = True
        await ann.beat()
        await bob.beat(wait_ms=60_000)
        assert len(bob.logs) == 1
        for _ in range(3):
            await asyncio.sleep(0.05)  # others have their turn, and the node does not look at the group again and again
        assert len((await describe(broker)).members) == 2

    tell(tmp_path / "data", story)


def test_time_to_give_back_begins_when_the_member_is_told(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        ann = await GroupMember(broker, "ann", give_back_ms=100).join()
        bob = await GroupMember(broker, "bob").join()
        await asyncio.sleep(0.3)
        await bob.beat()
        assert bob.logs == []
        (first, second) = (await describe(broker)).logs
        assert first.member == second.member == ann.member

    tell(tmp_path / "data", story)


def test_who_is_silent_for_too_long_is_out_and_the_others_have_his_logs(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        ann = await GroupMember(broker, "ann", session_ms=500).join()
        bob = await GroupMember(broker, "bob").join()
        await settle(ann, bob)
        kept = dict(bob.grants)
        while len(bob.logs) < 4:
            await bob.beat(10_000)
        assert {log: bob.grants[log] for log in kept} == kept
        with pytest.raises(MemberUnknown):
            await ann.beat()
        with pytest.raises(MemberUnknown):
            await ann.commit(1, partition=ann.logs[0][1])
        await ann.join()
        await settle(ann, bob)
        assert len(ann.logs) == len(bob.logs) == 2

    tell(tmp_path / "data", story)


def test_who_leaves_is_gone_at_once(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        ann, bob = await GroupMember(broker, "ann").join(), await GroupMember(broker, "bob").join()
        await settle(ann, bob)
        waiting = asyncio.create_task(bob.beat(60_000))
        await ann.leave()
        await waiting
        assert len(bob.logs) == 4
        with pytest.raises(MemberUnknown):
            await ann.leave()

    tell(tmp_path / "data", story)


def test_an_instance_that_comes_back_takes_over_its_logs_and_nobody_elses_move(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        ann = await GroupMember(broker, "ann", instance="one").join()
        bob = await GroupMember(broker, "bob").join()
        await settle(ann, bob)
        kept, hers = dict(bob.grants), ann.logs
        await ann.leave()  # which keeps its place
        again = await GroupMember(broker, "ann-again", instance="one").join()
        assert again.logs == hers
        assert min(again.grants[log].generation - ann.grants[log].generation for log in hers) > 0
        await bob.beat()
        assert bob.grants == kept
        with pytest.raises(MemberUnknown):
            await ann.beat()

    tell(tmp_path / "data", story)


def test_an_instance_and_a_member_are_not_taken_from_another_user(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        await GroupMember(broker, "ann", instance="one", caller=Caller("ann")).join()
        eve = Caller("eve")
        for other in (
            GroupMember(broker, "eve", instance="one", caller=eve),
            GroupMember(broker, "ann", caller=eve),
        ):
            with pytest.raises(InvalidGroup, match="another user's"):
                await other.join()
            with pytest.raises(MemberUnknown):
                await other.beat()

    tell(tmp_path / "data", story)


def test_commits_are_the_groups_place_wherever_a_log_goes(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        ann = await GroupMember(broker, "ann").join()
        assert ann.grants["rooms", 0].bookmark is None
        assert await ann.commit(7) == []
        await ann.leave()
        bob = await GroupMember(broker, "bob").join()
        assert Bookmark.parse(bob.grants["rooms", 0].bookmark or "").seqno == 7
        (refused,) = await bob.commit(3)
        assert refused.code == "cursor-moved-back"

    tell(tmp_path / "data", story)


def test_members_generations_and_places_survive_a_restart(tmp_path: Path) -> None:
    members: list[GroupMember] = []

    async def before(broker: LocalBroker) -> None:
        await rooms(broker)
        ann, bob = await GroupMember(broker, "ann").join(), await GroupMember(broker, "bob").join()
        await settle(ann, bob)
        await ann.commit(4, partition=ann.logs[0][1])
        members.extend((ann, bob))

    async def after(broker: LocalBroker) -> None:
        for member in members:
            grants, member.broker = dict(member.grants), broker
            await member.beat()
            assert member.logs == sorted(grants)
            assert {log: grant.generation for log, grant in member.grants.items()} == {
                log: grant.generation for log, grant in grants.items()
            }
        ann = members[0]
        assert await ann.commit(5, partition=ann.logs[0][1]) == []
        assert Bookmark.parse((await ann.beat()).grants[ann.logs[0]].bookmark or "").seqno == 5

    tell(tmp_path / "data", before, after)


def test_topics_that_come_and_go_are_shared_and_given_up(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1, name="orders.eu")
        ann = await GroupMember(broker, "ann", topics="orders.*").join()
        waiting = asyncio.create_task(ann.beat(60_000))
        await rooms(broker, 2, name="orders.us")
        await waiting
        assert ann.logs == [("orders.eu", 0), ("orders.us", 0), ("orders.us", 1)]
        waiting = asyncio.create_task(ann.beat(60_000))
        await broker.delete_topic("orders.eu")
        await waiting
        assert ann.logs == [("orders.us", 0), ("orders.us", 1)]

    tell(tmp_path / "data", story)


def test_members_with_other_wishes_have_only_what_they_want(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 3)
        await rooms(broker, 3, name="halls")
        ann = await GroupMember(broker, "ann", topics="rooms").join()
        bob = await GroupMember(broker, "bob", topics="rooms,halls").join()
        await settle(ann, bob)
        assert ann.logs == [("rooms", number) for number in range(3)]
        assert bob.logs == [("halls", number) for number in range(3)]

    tell(tmp_path / "data", story)


def test_a_group_that_starts_at_the_end_reads_new_topics_from_their_first_record(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1, name="orders.eu")
        ann = await GroupMember(broker, "ann", topics="orders.*", start=Start(at="latest")).join()
        assert Bookmark.parse(ann.grants["orders.eu", 0].bookmark or "").seqno == 10
        await rooms(broker, 1, name="orders.us")
        await ann.beat(60_000)
        assert ann.grants["orders.us", 0].bookmark is None

    tell(tmp_path / "data", story)


def test_a_repeated_join_changes_nothing(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        ann = await GroupMember(broker, "ann").join()
        before = ann.standing
        assert (await ann.join()).standing == before

    tell(tmp_path / "data", story)


def test_what_a_group_is_made_of_is_described(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        with pytest.raises(GroupNotFound):
            await describe(broker)
        ann = await GroupMember(broker, "ann", client="billing-app").join()
        await ann.commit(4)
        found = await describe(broker)
        assert (found.state, found.mode, found.lag) == ("stable", "logs", 16)
        assert [(log.seqno, log.lag, log.member) for log in found.logs] == [(4, 6, ann.member), (None, 10, ann.member)]
        (member,) = found.members
        assert (member.client, member.logs) == ("billing-app", ["rooms/0", "rooms/1"])
        (info,) = await broker.list_groups()
        assert (info.group, info.members, info.logs, info.lag) == ("billing", 1, 2, 16)
        await ann.leave()
        assert [(log.seqno, log.member) for log in (await describe(broker)).logs] == [(4, None)]
        assert await broker.list_groups("x") == []

    tell(tmp_path / "data", story)


def test_a_group_without_members_is_reset_and_deleted(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        ann = await GroupMember(broker, "ann").join()
        await ann.commit(4)
        for call in (broker.reset_group("billing", "rooms", Start(at="latest")), broker.delete_group("billing")):
            with pytest.raises(GroupBusy):
                await call
        await ann.leave()
        for dry_run in (True, False):
            found = await broker.reset_group("billing", "rooms", Start(at="latest"), dry_run)
            assert [(each.seqno_from, each.seqno) for each in found] == [(4, 10), (None, 10)]
        assert [(log.seqno, log.lag) for log in (await describe(broker)).logs] == [(10, 0), (10, 0)]
        await broker.reset_group("billing", "rooms/1", Start(seqno=3))
        assert [log.seqno for log in (await describe(broker)).logs] == [10, 3]
        await broker.delete_group("billing")
        assert await broker.list_groups() == []
        assert await broker.list_cursors() == []
        with pytest.raises(GroupNotFound):
            await broker.delete_group("billing")

    tell(tmp_path / "data", story)


def test_a_group_can_be_placed_before_anybody_joins(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        await broker.reset_group("billing", "rooms", Start(seqno=6))
        ann = await GroupMember(broker, "ann").join()
        assert Bookmark.parse(ann.grants["rooms", 0].bookmark or "").seqno == 6

    tell(tmp_path / "data", story)


def test_a_group_is_put_only_where_there_is_a_place_and_a_trial_says_so_too(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 2)
        beginning = (await broker.locate(ReadRequest("rooms/1", Start(), whole=True)))[0].bookmark
        await broker.commit_cursor("nightly", "rooms", 1, str(beginning))
        await broker.reset_group("billing", "rooms", Start(at="latest"))
        for dry_run in (True, False):
            with pytest.raises(SeqnoOutOfRange, match=r"11 .* 0 up to and not including 10"):
                await broker.reset_group("billing", "rooms/0", Start(seqno=11), dry_run)
            with pytest.raises(CursorNotFound, match="nihgtly"):
                await broker.reset_group("billing", "rooms", Start(cursor="nihgtly"), dry_run)
            with pytest.raises(InvalidPattern, match="no topic fits 'halls"):
                await broker.reset_group("fresh", "halls.*", Start(), dry_run)
            found = await broker.reset_group("billing", "rooms", Start(cursor="nightly"), dry_run)
            assert [(each.partition, each.seqno) for each in found] == [(1, 0)]
        assert [log.seqno for log in (await describe(broker)).logs] == [10, 0]
        assert [info.group for info in await broker.list_groups()] == ["billing"]

    tell(tmp_path / "data", story)


def test_a_beat_that_waits_is_answered_before_the_session_ends(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker)
        ann = await GroupMember(broker, "ann", session_ms=3000).join()
        for _ in range(4):
            await ann.beat(60_000)
        assert len(ann.logs) == 4

    tell(tmp_path / "data", story)


def test_a_cursor_of_a_group_is_no_cursor_of_clients(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        ann = await GroupMember(broker, "ann").join()
        await ann.commit(4)
        place = str(Bookmark(bytes.fromhex(ann.grants["rooms", 0].topic_id), 0, 9, 1))
        with pytest.raises(LogboomError, match="no cursor name"):
            await broker.commit_cursor("@billing", "rooms", 0, place)
        with pytest.raises(LogboomError, match="no cursor name"):
            await broker.delete_cursor("@billing")
        assert [log.seqno for log in (await describe(broker)).logs] == [4]

    tell(tmp_path / "data", story)


@pytest.mark.parametrize(
    "wish",
    [
        {"group": "no good"},
        {"group": ""},
        {"session_ms": 10},
        {"session_ms": 10**9},
        {"give_back_ms": 1},
        {"instance": "x" * 101},
        {"client": "a\nb"},
        {"start": Start(seqno=4)},
    ],
)
def test_what_means_nothing_is_refused_and_makes_no_group(tmp_path: Path, wish: dict[str, Any]) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        with pytest.raises(InvalidGroup):
            await GroupMember(broker, "ann", **wish).join()
        assert await broker.list_groups() == []

    tell(tmp_path / "data", story)


def test_a_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        with pytest.raises(TopicNotFound):
            await GroupMember(broker, "ann").join()
        assert await broker.list_groups() == []

    tell(tmp_path / "data", story)


def test_there_are_no_more_groups_and_members_than_the_limits_say(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        await GroupMember(broker, "ann").join()
        await GroupMember(broker, "bob").join()
        with pytest.raises(LimitExceeded, match=r"limits\.group_members"):
            await GroupMember(broker, "cid").join()
        with pytest.raises(LimitExceeded, match=r"limits\.groups"):
            await GroupMember(broker, "cid", group="other").join()
        assert [info.group for info in await broker.list_groups()] == ["billing"]

    tell(tmp_path / "data", story, config=BrokerConfig(limits=Limits(groups=1, group_members=2)))


def test_a_group_of_one_mode_is_not_joined_in_the_other(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        await GroupMember(broker, "ann").join()
        with pytest.raises(GroupMismatch):
            await GroupMember(broker, "bob", mode="queue").join()
        queue = await GroupMember(broker, "cid", mode="queue", group="jobs").join()
        assert queue.logs == []

    tell(tmp_path / "data", story)


def test_a_group_that_was_only_placed_becomes_what_its_first_member_wants(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await rooms(broker, 1)
        await broker.reset_group("billing", "rooms", Start(seqno=6))
        ann = await GroupMember(broker, "ann", mode="queue").join()
        found = await describe(broker)
        assert (found.mode, [log.seqno for log in found.logs]) == ("queue", [6])
        await ann.leave()
        with pytest.raises(GroupMismatch):
            await GroupMember(broker, "bob").join()

    tell(tmp_path / "data", story)
