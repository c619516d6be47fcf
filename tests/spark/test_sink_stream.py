"""Streams into topics, in real Spark: every record once, over restarts too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException

from support.nodes.process import NodeProcess
from support.spark.content import read_rows
from support.spark.queries import PATIENCE_S, Topics, finish, stream, wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield Topics(node)


def values(start: int, until: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, until)]


def values_in(topics: Topics, topic: str, partitions: int = 1) -> list[bytes]:
    return [row[5] for row in read_rows(topics.node.directory, topic, partitions)]


def number_of(topics: Topics, name: str) -> int:
    """Under which number something was published last."""
    (key,) = topics.ask(lambda broker: broker.list_keys(name))
    return key.number


def writer_of(frame: DataFrame, topic: str, checkpoint: Path, **options: str) -> DataStreamWriter:
    return frame.writeStream.format("logboom").options(topic=topic, checkpointLocation=str(checkpoint), **options)


def copy(spark: SparkSession, topics: Topics, source: str, target: str, checkpoint: Path, **options: str) -> str:
    """All that is there, once; gives the name under which it is published."""
    frame = stream(spark, topics.path, topic=source, **options)
    query = writer_of(frame, target, checkpoint).trigger(availableNow=True).start(topics.path)
    finish(query)
    return f"spark/{query.id}"


def uncommit(checkpoint: Path) -> None:
    """As where Spark died after the sink had everything and before it was written down."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_stream_from_topic_to_topic_goes_on_where_it_was(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("from", 2)
    topics.create("to", 2)
    checkpoint = tmp_path / "checkpoint"
    topics.write("from", values(0, 60), 0)
    topics.write("from", values(60, 100), 1)
    name = copy(spark, topics, "from", "to", checkpoint, maxRecordsPerTrigger="40")
    assert sorted(values_in(topics, "to", 2)) == sorted(values(0, 100))
    before = number_of(topics, name)
    assert before >= 2
    topics.write("from", values(100, 130), 0)
    assert copy(spark, topics, "from", "to", checkpoint) == name, "the id of a query is that of its checkpoint"
    assert sorted(values_in(topics, "to", 2)) == sorted(values(0, 130))
    assert number_of(topics, name) == before + 1
    copy(spark, topics, "from", "to", checkpoint)
    assert len(values_in(topics, "to", 2)) == 130


