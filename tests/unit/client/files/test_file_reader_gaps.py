"""A reader beside the writer when something is wrong: with files, slots, descriptors, topics."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.client import FileReader
from logboom.errors import Damage, DirectoryUnusable, NotOpened, SeqnoOutOfRange, TopicDeleted, TopicRecreated
from logboom.storage import DataDirectory, Log
from logboom.storage.data.state import SLOT_SIZE, StateFile
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.files.disk import OsDisk
from logboom.storage.view import LogView

SMALL = Settings(segment=SegmentSettings(bytes=4096))


def start(path: Path, settings: Settings = SMALL) -> tuple[DataDirectory, Log]:
    data = DataDirectory.open(str(path))
    if not data.topics():
        data.create_topic("events", settings=settings)
    return data, data.open_topic("events")[0]


def write(log: Log, count: int) -> None:
    for first in range(log.next, log.next + count, 5):
        seqnos = range(first, first + 5)
        log.append_one(build([b"%d" % n + b"x" * 40 for n in seqnos], timestamps=[1000 * n for n in seqnos]), first)
    log.commit(log.sync())


def seqnos_of(reader: FileReader, **how: Any) -> list[int | None]:
    return [record.seqno for record in reader.records(**how)]


def damage(log: Log, seqno: int, offset: int) -> None:
    """Flip a bit of the batch that holds this record."""
    run = log.read(seqno, 1)
    assert run is not None
    with open(run.file.path, "r+b") as file:
        file.seek(run.position + offset)
        (byte,) = file.read(1)
        file.seek(run.position + offset)
        file.write(bytes([byte ^ 1]))


def test_a_deletion_cut_short_is_told_and_ends_no_reader_in_a_loop(tmp_path: Path) -> None:
    data, log = start(tmp_path)
    write(log, 1000)
    reader, waiting = FileReader(tmp_path, "events"), FileReader(tmp_path, "events", at="latest")
    data._state.release = lambda topic_id: None  # type: ignore[method-assign]
    data.delete_topic("events")
    for stuck in (reader, waiting):
        with pytest.raises(TopicDeleted):
            seqnos_of(stuck, follow=True, timeout_s=5)
    data.close()
    with DataDirectory.open(str(tmp_path)):
        assert bytes.fromhex(reader.topic.id) not in (tmp_path / "state").read_bytes()


def test_one_damaged_header_in_the_active_segment_hides_only_its_own_records(tmp_path: Path) -> None:
    data, log = start(tmp_path, Settings())
    write(log, 1000)
    damage(log, 500, 3)
    wanted = [n for n in range(1000) if not 500 <= n < 505]
    reader = FileReader(tmp_path, "events", gaps="skip")
    assert seqnos_of(reader) == wanted
    assert reader.skipped == 5
    assert FileReader(tmp_path, "events", gaps="skip").table(["seqno"])["seqno"].to_pylist() == wanted
    assert seqnos_of(FileReader(tmp_path, "events", gaps="skip"), follow=True, timeout_s=0.01) == wanted
    assert FileReader(tmp_path, "events", at="latest").seqno == 1000
    assert seqnos_of(FileReader(tmp_path, "events", seqno=900)) == list(range(900, 1000))
    with pytest.raises(Damage) as caught:
        seqnos_of(FileReader(tmp_path, "events"))
    assert (caught.value.seqno_from, caught.value.seqno_until) == (500, 505)
    write(log, 5)
    assert seqnos_of(reader) == list(range(1000, 1005))
    data.close()


def test_a_damaged_end_is_told_to_who_comes_there_and_keeps_nobody_who_stops_before(tmp_path: Path) -> None:
    data, log = start(tmp_path, Settings())
    write(log, 1000)
    damage(log, 997, 3)
    for until in (500, 503, 995):
        reader = FileReader(tmp_path, "events")
        assert sum(table.num_rows for table in reader.tables(["seqno"], until=until)) == until
        assert (reader.seqno, reader.committed, reader.stated) == (until, 995, 1000)
    for seqno in (0, 995, 998):
        with pytest.raises(Damage) as caught:
            list(FileReader(tmp_path, "events", seqno=seqno).tables(["seqno"], until=1000))
        assert caught.value.seqno_from == 995
    data.close()


def test_a_topic_deleted_while_a_time_is_looked_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, log = start(tmp_path)
    write(log, 1000)
    reader, look_up = FileReader(tmp_path, "events"), LogView.seqno_at

    def look_up_late(view: LogView, timestamp: int) -> int:
        data.delete_topic("events")
        return look_up(view, timestamp)

    monkeypatch.setattr(LogView, "seqno_at", look_up_late)
    with pytest.raises(TopicDeleted):
        reader.seqno_at(50_000)
    data.close()


@pytest.mark.parametrize("gaps", ["raise", "skip"])
def test_too_many_open_files_are_no_damage_and_pass(tmp_path: Path, gaps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, log = start(tmp_path)
    write(log, 10)
    reader = FileReader(tmp_path, "events", gaps=gaps)
    assert seqnos_of(reader) == list(range(10))
    write(log, 200)
    open_file, fails = OsDisk.open, [2]

    def fail(self: OsDisk, path: str) -> Any:
        if path.endswith(".log") and fails[0]:
            fails[0] -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_file(self, path)

    monkeypatch.setattr(OsDisk, "open", fail)
    got: list[int | None] = []
    for _ in range(5):
        with suppress(OSError):
            got += seqnos_of(reader)
    assert got == list(range(10, 210))
    assert reader.skipped == 0
    data.close()


def test_the_end_of_a_log_that_nobody_has_begun_is_its_beginning(tmp_path: Path) -> None:
    data = DataDirectory.open(str(tmp_path))
    data.create_topic("events", settings=SMALL)
    reader = FileReader(tmp_path, "events", at="latest")
    (log,) = data.open_topic("events")
    write(log, 5)
    assert seqnos_of(reader) == list(range(5))
    data.close()


@pytest.mark.parametrize(
    "batch", [build([bytes(100_000)] * 10, codec="zstd"), build([None] * 65_536)], ids=["zeros", "nothing"]
)
def test_tables_are_bounded_whatever_a_batch_inflates_to(tmp_path: Path, batch: Any) -> None:
    data, log = start(tmp_path, Settings())
    for number in range(40):
        log.append_one(batch, number)
    log.commit(log.sync())
    tables = list(FileReader(tmp_path, "events").tables(max_bytes=2 * 1024 * 1024))
    assert sum(table.num_rows for table in tables) == 40 * len(batch)
    assert all(table.num_rows <= max(len(batch), 4 * 1024 * 1024 // 32) for table in tables)
    assert len(tables) >= 10
    data.close()


@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_log_with_records_and_no_slot_is_not_taken_for_empty(tmp_path: Path, how: str) -> None:
    data, log = start(tmp_path)
    write(log, 100)
    data.close()
    state = tmp_path / "state"
    if how == "gone":
        state.unlink()
    else:
        content = bytearray(state.read_bytes())
        content[SLOT_SIZE + 30] ^= 1
        state.write_bytes(content if how == "flipped" else content[:SLOT_SIZE])
    with pytest.raises(NotOpened):
        seqnos_of(FileReader(tmp_path, "events"))
    with pytest.raises(NotOpened):
        FileReader(tmp_path, "events", seqno=5).table()
    reader = FileReader(tmp_path, "events")
    assert seqnos_of(reader, follow=True, timeout_s=0.01) == []
    data, _ = start(tmp_path)
    assert seqnos_of(reader) == list(range(100))
    data.close()


@pytest.mark.parametrize("how", ["polled", "short waits"])
def test_a_state_file_put_in_place_of_another_is_found_by_those_who_look_often(tmp_path: Path, how: str) -> None:
    data, log = start(tmp_path)
    write(log, 10)
    reader = FileReader(tmp_path, "events")
    assert len(seqnos_of(reader)) == 10
    data.close()
    (tmp_path / "state").unlink()
    data, log = start(tmp_path)
    write(log, 10)
    reader._runs._looked -= 10
    wait = {} if how == "polled" else {"follow": True, "timeout_s": 0.01}
    assert seqnos_of(reader, **wait) == list(range(10, 20))
    data.close()


def test_a_directory_made_anew_is_another_topic(tmp_path: Path) -> None:
    data, log = start(tmp_path / "data")
    write(log, 10)
    reader = FileReader(tmp_path / "data", "events")
    assert len(seqnos_of(reader)) == 10
    data.close()
    shutil.rmtree(tmp_path / "data")
    data, log = start(tmp_path / "data")
    write(log, 10)
    reader._runs._looked -= 10
    with pytest.raises(TopicRecreated):
        seqnos_of(reader)
    data.close()


def test_bookmarks_are_given_and_taken_behind_damage(tmp_path: Path) -> None:
    data, log = start(tmp_path, Settings())
    write(log, 100)
    bookmark = FileReader(tmp_path, "events", seqno=65).bookmark
    damage(log, 60, 3)
    assert seqnos_of(FileReader(tmp_path, "events", bookmark=bookmark)) == list(range(65, 100))
    again = FileReader(tmp_path, "events", seqno=65).bookmark
    assert seqnos_of(FileReader(tmp_path, "events", bookmark=again)) == list(range(65, 100))
    assert FileReader(tmp_path, "events", timestamp=61_000, gaps="skip").seqno == 65
    data.close()


def test_a_topic_deleted_where_damage_is_met_is_told_by_name(tmp_path: Path) -> None:
    data, log = start(tmp_path, Settings())
    write(log, 1000)
    damage(log, 500, 150)
    reader = FileReader(tmp_path, "events")
    records = reader.records()
    next(records)
    data.delete_topic("events")
    with pytest.raises((TopicDeleted, Damage)):
        list(records)
    data.close()


def test_a_loop_that_does_not_follow_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    data, log = start(tmp_path)
    write(log, 10)
    count = 0
    for _ in FileReader(tmp_path, "events").records():
        write(log, 5)
        count += 1
        assert count < 100
    assert count >= 10
    for count, _ in enumerate(FileReader(tmp_path, "events").tables()):
        write(log, 5)
        assert count < 10
    data.close()


def test_a_topic_deleted_twice_under_one_id_goes_both_times(tmp_path: Path) -> None:
    data, _ = start(tmp_path)
    topic = data.topic("events")
    data.delete_topic("events")
    data.adopt_topic(topic)
    data.open_topic("events")
    data.delete_topic("events")
    assert data.empty_trash() == 2
    data.close()


def test_a_state_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    from crc32c import crc32c

    data, log = start(tmp_path)
    write(log, 5)
    data.close()
    state = tmp_path / "state"
    content = bytearray(state.read_bytes())
    content[4] = 9
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    state.write_bytes(content)
    with pytest.raises(DirectoryUnusable, match="newer"):
        FileReader(tmp_path, "events")


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    data, log = start(tmp_path)
    write(log, 5)
    nonsense: list[dict[str, Any]] = [
        {"seqno": -1},
        {"seqno": 2**70},
        {"seqno": 1.5},
        {"gaps": "ignore"},
        {"at": "start"},
    ]
    for wrong in nonsense:
        with pytest.raises(ValueError, match=r"allowed|may be"):
            FileReader(tmp_path, "events", **wrong)
    with pytest.raises(DirectoryUnusable):
        FileReader(tmp_path / "nothing", "events")
    reader = FileReader(tmp_path, "events")
    assert reader.tables([]).__next__().num_columns == 0
    assert reader.table([]).num_columns == 0
    reader.seek(3)
    assert seqnos_of(reader) == [3, 4]
    data.close()


def test_a_view_shows_nothing_unsynced_where_the_state_file_once_said_more(tmp_path: Path) -> None:
    data, log = start(tmp_path, Settings())
    write(log, 100)
    topic, path = data.topic("events"), Path(log.segments[0].log_path)
    run = log.read(50, 1)
    assert run is not None
    data.close()
    state = StateFile.open(OsDisk(str(tmp_path)), str(tmp_path / "state"))
    state.claim(topic.id_bytes, 0).write(0, 0, 100, 10, 0)
    path.write_bytes(path.read_bytes()[: run.position])
    data, log = start(tmp_path)
    assert log.next == 50
    log.append_one(build([b"a"] * 5), 10**6)
    pending = log.begin_sync()
    assert pending is not None
    log.append_one(build([b"b"] * 5), 10**6)
    pending.file.sync()
    log.end_sync(pending)
    assert FileReader(tmp_path, "events").committed <= 50
    log.commit(log.sync())
    with pytest.raises(SeqnoOutOfRange):
        seqnos_of(FileReader(tmp_path, "events", seqno=100))
    data.close()
