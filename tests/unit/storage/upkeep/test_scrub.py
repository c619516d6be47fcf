"""A scrub finds every flipped byte of a cold segment, and the ledger remembers it."""

from __future__ import annotations

import errno
from random import Random

import pytest

from logboom.batch import HEADER_SIZE
from logboom.errors import Damage
from logboom.storage import LogConfig
from logboom.storage.files.disk import replace_file
from logboom.storage.files.readonly import BLOCK
from logboom.storage.segment import Segment
from logboom.storage.upkeep.scrub import FINDINGS_MAX, ScrubLedger, ScrubResult, scrub
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.mutants.batches import with_fields
from support.simulation.broken import content, copy_of, cut_out, overwrite, places, remove, resize, sound_disk
from support.simulation.model import make_batch, open_log

PATH = "/data/internal/scrub"
LOG = "topics/t~00000000000000000000000000000001/0"
SOUND = ScrubResult(100, 1, [])
DAY = 86_400_000_000


def free(size: int) -> None:
    pass


def cold(disk: SimulatedDisk) -> tuple[Segment, ...]:
    """The sealed segments of the log on this disk."""
    return open_log(disk).segments[:-1]


def flip(disk: SimulatedDisk, path: str, position: int, mask: int = 1) -> None:
    overwrite(disk, path, position, bytes([content(disk)[path][position] ^ mask]))


def ranges(result: ScrubResult) -> list[tuple[int, int | None]]:
    return [(damage.seqno_from, damage.seqno_until) for damage in result.damage]


def damaged(segment: Segment, seqno_from: int = 0, seqno_until: int = 2, count: int = 1) -> ScrubResult:
    return ScrubResult(100, 1, [Damage(segment.log_path, 8, seqno_from, seqno_until, "flipped")] * count)


@pytest.mark.parametrize("number", [0, 1])
def test_a_sound_segment_has_no_damage_and_everything_is_counted(number: int) -> None:
    disk = sound_disk()
    segment = cold(disk)[number]
    told: list[int] = []
    result = scrub(segment, told.append)
    size = len(content(disk)[segment.log_path])
    assert result == ScrubResult(size, (12, 13)[number], [])
    assert sum(told) == size


@pytest.mark.parametrize("number", [0, 1])
def test_a_flipped_byte_anywhere_is_found_with_the_seqnos_it_costs(number: int) -> None:
    disk = sound_disk()
    segment = cold(disk)[number]
    batches = places(disk, number)
    for position, header in batches:
        for at in range(position, position + header.size, 1 if position < 300 else 5):
            flip(disk, segment.log_path, at)
            result = scrub(segment, free)
            assert ranges(result) == [(header.base_seqno, header.next_seqno)]
            assert (result.damage[0].path, result.damage[0].position) == (segment.log_path, position)
            assert result.batches == len(batches) - 1
            flip(disk, segment.log_path, at)


def test_every_hole_is_one_damage() -> None:
    disk = sound_disk()
    segment, batches = cold(disk)[1], places(disk, 1)
    for number in (0, 3, 4, 12):
        flip(disk, segment.log_path, batches[number][0] + 50)
    seqnos = [header.base_seqno for _, header in batches]
    expected = [(seqnos[0], seqnos[1]), (seqnos[3], seqnos[5]), (seqnos[12], seqnos[12] + 2)]
    merged: list[tuple[int, int | None]] = []
    result = scrub(segment, free)
    for damage in result.damage:
        if merged and merged[-1][1] == damage.seqno_from:
            merged[-1] = (merged[-1][0], damage.seqno_until)
        else:
            merged.append((damage.seqno_from, damage.seqno_until))
    assert merged == expected
    assert result.batches == 9


def test_batches_that_were_cut_out_or_off_are_damage() -> None:
    disk = sound_disk()
    segment, batches = cold(disk)[0], places(disk, 0)
    (position, header), (last, _) = batches[5], batches[-1]
    shorter = copy_of(disk)
    resize(shorter, segment.log_path, last)
    assert ranges(scrub(cold(shorter)[0], free)) == [(22, 24)]
    cut_out(disk, segment.log_path, position, header.size)
    assert ranges(scrub(cold(disk)[0], free)) == [(10, 12)]
    resize(disk, segment.log_path, 0)
    assert ranges(scrub(cold(disk)[0], free)) == [(0, 24)]


def test_a_batch_too_many_is_damage_that_costs_no_seqnos() -> None:
    disk = sound_disk()
    segment, (position, header) = cold(disk)[0], places(disk, 1)[0]
    data = content(disk)[cold(disk)[1].log_path][position : position + header.size]
    overwrite(disk, segment.log_path, len(content(disk)[segment.log_path]), data)
    result = scrub(cold(disk)[0], free)
    assert ranges(result) == [(24, 24)]
    assert "behind the segment's end" in result.damage[0].reason


