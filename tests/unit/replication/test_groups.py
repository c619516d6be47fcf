"""Groups of consumers on a replica: members, generations and places go with it when it takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from logboom.broker.api import Start
from logboom.errors import ReadOnlyReplica
from logboom.storage.bookmark import Bookmark
from support.brokers.group_member import GroupMember
from support.replicas.pair import Pair, tell
from support.waiting import until


async def ready(pair: Pair) -> tuple[GroupMember, GroupMember]:
    """Two members that share two logs; one has committed."""
    await pair.source.create_topic("rooms", 2)
    for partition in range(2):
        await pair.write("rooms", b"a", b"b", b"c", partition=partition)
    ann, bob = await GroupMember(pair.source, "ann").join(), await GroupMember(pair.source, "bob").join()
    for _ in range(3):
        await ann.beat()
        await bob.beat()
    assert len(ann.logs) == len(bob.logs) == 1
    assert await ann.commit(2, partition=ann.logs[0][1]) == []
    return ann, bob


def has_copied(pair: Pair) -> bool:
    """Groups and their places."""
    here, there = pair.replica, pair.source
    groups, places = dict(there._its_groups().state.items()), there._its_cursors().keys()
    return dict(here._its_groups().state.items()) == groups and here._its_cursors().keys() == places


def test_members_go_on_with_what_they_hold_when_a_replica_takes_over(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        ann, bob = await ready(pair)
        await pair.caught_up()
        await until(lambda: has_copied(pair))
        shown = await pair.replica.describe_group("billing")
        assert {log.member for log in shown.logs} == {ann.member, bob.member}
        await pair.replica.promote()
        for member in (ann, bob):
            before, member.broker = dict(member.grants), pair.replica
            await member.beat(60_000)
            assert member.logs == sorted(before)
            assert all(grant.generation > before[log].generation for log, grant in member.grants.items())
        assert Bookmark.parse(ann.grants[ann.logs[0]].bookmark or "").seqno == 2
        assert await ann.commit(3, partition=ann.logs[0][1]) == []

    tell(tmp_path, story)


def test_a_replica_takes_no_members_and_ends_no_sessions(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        ann, _ = await ready(pair)
        await pair.caught_up()
        await until(lambda: has_copied(pair))
        for call in (
            GroupMember(pair.replica, "cid").join(),
            GroupMember(pair.replica, "ann").beat(),
            pair.replica.leave_group("billing", ann.member),
            pair.replica.reset_group("billing", "rooms", Start()),
            pair.replica.delete_group("billing"),
        ):
            with pytest.raises(ReadOnlyReplica):
                await call

    tell(tmp_path, story)


def test_a_group_that_is_deleted_at_the_source_is_gone_on_the_replica(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        for member in await ready(pair):
            await member.leave()
        await pair.source.delete_group("billing")
        await pair.caught_up()
        await until(lambda: not pair.replica._its_groups().groups)

    tell(tmp_path, story)
