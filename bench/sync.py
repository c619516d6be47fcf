"""What does a durable append cost, next to fdatasync of the same bytes?

One log, 64 writers waiting: their batches go in with one append, then one sync and one commit, against writing and
syncing the same bytes with nothing around them. Many logs, each with one small batch to sync: fdatasync one by one,
fdatasync in 16 threads, and what `Disk.sync` does (syncfs). On the disk of the temporary directory.
"""

from __future__ import annotations

import os
import resource
import tempfile
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from append import make_batches
from harness import Row, Subject, compare, rate, report, time_prepared
from logboom.batch import Batch
from logboom.storage import DataDirectory, File, LogConfig, OsDisk, PendingSync, log_name

WRITERS = 64
THREADS = 16
SEGMENTS = LogConfig(segment_bytes=2**30)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        rows = [
            *_one_log(f"{directory}/1", 1024),
            *_one_log(f"{directory}/2", 16 * 1024),
            *_one_log(f"{directory}/5", 64 * 1024),
            *_many_logs(f"{directory}/3", 64, 100),
            *_many_logs(f"{directory}/4", 1000, 20),
        ]
    report("sync", rows)


def _one_log(directory: str, batch_bytes: int) -> list[Row]:
    batches = make_batches(WRITERS, batch_bytes)
    size_bytes = sum(map(len, batches))
    with DataDirectory.open(directory) as data:
        log = data.open_log(log_name("bench", uuid.uuid4(), 0), SEGMENTS)
        fds = [os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT) for name in ("loop", "grouped")]

        def write_loop() -> None:
            for batch in batches:
                os.write(fds[0], batch)
            os.fdatasync(fds[0])

        def write_grouped() -> None:
            os.pwritev(fds[1], batches, os.fstat(fds[1]).st_size)
            os.fdatasync(fds[1])

        def append() -> None:
            log.append([Batch.parse(batch) for batch in batches], 1)
            log.commit(log.sync())

        what = f"{WRITERS} x {batch_bytes // 1024} KiB"
        loop, grouped = f"os.write each, fdatasync, {what}", f"os.pwritev, fdatasync, {what}"
        ours = f"Log.append, sync, commit, {what}"
        subjects: dict[str, tuple[Subject, Subject]] = {
            loop: (_nothing, write_loop),
            grouped: (_nothing, write_grouped),
            ours: (_nothing, append),
        }
        timings = time_prepared(subjects)
        for fd in fds:
            os.close(fd)
    return [
        rate(loop, timings, size_bytes),
        rate(grouped, timings, size_bytes),
        rate(ours, timings, size_bytes, grouped, 0.7),
    ]


def _nothing() -> None:
    pass


def _many_logs(directory: str, count: int, rounds: int) -> list[Row]:
    (batch,) = make_batches(1, 1024)
    disk = OsDisk(os.path.dirname(directory))
    with DataDirectory.open(directory, disk) as data, ThreadPoolExecutor(THREADS) as threads:
        logs = data.open_logs([log_name(f"bench-{n}", uuid.uuid4(), 0) for n in range(count)], SEGMENTS)
        pending: list[PendingSync] = []

        def settle() -> None:
            for log, begun in zip(logs, pending, strict=False):
                log.end_sync(begun)
            pending.clear()

        def make_dirty() -> None:
            settle()
            for log in logs:
                log.append([Batch.parse(batch)], 1)

        def prepare() -> None:
            make_dirty()
            for log in logs:
                started = log.begin_sync()
                assert started is not None
                pending.append(started)

        def one_by_one(files: Collection[File]) -> None:
            for file in files:
                file.sync()

        def in_threads(files: Collection[File]) -> None:
            for _ in threads.map(lambda file: file.sync(), files):
                pass

        def run(sync: Callable[[Collection[File]], None]) -> None:
            sync([begun.file for begun in pending])

        singly, threaded = f"{count:,} logs, fdatasync one by one", f"{count:,} logs, fdatasync in {THREADS} threads"
        ours, whole = f"{count:,} logs, Disk.sync (syncfs)", f"{count:,} logs, DataDirectory.sync with commit"
        subjects: dict[str, tuple[Subject, Subject]] = {
            singly: (prepare, partial(run, one_by_one)),
            threaded: (prepare, partial(run, in_threads)),
            ours: (prepare, partial(run, disk.sync)),
            whole: (make_dirty, data.sync),
        }
        timings = time_prepared(subjects, rounds)
        settle()
    return [
        compare(singly, timings, unit="ms"),
        compare(threaded, timings, singly, unit="ms"),
        compare(ours, timings, singly, 0.5, unit="ms"),
        compare(whole, timings, singly, 0.5, unit="ms"),
    ]


if __name__ == "__main__":
    main()
