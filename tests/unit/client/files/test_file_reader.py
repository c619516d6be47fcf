"""A reader beside the writer, on real files, in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import Selection, build, schema
from logboom.batch.codec import ZSTD
from logboom.client import FileReader
from logboom.errors import (
    BookmarkLost,
    Damage,
    DirectoryUnusable,
    InvalidBookmark,
    NotLocal,
    PartitionNotFound,
    SeqnoOutOfRange,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.storage import DataDirectory, Log
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.files.disk import OsDisk
from logboom.storage.readable_log import SeqnoRange
from logboom.storage.upkeep.recompression import recompress

SMALL = Settings(segment=SegmentSettings(bytes=4096))


class Writer:
    """A topic with one partition, and a count of what was written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.data = DataDirectory.open(path)
        if "events" not in [topic.name for topic in self.data.topics()]:
            self.data.create_topic("events", settings=SMALL)
        self.log: Log = self.data.open_topic("events")[0]

    def write(self, count: int, batch: int = 5, commit: bool = True, term: int | None = None) -> None:
        for start in range(self.log.next, self.log.next + count, batch):
            values = [value(n) for n in range(start, start + batch)]
            times = [1000 * n for n in range(start, start + batch)]
            self.log.append_one(build(values, timestamps=times, keys=[b"k"] * batch), start, term)
        if commit:
            self.log.commit(self.log.sync())

    def recompress(self) -> int:
        done = 0
        for segment in self.log.cold_segments():
            pending = self.log.begin_swap(segment)
            result = recompress(self.data.files.disk, *pending, ZSTD, 1, 0.0, lambda size: None)
            if result is not None:
                done += self.log.end_swap(pending, result.summary, result.index)
        return done

    def restart(self) -> None:
        self.data.close()
        self.__init__(self.path)  # type: ignore[misc]


def value(seqno: int) -> bytes:
    return b"record %d " % seqno + b"x" * (seqno % 50)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(str(tmp_path / "data"))
    yield writer
    writer.data.close()


def values(reader: FileReader) -> list[tuple[int | None, bytes | None]]:
    return [(record.seqno, record.value) for record in reader.records()]


def expected(start: int, stop: int) -> list[tuple[int, bytes]]:
    return [(n, value(n)) for n in range(start, stop)]


def test_everything_committed_is_read_and_nothing_else(writer: Writer) -> None:
    writer.write(500)
    writer.write(10, commit=False)
    with FileReader(writer.path, "events") as reader:
        assert values(reader) == expected(0, 500)
        assert values(reader) == []
        writer.log.commit(writer.log.sync())
        assert values(reader) == expected(500, 510)
        assert (reader.seqno, reader.first, reader.committed) == (510, 0, 510)


@pytest.mark.parametrize("seqno", [0, 1, 4, 5, 77, 499, 500])
def test_a_reader_starts_exactly_at_a_seqno(writer: Writer, seqno: int) -> None:
    writer.write(500)
    assert values(FileReader(writer.path, "events", seqno=seqno)) == expected(seqno, 500)
    table = FileReader(writer.path, "events", seqno=seqno).table(["seqno", "value"])
    assert list(zip(*table.to_pydict().values(), strict=True)) == expected(seqno, 500)
    lists = list(FileReader(writer.path, "events", seqno=seqno).lists(["value"]))
    assert [entry for (column,) in lists for entry in column] == [value(n) for n in range(seqno, 500)]


def test_a_reader_starts_at_a_time(writer: Writer) -> None:
    writer.write(500)
    assert FileReader(writer.path, "events", timestamp=123_456).seqno == 124
    assert FileReader(writer.path, "events", timestamp=datetime.fromtimestamp(0.123, UTC)).seqno == 123
    assert FileReader(writer.path, "events", timestamp=10**9).seqno == 500


def test_a_reader_starts_at_the_end(writer: Writer) -> None:
    writer.write(20)
    reader = FileReader(writer.path, "events", at="latest")
    writer.write(5)
    assert values(reader) == expected(20, 25)


def test_a_reader_starts_at_one_place_only(writer: Writer) -> None:
    with pytest.raises(ValueError, match="one of"):
        FileReader(writer.path, "events", seqno=1, at="latest")


def test_a_bookmark_goes_on_where_a_loop_was_left(writer: Writer) -> None:
    writer.write(100)
    reader = FileReader(writer.path, "events")
    for record in reader.records():
        if record.seqno == 42:
            break
    assert values(FileReader(writer.path, "events", bookmark=reader.bookmark)) == expected(43, 100)
    assert values(reader) == expected(43, 100)
    for batch in FileReader(writer.path, "events", seqno=3).batches():
        assert batch.seqnos() == range(5)
        break


