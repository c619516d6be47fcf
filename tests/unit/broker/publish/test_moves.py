"""Cursors that move with a publish: checked as commits are, moved with its records or not at all."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from logboom.access.rule import Rule
from logboom.broker.api import MOVES_MAX, CursorMove, Part, PublishKey
from logboom.broker.caller import EVERYBODY, ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.publish import key_book
from logboom.broker.publish.intent import Intent, decode_intent
from logboom.broker.state import cursors as cursors_module
from logboom.client.remote import RemoteBroker
from logboom.errors import (
    BookmarkLost,
    CursorBusy,
    CursorMovedBack,
    InvalidBookmark,
    InvalidCursorName,
    InvalidKey,
    LimitExceeded,
    LogboomError,
    LogNotHeld,
    MemberUnknown,
    NotAllowed,
    PartitionNotFound,
    RemoteProtocolError,
    TopicBusy,
    TopicNotFound,
    TopicRecreated,
    UnexpectedCursor,
)
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from support.brokers.any_broker import AnyBroker
from support.brokers.group_member import GroupMember
from support.brokers.places import PLACES, Place, opened, served
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.staged import Machine, append, fill, killed, plain_parts, read_log, tell

CONFIG = BrokerConfig(reserve_bytes=0)
OUT = ("out", 0)
KEY = PublishKey("job", 1)
ANN = Caller("ann", by="certificate")


async def make_topics(broker: AnyBroker) -> None:
    """What is read has five records."""
    await broker.create_topic("in", 1)
    await broker.create_topic("out", 1)
    for number in range(5):
        await append(broker, b"%d" % number, "in")


def prepared(config: BrokerConfig = CONFIG) -> SimulatedDisk:
    disk = SimulatedDisk()
    tell(disk, make_topics, config)
    return killed(disk)


async def mark(broker: AnyBroker, seqno: int, topic: str = "in", partition: int = 0) -> str:
    topic_id = (await broker.describe_topic(topic)).id
    return str(Bookmark(bytes.fromhex(topic_id), partition, seqno, TERM_UNKNOWN))


async def move(broker: AnyBroker, seqno: int, cursor: str = "c", **how: object) -> CursorMove:
    plain = CursorMove(cursor, "in", 0, await mark(broker, seqno))
    return msgspec.structs.replace(plain, **how)


async def stands(broker: AnyBroker, cursor: str = "c") -> int | None:
    bookmark = await broker.fetch_cursor(cursor, "in", 0)
    return None if bookmark is None else Bookmark.parse(bookmark).seqno


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("in_one", [True, False])
def test_records_and_cursors_move_together_and_a_repeat_moves_nothing(
    place: Place, in_one: bool, tmp_path: Path
) -> None:
    async def story() -> None:
        async with opened(place, tmp_path) as broker:
            await make_topics(broker)
            moves = [await move(broker, 3), await move(broker, 2, "d")]

            async def publish() -> bool:
                if in_one:
                    done = await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), moves)
                else:
                    receipts = [] if await broker.list_keys() else [(await fill(broker, {OUT: [b"x"]}))[1]]
                    done = await broker.publish(KEY, receipts, moves)
                return done.repeat

            assert not await publish()
            assert (await read_log(broker, OUT), await stands(broker), await stands(broker, "d")) == ([b"x"], 3, 2)
            await broker.commit_cursor("c", "in", 0, await mark(broker, 5))
            await broker.delete_cursor("d")
            assert await publish()
            assert (await read_log(broker, OUT), await stands(broker), await stands(broker, "d")) == ([b"x"], 5, None)

    asyncio.run(story())


@pytest.mark.parametrize("place", ["process", "tcp"])
def test_a_refused_move_refuses_the_whole_publish(place: Place, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(place, tmp_path) as broker:
            await make_topics(broker)
            await broker.commit_cursor("c", "in", 0, await mark(broker, 3))
            good = await move(broker, 5, "good")
            refused: list[tuple[type[LogboomError], CursorMove]] = [
                (CursorMovedBack, await move(broker, 2)),
                (UnexpectedCursor, await move(broker, 4, expect=await mark(broker, 2))),
                (UnexpectedCursor, await move(broker, 4, expect="")),
                (UnexpectedCursor, await move(broker, 3, expect=await mark(broker, 2))),
                (BookmarkLost, await move(broker, 6)),
                (TopicRecreated, await move(broker, 4, bookmark=await mark(broker, 0, "out"))),
                (InvalidBookmark, await move(broker, 4, bookmark=await mark(broker, 4, partition=1))),
                (InvalidBookmark, await move(broker, 4, bookmark="nonsense")),
                (InvalidBookmark, await move(broker, 4, expect="nonsense")),
                (PartitionNotFound, await move(broker, 4, partition=1)),
                (TopicNotFound, await move(broker, 4, topic="other")),
                (InvalidCursorName, await move(broker, 4, "a b")),
                (InvalidCursorName, await move(broker, 4, "@group")),
                (MemberUnknown, await move(broker, 4, "group", member="m1", generation=3)),
            ]
            for error, bad in refused:
                with pytest.raises(error):
                    await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), [good, bad])
                stage, receipt = await fill(broker, {OUT: [b"x"]})
                with pytest.raises(error):
                    await broker.publish(KEY, [receipt], [good, bad])
                assert await broker.discard([stage.id]) == 1
            assert (await read_log(broker, OUT), await broker.list_keys()) == ([], [])
            assert (await stands(broker), await stands(broker, "good")) == (3, None)
            await broker.publish_batches(KEY, [], [await move(broker, 1, force=True), good])
            assert (await stands(broker), await stands(broker, "good")) == (1, 5)

    asyncio.run(story())


@pytest.mark.parametrize("place", ["process", "tcp"])
@pytest.mark.parametrize("in_one", [True, False])
def test_a_publish_may_move_cursors_and_nothing_else(place: Place, in_one: bool, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(place, tmp_path) as broker:
            await make_topics(broker)
            for number in (1, 2):
                moves = [await move(broker, 2 * number, expect="" if number == 1 else await mark(broker, 2))]
                key = PublishKey("job", number)
                publish = broker.publish_batches(key, [], moves) if in_one else broker.publish(key, [], moves)
                assert (await publish).parts == []
            assert await stands(broker) == 4
            with pytest.raises(InvalidKey):  # its number is no time: a repeat would not be known for ever
                await broker.publish(PublishKey("random", 0, False), [], [await move(broker, 5)])

    asyncio.run(story())


def test_moves_of_one_cursor_are_taken_in_their_order(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        with pytest.raises(CursorMovedBack):
            await broker.publish_batches(KEY, [], [await move(broker, 3), await move(broker, 2)])
        assert await stands(broker) is None
        await broker.publish_batches(KEY, [], [await move(broker, 2), await move(broker, 3)])
        assert await stands(broker) == 3

    tell(prepared(), story, CONFIG)


def test_no_more_moves_than_one_publish_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with opened("tcp", tmp_path) as broker:
            await make_topics(broker)
            bookmark = await mark(broker, 1)
            moves = [CursorMove(f"c{number}", "in", 0, bookmark) for number in range(MOVES_MAX + 1)]
            with pytest.raises(LimitExceeded, match="cursors that one publish moves"):
                await broker.publish_batches(KEY, [], moves)
            long = [msgspec.structs.replace(one, cursor=f"{number:0200}") for number, one in enumerate(moves[:300])]
            with pytest.raises(LimitExceeded, match="bytes of cursor names and bookmarks"):
                await broker.publish_batches(KEY, [], long)
            monkeypatch.setattr("logboom.client.publish.publish_calls.check_moves", lambda moves: None)
            for many in (moves, long[:190]):
                with pytest.raises(LimitExceeded, match="one publish moves"):  # a client that does not look
                    await broker.publish_batches(KEY, [], many)
            assert await broker.list_cursors() == []
            fitting = long[:140]
            await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), fitting)
            assert len(await broker.list_cursors()) == len(fitting)
            assert isinstance(broker, RemoteBroker)
            broker.welcome.limits.publish_moves = 0
            with pytest.raises(RemoteProtocolError, match="too old"):
                await broker.publish_batches(PublishKey("job", 2), [], moves[:1])

    asyncio.run(story())


def test_a_move_counts_for_the_limit_of_cursors_before_it_is_committed() -> None:
    config = BrokerConfig(reserve_bytes=0, limits=Limits(cursors=2))

    async def story(broker: LocalBroker) -> None:
        with pytest.raises(LimitExceeded, match=r"limits\.cursors"):
            await broker.publish_batches(KEY, [], [await move(broker, 1, f"c{number}") for number in range(3)])
        assert await broker.list_cursors() == []
        moves = [await move(broker, 1, f"c{number}") for number in range(6)]
        found = await asyncio.gather(
            *(broker.publish_batches(PublishKey(one.cursor, 1), [], [one]) for one in moves), return_exceptions=True
        )
        assert sum(isinstance(one, LimitExceeded) for one in found) == 4
        assert len(await broker.list_cursors()) == 2
        await broker.delete_cursor((await broker.list_cursors())[0].cursor)
        await broker.publish_batches(PublishKey("later", 1), [], [await move(broker, 1, "c9")])

    tell(prepared(config), story, config)


def test_who_publishes_moves_only_cursors_and_reads_only_topics_that_he_may(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        try:
            await broker.create_topic("in", caller=ITSELF)
            bookmark = str(Bookmark(bytes.fromhex((await broker.describe_topic("in", caller=ITSELF)).id), 0, 0, 1))
            moves = [CursorMove("c", "in", 0, bookmark)]
            rules = [
                ("write", "transaction", "job"),
                ("write", "cursor", "c"),
                ("read", "topic", "in"),
            ]
            for number, (right, kind, name) in enumerate(rules):
                for publish in (broker.publish_batches, broker.publish):
                    with pytest.raises((NotAllowed, TopicNotFound)):
                        await publish(KEY, [], moves, caller=ANN)
                assert number == 2 or await broker.list_cursors(caller=ITSELF) == []
                await broker.add_rule(Rule("allow", "ann", (right,), kind, name), caller=ITSELF)
            await broker.publish_batches(KEY, [], moves, caller=ANN)
            assert [info.cursor for info in await broker.list_cursors(caller=ITSELF)] == ["c"]
        finally:
            await broker.close()

    asyncio.run(story())


def test_a_move_of_a_group_is_its_members_alone_and_kept_under_a_name_no_client_has() -> None:
    async def story(broker: LocalBroker) -> None:
        member = await GroupMember(broker, "ann", topics="in", caller=ITSELF, group="team").join()
        held = member.grants["in", 0].generation
        wanted = await move(broker, 3, "team", member=member.member, generation=held + 1)
        with pytest.raises(LogNotHeld):
            await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), [wanted], caller=ITSELF)
        assert await read_log(broker, OUT) == []
        wanted = msgspec.structs.replace(wanted, generation=held)
        with pytest.raises(MemberUnknown):
            await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), [wanted], caller=EVERYBODY)
        await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), [wanted], caller=ITSELF)
        assert (await read_log(broker, OUT), await stands(broker, "team")) == ([b"x"], None)
        assert (await member.beat()).grants["in", 0].bookmark == wanted.bookmark
        for call in (
            broker.fetch_cursor("@team", "in", 0),
            broker.delete_cursor("@team"),
            broker.commit_cursor("@team", "in", 0, wanted.bookmark),
        ):
            with pytest.raises(InvalidCursorName):
                await call

    tell(prepared(), story, CONFIG)


def is_write_to(call: Call, topic: str) -> bool:
    return call.name == "write" and f"/{topic}~" in call.path and call.path.endswith(".log")


def cut_off(disk: SimulatedDisk, at: str, moves: Sequence[int], cursor: str = "c") -> SimulatedDisk:
    """The machine dies at the first write to this topic after the intents of publishes that move the cursor so."""
    begun: list[Call] = []

    def fault(call: Call) -> None:
        if begun and is_write_to(call, at):
            raise PowerLoss
        if is_write_to(call, "_publish"):
            begun.append(call)

    async def story(broker: LocalBroker) -> None:
        for seqno in moves:
            wanted = [await move(broker, seqno, cursor)]
            with suppress(LogboomError):
                await broker.publish_batches(PublishKey("job", seqno), plain_parts({OUT: [b"%d" % seqno]}), wanted)

    machine = Machine(disk, fault)
    machine.run(story, CONFIG, cut=True)
    assert machine.died
    return killed(disk)


@pytest.mark.parametrize("at", ["_cursors", "out"])
def test_a_start_finishes_the_moves_of_a_publish_that_was_cut_off_before_it_serves(at: str) -> None:
    disk = cut_off(prepared(), at, [3])

    async def story(broker: LocalBroker) -> None:
        assert (await stands(broker), await read_log(broker, OUT)) == (3, [b"3"])
        assert (await broker.publish_batches(PublishKey("job", 3), [], [await move(broker, 1)])).repeat
        assert await stands(broker) == 3

    tell(disk, story, CONFIG)


def test_a_cursor_that_was_put_back_after_a_move_stays_there_however_often_the_move_is_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The publish is done, but not written down as that: each start does it once more."""
    monkeypatch.setattr(key_book, "SETTLE_S", 3600)
    disk = prepared()

    async def story(broker: LocalBroker) -> None:
        await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), [await move(broker, 4)])
        await broker.commit_cursor("c", "in", 0, await mark(broker, 1), force=True)

    Machine(disk).run(story, CONFIG, cut=True)

    async def later(broker: LocalBroker) -> None:
        assert (await stands(broker), await read_log(broker, OUT)) == (1, [b"x"])

    for _ in range(2):
        disk = killed(disk)
        Machine(disk).run(later, CONFIG, cut=True)


