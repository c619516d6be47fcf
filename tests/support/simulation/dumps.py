"""Data directories worth dumping, and whether two of them hold the same."""

from __future__ import annotations

import io

import msgspec

from logboom.batch import Producer, build, build_control
from logboom.batch.header import KIND_LOST
from logboom.batch.rewrite import equal
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import RetentionSettings, Settings
from logboom.storage.moving.contents import Contents
from logboom.storage.moving.dump import Dumped, dump, plan_dump, plan_rest, resume
from logboom.storage.moving.load import LoadResult, load
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import Request
from logboom.storage.moving.restore import EqualLoader
from logboom.storage.readable_log import ReadableLog
from logboom.storage.tail import Lost
from support.disks.simulated import SimulatedDisk
from support.simulation.model import make_batch

NOW = 1_700_000_000_000_000
PLAIN = Request(compress="none")


def open_data(disk: SimulatedDisk, path: str = "/data") -> DataDirectory:
    return DataDirectory.open(path, disk, reserve_bytes=0)


def fill(data: DataDirectory, batches: int = 7) -> None:
    """Many partitions, segments, codecs and producers, a floor, a lost batch, dropped segments, and an empty log."""
    data.create_topic("many", 3, Settings(retention=RetentionSettings(records=10**6)))
    data.create_topic("empty", 1)
    data.create_topic("late", 1)
    first, second, _ = data.open_topic("many")
    for number in range(batches):
        first.append_one(make_batch(number, 2, NOW + number, Producer(7, 1, 2 * number)), NOW + number, number // 3)
        if number % 3 == 2:
            first.roll()
    for number, codec in enumerate(("none", "lz4", "zstd")):
        values = [b"compressible " * 5] * 12
        second.append_one(build(values, keys=[b"k"] * 12, codec=codec, producer=Producer(9 + number)), NOW)
    add_lost(second)
    second.append_one(make_batch(90, 1, None), NOW + 5)
    (late,) = data.open_topic("late")
    for number in range(4):
        late.append_one(make_batch(number, 3, NOW), NOW)
        late.roll()
    data.sync()
    commit(first, second, late)
    first.trim(3, NOW + 50)
    late.drop(6)
    data.sync()
    commit(first, second, late)


def commit(*logs: Log) -> None:
    for log in logs:
        log.commit(log.sync())


def add_lost(log: Log) -> None:
    """What a repair leaves in the place of two records."""
    batch = build_control(Lost("it was eaten"), KIND_LOST, 2)
    group = log._appender._group(NOW, None)
    group.add(0, batch, batch.header, Lost("it was eaten"))
    log._appender._put(group)


def dumped(data: DataDirectory, request: Request = PLAIN) -> bytes:
    return dump_of(DumpOrigin.of(data), request)[0]


def dump_of(origin: DumpOrigin, request: Request = PLAIN) -> tuple[bytes, Dumped]:
    sink = io.BytesIO()
    done = dump(origin, plan_dump(origin, request, NOW), sink)
    return sink.getvalue(), done


def gone_on_with(origin: DumpOrigin, begun: bytes, request: Request = PLAIN) -> bytes:
    """A dump that was cut off, made whole."""
    contents = resume(io.BytesIO(begun), origin, request)
    sink = io.BytesIO(begun[: contents.end if contents else 0])
    sink.seek(0, io.SEEK_END)
    plan = plan_rest(origin, contents) if contents else plan_dump(origin, request, NOW)
    dump(origin, plan, sink, contents)
    return sink.getvalue()


def load_equal(
    data: DataDirectory, content: bytes, name: str | None = None, names: set[str] | None = None
) -> LoadResult:
    return load(io.BytesIO(content), EqualLoader(data, name), names)


def read_all(content: bytes) -> Contents:
    contents = Contents(io.BytesIO(content))
    for _ in contents.items():
        pass
    return contents


def assert_same(one: DataDirectory, other: DataDirectory) -> None:
    """Every topic, every batch, every segment, every snapshot."""
    assert one.topics() == other.topics()
    for topic in one.topics():
        for here, there in zip(one.open_topic(topic.name), other.open_topic(topic.name), strict=True):
            assert_same_log(one, here, other, there)


def assert_same_log(one: DataDirectory, here: Log, other: DataDirectory, there: Log) -> None:
    assert there.refusal is None
    assert (there.first, there.committed, there.next) == (here.first, here.committed, here.next)
    assert (there.first_index, there.committed_index, there.term) == (here.first_index, here.committed_index, here.term)
    assert (there.floor, there.append_time) == (here.floor, here.append_time)
    borders = [(segment.first_seqno, segment.first_index) for segment in here.segments]
    assert [(segment.first_seqno, segment.first_index) for segment in there.segments] == borders
    for number in range(len(borders)):
        mine, theirs = DumpOrigin.of(one).snapshot(here, number), DumpOrigin.of(other).snapshot(there, number)
        assert msgspec.structs.replace(theirs, generation=mine.generation) == mine
    assert there.tail == here.tail
    assert_same_batches(here, there)


def assert_same_batches(here: ReadableLog, there: ReadableLog) -> None:
    index = here.first_index
    while index <= here.committed_index:
        mine, theirs = here.read_index(index), there.read_index(index)
        assert mine is not None
        assert theirs is not None
        for one, other in zip(mine.batches(), theirs.batches(), strict=True):
            assert equal(one, other)
            index += 1
