"""The data source `logboom` as a sink: every row once, or none.

Each attempt of a task puts its rows in a stage of its own and says in its message which; nobody sees them there. When
all tasks are done, the driver publishes the stages of the messages, all at once, and those of other attempts are thrown
away. What a publish is known by makes a repeat harmless:

    a stream        spark/ID of the query, and the number of the micro-batch
    a table         a random name; with txnAppId and txnVersion, those

Spark tells the id of the query to tasks alone, so it comes with their messages. A micro-batch without rows is not
published: whatever attempt of it comes first with rows is the one that counts. Where the checkpoint can be read a
digest of what it says of the micro-batch goes with the number: another micro-batch of the same number is refused, not
taken for a repeat. Where it cannot, that is logged, and the number alone counts.

A topic is made by who writes to it first. What a stream, or a name, has written to before is not made again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from msgspec.msgpack import Decoder
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from logboom.client.link.calls import Calls
from logboom.client.publish.publish_calls import PUBLISH_TIMEOUT_S, publish
from logboom.client.publish.stage_writer import StageWriter
from logboom.client.values import Discard, ListStages, PublishKey, Receipt, StageInfo
from logboom.errors import ConfigError, KeyMismatch, LogboomError, TopicDeleted, TopicError, TopicRecreated
from logboom.spark.runtime.tidiness import begin_task, leave_quietly
from logboom.spark.runtime.worker_parcel import WorkerParcel
from logboom.spark.write.layout import ColumnLayout
from logboom.spark.write.micro_batch import digest_of
from logboom.spark.write.options import WriteOptions
from logboom.spark.write.rows import RowWriter, gather

if TYPE_CHECKING:
    import pyarrow as pa

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Where Spark tells a task what it is for."""
CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
"""And, where the session says so, in which directory the checkpoints of queries with a name are."""
SWEEP_S: Final = 5.0
"""How long the node is asked to throw stages away. Those it does not hear of expire."""

logger = logging.getLogger("logboom.spark")

_stages = Decoder(list[StageInfo])
_count = Decoder(int)

