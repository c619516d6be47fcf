"""Many logs of a few segments each, opened at once."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.storage import DataDirectory, Log, LogConfig, log_name

LOGS = 100
SEGMENTS = 4
BATCHES_PER_SEGMENT = 3
NAMES = [log_name(f"topic-{number}", uuid.UUID(int=number + 1), number % 3) for number in range(LOGS)]
CONFIG = LogConfig(index_bytes=512)


def value(number: int, seqno: int) -> bytes:
    return b"%d/%d" % (number, seqno)


def fill(path: Path) -> None:
    with DataDirectory.open(str(path)) as data:
        logs = data.open_logs(NAMES, CONFIG)
        for segment in range(SEGMENTS):
            for number, log in enumerate(logs):
                for _ in range(BATCHES_PER_SEGMENT + number % 2):
                    log.append_one(build([value(number, log.next), value(number, log.next + 1)]), segment)
            data.sync()
            if segment < SEGMENTS - 1:
                for log in logs:
                    log.roll()


def check(number: int, log: Log) -> None:
    assert log.refusal is None
    assert len(log.segments) == SEGMENTS
    assert log.next == 2 * SEGMENTS * (BATCHES_PER_SEGMENT + number % 2)
    log.commit(log.last_index)
    values = [found for batch in log.batches() for found in batch.values()]
    assert values == [value(number, seqno) for seqno in range(log.next)]


@pytest.mark.parametrize("files_max", [1, 16, 512])
def test_many_logs_open_at_once_each_with_its_own_records(tmp_path: Path, files_max: int) -> None:
    fill(tmp_path)
    with DataDirectory.open(str(tmp_path), files_max=files_max) as data:
        assert data.was_clean
        assert data.log_names() == sorted(NAMES)
        for number, log in enumerate(data.open_logs(NAMES, CONFIG)):
            check(number, log)
        assert len(data.files) <= files_max


def test_many_logs_go_on_where_they_were_whatever_the_order_they_are_opened_in(tmp_path: Path) -> None:
    fill(tmp_path)
    with DataDirectory.open(str(tmp_path)) as data:
        for number, log in reversed(list(zip(range(LOGS), data.open_logs(NAMES[::-1], CONFIG)[::-1], strict=True))):
            check(number, log)
            log.append_one(build([value(number, log.next)]), 10)
        data.sync()
    with DataDirectory.open(str(tmp_path)) as data:
        for number, log in enumerate(data.open_logs(NAMES, CONFIG)):
            log.commit(log.last_index)
            values = [found for batch in log.batches() for found in batch.values()]
            assert values == [value(number, seqno) for seqno in range(log.next)]
            assert log.next % 2
