"""How fast does one Python program read records, next to the same program and another server?

Values of 100 bytes and of 1 KiB, all there before, read from the first to the last. Logboom's Reader reads into Arrow
tables, into lists of bytes, and record by record, with every checksum verified. Everybody is connected before, and
reads the same again and again. Beside them the least that it can take: a plain socket on loopback receives as many
bytes as the values have into the same memory.

First come the clients that people use for the others, each as fast as it can be set up: confluent-kafka takes ten
thousand messages in a call, redis-py with hiredis pages of as many, nats-py and rstream on uvloop get them pushed. They
give a message at a time or lists of messages, and their values are read into a list. The best of them in the run is
what Logboom is compared with. kafka-python is left out, as in `produce`.

Then, with plain sockets, the servers read by clients of ours that take every value to be as long as the first, verify
nothing, and let one regular expression or one call of `struct` find the values. Again the best of them is what Logboom
is compared with. Below, the others with our batches of 64 KiB as their messages, each verified and read into Arrow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from socket import socket

import pyarrow as pa

from bare import bare_peer
from clients import Client
from harness import QUICK, Row, Subject, Timing, best_of, rate, report, time_prepared
from logboom import Reader, Writer
from logboom.batch import Batch, build
from node import running_node
from peers import Peer, running_peers
from produce import make_values, per_batch

SHAPES = ((100, 250), (1024, 250))
"""Bytes of a value, batches of 64 KiB."""
MANY, BY_RECORD_KAFKA = 5.0, 2.0
"""Goals of lists and tables against the best client of others, and of records against Kafka's."""
ROUNDS = 3 if QUICK else 7
UNIT = "M records/s"
MEMORY = bytearray(4 * 1024 * 1024)
"""What a plain socket receives into."""


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_peers(directory) as peers,
        running_node(f"{directory}/node") as node,
    ):
        rows: list[Row] = []
        for size, batches in SHAPES:
            values = make_values(size, batches)
            topic = node.create(f"consume-{size}")
            with Writer(topic, node.address, acks="leader") as writer:
                writer.write_many(values)
            with Reader(topic, node.address) as reader:
                ours = _ours(reader, len(values), size)
                rows += _beside_clients(peers.clients, values, size, ours)
                rows += _beside_sockets(peers.raw, values, size, ours)
        report("consume", rows, peers.described())


def _ours(reader: Reader, count: int, size: int) -> dict[str, Subject]:
    calls: dict[str, Subject] = {
        "tables": partial(_tables, reader, None, count),
        "tables of values alone": partial(_tables, reader, ("value",), count),
        "lists": partial(_lists, reader, count),
        "records": partial(_records, reader, count),
    }
    return {f"Reader.{name}, {size} B": call for name, call in calls.items()}


def _beside_clients(clients: Sequence[Client], values: list[bytes], size: int, ours: dict[str, Subject]) -> list[Row]:
    for client in clients:
        client.reset()
        next(iter(client.calls.values()))(values)
    count = len(values)
    theirs: dict[str, Subject] = {f"{client.name}, {size} B": partial(client.consume, count) for client in clients}
    assert all(call() == values for call in theirs.values())
    with bare_peer("source", count * size) as connection:
        bare = f"plain socket, {size} B"
        timings = _time({**theirs, **ours, bare: partial(_receive, connection, count * size)})
    tables, column, lists, records = ours
    best = best_of(timings, theirs)
    kafka = next((name for name in theirs if name.startswith("Kafka")), None)
    return [
        *(rate(name, timings, count, unit=UNIT) for name in theirs),
        *(rate(name, timings, count, best, MANY, UNIT) for name in (tables, column, lists)),
        rate(records, timings, count, best, unit=UNIT),
        rate(records, timings, count, kafka, BY_RECORD_KAFKA, UNIT),
        rate(bare, timings, count, unit=UNIT),
        *(rate(name, timings, count, bare, unit=UNIT) for name in (tables, column)),
    ]


def _beside_sockets(peers: Sequence[Peer], values: list[bytes], size: int, ours: dict[str, Subject]) -> list[Row]:
    for peer in peers:
        peer.reset()
        peer.produce(values)
    count = len(values)
    theirs: dict[str, Subject] = {f"{peer.name}, {size} B": partial(peer.consume, count, size) for peer in peers}
    assert all(call() == values for call in theirs.values())
    tables, column, lists, _ = ours
    timings = _time({**theirs, **{name: ours[name] for name in (tables, column, lists)}})
    best = best_of(timings, theirs)
    return [
        *(rate(name, timings, count, unit=UNIT) for name in theirs),
        rate(tables, timings, count, best, 1.0, UNIT),
        rate(column, timings, count, best, unit=UNIT),
        rate(lists, timings, count, best, 0.5, UNIT),
        *_carried(peers, values, size, {tables: ours[tables]}),
    ]


def _carried(peers: Sequence[Peer], values: list[bytes], size: int, ours: dict[str, Subject]) -> list[Row]:
    """The others with whole batches of ours as messages, beside ours again."""
    step = per_batch(size)
    batches = [bytes(build(values[start : start + step]).data) for start in range(0, len(values), step)]
    for peer in peers:
        peer.reset()
        peer.produce(batches)
    theirs: dict[str, Subject] = {
        f"{peer.name}, our batches of {size} B": partial(_unpack, peer, len(batches), len(batches[0])) for peer in peers
    }
    timings = _time({**theirs, **ours})
    return [
        *(rate(name, timings, len(values), unit=UNIT) for name in theirs),
        *(rate(name, timings, len(values), peer, unit=UNIT) for name in ours for peer in theirs),
    ]


def _time(subjects: dict[str, Subject]) -> dict[str, Timing]:
    return time_prepared({name: (_nothing, call) for name, call in subjects.items()}, ROUNDS)


def _tables(reader: Reader, columns: tuple[str, ...] | None, count: int) -> None:
    reader.seek(0)
    tables = list(reader.tables(columns))
    assert sum(map(len, tables)) == count


def _lists(reader: Reader, count: int) -> None:
    reader.seek(0)
    values: list[bytes] = []
    for (part,) in reader.lists(("value",)):
        values += part
    assert len(values) == count


def _records(reader: Reader, count: int) -> None:
    reader.seek(0)
    values = [record.value for record in reader.records()]
    assert len(values) == count


def _receive(connection: socket, size: int) -> None:
    connection.sendall(b"!")
    while size:
        size -= connection.recv_into(MEMORY, min(size, len(MEMORY)))


def _unpack(peer: Peer, count: int, size: int) -> pa.Table:
    batches = [Batch.parse(message) for message in peer.consume(count, size)]
    for batch in batches:
        batch.verify()
    return pa.Table.from_batches([batch.to_arrow() for batch in batches])


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
