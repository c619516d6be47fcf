"""A log and its archive are one: every kind of reader sees exactly the records that a model of the log has."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from logboom import Reader
from logboom.access.rule import Rule
from logboom.batch import Record, Selection, build, build_records
from logboom.broker.api import Filter, Part, ReadRequest, Settings, Start
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.checkup import examine
from logboom.client import FileReader
from logboom.client.files.file_archives import FileArchives
from logboom.client.remote import connect
from logboom.errors import Damage, SeqnoOutOfRange
from logboom.results.archive import ArchivedFile
from logboom.results.pipeline_follower import PipelineFollower
from logboom.storage.data.topic import HookSettings, RetentionSettings, SegmentSettings
from logboom.storage.files.disk import OsDisk
from support.brokers.any_hook import ANY_HOOK
from support.nodes.process import NodeProcess, free_port
from support.nodes.warm import run_warm
from support.results.archived import archive, clip
from support.waiting import until

Test = Callable[..., Coroutine[Any, Any, None]]

CONFIG = BrokerConfig(upkeep=UpkeepSettings(retention_every_ms=5), allowed=ANY_HOOK)
SMALL = SegmentSettings(bytes=4096)


def unplaced(reader: FileReader) -> list[Record]:
    """What it reads, as chunks have it, which do not say where a record is from."""
    return [msgspec.structs.replace(record, topic=None, partition=None) for record in reader.records()]


def looped(test: Test) -> Callable[..., None]:
    """A test with an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def settings(**retention: Any) -> Settings:
    return Settings(segment=SMALL, retention=RetentionSettings(**retention))


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[LocalBroker]:
    """A broker that knows what is archived, as a node's does."""
    broker = await LocalBroker.open(str(directory / "data"), CONFIG)
    following = await PipelineFollower.start(broker, broker.archives.put)
    try:
        yield broker
    finally:
        await following.close()
        await broker.close()


def make_record(rng: random.Random, number: int) -> Record:
    return Record(
        rng.choice([None, b"", b"%d" % number, rng.randbytes(200)]),
        key=rng.choice([None, b"", b"k%d" % (number % 3)]),
        timestamp=rng.choice([None, 1_000_000 * number, 1_000_000 * (number - 50)]),
        channel=rng.choice([None, "a/b", "a/c", "größe"]),
        tags=tuple(rng.sample(["red", "blue", "größe"], rng.randrange(3))),
        headers=(("h", b"1"), ("h", b"2")) if rng.random() < 0.3 else (),
    )


async def append(broker: LocalBroker, topic: str, records: list[Record], partition: int = 0) -> None:
    for start in range(0, len(records), 7):
        (answer,) = await broker.append([Part(topic, [build_records(records[start : start + 7])], partition)])
        assert not isinstance(answer, Exception), answer


async def read(broker: LocalBroker, topic: str, start: Start, partition: int = 0, **more: Any) -> list[Record]:
    """All there is, in chunks of any size, each asked for with the bookmark of the one before."""
    found: list[Record] = []
    while True:
        size = random.choice([1000, 5000, 1 << 20])
        chunk = await broker.read(ReadRequest(topic, start, partition, max_bytes=size, **more))
        found += chunk.records()
        if chunk.at_end:
            return found
        start = Start(bookmark=chunk.bookmark)


def own_first(broker: LocalBroker, topic: str, partition: int = 0) -> int:
    return broker._catalog.find(topic).writer(partition).log.first


async def fill(broker: LocalBroker, topic: str, count: int, rng: random.Random) -> list[Record]:
    """So many records; as they were read before anything was archived or dropped."""
    await append(broker, topic, [make_record(rng, number) for number in range(count)])
    return await read(broker, topic, Start())


async def fill_and_drop(broker: LocalBroker, directory: Path, topic: str = "events") -> list[Record]:
    """A log whose first records are in the archive alone."""
    await broker.create_topic(topic, 1, settings(after="archive"))
    records = await fill(broker, topic, 400, random.Random(3))
    await archive(broker, topic, directory / "archive")
    await broker.configure_topic(topic, settings(bytes=8192, after="archive"))
    await until(lambda: own_first(broker, topic) > 100)
    return records