def test_records_can_be_selected(writer: Writer) -> None:
    writer.write(100)
    reader = FileReader(writer.path, "events")
    assert list(reader.records(where=Selection(tags_any=("none",)))) == []
    assert reader.seqno == 100


def test_a_log_is_followed_across_rolls_retention_and_recompression(writer: Writer) -> None:
    reader = FileReader(writer.path, "events")
    got = []
    for step in range(40):
        writer.write(30)
        if step % 3 == 0:
            writer.recompress()
        if step % 5 == 4:
            writer.log.drop(writer.log.committed - 60)
        if step % 7 == 6:
            writer.restart()
        got += values(reader)
    assert got == expected(0, 1200)
    assert writer.log.first > 0
    with FileReader(writer.path, "events") as late:
        assert values(late) == expected(writer.log.first, 1200)


def test_what_is_being_read_may_be_swapped_and_dropped(writer: Writer) -> None:
    writer.write(1000)
    reader = FileReader(writer.path, "events")
    records = reader.records()
    got = [next(records) for _ in range(10)]
    assert writer.recompress() > 1
    got += [next(records) for _ in range(300)]
    writer.log.drop(200)
    got += list(records)
    assert [(record.seqno, record.value) for record in got] == expected(0, 1000)


def test_a_reader_overtaken_by_retention_is_told(writer: Writer) -> None:
    writer.write(1000)
    reader, tolerant = FileReader(writer.path, "events"), FileReader(writer.path, "events", gaps="skip")
    writer.log.drop(900)
    first = writer.log.first
    with pytest.raises(SeqnoOutOfRange) as caught:
        next(reader.records())
    assert caught.value.first == first
    assert values(tolerant) == expected(first, 1000)
    assert tolerant.skipped == first
    assert isinstance(tolerant.last_gap, SeqnoOutOfRange)


def test_what_was_trimmed_is_not_read(writer: Writer) -> None:
    writer.write(100)
    reader = FileReader(writer.path, "events", gaps="skip")
    writer.log.trim(33, 100_000)
    writer.log.commit(writer.log.sync())
    assert values(reader) == expected(33, 100)


def test_a_seqno_beyond_the_end_is_an_error_unless_followed(writer: Writer) -> None:
    writer.write(10)
    reader = FileReader(writer.path, "events", seqno=15)
    with pytest.raises(SeqnoOutOfRange):
        next(reader.records())
    assert list(reader.records(follow=True, timeout_s=0.01)) == []
    writer.write(10)
    assert values(reader) == expected(15, 20)


def test_a_deleted_topic_is_told(writer: Writer) -> None:
    writer.write(100)
    reader = FileReader(writer.path, "events")
    writer.data.delete_topic("events")
    with pytest.raises(TopicDeleted):
        next(reader.records())
    with pytest.raises(TopicNotFound):
        FileReader(writer.path, "events")
    writer.data.create_topic("events", settings=SMALL)
    writer.log = writer.data.open_topic("events")[0]
    writer.write(5)
    with pytest.raises(TopicRecreated) as caught:
        next(reader.records())
    assert caught.value.new_id == writer.data.topic("events").id
    with pytest.raises(TopicRecreated):
        FileReader(writer.path, "events", bookmark=reader.bookmark)


def test_a_topic_made_again_is_followed_when_asked(writer: Writer) -> None:
    writer.write(100)
    reader = FileReader(writer.path, "events", gaps="skip")
    assert values(reader) == expected(0, 100)
    writer.data.delete_topic("events")
    assert list(reader.records(follow=True, timeout_s=0.01)) == []
    assert writer.data.empty_trash() == 1
    assert isinstance(reader.last_gap, TopicDeleted)
    writer.data.create_topic("events", settings=SMALL)
    assert values(reader) == []
    writer.log = writer.data.open_topic("events")[0]
    writer.write(50)
    assert values(reader) == expected(0, 50)
    assert isinstance(reader.last_gap, TopicRecreated)
    assert reader.topic.id == writer.data.topic("events").id


