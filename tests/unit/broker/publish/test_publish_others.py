"""A publish and everybody else: who stages, publishes, appends, reads and opens files beside it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Answer, Part, PublishKey, Settings
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import Adoption, AwaitedPromise, Entry
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher
from logboom.broker.publish.finisher import ADOPTED_AT_ONCE
from logboom.broker.publish.intent import Intent
from logboom.broker.publish.key_book import KeyBook
from logboom.storage.data.topic import FlushSettings, SegmentSettings
from logboom.storage.files.disk import File, OsDisk
from logboom.storage.staged import stage
from logboom.storage.staged.sheet import Sheet
from support.simulation.staged import fill, read_log

SMALL = Settings(SegmentSettings(8192))
A0 = ("a", 0)


def values(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}:{number}".encode().ljust(1000) for number in range(count)]


@asynccontextmanager
async def opened(path: Path, settings: Settings = SMALL, partitions: int = 1) -> AsyncIterator[LocalBroker]:
    broker = await LocalBroker.open(str(path))
    try:
        await broker.create_topic("a", partitions, settings)
        yield broker
    finally:
        await broker.close()


def test_others_stage_and_publish_while_many_stages_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, slow, sync = threading.Event(), set[str](), Sheet.sync

    def sync_slowly(sheet: Sheet) -> None:
        if any(name in sheet.path for name in slow):
            gate.wait(300)
        sync(sheet)

    monkeypatch.setattr(Sheet, "sync", sync_slowly)

    async def story() -> None:
        async with opened(tmp_path) as broker:
            receipts = [(await fill(broker, {A0: [b"%d" % number]}))[1] for number in range(8)]
            slow.update(receipt.stage for receipt in receipts)
            many = asyncio.create_task(broker.publish(PublishKey("many", 1), receipts))
            try:
                async with asyncio.timeout(120):  # less than the gate waits
                    await broker.publish(PublishKey("one", 1), [(await fill(broker, {A0: [b"one"]}))[1]])
                assert not many.done()
            finally:
                gate.set()
            await many
            assert await read_log(broker, A0) == [b"one", *(b"%d" % number for number in range(8))]

    asyncio.run(story())


def test_only_a_few_logs_of_a_publish_are_taken_from_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LARGE_BYTES", 2000)
    submit, under_way, most = LogWriter.submit, set[Entry](), list[int]()

    def count(writer: LogWriter, entry: Entry) -> None:
        if isinstance(entry, Adoption):
            under_way.add(entry)
            most.append(len(under_way))
            assert isinstance(entry.promise, AwaitedPromise)
            entry.promise.future.add_done_callback(lambda _: under_way.discard(entry))
        submit(writer, entry)

    monkeypatch.setattr(LogWriter, "submit", count)

    async def story() -> None:
        async with opened(tmp_path, partitions=6) as broker:
            logs = {("a", number): values(str(number), 7) for number in range(6)}
            await broker.publish(PublishKey("k", 1), [(await fill(broker, logs))[1]])
            assert max(most) == ADOPTED_AT_ONCE
            assert {log: await read_log(broker, log) for log in logs} == logs

    asyncio.run(story())


def test_what_is_published_can_be_read_although_somebody_appends_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LARGE_BYTES", 2000)
    submit = LogWriter.submit

    async def story() -> None:
        async with opened(
            tmp_path, Settings(SegmentSettings(8192), flush=FlushSettings("interval", 3_600_000))
        ) as broker:

            def append_around(writer: LogWriter, entry: Entry) -> None:
                if isinstance(entry, Adoption):  # somebody's large append is being written, and a small one comes next
                    others.append(broker.append([Part("a", [build([bytes(2**21)])], 0)], "leader"))
                submit(writer, entry)
                if isinstance(entry, Adoption):
                    others.append(broker.append([Part("a", [build([b"small"])], 0)], "leader"))

            others: list[asyncio.Future[list[Answer]]] = []
            receipt = (await fill(broker, {A0: values("x", 7)}))[1]
            monkeypatch.setattr(LogWriter, "submit", append_around)
            published = await broker.publish(PublishKey("k", 1), [receipt])
            assert published.parts is not None
            (log,) = (await broker.describe_topic("a")).partitions
            assert log.committed >= published.parts[0].next
            await asyncio.gather(*others)

    asyncio.run(story())


@pytest.mark.parametrize("part", [8, 0.1], ids=["adopted", "in slices"])
def test_files_that_run_out_after_the_intent_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    monkeypatch.setattr(stage, "LARGE_BYTES", 2000)
    monkeypatch.setattr(finisher, "RETRY_S", 0.01)
    monkeypatch.setattr(finisher, "ADOPTED_PART", part)
    commit, open_file, refusals = KeyBook.commit, OsDisk.open, list[str]()
    left = 0

    def open_scarcely(disk: OsDisk, path: str) -> File:
        nonlocal left
        if left and path.endswith(".piece"):
            left -= 1
            refusals.append(path)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_file(disk, path)

    async def commit_then_have_none(self: KeyBook, name: str, intent: Intent) -> None:
        nonlocal left
        await commit(self, name, intent)
        left = 3 if intent.is_open else 0

    monkeypatch.setattr(OsDisk, "open", open_scarcely)
    monkeypatch.setattr(KeyBook, "commit", commit_then_have_none)

    async def story() -> None:
        async with opened(tmp_path) as broker:
            await broker.publish(PublishKey("k", 1), [(await fill(broker, {A0: values("x", 7)}))[1]])
            assert len(refusals) == 3
            assert await read_log(broker, A0) == values("x", 7)

    asyncio.run(story())


def test_a_publish_of_many_stages_keeps_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, counts = KeyBook.commit, list[int]()

    async def count_files(self: KeyBook, name: str, intent: Intent) -> None:
        files = []
        for number in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # of this list itself, or of another thread
                files.append(os.readlink(f"/proc/self/fd/{number}"))
        counts.append(sum(".stage" in file for file in files))
        await commit(self, name, intent)

    monkeypatch.setattr(KeyBook, "commit", count_files)

    async def story() -> None:
        async with opened(tmp_path) as broker:
            receipts = [(await fill(broker, {A0: [b"%d" % number]}))[1] for number in range(40)]
            await broker.publish(PublishKey("k", 1), receipts)
            assert max(counts) < 10, counts
            assert await read_log(broker, A0) == [b"%d" % number for number in range(40)]

    asyncio.run(story())