def test_a_micro_batch_that_comes_again_is_not_written_again(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("again")
    checkpoint = tmp_path / "checkpoint"
    for part in range(3):
        topics.write("again", values(part * 10, part * 10 + 10))
        name = copy(spark, topics, "again", "once", checkpoint)
    uncommit(checkpoint)
    topics.write("again", values(30, 40))
    assert copy(spark, topics, "again", "once", checkpoint) == name
    assert values_in(topics, "once") == values(0, 40)
    assert topics.ask(lambda broker: broker.list_stages()) == []


def test_a_checkpoint_that_was_deleted_is_another_query(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("anew")
    topics.write("anew", values(0, 10))
    first = copy(spark, topics, "anew", "twice", tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")
    assert copy(spark, topics, "anew", "twice", tmp_path / "checkpoint") != first
    assert values_in(topics, "twice") == values(0, 10) * 2


def test_another_micro_batch_of_a_copied_checkpoint_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("shared")
    original, copied = tmp_path / "original", tmp_path / "copied"
    topics.write("shared", values(0, 10))
    name = copy(spark, topics, "shared", "shared-to", original)
    shutil.copytree(original, copied)
    topics.write("shared", values(10, 20))
    copy(spark, topics, "shared", "shared-to", original)
    topics.write("shared", values(20, 30))
    with pytest.raises(StreamingQueryException) as caught:
        copy(spark, topics, "shared", "shared-to", copied)
    said = str(caught.value)
    assert f"micro-batch 1 of checkpoint {copied}" in said
    assert f"{name}, micro-batch 1" in said
    assert "is no repeat" in said
    digests = [blake2b((place / "offsets" / "1").read_bytes(), digest_size=8) for place in (copied, original)]
    assert all(digest.hexdigest() in said for digest in digests), "both are named"
    assert values_in(topics, "shared-to") == values(0, 20)
    copy(spark, topics, "shared", "shared-to", original)
    assert values_in(topics, "shared-to") == values(0, 30)
    with pytest.raises(StreamingQueryException, match=r"micro-batch 1 of checkpoint .* micro-batch 2"):
        copy(spark, topics, "shared", "shared-to", copied)
    assert topics.ask(lambda broker: broker.list_stages()) == []
    (copied / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    (copied / ".metadata.crc").unlink(missing_ok=True)
    copy(spark, topics, "shared", "shared-to", copied)
    assert values_in(topics, "shared-to") == values(0, 30) + values(10, 30), "with an id of its own it is its own query"


def test_a_copy_of_a_checkpoint_that_the_session_names_is_noticed_too(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("by-name")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))

    def run() -> None:
        frame = stream(spark, topics.path, topic="by-name")
        writer = frame.writeStream.format("logboom").option("topic", "by-name-to").queryName("named one")
        finish(writer.trigger(availableNow=True).start(topics.path))

    try:
        topics.write("by-name", values(0, 10))
        run()
        shutil.copytree(tmp_path / "named one", tmp_path / "kept")
        topics.write("by-name", values(10, 20))
        run()
        shutil.rmtree(tmp_path / "named one")
        (tmp_path / "kept").rename(tmp_path / "named one")
        topics.write("by-name", values(20, 30))
        with pytest.raises(StreamingQueryException, match=f"micro-batch 1 of checkpoint {tmp_path}/named one"):
            run()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert values_in(topics, "by-name-to") == values(0, 20)


def test_a_write_of_each_batch_that_names_the_checkpoint_is_compared(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("each-shared")

    def run(checkpoint: Path) -> None:
        def write(frame: DataFrame, batch: int) -> None:
            writer = frame.write.format("logboom").mode("append").option("topic", "each-to")
            writer = writer.options(txnAppId="each-shared", txnVersion=batch)
            writer.option("checkpointLocation", str(checkpoint)).save(topics.path)

        frame = stream(spark, topics.path, topic="each-shared")
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        finish(writer.trigger(availableNow=True).start())

    original, copied = tmp_path / "original", tmp_path / "copied"
    topics.write("each-shared", values(0, 10))
    run(original)
    shutil.copytree(original, copied)
    uncommit(copied)
    run(copied)
    topics.write("each-shared", values(10, 20))
    run(original)
    topics.write("each-shared", values(20, 30))
    with pytest.raises(StreamingQueryException, match=r"micro-batch 1 of checkpoint .* is no repeat of .*each-shared"):
        run(copied)
    run(original)
    assert values_in(topics, "each-to") == values(0, 30)


def test_a_topic_that_a_stream_has_written_to_is_not_made_again_unless_it_is_said(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("kept")
    checkpoint = tmp_path / "checkpoint"

    def run(**options: str) -> None:
        writer = writer_of(stream(spark, topics.path, topic="kept"), "gone", checkpoint, **options)
        finish(writer.trigger(availableNow=True).start(topics.path))

    topics.write("kept", values(0, 10))
    with pytest.raises(StreamingQueryException, match="there is no topic 'gone'"):
        run(createTopic="never")
    run()
    topics.ask(lambda broker: broker.delete_topic("gone"))
    topics.write("kept", values(10, 20))
    with pytest.raises(StreamingQueryException, match=r"'gone', which .* has written to before, was deleted.*create"):
        run()
    assert "gone" not in [info.name for info in topics.ask(lambda broker: broker.list_topics())]
    topics.create("gone")
    with pytest.raises(StreamingQueryException, match=r"'gone' was deleted and made again .*createTopic"):
        run()
    run(createTopic="always")
    topics.write("kept", values(20, 30))
    run()
    assert values_in(topics, "gone") == values(10, 30)


def test_a_running_stream_survives_a_node_that_is_killed(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("live", 2)
    topics.create("copied", 2)
    frame = stream(spark, topics.path, topic="live", access="server")
    query = (
        writer_of(frame, "copied", tmp_path / "checkpoint")
        .trigger(processingTime="100 milliseconds")
        .start(topics.path)
    )
    try:
        for part in range(4):
            topics.write("live", values(part * 50, part * 50 + 50))
            if part % 2:
                topics.node.kill()
                topics.node.start()
            wait_for(query, lambda part=part: len(values_in(topics, "copied", 2)) >= part * 50 + 50)  # type: ignore[misc]
        topics.write("live", values(200, 210))
        wait_for(query, lambda: len(values_in(topics, "copied", 2)) >= 210)
    finally:
        query.stop()
    assert sorted(values_in(topics, "copied", 2)) == sorted(values(0, 210))


def test_several_writes_of_each_batch_happen_once_with_a_name_and_the_batch_as_version(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("each", 2)
    topics.write("each", values(0, 40))
    fail_at = {1}

    def write(frame: DataFrame, batch: int) -> None:
        frame.persist()
        for parity, name in enumerate(["even", "odd"]):
            part = frame.where(f"cast(cast(value as string) as int) % 2 = {parity}")
            writer = part.write.format("logboom").mode("append").option("topic", name)
            writer.options(txnAppId=f"split/{name}", txnVersion=batch).save(topics.path)
            if batch in fail_at:
                fail_at.remove(batch)
                raise RuntimeError("between two writes")
        frame.unpersist()

    def run() -> None:
        frame = stream(spark, topics.path, topic="each", maxRecordsPerTrigger="10")
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_S)

    with pytest.raises(StreamingQueryException, match="between two writes"):
        run()
    run()
    found = [sorted(map(int, values_in(topics, name))) for name in ("even", "odd")]
    assert found == [list(range(0, 40, 2)), list(range(1, 40, 2))]


def test_a_stream_without_rows_publishes_nothing(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("sifted")
    topics.write("sifted", values(0, 20))
    frame = stream(spark, topics.path, topic="sifted").where("false")
    query = writer_of(frame, "sieve", tmp_path / "checkpoint").trigger(availableNow=True).start(topics.path)
    finish(query)
    assert topics.ask(lambda broker: broker.list_keys(f"spark/{query.id}")) == []


def test_mistakes_stop_the_query_and_name_the_row(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("source")
    topics.write("source", values(0, 20))

    def said(frame: DataFrame, mode: str = "append", **options: str) -> str:
        checkpoint = tmp_path / str(len(list(tmp_path.iterdir())))
        writer = writer_of(frame, "target", checkpoint, **options).outputMode(mode).trigger(availableNow=True)
        with pytest.raises(StreamingQueryException) as caught:
            finish(writer.start(topics.path))
        return str(caught.value)

    source = stream(spark, topics.path, topic="source")
    topics.create("target")
    assert "mode: overwrite is refused" in said(source.groupBy("value").count().select("value"), "complete")
    assert "txnAppId: is for writes of tables" in said(source, txnAppId="a", txnVersion="1")
    poisoned = source.selectExpr("value", "cast(if(value = x'37', 9, 0) as int) partition")
    assert "9 is not one of them; in row 7 of task 0 (topic 'target', value b'7')" in said(poisoned)
    assert values_in(topics, "target") == []
    assert topics.ask(lambda broker: broker.list_stages()) == []
