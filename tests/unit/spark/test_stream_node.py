"""The stream's reader against a real node, with its files in reach and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logboom.client.read.start import CONNECT_PATIENCE_S
from logboom.errors import LogboomError, RecordsLost, TopicNotFound, Unavailable
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import find_logs, open_catalog
from logboom.spark.source import LogboomSource
from logboom.storage.data.topic import FlushSettings, Settings
from support.nodes.process import NodeProcess, free_port
from support.spark.queries import Topics
from support.waiting import wait_until

PATIENCE_S = 120.0


class Stream:
    """One micro-batch after the other, each to its end."""

    def __init__(self, options: dict[str, str]) -> None:
        source = LogboomSource({"topic": "events", "startingSeqno": "earliest", **options})
        self.reader: Any = source.streamReader(source.schema())
        self.at = self.reader.initialOffset()

    def take(self) -> list[bytes]:
        """Until nothing comes."""
        rows: list[bytes] = []
        while True:
            end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
            if end == self.at:
                return rows
            for split in self.reader.partitions(self.at, end):
                for batch in self.reader.read(split):
                    rows += batch.column("value").to_pylist()
            self.at = end


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with NodeProcess(tmp_path) as node:
        yield Topics(node)


@pytest.fixture(params=["beside", "apart"])
def place(request: pytest.FixtureRequest, topics: Topics, tmp_path: Path) -> dict[str, str]:
    """Where to read: a node whose files are here, or one whose files are not."""
    if request.param == "beside":
        return {"path": topics.path}
    return {"servers": topics.address, "path": str(tmp_path / "elsewhere")}


def values(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("limit", [{}, {"maxRecordsPerTrigger": "17"}, {"maxBytesPerTrigger": "500"}])
def test_a_stream_goes_on_with_a_node_that_was_killed_and_started(
    topics: Topics, place: dict[str, str], limit: dict[str, str]
) -> None:
    topics.create("events", 3)
    stream = Stream({**place, **limit})
    for number in range(3):
        for partition in range(3):
            topics.write("events", values(0, 20 * (partition + 1)), partition)
        assert sorted(stream.take()) == sorted(values(0, 20) + values(0, 40) + values(0, 60))
        if number == 1:
            topics.node.kill()
            topics.node.start()
    stream.reader.stop()


def test_the_lost_end_of_a_log_is_noticed_and_what_is_written_there_anew_is_not_lost(
    topics: Topics, place: dict[str, str]
) -> None:
    topics.ask(lambda broker: broker.create_topic("events", 1, Settings(flush=FlushSettings(policy="os"))))
    for start in range(0, 70, 7):
        topics.write("events", values(start, start + 7))
    stream, careless = Stream({**place, "maxRecordsPerTrigger": "65"}), Stream({**place, "failOnDataLoss": "false"})
    assert stream.take() == careless.take() == values(0, 70)
    topics.node.kill()
    [log] = topics.node.directory.glob("topics/*events*/**/*.log")
    with open(log, "r+b") as file:
        file.truncate(log.stat().st_size // 2)
    (topics.node.directory / "state").unlink()
    topics.node.start()
    kept = topics.ask(lambda broker: broker.describe_topic("events")).partitions[0].committed
    assert 0 < kept < 70
    said = f"events/0: seqnos {kept} to 69 are not there"
    with pytest.raises(RecordsLost, match=said):
        stream.take()
    topics.write("events", values(1000, 1100))
    with pytest.raises(RecordsLost, match=said):
        stream.take()
    assert careless.take() == values(1000, 1100)
    for each in (stream, careless):
        each.reader.stop()


def test_a_node_that_does_not_come_back_is_an_error_after_a_while(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("events")
    stream = Stream({"path": topics.path})
    monkeypatch.setattr(stream.reader._open(), "_patience_s", 0.2)
    topics.node.stop()
    with pytest.raises(Unavailable):
        stream.take()
    stream.reader.stop()


def test_a_query_that_starts_while_the_node_restarts_waits_for_it(topics: Topics) -> None:
    topics.create("events")
    topics.write("events", values(0, 20))
    topics.node.kill()
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(Stream, {"path": topics.path})
        try:
            time.sleep(CONNECT_PATIENCE_S + 1)  # no longer than a client looks for a node that it has never met
            assert not stream.done()
        finally:
            topics.node.start()
        assert stream.result(PATIENCE_S).take() == values(0, 20)
        stream.result().reader.stop()


def test_how_long_a_node_was_waited_for_is_said_with_the_option(topics: Topics) -> None:
    with pytest.raises(Unavailable, match=r"waited for 0\.2 s; option\('timeout', '5m'\) waits longer"):
        Stream({"path": f"logboom://127.0.0.1:{free_port()}", "timeout": "200ms"})


@pytest.mark.parametrize("with_files", [True, False])
def test_a_topic_that_is_not_there_gets_a_name_that_is(topics: Topics, with_files: bool) -> None:
    def look_for(topic: str) -> None:
        options = ReadOptions.parse({"path": str(topics.node.directory) if with_files else topics.path, "topic": topic})
        catalog = open_catalog(options)
        try:
            find_logs(catalog, options)
        finally:
            catalog.close()

    topics.create("events")
    with pytest.raises(TopicNotFound, match=r"no topic 'evnets' in .*: did you mean 'events'\?"):
        look_for("evnets")
    with pytest.raises(TopicNotFound) as caught:
        look_for("something-else")
    assert "did you mean" not in str(caught.value)


def test_key_and_value_are_text_where_that_is_said(topics: Topics) -> None:
    options = {"topic": "events", "path": topics.path}
    kinds = {field.name: field.dataType.simpleString() for field in LogboomSource({**options, "text": "true"}).schema()}
    assert (kinds["key"], kinds["value"], kinds["headers"]) == (
        "string",
        "string",
        "array<struct<key:string,value:binary>>",
    )
    assert LogboomSource(options).schema()["value"].dataType.simpleString() == "binary"


def test_a_cursor_follows_the_commits_and_nothing_is_told_twice(topics: Topics) -> None:
    topics.create("events", 2)
    topics.write("events", values(0, 10), 0)
    stream = Stream({"path": topics.path, "cursor": "mine"})
    end = stream.reader.latestOffset(stream.at, ReadAllAvailable())
    stream.reader.commit(end)
    assert topics.cursor("mine", "events") == {0: 10, 1: 0}
    topics.ask(lambda broker: broker.delete_cursor("mine"))
    topics.write("events", values(0, 5), 1)
    stream.reader.commit(stream.reader.latestOffset(end, ReadAllAvailable()))
    assert topics.cursor("mine", "events") == {1: 5}
    stream.reader.stop()


def test_a_cursor_of_a_topic_that_is_gone_keeps_no_other_back(topics: Topics) -> None:
    topics.create("events")
    topics.create("other")
    stream = Stream({"path": topics.path, "cursor": "mine", "topic": "events,other"})
    topics.write("other", values(0, 5))
    end = stream.reader.latestOffset(stream.at, ReadAllAvailable())
    topics.delete("events")
    stream.reader.commit(end)
    assert topics.cursor("mine", "other") == {0: 5}
    stream.reader.stop()


@pytest.mark.parametrize("careful", ["true", "false"])
def test_a_replica_that_is_behind_is_waited_for_and_gives_nothing_twice(tmp_path: Path, careful: str) -> None:
    logd = f"127.0.0.1:{free_port()}"
    for name in ("source", "replica"):
        (tmp_path / name).mkdir()
    replica = NodeProcess(tmp_path / "replica", "--replicate-from", logd)
    with NodeProcess(tmp_path / "source", "--logd", logd) as source, replica.ended():
        topics, copied = Topics(source), Topics(replica)
        topics.create("events", 2)
        topics.write("events", values(0, 50), 0)
        replica.start()
        wait_until(lambda: ends(copied) == [50, 0])
        replica.stop()
        topics.create("late")
        topics.write("late", values(100, 110))
        topics.write("events", values(50, 70), 0)
        servers = f"{source.address},{replica.address}"
        stream = Stream({"topic": "events,late", "servers": servers, "failOnDataLoss": careful})
        again = stream.reader.latestOffset(stream.at, ReadAllAvailable())
        begun = stream.at
        assert sorted(stream.take()) == sorted(values(0, 70) + values(100, 110))
        source.stop()
        replica.start()
        assert stream.take() == []
        with pytest.raises(LogboomError, match=r"late|seqnos 50 to 69 are not there: the log ends before 50"):
            stream.reader.partitions(begun, again)
        source.start()
        topics.write("events", values(70, 75), 0)
        wait_until(lambda: ends(copied) == [75, 0])
        assert stream.take() == values(70, 75)
        stream.reader.stop()


def ends(topics: Topics) -> list[int]:
    found = topics.ask(lambda broker: broker.list_topics("events"))
    return [part.committed for topic in found for part in topic.partitions]
