"""Archived logs: what they give of files with many row groups, of several terms, and to many threads at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from logboom.batch import Record, build_records
from logboom.batch.header import HEADER_SIZE, stamp
from logboom.errors import Damage
from logboom.results import archive_file
from logboom.results.archive import ArchivedFile, schema
from logboom.results.archive_file import ArchivePiece, write_file
from logboom.results.archived import ArchivedLogReader
from logboom.results.places import ResultPlace

FIRST, COUNT, PER_FILE = 1000, 600, 150
TERMS = ((FIRST, 3), (FIRST + 20, 4), (FIRST + 400, 9))


def make_records() -> list[Record]:
    rng = random.Random(4)
    return [
        Record(
            rng.randbytes(rng.choice([0, 10, 3000])),
            key=rng.choice([None, b"k"]),
            timestamp=rng.randrange(10**6),
            tags=("red",) * rng.randrange(2),
            headers=(("h", b"v"),) * rng.randrange(3),
            seqno=FIRST + number,
        )
        for number in range(COUNT)
    ]


RECORDS = make_records()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArchivedLogReader:
    """600 records in four files, each with row groups of 40."""
    monkeypatch.setattr(archive_file, "GROUP_ROWS", 40)
    files = [write(ResultPlace(str(tmp_path)), start) for start in range(FIRST, FIRST + COUNT, PER_FILE)]
    return ArchivedLogReader(str(tmp_path), FIRST, FIRST + COUNT, lambda: files)


def write(home: ResultPlace, start: int) -> ArchivedFile:
    terms = [(max(start, seqno), term) for seqno, term in TERMS if seqno < start + PER_FILE]
    terms = terms[max(number for number, (seqno, _) in enumerate(terms) if seqno <= start) :]
    piece = ArchivePiece(0, start, start + PER_FILE, 10**15, tuple(terms))

    def rows() -> Iterator[pa.RecordBatch]:
        batch = build_records(RECORDS[start - FIRST : start - FIRST + PER_FILE])
        front = stamp(batch.data, start, 1, 10**15, 3, 1)
        columns = type(batch).parse(front + bytes(batch.data[HEADER_SIZE:])).to_arrow().columns
        names = pa.array(["events"] * PER_FILE)
        yield pa.RecordBatch.from_arrays([names, pa.array([0] * PER_FILE, pa.int32()), *columns], schema=schema())

    return write_file(home, "ab" * 16, piece, rows)


def read(log: ArchivedLogReader, seqno: int, max_bytes: int) -> tuple[list[Record], list[tuple[int, int]]]:
    """The records from a seqno on, and where each term begins."""
    records: list[Record] = []
    terms: list[tuple[int, int]] = []
    while seqno < log.until:
        run = log.read(seqno, max_bytes)
        assert run.base_seqno == seqno
        for batch in run.batches():
            records += batch.records()
            if not terms or terms[-1][1] != batch.header.term:
                terms.append((batch.header.base_seqno, batch.header.term))
        seqno = run.next_seqno
    return records, terms


@pytest.mark.parametrize("max_bytes", [1, 700, 20_000, 2**30])
def test_runs_hold_every_record_once_with_its_term_however_small_they_are(
    log: ArchivedLogReader, max_bytes: int
) -> None:
    assert read(log, FIRST, max_bytes) == (RECORDS, list(TERMS))
    assert read(log, FIRST + 333, max_bytes)[0] == RECORDS[333:]


def test_a_run_has_no_more_records_than_were_asked_for(log: ArchivedLogReader) -> None:
    assert log.read(FIRST + 5, 2**20, 7).next_seqno == FIRST + 12
    assert log.read(FIRST + 5, 1).next_seqno == FIRST + 6


def test_the_term_before_a_record_is_that_of_the_one_before_it(log: ArchivedLogReader) -> None:
    assert [log.term_before(FIRST + number) for number in (0, 1, 20, 21, 400, 401, COUNT)] == [None, 3, 3, 4, 4, 9, 9]
    assert log.term_before(FIRST + COUNT + 1) is None


def test_a_time_is_found_from_any_record_on(log: ArchivedLogReader) -> None:
    rng = random.Random(1)
    for _ in range(40):
        moment, start = rng.randrange(10**6 + 5000), rng.randrange(COUNT)
        later = [record.seqno for record in RECORDS[start:] if (record.timestamp or 0) >= moment]
        assert log.seqno_at(moment, FIRST + start) == (later[0] if later else None)


def test_tables_have_the_columns_and_the_records_that_were_asked_for(log: ArchivedLogReader) -> None:
    tables = list(log.tables(FIRST + 130, FIRST + 470, ["value", "tags"]))
    assert {tuple(table.column_names) for table in tables} == {("value", "tags")}
    values = [value for table in tables for value in table.column("value").to_pylist()]
    assert values == [record.value for record in RECORDS[130:470]]


@pytest.mark.parametrize("every_bytes", [1, 10_000, 2**40])
def test_pieces_follow_each_other_and_part_of_a_log_reads_as_all_of_it_does(
    log: ArchivedLogReader, every_bytes: int
) -> None:
    pieces = log.cut(FIRST + 3, FIRST + 590, every_bytes)
    assert (pieces[0].seqno_from, pieces[-1].seqno_until) == (FIRST + 3, FIRST + 590)
    assert [piece.seqno_from for piece in pieces[1:]] == [piece.seqno_until for piece in pieces[:-1]]
    for piece in pieces[:: max(1, len(pieces) // 5)]:
        part = log.part(piece.seqno_from, piece.seqno_until)
        (low, high) = piece.seqno_from - FIRST, piece.seqno_until - FIRST
        seqnos = [seqno for table in part.log().tables(*piece[:2], ["seqno"]) for seqno in table.column(0).to_pylist()]
        assert seqnos == [record.seqno for record in RECORDS[low:high]]


def test_what_no_file_holds_is_damage_up_to_the_next_file(tmp_path: Path, log: ArchivedLogReader) -> None:
    files = log.part(FIRST, FIRST + COUNT).files
    holed = ArchivedLogReader(str(tmp_path), FIRST, FIRST + COUNT, lambda: [files[0], *files[2:]])
    with pytest.raises(Damage) as damage:
        holed.read(FIRST + PER_FILE, 100)
    assert (damage.value.seqno_from, damage.value.seqno_until) == (FIRST + PER_FILE, FIRST + 2 * PER_FILE)


def test_many_threads_read_the_same_files_at_once(log: ArchivedLogReader) -> None:
    starts = [random.Random(seed).randrange(COUNT) for seed in range(24)]
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda start: read(log, FIRST + start, 5000)[0], starts)
        for start, records in zip(starts, found, strict=True):
            assert records == RECORDS[start:]