def test_a_cursor_is_deleted_when_no_restart_brings_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors_module, "BUSY_S", 0.05)
    monkeypatch.setattr(key_book, "SETTLE_S", 3600)
    disk = prepared()

    async def story(broker: LocalBroker) -> None:
        await broker.publish_batches(KEY, plain_parts({OUT: [b"x"]}), [await move(broker, 4)])
        with pytest.raises(CursorBusy):
            await broker.delete_cursor("c")
        with pytest.raises(CursorBusy):
            await broker.delete_cursor("c", "in")
        assert await broker.delete_cursor("c", "out") == 0
        monkeypatch.setattr(cursors_module, "BUSY_S", 60)
        assert broker._publishing is not None
        deleting = asyncio.create_task(broker.delete_cursor("c"))
        await asyncio.sleep(0)
        await broker._publishing.keys.settle()
        assert await deleting == 1

    Machine(disk).run(story, CONFIG, cut=True)

    async def later(broker: LocalBroker) -> None:
        assert await stands(broker) is None

    tell(killed(disk), later, CONFIG)


def test_a_topic_with_a_cursor_that_moves_is_not_deleted_and_then_is() -> None:
    disk = prepared()

    async def story(broker: LocalBroker) -> None:
        publishing = broker._publishing
        assert publishing is not None
        label = "other", 1
        change = broker._moves.want([await move(broker, 2)], ITSELF)
        assert change is not None
        publishing._keep_moves(label, change.begin_all(broker._its_cursors()))
        with pytest.raises(TopicBusy):
            await broker.delete_topic("in")
        publishing._let_go(label, ())
        await broker.publish_batches(KEY, [], [await move(broker, 2)])
        await broker.delete_topic("in")
        assert (await broker.list_cursors(), broker._catalog.busy) == ([], {})

    tell(disk, story, CONFIG)


