"""A million records, a kill -9 half way, and every record back: by seqno, time, tag, channel, and as Arrow.

    python examples/demo.py [--records N] [--keep DIR]

A child process writes and says on a pipe what is durable. It is killed with SIGKILL; a second one recovers the log and
goes on after the last record that was durable; a third follows the files all the time. Everything a record holds is
computed from its seqno, so a record that is missing, doubled, changed or out of place is found. At last the directory
is dumped and loaded elsewhere. Exits with 1, and says what, if anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from logboom.batch import Batch, Producer, Selection, build
from logboom.client import FileReader
from logboom.errors import LogboomError
from logboom.storage import DataDirectory, Log
from logboom.storage.topic import SegmentSettings, Settings

TOPIC = "readings"
SETTINGS = Settings(segment=SegmentSettings(bytes=16 * 1024 * 1024))
PRODUCER_ID = 7
BATCHES_PER_SYNC = 8
LOOKUPS = 1000

EPOCH_US = 1_767_225_600_000_000
STEP_US = 1000
SITES = 20
KINDS = ("temperature", "humidity", "power")
CHANNELS = tuple(f"site/{n % SITES}/{KINDS[n % 3]}" for n in range(3 * SITES))
KEYS = tuple(b"sensor-%03d" % n for n in range(500))
TAGS = tuple(("raw", "alert") if n == 42 else ("raw",) if n % 2 else () for n in range(100))


class Columns(NamedTuple):
    """What the records of a range of seqnos must hold."""

    values: list[bytes]
    keys: list[bytes]
    timestamps: list[int]
    channels: list[str]
    tags: list[tuple[str, ...]]


def columns(seqnos: range) -> Columns:
    return Columns(
        [b'{"reading":%d,"value":%.2f,"unit":"C"}' % (n, n * 7919 % 4000 / 100) for n in seqnos],
        [KEYS[n % 500] for n in seqnos],
        [EPOCH_US + n * STEP_US for n in seqnos],
        [CHANNELS[n % 60] for n in seqnos],
        [TAGS[n % 100] for n in seqnos],
    )


def write(path: str, start: int, stop: int, batch_records: int) -> None:
    """The child: append, sync, commit, and say on standard output what is durable."""
    with DataDirectory.open(path) as data:
        if not data.topics():
            data.create_topic(TOPIC, settings=SETTINGS)
        (log,) = data.open_topic(TOPIC)
        print(log.next, log.recovered.cut_bytes, flush=True)
        size_bytes = 0
        group = batch_records * BATCHES_PER_SYNC
        for first in range(start, stop, group):
            ranges = [
                range(n, min(n + batch_records, stop)) for n in range(first, min(first + group, stop), batch_records)
            ]
            # The producer's number of a record is its seqno: what the log holds already is recognised, not doubled.
            batches = [
                build(**columns(seqnos)._asdict(), producer=Producer(PRODUCER_ID, 0, seqnos.start)) for seqnos in ranges
            ]
            for answer, seqnos in zip(log.append(batches, time.time_ns() // 1000), ranges, strict=True):
                if isinstance(answer, LogboomError):
                    raise answer
                if answer.base_seqno != seqnos.start:
                    raise SystemExit(f"records from {seqnos.start} on went to {answer.base_seqno}")
            log.commit(log.sync())
            size_bytes += sum(len(batch.data) for batch in batches)
            print(ranges[-1].stop, size_bytes, flush=True)
        if not start:
            signal.pause()


class Writer:
    """A child process that writes, as its parent sees it."""

    def __init__(self, path: str, start: int, stop: int, batch_records: int) -> None:
        arguments = [sys.executable, __file__, "--writer", path, str(start), str(stop), str(batch_records)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, process_group=0)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._reports = self._process.stdout
        self.size_bytes = 0
        self.found, self.cut_bytes = map(int, (self._reports.readline() or "-1 0").split())

    def durable(self) -> Iterator[int]:
        """Every record below each of these numbers is durable, says the child."""
        for line in self._reports:
            if line.endswith("\n"):
                seqno, self.size_bytes = map(int, line.split())
                yield seqno

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reports.close()


def follow(path: str, records: int) -> None:
    """Another child: read the files beside the writers, from the first record to the last, whoever writes them."""
    while not os.path.exists(f"{path}/state"):
        time.sleep(0.01)
    count = tables = 0
    for table in FileReader(path, TOPIC).tables(["seqno", "value"], follow=True):
        first = table["seqno"][0].as_py()
        if first != count:
            raise SystemExit(f"record {first} came where {count} must be")
        count, tables = count + table.num_rows, tables + 1
        if count == records:
            break
    print(count, tables, flush=True)


class Follower:
    """A child process that reads the files meanwhile."""

    def __init__(self, path: str, records: int) -> None:
        arguments = [sys.executable, __file__, "--follower", path, str(records)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, process_group=0)

    def result(self) -> tuple[int, int]:
        """How many records it saw, in how many tables."""
        said = self._process.communicate()[0].split()
        if self._process.returncode or len(said) != 2:
            raise Wrong(f"the process that followed the files ended with status {self._process.returncode}")
        return int(said[0]), int(said[1])

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Wrong(Exception):
    """Something is not as it must be."""


class Screen:
    """A progress bar on a terminal, and a line for everything that is done."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("  [cyan]{task.description:<12}"),
            BarColumn(bar_width=50),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    @contextlib.contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        with self._progress as progress:
            task = progress.add_task(what, total=total)
            try:
                yield lambda done: progress.update(task, completed=done)
            finally:
                progress.remove_task(task)

    def head(self, text: str) -> None:
        self.console.print(f"\n[bold]Logboom[/]: {text}\n", soft_wrap=True)
        self.console.print(f"[dim]{'per second':>70}{'MB/s':>8}[/]", soft_wrap=True)

    def done(self, what: str, text: str, speed: str = "", mark: str = "[green]✓[/]") -> None:
        text = f"{text:<45}[cyan]{speed}[/]" if speed else text
        self.console.print(f"{mark} [bold]{what:<11}[/]{text}", soft_wrap=True)

    def note(self, text: str) -> None:
        self.console.print(f"{'':13}[dim]{text}[/]", soft_wrap=True)


