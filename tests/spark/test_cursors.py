"""Cursors that follow streams: never ahead of the sink, and exact in the end."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

import logboom.spark
from logboom.spark import cursors
from logboom.spark.cursors import CursorListener
from support.nodes.process import NodeProcess
from support.spark.queries import Sink, Topics, finish, stream, wait_for, writer_of
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield Topics(node)


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_cursors_are_never_ahead_and_exact_in_the_end_each_its_own(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("both", 2)
    topics.write("both", values(30), 0)
    topics.write("both", values(30), 1)
    seen: dict[str, list[int]] = {"small": [], "large": []}
    queries = []
    for name, limit in (("small", "20"), ("large", "40")):
        sink = Sink()
        frame = stream(spark, topics.path, topic="both", cursor=name, maxRecordsPerTrigger=limit)

        def look(batch: int, sink: Sink = sink, name: str = name) -> None:
            """While the sink has this batch and Spark does not know it yet."""
            done = sum(len(rows) for number, rows in sink.batches.items() if number < batch)
            assert sum(topics.cursor(name, "both").values()) <= done
            seen[name].append(done)

        sink.then = look
        queries.append(logboom.spark.start(writer_of(frame, sink, tmp_path / name, availableNow=True)))
    for query in queries:
        finish(query)
    assert seen == {"small": [0, 20, 40], "large": [0, 40]}
    for name in seen:
        wait_until(lambda name=name: topics.cursor(name, "both") == {0: 30, 1: 30})  # type: ignore[misc]
    listed = subprocess.run(
        [sys.executable, "-m", "logboom", "cursor", "list", "both", "-s", topics.address, "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = {(each["cursor"], each["partition"]): each for each in json.loads(listed.stdout)}
    assert set(found) == {(name, partition) for name in seen for partition in (0, 1)}
    assert {each["lag"] for each in found.values()} == {0}


def test_a_session_that_nobody_follows_has_cursors_one_batch_behind(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("plain")
    topics.write("plain", values(50))
    sink = Sink()
    stood: list[dict[int, int]] = []
    sink.then = lambda batch: stood.append(topics.cursor("plain", "plain"))
    frame = stream(spark.newSession(), topics.path, topic="plain", cursor="plain", maxRecordsPerTrigger="10")
    finish(writer_of(frame, sink, tmp_path / "checkpoint", availableNow=True).start())
    assert stood == [{}, {0: 10}, {0: 20}, {0: 30}, {0: 40}]
    assert topics.cursor("plain", "plain") == {0: 40}


def test_a_stream_that_waits_at_the_end_has_a_cursor_there(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("quiet")
    topics.write("quiet", values(7))
    frame = stream(spark, topics.path, topic="quiet", cursor="waiting", startingSeqno="latest")
    query = writer_of(frame, Sink(), tmp_path / "checkpoint").start()
    try:
        wait_for(query, lambda: topics.cursor("waiting", "quiet") == {0: 7})
    finally:
        query.stop()


def test_a_session_is_followed_once_by_whatever_object_it_is_known(spark: SparkSession) -> None:
    from pyspark.sql import SparkSession

    before = len(cursors._followed)
    for session in (spark, SparkSession.getActiveSession(), spark.range(1).sparkSession):
        assert session is not None
        cursors.follow(session)
    assert len(cursors._followed) == before


def progress(topics: Topics, topic: str, seqno: int) -> QueryProgressEvent:
    info = topics.ask(lambda broker: broker.describe_topic(topic))
    offset = {
        "topics": {topic: {"id": info.id, "seqnos": {"0": seqno}, "terms": {}}},
        "cursor": {"name": "away", "servers": topics.address},
    }
    return event(json.dumps(offset))


def event(*ends: str) -> QueryProgressEvent:
    """Of a query with so many sources."""
    source = {"description": "logboom", "startOffset": None, "latestOffset": None}
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                "id": "8c0ea6d5-3f5e-4a43-a5b1-9dd2c3f2e2d1",
                "runId": "8c0ea6d5-3f5e-4a43-a5b1-9dd2c3f2e2d2",
                "name": None,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "batchId": 1,
                "batchDuration": 1,
                "durationMs": {},
                "eventTime": {},
                "stateOperators": [],
                "sources": [
                    {
                        **source,
                        "endOffset": end,
                        "numInputRows": 1,
                        "inputRowsPerSecond": 1.0,
                        "processedRowsPerSecond": 1.0,
                        "metrics": {},
                    }
                    for end in ends
                ],
                "sink": {"description": "sink", "numOutputRows": 1, "metrics": {}},
                "numInputRows": 1,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
                "observedMetrics": {},
            }
        }
    )


def ended() -> QueryTerminatedEvent:
    run = "8c0ea6d5-3f5e-4a43-a5b1-9dd2c3f2e2d2"
    return QueryTerminatedEvent.fromJson({"id": run, "runId": run, "exception": None, "errorClassOnException": None})


def test_a_node_that_is_away_is_told_when_it_is_back(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cursors, "PATIENCE_S", 3.0)
    topics.create("away")
    topics.create("gone")
    topics.write("away", values(30))
    events = [progress(topics, "away", seqno) for seqno in (10, 20, 30)]
    listener = CursorListener()
    listener.onQueryProgress(events[0])
    assert topics.cursor("away", "away") == {0: 10}
    topics.node.stop()
    with caplog.at_level(logging.WARNING, "logboom.spark"):
        listener.onQueryProgress(events[1])
        listener.onQueryProgress(events[2])
    assert ["cursor away stays behind" in record.message for record in caplog.records] == [True]
    topics.node.start()
    listener.onQueryTerminated(ended())
    assert topics.cursor("away", "away") == {0: 30}
    lost = progress(topics, "gone", 0)
    topics.delete("gone")
    listener.onQueryProgress(lost)
    listener.onQueryTerminated(ended())


def test_a_cursor_that_is_ahead_stays_there_and_the_query_hears_of_it_once(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cursors, "PATIENCE_S", 60.0)
    topics.create("ahead")
    topics.write("ahead", values(30))
    listener = CursorListener()
    with caplog.at_level(logging.WARNING, "logboom.spark"):
        for seqno in (20, 5, 10, 25):
            listener.onQueryProgress(progress(topics, "ahead", seqno))
    assert ["is ahead of its stream" in record.message for record in caplog.records] == [True]
    listener.onQueryTerminated(ended())
    assert topics.cursor("away", "ahead") == {0: 25}


def test_sources_of_one_query_may_share_a_cursor(topics: Topics) -> None:
    ends = []
    for topic, count in (("left", 10), ("right", 20)):
        topics.create(topic)
        topics.write(topic, values(count))
        ends.append(progress(topics, topic, count).progress.sources[0].endOffset)
    listener = CursorListener()
    listener.onQueryProgress(event(*ends))
    assert (topics.cursor("away", "left"), topics.cursor("away", "right")) == ({0: 10}, {0: 20})
    listener.onQueryTerminated(ended())


@pytest.mark.parametrize("offset", ["", "7", "null", '{"cursor": 5}', '{"cursor": {}, "topics": {}}', "no JSON"])
def test_what_other_sources_call_an_offset_is_left_alone(offset: str, caplog: pytest.LogCaptureFixture) -> None:
    CursorListener().onQueryProgress(event(offset))
    assert caplog.records == [], "nobody was told, and nobody is missed"
