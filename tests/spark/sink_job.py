"""A process that writes to topics with Spark, and reads them, to be killed, and to fail by itself.

    sink_job.py JOB

JOB is a JSON file: `master` and `settings` of Spark; `works`; `faults`, and `marks`, a directory. A work has the `path`
of the node; its `kind`; the `topic` it writes to; and `tasks`, into how many its rows are dealt out anew and at random,
0 to leave them. One work comes after the other, and then all streams at once. The kinds are
    count      counts what there is, over the node and however it likes, and writes what it found to the file `found`
    table      `rows` numbers
    stream     what the `source` options read, with `checkpoint`; all that is there where it is `now`, else without end
    each       the same, with two writes for each micro-batch: keys of an even checksum to TOPIC, others to TOPIC-odd
A fault has the name of its mark; the topic, the step, the numbers of micro-batch and task where it happens, null
for any; and what is done. It happens once, for whoever comes first and makes the file of that name. The steps are
    opened     a task has a stage, and all of its rows, and not everything is staged
    staged     it is, and nobody knows
    told       the driver has the messages of all tasks
    sent       the publish is on its way
    answered   it is done, and Spark does not know
    between    in a micro-batch of `each`, the first write is done and the second is not
and what is done: `wait` until there is a file of that name with `.go`, `fail`, `die` (this process), `executor` (the
Java that started it). Who commits a table does not know of a micro-batch: there any will do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.functions import rand

from logboom.client.link.blocking_link import BlockingLink
from logboom.client.publish.stage_writer import StageWriter
from logboom.protocols.binary.messages import Publish
from logboom.spark import session
from logboom.spark.source import LogboomSource
from logboom.spark.write.sink import BATCH, StreamWriter, TableWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

WAIT_S = 600.0


class Steps:
    """Where things go wrong. Spark takes it along to every process."""

    def __init__(self, marks: str, faults: list[list[Any]]) -> None:
        self._marks = marks
        self._faults = faults

    def reach(self, topic: str, step: str, batch: int | None = None, task: int | None = None) -> None:
        for name, of_topic, at, of_batch, of_task, action in self._faults:
            is_here = (of_topic, at) == (topic, step) and (batch is None or of_batch in (None, batch))
            if is_here and of_task in (None, task):
                mark = os.path.join(self._marks, name)
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                go_wrong(action, mark)


def go_wrong(action: str, mark: str) -> None:
    if action == "fail":
        raise RuntimeError(f"made to fail: {os.path.basename(mark)}")
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "executor":  # Java has started a Python, of which this one was forked
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while not os.path.exists(f"{mark}.go") and time.monotonic() < deadline:
        time.sleep(0.005)


@contextmanager
def noticing(owner: type, method: str, before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    """While this goes on, in this process: tells of every call of a method, with what it is called with."""
    original = getattr(owner, method)

    def call(*arguments: Any) -> Any:
        before(*arguments)
        result = original(*arguments)
        after(*arguments)
        return result

    setattr(owner, method, call)
    try:
        yield
    finally:
        setattr(owner, method, original)


def pass_by(*_: Any) -> None:
    """Nothing is to be noticed here."""


Reach = Callable[..., None]
"""Of the topic that is written to."""


def stage(writer: TableWriter | StreamWriter, reach: Reach, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    context = TaskContext.get()
    assert context is not None
    said, task = context.getLocalProperty(BATCH), context.partitionId()
    batch = None if said is None else int(said)
    with noticing(StageWriter, "finish", lambda _: reach("opened", batch, task), pass_by):
        message = writer.write(batches)
    reach("staged", batch, task)
    return message


def publish(commit: Callable[[], None], reach: Reach, batch: int | None = None) -> None:
    def sent(link: BlockingLink, kind: int, head: Any = None, payload: Any = ()) -> None:
        if isinstance(head, Publish):
            reach("sent", batch)

    reach("told", batch)
    with noticing(BlockingLink, "send", pass_by, sent):
        commit()
    reach("answered", batch)


class SteppingTable(DataSourceArrowWriter):
    def __init__(self, writer: TableWriter, reach: Reach) -> None:
        self._writer = writer
        self._reach = reach

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._writer, self._reach, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish(lambda: self._writer.commit(messages), self._reach)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)


class SteppingStream(DataSourceStreamArrowWriter):
    def __init__(self, writer: StreamWriter, reach: Reach) -> None:
        self._writer = writer
        self._reach = reach

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._writer, self._reach, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        publish(lambda: self._writer.commit(messages, batchId), self._reach, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)


class SteppingSource(LogboomSource):
    """`logboom`, whose writers tell where they are. Registered, it goes before the one that Spark finds."""

    steps: Steps

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer = super().writer(schema, overwrite)
        assert isinstance(writer, TableWriter)
        return SteppingTable(writer, partial(self.steps.reach, self.options["topic"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return SteppingStream(writer, partial(self.steps.reach, self.options["topic"]))


def deal(frame: DataFrame, tasks: int) -> DataFrame:
    return frame.repartition(tasks, rand()) if tasks else frame


def count(spark: SparkSession, work: dict[str, Any]) -> None:
    found: dict[str, Any] = {}
    for access in ("server", "auto"):
        frame = spark.read.format("logboom").options(topic=work["topic"], access=access).load(work["path"])
        numbers = frame.selectExpr("cast(cast(value as string) as long) number", "partition")
        found[access] = list(numbers.selectExpr("count(*)", "sum(number)").collect()[0])
    found["few"] = frame.where("partition = 1 AND seqno < 5").count()
    Path(work["found"]).write_text(json.dumps(found))


def write_table(spark: SparkSession, work: dict[str, Any]) -> None:
    numbers = spark.range(0, work["rows"], 1, 4).selectExpr(
        "concat('k', id % 7) key", "concat('k', id % 7, ':', id) value"
    )
    frame = deal(numbers, work["tasks"])
    frame.write.format("logboom").mode("append").options(topic=work["topic"], batchBytes="1k").save(work["path"])


def start_stream(spark: SparkSession, work: dict[str, Any], steps: Steps) -> StreamingQuery:
    source = spark.readStream.format("logboom").options(**work["source"]).schema("key BINARY, value BINARY")
    frame = source.load(work["path"])
    if work["kind"] == "each":
        writer = frame.writeStream.foreachBatch(write_each(work, steps))
    else:
        writer = deal(frame, work["tasks"]).writeStream.format("logboom")
        writer = writer.options(topic=work["topic"], path=work["path"], batchBytes="1k")
    writer = writer.option("checkpointLocation", work["checkpoint"])
    return begin(writer.trigger(availableNow=True) if work["now"] else writer)


def begin(writer: DataStreamWriter) -> StreamingQuery:
    """Until its sources are there.

    Spark gives the process of each source ten seconds to begin, however busy a machine is: so one query begins after
    the other, and again where that was too short.
    """
    while True:
        query = writer.start()
        while query.isActive and "Initializing" in query.status["message"]:
            time.sleep(0.05)
        failure = query.exception()
        if failure is None or "failed to connect back" not in str(failure):
            return query


def write_each(work: dict[str, Any], steps: Steps) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch: int) -> None:
        for rest, topic in enumerate((work["topic"], f"{work['topic']}-odd")):
            if rest:
                steps.reach(work["topic"], "between", batch)
            part = deal(frame.where(f"crc32(key) % 2 = {rest}"), work["tasks"])
            writer = part.write.format("logboom").mode("append").option("topic", topic)
            writer.options(txnAppId=f"each/{topic}", txnVersion=batch).save(work["path"])

    return write


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    spark = session("job", job["master"], config=job["settings"])
    SteppingSource.steps = Steps(job["marks"], job["faults"])
    spark.dataSource.register(SteppingSource)
    at_once = {"count": count, "table": write_table}
    for work in job["works"]:
        if work["kind"] in at_once:
            at_once[work["kind"]](spark, work)
    queries = [start_stream(spark, work, SteppingSource.steps) for work in job["works"] if work["kind"] not in at_once]
    while spark.streams.active:
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
