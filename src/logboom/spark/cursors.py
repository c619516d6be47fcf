"""Cursors that follow streams: what Spark says of a query's progress goes to the node, so that lag is seen there.

A stream with the option `cursor` has its name in every offset. A listener of the session finds it in the progress that
Spark reports after each micro-batch, when the batch is done: so a cursor is never ahead. Without the listener Spark
tells the source itself, one micro-batch late.

A node that cannot be reached holds up no query: its cursors stay behind and catch up when it is there again.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from logboom.client.node_catalog import NodeCatalog
from logboom.errors import ConfigError, CursorMovedBack, LogboomError, ReadOnlyReplica, Unavailable
from logboom.spark.option_table import recall
from logboom.spark.read.offsets import Log, OffsetMark, Offsets
from logboom.spark.read.stream import commit_cursor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PATIENCE_S: Final = 5.0
"""How long a node is looked for: whoever else listens to this session waits."""
REST_S: Final = 5.0
"""How long a node that did not answer is left alone."""

UPDATES: Final = (
    "Spark lets no Python sink take outputMode('update'): write each micro-batch with foreachBatch, txnAppId and "
    "txnVersion; docs/howto/spark-write.md, 'A changelog of an aggregation', has the lines"
)
"""What Spark does not say where it refuses a query."""

logger = logging.getLogger("logboom.spark")

_followed: set[str] = set()


def start(writer: DataStreamWriter, path: str | None = None) -> StreamingQuery:
    """As `writer.start(path)`, and the cursors of its sources follow exactly.

    query = start(events.writeStream.format("delta").option("checkpointLocation", "…"))
    """
    session = getattr(writer, "_spark", None) or getattr(writer, "_session", None)
    assert session is not None
    follow(session)
    return writer.start(path)


def follow(spark: SparkSession) -> None:
    """Let the cursors of all streams of this session follow them. Once is enough."""
    name = _name(spark)
    if name not in _followed:
        spark.streams.addListener(CursorListener())
        _followed.add(name)


def _name(spark: SparkSession) -> str:
    """Of the session behind the object: Spark makes several objects for one."""
    inner = getattr(spark, "_jsparkSession", None)
    if inner is None:  # at a Spark Connect server
        return str(getattr(spark, "_session_id", id(spark)))
    return f"{spark.sparkContext.applicationId} {inner.hashCode()}"


class CursorListener(StreamingQueryListener):
    def __init__(self) -> None:
        self._catalogs: dict[str, NodeCatalog] = {}
        self._owed: dict[tuple[str, str], dict[Log, OffsetMark]] = {}
        """By servers and cursor: what the node has not been told yet."""
        self._told: dict[tuple[str, str], dict[Log, OffsetMark]] = {}
        self._ahead: set[tuple[str, str]] = set()
        """Of these it was said that another reader is further on."""
        self._resting: dict[str, float] = {}
        self._lock = Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        with self._lock:
            self._tell()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        with self._lock:
            for source in event.progress.sources:
                self._note(source.endOffset)
            self._tell()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if "logboom does not support Update mode" in (event.exception or ""):
            logger.error("%s", UPDATES)
        with self._lock:
            self._resting.clear()
            self._tell()
            self._told.clear()  # the next query may stand elsewhere
            self._ahead.clear()
            for catalog in self._catalogs.values():
                with suppress(LogboomError):
                    catalog.close()
            self._catalogs.clear()

    def _note(self, text: str | None) -> None:
        """Whatever another source calls an offset is none of our business."""
        try:
            data = json.loads(text or "null")
            if not isinstance(data, dict) or "cursor" not in data:
                return
            cursor, marks = (data["cursor"]["servers"], data["cursor"]["name"]), Offsets.from_json(data).marks
        except (ValueError, KeyError, TypeError, ConfigError):
            return
        told, owed = self._told.get(cursor, {}), self._owed.setdefault(cursor, {})
        for log, mark in marks.items():  # another source may have the same cursor, for other topics
            if told.get(log) == mark:
                owed.pop(log, None)
            else:
                owed[log] = mark

    def _tell(self) -> None:
        for (servers, name), marks in list(self._owed.items()):
            if self._resting.get(servers, 0.0) > time.monotonic():
                continue
            try:
                if servers not in self._catalogs:
                    self._catalogs[servers] = NodeCatalog(recall(servers), patience_s=PATIENCE_S)
                commit_cursor(self._catalogs[servers], name, marks)
            except CursorMovedBack as error:
                if (servers, name) not in self._ahead:
                    logger.warning("cursor %s is ahead of its stream, and stays there: %s", name, error)
                self._ahead.add((servers, name))
            except LogboomError as error:
                logger.warning("cursor %s stays behind its stream: %s", name, error)
                if isinstance(error, ReadOnlyReplica):  # the next time, one that takes it may be there
                    self._catalogs.pop(servers).close()
                if isinstance(error, Unavailable | ReadOnlyReplica):
                    self._resting[servers] = time.monotonic() + REST_S
                    continue
            self._told.setdefault((servers, name), {}).update(marks)
            del self._owed[servers, name]