def test_moves_are_done_although_the_records_cannot_be_finished() -> None:
    disk = cut_off(prepared(), "_cursors", [3])
    gone = [path for path in disk.names if "/out~" in path]
    assert gone
    for path in gone:
        disk.names.pop(path)
        disk.durable_names.pop(path, None)

    async def story(broker: LocalBroker) -> None:
        assert await stands(broker) == 3

    said = tell(disk, story, CONFIG)
    assert any("cannot be finished" in line for line in said)


def test_what_was_kept_before_there_were_moves_is_read_as_without_any() -> None:
    old = msgspec.msgpack.encode([7, 1, True, True, [], [], 0, None, "", {}, True, b""])
    assert decode_intent(old) == Intent(7, 1, True, in_one=True)
    assert decode_intent(old).moves == []


def test_many_publishes_and_commits_of_one_cursor_at_once_leave_it_at_the_furthest_place() -> None:
    async def story(broker: LocalBroker) -> None:
        marks = [await mark(broker, seqno) for seqno in range(6)]

        async def publish(number: int) -> None:
            with suppress(CursorMovedBack):
                wanted = [CursorMove("c", "in", 0, marks[number % 6])]
                await broker.publish_batches(PublishKey(f"k{number % 7}", number), [], wanted)

        async def commit(number: int) -> None:
            with suppress(CursorMovedBack):
                await broker.commit_cursor("c", "in", 0, marks[number % 6])

        work = [publish(number) if number % 3 else commit(number) for number in range(60)]
        await asyncio.gather(*work)
        assert await stands(broker) == 5
        assert broker._publishing is not None
        await broker._publishing.keys.settle()
        assert (broker._its_cursors()._under_way, broker._catalog.busy, broker._publishing._moving) == ({}, {}, {})
        assert broker._publishing._bundled_bytes == 0

    tell(prepared(), story, CONFIG)


