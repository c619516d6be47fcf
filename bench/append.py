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
from typing import Any

from harness import Row, Subject, rate, report, time_prepared
from logboom.batch import Batch, build
from logboom.storage import Appended, DataDirectory, Log, LogConfig, log_name

GROUP = 16
BATCH_BYTES = 64 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
ROUNDS = 300


def make_batches(count: int = GROUP, size_bytes: int = BATCH_BYTES, columns: bool = False) -> list[bytes]:
    """Batches of about this size: values of 100 bytes; with `columns`, keys and timestamps too."""
    noise = random.Random(3)
    records = max(1, size_bytes // (128 if columns else 104))
    more: dict[str, Any] = {
        "keys": [b"key-%05d" % noise.randrange(10_000) for _ in range(records)],
        "timestamps": [1_700_000_000_000_000 + 7 * n for n in range(records)],
    }
    return [
        bytes(build([noise.randbytes(100) for _ in range(records)], **(more if columns else {})).data)
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
    plain, wide = make_batches(), make_batches(columns=True)
    size_bytes, wide_bytes = sum(map(len, plain)), sum(map(len, wide))
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        timings = time_prepared(_subjects(directory, plain, wide), ROUNDS)
    loop, grouped, ours, singly, checked, wide_loop, wide_ours = timings
    rows: list[Row] = [
        rate(loop, timings, size_bytes),
        rate(grouped, timings, size_bytes, loop),
        rate(ours, timings, size_bytes, loop, 0.7),
        rate(singly, timings, size_bytes, loop),
        rate(checked, timings, size_bytes),
        rate(wide_loop, timings, wide_bytes),
        rate(wide_ours, timings, wide_bytes, wide_loop, 0.7),
    ]
    report("append", rows)


def _subjects(directory: str, plain: list[bytes], wide: list[bytes]) -> dict[str, tuple[Subject, Subject]]:
    def write_loop(target: Target, batches: list[bytes]) -> None:
        for data in batches:
            os.write(target.fd, data)

    def write_grouped(target: Target) -> None:
        target.position += os.pwritev(target.fd, plain, target.position)

    def append(target: Target, batches: list[bytes], group: int) -> None:
        assert target.log is not None
        for start in range(0, len(batches), group):
            answers = target.log.append([Batch.parse(data) for data in batches[start : start + group]], 1)
            assert all(type(answer) is Appended for answer in answers)

    def check(_: Target) -> None:
        for data in plain:
            Batch.parse(data).verify()

    subjects: dict[str, tuple[Subject, Subject]] = {}

    def add(name: str, kind: type[Target], run: Callable[[Target], None]) -> None:
        place = f"{directory}/{len(subjects)}"
        os.mkdir(place)
        target = kind(place)
        subjects[name] = (partial(target.prepare, GROUP * BATCH_BYTES), partial(run, target))

    add("os.write, one batch a call", Target, partial(write_loop, batches=plain))
    add(f"os.pwritev, {GROUP} batches a call", Target, write_grouped)
    add(f"Log.append, {GROUP} batches a call, verified", LogTarget, partial(append, batches=plain, group=GROUP))
    add("Log.append, one batch a call, verified", LogTarget, partial(append, batches=plain, group=1))
    add("parse and verify only", Target, check)
    add("os.write, keys and timestamps too", Target, partial(write_loop, batches=wide))
    add(
        f"Log.append, {GROUP} a call, keys and timestamps too",
        LogTarget,
        partial(append, batches=wide, group=GROUP),
    )
    return subjects


if __name__ == "__main__":
    main()
