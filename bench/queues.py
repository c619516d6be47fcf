"""How many records a second do workers take from a queue and acknowledge one by one?

Records of 100 bytes, all there before, in one topic of one partition: one worker, then four, each a Python process that
takes records and acknowledges each by itself, until nothing is left. Logboom's node syncs every acknowledgement before
it answers, many with one sync. Beside it, where they are installed, NATS JetStream's pull consumers with nats-py (which
do not wait until an acknowledgement is heard) and RabbitMQ's quorum queues with pika, in the same run, interleaved.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from harness import QUICK, Row, Timing, best_of, rate, report, summarise
from logboom import Writer
from node import DURABLE, Node, running_node
from queue_peers import QueuePeer, open_peers, work_logboom

COUNT = 50_000 if QUICK else 200_000
SIZE = 100
ROUNDS = 3 if QUICK else 5
WORKERS = (1, 4)
GOAL, LEAST = 2.0, 50_000
"""Against the better of the others; and records a second."""
UNIT = "records/s"
SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, ExitStack() as stack:
        peers = [_ours(stack.enter_context(running_node(f"{directory}/node"))), *open_peers(stack, directory)]
        values = [b"%0100d" % number for number in range(COUNT)]
        samples: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for workers in WORKERS:
                for peer in peers:
                    peer.fill(values)
                    samples.setdefault(_label(peer.name, workers), []).append(1e6 * _time(peer, workers))
        timings = {name: summarise(times) for name, times in samples.items()}
        report("queues", [row for workers in WORKERS for row in _rows(peers, workers, timings)])


def _label(name: str, workers: int) -> str:
    return f"{name}, {workers} worker{'s' * (workers > 1)}"


def _ours(node: Node) -> QueuePeer:
    """A new group for every time: it begins at the first record."""
    topic, group = node.create("jobs", DURABLE), ["g0"]

    def fill(values: Sequence[bytes]) -> None:
        if group[0] == "g0":
            with Writer(topic, node.address) as writer:
                writer.write_many(values)
        group[0] = f"g{int(group[0][1:]) + 1}"

    return QueuePeer("Logboom", fill, work_logboom, (node.address, topic, group))


def _time(peer: QueuePeer, workers: int) -> float:
    """Seconds from when all are ready until the last acknowledgement."""
    barrier, results = SPAWN.Barrier(workers + 1), SPAWN.Queue()
    crew = [SPAWN.Process(target=_work, args=(peer.work, peer.arguments, barrier, results)) for _ in range(workers)]
    for worker in crew:
        worker.start()
    barrier.wait(120)
    began = time.monotonic()
    done = [results.get(timeout=300) for _ in crew]
    for worker in crew:
        worker.join()
    assert sum(count for count, _ in done) >= COUNT, done
    return float(max(last for count, last in done if count) - began)


def _work(work: Any, arguments: tuple[Any, ...], barrier: Any, results: Any) -> None:
    results.put(work(*arguments, lambda: barrier.wait(120)))


def _rows(peers: list[QueuePeer], workers: int, timings: dict[str, Timing]) -> list[Row]:
    ours, *theirs = (_label(peer.name, workers) for peer in peers)
    per_s = {name: rate(name, timings, 1e6 * COUNT, unit=UNIT) for name in theirs}
    best = best_of(timings, theirs)
    row = rate(ours, timings, 1e6 * COUNT, best, GOAL if best else None, UNIT)
    if best is None:
        row = Row(
            row.name, row.value, row.unit, row.spread, "records/s", row.value / LEAST, 1.0, "higher", row.value >= LEAST
        )
    return [*per_s.values(), row]


if __name__ == "__main__":
    main()