def test_a_missing_file_is_damage_over_the_whole_range() -> None:
    disk = sound_disk()
    segment = cold(disk)[1]
    remove(disk, segment.log_path)
    result = scrub(cold(disk)[1], free)
    assert (result.bytes, result.batches, ranges(result)) == (0, 0, [(24, 50)])


def test_a_batch_of_a_newer_release_is_no_damage() -> None:
    disk = sound_disk()
    segment, (position, header) = cold(disk)[0], places(disk, 0)[5]
    data = content(disk)[segment.log_path][position : position + header.size]
    overwrite(disk, segment.log_path, position, with_fields(data, version=2))
    result = scrub(segment, free)
    assert (result.batches, result.damage) == (12, [])


def test_what_lies_on_the_disk_counts_and_not_what_the_cache_shows() -> None:
    disk = sound_disk()
    segment, (position, header) = cold(disk)[0], places(disk, 0)[3]
    disk.names[segment.log_path].durable[position + HEADER_SIZE] ^= 1
    assert ranges(scrub(segment, free)) == [(header.base_seqno, header.next_seqno)]


def test_blocks_the_device_cannot_read_are_damage_and_the_rest_is_still_read() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=1 << 20))
    for number in range(40):
        log.append_one(make_batch(number, 5, number, size=100), number)
    log.roll()
    log.commit(log.sync())
    segment = log.segments[0]
    original = copy_of(disk)
    starts = places(original, 0)
    hit = [header for position, header in starts if position < 4 * BLOCK and position + header.size > 3 * BLOCK]

    read = type(disk.open(segment.log_path)).read

    def fail(file: object, size: int, position: int) -> bytes:
        if position < 4 * BLOCK and position + size > 3 * BLOCK:
            raise OSError(errno.EIO, "Input/output error")
        return read(file, size, position)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(disk.open(segment.log_path)), "read", fail)
        result = scrub(segment, free)
    assert ranges(result) == [(hit[0].base_seqno, hit[-1].next_seqno)]
    assert "cannot read 1 blocks" in result.damage[0].reason
    assert result.batches == 40 - len(hit)


def test_other_errors_of_the_disk_are_not_taken_for_damage() -> None:
    disk = sound_disk()
    segment = cold(disk)[0]

    def fail(call: Call) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    disk.fault = fail
    with pytest.raises(OSError, match="Bad file descriptor"):
        scrub(segment, free)