def test_a_topic_that_no_writer_has_opened_yet_is_empty(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("quiet")
        reader = FileReader(tmp_path, "quiet", at="latest")
        assert values(reader) == []
        assert reader.seqno is None
        data.open_topic("quiet")
        assert values(reader) == []
        assert reader.seqno == 0


def test_partitions_are_named_where_there_are_several(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("wide", 3)
        logs = data.open_topic("wide")
        logs[2].append_one(build([b"two"]), 1)
        data.sync()
        assert values(FileReader(tmp_path, "wide", 2)) == [(0, b"two")]
        assert values(FileReader(tmp_path, "wide", 1)) == []
        for partition in (None, 3, -1):
            with pytest.raises(PartitionNotFound):
                FileReader(tmp_path, "wide", partition)
        bookmark = FileReader(tmp_path, "wide", 2).bookmark
        with pytest.raises(InvalidBookmark):
            FileReader(tmp_path, "wide", 1, bookmark=bookmark)


def test_a_bookmark_notices_a_lost_tail(writer: Writer) -> None:
    writer.write(50, term=3)
    topic_id = writer.data.topic("events").id_bytes
    with pytest.raises(BookmarkLost) as caught:
        FileReader(writer.path, "events", bookmark=Bookmark(topic_id, 0, 20, 2))
    assert (caught.value.seqno, caught.value.term, caught.value.found_term) == (20, 2, 3)
    assert values(FileReader(writer.path, "events", bookmark=Bookmark(topic_id, 0, 20, 3))) == expected(20, 50)
    assert values(FileReader(writer.path, "events", bookmark=Bookmark(topic_id, 0, 20, TERM_UNKNOWN)))
    ahead = FileReader(writer.path, "events", bookmark=str(Bookmark(topic_id, 0, 55, 3)))
    writer.write(10, term=4)
    with pytest.raises(BookmarkLost):
        next(ahead.records(follow=True))


def test_a_reader_that_had_read_a_tail_which_was_lost_is_told(writer: Writer) -> None:
    """As after a power loss of a topic that is not synced: the state file goes back, and a new term begins."""
    writer.write(50, term=1)
    reader = FileReader(writer.path, "events")
    assert values(reader) == expected(0, 50)
    directory, name = writer.log.directory, os.path.basename(writer.log.segments[-1].log_path)
    writer.data.close()
    path = Path(directory, name)
    path.write_bytes(path.read_bytes()[:0])
    Path(writer.path, "state").unlink()
    writer.__init__(writer.path)  # type: ignore[misc]
    lost = writer.log.next
    assert lost < 50
    writer.write(100 - lost, term=2)
    reader._runs._look_again()
    with pytest.raises(BookmarkLost):
        next(reader.records())


def test_damage_is_told_and_can_be_passed_over(writer: Writer) -> None:
    writer.write(1000)
    segment = writer.log.segments[1]
    run = writer.log.read(segment.first_seqno + 5, 1)
    assert run is not None
    path = Path(segment.log_path)
    data = bytearray(path.read_bytes())
    data[run.position + 100] ^= 1
    path.write_bytes(data)
    reader = FileReader(writer.path, "events")
    with pytest.raises(Damage) as caught:
        values(reader)
    assert (caught.value.seqno_from, caught.value.seqno_until) == (run.base_seqno, run.next_seqno)
    for way in ("records", "table"):
        tolerant = FileReader(writer.path, "events", gaps="skip")
        if way == "records":
            got = [seqno for seqno, _ in values(tolerant)]
        else:
            got = tolerant.table(["seqno"])["seqno"].to_pylist()
        assert got == [n for n in range(1000) if not run.base_seqno <= n < run.next_seqno]
        assert tolerant.skipped == 5
        assert isinstance(tolerant.last_gap, Damage)


def test_tables_share_the_mapped_memory_of_sealed_segments(writer: Writer) -> None:
    import pyarrow as pa

    writer.write(1000)
    reader = FileReader(writer.path, "events")
    before = pa.total_allocated_bytes()
    tables = list(reader.tables(["value"]))
    assert sum(table.num_rows for table in tables) == 1000
    assert pa.total_allocated_bytes() - before < sum(len(value(n)) for n in range(1000)) / 4, "offsets, not values"
    writer.log.drop(900)
    assert [entry for table in tables for entry in table["value"].to_pylist()] == [value(n) for n in range(1000)]


def test_a_reader_finds_a_state_file_that_was_put_in_place_of_another(writer: Writer) -> None:
    writer.write(10)
    reader = FileReader(writer.path, "events")
    assert values(reader) == expected(0, 10)
    writer.data.close()
    Path(writer.path, "state").unlink()
    writer.__init__(writer.path)  # type: ignore[misc]
    writer.write(10)
    found = islice(reader.records(follow=True, timeout_s=300), 10)
    assert [record.seqno for record in found] == list(range(10, 20))


def test_files_on_a_network_file_system_are_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nfs4", "cifs", "fuse.sshfs"):
        monkeypatch.setattr(OsDisk, "file_system", name)
        with pytest.raises(NotLocal, match=name):
            FileReader(writer.path, "events")


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable):
        FileReader(tmp_path, "events")


@pytest.mark.parametrize("text", ["", "1", "x" * 50, "2" + "A" * 48, "1" + "A" * 48, "ü" * 49])
def test_what_is_no_bookmark_is_refused(writer: Writer, text: str) -> None:
    with pytest.raises(InvalidBookmark):
        FileReader(writer.path, "events", bookmark=text)


def seqnos(reader: FileReader, **how: Any) -> list[int]:
    tables = reader.tables(["seqno"], **how)
    return [seqno for table in tables for seqno in table.column(0).to_pylist()]


@pytest.mark.parametrize(("start", "until"), [(0, 0), (0, 1), (3, 7), (4, 5), (77, 300), (499, 500), (0, 9999)])
def test_tables_end_before_a_seqno(writer: Writer, start: int, until: int) -> None:
    writer.write(500)
    for max_bytes in (1, 3000, 1 << 20):
        reader = FileReader(writer.path, "events", seqno=start)
        assert seqnos(reader, until=until, max_bytes=max_bytes) == list(range(start, min(until, 500)))
        assert reader.seqno == max(start, min(until, 500))
        assert seqnos(reader) == list(range(reader.first + max(start, min(until, 500)), 500))


def test_tables_hold_what_is_wanted_and_the_rest_is_passed_over(writer: Writer) -> None:
    writer.write(500)
    size = writer.log.size_bytes
    reader = FileReader(writer.path, "events")
    assert seqnos(reader, where=Selection(time_from=400_000, time_until=410_001)) == list(range(400, 411))
    assert reader.seqno == 500
    assert 0 < reader.bytes_read < size / 10
    assert seqnos(FileReader(writer.path, "events"), where=Selection(key=b"k")) == list(range(500))
    for nothing in (Selection(key=b"j"), Selection(channel="a"), Selection(time_from=10**9), Selection(time_until=0)):
        reader = FileReader(writer.path, "events")
        assert seqnos(reader, where=nothing) == []
        assert (reader.seqno, reader.bytes_read) == (500, 0) or nothing.key


def test_a_wish_and_an_end_go_together(writer: Writer) -> None:
    writer.write(500)
    reader = FileReader(writer.path, "events", seqno=13)
    where = Selection(time_from=11_000, time_until=400_000)
    assert seqnos(reader, until=222, where=where) == list(range(13, 222))
    assert reader.seqno == 222
    reader.seek(222)
    assert seqnos(reader, until=450, where=where) == list(range(222, 400))
    assert reader.seqno == 450


def test_columns_that_were_not_asked_for_do_not_come_along(writer: Writer) -> None:
    writer.write(20)
    reader = FileReader(writer.path, "events")
    (table,) = reader.tables(["value"], where=Selection(key=b"k", time_from=5000))
    assert table.column_names == ["value"]
    assert table.column(0).to_pylist() == [value(n) for n in range(5, 20)]
    reader.seek(0)
    (table,) = reader.tables(where=Selection(time_until=5000))
    assert table.column_names == list(schema().names)


def test_damage_in_a_batch_that_is_not_wanted_hurts_nobody(writer: Writer) -> None:
    writer.write(500)
    segment = writer.log.segments[3]
    with open(segment.log_path, "r+b") as file:
        file.seek(200)
        byte = file.read(1)[0]
        file.seek(200)
        file.write(bytes([byte ^ 1]))
    before, behind = segment.first_seqno, writer.log.segments[4].first_seqno
    with pytest.raises(Damage) as caught:
        seqnos(FileReader(writer.path, "events"), where=Selection(key=b"k"))
    assert caught.value.seqno_from >= before
    reader = FileReader(writer.path, "events")
    assert seqnos(reader, where=Selection(time_from=behind * 1000)) == list(range(behind, 500))
    assert seqnos(FileReader(writer.path, "events"), until=before) == list(range(before))
    tolerant = FileReader(writer.path, "events", gaps="skip")
    found = seqnos(tolerant, where=Selection(time_from=0))
    assert len(found) == 500 - tolerant.skipped
    assert tolerant.skipped == 5


def test_a_log_is_cut_for_several_to_read(writer: Writer) -> None:
    writer.write(500)
    writer.recompress()
    reader = FileReader(writer.path, "events")
    pieces = reader.cut(7, 493, 3000)
    assert len(pieces) > 3
    assert seqnos_of(writer.path, pieces) == list(range(7, 493))
    writer.log.drop(200)
    assert reader.cut(0, 100, 3000) == []


def seqnos_of(path: str, pieces: list[SeqnoRange]) -> list[int]:
    found = []
    for piece in pieces:
        found += seqnos(FileReader(path, "events", seqno=piece.seqno_from), until=piece.seqno_until)
    return found
