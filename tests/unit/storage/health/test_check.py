from __future__ import annotations

import errno

import pytest

from logboom.batch import build
from logboom.errors import DirectoryUnusable
from logboom.storage import DataDirectory
from logboom.storage.files.readonly import ReadOnlyDisk
from logboom.storage.health.findings import Finding
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.broken import (
    checked,
    content,
    cut_out,
    overwrite,
    places,
    remove,
    resize,
    segments,
    sound_disk,
    worrying,
)
from support.simulation.model import DIRECTORY, make_batch, open_log


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_a_sound_log_has_no_findings_and_everything_is_counted() -> None:
    report = checked(sound_disk())
    assert report.findings == []
    assert (report.logs, report.segments, report.batches, report.records) == (1, 3, 34, 68)
    assert report.bytes > 34 * 96
    assert not report.damaged


@pytest.mark.parametrize(
    "path", ["/data", "/data/topics", "/data/topics/t~00000000000000000000000000000001", DIRECTORY]
)
def test_a_data_directory_a_topic_and_a_log_can_be_named(path: str) -> None:
    assert checked(sound_disk(), path).batches == 34


@pytest.mark.parametrize("path", ["/", "/nowhere", "/other"])
def test_what_is_no_directory_of_ours_is_an_error_and_not_a_sound_log(path: str) -> None:
    disk = sound_disk()
    disk.make_directory("/other")
    if path == "/":
        disk = SimulatedDisk()
    with pytest.raises(DirectoryUnusable, match="name a data directory"):
        checked(disk, path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_bit_is_found_wherever_it_is_and_the_rest_is_still_checked(number: int) -> None:
    disk = sound_disk()
    path = segments(disk)[number].log_path
    position, header = places(disk, number)[3]
    for offset in (0, 5, 20, 60, 93, 100, header.size - 1):
        byte = disk.names[path].cached[position + offset]
        overwrite(disk, path, position + offset, bytes([byte ^ 4]))
        finding = only(worrying(disk))
        assert (finding.kind, finding.severity, finding.repairable) == ("damage", "damage", True)
        assert (finding.file, finding.position) == (path, position)
        assert (finding.seqno_from, finding.seqno_until) == (header.base_seqno, header.next_seqno)
        assert checked(disk).batches == 33
        overwrite(disk, path, position + offset, bytes([byte]))
    assert worrying(disk) == []


def test_two_damaged_places_in_one_segment_are_two_findings() -> None:
    disk = sound_disk()
    path = segments(disk)[1].log_path
    third, fifth = places(disk, 1)[3], places(disk, 1)[5]
    for position, _ in (third, fifth):
        overwrite(disk, path, position, b"XXXX")
    findings = worrying(disk)
    assert [finding.seqno_from for finding in findings] == [third[1].base_seqno, fifth[1].base_seqno]
    assert checked(disk).batches == 32


def test_a_batch_that_is_cut_out_without_a_trace_is_noticed_by_its_numbers() -> None:
    disk = sound_disk()
    position, header = places(disk, 1)[4]
    cut_out(disk, segments(disk)[1].log_path, position, header.size)
    finding = only([finding for finding in worrying(disk) if finding.kind != "bad index"])
    assert finding.kind == "damage"
    assert (finding.position, finding.seqno_from, finding.seqno_until) == (
        position,
        header.base_seqno,
        header.next_seqno,
    )
    assert checked(disk).batches == 33


def test_a_record_that_holds_a_batch_does_not_pass_for_one_behind_a_damaged_header() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, 2, 0), 1)
    twin = SimulatedDisk()
    other = open_log(twin)
    for number in range(3):
        other.append_one(build([b"forged %d" % number]), 5)
    forged = bytes(twin.names[other.segments[-1].log_path].cached)
    log.append_one(build([bytes(40) + forged, b"x" * 1000]), 5)
    log.append_one(make_batch(2, 2, 0), 5)
    log.append_one(make_batch(3, 2, 0), 5)
    log.commit(log.sync())
    log.close()
    disk.kill()
    (_, hit, after, _) = places(disk, 0)
    overwrite(disk, log.segments[0].log_path, hit[0], b"XXXX")
    finding = only(worrying(disk))
    assert (finding.seqno_from, finding.seqno_until) == (2, after[1].base_seqno)
    assert checked(disk).batches == 3


def test_a_torn_tail_is_harmless_unless_the_state_file_knows_better() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(3):
        log.append_one(make_batch(number, 2, 0), 1)
    log.commit(log.sync())
    log.append_one(make_batch(3, 2, 0), 1)
    disk.kill()
    path = log.segments[-1].log_path
    resize(disk, path, disk.open(path).size() - 8)
    finding = only(worrying(disk))
    assert (finding.kind, finding.severity) == ("torn tail", "harmless")
    assert finding.seqno_from == 6
    resize(disk, path, places(disk, 0)[2][0] + 100)
    finding = only(worrying(disk))
    assert (finding.kind, finding.severity) == ("damage", "damage")
    assert (finding.seqno_from, finding.seqno_until) == (4, 6)