def test_a_large_segment_is_read_in_pieces_and_a_throttle_can_cancel() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=16 << 20))
    for number in range(30):
        log.append_one(make_batch(number, 500, number, size=200), number)
    log.roll()
    told: list[int] = []
    result = scrub(log.segments[0], told.append)
    assert (result.batches, result.damage, sum(told)) == (30, [], result.bytes)
    assert len(told) >= 3
    assert max(told) < 2**18

    def cancel(size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scrub(log.segments[0], cancel)


def test_segments_are_due_from_the_oldest_to_the_newest_and_then_again_after_a_while() -> None:
    segments, ledger, now = cold(sound_disk()), ScrubLedger(PATH), 5 * DAY
    assert ledger.next_due(LOG, [], now, DAY) is None
    for number in (0, 1):
        due = ledger.next_due(LOG, segments, now + number, DAY)
        assert due is segments[number]
        ledger.record(LOG, due, SOUND, now + number)
    assert ledger.next_due(LOG, segments, now + DAY - 1, DAY) is None
    assert ledger.next_due(LOG, segments, now + DAY, DAY) is segments[0]
    ledger.record(LOG, segments[0], SOUND, now + DAY)
    assert ledger.next_due(LOG, segments, now + DAY + 1, DAY) is segments[1]
    ledger.record(LOG, segments[1], SOUND, now + DAY + 1)
    assert ledger.next_due(LOG, segments, now + 2 * DAY - 1, DAY) is None
    assert ledger.next_due("another", segments, now, DAY) is segments[0]


def test_a_segment_that_turned_cold_is_due_at_once_and_dropped_ones_are_not_missed() -> None:
    segments, ledger = cold(sound_disk()), ScrubLedger(PATH)
    ledger.record(LOG, segments[0], SOUND, 100)
    assert ledger.next_due(LOG, segments[:1], 101, DAY) is None
    assert ledger.next_due(LOG, segments, 101, DAY) is segments[1]
    assert ledger.next_due(LOG, segments[1:], 101, DAY) is segments[1]


def test_segments_that_share_their_first_seqno_are_both_scrubbed() -> None:
    log = open_log(SimulatedDisk())
    log.append_one(make_batch(0, 2, 0), 1)
    log.roll()
    log.commit(log.sync())
    for _ in range(2):
        log.trim(1, 2)
        log.roll()
    segments, ledger = log.segments[:-1], ScrubLedger(PATH)
    assert [segment.first_seqno for segment in segments] == [0, 2, 2]
    for segment in segments:
        assert ledger.next_due(LOG, segments, 3, DAY) is segment
        ledger.record(LOG, segment, scrub(segment, free), 3)
    assert (ledger.findings, ledger.next_due(LOG, segments, 3, DAY)) == ((), None)


def test_a_clock_that_went_back_does_not_stop_scrubbing() -> None:
    segments, ledger = cold(sound_disk()), ScrubLedger(PATH)
    for segment in segments:
        ledger.record(LOG, segment, SOUND, 50 * DAY)
    assert ledger.next_due(LOG, segments, DAY, DAY) is segments[0]


def test_a_finding_says_what_was_found_where_and_when() -> None:
    disk = sound_disk()
    segment, (position, header) = cold(disk)[1], places(disk, 1)[2]
    flip(disk, segment.log_path, position + 100)
    ledger = ScrubLedger(PATH)
    ledger.record(LOG, segment, scrub(segment, free), 77)
    (finding,) = ledger.findings
    assert (finding.log, f"/data/{LOG}/{finding.file}") == (LOG, segment.log_path)
    assert (finding.position, finding.found_at) == (position, 77)
    assert (finding.seqno_from, finding.seqno_until) == (header.base_seqno, header.next_seqno)
    assert "batch_crc" in finding.reason


def test_the_next_scrub_of_a_segment_replaces_what_the_last_one_found() -> None:
    first, second = cold(sound_disk())
    ledger = ScrubLedger(PATH)
    ledger.record(LOG, first, damaged(first), 1)
    ledger.record(LOG, second, damaged(second, 30, 32), 2)
    ledger.record("another", first, damaged(first), 2)
    ledger.record(LOG, first, damaged(first, 4, 6), 3)
    assert [(f.log == LOG, f.seqno_from) for f in ledger.findings] == [(True, 30), (False, 0), (True, 4)]
    newer = Segment(first._files, first.directory, first.first_seqno, first.first_index, first.generation + 1)
    ledger.record(LOG, newer, SOUND, 4)
    assert [f.seqno_from for f in ledger.findings] == [30, 0]
    ledger.record(LOG, second, damaged(second, count=FINDINGS_MAX + 5), 5)
    assert len(ledger.findings) == FINDINGS_MAX + 1


def test_findings_go_with_their_segments_and_everything_goes_with_its_log() -> None:
    segments = first, second = cold(sound_disk())
    ledger = ScrubLedger(PATH)
    for segment in segments:
        ledger.record(LOG, segment, damaged(segment), 1)
        ledger.record("another", segment, damaged(segment), 1)
    ledger.forget(LOG, [second])
    assert [f.log for f in ledger.findings] == ["another", LOG, "another"]
    assert ledger.next_due(LOG, segments, 2, DAY) is None
    ledger.forget(LOG, [])
    assert [f.log for f in ledger.findings] == ["another"] * 2
    assert ledger.next_due(LOG, segments, 2, DAY) is first


def filled() -> ScrubLedger:
    first, second = cold(sound_disk())
    ledger = ScrubLedger(PATH)
    ledger.record(LOG, first, damaged(first), 1)
    ledger.record(LOG, second, damaged(second), 2)
    return ledger


def test_a_ledger_is_the_same_after_it_was_saved_and_loaded() -> None:
    disk, ledger = SimulatedDisk(), filled()
    ledger.save(disk)
    (disk,) = disk.power_losses()
    again = ScrubLedger.load(disk, PATH)
    assert again.findings == ledger.findings
    assert len(again.findings) == 2
    assert again.next_due(LOG, cold(sound_disk()), 3, DAY) is None
    again.save(copy := SimulatedDisk())
    assert content(copy) == content(disk)


def test_a_ledger_that_is_missing_or_garbage_counts_as_empty() -> None:
    disk = SimulatedDisk()
    filled().save(disk)
    whole = content(disk)[PATH]
    bad = [bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in range(len(whole))]
    for data in [b"", b"garbage" * 50, whole + b"x", *(whole[:size] for size in range(len(whole))), *bad]:
        replace_file(disk, PATH, data)
        assert ScrubLedger.load(disk, PATH).findings == ()
    assert ScrubLedger.load(SimulatedDisk(), PATH).findings == ()

    def fail(call: Call) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk.fault = fail
    assert ScrubLedger.load(disk, PATH).findings == ()


@pytest.mark.parametrize("number", range(1, 6))
def test_after_a_power_loss_while_saving_the_ledger_is_the_old_or_the_new_one(number: int) -> None:
    disk, ledger = SimulatedDisk(), filled()
    ledger.save(disk)
    old = ledger.findings
    first, _ = cold(sound_disk())
    ledger.record(LOG, first, SOUND, 9)
    disk.calls = 0

    def lose_power(call: Call) -> None:
        if call.number >= number:
            raise PowerLoss(call.size // 2)

    disk.fault = lose_power
    try:
        ledger.save(disk)
        saved = True
    except PowerLoss:
        saved = False
    disk.fault = None
    for survivor in [*disk.power_losses(), *(disk.power_loss(Random(seed)) for seed in range(20))]:
        found = ScrubLedger.load(survivor, PATH)
        assert found.findings in ((ledger.findings,) if saved else (old, ledger.findings))
        found.save(survivor)
