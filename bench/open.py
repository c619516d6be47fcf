"""How long does a node take to open its logs?

A data directory with 1,000 logs of 10 segments each: all at once (`DataDirectory.open_logs`, on threads, because
opening mostly waits for the disk) and one after the other. Opening syncs, drops cached pages and verifies.
"""

from __future__ import annotations

import os
import tempfile
import uuid

from append import make_batches
from harness import Subject, compare, report, time_prepared
from logboom.batch import Batch
from logboom.storage import DataDirectory, LogConfig, log_name
from unsynced import UnsyncedDisk

LOGS = 1000
SEGMENTS = 10
BATCHES_PER_SEGMENT = 4
ROUNDS = 5
NAMES = [log_name(f"topic-{number}", uuid.UUID(int=number + 1), 0) for number in range(LOGS)]
CONFIG = LogConfig()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as path:
        _fill(path)
        os.sync()
        directory = Directory(path)
        together, singly = f"{LOGS:,} logs of {SEGMENTS} segments, at once", "the same, one after the other"
        subjects: dict[str, tuple[Subject, Subject]] = {
            singly: (directory.open, directory.open_singly),
            together: (directory.open, directory.open_together),
        }
        timings = time_prepared(subjects, ROUNDS)
        directory.close()
    report("open", [compare(singly, timings, unit="s"), compare(together, timings, singly, 1.0, unit="s")])


def _fill(path: str) -> None:
    batches = [Batch.parse(data) for data in make_batches(BATCHES_PER_SEGMENT, 1024)]
    with DataDirectory.open(path, UnsyncedDisk(path)) as data:
        for log in data.open_logs(NAMES, CONFIG):
            for segment in range(SEGMENTS):
                if segment:
                    log.roll()
                log.append(batches, segment)


class Directory:
    """A data directory that is opened anew, without its logs, before every round."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._data: DataDirectory | None = None

    def open(self) -> None:
        self.close()
        self._data = DataDirectory.open(self._path)

    def open_together(self) -> None:
        assert self._data is not None
        self._data.open_logs(NAMES, CONFIG)

    def open_singly(self) -> None:
        assert self._data is not None
        for name in NAMES:
            self._data.open_log(name, CONFIG)

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None


if __name__ == "__main__":
    main()