leave_quietly()  # the process that commits begins no task


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What an attempt of a task has done."""

    receipt: Receipt | None
    """None where it had no rows."""
    note: str
    """What all stages of the same write carry."""
    query: str | None
    checkpoints: str | None = None
    """What the session has for CHECKPOINTS."""


Messages = Sequence[WriterCommitMessage | None]
"""None of a task that has failed."""


class TableWriter(WorkerParcel, DataSourceArrowWriter):
    """Writes a DataFrame. The same one, copied, is in all tasks and in the driver."""

    def __init__(self, options: WriteOptions, layout: ColumnLayout) -> None:
        self._options = options
        self._layout = layout
        self._name = f"spark-write/{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        receipt = _stage(iterator, self._options, self._layout, self._name, self._options.app)
        return Staged(receipt, self._name, None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        app, version = self._options.app, self._options.version
        if app is not None:  # without rows too: this version has been
            _publish(self._options, PublishKey(app, version, digest=self._digest(version)), messages)
        elif _receipts(messages):
            _publish(self._options, PublishKey(self._name, lasting=False), messages)

    def _digest(self, version: int) -> str:
        """Of the micro-batch that is written with foreachBatch, where the user says in which checkpoint it is."""
        location = self._options.checkpoint
        if location is None:
            return ""
        try:
            return digest_of(location, version)
        except FileNotFoundError:
            raise ConfigError(
                "checkpointLocation", f"{location} has no micro-batch {version}: it is to be that of txnVersion"
            ) from None
        except OSError as error:
            return _go_without(location, error)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _sweep(self._options, self._name)


class StreamWriter(WorkerParcel, DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes one for the tasks of each, and another one to commit it."""

    def __init__(self, options: WriteOptions, layout: ColumnLayout) -> None:
        self._options = options
        self._layout = layout
        self._run = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY) if context else None
        batch = context.getLocalProperty(BATCH) if context else None
        checkpoints = context.getLocalProperty(CHECKPOINTS) if context else None
        note = f"spark/{query}/{batch}/{self._run}"
        receipt = _stage(iterator, self._options, self._layout, note, _name(query))
        return Staged(receipt, note, query, checkpoints)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if _receipts(messages):
            ((query, checkpoints),) = {
                (message.query, message.checkpoints) for message in messages if isinstance(message, Staged)
            }
            assert query is not None, "Spark has told no task which query it is for"
            options = self._options
            if options.checkpoint is None and options.query_name is not None and checkpoints is not None:
                options = replace(options, checkpoint=f"{checkpoints.rstrip('/')}/{options.query_name}")
            digest = "" if options.checkpoint is None else _digest(options.checkpoint, batchId, query)
            _publish(options, PublishKey(_name(query), batchId, digest=digest), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for note in _notes(messages):
            _sweep(self._options, note)


def _digest(location: str, number: int, query: str) -> str:
    try:
        return digest_of(location, number, query)
    except OSError as error:
        return _go_without(location, error)


def _go_without(location: str, error: OSError) -> str:
    logger.warning("checkpoint %s cannot be compared, so a copy of it would not be noticed: %s", location, error)
    return ""


def _name(query: str | None) -> str:
    return f"spark/{query}"


def _stage(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, layout: ColumnLayout, note: str, name: str | None
) -> Receipt | None:
    """None where there are no rows. `name` is what they are published under, where that is one that lasts."""
    begin_task()
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    stage: StageWriter | None = None
    try:
        writer: RowWriter | None = None
        for batch in gather(batches, layout):
            if stage is None or writer is None:
                stage = StageWriter(
                    options.servers,
                    codec=options.codec,
                    batch_bytes=options.batch_bytes,
                    timeout_s=options.timeout_s,
                    note=note,
                    create=options.create != "never",
                )
                if name is not None and options.create != "always":
                    stage.keep_to(name)
                writer = RowWriter(stage, layout, task)
            writer.write(batch)
        return None if stage is None else stage.finish()
    except BaseException as error:
        if stage is not None:
            stage.discard()
        if isinstance(error, LogboomError):
            # Spark shows the trace before what has happened
            raise _explained(error, name).with_traceback(None) from None
        raise


def _explained(error: LogboomError, name: str | None) -> LogboomError:
    """What became of a topic, and what to do."""
    say = "option('createTopic', 'always') goes on in a new one"
    if isinstance(error, TopicDeleted):
        told = f"topic {error.name!r}, which {name} has written to before, was deleted: {say}"
    elif isinstance(error, TopicRecreated):
        told = f"topic {error.name!r} was deleted and made again since {name} has written to it: {say}"
    else:
        return error
    return TopicError(error.name, told)


def _receipts(messages: Messages) -> list[Receipt]:
    """Of the tasks that had rows, in their order."""
    return [message.receipt for message in messages if isinstance(message, Staged) and message.receipt is not None]


def _notes(messages: Messages) -> set[str]:
    return {message.note for message in messages if isinstance(message, Staged)}


def _publish(options: WriteOptions, key: PublishKey, messages: Messages) -> None:
    try:
        done = publish(options.servers, key, _receipts(messages), max(options.timeout_s, PUBLISH_TIMEOUT_S))
    except KeyMismatch as error:
        for note in _notes(messages):
            _sweep(options, note)
        raise _other_micro_batch(error, options).with_traceback(None) from None
    except LogboomError as error:
        raise error.with_traceback(None) from None
    if done.repeat:
        logger.warning("%s %d was written before: nothing is written now", done.name, done.number)
    for note in _notes(messages):
        _sweep(options, note)


def _other_micro_batch(error: KeyMismatch, options: WriteOptions) -> KeyMismatch:
    """The same, in words of Spark."""
    error.args = (
        f"micro-batch {error.number} of checkpoint {options.checkpoint} (digest {error.digest}) is no repeat of "
        f"{error.name}, micro-batch {error.published_number} (digest {error.published_digest}), which was published "
        "last: this checkpoint is a copy, or an earlier state, of one that is in use. Nothing of this micro-batch is "
        "written. Go on with the checkpoint that was used last, or make this one a query of its own: another UUID as "
        "the id in its file metadata, or with foreachBatch another txnAppId",
    )
    return error


def _sweep(options: WriteOptions, note: str) -> None:
    """Throw away what attempts of the same write have left that are not in any message."""
    calls = Calls(options.servers)
    try:
        with suppress(LogboomError):
            found = calls.ask(ListStages(), _stages, SWEEP_S)
            left = [stage.id for stage in found if stage.note == note and stage.state != "publishing"]
            if left:
                calls.ask(Discard(left), _count, SWEEP_S)
    finally:
        calls.close()
