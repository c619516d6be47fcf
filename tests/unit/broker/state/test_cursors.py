from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logboom.broker.state.cursors import CursorChange, CursorEntry, Cursors
from logboom.errors import (
    CursorMovedBack,
    InvalidBookmark,
    InvalidCursorName,
    LimitExceeded,
    OutcomeUnknown,
    TopicRecreated,
    UnexpectedCursor,
)
from logboom.storage.bookmark import Bookmark
from support.disks.simulated import SimulatedDisk
from support.simulation.internal import open_cursors

ID, OTHER = "a" * 32, "b" * 32


def mark(seqno: int, partition: int = 0, topic_id: str = ID) -> str:
    return str(Bookmark(bytes.fromhex(topic_id), partition, seqno, 1))


async def commit(cursors: Cursors, cursor: str, seqno: int, partition: int = 0, topic: str = "events") -> None:
    await cursors.commit(cursor, topic, ID, partition, mark(seqno, partition), seqno * 1000)


def test_a_cursor_stands_where_it_was_last_committed_also_after_a_restart() -> None:
    disk = SimulatedDisk()

    async def run() -> None:
        _, cursors = open_cursors(disk)
        assert cursors.fetch("jobs/1:a", "events", 0) is None
        await commit(cursors, "jobs/1:a", 3)
        await commit(cursors, "jobs/1:a", 5)
        await commit(cursors, "jobs/1:a", 9, partition=1)
        await cursors.close()

    asyncio.run(run())
    disk.kill()
    _, cursors = open_cursors(disk)
    assert cursors.fetch("jobs/1:a", "events", 0) == mark(5)
    assert cursors.fetch("jobs/1:a", "events", 1) == mark(9, 1)
    assert cursors.fetch("jobs/1:a", "events", 2) is None
    assert cursors.fetch("jobs/1:a", "other", 0) is None


async def put(cursors: Cursors, seqno: int, topic_id: str = ID, **how: Any) -> None:
    await cursors.commit("c", "events", topic_id, 0, mark(seqno, topic_id=topic_id), 0, **how)


def test_a_cursor_goes_back_only_by_force() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        await put(cursors, 10)
        await put(cursors, 10)
        with pytest.raises(CursorMovedBack, match=r"stands at seqno 10 of events/0, and 3 is before .* force") as info:
            await put(cursors, 3)
        assert (info.value.cursor, info.value.log, info.value.seqno, info.value.at) == ("c", "events/0", 3, 10)
        assert cursors.fetch("c", "events", 0) == mark(10)
        await put(cursors, 3, force=True)
        assert cursors.fetch("c", "events", 0) == mark(3)

    asyncio.run(run())


