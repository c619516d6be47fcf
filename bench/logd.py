"""How many records a second does the logd text protocol take and give, from one connection, on one core?

Values of 100 bytes. MSG lines are sent without waiting for answers, and every one is answered; with flush os when it is
written, with durable when it is synced; the last of them are of changing lengths for two topics in turn. BATCH has
1,000 records and one answer. READ asks for 10,000 at a time, one after another, from the first to the last, and counts
bytes. The node, with all its threads, is bound to one core, the client to the others.

The bare peer is an asyncio BufferedProtocol on uvloop that finds the lines, answers each, and keeps nothing; it is
bound to the node's core.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from zlib import crc32

import uvloop

from harness import QUICK, Row, Subject, Timing, rate, report, time_prepared
from node import DURABLE, Node, running_node

VALUE = b"0123456789" * 10
MESSAGE = b"MSG %b 100\r\n" + VALUE + b"\r\n"
LINES = 200_000
BATCHES = 400
BATCH_RECORDS = 1000
PAGE = 10_000
GOAL = 200_000
ROUNDS = 3 if QUICK else 15
RECEIVE_BYTES = 256 * 1024


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_node(f"{directory}/node", "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0") as node,
        bare_peer() as (port, bare_pid),
    ):
        share_cores([node.pid, bare_pid])
        ready = json.loads(Path(directory, "node", "ready.json").read_text())
        host, _, logd = ready["logd"][0].rpartition(":")
        bare = socket.create_connection(("127.0.0.1", port))
        peer = socket.create_connection((host, int(logd)))
        report("logd", _measure(node, bare, peer))
        bare.close()
        peer.close()


def share_cores(pids: list[int]) -> None:
    """One core for these processes, threads they have and will have; the others for this one."""
    first, *others = sorted(os.sched_getaffinity(0))
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {first})
    os.sched_setaffinity(0, others or {first})


def _measure(node: Node, bare: socket.socket, peer: socket.socket) -> list[Row]:
    node.create("stored")
    converse(peer, _batches("stored"), BATCHES)
    records = BATCHES * BATCH_RECORDS
    floor, written, synced = "MSG to a bare peer", "MSG, flush os, acks leader", "MSG, acks durable"
    mixed = "MSG of 20 to 179 bytes, two topics in turn, acks durable"
    batched, read = "BATCH of 1,000, flush os, acks leader", "READ of 10,000"
    subjects: dict[str, tuple[Subject, Subject]] = {
        floor: (_nothing, partial(converse, bare, _lines("written"), LINES)),
        written: (partial(node.recreate, "written"), partial(converse, peer, _lines("written"), LINES)),
        synced: (partial(node.recreate, "synced", DURABLE), partial(converse, peer, _lines("synced"), LINES)),
        mixed: (partial(_recreate_both, node), partial(converse, peer, _mixed_lines(), LINES)),
        batched: (partial(node.recreate, "batched"), partial(converse, peer, _batches("batched"), BATCHES)),
        read: (_nothing, partial(read_all, peer, "stored", records)),
    }
    timings = time_prepared(subjects, ROUNDS)
    return [
        rate(floor, timings, LINES, unit="million/s"),
        *(rate(name, timings, LINES, floor, unit="million/s") for name in (written, synced, mixed)),
        *(_against_goal(name, timings) for name in (written, synced, mixed)),
        rate(batched, timings, records, floor, unit="million/s"),
        rate(read, timings, records, floor, unit="million/s"),
    ]


def _against_goal(name: str, timings: dict[str, Timing]) -> Row:
    per_second = LINES / timings[name].median_us * 1e6
    ratio = per_second / GOAL
    return Row(name, per_second, "lines/s", None, f"{GOAL:,} lines/s", ratio, 1.0, "higher", ratio >= 1.0)


def _lines(topic: str) -> bytes:
    return (MESSAGE % topic.encode()) * LINES


def _mixed_lines() -> bytes:
    """As from a gateway: no two lines in a row for the same log, or of the same length."""
    lengths = [20 + 7 * number % 160 for number in range(1000)]
    some = b"".join(
        b"MSG mixed-%d %d\r\n%b\r\n" % (number % 2, length, (2 * VALUE)[:length])
        for number, length in enumerate(lengths)
    )
    return some * (LINES // len(lengths))


def _recreate_both(node: Node) -> None:
    for number in range(2):
        node.recreate(f"mixed-{number}", DURABLE)


def _batches(topic: str) -> bytes:
    data = (b"MSG 100\r\n" + VALUE + b"\r\n") * BATCH_RECORDS
    return (b"BATCH %d %b %d %d\r\n%b" % (len(data), topic.encode(), crc32(data), BATCH_RECORDS, data)) * BATCHES


def converse(peer: socket.socket, commands: bytes, answers: int) -> None:
    """Send all of it, and count the answers meanwhile."""
    sender = threading.Thread(target=peer.sendall, args=(commands,))
    sender.start()
    buffer = bytearray(RECEIVE_BYTES)
    while answers:
        count = peer.recv_into(buffer)
        assert count
        assert not buffer.startswith(b"ERR")
        answers -= buffer.count(b"\n", 0, count)
    sender.join()


def read_all(peer: socket.socket, topic: str, records: int) -> None:
    """READ after READ, each from where the last one ended."""
    reader = peer.makefile("rb", RECEIVE_BYTES)
    seqno = 0
    while seqno < records:
        peer.sendall(b"READ %b %d %d\r\n" % (topic.encode(), seqno, PAGE))
        _, _, batches = reader.readline().split()
        for _ in range(int(batches)):
            _, size, _, _, count = reader.readline().split()
            assert len(reader.read(int(size))) == int(size)
            seqno += int(count)


@contextmanager
def bare_peer() -> Iterator[tuple[int, int]]:
    """Port and pid of another process that answers every MSG line and keeps nothing."""
    process = subprocess.Popen([sys.executable, __file__, "bare"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


class Bare(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._ends = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Every message has one line's end behind its line and one behind its body: half of them are answered."""
        data = b"".join((self._ends, self._buffer[:nbytes]))
        ends = data.count(b"\n")
        self._ends = b"\n" * (ends % 2)
        self._transport.write(b"OK 0 1\r\n" * (ends // 2))  # type: ignore[attr-defined]


async def serve_bare() -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _nothing() -> None:
    pass


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        uvloop.run(serve_bare())
    else:
        main()
