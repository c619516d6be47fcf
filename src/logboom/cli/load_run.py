"""Load on a node: writers in processes of their own, one reader, and how long each answer took."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any, Final, Literal, NamedTuple

from logboom.batch.codec import CodecName
from logboom.client.link.profile import Servers
from logboom.errors import LogboomError

SAMPLES_PER_WRITER: Final = 2_000
"""Latencies are measured of so many records, spread evenly; of more, where nobody knows how many there will be."""
SAMPLES_MAX: Final = 100_000
"""So many latencies are kept, at most, however long it takes."""
_MEET_S: Final = 60.0
"""Writers in processes of their own wait so long for one another, to begin together."""
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class Load(NamedTuple):
    topic: str
    servers: Servers
    size_bytes: int
    records: int
    seconds: float | None = None
    acks: Literal["none", "leader", "durable"] | None = None
    codec: CodecName = "none"
    batch_bytes: int = 256 * 1024
    linger_ms: float = 5
    one_by_one: bool = False


class LoadRun(NamedTuple):
    """What was done between two times of the machine's monotonic clock, which all its processes share."""

    records: int
    bytes: int
    failed: int
    began_s: float
    ended_s: float
    latencies_s: list[float]

    @property
    def seconds(self) -> float:
        return max(self.ended_s - self.began_s, 1e-9)

    def percentiles(self) -> dict[str, float]:
        """Least such that the share of all is at or below it."""
        ordered = sorted(self.latencies_s)
        if not ordered:
            return {}
        return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in _PERCENTILES.items()}


