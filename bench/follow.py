"""How soon does a reader in another process see a commit, and what do ten of them cost?

Latency: a record is appended and synced; the time runs from just before its commit until a `FileReader` in another
process has the record in hand. Beside it a pipe between the same two processes, message by message in turn. The reader
sleeps in between: messages are some milliseconds apart. Followers: a writer appends 64 KiB batches and syncs every
eighth, while one or ten processes follow the log into Arrow, each to the last record. As fast as it goes, eleven
processes share the cores there are; at a pace, they have room.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from harness import Row, report
from logboom.batch import build
from logboom.client import FileReader
from logboom.storage import DataDirectory

MESSAGES = 1000
PAUSE_S = 0.004
ROUNDS = 5
BATCHES = 1600
SYNC_EVERY = 8
TOPIC = "bench"
_STAMP = struct.Struct("<q")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        report("follow", [*_latency(directory), *_followers(directory)])


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def _latency(directory: str) -> list[Row]:
    path = f"{directory}/latency"
    with DataDirectory.open(path) as data:
        data.create_topic(TOPIC)
        (log,) = data.open_topic(TOPIC)
        with child("latency", path) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            committed, piped = [], []
            for number in range(MESSAGES):
                log.append_one(build([b"%d" % number]), number)
                index = log.sync()
                time.sleep(PAUSE_S)
                start = time.monotonic_ns()
                log.commit(index)
                committed.append((_stamp(reader.stdout) - start) / 1000)
                time.sleep(PAUSE_S)
                start = time.monotonic_ns()
                reader.stdin.write(b"!")
                piped.append((_stamp(reader.stdout) - start) / 1000)
    rows = []
    for share, name in ((50, "p50"), (99, "p99")):
        ours, theirs = quantiles(committed, n=100)[share - 1], quantiles(piped, n=100)[share - 1]
        rows.append(Row(f"pipe, {name}", theirs, "us"))
        rows.append(Row(f"commit to FileReader, {name}", ours, "us", None, f"pipe, {name}", ours / theirs))
    return rows


def _stamp(stream: object) -> int:
    data: bytes = os.read(stream.fileno(), _STAMP.size)  # type: ignore[attr-defined]
    return int(_STAMP.unpack(data)[0])


def _follow_messages(path: str) -> None:
    reader = FileReader(path, TOPIC)
    print("ready", flush=True)
    for _ in reader.records(follow=True):
        os.write(1, _STAMP.pack(time.monotonic_ns()))
        os.read(0, 1)
        os.write(1, _STAMP.pack(time.monotonic_ns()))


def _followers(directory: str) -> list[Row]:
    rows = []
    for what, pause_s in (("as fast as it goes", 0.0), ("at 100 MB/s at most", SYNC_EVERY * 64 * 1024 / 100e6)):
        times: dict[int, list[float]] = {0: [], 1: [], 10: []}
        for number in range(ROUNDS):
            for count, samples in times.items():
                samples.append(_time_followers(f"{directory}/{pause_s}-{number}-{count}", count, pause_s))
        ratio = median(ours / theirs for ours, theirs in zip(times[10], times[1], strict=True))
        nobody, one, ten = (f"write 100 MiB {what}, {who}" for who in ("nobody follows", "one follows", "ten follow"))
        rows += [
            Row(nobody, median(times[0]), "s", _middle(times[0])),
            Row(one, median(times[1]), "s", _middle(times[1])),
            Row(ten, median(times[10]), "s", _middle(times[10]), one, ratio, 1.5, "lower", ratio <= 1.5),
        ]
    return rows


def _middle(samples: list[float]) -> tuple[float, float]:
    quarters = quantiles(samples, n=4)
    return quarters[0], quarters[2]


def _time_followers(path: str, count: int, pause_s: float) -> float:
    """Seconds from the first append until every reader has the last record. The writer syncs no sooner than allowed."""
    batch = build([os.urandom(1024) for _ in range(63)])
    with DataDirectory.open(path) as data:
        data.create_topic(TOPIC)
        (log,) = data.open_topic(TOPIC)
        log.append_one(batch, 0)
        log.commit(log.sync())
        readers = [child("follow", path, str(63 * (BATCHES + 1))) for _ in range(count)]
        processes = [reader.__enter__() for reader in readers]
        try:
            start = time.perf_counter()
            for number in range(BATCHES):
                log.append_one(batch, number)
                if number % SYNC_EVERY == SYNC_EVERY - 1:
                    log.commit(log.sync())
                    due = start + (number + 1) / SYNC_EVERY * pause_s
                    time.sleep(max(0.0, due - time.perf_counter()))
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == b"done\n"
            return time.perf_counter() - start
        finally:
            for reader in readers:
                reader.__exit__(None, None, None)


def _follow_to_the_end(path: str, records: int) -> None:
    reader = FileReader(path, TOPIC)
    next(reader.tables(["seqno", "value"]))  # what is imported on first use is not what is measured
    print("ready", flush=True)
    for _ in reader.tables(["seqno", "value"], follow=True):
        if reader.seqno == records:
            print("done", flush=True)
            return


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["latency", path]:
            _follow_messages(path)
        case ["follow", path, records]:
            _follow_to_the_end(path, int(records))
        case _:
            main()
