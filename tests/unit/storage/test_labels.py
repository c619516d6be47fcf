"""What a segment's labels deny is not in it; who makes them, and when; what a reader passes by because of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from struct import pack

import pytest
from crc32c import crc32c

from logboom.batch import KIND_LOST, Batch, Record, Selection, build, build_control, build_records
from logboom.batch.codec import CODECS
from logboom.storage import labels as labels_module
from logboom.storage.index import SparseIndex, Summary
from logboom.storage.labels import ANYTHING, COLUMNS, NOTHING, UNSEEN, LabelMaker, Labels
from logboom.storage.log import Log
from logboom.storage.scan import Window
from logboom.storage.tail import Lost
from logboom.storage.upkeep.recompression import recompress
from logboom.storage.upkeep.scrub import scrub
from support.disks.simulated import SimulatedDisk
from support.simulation.broken import content, overwrite
from support.simulation.model import open_log, open_view


def labels_of(*batches: Batch) -> Labels:
    maker = LabelMaker()
    for batch in batches:
        maker.add(batch)
    return maker.labels()


def write(log: Log, segments: Iterable[Iterable[Batch]]) -> None:
    """Each as a segment of its own; the last one is sealed too."""
    for batches in segments:
        for batch in batches:
            log.append_one(batch, 1_000)
        log.commit(log.sync())
        log.roll()


def tagged(*tags: str, channel: str | None = None, key: bytes | None = None) -> Batch:
    return build_records([Record(b"v", key=key, channel=channel, tags=(tag,)) for tag in tags])


def free(size: int) -> None:
    pass


def scrub_all(log: Log) -> None:
    for segment in log.cold_segments():
        if scrub(segment, free).has_labels:
            segment.publish_labels()


def test_labels_tell_most_of_what_is_not_there() -> None:
    dice = random.Random(3)
    there = [b"%x" % dice.getrandbits(64) for _ in range(5_000)]
    labels = labels_of(*(build([b"v"] * 50, keys=there[n : n + 50]) for n in range(0, 5_000, 50)))
    assert all(labels.may_hold(Selection(key=key)) for key in there)
    wrong = sum(labels.may_hold(Selection(key=b"absent-%d" % n)) for n in range(5_000))
    assert wrong < 250  # one in a hundred is expected
    assert len(labels.keys.bits) <= 5_000 * 10 // 8 + 8
    assert (labels.channels, labels.tags) == (NOTHING, NOTHING)


@pytest.mark.parametrize(
    ("pattern", "may"),
    [
        ("site/7/temp", True),
        ("site/7/#", True),
        ("site/7/temp/#", True),
        ("site/+/temp", True),
        ("site/7/te*", True),
        ("site/7/x*", True),  # only whole levels are known
        ("+/7", True),
        ("#", True),
        ("s*", True),
        ("site/8/#", False),
        ("site/8/+", False),
        ("site/8/*", False),
        ("other/#", False),
        ("other", False),
        ("site/7/hum", False),
        ("/site/#", False),
    ],
)
def test_a_pattern_is_looked_up_by_what_stands_before_its_first_wildcard(pattern: str, may: bool) -> None:
    assert labels_of(build([b"v"], channels="site/7/temp")).may_hold(Selection(channel=pattern)) is may


def test_every_part_of_a_filter_must_be_possible() -> None:
    labels = labels_of(tagged("red", "big", channel="a", key=b"k"))
    assert labels.may_hold(Selection())
    assert labels.may_hold(Selection(tags_any=("blue", "red"), tags_all=("big",), channel="a", key=b"k"))
    assert not labels.may_hold(Selection(tags_any=("blue", "green")))
    assert not labels.may_hold(Selection(tags_all=("red", "blue")))
    assert not labels.may_hold(Selection(tags_any=("red",), channel="b"))
    assert not labels.may_hold(Selection(channel="a", key=b"l"))


def test_too_many_labels_of_one_kind_leave_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_module, "ENTRIES_MAX", 100)
    batches = [build([b"v"] * 10, keys=[b"%d" % (10 * n + i) for i in range(10)], channels="c") for n in range(60)]
    labels = labels_of(*batches)
    assert labels.keys == ANYTHING
    assert not labels.may_hold(Selection(channel="d"))
    assert labels_of(*batches[:10]).keys != ANYTHING


def test_records_that_nobody_knows_may_be_anything() -> None:
    labels = labels_of(tagged("red"), build_control(Lost("gone"), KIND_LOST, 3), tagged("blue"))
    assert labels == (ANYTHING, ANYTHING, ANYTHING)


def test_long_labels_count_with_their_first_kilobyte() -> None:
    labels = labels_of(build([b"v"], keys=[b"k" * 2_000], channels="c/" * 2_000))
    assert labels.may_hold(Selection(key=b"k" * 2_000))
    assert labels.may_hold(Selection(channel="c/" * 500 + "#"))
    assert not labels.may_hold(Selection(key=b"k"))


def test_anything_but_whole_labels_is_refused() -> None:
    data = labels_of(tagged("red", channel="a")).encode()
    assert Labels.decode(memoryview(data)) is not None
    for size in range(len(data)):
        assert Labels.decode(memoryview(data[:size])) is None
    assert Labels.decode(memoryview(data + bytes(8))) is None
    assert Labels.decode(memoryview(b"\3" + data[1:])) is None


def test_an_index_of_the_first_version_is_read_and_knows_no_labels() -> None:
    columns = pack("<QQQq", 5, 1, 0, 9)
    header = pack("<4sIQQQQqQI", b"LGIX", 1, 1, 100, 8, 2, 9, 4096, 77)
    old = header + pack("<I", crc32c(columns, crc32c(header))) + columns
    loaded = SparseIndex.decode(old)
    assert loaded is not None
    assert loaded[1] == Summary(100, 8, 2, 9, 77)
    assert loaded[2] == (UNSEEN, UNSEEN, UNSEEN)
    assert loaded[0].columns == COLUMNS


def test_a_segment_that_has_no_labels_is_passed_by_as_soon_as_it_is_sealed() -> None:
    log = open_log(SimulatedDisk())
    write(log, [[build([b"v"] * 3)] * 2, [tagged("red")]])
    plain, red = log.cold_segments()
    assert plain.labels == (NOTHING, NOTHING, NOTHING)
    assert red.labels == (NOTHING, UNSEEN, NOTHING)
    assert log.skip(0, Selection(tags_any=("blue",))) == 6
    assert log.skip(4, Selection(tags_any=("blue",))) == 6
    assert log.skip(0, Selection(key=b"k")) == log.committed == 7
    assert log.skip(0, Selection()) == 0


@pytest.mark.parametrize("reopened", [False, True])
def test_a_scrub_makes_the_labels_that_are_not_there_yet(reopened: bool) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [[tagged("red", channel="a/b")], [tagged("blue")], [tagged("red", key=b"k")]])
    wanted = Selection(tags_any=("blue",))
    assert log.skip(0, wanted) == 0
    scrub_all(log)
    if reopened:
        log.close()
        log = open_log(disk)
        log.commit(log.last_index)
    assert log.skip(0, wanted) == 1
    assert log.skip(1, wanted) == 1
    assert log.skip(2, wanted) == 3
    assert log.skip(0, Selection(channel="a/#")) == 0
    assert log.skip(1, Selection(channel="a/#")) == 3
    assert not any(scrub(segment, free).has_labels for segment in log.cold_segments())
    assert not [path for path in disk.names if path.endswith(".tmp")]


def test_a_reader_in_another_process_passes_by_too_but_never_what_may_come_back() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [[tagged("red")], [tagged("red")]])
    scrub_all(log)
    view = open_view(disk)
    assert view.skip(0, Selection(tags_any=("blue",))) == 1  # the second may be unrolled, for all it knows
    assert view.skip(0, Selection(tags_any=("red",))) == 0


def test_nothing_is_passed_by_that_is_not_committed() -> None:
    log = open_log(SimulatedDisk())
    write(log, [[build([b"v"])]])
    log.append_one(build([b"v"]), 1_000)
    log.sync()
    log.roll()
    assert (log.committed, log.next) == (1, 2)
    assert log.skip(0, Selection(key=b"k")) == 1


def test_a_look_ends_after_some_segments() -> None:
    log = open_log(SimulatedDisk())
    write(log, [[build([b"v"])]] * 10)
    assert log.skip(0, Selection(key=b"k"), segments_max=4) == 4
    assert log.skip(4, Selection(key=b"k")) == 10


def test_a_damaged_segment_gets_no_labels_and_is_not_passed_by() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [[tagged("red")] * 2])
    (segment,) = log.cold_segments()
    position = Window(segment.file(), segment.size).header(0).size + 120
    overwrite(disk, segment.log_path, position, b"\xff")
    assert not scrub(segment, free).has_labels
    assert log.skip(0, Selection(tags_any=("blue",))) == 0


@pytest.mark.parametrize("lost", [".idx", ".log"])
def test_a_file_that_is_gone_denies_nothing_it_does_not_know(lost: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [[tagged("red")] * 2])
    scrub_all(log)
    (segment,) = log.cold_segments()
    log.close()
    disk.unlink(segment.log_path[:-4] + lost)
    log = open_log(disk)
    log.commit(log.last_index)
    assert log.skip(0, Selection(tags_any=("blue",))) == 0
    assert log.skip(0, Selection(key=b"k")) == (2 if lost == ".idx" else 0)


def test_labels_of_another_file_are_not_believed() -> None:
    """A crash may bring an index back that was made for other bytes."""
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [[tagged("red")], [tagged("blue")]])
    scrub_all(log)
    red, blue = log.cold_segments()
    foreign = content(disk)[red.index_path]
    log.close()
    overwrite(disk, blue.index_path, 0, foreign)
    log = open_log(disk)
    log.commit(log.last_index)
    assert log.skip(1, Selection(tags_any=("blue",))) == 1


def test_a_segment_stored_anew_has_its_labels() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [[build([b"v" * 900], tags=[["red"]], channels="a/b")] * 3])
    swap = log.begin_swap(log.cold_segments()[0])
    done = recompress(disk, *swap, CODECS["zstd"], 3, 0.0, free)
    assert done is not None
    assert log.end_swap(swap, done.summary, done.index)
    (segment,) = log.cold_segments()
    assert segment.labels.is_made
    assert log.skip(0, Selection(tags_any=("blue",))) == 3
    assert log.skip(0, Selection(channel="a/+")) == 0