def test_fewer_batches_than_the_state_file_says_were_synced_is_damage() -> None:
    disk = sound_disk()
    path = segments(disk)[2].log_path
    resize(disk, path, places(disk, 2)[5][0])
    finding = only(worrying(disk))
    assert (finding.kind, finding.severity, finding.seqno_from, finding.seqno_until) == (
        "missing tail",
        "damage",
        60,
        68,
    )


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_missing_segment_in_the_middle_is_found_with_its_seqnos(with_snapshot: bool) -> None:
    disk = sound_disk()
    segment = segments(disk)[1]
    remove(disk, segment.log_path, segment.index_path, *([segment.snap_path] if with_snapshot else []))
    finding = only(worrying(disk))
    assert (finding.kind, finding.seqno_from, finding.seqno_until) == ("missing segment", 24, 50)


def test_a_log_of_which_no_file_is_left_is_damage_if_the_state_file_remembers_it() -> None:
    disk = sound_disk()
    remove(disk, *[path for path in disk.names if path.startswith(DIRECTORY)])
    found = worrying(disk)
    assert [(f.kind, f.severity) for f in found] == [("damaged snapshot", "harmless"), ("missing segment", "damage")]
    assert (found[1].seqno_from, found[1].seqno_until) == (0, 68)


def test_a_snapshot_that_follows_from_what_is_sound_is_harmless_another_is_not() -> None:
    disk = sound_disk()
    overwrite(disk, segments(disk)[1].snap_path, 9, b"XX")
    finding = only(worrying(disk))
    assert (finding.kind, finding.severity) == ("damaged snapshot", "harmless")
    overwrite(disk, segments(disk)[0].snap_path, 9, b"XX")
    assert [finding.severity for finding in worrying(disk)] == ["harmless", "harmless"]
    overwrite(disk, segments(disk)[0].log_path, 100, b"XX")
    assert [finding.severity for finding in worrying(disk)] == ["harmless", "damage", "damage"]


def test_an_index_that_does_not_match_is_harmless() -> None:
    disk = sound_disk()
    path = segments(disk)[0].index_path
    overwrite(disk, path, 70, b"XX")
    assert (only(worrying(disk)).kind, only(worrying(disk)).file) == ("bad index", path)


def test_an_unreadable_slot_and_a_damaged_front_of_the_state_file_are_harmless() -> None:
    disk = sound_disk()
    overwrite(disk, "/data/state", 64 + 30, b"X")
    assert (only(worrying(disk)).kind, only(worrying(disk)).position) == ("bad state", 64)
    disk = sound_disk()
    overwrite(disk, "/data/state", 0, b"X")
    assert (only(worrying(disk)).kind, only(worrying(disk)).position) == ("bad state", 0)


def test_files_that_are_not_ours_and_leftovers_are_told_and_are_no_fault() -> None:
    disk = sound_disk()
    for name in (f"{DIRECTORY}/notes.txt", f"{DIRECTORY}/x.tmp", "/data/other"):
        disk.create(name)
    kinds = [finding.kind for finding in checked(disk).findings]
    assert sorted(kinds) == ["foreign file", "foreign file", "leftover"]
    assert not checked(disk).damaged


def test_blocks_the_device_cannot_read_are_damage_and_the_rest_is_read() -> None:
    disk = sound_disk()
    segment = segments(disk)[0]
    broken = ReadOnlyDisk(disk)

    def fault(call: Call) -> None:
        if call.name == "read" and call.path == segment.log_path:
            raise OSError(errno.EIO, "Input/output error")

    disk.fault = fault
    file = broken.open(segment.log_path)
    assert file.read(5000, 100) == bytes(min(5000, file.size() - 100))
    assert file.unreadable
    finding = only(worrying(disk))
    assert (finding.kind, finding.seqno_from, finding.seqno_until) == ("damage", 0, 24)
    assert "the device cannot read" in finding.reason
    assert checked(disk).batches == 22


def test_a_check_changes_nothing_and_calls_nothing_that_could() -> None:
    disk = sound_disk()
    overwrite(disk, segments(disk)[2].log_path, 5, b"XXX")
    overwrite(disk, segments(disk)[1].snap_path, 5, b"XXX")
    before, calls = content(disk), disk.calls
    checked(disk)
    assert content(disk) == before
    assert disk.calls == calls


def test_beside_a_writer_a_torn_tail_is_no_finding_and_the_writer_is_named() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    with DataDirectory.open("/data", disk) as data:
        log = data.open_log(DIRECTORY.removeprefix("/data/"))
        log.append_one(make_batch(0, 2, 0), 1)
        log.commit(log.sync())
        log.append_one(make_batch(1, 2, 0), 1)
        path = log.segments[-1].log_path
        del disk.names[path].cached[-8:]
        report = checked(disk)
        assert report.writer_active
        assert [finding.kind for finding in report.findings] == ["writer active"]


def test_an_unclean_shut_down_is_told() -> None:
    disk = SimulatedDisk()
    data = DataDirectory.open("/data", disk)
    data.open_log(DIRECTORY.removeprefix("/data/"))
    disk.kill()
    assert [finding.kind for finding in checked(disk).findings] == ["unclean shut-down"]


def test_missing_older_segments_are_damage() -> None:
    disk = sound_disk()
    segment = segments(disk)[0]
    remove(disk, segment.log_path, segment.index_path, segment.snap_path)
    finding = only(worrying(disk))
    assert (finding.kind, finding.severity) == ("missing segment", "damage")
    assert (finding.seqno_from, finding.seqno_until) == (0, 24)