class Clock:
    """Time spent reading, without the time spent on checking what was read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            with self:
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start

    def speed(self, count: int, size_bytes: int | None = None) -> str:
        """How many a second, and how many MB where that says something."""
        seconds = max(self.seconds, 1e-9)
        rate = f"{count / seconds:12,.0f}"
        return rate if size_bytes is None else f"{rate}{size_bytes / seconds / 1e6:8,.0f}"


def write_all(path: str, records: int, screen: Screen) -> None:
    """Two writers, the first one killed half way; nothing the first one called durable may be missing."""
    batch_records = min(1000, max(1, records // 100))
    clock, durable = Clock(), 0
    with screen.bar("write", records) as show, Writer(path, 0, records, batch_records) as writer:
        killed = False
        with clock:
            for durable in writer.durable():
                show(durable)
                if durable >= records // 2 and not killed:
                    writer.kill()
                    killed = True
        if not killed:
            raise Wrong(f"the first writer stopped by itself at record {durable}, with status {writer.wait()}")
    screen.done(
        "write",
        f"{durable:,} records durable, {BATCHES_PER_SYNC} batches a sync",
        clock.speed(durable, writer.size_bytes),
    )
    screen.done("kill -9", f"writer {writer.pid}, in the middle of its work", mark="[yellow]![/]")

    promised, clock = durable, Clock()
    with screen.bar("write", records) as show, Writer(path, promised, records, batch_records) as writer:
        if writer.found < promised:
            raise Wrong(f"records {max(writer.found, 0)} to {promised - 1} were called durable and are gone")
        screen.done("recover", f"all {promised:,} durable records are there")
        if writer.cut_bytes:
            screen.note(f"a torn batch at the end was cut off: {writer.cut_bytes:,} bytes")
        if writer.found > promised:
            screen.note(f"{writer.found - promised:,} more were written but not confirmed: sent again, not doubled")
        with clock:
            for durable in writer.durable():
                show(durable)
        if writer.wait() or durable != records:
            raise Wrong(f"the second writer stopped at record {durable}, with status {writer.wait()}")
    screen.done(
        "write", f"{records - promised:,} more, the log is complete", clock.speed(records - promised, writer.size_bytes)
    )


def read_all(log: Log, records: int, screen: Screen) -> None:
    if (log.first, log.committed) != (0, records):
        raise Wrong(f"the log holds records {log.first} to {log.committed - 1}, not 0 to {records - 1}")
    size_bytes = sum(segment.size for segment in log.segments)
    screen.note(f"{size_bytes / 1e6:,.1f} MB in {len(log.segments)} segments, {log.last_index:,} batches")
    _read_by_seqno(log, records, size_bytes, screen)
    _read_by_time(log, records, screen)
    _read_selected(
        log, records, size_bytes, screen, "tag", "alert", Selection(tags_any=("alert",)), range(42, records, 100)
    )
    matching = [n for n in range(records) if n % SITES == 7]
    _read_selected(log, records, size_bytes, screen, "channel", "site/7/+", Selection(channel="site/7/+"), matching)
    _read_arrow(log, records, size_bytes, screen)


def _read_by_seqno(log: Log, records: int, size_bytes: int, screen: Screen) -> None:
    clock, next_seqno = Clock(), 0
    with screen.bar("by seqno", records) as show:
        for batch in clock.timed(log.batches()):
            with clock:
                got = (batch.values(), batch.keys(), batch.timestamps(), batch.channels(), batch.tags())
            if batch.header.base_seqno != next_seqno:
                raise Wrong(f"record {batch.header.base_seqno} comes where {next_seqno} must be")
            _compare(batch.seqnos(), got)
            next_seqno = batch.seqnos().stop
            show(next_seqno)
    _expect("records", next_seqno, records)
    screen.done("by seqno", f"{records:,} records, each as Python objects", clock.speed(records, size_bytes))

    clock = Clock()
    for seqno in random.choices(range(records), k=LOOKUPS):
        with clock:
            batch = next(log.batches(seqno))
            offset = seqno - batch.header.base_seqno
            value = batch.values()[offset] if 0 <= offset < len(batch) else None
        _expect(f"value of record {seqno}", value, columns(range(seqno, seqno + 1)).values[0])
    screen.done("", f"{LOOKUPS:,} single records at random", clock.speed(LOOKUPS))


def _compare(seqnos: range, got: tuple[list[Any], ...]) -> None:
    must: tuple[list[Any], ...] = columns(seqnos)
    for name, found, wanted in zip(Columns._fields, got, must, strict=True):
        if found != wanted:
            for seqno, one, other in zip(seqnos, found, wanted, strict=True):
                _expect(f"{name} of record {seqno}", one, other)


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"{what}: found {found!r}, not {wanted!r}")


def _read_by_time(log: Log, records: int, screen: Screen) -> None:
    clock = Clock()
    for seqno in random.choices(range(records), k=LOOKUPS):
        moment = EPOCH_US + seqno * STEP_US - random.randrange(STEP_US)
        with clock:
            found = log.seqno_at(moment)
        _expect(f"first record at or after {moment}", found, seqno)
    _expect("first record after the last", log.seqno_at(EPOCH_US + records * STEP_US), records)
    screen.done("by time", f"{LOOKUPS:,} moments at random", clock.speed(LOOKUPS))


def _read_selected(
    log: Log,
    records: int,
    size_bytes: int,
    screen: Screen,
    by: str,
    what: str,
    selection: Selection,
    wanted: range | list[int],
) -> None:
    clock = Clock()
    found: list[int] = []
    with screen.bar(f"by {by}", records) as show:
        for batch in clock.timed(log.batches()):
            with clock:
                table = batch.to_arrow(["seqno", "value"], where=selection)
            seqnos = table.column(0).to_pylist()
            found += seqnos
            for seqno, value in zip(seqnos, table.column(1).to_pylist(), strict=True):
                _expect(f"value of record {seqno}", value, columns(range(seqno, seqno + 1)).values[0])
            show(batch.seqnos().stop)
    if found != list(wanted):
        wrong = sorted(set(found) ^ set(wanted))
        raise Wrong(f"by {by} {what}: {len(found)} records and not {len(wanted)}; the first that differ: {wrong[:5]}")
    screen.done(f"by {by}", f"{what}: {len(found):,} of {records:,} records", clock.speed(records, size_bytes))


def _read_arrow(log: Log, records: int, size_bytes: int, screen: Screen) -> None:
    clock = Clock()
    with clock:
        table = pa.Table.from_batches([batch.to_arrow() for batch in log.batches()])
    screen.done(
        "as Arrow",
        f"one table of {table.num_rows:,} rows",
        clock.speed(records, size_bytes),
    )
    _expect("rows", table.num_rows, records)
    wanted = columns(range(records))
    for name, array in (
        ("seqno", pa.array(range(records), pa.int64())),
        ("timestamp", pa.array(wanted.timestamps, pa.timestamp("us", "UTC"))),
        ("key", pa.array(wanted.keys, pa.binary())),
        ("value", pa.array(wanted.values, pa.binary())),
        ("channel", pa.array(wanted.channels, pa.string())),
        ("tags", pa.array(wanted.tags, pa.list_(pa.string()))),
    ):
        if not table[name].equals(pa.chunked_array([array])):
            raise Wrong(f"the Arrow column {name} is not what was written")
    counts = table.group_by("channel").aggregate([("seqno", "count")])
    screen.note(f"grouped by channel: {counts.num_rows} channels, {sum(counts['seqno_count'].to_pylist()):,} records")


def move_all(path: str, screen: Screen) -> None:
    """Dump the directory into a pipe and load it from there, and compare every byte of both logs."""
    copy, logboom = f"{path}-copy", [sys.executable, "-m", "logboom"]
    try:
        with subprocess.Popen([*logboom, "dump", "--quiet", path], stdout=subprocess.PIPE) as dump:
            load = subprocess.run([*logboom, "load", "--quiet", copy, "-"], stdin=dump.stdout, capture_output=True)
            if dump.wait() or load.returncode:
                raise Wrong(f"dump ended with {dump.returncode}, load with {load.returncode}: {load.stderr.decode()}")
        one, other = FileReader(path, TOPIC), FileReader(copy, TOPIC)
        if one.topic != other.topic or not one.table().equals(other.table()):
            raise Wrong("the loaded log is not equal to the one that was dumped")
        screen.done("move", "dump | load: an equal log in another directory")
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def run(path: str, records: int, screen: Screen) -> None:
    screen.head(f"{records:,} records with keys, channels and tags in [blue]{path}[/]")
    started = time.perf_counter()
    with Follower(path, records) as follower:
        write_all(path, records, screen)
        count, tables = follower.result()
        _expect("records seen in the files", count, records)
        screen.done("follow", f"another process saw all of it live, in {tables:,} tables from the files")
    with DataDirectory.open(path) as data:
        (log,) = data.open_topic(TOPIC)
        read_all(log, records, screen)
    move_all(path, screen)
    seconds = time.perf_counter() - started
    screen.console.print(
        f"\n[bold green]All {records:,} records are there, once, in order, as written.[/] {seconds:.1f} s\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Write, kill, recover and read a million records.")
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N", help="how many, at least 1,000")
    parser.add_argument("--keep", metavar="DIR", help="write to this new directory and leave it there")
    parser.add_argument("--writer", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--follower", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.writer:
        path, *numbers = arguments.writer
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            write(path, *map(int, numbers))
        return 0
    if arguments.follower:
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            follow(arguments.follower[0], int(arguments.follower[1]))
        return 0
    if arguments.records < 1000:
        parser.error("--records must be 1,000 or more")
    if arguments.keep and os.path.exists(arguments.keep):
        parser.error(f"{arguments.keep} is there already: name a new directory")
    screen = Screen()
    place = contextlib.nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory(prefix="logboom-")
    try:
        with place as path:
            run(path, arguments.records, screen)
    except KeyboardInterrupt:
        screen.console.print("\nstopped")
        return 130
    except (Wrong, LogboomError) as error:
        screen.console.print(f"\n[bold red]Wrong:[/] {error}", soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
