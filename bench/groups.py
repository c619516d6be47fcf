"""What does it cost to read in a group, and how fast do logs move when a member comes or dies?

One partition with values of 100 bytes, all there before: a Consumer, the only member of a group that is new each time,
beside a Reader, as lists and record by record, by the clock and by the time of the processor, which counts the thread
that keeps the member in its group too. Places are committed every second, as they are by default.

Then a topic of four partitions that somebody writes to all the time. One member reads in a process of its own, another
one joins: how long until it is given its first record, and how long the first one was given nothing meanwhile. And two
members, of which one is killed: how long until the other is given a record of its partitions, as a part of the time
that the session lasts. Between them is what the node may take for silence: a beat comes three times in a session.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from threading import Event, Thread
from time import perf_counter, process_time

from harness import QUICK, Row, Timing, rate, report, summarise
from logboom import Consumer, Reader, Writer
from node import Node, running_node
from produce import make_values

SIZE = 100
BATCHES = 250 if QUICK else 1000
"""Of 64 KiB."""
ROUNDS = 3 if QUICK else 9
MOVES = 2 if QUICK else 9
DEATHS = 2 if QUICK else 5
SESSION_S = 2.0
AS_FAST, JOIN_MS, DEATH = 0.9, 200.0, 1.2
TOPIC, BUSY = "groups", "groups-busy"
MEMBER = """
import sys, threading, time
from logboom import Consumer
address, group, session_s = sys.argv[1:]
with Consumer("groups-busy", address, group=group, session_s=float(session_s), commit_interval_s=0.1) as consumer:
    threading.Thread(target=lambda: sys.stdin.readline() and consumer.stop(), daemon=True).start()
    last, longest = None, 0.0
    for record in consumer:
        now = time.perf_counter()
        if last is None:
            print("reads", flush=True)
        else:
            longest = max(longest, now - last)
        last = now
    print(longest)
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_node(f"{directory}/node") as node:
        rows = _reading(node)
        node.create(BUSY, partitions=4)
        with _writing(node):
            rows += [*_joining(node), _dying(node)]
        report("groups", rows)


def _reading(node: Node) -> list[Row]:
    node.create(TOPIC)
    values = make_values(SIZE, BATCHES)
    with Writer(TOPIC, node.address, acks="leader") as writer:
        writer.write_many(values)
    count, rows = len(values), []
    for form in ("lists", "records"):
        walls: dict[str, list[float]] = {"Reader": [], "Consumer": []}
        cpus: dict[str, list[float]] = {"Reader": [], "Consumer": []}
        for number in range(ROUNDS):
            with Reader(TOPIC, node.address) as reader:
                _time(reader, form, count, walls["Reader"], cpus["Reader"])
            with Consumer(TOPIC, node.address, group=f"{form}-{number}") as consumer:
                _time(consumer, form, count, walls["Consumer"], cpus["Consumer"])
        for what, times in (("", walls), (", of the processor", cpus)):
            timings = {f"{name}.{form}{what}": summarise(samples) for name, samples in times.items()}
            rows += _beside(timings, count, AS_FAST if not what else None)
    return rows


def _beside(timings: dict[str, Timing], count: int, goal: float | None) -> list[Row]:
    reader, consumer = timings
    unit = "M records/s"
    return [rate(reader, timings, count, unit=unit), rate(consumer, timings, count, reader, goal, unit)]


def _time(reading: Reader | Consumer, form: str, count: int, walls: list[float], cpus: list[float]) -> None:
    """Microseconds. Both follow, and stop when they have everything."""
    wall, cpu, found = perf_counter(), process_time(), 0
    if form == "records":
        for _ in reading.records(follow=True):
            found += 1
            if found == count:
                break
    else:
        for (values,) in reading.lists(follow=True):
            found += len(values)
            if found == count:
                break
    walls.append((perf_counter() - wall) * 1e6)
    cpus.append((process_time() - cpu) * 1e6)


@contextmanager
def _writing(node: Node) -> Iterator[None]:
    """A few records to each partition, all the time."""
    end = Event()

    def write() -> None:
        with Writer(BUSY, node.address, acks="leader", linger_ms=1) as writer:
            while not end.wait(0.002):
                for number in range(8):
                    writer.write(b"x" * SIZE, key=b"%d" % number)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _member(node: Node, group: str, session_s: float) -> subprocess.Popen[str]:
    """One that reads already."""
    command = [sys.executable, "-c", MEMBER, node.address, group, str(session_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _joining(node: Node) -> list[Row]:
    joins, pauses = [], []
    for number in range(MOVES):
        other = _member(node, f"join-{number}", 20.0)
        began = perf_counter()
        with Consumer(BUSY, node.address, group=f"join-{number}") as consumer:
            next(iter(consumer))
            joins.append(1e3 * (perf_counter() - began))
        said, _ = other.communicate("\n", timeout=60)
        pauses.append(1e3 * float(said))
    join, pause = median(joins), median(pauses)
    spreads = [(min(samples), max(samples)) for samples in (joins, pauses)]
    return [
        Row("a member joins, until it reads", join, "ms", spreads[0], None, None, JOIN_MS, "lower", join <= JOIN_MS),
        Row("the longest pause of the one that reads on", pause, "ms", spreads[1]),
    ]


def _dying(node: Node) -> Row:
    ratios = []
    for number in range(DEATHS):
        group = f"death-{number}"
        with Consumer(BUSY, node.address, group=group, session_s=SESSION_S) as consumer:
            victim = _member(node, group, SESSION_S)
            while len(consumer.logs) != 2:
                consumer.poll(0.1)
            mine = {log.partition for log in consumer.logs}
            victim.kill()
            began = perf_counter()
            while all(record.partition in mine for record in consumer.poll(0.1)):
                pass
            ratios.append((perf_counter() - began) / SESSION_S)
            with suppress(BrokenPipeError):
                victim.communicate()
    ratio = median(ratios)
    name = f"a member is killed, until another reads its partitions (session of {SESSION_S:g} s)"
    spread = min(ratios) * SESSION_S, max(ratios) * SESSION_S
    return Row(name, ratio * SESSION_S, "s", spread, "the session", ratio, DEATH, "lower", ratio <= DEATH)


if __name__ == "__main__":
    main()
