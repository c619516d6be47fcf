"""Headers tell which batches are read at all, columns which rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from logboom.batch import Selection, build, read_header, schema
from logboom.client.files.sieve import BatchStretch, choose, columns_for, sift
from logboom.storage import DataDirectory, Log
from logboom.storage.run import Run


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ten batches of five records; the time of a record is ten times its seqno, batches 3 and 4 have keys."""
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.create_topic("events")
        (log,) = data.open_topic("events")
        for number in range(10):
            times = [10 * (5 * number + offset) for offset in range(5)]
            keys = [b"k"] * 5 if number in (3, 4) else None
            log.append_one(build([b"v"] * 5, timestamps=times, keys=keys), number)
        log.commit(log.sync())
        yield log


def run_of(log: Log) -> Run:
    run = log.read(0)
    assert run is not None
    return run


def spans(run: Run, wanted: Selection | None, view: memoryview | None = None) -> list[tuple[int, int]]:
    """First seqno and number of batches of each stretch."""
    view = run.view() if view is None else view
    found = []
    for stretch in sift(run, view, wanted):
        header, at, count = read_header(view, stretch.offset), stretch.offset, 0
        assert (header.base_seqno, header.index) == (stretch.base_seqno, stretch.first_index)
        while at < stretch.offset + stretch.size:
            at, count = at + read_header(view, at).size, count + 1
        assert at == stretch.offset + stretch.size
        found.append((stretch.base_seqno, count))
    return found


def test_without_a_wish_all_of_it_is_one_stretch(log: Log) -> None:
    run = run_of(log)
    assert list(sift(run, run.view(), None)) == [BatchStretch(0, run.size, 0, run.first_index)]
    assert spans(run, Selection()) == [(0, 10)]


def test_batches_that_cannot_hold_what_is_wanted_are_left_out(log: Log) -> None:
    run = run_of(log)
    assert spans(run, Selection(key=b"k")) == [(15, 2)]
    assert spans(run, Selection(time_from=400)) == [(40, 2)]
    assert spans(run, Selection(time_until=50)) == [(0, 1)]
    assert spans(run, Selection(time_from=100, time_until=160)) == [(10, 2)]
    assert spans(run, Selection(time_from=500)) == []
    assert spans(run, Selection(channel="a")) == []


def test_from_a_header_that_is_not_sound_on_all_the_rest_is_read(log: Log) -> None:
    run = run_of(log)
    view = bytearray(run.view())
    position, end = 0, 0
    for _ in range(6):
        position, end = end, end + read_header(view, end).size
    view[position + 9] ^= 1
    found = list(sift(run, memoryview(view), Selection(time_until=50)))
    assert found == [
        BatchStretch(0, read_header(view).size, 0, run.first_index),
        BatchStretch(position, run.size - position, 25, run.first_index + 5),
    ]


def test_columns_that_only_the_choice_needs_are_read_and_dropped() -> None:
    wanted = Selection(key=b"a", time_from=5)
    assert columns_for(["value", "key"], wanted) == ("value", "key", "timestamp")
    assert columns_for(["value"], None) == ("value",)
    assert columns_for(None, wanted) is None
    rows = {"value": [b"1", b"2", b"3"], "key": [b"a", None, b"a"], "timestamp": [4, 5, 6]}
    table = pa.table(rows, schema(("value", "key", "timestamp")))
    chosen = choose(table, ["value"], wanted)
    assert chosen.to_pydict() == {"value": [b"3"]}
    assert choose(table, ["value"], None) is table
    assert choose(table.slice(0, 0), ["value"], wanted).num_rows == 0
