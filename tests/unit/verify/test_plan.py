"""Verifying data directories: what is wrong is found, and named where it is; what is sound is left in peace."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from logboom.batch import Batch, Producer, Record, build, build_records, read_header
from logboom.batch.codec import LZ4, ZSTD
from logboom.batch.header import HEADER_SIZE, KIND_LOST, Header
from logboom.batch.rewrite import equal
from logboom.errors import DirectoryUnusable
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import SegmentSettings, Settings, Topic
from logboom.storage.files.readonly import BLOCK
from logboom.storage.health.check import check
from logboom.storage.health.plain import PlainDisk
from logboom.storage.health.repair import plan_repair
from logboom.storage.tail import Snapshot
from logboom.storage.upkeep.recompression import recompress
from logboom.verify import examination
from logboom.verify.examination import BLOCK_BATCHES
from logboom.verify.plan import VerifyChoice, VerifyProblem
from logboom.verify.verifier import Verification, VerifyFindings
from support.disks.hasty import HastyDisk
from support.effort import strides

NOW = 1_790_000_000_000_000
TOPIC = "events"
SMALL = Settings(segment=SegmentSettings(bytes=4096))


def open_hastily(path: Path, cluster_id: str | None = None) -> DataDirectory:
    path.mkdir(exist_ok=True)
    return DataDirectory.open(str(path), HastyDisk(str(path)), cluster_id=cluster_id)


def execute(
    function: Callable[[bytes], bytes], pieces: Sequence[bytes], on_progress: Callable[[int], None]
) -> list[bytes]:
    answers = []
    for number, piece in enumerate(pieces):
        answers.append(function(piece))
        on_progress(number + 1)
    return answers


def verify(*paths: Path, wanted: VerifyChoice = VerifyChoice()) -> VerifyFindings:  # noqa: B008
    return Verification([str(path) for path in paths], wanted, execute).run()


def make_batch(rng: random.Random, number: int, producer: Producer = Producer()) -> Batch:  # noqa: B008
    """Plain, or with all that a record can have; of one record or of some."""
    count = rng.choice([1, 1, 2, 7, 40])
    codec = rng.choice(["none", "none", "lz4", "zstd"])
    if rng.random() < 0.5:
        stamps = [NOW + rng.randrange(10**6) for _ in range(count)] if rng.random() < 0.5 else None
        return build(
            [rng.randbytes(rng.randrange(60)) for _ in range(count)], timestamps=stamps, codec=codec, producer=producer
        )
    records = [
        Record(
            rng.choice([None, b"", b"value %d" % number]),
            key=rng.choice([None, b"k%d" % rng.randrange(9)]),
            timestamp=rng.choice([None, NOW + number]),
            channel=rng.choice([None, "größe/7"]),
            tags=tuple(rng.sample(["red", "blue"], rng.randrange(3))),
            headers=(("h", b"1"),) if rng.random() < 0.3 else (),
        )
        for _ in range(count)
    ]
    return build_records(records, codec=codec)


def store_anew(data: DataDirectory, log: Log, codec: int = ZSTD) -> None:
    for segment in log.cold_segments():
        pending = log.begin_swap(segment)
        done = recompress(data.files.disk, *pending, codec, 1, 0.0, lambda size: None)
        if done is not None:
            log.end_swap(pending, done.summary, done.index)


def live(data: DataDirectory, log: Log, rng: random.Random, batches: int) -> None:
    """Appends, rolls, trims, drops, recompression, new terms: whatever happens to a log in its life."""
    term = log.term
    for number in range(batches):
        log.append_one(make_batch(rng, number, Producer(7, 0, 0) if not number else Producer()), NOW + number, term)
        if rng.random() < 0.03:
            log.commit(log.sync())
            what = rng.randrange(5)
            if what == 0:
                log.roll()
            elif what == 1 and log.committed:
                log.trim(rng.randrange(log.first, log.committed + 1), NOW + number)
            elif what == 2:
                log.drop(rng.randrange(log.committed + 1))
            elif what == 3:
                store_anew(data, log, rng.choice([LZ4, ZSTD]))
            else:
                term += 1
    log.commit(log.sync())


def make_directory(path: Path, seed: int, batches: int = 300, partitions: int = 2) -> None:
    rng = random.Random(seed)
    with open_hastily(path) as data:
        data.create_topic(TOPIC, partitions, SMALL)
        for log in data.open_topic(TOPIC):
            live(data, log, rng, batches)


def copied(source: Path, target: Path, topic: str = TOPIC, rng: random.Random | None = None, short: int = 0) -> None:
    """A replica by what a follower does: the same batches, rolled elsewhere; without the last `short` ones."""
    with open_hastily(source) as data:
        cluster, found = data.node.cluster_id, data.topic(topic)
        stored = [[Batch.parse(bytes(batch.data)) for batch in batches_of(log)] for log in data.open_topic(topic)]
        starts = [log.segments[0] for log in data.open_topic(topic)]
        snapshots = [Snapshot.decode(Path(start.snap_path).read_bytes()) for start in starts]
    settings = Settings(segment=SegmentSettings(bytes=4096 if rng is None else rng.randrange(4096, 20_000)))
    with open_hastily(target, cluster) as data:
        data.adopt_topic(Topic(found.id, found.name, found.partitions, settings))
        for partition, batches in enumerate(stored):
            snapshot = snapshots[partition]
            assert snapshot is not None
            data.open_log(found.log_name(partition), settings.log_config()).close()
            log = data.begin_anew(found.log_name(partition), snapshot, settings.log_config())
            log.replicate(batches[: len(batches) - short])
            log.commit(log.sync())
            if rng is not None and rng.random() < 0.5:
                store_anew(data, log, rng.choice([LZ4, ZSTD]))


def batches_of(log: Log) -> list[Batch]:
    """As they lie in the files, control batches too."""
    found = []
    for segment in log.segments:
        if os.path.exists(segment.log_path):
            found += split(Path(segment.log_path).read_bytes())
    return found


def split(data: bytes) -> list[Batch]:
    found, offset = [], 0
    while offset < len(data):
        found.append(Batch.parse(data[offset:]))
        offset += found[-1].header.size
    return found


def segments(path: Path, ending: str = ".log", partition: int = 0) -> list[Path]:
    return sorted(path.glob(f"topics/{TOPIC}~*/{partition}/*{ending}"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches of 3 records, plain ones and others, in sealed segments and a last one."""
    path = tmp_path_factory.mktemp("sound") / "data"
    with open_hastily(path) as data:
        data.create_topic(TOPIC, 1, SMALL)
        (log,) = data.open_topic(TOPIC)
        for number in range(90):
            values = [b"value %d of %d" % (record, number) * (1 + number % 3) for record in range(3)]
            tags = [["red"]] * 3 if number % 3 == 1 else None
            log.append_one(build(values, tags=tags, codec="zstd" if number % 3 == 2 else "none"), NOW + number, 1)
        log.commit(log.sync())
    assert len(segments(path)) > 3
    assert verify(path) == VerifyFindings(
        logs=1, segments=len(segments(path)), batches=90, records=270, bytes=size_of(path)
    )
    return path


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in segments(path))


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(sound, tmp_path / "data"))