def test_parts_and_moves_of_a_call_are_whole_where_a_caller_goes_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (broker, _):
            await make_topics(broker)
            wanted = [await move(broker, 3)]
            parts: list[Part] = plain_parts({OUT: [b"x"]})
            going = asyncio.create_task(broker.publish_batches(KEY, parts, wanted))
            await asyncio.sleep(0)
            going.cancel()
            assert (await broker.publish_batches(KEY, parts, wanted)).repeat in (True, False)
            assert (await read_log(broker, OUT), await stands(broker)) == ([b"x"], 3)

    asyncio.run(story())


def test_who_finds_a_cursor_where_a_publish_moved_it_writes_behind_its_records() -> None:
    async def story(broker: LocalBroker) -> None:
        wanted = [await move(broker, 3)]
        publishing = asyncio.create_task(broker.publish_batches(KEY, plain_parts({OUT: [b"x", b"y"]}), wanted))
        while await stands(broker) is None:
            await asyncio.sleep(0)
        assert (await broker.describe_topic("out")).partitions[0].next == 2
        await publishing

    tell(prepared(), story, CONFIG)


def test_publishes_that_were_cut_off_are_finished_in_the_order_of_their_moves() -> None:
    disk = prepared()

    def fault(call: Call) -> None:
        if is_write_to(call, "out"):
            raise OSError(errno.ENOSPC, "there is no room yet", call.path)

    async def story(broker: LocalBroker) -> None:
        await broker.publish_batches(PublishKey("a", 0), [])  # whoever goes through the names meets this one first
        places = [await mark(broker, seqno) for seqno in (2, 4)]
        work = [
            broker.publish_batches(
                PublishKey(name, 1), plain_parts({OUT: [name.encode()]}), [CursorMove("c", "in", 0, place)]
            )
            for name, place in zip("za", places, strict=True)
        ]
        tasks = [asyncio.create_task(each) for each in work]
        while sum(key.is_open for key in await broker.list_keys()) < 2:
            await asyncio.sleep(0.001)
        assert await stands(broker) is None
        assert len(tasks) == 2

    Machine(disk, fault).run(story, CONFIG, cut=True)

    async def later(broker: LocalBroker) -> None:
        assert (await read_log(broker, OUT), await stands(broker)) == ([b"z", b"a"], 4)

    tell(killed(disk), later, CONFIG)