@looped
async def test_records_that_were_dropped_are_read_from_the_archive_as_they_were(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        (part,) = (await broker.describe_topic("events")).partitions
        assert (part.first, part.first_stored) == (0, own_first(broker, "events"))
        assert await read(broker, "events", Start()) == records
        for seqno in (0, 1, 99, own_first(broker, "events") - 1, own_first(broker, "events"), 399, 400):
            assert await read(broker, "events", Start(seqno=seqno)) == records[seqno:]


@looped
async def test_after_a_restart_the_archive_is_known_before_anybody_reads(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
    async with opened(tmp_path) as broker:
        assert await read(broker, "events", Start()) == records


@looped
async def test_a_time_before_the_log_s_own_first_record_is_found_in_the_archive(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        for moment in (0, 1_000_000, 30_500_000, 77_000_001, 350_000_000, 2**62):
            wanted = next((at for at, record in enumerate(records) if (record.timestamp or 0) >= moment), len(records))
            assert await read(broker, "events", Start(time=moment)) == records[wanted:]


@looped
async def test_a_filter_finds_the_same_records_in_the_archive_as_in_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        wanted = Filter(tags_any=("red",))
        found = await read(broker, "events", Start(), filter=wanted)
        assert found == [record for record in records if "red" in record.tags]
        found = await read(broker, "events", Start(seqno=20), filter=Filter(channel="a/+", key=b"k1"))
        assert found == [
            record for record in records[20:] if (record.channel or "")[:2] == "a/" and record.key == b"k1"
        ]


@looped
async def test_rules_leave_out_the_same_records_of_the_archive_as_of_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        for effect, kind, name in (("allow", "topic", "*"), ("allow", "channel", "a/+"), ("deny", "tag", "red")):
            await broker.add_rule(Rule(effect, "ann", ("read",), kind, name))  # type: ignore[arg-type]
        expected = [record for record in records if record.channel in ("a/b", "a/c") and not set(record.tags) & {"red"}]
        for most in (None, 1, 3):
            found, start = list[Record](), Start()
            while True:
                request = ReadRequest("events", start, 0, max_bytes=5000, max_records=most)
                chunk = await broker.read(request, caller=Caller("ann", by="certificate"))
                found += chunk.records()
                start = Start(bookmark=chunk.bookmark)
                if chunk.at_end:
                    break
            assert found == expected


@looped
async def test_a_bookmark_from_before_goes_on_in_the_archive_and_then_in_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await broker.create_topic("events", 1, settings(after="archive"))
        records = await fill(broker, "events", 400, random.Random(5))
        subscription = await broker.subscribe(ReadRequest("events", max_bytes=3000))
        chunks = [await subscription.next(3000) for _ in range(5)]
        await archive(broker, "events", tmp_path / "archive")
        await broker.configure_topic("events", settings(bytes=8192, after="archive"))
        await until(lambda: own_first(broker, "events") > chunks[-1].next_seqno)
        for chunk in chunks:
            assert await read(broker, "events", Start(bookmark=chunk.bookmark)) == records[chunk.next_seqno :]
        found = [record for chunk in chunks for record in chunk.records()]
        while len(found) < len(records):  # who read on all the while
            found += (await subscription.next(3000)).records()
        assert found == records


@looped
async def test_files_alone_show_the_archived_records_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        first = own_first(broker, "events")
        assert_files_show(tmp_path / "data", records, 0, first)
    assert_files_show(tmp_path / "data", records, 0, first)


def assert_files_show(directory: Path, records: list[Record], first: int, stored: int) -> None:
    with FileReader(directory, "events") as reader:
        assert reader.first == first
        assert unplaced(reader) == records[first:]
    with FileReader(directory, "events", seqno=stored - 1) as reader:
        table = reader.table()
        assert table.column("seqno").to_pylist() == list(range(stored - 1, len(records)))
        assert table.column("value").to_pylist() == [record.value for record in records[stored - 1 :]]
    moment = 120_500_000
    wanted = next((at for at, record in enumerate(records) if at >= first and (record.timestamp or 0) >= moment))
    with FileReader(directory, "events", timestamp=moment) as reader:
        assert reader.seqno == wanted
        pieces = reader.cut(first, len(records), 4096)
        assert [piece.seqno_from for piece in pieces[1:]] == [piece.seqno_until for piece in pieces[:-1]]
        assert (pieces[0].seqno_from, pieces[-1].seqno_until) == (first, len(records))
    with FileReader(directory, "events") as reader:
        tables = list(reader.tables(["seqno"], where=Selection(tags_any=("blue",))))
        seqnos = [seqno for table in tables for seqno in table.column("seqno").to_pylist()]
        assert seqnos == [at for at, record in enumerate(records) if at >= first and "blue" in record.tags]


@looped
async def test_a_trim_hides_archived_records_at_once_and_for_ever(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        subscription = await broker.subscribe(ReadRequest("events", Start(), max_bytes=1000))
        await subscription.next(1000)
        trimmed = await broker.trim("events", 0, 90)
        assert trimmed.first == 90
        with pytest.raises(SeqnoOutOfRange):
            await subscription.next(1000)
        with pytest.raises(SeqnoOutOfRange) as gone:
            await read(broker, "events", Start(seqno=89))
        assert gone.value.first == 90
        assert await read(broker, "events", Start()) == records[90:]
        assert await read(broker, "events", Start(seqno=5), gaps="skip") == records[90:]
        assert await read(broker, "events", Start(time=0)) == records[90:]
        assert_files_show(tmp_path / "data", records, 90, own_first(broker, "events"))
    async with opened(tmp_path) as broker:
        assert await read(broker, "events", Start()) == records[90:]


@looped
async def test_who_has_not_heard_of_a_file_that_took_the_place_of_another_reads_on_in_it(tmp_path: Path) -> None:
    """Both in a node and in another process: those are read who stand for what was archived before."""
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
        topic = (await broker.describe_topic("events")).id
        in_files = FileArchives(OsDisk(str(tmp_path / "data"), read_only=True), str(tmp_path / "data"))
        before = broker.archives.find(topic, 0), in_files.get(topic, 0)
        floor = 30
        await broker.trim("events", 0, floor)
        await clip(broker, "events", tmp_path / "archive")
        moment = max(record.timestamp or 0 for record in records[floor:60])
        wanted = next(at for at, record in enumerate(records) if at >= floor and (record.timestamp or 0) >= moment)
        for archived in before:
            assert archived is not None
            run = await asyncio.to_thread(archived.read, floor, 1)
            (batch,) = run.batches()
            assert next(iter(batch.records())) == records[floor]
            assert await asyncio.to_thread(archived.seqno_at, moment, 0) == wanted
        in_files.close()
        assert await read(broker, "events", Start()) == records[floor:]


@looped
async def test_nothing_is_dropped_before_it_is_archived(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await broker.create_topic("events", 1, settings(bytes=0, after="archive"))
        records = await fill(broker, "events", 300, random.Random(1))
        await asyncio.sleep(0.1)
        assert own_first(broker, "events") == 0
        files = await archive(broker, "events", tmp_path / "archive")
        await until(lambda: own_first(broker, "events") == files[-1].seqno_until)
        assert await read(broker, "events", Start()) == records


@looped
async def test_a_hook_runs_for_what_is_archived_and_for_nothing_else(tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook = HookSettings(delete=f"echo $LOGBOOM_FIRST_SEQNO >> {told}")
    rules = msgspec.structs.replace(settings(bytes=0, after="archive"), hook=hook)
    async with opened(tmp_path) as broker:
        await broker.create_topic("events", 1, rules)
        records = await fill(broker, "events", 100, random.Random(1))
        files = await archive(broker, "events", tmp_path / "archive")
        records += (await fill(broker, "events", 100, random.Random(2)))[100:]
        await until(lambda: own_first(broker, "events") == files[-1].seqno_until)
        assert told.read_text().split() == [str(file.seqno_from) for file in files]
        assert await read(broker, "events", Start()) == records


@looped
async def test_beyond_hard_bytes_segments_go_unarchived_and_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as broker:
        await broker.create_topic("events", 1, settings(bytes=0, after="archive"))
        await fill(broker, "events", 300, random.Random(1))
        await until(lambda: bool(broker._upkeep.stats.waiting))
        (complaint,) = [found for found in await examine(broker, EVERYBODY) if found.where == "events/0"]
        assert (complaint.severity, complaint.kind) == ("warning", "waits for an archive")
        await archive(broker, "events", tmp_path / "archive")
        await until(lambda: own_first(broker, "events") > 0)
        await fill(broker, "events", 200, random.Random(2))
        await until(lambda: bool(broker._upkeep.stats.waiting))
        (complaint,) = [found for found in await examine(broker, EVERYBODY) if found.where == "events/0"]
        assert (complaint.severity, complaint.kind) == ("info", "waits for the archive")
        (part,) = (await broker.describe_topic("events")).partitions
        hard_bytes = part.size_bytes + 1000
        await broker.configure_topic("events", settings(bytes=0, after="archive", hard_bytes=hard_bytes))
        await until(lambda: broker._upkeep.stats.waiting[0].hard_bytes == hard_bytes)
        (complaint,) = [found for found in await examine(broker, EVERYBODY) if found.where == "events/0"]
        assert (complaint.severity, complaint.kind) == ("warning", "near the hard limit")
        await broker.configure_topic("events", settings(bytes=0, after="archive", hard_bytes=6000))
        await until(lambda: broker._upkeep.stats.dropped_without_archive.segments > 0)
        assert "DROPPED BEFORE IT WAS ARCHIVED" in caplog.text
        assert any(found.kind == "dropped before it was archived" for found in await examine(broker, EVERYBODY))


@looped
async def test_an_archive_with_a_gap_behind_it_counts_for_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await broker.create_topic("events", 1, settings())
        records = await fill(broker, "events", 100, random.Random(1))
        files = await archive(broker, "events", tmp_path / "archive")
        records += (await fill(broker, "events", 300, random.Random(2)))[100:]
        await broker.configure_topic("events", settings(bytes=4096))
        await until(lambda: own_first(broker, "events") > files[-1].seqno_until)
        first = own_first(broker, "events")
        (part,) = (await broker.describe_topic("events")).partitions
        assert (part.first, part.first_stored) == (first, None)
        assert await read(broker, "events", Start()) == records[first:]
        with pytest.raises(SeqnoOutOfRange):
            await read(broker, "events", Start(seqno=0))


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 3] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "cut", "changed"])
@looped
async def test_a_file_that_is_not_what_was_published_is_named_and_can_be_passed_over(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
    files = sorted((tmp_path / "archive").rglob("*.parquet"))
    spoil(files[2], how)
    low, high = (int(number) for number in files[2].stem.split("-")[1:])
    async with opened(tmp_path) as broker:
        with pytest.raises(Damage) as damage:
            await read(broker, "events", Start())
        assert str(files[2]) in str(damage.value)
        assert (damage.value.seqno_from, damage.value.seqno_until) == (low, high)
        assert await read(broker, "events", Start(), gaps="skip") == records[:low] + records[high:]
    with FileReader(tmp_path / "data", "events") as reader, pytest.raises(Damage):
        list(reader.records())
    with FileReader(tmp_path / "data", "events", gaps="skip") as reader:
        assert unplaced(reader) == records[:low] + records[high:]
        assert reader.skipped == high - low


@looped
async def test_a_manifest_that_cannot_be_read_is_named_and_the_log_itself_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        records = await fill_and_drop(broker, tmp_path)
    (manifest,) = (tmp_path / "archive").rglob("manifest.json")
    manifest.write_bytes(b"{}")
    async with opened(tmp_path) as broker:
        with pytest.raises(Damage, match=r"manifest\.json"):
            await read(broker, "events", Start())
        first = own_first(broker, "events")
        assert await read(broker, "events", Start(seqno=first)) == records[first:]
        assert (await read(broker, "events", Start(), gaps="skip"))[-1] == records[-1]


class Model:
    """Partitions as lists of the records that were ever appended, and where each may be read from."""

    def __init__(self, broker: LocalBroker, directory: Path, rng: random.Random) -> None:
        self.broker = broker
        self.place = directory / "archive"
        self.data = directory / "data"
        self.rng = rng
        self.records: list[list[Record]] = [[], []]
        self.files: list[ArchivedFile] = []
        self.bookmarks: list[tuple[int, int, str]] = []

    async def append(self) -> None:
        number = self.rng.randrange(2)
        known = self.records[number]
        made = [make_record(self.rng, len(known) + at) for at in range(self.rng.randrange(1, 60))]
        await append(self.broker, "events", made, number)
        seqno = len(known)
        while len(known) < seqno + len(made):
            chunk = await self.broker.read(ReadRequest("events", Start(seqno=len(known)), number))
            known += chunk.records()
            self.bookmarks.append((number, chunk.next_seqno, chunk.bookmark))

    async def archive(self) -> None:
        self.files = await archive(self.broker, "events", self.place)

    async def drop(self) -> None:
        size = self.rng.choice([0, 4096, 12_000])
        await self.broker.configure_topic("events", settings(bytes=size, after="archive"))
        await asyncio.sleep(0.03)
        await self.broker.configure_topic("events", settings(after="archive"))

    async def trim(self) -> None:
        number = self.rng.randrange(2)
        part = (await self.broker.describe_topic("events")).partitions[number]
        if part.first < part.committed and self.rng.random() < 0.4:
            await self.broker.trim("events", number, self.rng.randrange(part.first, part.committed))

    async def check(self) -> None:
        info = await self.broker.describe_topic("events")
        for part, records in zip(info.partitions, self.records, strict=True):
            number = part.partition
            assert part.first == part.floor, "with retention that waits, only a trim hides records"
            rest = records[part.first :]
            assert await read(self.broker, "events", Start(), number) == rest
            seqno = self.rng.randrange(part.first, len(records) + 1)
            assert await read(self.broker, "events", Start(seqno=seqno), number) == records[seqno:]
            moment = self.rng.randrange(1, 1_000_000 * (len(records) + 2))
            later = next((at for at, record in enumerate(rest) if (record.timestamp or 0) >= moment), len(rest))
            assert await read(self.broker, "events", Start(time=moment), number) == rest[later:]
            found = await read(self.broker, "events", Start(), number, filter=Filter(tags_all=("red",)))
            assert found == [record for record in rest if "red" in record.tags]
            with FileReader(self.data, "events", number) as reader:
                assert unplaced(reader) == rest
        for number, seqno, bookmark in self.rng.sample(self.bookmarks, min(3, len(self.bookmarks))):
            if seqno >= info.partitions[number].first:
                found = await read(self.broker, "events", Start(bookmark=bookmark), number)
                assert found == self.records[number][seqno:]


@pytest.mark.parametrize("seed", range(3))
@looped
async def test_every_reader_sees_what_the_model_has_through_rolls_archives_drops_and_trims(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    async with opened(tmp_path) as broker:
        await broker.create_topic("events", 2, settings(after="archive"))
        model = Model(broker, tmp_path, rng)
        for _ in range(25):
            await rng.choice([model.append, model.append, model.append, model.archive, model.drop, model.trim])()
            await model.check()


def test_a_node_serves_what_is_archived_over_every_protocol_also_after_it_was_killed(tmp_path: Path) -> None:
    http = f"127.0.0.1:{free_port()}"
    with NodeProcess(tmp_path, "--http", http, "--set", "upkeep.retention_every_ms=10") as node:
        asyncio.run(fill_node(node.address, tmp_path / "archive"))
        values = [b"%d" % number for number in range(400)]
        for _ in range(2):
            with Reader("events", [node.address]) as reader:
                assert [record.value for record in reader.records()] == values
                assert reader.first == 0
            with Reader("events", [node.address], seqno=17, tags_any=("odd",)) as reader:
                assert [record.seqno for record in reader.records()] == list(range(17, 400, 2))
            with Reader("events", [node.address], timestamp=33_000_000) as reader:
                assert next(reader.records()).seqno == 33
            with urlopen(f"http://{http}/topics/events/records?from=12&limit=3") as answer:
                assert [record["seqno"] for record in json.load(answer)["records"]] == [12, 13, 14]
            lines = run_cli("read", "events", "--server", node.address, "--from", "5", "--limit", "4")
            assert lines == ["5", "6", "7", "8"]
            assert run_cli("sql", "SELECT count(*) AS n FROM events", "--csv", "--server", node.address) == ["n", "400"]
            node.kill()
            node.start()


async def fill_node(address: str, place: Path) -> None:
    async with connect(address) as broker:
        await broker.create_topic("events", 1, settings(after="archive"))
        for start in range(0, 400, 10):
            numbers = range(start, start + 10)
            batch = build(
                [b"%d" % number for number in numbers],
                timestamps=[1_000_000 * number for number in numbers],
                tags=[["odd"] if number % 2 else ["even"] for number in numbers],
            )
            await broker.append([Part("events", [batch], 0)])
        await archive(broker, "events", place)
        await broker.configure_topic("events", settings(bytes=4096, after="archive"))
        async with asyncio.timeout(300):
            while (await broker.describe_topic("events")).partitions[0].first_stored is None:
                await asyncio.sleep(0.01)


def run_cli(*arguments: str) -> list[str]:
    done = run_warm(arguments, text=True)
    assert done.returncode == 0, done.stderr
    words: list[str] = done.stdout.split()
    return words
