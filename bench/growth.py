"""Does anything get slower as a log grows?

The same log with 10 and with 1,000 segments of 64 KiB: a hundred times the segments, batches and records. Compared are
an append, a roll, a lookup by seqno, by index and by time, and opening. Warm: everything looked at before. Cold: the
log has just been opened and its files are not in memory.
"""

from __future__ import annotations

import os
import random
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from append import make_batches
from harness import Row, Subject, compare, report, time_interleaved, time_prepared
from logboom.batch import Batch
from logboom.storage import DataDirectory, Log, LogConfig, OsDisk, log_name
from unsynced import UnsyncedDisk

SMALL, LARGE = 10, 1000
SEGMENT_BYTES = 64 * 1024
BATCH_BYTES = 4096
STEP_US = 1_000_000
GOAL = 1.5
GOALS = {"by time": 1.2}
FILES_MAX = 4096
NAME = log_name("bench", uuid.UUID(int=1), 0)
GROWN = LogConfig(segment_bytes=SEGMENT_BYTES)
STILL = LogConfig(segment_bytes=2**40)
"""Appends go on in the last segment, so that the number of segments stays what it is."""

Look = Callable[[Log, random.Random], object]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        paths = {count: f"{directory}/{count}" for count in (SMALL, LARGE)}
        for count, path in paths.items():
            _grow(path, count)
        os.sync()
        rows = [*_warm(paths), *_cold(paths), *_writes(paths)]
    report("growth", rows)


def _grow(path: str, segments: int) -> None:
    batches = [Batch.parse(data) for data in make_batches(16, BATCH_BYTES)]
    os.makedirs(path)
    with DataDirectory.open(path, UnsyncedDisk(path)) as data:
        log = data.open_log(NAME, GROWN)
        while len(log.segments) < segments or log.last_index < segments * SEGMENT_BYTES // BATCH_BYTES:
            # Records without timestamps show the append time.
            log.append(batches, log.next * STEP_US)


def by_seqno(log: Log, chance: random.Random) -> object:
    return log.read(chance.randrange(log.committed))


def by_index(log: Log, chance: random.Random) -> object:
    return log.read_index(chance.randrange(1, log.last_index))


def by_time(log: Log, chance: random.Random) -> object:
    return log.seqno_at(chance.randrange(log.committed * STEP_US))


LOOKUPS: dict[str, Look] = {"by seqno": by_seqno, "by index": by_index, "by time": by_time}


def _warm(paths: Mapping[int, str]) -> list[Row]:
    with ExitStack() as stack:
        logs = _open(paths, stack)
        for log in logs.values():
            for seqno in range(0, log.committed, 16):
                log.read(seqno)
        rows: list[Row] = []
        for what, look in LOOKUPS.items():
            looks = {count: partial(look, log, random.Random(1)) for count, log in logs.items()}
            rows += _pair(f"lookup {what}, warm", looks, GOALS.get(what, GOAL))
    return rows


def _writes(paths: Mapping[int, str]) -> list[Row]:
    batch = make_batches(1, BATCH_BYTES)[0]
    with ExitStack() as stack:
        logs = _open(paths, stack)
        appends = {count: partial(_append, log, batch) for count, log in logs.items()}
        rolls = {count: (partial(_before_roll, log, batch, count), log.roll) for count, log in logs.items()}
        return [*_pair("append of 4 KiB", appends), *_pair_prepared("roll", rolls, 50)]


def _open(paths: Mapping[int, str], stack: ExitStack) -> dict[int, Log]:
    logs = {}
    for count, path in paths.items():
        data = stack.enter_context(DataDirectory.open(path, files_max=FILES_MAX))
        logs[count] = data.open_log(NAME, STILL)
        logs[count].commit(logs[count].last_index)
    return logs


def _append(log: Log, batch: bytes) -> None:
    log.append([Batch.parse(batch)], 2**60)


def _before_roll(log: Log, batch: bytes, count: int) -> None:
    _append(log, batch)
    log.commit(log.sync())
    while len(log.segments) > count:
        log.drop(log.segments[1].first_seqno)


class Cold:
    """A log that is opened anew, with nothing of its files in memory, before every look at it."""

    def __init__(self, path: str, look: Look | None) -> None:
        self._path = path
        self._look = look
        self._chance = random.Random(2)
        self._data: DataDirectory | None = None
        self._log: Log | None = None

    def prepare(self) -> None:
        if self._data is not None:
            self._data.close()
        self._data = DataDirectory.open(self._path)
        if self._look is not None:
            self.open()
        disk = OsDisk(self._path)
        for name in os.listdir(f"{self._path}/{NAME}"):
            disk.open(f"{self._path}/{NAME}/{name}").drop_cache()

    def open(self) -> None:
        assert self._data is not None
        self._log = self._data.open_log(NAME, STILL)
        self._log.commit(self._log.last_index)

    def look(self) -> None:
        assert self._log is not None
        assert self._look is not None
        self._look(self._log, self._chance)

    def close(self) -> None:
        assert self._data is not None
        self._data.close()


def _cold(paths: Mapping[int, str]) -> list[Row]:
    rows: list[Row] = []
    for what, look in LOOKUPS.items():
        colds = {count: Cold(path, look) for count, path in paths.items()}
        subjects: dict[int, tuple[Subject, Subject]] = {n: (cold.prepare, cold.look) for n, cold in colds.items()}
        rows += _pair_prepared(f"lookup {what}, cold", subjects, 60, GOALS.get(what, GOAL))
        for cold in colds.values():
            cold.close()
    colds = {count: Cold(path, None) for count, path in paths.items()}
    rows += _pair_prepared("open", {n: (cold.prepare, cold.open) for n, cold in colds.items()}, 60)
    for cold in colds.values():
        cold.close()
    return rows


def _pair(what: str, subjects: Mapping[int, Subject], goal: float = GOAL) -> list[Row]:
    names = {count: f"{what}, {count:,} segments" for count in subjects}
    timings = time_interleaved({names[count]: subject for count, subject in subjects.items()})
    return [compare(names[SMALL], timings), compare(names[LARGE], timings, names[SMALL], goal)]


def _pair_prepared(
    what: str, subjects: Mapping[int, tuple[Subject, Subject]], rounds: int, goal: float = GOAL
) -> list[Row]:
    names = {count: f"{what}, {count:,} segments" for count in subjects}
    timings = time_prepared({names[count]: subject for count, subject in subjects.items()}, rounds)
    return [compare(names[SMALL], timings), compare(names[LARGE], timings, names[SMALL], goal)]


if __name__ == "__main__":
    main()
