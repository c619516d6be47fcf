"""What a log promises, rule by rule."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from logboom.batch import Batch, Producer, build, build_control
from logboom.batch.header import ISSUED_IDS
from logboom.errors import (
    BatchTooLarge,
    BodyCorrupt,
    IndexOutOfRange,
    LogReadOnly,
    LowSpace,
    MalformedBatch,
    ProducerFenced,
    ProducerForgotten,
    RepeatForgotten,
    SeqnoOutOfRange,
    SequenceGap,
    UnexpectedSeqno,
    UnknownProducer,
    UnsupportedBatch,
)
from logboom.storage import Appended, Log, LogConfig, OpenFiles
from logboom.storage.appender import PendingSync
from logboom.storage.config import DAY_US
from logboom.storage.tail import Floor
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.model import DIRECTORY, SMALL, make_batch, open_log

NOW = 1_700_000_000_000_000


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk)


def commit(log: Log) -> None:
    log.commit(log.sync())


def test_seqnos_and_indexes_are_dense(log: Log) -> None:
    answers = log.append([build([b"a", b"b"]), build([b"c"]), build([b"d"] * 5)], NOW)
    assert [(a.base_seqno, a.index) for a in answers if isinstance(a, Appended)] == [(0, 1), (2, 2), (3, 3)]
    assert log.next == 8
    assert log.last_index == 3


def test_many_batches_are_one_system_call(disk: SimulatedDisk, log: Log) -> None:
    log.append_one(build([b"first"]), NOW)
    writes: list[Call] = []

    def count(call: Call) -> None:
        if call.name == "write":
            writes.append(call)

    disk.fault = count
    log.append([build([b"x"]) for _ in range(20)], NOW)
    assert len(writes) == 1


def test_readers_see_nothing_that_is_not_committed(log: Log) -> None:
    log.append_one(build([b"a"]), NOW)
    assert log.committed == 0
    assert log.read(0) is None
    with pytest.raises(SeqnoOutOfRange):
        log.read(1)
    log.sync()
    assert log.read(0) is None
    log.commit(1)
    run = log.read(0)
    assert run is not None
    assert [batch.values() for batch in run.batches()] == [[b"a"]]


def test_a_read_takes_at_least_one_batch_and_no_more_than_its_limits(log: Log) -> None:
    size = build([b"x" * 8]).header.size
    log.append([build([b"x" * 8]) for _ in range(10)], NOW)
    commit(log)
    sizes = {limit: run.size for limit in (0, 1, size, 2 * size - 1, 3 * size) if (run := log.read(2, limit))}
    assert sizes == {0: size, 1: size, size: size, 2 * size - 1: size, 3 * size: 3 * size}
    counts = {limit: run.next_seqno - 2 for limit in (1, 2, 5, 100) if (run := log.read(2, 1 << 20, limit))}
    assert counts == {1: 1, 2: 2, 5: 5, 100: 8}


def test_a_read_inside_a_batch_gives_that_batch(log: Log) -> None:
    log.append([build([b"a", b"b", b"c"]), build([b"d", b"e"])], NOW)
    commit(log)
    run = log.read(4)
    assert run is not None
    assert (run.base_seqno, run.next_seqno) == (3, 5)


def test_a_read_by_index_gives_what_is_written_committed_or_not(log: Log) -> None:
    log.append([build([b"a"]), build([b"b"])], NOW)
    run = log.read_index(2)
    assert run is not None
    assert [batch.values() for batch in run.batches()] == [[b"b"]]
    assert log.read_index(3) is None
    with pytest.raises(IndexOutOfRange):
        log.read_index(4)


def test_time_finds_the_first_record_at_or_after_it_even_out_of_order(log: Log) -> None:
    for times in ([10, 50, 20], [30, 30, 30], [5, 60, 70], [80, 1, 2]):
        log.append_one(build([b"v"] * 3, timestamps=times), NOW)
    commit(log)
    assert [log.seqno_at(t) for t in (0, 10, 11, 50, 51, 61, 71, 80, 81)] == [0, 0, 1, 1, 7, 8, 9, 9, 12]


def test_records_without_a_timestamp_are_found_by_their_append_time(log: Log) -> None:
    for step in range(3):
        log.append_one(build([b"v"]), NOW + step * 10)
    commit(log)
    assert log.seqno_at(NOW + 10) == 1
    assert [t for batch in log.batches() for t in batch.timestamps()] == [NOW, NOW + 10, NOW + 20]


def test_time_is_found_across_segments_and_after_the_newest_record_was_dropped(log: Log) -> None:
    log.append_one(build([b"far"], timestamps=10**15), NOW)
    commit(log)
    log.roll()
    for step in range(5):
        log.append_one(build([b"near"], timestamps=step), NOW)
        commit(log)
        log.roll()
    assert log.seqno_at(3) == 0
    assert log.drop(1) == 1
    assert log.seqno_at(3) == 4


@pytest.mark.parametrize("step", [lambda n: n, lambda n: n * n * n, lambda n: n // 20, lambda n: 2 ** (n // 2)])
def test_time_is_found_among_many_segments_however_it_went_by(log: Log, step: Callable[[int], int]) -> None:
    moments = [1000 + step(number) for number in range(60)]
    for moment in moments:
        log.append_one(build([b"v"], timestamps=moment), NOW)
        commit(log)
        log.roll()
    wanted = sorted({0, 10**18, *moments, *(moment + 1 for moment in moments), *(moment - 1 for moment in moments)})
    assert [log.seqno_at(moment) for moment in wanted] == [bisect_left(moments, moment) for moment in wanted]


def test_append_time_never_goes_back(log: Log) -> None:
    log.append_one(build([b"a"]), NOW)
    assert log.append_one(build([b"b"]), NOW - 1000).append_time == NOW


def test_a_term_that_goes_back_is_refused(log: Log) -> None:
    log.append_one(build([b"a"]), NOW, term=3)
    assert log.append_one(build([b"b"]), NOW).index == 2
    assert log.term == 3
    with pytest.raises(ValueError, match="below"):
        log.append_one(build([b"c"]), NOW, term=2)


def test_a_bad_batch_is_refused_without_harm_to_the_others(log: Log) -> None:
    broken = bytearray(build([b"y" * 100]).data)
    broken[150] ^= 1
    batches = [
        build([b"a"]),
        Batch.parse(bytes(broken)),
        build([b"x" * 70_000]),
        build_control(Floor(1)),
        build([b"b"]),
    ]
    answers = log.append(batches, NOW)
    assert [type(answer) for answer in answers] == [Appended, BodyCorrupt, BatchTooLarge, MalformedBatch, Appended]
    assert log.next == 2


def test_batches_over_the_limit_and_kafka_batches_are_refused() -> None:
    from crc32c import crc32c

    log = open_log(SimulatedDisk(), LogConfig(batch_bytes_max=4096))
    large = Batch.parse(bytes(build([b"x" * 5000]).data))
    kafka = bytearray(build([b"k"]).data)
    kafka[42] = 2
    kafka[88:92] = crc32c(bytes(kafka[96:]), crc32c(bytes(kafka[40:88]))).to_bytes(4, "little")
    kafka[92:96] = crc32c(bytes(kafka[:92])).to_bytes(4, "little")
    answers = log.append([large, Batch.parse(bytes(kafka))], NOW)
    assert [type(answer) for answer in answers] == [BatchTooLarge, UnsupportedBatch]


def test_expect_seqno_is_compare_and_set(log: Log) -> None:
    assert log.append_one(build([b"a"]), NOW, expect=0).base_seqno == 0
    answers = log.append([build([b"b"]), build([b"c"])], NOW, expect=[1, 1])
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[1], UnexpectedSeqno)
    assert answers[1].next_seqno == 2


def test_producers_are_checked_and_repeats_answered_as_the_first_time(log: Log) -> None:
    first = log.append_one(build([b"a", b"b"], producer=Producer(9, 1, 0)), NOW)
    log.append_one(build([b"c"], producer=Producer(9, 1, 2)), NOW)
    again = log.append_one(build([b"a", b"b"], producer=Producer(9, 1, 0)), NOW + 5)
    assert again == replace(first, repeat=True)
    for producer, error in (
        (Producer(9, 1, 9), SequenceGap),
        (Producer(9, 0, 3), ProducerFenced),
        (Producer(8, 0, 3), UnknownProducer),
        (Producer(9, 2, 7), SequenceGap),
        (Producer(9, 1, 1), RepeatForgotten),
    ):
        with pytest.raises(error):
            log.append_one(build([b"z"], producer=producer), NOW)
    assert log.append_one(build([b"new"], producer=Producer(9, 2, 0)), NOW).base_seqno == 3


def test_sequence_numbers_wrap_at_2_to_the_31(log: Log) -> None:
    top = 2**31 - 1
    producers = log.tail.producers
    from logboom.storage.producers import ProducerBatch

    producers.record(4, 0, ProducerBatch(top - 1, 1, 0, 0, NOW))
    log.append_one(build([b"a", b"b"], producer=Producer(4, 0, top)), NOW)
    assert not log.append_one(build([b"c"], producer=Producer(4, 0, 1)), NOW).repeat
    assert log.append_one(build([b"a", b"b"], producer=Producer(4, 0, top)), NOW).repeat


def test_a_repeat_within_one_group_is_answered_with_its_original(log: Log) -> None:
    batch = build([b"a"], producer=Producer(3, 0, 0))
    first, second = log.append([batch, batch], NOW)
    assert isinstance(first, Appended)
    assert second == replace(first, repeat=True)
    assert log.next == 1


def test_only_the_last_16_batches_of_a_producer_are_remembered(log: Log) -> None:
    batches = [build([b"%d" % n], producer=Producer(3, 0, n)) for n in range(20)]
    log.append(batches, NOW)
    answers = log.append(batches, NOW)
    assert [isinstance(answer, Appended) for answer in answers] == [False] * 4 + [True] * 16


def test_producers_are_forgotten_by_count_and_by_no_clock() -> None:
    log = open_log(SimulatedDisk(), LogConfig(producers_max=2))
    for producer_id in (1, 2, 3):
        log.append_one(build([b"x"], producer=Producer(producer_id, 0, 0)), NOW)
    with pytest.raises(UnknownProducer):
        log.append_one(build([b"y"], producer=Producer(1, 0, 1)), NOW)
    log.append_one(build([b"y"], producer=Producer(2, 0, 1)), NOW + 1000 * DAY_US)
    log.roll()
    assert log.append_one(build([b"x"], producer=Producer(3, 0, 0)), NOW).repeat
    assert not log.append_one(build([b"z"], producer=Producer(3, 0, 1)), NOW).repeat


def issued(number: int, seq: int = 0) -> Batch:
    return build([b"x"], producer=Producer(ISSUED_IDS + number, 0, seq))


def test_a_producer_that_was_forgotten_is_told_and_a_new_one_is_not_refused(disk: SimulatedDisk) -> None:
    config = LogConfig(producers_max=3)
    log = open_log(disk, config)
    for number in (1, 2, 3, 4, 5):
        log.append_one(issued(number), NOW)
    for batch in (issued(1), issued(2), issued(1, 1)):
        with pytest.raises(ProducerForgotten):
            log.append_one(batch, NOW)
    assert log.append_one(issued(3), NOW).repeat
    log.append_one(issued(6), NOW)
    log.roll()
    commit(log)
    disk.kill()
    log = open_log(disk, config)
    with pytest.raises(ProducerForgotten):
        log.append_one(issued(2), NOW)
    with pytest.raises(UnknownProducer) as unknown:
        log.append_one(issued(9, 1), NOW)
    assert not isinstance(unknown.value, ProducerForgotten)
    assert not log.append_one(issued(9), NOW).repeat


def test_ids_that_writers_make_push_out_none_that_a_node_gave() -> None:
    log = open_log(SimulatedDisk(), LogConfig(producers_max=2))
    log.append_one(issued(1), NOW)
    for producer_id in range(1, 50):
        log.append_one(build([b"y"], producer=Producer(producer_id, 0, 0)), NOW)
    assert log.append_one(issued(1), NOW).repeat
    assert not log.append_one(issued(2), NOW).repeat
    assert not log.append_one(build([b"y"], producer=Producer(1, 0, 0)), NOW).repeat, "a new one, for all anybody knows"


def test_what_a_log_has_forgotten_goes_back_with_a_truncation() -> None:
    log = open_log(SimulatedDisk(), LogConfig(producers_max=2))
    for number in (1, 2):
        log.append_one(issued(number), NOW)
    log.roll()
    for number in (3, 4):
        log.append_one(issued(number), NOW)
    with pytest.raises(ProducerForgotten):
        log.append_one(issued(1), NOW)
    log.truncate(2)
    assert log.append_one(issued(1), NOW).repeat


def test_producers_survive_rolls_and_reopening(disk: SimulatedDisk, log: Log) -> None:
    log.append_one(build([b"x"], producer=Producer(1, 0, 0)), NOW)
    log.roll()
    log.append_one(build([b"y"], producer=Producer(1, 0, 1)), NOW)
    log.roll()
    disk.kill()
    log = open_log(disk)
    assert log.append_one(build([b"x"], producer=Producer(1, 0, 0)), NOW).repeat


def test_segments_are_rolled_by_size_and_by_age(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=4096, segment_age_us=1_000_000))
    log.append([build([b"x" * 1000]) for _ in range(8)], NOW)
    assert len(log.segments) == 3
    assert all(len(disk.names[segment.log_path].cached) <= 4096 for segment in log.segments)
    log.append_one(build([b"old"]), NOW)
    log.append_one(build([b"new"]), NOW + 1_000_000)
    assert len(log.segments) == 4


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_log(SimulatedDisk())
    log.append([build([b"a"]), build([b"x" * 9000]), build([b"b"])], NOW)
    commit(log)
    assert [len(batch) for batch in log.batches()] == [1, 1, 1]
    assert len(log.segments) == 3


def test_a_segment_is_synced_before_its_successor_takes_a_byte(disk: SimulatedDisk, log: Log) -> None:
    for number in range(40):
        log.append_one(make_batch(number, 5, None), NOW)
        for segment in log.segments[:-1]:
            assert not disk.names[segment.log_path].unsynced


def test_a_snapshot_is_durable_before_the_first_byte_of_its_segment(disk: SimulatedDisk) -> None:
    seen = []

    def fault(call: Call) -> None:
        if call.name == "write" and call.path.endswith(".log"):
            snap = call.path[:-15] + ".snap"
            seen.append(snap)
            assert not disk.durable_names[snap].unsynced

    disk.fault = fault
    log = open_log(disk)
    for number in range(40):
        log.append_one(make_batch(number, 5, None), NOW)
    assert len(set(seen)) > 1


def test_the_stamp_says_which_batches_were_synced(log: Log) -> None:
    log.append_one(build([b"a"]), NOW)
    log.append_one(build([b"b"]), NOW)
    log.sync()
    log.append_one(build([b"c"]), NOW)
    commit(log)
    assert [batch.header.synced for batch in log.batches()] == [1, 2, 1]


def test_segments_are_dropped_whole_and_numbers_are_kept_when_all_are_gone(disk: SimulatedDisk, log: Log) -> None:
    for number in range(40):
        log.append_one(make_batch(number, 5, None), NOW)
    commit(log)
    assert log.drop(100) > 0
    assert 0 < log.first <= 100
    log.roll()
    log.drop(log.committed)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == []
    assert (log.first, log.next) == (200, 200)
    disk.kill()
    log = open_log(disk)
    assert (log.first, log.next, log.last_index) == (200, 200, 40)
    assert log.append_one(build([b"on"]), NOW).base_seqno == 200


def test_what_is_not_committed_is_not_dropped(log: Log) -> None:
    for number in range(40):
        log.append_one(make_batch(number, 5, None), NOW)
    log.sync()
    assert log.drop(200) == 0


def test_nothing_below_the_floor_is_served_and_it_survives_everything(disk: SimulatedDisk, log: Log) -> None:
    log.append_one(build([b"a", b"b", b"c", b"d"]), NOW)
    commit(log)
    log.trim(2, NOW)
    commit(log)
    with pytest.raises(SeqnoOutOfRange):
        log.read(1)
    with pytest.raises(SeqnoOutOfRange):
        log.trim(9, NOW)
    log.roll()
    disk.kill()
    log = open_log(disk)
    log.commit(log.last_index)
    assert log.first == 2
    assert log.seqno_at(0) == 2


def test_committed_batches_are_never_truncated(log: Log) -> None:
    log.append([build([b"a"]), build([b"b"])], NOW)
    commit(log)
    with pytest.raises(IndexOutOfRange):
        log.truncate(1)


def test_a_sync_that_began_before_a_truncation_says_nothing_after_it(log: Log) -> None:
    log.append([build([b"a"]), build([b"b"]), build([b"c"])], NOW)
    pending = log.begin_sync()
    assert isinstance(pending, PendingSync)
    pending.file.sync()
    log.truncate(1)
    log.append_one(build([b"d"]), NOW)
    log.end_sync(pending)
    assert log.synced_index == 1


def test_appends_go_on_while_a_sync_is_under_way(log: Log) -> None:
    log.append_one(build([b"a"]), NOW)
    pending = log.begin_sync()
    assert pending is not None
    log.append_one(build([b"b"]), NOW)
    pending.file.sync()
    log.end_sync(pending)
    assert log.synced_index == 1
    assert log.sync() == 2


def test_writes_are_refused_while_space_is_low_and_reads_go_on(disk: SimulatedDisk) -> None:
    log = Log.open(OpenFiles(disk, reserve_bytes=1 << 20), DIRECTORY, SMALL)
    log.append_one(build([b"a"]), NOW)
    commit(log)
    disk.free = 1 << 19
    log._store.files.space._unasked_bytes = 0
    with pytest.raises(LowSpace):
        log.append_one(build([b"b"]), NOW)
    assert [batch.values() for batch in log.batches()] == [[b"a"]]
    disk.free = 1 << 30
    assert log.append_one(build([b"b"]), NOW).base_seqno == 1


def test_nothing_overtakes_a_batch_that_could_not_be_written(disk: SimulatedDisk, log: Log) -> None:
    log.append_one(build([b"first"]), NOW)

    def fault(call: Call) -> None:
        if call.name == "write" and call.path.endswith(".log") and call.size > 3000:
            raise OSError(28, "injected")

    disk.fault = fault
    batches = [build([b"x" * 1500]), build([b"y" * 1500]), build([b"z"]), build([b"w" * 900])]
    answers = log.append(batches, NOW)
    assert not any(isinstance(answer, Appended) for answer in answers)
    assert log.next == 1


def test_a_closed_log_takes_no_writes(log: Log) -> None:
    log.close()
    with pytest.raises(LogReadOnly, match="closed"):
        log.append_one(build([b"a"]), NOW)


def test_open_files_stay_within_their_limit_and_idle_logs_hold_none(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk, limit=3, reserve_bytes=0)
    log = Log.open(files, DIRECTORY, SMALL)
    for number in range(60):
        log.append_one(make_batch(number, 5, None), NOW)
    commit(log)
    assert len(list(log.batches())) == 60
    assert len(files) <= 3
    log.close()
    assert len(files) == 0


def test_sealed_committed_segments_may_be_mapped_and_others_not(log: Log) -> None:
    for number in range(40):
        log.append_one(make_batch(number, 5, None), NOW)
    commit(log)
    sealed, active = log.read(0), log.read(log.committed - 1)
    assert sealed is not None
    assert active is not None
    assert sealed.mappable
    assert not active.mappable


@pytest.mark.parametrize("bad", [{"segment_bytes": 1}, {"index_bytes": 10**12}, {"producers_max": 0}])
def test_a_wrong_setting_is_refused_with_its_name_and_range(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is .* allowed are"):
        LogConfig(**bad)