def produce_all(load: Load, writers: int) -> LoadRun:
    """By so many writers at once. Raises what the first that failed has met, if nothing was written at all."""
    if writers == 1:
        return produce(load)
    part = load._replace(records=max(1, load.records // writers))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(writers, context, _meet_at, (context.Barrier(writers),)) as pool:
        outcomes = list(pool.map(_produce_or_tell, [part] * writers))
    runs = [outcome for outcome in outcomes if isinstance(outcome, LoadRun)]
    if len(runs) < writers:
        said = [outcome for outcome in outcomes if isinstance(outcome, str) and outcome]
        raise LogboomError(said[0] if said else f"a writer was not ready within {_MEET_S:.0f} seconds")
    return LoadRun(
        sum(run.records for run in runs),
        sum(run.bytes for run in runs),
        sum(run.failed for run in runs),
        min(run.began_s for run in runs),
        max(run.ended_s for run in runs),
        [latency_s for run in runs for latency_s in run.latencies_s],
    )


_meeting: list[Barrier] = []
"""Where the writers of a process pool begin together; empty where there is one writer."""


def _meet_at(barrier: Barrier) -> None:
    _meeting.append(barrier)


def _produce_or_tell(load: Load) -> LoadRun | str:
    """What went wrong is told in words: an error's data does not travel between processes. Nothing: others failed."""
    try:
        return produce(load)
    except BrokenBarrierError:
        return ""
    except LogboomError as error:
        for barrier in _meeting:
            barrier.abort()
        return str(error)


def produce(load: Load) -> LoadRun:
    import pyarrow.compute  # noqa: F401  its import is not what is measured

    from logboom import Writer

    value = os.urandom((load.size_bytes + 1) // 2).hex().encode()[: load.size_bytes]
    tally = _Tally()
    with Writer(
        load.topic,
        load.servers,
        acks=load.acks,
        codec=load.codec,
        batch_bytes=load.batch_bytes,
        linger_ms=load.linger_ms,
        on_error=tally.note_failures,
    ) as writer:
        for barrier in _meeting:
            barrier.wait(_MEET_S)
        began_s = time.monotonic()
        given = _one_by_one(writer, value, load, tally) if load.one_by_one else _stream(writer, value, load, tally)
        writer.flush()
        ended_s = time.monotonic()
    if tally.error is not None and tally.failed >= given:
        raise tally.error
    done = given - tally.failed
    return LoadRun(done, done * load.size_bytes, tally.failed, began_s, ended_s, tally.latencies.samples())


class Latencies:
    """Of any number of latencies some that stand for all: every n-th, and the longest."""

    def __init__(self, most: int = SAMPLES_MAX) -> None:
        self._most = most
        self._kept: list[float] = []
        self._every = 1
        self._skipped = 0
        self._longest = 0.0

    def note(self, latency_s: float) -> None:
        self._longest = max(self._longest, latency_s)
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._kept.append(latency_s)
        if len(self._kept) >= self._most:
            self._kept = self._kept[1::2]
            self._every *= 2

    def samples(self) -> list[float]:
        return [*self._kept, self._longest] if self._every > 1 else self._kept


class _Tally:
    def __init__(self) -> None:
        self.latencies = Latencies()
        self.failed = 0
        self.error: LogboomError | None = None

    def note_failures(self, error: LogboomError, count: int) -> None:
        self.failed += count
        self.error = self.error or error

    def timer(self) -> Any:
        """A callback that notes how long the answer took from now on."""
        began_s = time.monotonic()

        def note(result: object) -> None:
            if isinstance(result, LogboomError):
                self.note_failures(result, 1)
            else:
                self.latencies.note(time.monotonic() - began_s)

        return note


def _one_by_one(writer: Any, value: bytes, load: Load, tally: _Tally) -> int:
    until_s = None if load.seconds is None else time.monotonic() + load.seconds
    number = 0
    while (number < load.records) if until_s is None else (time.monotonic() < until_s):
        began_s = time.monotonic()
        writer.send(value).result()
        tally.latencies.note(time.monotonic() - began_s)
        number += 1
    return number


def _stream(writer: Any, value: bytes, load: Load, tally: _Tally) -> int:
    """Of each block one record is timed, the last: it waits for nothing but itself."""
    until_s = None if load.seconds is None else time.monotonic() + load.seconds
    block = max(1, min(1000, load.records // SAMPLES_PER_WRITER or 1, 64 * 1024 // max(1, load.size_bytes)))
    if until_s is not None:
        block = 100
    number, write = 0, writer.write
    while (number < load.records) if until_s is None else (time.monotonic() < until_s):
        wanted = block if until_s is not None else min(block, load.records - number)
        for _ in range(wanted - 1):
            write(value)
        write(value, callback=tally.timer())
        number += wanted
    return number


def consume_all(load: Load, partitions: int, form: Literal["tables", "lists", "records"]) -> LoadRun:
    """Up to `records`; a piece is a table, a list or a record."""
    import pyarrow.compute  # noqa: F401  its import is not what is measured

    from logboom import Reader

    records = size = 0
    latencies = Latencies()
    began_s = time.monotonic()
    for partition in range(partitions):
        with Reader(load.topic, load.servers, partition=partition) as reader:
            last_s = time.monotonic()
            for count, piece_bytes in _pieces(reader, form):
                now_s = time.monotonic()
                if form != "records" or records % 100 == 0:
                    latencies.note(now_s - last_s)
                last_s = now_s
                records, size = records + count, size + piece_bytes
                if records >= load.records:
                    break
        if records >= load.records:
            break
    return LoadRun(records, size, 0, began_s, time.monotonic(), latencies.samples())


def _pieces(reader: Any, form: Literal["tables", "lists", "records"]) -> Any:
    """Records and bytes of values of each piece."""
    if form == "tables":
        import pyarrow.compute as pc

        for table in reader.tables(["value"]):
            yield len(table), pc.sum(pc.binary_length(table.column(0))).as_py() or 0
    elif form == "lists":
        for (values,) in reader.lists(["value"]):
            yield len(values), sum(map(len, filter(None, values)))
    else:
        for record in reader.records():
            yield 1, len(record.value or b"")
