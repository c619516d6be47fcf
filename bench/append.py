"""What does a log add to writing the bytes?

Batches of 64 KiB come as bytes, as from a socket: each one is parsed, its checksums and its structure are verified, it
is stamped, numbered and indexed, and a group of them is written with one call. Next to it the same bytes are written
with nothing around them. On the disk of the temporary directory, without sync on either side.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import uuid
from collections.abc import Callable
from functools import partial

from harness import Row, Subject, rate, report, time_prepared
from logboom.batch import Batch, build
from logboom.storage import Appended, DataDirectory, Log, LogConfig, log_name

GROUP = 16
BATCH_BYTES = 64 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
ROUNDS = 300


def make_batches(count: int = GROUP, size_bytes: int = BATCH_BYTES) -> list[bytes]:
    """Batches of about this size: keys, timestamps and values of 100 bytes."""
    noise = random.Random(3)
    records = max(1, size_bytes // 128)
    return [
        bytes(
            build(
                [noise.randbytes(100) for _ in range(records)],
                keys=[b"key-%05d" % noise.randrange(10_000) for _ in range(records)],
                timestamps=[1_700_000_000_000_000 + 7 * n for n in range(records)],
            ).data
        )
        for _ in range(count)
    ]


class Target:
    """A file or a log that is begun again before it grows large, so that no write-back gets in the way."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._written = FILE_BYTES_MAX
        self._number = 0
        self.fd = -1
        self.log: Log | None = None
        self.position = 0

    def prepare(self, size_bytes: int) -> None:
        self._written += size_bytes
        if self._written >= FILE_BYTES_MAX:
            self._written = self.position = 0
            self.begin()

    def begin(self) -> None:
        path = f"{self._directory}/file"
        if self.fd >= 0:
            os.unlink(path)
            os.close(self.fd)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


class LogTarget(Target):
    def begin(self) -> None:
        shutil.rmtree(self._directory)
        data = DataDirectory.open(self._directory)
        self.log = data.open_log(log_name("bench", uuid.uuid4(), 0), LogConfig(segment_bytes=2**40))


def main() -> None:
    batches = make_batches()
    size_bytes = sum(map(len, batches))
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        timings = time_prepared(_subjects(directory, batches, size_bytes), ROUNDS)
    loop, grouped, ours, singly, checked = timings
    rows: list[Row] = [
        rate(loop, timings, size_bytes),
        rate(grouped, timings, size_bytes, loop),
        rate(ours, timings, size_bytes, loop, 0.7),
        rate(singly, timings, size_bytes, loop),
        rate(checked, timings, size_bytes),
    ]
    report("append", rows)


def _subjects(directory: str, batches: list[bytes], size_bytes: int) -> dict[str, tuple[Subject, Subject]]:
    def write_loop(target: Target) -> None:
        for data in batches:
            os.write(target.fd, data)

    def write_grouped(target: Target) -> None:
        target.position += os.pwritev(target.fd, batches, target.position)

    def append(target: Target, group: int) -> None:
        assert target.log is not None
        for start in range(0, len(batches), group):
            answers = target.log.append([Batch.parse(data) for data in batches[start : start + group]], 1)
            assert all(type(answer) is Appended for answer in answers)

    def check(_: Target) -> None:
        for data in batches:
            Batch.parse(data).verify()

    subjects: dict[str, tuple[Subject, Subject]] = {}

    def add(name: str, target: Target, run: Callable[[Target], None]) -> None:
        subjects[name] = (partial(target.prepare, size_bytes), partial(run, target))

    places = [f"{directory}/{number}" for number in range(5)]
    for place in places:
        os.mkdir(place)
    add("os.write, one batch a call", Target(places[0]), write_loop)
    add(f"os.pwritev, {GROUP} batches a call", Target(places[1]), write_grouped)
    add(f"Log.append, {GROUP} batches a call, verified", LogTarget(places[2]), partial(append, group=GROUP))
    add("Log.append, one batch a call, verified", LogTarget(places[3]), partial(append, group=1))
    add("parse and verify only", Target(places[4]), check)
    return subjects


if __name__ == "__main__":
    main()
