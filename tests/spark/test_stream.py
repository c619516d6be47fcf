"""Streams in real Spark, from a node and from its files. How they survive crashes: test_stream_kills.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from logboom.spark import json_values
from support.nodes.process import NodeProcess
from support.spark.queries import Sink, Topics, finish, stream, take, wait_for, writer_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import SourceProgress


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield Topics(node)


def values(name: str, count: int, start: int = 0) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(start, start + count)]


@pytest.mark.parametrize("place", ["node", "files"])
def test_available_now_takes_what_is_there_in_steps_and_a_restart_goes_on(
    spark: SparkSession, topics: Topics, tmp_path: Path, place: str
) -> None:
    topic = f"steps-{place}"
    path = topics.path if place == "node" else str(topics.node.directory)
    topics.create(topic, 2)
    topics.write(topic, values("a", 60), 0)
    topics.write(topic, values("b", 30), 1)
    sink = Sink()
    sink.then = lambda batch: topics.write(topic, values("late", 1, batch), 0)
    take(stream(spark, path, topic=topic, maxRecordsPerTrigger="40"), tmp_path / "checkpoint", sink)
    assert sink.sizes == [39, 39, 12]
    assert sorted(sink.values) == sorted(values("a", 60) + values("b", 30))
    again = take(stream(spark, path, topic=topic, maxBytesPerTrigger="1g"), tmp_path / "checkpoint")
    assert again.values == values("late", 3)
    assert take(stream(spark, path, topic=topic), tmp_path / "checkpoint").values == []


def test_a_running_query_takes_what_comes_new_topics_and_a_node_that_was_restarted(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("live-1")
    topics.write("live-1", values("old", 10))
    sink = Sink()
    frame = stream(spark, topics.path, topicPattern="live-.*", startingSeqno="latest")
    query = writer_of(frame, sink, tmp_path / "checkpoint", processingTime="100 milliseconds").start()
    try:
        wait_for(query, lambda: bool(sink.batches))
        topics.write("live-1", values("new", 5))
        wait_for(query, lambda: sink.values == values("new", 5))
        topics.create("live-2", 3)
        topics.write("live-2", values("other", 5), 2)
        wait_for(query, lambda: len(sink.values) == 10)
        topics.node.kill()
        topics.node.start()
        topics.write("live-1", values("then", 5))
        wait_for(query, lambda: len(sink.values) == 15)
        wait_for(query, lambda: any(_ends(entry.sources[0]) == [15, 20] for entry in query.recentProgress))
    finally:
        query.stop()
    assert sorted(sink.values) == sorted(values("new", 5) + values("other", 5) + values("then", 5))
    found = [entry.sources[0] for entry in query.recentProgress]
    last = next(source for source in reversed(found) if source.numInputRows)
    assert (_ends(last), last.numInputRows) == ([15, 20], 5)
    assert json.loads(last.latestOffset)["topics"]["live-2"]["seqnos"] == {"0": 0, "1": 0, "2": 5}


def _ends(source: SourceProgress) -> list[int]:
    """Where a micro-batch began and ended in live-1."""
    offsets = (json.loads(text or "null") or {} for text in (source.startOffset, source.endOffset))
    return [offset.get("topics", {}).get("live-1", {}).get("seqnos", {}).get("0") for offset in offsets]


def test_the_progress_shows_how_much_is_still_to_come(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("lag")
    topics.write("lag", values("x", 50))
    frame = stream(spark, topics.path, topic="lag", maxRecordsPerTrigger="30")
    query = writer_of(frame, Sink(), tmp_path / "checkpoint", availableNow=True).start()
    finish(query)
    sources = [entry.sources[0] for entry in query.recentProgress if entry.sources[0].numInputRows]
    found = [
        [json.loads(text)["topics"]["lag"]["seqnos"]["0"] for text in (each.endOffset, each.latestOffset)]
        for each in sources
    ]
    assert found == [[30, 50], [50, 50]]


@pytest.mark.parametrize("topic", ["trimmed", "deleted", "again"])
def test_what_is_gone_stops_the_query_with_its_seqnos_or_is_passed_over_when_asked(
    spark: SparkSession, topics: Topics, tmp_path: Path, topic: str
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-beside")
    topics.write(topic, values("read", 20))
    options = {"topicPattern": f"{topic}.*"}
    take(stream(spark, topics.path, **options), tmp_path / "checkpoint")
    topics.write(topic, values("unread", 20))
    topics.write(f"{topic}-beside", values("beside", 5))
    if topic == "trimmed":
        topics.ask(lambda broker: broker.trim(topic, 0, 31))
        said, left = "trimmed/0: seqnos 20 to 30 are not there", values("unread", 9, 11)
    else:
        topics.delete(topic)
        said, left = f"topic '{topic}' with id", []
    if topic == "again":
        topics.create(topic)
        topics.write(topic, values("anew", 3))
        said, left = "topic 'again' is another one now", values("anew", 3)
    with pytest.raises(StreamingQueryException) as caught:
        take(stream(spark, topics.path, **options), tmp_path / "checkpoint")
    assert said in str(caught.value)
    if topic != "trimmed":
        assert "seqno 20 of partition 0" in str(caught.value)
    frame = stream(spark, topics.path, **options, failOnDataLoss="false")
    assert sorted(take(frame, tmp_path / "checkpoint").values) == sorted(left + values("beside", 5))


def test_a_checkpoint_of_another_source_is_refused(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("mine")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    finish(writer_of(rate, Sink(), tmp_path / "checkpoint", once=True).start())
    with pytest.raises(StreamingQueryException, match="holds no offsets of a logboom stream"):
        take(stream(spark, topics.path, topic="mine"), tmp_path / "checkpoint")


def test_a_stream_selects_records_and_columns_and_reads_json(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("chosen")
    for number in range(12):
        value, channel = b'{"n": %d, "rest": "x"}' % number, f"room/{number % 2}"
        tags = ["third"] if number % 3 == 0 else ["other"]
        topics.write("chosen", [value], channel=channel, tags=tags, key=b"k%d" % (number % 2))
    frame = stream(
        spark, topics.path, "seqno BIGINT, value BINARY", topic="chosen", tag="third", channel="room/0", key="k0"
    )
    sink = take(json_values(frame, "n INT"), tmp_path / "checkpoint")
    assert [(seqno, value.n) for seqno, value in sink.rows] == [(0, 0), (6, 6)]


def test_once_takes_everything_whatever_the_limits(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("once")
    topics.write("once", values("x", 50))
    sink = Sink()
    frame = stream(spark, topics.path, topic="once", maxRecordsPerTrigger="7")
    finish(writer_of(frame, sink, tmp_path / "checkpoint", once=True).start())
    assert sink.sizes == [50]
