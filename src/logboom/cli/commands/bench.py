"""`logboom bench produce|consume`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from logboom.batch.codec import CodecName
from logboom.cli.connection import ask, servers_of
from logboom.cli.options import Flag, Json, Server
from logboom.cli.show.output import show_json, show_pairs
from logboom.server.units import show_duration, show_size, size_of

if TYPE_CHECKING:
    from logboom.cli.load_run import Load, LoadRun

DETAILS = """\
Puts load on a node and reports throughput and latency. It creates a topic of
its own and deletes it at the end; with --topic it uses that topic and leaves
the records there.

Latency is the time from passing a record to the writer, which gathers batches,
to the node's answer; with --one-by-one each record waits for the answer to the
one before. Consume writes the records first; its latency is the wait for each
next chunk.

Examples:
  logboom bench produce
  logboom bench produce --size 1KiB --seconds 10 --writers 4 --acks durable
  logboom bench produce --one-by-one --count 10000 --acks leader
  logboom bench consume --count 5000000 --form tables --json
"""
app = App(name="bench", help="Measure a node's throughput and latency percentiles.", help_epilogue=DETAILS)
Acks = Literal["none", "leader", "durable"]


@app.command
def produce(
    *,
    topic: str | None = None,
    size: str = "100",
    count: int = 1_000_000,
    seconds: float | None = None,
    writers: int = 1,
    batch_bytes: str = "128KiB",
    linger_ms: float = 5,
    acks: Acks | None = None,
    codec: CodecName = "none",
    one_by_one: Flag = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write as fast as possible.

    Parameters
    ----------
    topic
        Write to this topic.
    size
        Bytes of a record's value.
    count
        How many records, over all writers.
    seconds
        Write for this many seconds, instead of a number of records.
    writers
        How many processes write at once.
    batch_bytes
        How much a writer gathers before it sends.
    linger_ms
        How long it gathers at most.
    acks
        What to wait for. Default: what the topic says.
    codec
        How batches are compressed.
    one_by_one
        Send a record, wait for its answer, send the next.
    """
    from logboom.cli.load_run import Load, produce_all

    with _topic(server, topic) as name:
        load = Load(
            *(name, servers_of(server), size_of("--size", size), max(1, count), seconds, acks, codec),
            *(size_of("--batch-bytes", batch_bytes), linger_ms, one_by_one),
        )
        run = produce_all(load, max(1, writers))
    _show(load, run, as_json)


@app.command
def consume(
    *,
    topic: str | None = None,
    size: str = "100",
    count: int = 1_000_000,
    form: Literal["tables", "lists", "records"] = "tables",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Read as fast as possible.

    Parameters
    ----------
    topic
        Read this topic, all its partitions, instead of writing one first.
    size
        Bytes of a record's value, where they are written first.
    count
        How many records at most.
    form
        What records are read as: Arrow tables, lists of values, or one by one.
    """
    from logboom.cli.load_run import Load, consume_all, produce_all

    servers = servers_of(server)
    with _topic(server, topic) as name:
        load = Load(name, servers, size_of("--size", size), max(1, count))
        if topic is None:
            produce_all(load, 1)
        partitions = len(ask(server, lambda broker: broker.describe_topic(name)).partitions)
        run = consume_all(load, partitions, form)
    _show(load, run, as_json)


@contextmanager
def _topic(server: str | None, topic: str | None) -> Iterator[str]:
    """The topic to use: the one named, or one that is there as long as it is needed."""
    if topic is not None:
        yield topic
        return
    name = f"bench-{uuid.uuid4().hex[:12]}"
    ask(server, lambda broker: broker.create_topic(name))
    try:
        yield name
    finally:
        ask(server, lambda broker: broker.delete_topic(name))


def _show(load: Load, run: LoadRun, as_json: bool) -> None:
    latencies = run.percentiles()
    if as_json:
        rates = {"records_per_second": run.records / run.seconds, "bytes_per_second": run.bytes / run.seconds}
        counts = {"records": run.records, "bytes": run.bytes, "seconds": run.seconds, "failed": run.failed}
        show_json({"topic": load.topic, **counts, **rates, "latency_s": latencies})
        return
    pairs = [
        ("records", run.records),
        ("seconds", round(run.seconds, 3)),
        ("records/s", round(run.records / run.seconds)),
        ("bytes/s", show_size(round(run.bytes / run.seconds))),
        *((f"latency {name}", show_duration(latency_s * 1e6)) for name, latency_s in latencies.items()),
    ]
    if run.failed:
        pairs.append(("failed", run.failed))
    show_pairs(pairs)