def places(file: Path) -> list[tuple[int, Header]]:
    found, position = [], 0
    for batch in split(file.read_bytes()):
        found.append((position, batch.header))
        position += batch.header.size
    return found


def flip(file: Path, position: int, mask: int = 0x41) -> None:
    with open(file, "r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)[0]
        stream.seek(position)
        stream.write(bytes([byte ^ mask]))


def mend(batch: bytearray) -> None:
    """Both checksums of a whole batch."""
    struct.pack_into("<I", batch, 88, crc32c(bytes(batch[HEADER_SIZE:]), crc32c(bytes(batch[40:88]))))
    struct.pack_into("<I", batch, 92, crc32c(bytes(batch[:92])))


def rewrite(file: Path, position: int, change: Callable[[bytearray], None]) -> None:
    """Change a batch in place, and mend its checksums."""
    data = bytearray(file.read_bytes())
    size = read_header(bytes(data[position:])).size
    batch = data[position : position + size]
    change(batch)
    mend(batch)
    data[position : position + size] = batch
    file.write_bytes(data)


def only(findings: VerifyFindings) -> VerifyProblem:
    (problem,) = findings.problems
    return problem


@pytest.mark.parametrize("seed", range(8))
def test_what_lives_through_rolls_trims_drops_and_recompression_is_sound(tmp_path: Path, seed: int) -> None:
    make_directory(tmp_path / "data", seed)
    found, report = verify(tmp_path / "data"), check(PlainDisk(str(tmp_path / "data")), str(tmp_path / "data"))
    assert found.problems == []
    assert (found.logs, found.batches, found.records, found.bytes) == (
        report.logs,
        report.batches,
        report.records,
        report.bytes,
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_byte_is_found_where_a_check_of_one_log_after_the_other_finds_it(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "data", random.Random(seed)
    make_directory(path, seed, batches=120)
    files = [file for partition in (0, 1) for file in segments(path, partition=partition) if file.stat().st_size]
    for _ in range(12):
        file = rng.choice(files)
        position = rng.randrange(file.stat().st_size)
        flip(file, position)
        expected = [
            (finding.file, finding.position, finding.seqno_from)
            for finding in check(PlainDisk(str(path)), str(path)).findings
            if finding.severity == "damage"
        ]
        found = [(problem.file, problem.position, problem.seqno) for problem in verify(path).damage]
        assert found == expected, f"{file.name} at {position}"
        flip(file, position)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("stride", strides(3))
def test_every_flipped_byte_of_a_batch_is_found(data: Path, number: int, stride: int) -> None:
    file = segments(data)[1]
    position, header = places(file)[number]
    for place in range(position, position + header.size, stride):
        flip(file, place)
        problem = only(verify(data))
        assert (problem.kind, problem.severity, problem.file) == ("damage", "damage", str(file))
        assert (problem.position, problem.seqno, problem.index) == (position, header.base_seqno, header.index)
        flip(file, place)


def test_padding_that_is_not_zero_is_found_though_its_checksum_holds(data: Path) -> None:
    file = segments(data)[1]
    position, _ = next(place for place in places(file) if place[1].padding)
    rewrite(file, position, lambda batch: batch.__setitem__(-1, 1))
    assert (only(verify(data)).position, only(verify(data)).reason) == (position, "padding after the body is not zero")


@pytest.mark.parametrize(
    ("at", "code", "change", "reason"),
    [
        (8, "<Q", 1, "base_seqno is"),
        (8, "<Q", -1, "base_seqno is"),
        (16, "<Q", 1, "index is"),
        (16, "<Q", -1, "index is"),
        (32, "<I", -1, "term goes back"),
        (24, "<q", -(10**6), "append_time goes back"),
        (44, "<I", 1, ""),
    ],
)
def test_numbers_that_do_not_follow_are_found_though_the_checksums_hold(
    data: Path, at: int, code: str, change: int, reason: str
) -> None:
    file = segments(data)[1]
    position, header = places(file)[3]

    def alter(batch: bytearray) -> None:
        (number,) = struct.unpack_from(code, batch, at)
        struct.pack_into(code, batch, at, number + change)

    rewrite(file, position, alter)
    problem = verify(data).problems[0]
    assert (problem.position, problem.seqno, problem.index) == (position, header.base_seqno, header.index)
    assert reason in problem.reason


def test_a_term_that_goes_back_between_segments_is_found(data: Path) -> None:
    first, second = segments(data)[:2]
    position, _ = places(first)[-1]
    rewrite(first, position, lambda batch: struct.pack_into("<I", batch, 32, 9))
    order, snapshot = verify(data).problems
    assert (order.kind, order.file, order.position) == ("order", str(second), 0)
    assert order.reason == "term goes back from 9 to 1"
    assert snapshot.reason == "it says term 1 where the batches before it have 9"


def test_a_sealed_segment_with_a_cut_tail_is_found(data: Path) -> None:
    file = segments(data)[1]
    position, header = places(file)[-1]
    for size in (file.stat().st_size - 8, position + HEADER_SIZE, position + 10):
        os.truncate(file, size)
        problem = only(verify(data))
        assert (problem.kind, problem.position, problem.index) == ("damage", position, header.index)
    os.truncate(file, position)
    problem = only(verify(data))
    assert (problem.kind, problem.position, problem.index) == ("missing", position, header.index)
    assert problem.seqno == header.base_seqno


def test_a_last_segment_that_lost_what_was_synced_is_found(data: Path) -> None:
    file = segments(data)[-1]
    position, header = places(file)[-1]
    os.truncate(file, position)
    problem = only(verify(data))
    assert (problem.kind, problem.position, problem.seqno) == ("missing", position, header.base_seqno)


def test_a_torn_tail_that_nobody_was_promised_is_no_problem(data: Path) -> None:
    with open(segments(data)[-1], "ab") as file:
        file.write(b"LGBM" + bytes(200))
    assert verify(data).problems == []


def test_two_segments_with_each_others_content_are_found(data: Path) -> None:
    one, other = segments(data)[1:3]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    found = {problem.file: problem for problem in verify(data).damage}
    assert {file: problem.position for file, problem in found.items()} == {str(one): 0, str(other): 0}


def test_a_batch_that_is_there_twice_is_found(data: Path) -> None:
    file = segments(data)[1]
    (position, header), content = places(file)[2], file.read_bytes()
    end = position + header.size
    file.write_bytes(content[:end] + content[position:end] + content[end:])
    problem = verify(data).problems[0]
    assert (problem.position, problem.index) == (end, header.index + 1)
    assert problem.reason == f"index is {header.index}, expected {header.index + 1}"


def test_a_segment_that_goes_on_into_the_next_one_is_found(data: Path) -> None:
    one, other = segments(data)[1:3]
    size = one.stat().st_size
    with open(one, "ab") as file:
        file.write(other.read_bytes())
    problem = only(verify(data))
    assert (problem.kind, problem.file, problem.position) == ("order", str(one), size)


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_missing_segment_is_found(data: Path, number: int, snapshot: bool) -> None:
    file = segments(data)[number]
    _, header = places(file)[0]
    file.unlink()
    if snapshot:
        segments(data, ".snap")[number].unlink()
    problem = verify(data).damage[0]
    assert (problem.kind, problem.seqno) == ("missing", header.base_seqno)


def test_a_snapshot_that_says_something_else_than_its_log_is_found(data: Path) -> None:
    file = segments(data, ".snap")[2]
    snapshot = Snapshot.decode(file.read_bytes())
    assert snapshot is not None
    for name, value in (("term", 5), ("append_time", 3), ("max_timestamp", 4), ("floor", 1)):
        file.write_bytes(msgspec.structs.replace(snapshot, **{name: value}).encode())
        problem = only(verify(data))
        assert (problem.kind, problem.severity, problem.file) == ("snapshot", "damage", str(file))
        assert f"{name} {value} where" in problem.reason


@pytest.mark.parametrize("ending", [".snap", ".idx"])
def test_a_flipped_byte_in_what_can_be_made_again_is_found_and_harmless(data: Path, ending: str) -> None:
    file = segments(data, ending)[1]
    for position in range(file.stat().st_size):
        flip(file, position)
        problem = only(verify(data))
        assert (problem.severity, problem.file) == ("harmless", str(file))
        flip(file, position)


def test_an_index_of_another_segment_is_found_though_its_checksum_holds(data: Path) -> None:
    one, other = segments(data, ".idx")[1:3]
    shutil.copy(one, other)
    assert only(verify(data)).file == str(other)


def test_damage_does_not_hide_what_lies_behind_it(data: Path) -> None:
    file = segments(data)[1]
    spoilt = [places(file)[number] for number in (1, 4)]
    for position, _ in spoilt:
        flip(file, position + HEADER_SIZE)
    found = verify(data)
    assert [problem.position for problem in found.problems] == [position for position, _ in spoilt]
    assert (found.batches, found.records) == (88, 264)


def test_what_a_repair_could_not_save_is_counted(data: Path) -> None:
    file = segments(data)[1]
    flip(file, places(file)[2][0])
    for step in plan_repair(PlainDisk(str(data)), str(data)).steps:
        step.run()
    found = verify(data)
    assert (found.problems, found.lost, found.records) == ([], 3, 267)
    assert any(header.kind == KIND_LOST for _, header in places(segments(data)[1]))


def test_a_device_that_cannot_read_a_file_is_told(data: Path) -> None:
    file = segments(data)[1]
    file.unlink()
    file.mkdir()
    problem = only(verify(data))
    assert (problem.kind, problem.file) == ("unreadable", str(file))


def test_batches_larger_than_what_is_read_at_once_are_examined_too(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data, tmp_path / "other")
    file = segments(tmp_path / "other")[1]
    position, _ = places(file)[4]
    flip(file, position + HEADER_SIZE)
    expected = [verify(data), verify(data, tmp_path / "other")]
    for size in (96, 200, 1000):
        monkeypatch.setattr(examination, "CHUNK_BYTES", size)
        assert [verify(data), verify(data, tmp_path / "other")] == expected
    assert only(expected[1]).position == position


def test_what_the_device_cannot_read_is_damage(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the device fails")

    monkeypatch.setattr(os, "preadv", fail)
    assert verify(data).problems == []  # what another try gives counts
    file, read = segments(data)[1], os.pread
    position, header = places(file)[3]
    bad = position // BLOCK * BLOCK

    def fail_there(descriptor: int, size: int, at: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(file) and at < bad + BLOCK and at + size > bad:
            raise OSError(errno.EIO, "the device fails")
        return read(descriptor, size, at)

    monkeypatch.setattr(os, "pread", fail_there)
    assert verify(data).damage[0].file == str(file)
    assert header.index > 0


def test_a_directory_that_a_writer_has_is_verified_as_far_as_it_is_committed(tmp_path: Path) -> None:
    with open_hastily(tmp_path / "data") as data:
        data.create_topic(TOPIC, 1, SMALL)
        (log,) = data.open_topic(TOPIC)
        for number in range(40):
            log.append_one(build([b"committed %d" % number]), NOW)
        log.commit(log.sync())
        for number in range(3):
            log.append_one(build([b"not yet %d" % number]), NOW)
        found = verify(tmp_path / "data")
        assert (found.problems, found.records) == ([], 40)
        with open(segments(tmp_path / "data")[-1], "r+b") as file:
            file.seek(-20, os.SEEK_END)
            file.write(bytes(20))
        assert verify(tmp_path / "data").problems == []
        flip(segments(tmp_path / "data")[-1], HEADER_SIZE)
        assert only(verify(tmp_path / "data")).position == 0


@pytest.mark.parametrize("seed", range(4))
def test_replicas_are_equal_however_they_are_rolled_recompressed_and_how_far_they_reach(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    make_directory(tmp_path / "one", seed, batches=150)
    copied(tmp_path / "one", tmp_path / "two", rng=rng)
    copied(tmp_path / "one", tmp_path / "three", rng=rng, short=rng.randrange(1, 9))
    with open_hastily(tmp_path / "two") as data:
        for log in data.open_topic(TOPIC):
            log.drop(rng.randrange(log.committed))
    found = verify(tmp_path / "one", tmp_path / "two", tmp_path / "three")
    assert found.problems == []
    assert found.compared > 100
    assert verify(tmp_path / "three", tmp_path / "one").problems == []


@pytest.mark.parametrize("seed", range(10))
def test_a_replica_with_one_changed_record_is_told_apart_though_its_checksums_hold(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    make_directory(tmp_path / "one", seed, partitions=1)
    copied(tmp_path / "one", tmp_path / "two", rng=rng)
    file = rng.choice(segments(tmp_path / "two"))
    content = bytearray(file.read_bytes())
    stored = split(bytes(content))
    before = rng.choice([batch for batch in stored if not batch.header.codec and any(values_of(batch))])
    header = before.header
    position = next(position for position, other in places(file) if other == header)
    changed = changed_value(before)
    content[position : position + header.size] = changed.data
    file.write_bytes(content)
    assert not equal(before, changed)
    problem = only(verify(tmp_path / "one", tmp_path / "two"))
    row = next(row for row, (one, two) in enumerate(zip(before.values(), changed.values(), strict=True)) if one != two)
    assert (problem.kind, problem.directory) == ("replica", str(tmp_path / "two"))
    assert (problem.file, problem.position, problem.index) == (str(file), position, header.index)
    assert problem.seqno == header.base_seqno + row
    assert problem.reason.startswith("value is ")


def values_of(batch: Batch) -> list[bytes | None]:
    return [] if batch.header.kind else batch.values()


def changed_value(batch: Batch) -> Batch:
    """The same with one byte of one value changed, and right checksums."""
    value = next(filter(None, values_of(batch)))
    data = bytearray(batch.data)
    data[bytes(data).rindex(value)] ^= 1
    mend(data)
    found = Batch.parse(bytes(data))
    found.verify()
    return found


@pytest.mark.parametrize(
    ("name", "at", "code", "value"),
    [("producer_id", 72, "<Q", 12345), ("append_time", 24, "<q", NOW + 10**9), ("term", 32, "<I", 7)],
)
def test_a_replica_with_another_header_is_told_apart(
    data: Path, tmp_path: Path, name: str, at: int, code: str, value: int
) -> None:
    shutil.copytree(data, tmp_path / "other")
    file = segments(tmp_path / "other")[-1]
    position, header = places(file)[-1]
    rewrite(file, position, lambda batch: struct.pack_into(code, batch, at, value))
    problem = only(verify(data, tmp_path / "other"))
    assert (problem.kind, problem.position, problem.index) == ("replica", position, header.index)
    assert problem.reason.startswith(f"{name} is {value}, not {getattr(header, name)} as in ")


def test_every_differing_block_is_named_by_its_first_difference(tmp_path: Path) -> None:
    with open_hastily(tmp_path / "one") as data:
        data.create_topic(TOPIC, 1)
        (log,) = data.open_topic(TOPIC)
        log.append([build([b"%08d" % number]) for number in range(3 * BLOCK_BATCHES)], NOW)
        log.commit(log.sync())
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (file,) = segments(tmp_path / "two")
    found = places(file)
    for number in (5, 6, BLOCK_BATCHES - 2, BLOCK_BATCHES - 1, 2 * BLOCK_BATCHES + 7):
        rewrite(file, found[number][0], lambda batch: batch.__setitem__(-1, batch[-1] ^ 1))
    problems = verify(tmp_path / "one", tmp_path / "two").problems
    assert [problem.index for problem in problems] == [6, BLOCK_BATCHES, 2 * BLOCK_BATCHES + 8]


def test_a_replica_that_lacks_a_topic_may_only_be_late(tmp_path: Path) -> None:
    make_directory(tmp_path / "one", 1, batches=10)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with open_hastily(tmp_path / "one") as data:
        data.create_topic("late")
    problem = only(verify(tmp_path / "one", tmp_path / "two"))
    assert (problem.severity, problem.topic) == ("harmless", "late")


def test_another_topic_of_the_same_name_is_no_replica(tmp_path: Path) -> None:
    make_directory(tmp_path / "one", 1, batches=10)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with open_hastily(tmp_path / "two") as data:
        data.delete_topic(TOPIC)
        data.create_topic(TOPIC)
    problem = only(verify(tmp_path / "one", tmp_path / "two"))
    assert (problem.kind, problem.severity) == ("replica", "damage")
    assert "a topic of this name has id" in problem.reason


def test_only_topics_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    with open_hastily(tmp_path / "data") as data:
        for name in ("orders.eu", "orders.us", "events"):
            data.create_topic(name)
            (log,) = data.open_topic(name)
            log.append_one(build([b"1"]), NOW)
            log.commit(log.sync())
    for wanted, logs in ((VerifyChoice(("events",)), 1), (VerifyChoice(pattern=r"orders\..*"), 2), (VerifyChoice(), 3)):
        assert verify(tmp_path / "data", wanted=wanted).logs == logs


def test_a_topic_that_cannot_be_read_is_told(data: Path) -> None:
    (file,) = data.glob("topics/*/topic.json")
    file.write_text("{")
    assert only(verify(data)).kind == "topic"


def test_what_is_no_data_directory_is_refused(data: Path, tmp_path: Path) -> None:
    refused = {
        tmp_path / "nowhere": "is not a directory",
        tmp_path / "file": "is not a directory",
        tmp_path / "empty": "it has no node.json",
        tmp_path / "newer": "has format 99",
        tmp_path / "state": "is of a newer format",
    }
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    shutil.copytree(data, tmp_path / "newer")
    (tmp_path / "newer/node.json").write_text('{"node_id": "a", "cluster_id": "b", "format": 99}')
    shutil.copytree(data, tmp_path / "state")
    front = bytearray((tmp_path / "state/state").read_bytes())
    front[4] = 9
    front[60:64] = crc32c(bytes(front[:60])).to_bytes(4, "little")
    (tmp_path / "state/state").write_bytes(front)
    for path, reason in refused.items():
        with pytest.raises(DirectoryUnusable, match=reason):
            verify(path)


def test_directories_that_are_no_replicas_of_each_other_are_refused(data: Path, tmp_path: Path) -> None:
    make_directory(tmp_path / "other", 1, batches=3)
    with pytest.raises(DirectoryUnusable, match="no replicas of each other"):
        verify(data, tmp_path / "other")
    with pytest.raises(DirectoryUnusable, match="named twice"):
        verify(data, data)


def test_nothing_in_a_data_directory_is_written(sound: Path) -> None:
    def look() -> dict[str, tuple[int, int, bytes]]:
        return {
            str(file): (file.stat().st_mtime_ns, file.stat().st_ino, file.read_bytes() if file.is_file() else b"")
            for file in sound.rglob("*")
        }

    before = look()
    verify(sound)
    assert look() == before


def test_progress_ends_with_all_bytes(sound: Path) -> None:
    told: list[tuple[int, int]] = []
    Verification([str(sound)], VerifyChoice(), execute, lambda done, total: told.append((done, total))).run()
    assert told[0][0] == 0
    assert told[-1] == (size_of(sound), size_of(sound))
    assert told == sorted(told)