def test_a_commit_is_compared_with_those_that_are_still_being_written() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        answers = await asyncio.gather(
            *(put(cursors, seqno) for seqno in (10, 3, 12, 11)),
            put(cursors, 20, expect=mark(12)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [
            type(None),
            CursorMovedBack,
            type(None),
            CursorMovedBack,
            type(None),
        ]
        assert cursors.fetch("c", "events", 0) == mark(20)

    asyncio.run(run())


def test_a_place_in_another_topic_or_behind_a_lost_tail_is_left_without_force() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        await put(cursors, 10)
        await put(cursors, 3, OTHER)
        await put(cursors, 2, OTHER, is_lost=lambda place: place.seqno == 3)
        with pytest.raises(CursorMovedBack):
            await put(cursors, 1, OTHER, is_lost=lambda place: place.seqno == 3)

    asyncio.run(run())


def test_a_commit_may_say_where_the_cursor_must_stand() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        with pytest.raises(UnexpectedCursor, match="does not exist"):
            await put(cursors, 5, expect=mark(1))
        await put(cursors, 5, expect="")
        await put(cursors, 5, expect="")  # a repeat
        for expect in ("", mark(4), mark(5, partition=1), mark(5, topic_id=OTHER)):
            with pytest.raises(UnexpectedCursor, match="stands at seqno 5"):
                await put(cursors, 6, expect=expect)
        with pytest.raises(InvalidBookmark):
            await put(cursors, 6, expect="nonsense")
        with pytest.raises(CursorMovedBack):
            await put(cursors, 4, expect=mark(5))
        await put(cursors, 4, expect=mark(5), force=True)
        await put(cursors, 6, expect=mark(4))
        assert cursors.fetch("c", "events", 0) == mark(6)

    asyncio.run(run())


def test_cursors_are_listed_by_name_topic_and_partition() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        await commit(cursors, "b", 1)
        await commit(cursors, "a", 2, partition=10)
        await commit(cursors, "a", 3, partition=9)
        await commit(cursors, "a", 4, topic="alerts")
        listed = [(info.cursor, info.topic, info.partition, info.seqno) for info in await cursors.list()]
        assert listed == [("a", "alerts", 0, 4), ("a", "events", 9, 3), ("a", "events", 10, 2), ("b", "events", 0, 1)]
        (info,) = await cursors.list(topic="events", prefix="b")
        assert (info.topic_id, info.bookmark, info.updated, info.lag) == (ID, mark(1), 1000, None)

    asyncio.run(run())


def test_a_cursor_is_deleted_on_all_partitions_of_a_topic_or_everywhere() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        for partition in range(3):
            await commit(cursors, "a", 1, partition)
        await commit(cursors, "a", 1, topic="alerts")
        await commit(cursors, "ab", 1)
        assert await cursors.delete("a", "events") == 3
        assert await cursors.delete("a") == 1
        assert await cursors.delete("a") == 0
        assert [info.cursor for info in await cursors.list()] == ["ab"]

    asyncio.run(run())


def test_cursors_of_a_deleted_topic_are_forgotten() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        await commit(cursors, "a", 1)
        await cursors.commit("a", "alerts", OTHER, 0, mark(1, topic_id=OTHER), 0)
        await cursors.forget_topic(ID)
        assert [info.topic for info in await cursors.list()] == ["alerts"]

    asyncio.run(run())


@pytest.mark.parametrize("name", ["", "a" * 250, "a b", "a\0b", "ä", "a\n"])
def test_a_name_that_a_cursor_cannot_have_is_refused(name: str) -> None:
    _, cursors = open_cursors(SimulatedDisk())
    with pytest.raises(InvalidCursorName):
        asyncio.run(commit(cursors, name, 1))
    with pytest.raises(InvalidCursorName):
        cursors.fetch(name, "events", 0)


def test_a_bookmark_of_something_else_is_refused() -> None:
    _, cursors = open_cursors(SimulatedDisk())
    for bookmark, error in (
        (mark(1, topic_id=OTHER), TopicRecreated),
        (mark(1, partition=1), InvalidBookmark),
        ("nonsense", InvalidBookmark),
    ):
        with pytest.raises(error):
            asyncio.run(cursors.commit("a", "events", ID, 0, bookmark, 0))
    assert len(cursors) == 0


def test_there_are_no_more_cursors_than_allowed() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk(), limit=2)
        await commit(cursors, "a", 1)
        await commit(cursors, "b", 1)
        with pytest.raises(LimitExceeded, match=r"limits\.cursors"):
            await commit(cursors, "c", 1)
        await commit(cursors, "a", 2)

    asyncio.run(run())


def begin(cursors: Cursors, seqno: int, **how: Any) -> CursorChange:
    return cursors.begin("c", "events", ID, 0, mark(seqno), 0, with_publish=True, **how)


def test_a_move_that_is_under_way_is_what_later_commits_are_compared_with() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        change = begin(cursors, 10)
        with pytest.raises(CursorMovedBack):
            await put(cursors, 9)
        with pytest.raises(UnexpectedCursor):
            begin(cursors, 11, expect="")
        with pytest.raises(UnexpectedCursor):  # somebody else's move to the same place is no repeat
            begin(cursors, 10, expect=mark(9))
        cursors.end([change])  # it was refused
        await put(cursors, 9)
        assert cursors.fetch("c", "events", 0) == mark(9)

    asyncio.run(run())


def test_a_move_that_is_written_late_or_again_never_replaces_what_came_after_it() -> None:
    disk = SimulatedDisk()

    async def run() -> None:
        _, cursors = open_cursors(disk)
        first, second = begin(cursors, 10), begin(cursors, 12)
        await put(cursors, 5, force=True)
        await cursors.write([first, second])
        assert cursors.fetch("c", "events", 0) == mark(5)
        third = begin(cursors, 7)
        await asyncio.gather(cursors.write([first, third]), put(cursors, 6, force=True), cursors.write([third, second]))
        assert cursors.fetch("c", "events", 0) == mark(6)
        await cursors.close()

    asyncio.run(run())
    disk.kill()

    async def later() -> None:
        _, cursors = open_cursors(disk)
        newest = cursors.standing(b"c\0events\0000")
        assert newest is not None
        for version, stands in ((newest.version, mark(6)), (newest.version + 1, mark(20))):
            entry = CursorEntry(bytes.fromhex(ID), 20, 1, 0, version=version)
            await cursors.write([cursors.resume(b"c\0events\0000", entry)])
            assert cursors.fetch("c", "events", 0) == stands

    asyncio.run(later())


def test_who_must_know_exactly_waits_for_what_is_under_way() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        await cursors.settled("c", "events", 0)
        change = begin(cursors, 10)
        waiting = asyncio.create_task(cursors.settled("c", "events", 0))
        await cursors.settled("c", "events", 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        await cursors.write([change])
        await waiting
        assert cursors.fetch("c", "events", 0) == mark(10)
        await cursors.settled("c", "events", 0)
        cursors.doubt([begin(cursors, 11)], OutcomeUnknown("the disk has failed"))
        with pytest.raises(OutcomeUnknown):
            await cursors.settled("c", "events", 0)

    asyncio.run(run())


def test_a_commit_goes_on_and_counts_although_its_caller_goes_away() -> None:
    async def run() -> None:
        _, cursors = open_cursors(SimulatedDisk())
        going = asyncio.create_task(put(cursors, 10))
        await asyncio.sleep(0)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        with pytest.raises(CursorMovedBack):
            await put(cursors, 3)
        await cursors.settled("c", "events", 0)
        assert cursors.fetch("c", "events", 0) == mark(10)

    asyncio.run(run())
