"""Cursors that follow streams: what Spark says of a query's progress goes to the node, so that lag is seen there.

A stream with the option `cursor` has its name in every offset. A listener of the session finds it in the progress that
Spark reports after each micro-batch, when the batch is done: so a cursor is never ahead. Without the listener Spark
tells the source itself, one micro-batch late.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from logboom.client.catalog import NodeCatalog
from logboom.errors import ConfigError, LogboomError
from logboom.spark.offsets import Offsets
from logboom.spark.stream import commit_cursor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PATIENCE_S: Final = 5.0
"""How long a node is looked for: whoever else listens to this session waits."""

logger = logging.getLogger("logboom.spark")

_followed: WeakSet[Any] = WeakSet()


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
    if spark not in _followed:
        spark.streams.addListener(CursorListener())
        _followed.add(spark)


class CursorListener(StreamingQueryListener):
    def __init__(self) -> None:
        self._catalogs: dict[str, NodeCatalog] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._lock = Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._lock:
            for catalog in self._catalogs.values():
                with suppress(LogboomError):
                    catalog.close()
            self._catalogs.clear()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        for source in event.progress.sources:
            try:
                self._follow(source.endOffset)
            except LogboomError as error:
                logger.warning("a cursor stays behind its stream: %s", error)

    def _follow(self, text: str | None) -> None:
        """Whatever another source calls an offset is none of our business."""
        try:
            data = json.loads(text or "null")
            offsets = Offsets.from_json(data) if isinstance(data, dict) and "cursor" in data else None
        except (ValueError, ConfigError):
            return
        if offsets is None or offsets.cursor is None or text is None:
            return
        name, servers = offsets.cursor["name"], offsets.cursor["servers"]
        with self._lock:
            if self._told.get((servers, name)) == text:
                return
            if servers not in self._catalogs:
                self._catalogs[servers] = NodeCatalog(servers, patience_s=PATIENCE_S)
            commit_cursor(self._catalogs[servers], name, offsets.marks)
            self._told[servers, name] = text
