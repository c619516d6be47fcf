"""How soon does a reader in another process see a commit, and what do ten of them cost?

Latency: a record is appended and synced; the time runs from just before its commit until a `FileReader` in another
process has the record in hand. Beside it a pipe between the same two processes, message by message in turn. The reader
sleeps in between: messages are some milliseconds apart. Followers: a writer appends 64 KiB batches and syncs every
eighth, while one or ten processes follow the log into Arrow, each to the last record. As fast as it goes, eleven
processes share the cores there are; at a pace, they have room. Beside them the least that ten can cost: processes that
know where the file is, read what it has grown by into the same memory every 10 ms, and take its checksum.
"""

from __future__ import annotations

import glob
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from crc32c import crc32c

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
BARE_BYTES = 4 * 1024 * 1024
BARE_PAUSE_S = 0.01
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
        nobody, one, ten, bare = (
            f"write 100 MiB {what}, {who}"
            for who in ("nobody follows", "one follows", "ten follow", "ten only read and take checksums")
        )
        ways = {nobody: ("follow", 0), one: ("follow", 1), ten: ("follow", 10), bare: ("bare", 10)}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(ROUNDS):
            for name, (how, count) in ways.items():
                times[name].append(
                    _time_followers(f"{directory}/{pause_s}-{number}-{how}-{count}", how, count, pause_s)
                )
        rows += [
            *(Row(name, median(times[name]), "s", _middle(times[name])) for name in (nobody, one)),
            *(_beside_one(name, one, times, goal) for name, goal in ((ten, 1.5), (bare, None))),
        ]
    return rows


def _beside_one(name: str, one: str, times: dict[str, list[float]], goal: float | None) -> Row:
    ratio = median(ours / theirs for ours, theirs in zip(times[name], times[one], strict=True))
    met = None if goal is None else ratio <= goal
    return Row(name, median(times[name]), "s", _middle(times[name]), one, ratio, goal, "lower", met)


def _middle(samples: list[float]) -> tuple[float, float]:
    quarters = quantiles(samples, n=4)
    return quarters[0], quarters[2]


def _time_followers(path: str, how: str, count: int, pause_s: float) -> float:
    """Seconds from the first append until every reader has the last record. The writer syncs no sooner than allowed."""
    batch = build([os.urandom(1024) for _ in range(63)])
    with DataDirectory.open(path) as data:
        data.create_topic(TOPIC)
        (log,) = data.open_topic(TOPIC)
        log.append_one(batch, 0)
        log.commit(log.sync())
        end = {"follow": 63, "bare": len(batch.data)}[how] * (BATCHES + 1)
        readers = [child(how, path, str(end)) for _ in range(count)]
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


def _read_to_the_end(path: str, size: int) -> None:
    (name,) = glob.glob(f"{path}/topics/{TOPIC}~*/0/*.log")
    memory = memoryview(bytearray(BARE_BYTES))
    file, position, crc = os.open(name, os.O_RDONLY), 0, 0
    print("ready", flush=True)
    while position < size:
        count = os.preadv(file, [memory], position)
        crc = crc32c(memory[:count], crc)
        position += count
        if position < size and count < BARE_BYTES:
            time.sleep(BARE_PAUSE_S)
    print("done", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["latency", path]:
            _follow_messages(path)
        case ["follow", path, records]:
            _follow_to_the_end(path, int(records))
        case ["bare", path, size]:
            _read_to_the_end(path, int(size))
        case _:
            main()
