"""Readers, and `logboom read`, that begin with a checkpoint: its records, then the log from where it ends."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom import AsyncReader, Reader
from logboom.batch import Record, build, build_records
from logboom.broker.api import Part
from logboom.broker.local import LocalBroker
from logboom.cli import run
from logboom.errors import (
    BookmarkLost,
    CheckpointNotFound,
    LocalProtocolError,
    PartitionNotFound,
    ResultsUnreadable,
)
from support.brokers.places import served
from support.results.checkpointed import publish

RECORDS = [
    Record(b"%d" % n, key=b"k%d" % (n % 4), channel=f"c/{n % 3}", timestamp=n, seqno=n, tags=("even",) * (n % 2 == 0))
    for n in range(20)
]
UNTIL = 12
STATE = [8, 9, 10, 11]
"""The latest of each key up to there."""


def with_node(tmp_path: Path, read: Callable[[LocalBroker, str], Any], layers: bool = True) -> None:
    """A node whose topic has a checkpoint; `read` runs in a thread, or is a story."""

    async def story() -> None:
        async with asyncio.timeout(300), served(tmp_path, "tcp") as (broker, address):
            await broker.create_topic("events", 1)
            await broker.append([Part("events", [build_records(RECORDS)])], "durable")
            if layers:
                await make(broker, tmp_path)
            if asyncio.iscoroutinefunction(read):
                await read(broker, address)
            else:
                await asyncio.to_thread(read, broker, address)

    asyncio.run(story())


async def make(broker: LocalBroker, tmp_path: Path, **more: Any) -> None:
    parts = [{0: RECORDS[4:8]}, {0: RECORDS[8:12]}]
    await publish(broker, tmp_path / "results", "events", parts, {0: UNTIL}, **more)


def test_every_form_gives_the_state_and_then_the_tail(tmp_path: Path) -> None:
    forms: dict[str, Callable[[Reader], list[int | None]]] = {
        "records": lambda reader: [record.seqno for record in reader],
        "lists": lambda reader: [n for _, numbers in reader.lists(["value", "seqno"]) for n in numbers],
        "tables": lambda reader: [n for table in reader.tables(["seqno"]) for n in table.column(0).to_pylist()],
        "table": lambda reader: reader.table().column("seqno").to_pylist(),
    }

    def read(broker: LocalBroker, address: str) -> None:
        for name, take in forms.items():
            with Reader("events", address, from_checkpoint=True) as reader:
                assert take(reader) == [*STATE, *range(UNTIL, 20)], name
                assert (reader.seqno, reader.at_end) == (20, True)
        with Reader("events", address, from_checkpoint=True) as reader:
            read = [msgspec.structs.replace(record, topic="events", partition=0) for record in RECORDS]
            assert list(reader) == [*read[8:12], *read[UNTIL:]], "whole records, with their own seqnos and times"
        with Reader("events", address, checkpoint="key") as reader, pytest.raises(ValueError, match="stored batches"):
            list(reader.batches())

    with_node(tmp_path, read)


def test_an_async_reader_does_the_same_and_follows(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        async with AsyncReader("events", address, from_checkpoint=True) as reader:
            assert [record.seqno async for record in reader] == [*STATE, *range(UNTIL, 20)]
        async with AsyncReader("events", address, from_checkpoint=True) as reader:
            seen = []
            async for record in reader.records(follow=True):
                seen.append(record.seqno)
                if record.seqno == 19:
                    await broker.append([Part("events", [build([b"new"])])], "durable")
                if record.seqno == 20:
                    break
            assert seen == [*STATE, *range(UNTIL, 21)]

    with_node(tmp_path, story)


def test_there_is_no_place_to_come_back_to_before_the_state_has_been_given(tmp_path: Path) -> None:
    def read(broker: LocalBroker, address: str) -> None:
        with Reader("events", address, from_checkpoint=True, cursor="mine") as reader:
            assert (reader.seqno, reader.at_end) == (None, False)
            for record in reader:
                if record.seqno == STATE[-1]:
                    break
                assert reader.seqno is None
                with pytest.raises(LocalProtocolError, match="end of the checkpoint"):
                    reader.commit()
            assert reader.seqno == UNTIL, "with the last of the state"
            bookmark = reader.bookmark
            assert [record.seqno for record in reader][:1] == [UNTIL], "the next loop goes on"
            reader.seek(15)
            reader.commit()
        with Reader("events", address, bookmark=bookmark) as reader:
            assert next(iter(reader)).seqno == UNTIL
        with Reader("events", address, from_checkpoint=True, cursor="mine") as reader:
            assert reader.seqno == 15, "a cursor that has a place goes on there"
            assert [record.seqno for record in reader] == list(range(15, 20))
        with Reader("events", address, from_checkpoint=True) as reader:
            assert next(iter(reader)).seqno == STATE[0]
            assert next(reader.tables()).num_rows == 3, "the rest of a piece, in another form"
        with Reader("events", address, from_checkpoint=True) as reader:
            reader.seek(3)
            assert next(iter(reader)).seqno == 3

    with_node(tmp_path, read)


def test_what_was_trimmed_is_no_part_of_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def seqnos(**more: Any) -> list[int | None]:
            with Reader("events", address, from_checkpoint=True, **more) as reader:
                return [record.seqno for record in reader]

        await broker.trim("events", 0, 10)
        assert await asyncio.to_thread(seqnos) == [10, 11, *range(UNTIL, 20)]
        await broker.trim("events", 0, 15)
        assert await asyncio.to_thread(seqnos) == list(range(15, 20))

    with_node(tmp_path, story)


def test_filters_that_a_state_can_answer_are_taken_and_others_refused(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def seqnos(**more: Any) -> list[int | None]:
            with Reader("events", address, from_checkpoint=True, **more) as reader:
                return [record.seqno for record in reader]

        assert await asyncio.to_thread(seqnos, key="k1") == [9, 13, 17]
        with pytest.raises(CheckpointNotFound, match="by channel"):
            await asyncio.to_thread(seqnos, channel="c/1")
        with pytest.raises(CheckpointNotFound, match="tag even"):
            await asyncio.to_thread(seqnos, tags_any=["even"])
        of_channels = [{0: [RECORDS[9], RECORDS[10], RECORDS[11]]}]
        await publish(broker, tmp_path / "results", "events", of_channels, {0: UNTIL}, by="channel")
        even = [{0: [RECORDS[8], RECORDS[10]]}]
        await publish(broker, tmp_path / "results", "events", even, {0: UNTIL}, tag="even")
        assert await asyncio.to_thread(seqnos, channel="c/1") == [10, 13, 16, 19]
        assert await asyncio.to_thread(seqnos, checkpoint="channel") == [9, 10, 11, *range(UNTIL, 20)]
        assert await asyncio.to_thread(seqnos, tags_any=["even"]) == [8, 10, *range(UNTIL, 20, 2)]
        with pytest.raises(CheckpointNotFound, match="say which"):
            await asyncio.to_thread(seqnos)
        wrong: dict[str, Any]
        for wrong in (
            {"tags_any": ["a", "b"]},
            {"channel": "c/1", "checkpoint": "key"},
            {"at": "latest"},
            {"seqno": 1},
        ):
            with pytest.raises(ValueError, match="checkpoint"):
                seqnos(**wrong)

    with_node(tmp_path, story)


def test_what_cannot_be_read_is_said_with_its_place(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def first(partition: int | None = None) -> int | None:
            with Reader("events", address, partition, from_checkpoint=True) as reader:
                return next(iter(reader)).seqno

        with pytest.raises(CheckpointNotFound, match="none was made"):
            await asyncio.to_thread(first)
        await make(broker, tmp_path)
        assert await asyncio.to_thread(first) == STATE[0]
        shutil.move(tmp_path / "results", tmp_path / "elsewhere")
        with pytest.raises(ResultsUnreadable, match="results/checkpoint/events/key"):
            await asyncio.to_thread(first)
        await broker.delete_topic("events")
        await broker.create_topic("events", 2)
        with pytest.raises(PartitionNotFound):
            await asyncio.to_thread(first)
        with pytest.raises(CheckpointNotFound, match="none was made"):
            await asyncio.to_thread(first, 0)

    with_node(tmp_path, story, layers=False)


def test_a_checkpoint_of_a_log_that_has_lost_its_tail_is_noticed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def seqnos() -> list[int | None]:
            with Reader("events", address, from_checkpoint=True) as reader:
                return [record.seqno for record in reader]

        await publish(broker, tmp_path / "results", "events", [{0: RECORDS[4:8]}], {0: 30})
        with pytest.raises(BookmarkLost):
            await asyncio.to_thread(seqnos)

    with_node(tmp_path, story, layers=False)


def test_the_command_reads_state_and_tail_and_a_cursor_only_once(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def read(broker: LocalBroker, address: str) -> None:
        def printed(*options: str, code: int = 0) -> list[bytes]:
            assert run(["read", "events", "-s", address, "--from", "checkpoint", *options]) == code
            return capfdbinary.readouterr().out.split()

        whole = [b"%d" % n for n in (*STATE, *range(UNTIL, 20))]
        assert printed() == whole
        assert printed("--limit", "2") == whole[:2]
        assert printed("--cursor", "once", "--limit", "3") == whole[:3], "not all of the state: no place for a cursor"
        assert printed("--cursor", "once") == whole
        assert printed("--cursor", "once") == []
        assert printed("--until", "3", code=2) == []
        assert run(["read", "events", "-s", address, "--from", "checkpoint:colour"]) == 2
        assert b"checkpoint:channel" in capfdbinary.readouterr().err

    with_node(tmp_path, read)


@pytest.mark.parametrize("gone", ["manifest.json", "*.parquet"])
def test_the_command_names_what_is_gone_and_the_job_that_makes_it_anew(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], gone: str
) -> None:
    def read(broker: LocalBroker, address: str) -> None:
        for file in (tmp_path / "results").rglob(gone):
            file.unlink()
        assert run(["read", "events", "-s", address, "--from", "checkpoint"]) == 2
        (said,) = capfdbinary.readouterr().err.decode().splitlines()
        assert "results/checkpoint/events/key" in said
        assert "run the checkpoint job" in said

    with_node(tmp_path, read)


def test_the_command_commits_the_end_of_a_state_that_nothing_follows(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await publish(broker, tmp_path / "results", "events", [{0: RECORDS[16:]}], {0: 20})
        command = ["read", "events", "-s", address, "--from", "checkpoint", "--cursor", "mine"]
        for expected in ([b"16", b"17", b"18", b"19"], []):
            assert await asyncio.to_thread(run, command) == 0
            assert capfdbinary.readouterr().out.split() == expected

    with_node(tmp_path, story, layers=False)
