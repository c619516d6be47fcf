"""Streams of a node's topics into a list, in this process's Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from logboom import Writer
from logboom.client.remote import RemoteBroker, connect
from support.nodes.process import NodeProcess
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PATIENCE_S = 300
Answer = TypeVar("Answer")


class Topics:
    """Those of a node, which may be killed and started again."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.address = node.address
        self.path = f"logboom://{node.address}"

    def ask(self, question: Callable[[RemoteBroker], Awaitable[Answer]]) -> Answer:
        async def talk() -> Answer:
            async with connect(self.address) as broker:
                return await question(broker)

        return asyncio.run(talk())

    def create(self, topic: str, partitions: int = 1) -> None:
        self.ask(lambda broker: broker.create_topic(topic, partitions))

    def delete(self, topic: str) -> None:
        self.ask(lambda broker: broker.delete_topic(topic))

    def write(self, topic: str, values: Iterable[bytes], partition: int | None = None, **more: Any) -> None:
        with Writer(topic, self.address, partition=partition) as writer:
            for value in values:
                writer.write(value, **more)

    def cursor(self, name: str, topic: str) -> dict[int, int]:
        """Where it stands, by partition."""
        found = self.ask(lambda broker: broker.list_cursors(topic, name))
        return {entry.partition: entry.seqno for entry in found if entry.cursor == name}


class Sink:
    """Keeps every micro-batch by its number, with the rows as they came."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.then: Callable[[int], None] = lambda batch: None
        """Called when the sink has a batch."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = [tuple(row) for row in frame.collect()]
        self.then(batch)

    @property
    def rows(self) -> list[Any]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    @property
    def values(self) -> list[bytes]:
        """Of a stream of values alone."""
        return [bytes(row[0]) for row in self.rows]

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[batch]) for batch in sorted(self.batches) if self.batches[batch]]


def stream(spark: SparkSession, path: str, schema: str = "value BINARY", **options: str) -> DataFrame:
    options = {"startingSeqno": "earliest", **options}
    return spark.readStream.format("logboom").schema(schema).options(**options).load(path)


def writer_of(frame: DataFrame, sink: Sink, checkpoint: Path, **trigger: Any) -> DataStreamWriter:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger) if trigger else writer


def take(frame: DataFrame, checkpoint: Path, sink: Sink | None = None) -> Sink:
    """What is there now."""
    sink = Sink() if sink is None else sink
    finish(writer_of(frame, sink, checkpoint, availableNow=True).start())
    return sink


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(PATIENCE_S), "the query did not end"


def wait_for(query: StreamingQuery, holds: Callable[[], bool], what: str = "the query to get on") -> None:
    """A query that fails meanwhile is waited for no longer."""

    def check() -> None:
        failure = query.exception()
        if failure is not None:
            raise failure

    wait_until(holds, what, limit_s=PATIENCE_S, every_s=0.05, check=check)
