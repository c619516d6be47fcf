"""Readers whose place moves with a transaction: what was made of a record is published once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from logboom import AsyncReader, Client, Reader, Writer, connect
from logboom.batch import build
from logboom.broker.api import CursorMove, Part, PublishKey
from logboom.errors import CursorMovedBack, LocalProtocolError, UnexpectedCursor
from logboom.storage.bookmark import Bookmark
from support.brokers.places import served


def with_node(tmp_path: Path, story: Callable[[str], None]) -> None:
    """A topic `in` of ten records, and `wide` of three partitions with four each."""

    async def run() -> None:
        async with asyncio.timeout(300), served(tmp_path) as (broker, address):
            await broker.create_topic("in", 1)
            await broker.create_topic("out", 1)
            await broker.create_topic("wide", 3)
            await broker.append([Part("in", [build([b"%d" % number for number in range(10)])])], "durable")
            for partition in range(3):
                values = [b"%d" % (10 * partition + number) for number in range(4)]
                await broker.append([Part("wide", [build(values)], partition)], "durable")
            await asyncio.to_thread(story, address)

    asyncio.run(run())


def written(address: str) -> list[int]:
    with Reader("out", address) as reader:
        return [int(record.value or b"") for record in reader]


def place(client: Client, cursor: str = "c", topic: str = "in") -> dict[int, int]:
    return {info.partition: info.seqno for info in client.list_cursors(topic) if info.cursor == cursor}


def copy(client: Client, reader: Reader, count: int, name: str | None = None, number: int = 0) -> None:
    with client.transaction(name, number) as transaction:
        for record in islice(reader, count):
            transaction.write("out", record.value)
        transaction.commit_cursor(reader)


def test_what_was_read_is_written_with_the_readers_place_again_and_again(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with Client(address) as client:
            for until in (3, 6, 10):
                with Reader("in", address, cursor="c") as reader:
                    copy(client, reader, 2)
                    copy(client, reader, 1)
                    assert place(client) == {0: until if until < 10 else 9}
                    if until == 10:
                        copy(client, reader, 5)
                        copy(client, reader, 5)  # nothing is left
            assert (written(address), place(client)) == (list(range(10)), {0: 10})

    with_node(tmp_path, story)


def test_a_place_moves_with_a_large_transaction_too(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with Client(address) as client, Reader("in", address, cursor="c") as reader:
            with client.transaction("job", 1) as transaction:
                assert len(list(reader)) == 10
                transaction.write_many("out", [b"%d" % number for number in range(100_000)])
                transaction.commit_cursor(reader)
            assert (len(written(address)), place(client)) == (100_000, {0: 10})

    with_node(tmp_path, story)


def test_all_partitions_of_a_topic_move_at_once(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with Client(address) as client:
            for _ in range(4):
                with Reader("wide", address, cursor="c") as reader:
                    copy(client, reader, 2)
                    copy(client, reader, 1)
            assert sorted(written(address)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
            assert place(client, topic="wide") == {0: 4, 1: 4, 2: 4}

    with_node(tmp_path, story)


def test_of_two_readers_with_one_cursor_one_publishes_what_it_made_of_a_record(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with (
            Client(address) as client,
            Reader("in", address, cursor="c") as one,
            Reader("in", address, cursor="c") as other,
        ):
            late = client.transaction()
            late.__enter__()
            for record in islice(other, 3):
                late.write("out", record.value)
            late.commit_cursor(other)
            copy(client, one, 3)
            with pytest.raises(UnexpectedCursor):
                late.__exit__(None, None, None)
            with pytest.raises(UnexpectedCursor):
                copy(client, other, 3)
            copy(client, one, 3)
            with Reader("in", address, cursor="c") as third:
                copy(client, one, 1)
                with pytest.raises(UnexpectedCursor):
                    copy(client, third, 1)
            assert (written(address), place(client)) == (list(range(7)), {0: 7})

    with_node(tmp_path, story)


def test_a_block_that_fails_moves_nothing_and_may_be_run_again(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with Client(address) as client, Reader("in", address, cursor="c") as reader:
            copy(client, reader, 1)
            values = [record.value for record in islice(reader, 2)]
            broken = client.transaction()
            broken.__enter__()
            broken.commit_cursor(reader)
            broken.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
            assert (written(address), place(client)) == ([0], {0: 1})
            with client.transaction() as transaction:
                for value in values:
                    transaction.write("out", value)
                transaction.commit_cursor(reader)
            with client.transaction() as transaction:
                transaction.commit_cursor(reader)
                transaction.discard()
            with pytest.raises(LocalProtocolError):
                transaction.commit_cursor(reader)
            reader.seek(3)
            copy(client, reader, 1)
            assert (written(address), place(client)) == ([0, 1, 2, 3], {0: 4})

    with_node(tmp_path, story)


def test_commits_and_transactions_of_one_reader_go_together(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with Client(address) as client, Reader("in", address, cursor="c", seqno=2) as reader:
            next(iter(reader))
            reader.commit()
            copy(client, reader, 2)
            with client.transaction() as transaction:
                next(iter(reader))
                transaction.commit_cursor(reader)
                next(iter(reader))
                transaction.commit_cursor(reader)
            assert (written(address), place(client)) == ([3, 4], {0: 7})
            reader.seek(1)
            next(iter(reader))
            with pytest.raises(CursorMovedBack):
                copy(client, reader, 1)
            with Reader("in", address) as other, pytest.raises(ValueError, match="no cursor"):
                copy(client, other, 1)

    with_node(tmp_path, story)


def test_cursors_are_moved_without_a_reader(tmp_path: Path) -> None:
    def story(address: str) -> None:
        with Client(address) as client, Writer("in", address):
            topic_id = bytes.fromhex(client.describe_topic("in").id)
            with client.transaction("job", 1) as transaction:
                for seqno in (7, 4):  # the last one counts
                    bookmark = str(Bookmark(topic_id, 0, seqno, 0))
                    transaction.move_cursors([CursorMove("mine", "in", 0, bookmark, expect="")])
            with client.transaction("job", 1) as transaction:
                transaction.move_cursors([CursorMove("mine", "in", 0, str(Bookmark(topic_id, 0, 9, 0)))])
            assert transaction.publication is not None
            assert transaction.publication.repeat
            assert place(client, "mine") == {0: 4}

    with_node(tmp_path, story)


def test_an_asyncio_reader_gives_its_moves_to_a_publish(tmp_path: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), served(tmp_path) as (local, address):
            await local.create_topic("in", 2)
            await local.create_topic("out", 1)
            for partition in range(2):
                values = [b"%d" % (partition + 2 * number) for number in range(6)]
                await local.append([Part("in", [build(values)], partition)], "durable")
            async with connect(address) as broker, AsyncReader("in", address, cursor="c") as reader:
                number = 0
                async for record in reader.records():
                    number += 1
                    moves = await reader.moves()
                    part = Part("out", [build([record.value])])
                    await broker.publish_batches(PublishKey("job", number), [part], moves)
                    reader.moved(moves)
                assert [each.seqno for each in await broker.list_cursors("in")] == [6, 6]
                assert await reader.moves() == []
                async with AsyncReader("in", address, cursor="c") as late:
                    assert [record async for record in late.records()] == []
        assert number == 12

    asyncio.run(run())
