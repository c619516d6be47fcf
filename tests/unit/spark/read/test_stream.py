"""The stream's reader, driven as Spark drives it, without Spark: quick, and stopped between any two steps.

What a sink has is kept by batch, as sinks do that write each batch once: a batch that comes again must be the same.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from logboom.batch import build
from logboom.client.file_catalog import FileCatalog
from logboom.errors import ConfigError, LogboomError, RecordsLost, TopicDeleted, TopicNotFound, TopicRecreated
from logboom.spark.read.options import ReadOptions
from logboom.spark.source import LogboomSource
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings

SMALL = Settings(segment=SegmentSettings(bytes=4096))
STEPS = ("planned", "read", "written", "committed")
Row = tuple[str, int, bytes]


class Crash(Exception):
    pass


class Logs:
    """Topics, their writer, and everything that was ever written, by log."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.data = DataDirectory.open(self.path)
        self.rows: list[Row] = []
        self._count = 0

    def create(self, topic: str, partitions: int = 1) -> None:
        self.data.create_topic(topic, partitions, SMALL)
        self.data.open_topic(topic)

    def write(self, count: int, topic: str = "events", partition: int = 0, term: int | None = None) -> list[Row]:
        log = self.data.open_topic(topic)[partition]
        values = [b"%s/%d: %d" % (topic.encode(), partition, self._count + number) for number in range(count)]
        self._count += count
        for start in range(0, count, 7):
            log.append_one(build(values[start : start + 7]), 1_000_000 * self._count, term)
        log.commit(log.sync())
        rows = [(topic, partition, value) for value in values]
        self.rows += rows
        return rows

    def trim(self, seqno: int, topic: str = "events", partition: int = 0) -> None:
        log = self.data.open_topic(topic)[partition]
        log.trim(seqno, 0)
        log.commit(log.sync())

    def copy(self, to: Path) -> None:
        """As it is now, closed properly."""
        self.data.close()
        shutil.copytree(self.path, to)
        self.reopen()

    def restore(self, copy: Path) -> None:
        """An end is lost: the files are as they were, and so is what the state file says."""
        self.data.close()
        shutil.rmtree(self.path)
        shutil.copytree(copy, self.path)
        self.reopen()

    def reopen(self) -> None:
        self.data = DataDirectory.open(self.path)
        for topic in self.data.topics():
            self.data.open_topic(topic.name)


class Query:
    """What Spark does with a source: the order of its calls, its checkpoint, and a sink that keeps each batch."""

    def __init__(self, logs: Logs, **options: str) -> None:
        self.options = {"path": logs.path, **options}
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[Row]] = {}
        self.latest: dict[str, Any] | None = None
        self.reader: Any = None
        self.start()

    def start(self, available_now: bool = False, once: bool = False) -> Query:
        """Again, with what is in the checkpoint."""
        source = LogboomSource(self.options)
        schema = source.schema()
        self.reader = source.streamReader(schema)
        self._task_reader = pickle.dumps(LogboomSource(self.options).streamReader(schema))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        return self

    def crash(self) -> Query:
        self.reader.stop()
        return self.start()

    def step(self, crash_at: str = "") -> bool:
        """One micro-batch; false where there is nothing to do."""
        if len(self.offsets) == self.commits and not self._plan():
            return False
        batch = len(self.offsets) - 1
        if crash_at == "planned":
            raise Crash
        if batch:
            self.reader.commit(json.loads(self.offsets[batch - 1]))
        start = self._ask_start(batch)
        splits = self.reader.partitions(json.loads(start), json.loads(self.offsets[batch]))
        rows = list(self._read(splits or [InputPartition(None)]))
        if crash_at == "read":
            raise Crash
        assert self.sink.setdefault(batch, rows) == rows, "a batch that came again was another one"
        if crash_at == "written":
            raise Crash
        self.commits += 1
        if crash_at == "committed":
            raise Crash
        return True

    def _plan(self) -> bool:
        start = self._ask_start(len(self.offsets))
        end = json.dumps(self.reader.latestOffset(json.loads(start), self._limit))
        self.latest = self.reader.reportLatestOffset()
        if self.offsets and end == start:
            return False
        self.offsets.append(end)
        return True

    def _ask_start(self, batch: int) -> str:
        return self.offsets[batch - 1] if batch else json.dumps(self.reader.initialOffset())

    def _read(self, splits: list[InputPartition]) -> Iterator[Row]:
        for split in splits:
            reader = pickle.loads(self._task_reader)
            for table in reader.read(pickle.loads(pickle.dumps(split))):
                for row in table.to_pylist():
                    yield row["topic"], row["partition"], row["value"]

    def run(self, steps_max: int = 1000) -> list[Row]:
        """Until there is nothing to do; what the sink got."""
        before = len(self.rows)
        for _ in range(steps_max):
            if not self.step():
                return self.rows[before:]
        raise AssertionError("the query has no end")

    @property
    def rows(self) -> list[Row]:
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    @property
    def seqnos(self) -> dict[str, dict[str, int]]:
        return {name: entry["seqnos"] for name, entry in json.loads(self.offsets[-1])["topics"].items()}


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "data")
    logs.create("events")
    yield logs
    logs.data.close()


def sizes(query: Query) -> list[int]:
    return [len(query.sink[batch]) for batch in sorted(query.sink)]


def test_a_stream_gives_what_is_there_and_then_what_comes(logs: Logs) -> None:
    first = logs.write(30)
    query = Query(logs, topic="events", startingSeqno="earliest")
    assert query.run() == first
    assert query.run() == []
    assert query.run() == []
    second = logs.write(5)
    assert query.run() == second
    assert query.seqnos == {"events": {"0": 35}}


def test_without_a_start_a_stream_begins_at_the_end(logs: Logs) -> None:
    logs.write(30)
    query = Query(logs, topic="events")
    assert query.run() == []
    assert query.run() == []
    more = logs.write(5)
    assert query.run() == more


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("batch", range(3))
def test_a_crash_between_any_two_steps_neither_loses_nor_doubles(logs: Logs, start: str, step: str, batch: int) -> None:
    first = logs.write(20)
    query = Query(logs, topic="events", startingSeqno=start)
    expected = first if start == "earliest" else []
    for number in range(4):
        if number == batch:
            with pytest.raises(Crash):
                query.step(crash_at=step)
            expected = expected + logs.write(9)
            query.crash()
        query.step()
        expected = expected + logs.write(4)
    query.run()
    assert query.rows == expected


def test_where_latest_was_is_known_after_a_crash_in_a_first_batch_that_had_records(logs: Logs) -> None:
    """Spark asks the source first, and writes down what it said only as the end of a batch."""
    logs.write(20)
    query = Query(logs, topic="events", startingSeqno="latest")
    start = query.reader.initialOffset()
    expected = logs.write(6)
    query.offsets.append(json.dumps(query.reader.latestOffset(start, ReadAllAvailable())))
    expected += logs.write(3)
    assert query.crash().run() == expected


@pytest.mark.parametrize("seed", range(25))
def test_every_record_comes_once_whatever_happens_in_between(logs: Logs, seed: int) -> None:
    chance = random.Random(seed)
    logs.create("events-wide", 3)
    names = ["events", "events-wide"]
    options = {"topicPattern": "events.*", "startingSeqno": chance.choice(["earliest", "latest"])}
    if chance.random() < 0.6:
        options["maxRecordsPerTrigger"] = str(chance.randint(1, 40))
    if chance.random() < 0.4:
        options["maxBytesPerTrigger"] = str(chance.randint(100, 5000))
    if chance.random() < 0.3:
        options["splitBytes"] = "1k"
    if options["startingSeqno"] == "latest":
        logs.write(chance.randint(0, 50))
        logs.rows.clear()
    query = Query(logs, **options)
    if options["startingSeqno"] == "latest":
        query.step()
    for _ in range(40):
        what = chance.random()
        if what < 0.4:
            name = chance.choice(names)
            partition = chance.randrange(logs.data.topic(name).partitions)
            logs.write(chance.randint(1, 60), name, partition)
        elif what < 0.45 and len(names) < 6:
            names.append(f"events-{len(names)}")
            logs.create(names[-1], chance.randint(1, 3))
        elif what < 0.65:
            crash_at = chance.choice(STEPS)
            try:
                query.step(crash_at)
            except Crash:
                query.crash()
        elif what < 0.75:
            query.crash().start(available_now=chance.random() < 0.5)
        else:
            query.step()
    query.crash().run()
    assert sorted(query.rows) == sorted(logs.rows)
    for name, partition, _ in set(query.rows):
        mine = [row for row in query.rows if row[:2] == (name, partition)]
        assert mine == [row for row in logs.rows if row[:2] == (name, partition)]


def test_no_batch_takes_more_records_than_allowed_and_logs_share_them_by_what_waits(logs: Logs) -> None:
    logs.create("wide", 3)
    for partition, count in enumerate((600, 300, 10)):
        logs.write(count, "wide", partition)
    query = Query(logs, topic="wide", startingSeqno="earliest", maxRecordsPerTrigger="91")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(91)
    query.step()
    assert query.seqnos == {"wide": {"0": 60, "1": 30, "2": 1}}
    query.run()
    assert max(sizes(query)) <= 91
    assert sorted(query.rows) == sorted(logs.rows)


def test_a_log_with_little_gives_some_in_every_batch(logs: Logs) -> None:
    logs.create("small")
    logs.write(1000)
    logs.write(3, "small")
    query = Query(logs, topic="events,small", startingSeqno="earliest", maxRecordsPerTrigger="10")
    for _ in range(3):
        query.step()
    assert query.seqnos["small"] == {"0": 3}


def test_no_batch_takes_many_more_bytes_than_allowed(logs: Logs) -> None:
    logs.create("wide", 2)
    rows = logs.write(2000, "wide", 0) + logs.write(500, "wide", 1)
    query = Query(logs, topic="wide", startingSeqno="earliest", maxBytesPerTrigger="8k")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(8192)
    query.run()
    assert sorted(query.rows) == sorted(rows)
    stored = sum(path.stat().st_size for path in Path(logs.path).rglob("*.log"))
    assert stored / 8192 / 2 < len(sizes(query)) < stored / 8192 * 3
    assert max(sizes(query)) < 3 * len(rows) / len(sizes(query))


def test_of_one_large_batch_a_trigger_takes_about_the_bytes_that_are_allowed(logs: Logs) -> None:
    logs.data.open_topic("events")[0].append_one(build([b"x" * 100] * 500), 0)
    logs.data.sync()
    query = Query(logs, topic="events", startingSeqno="earliest", maxBytesPerTrigger="5k")
    query.run()
    assert sum(sizes(query)) == 500
    assert max(sizes(query)) <= 50


def test_both_limits_count_whichever_spark_was_told(logs: Logs) -> None:
    logs.write(500)
    options = {"topic": "events", "startingSeqno": "earliest", "maxRecordsPerTrigger": "400"}
    query = Query(logs, **options, maxBytesPerTrigger="1k")
    query.run()
    assert max(sizes(query)) < 200
    assert query.rows == logs.rows


def test_a_query_that_runs_once_takes_everything_at_once(logs: Logs) -> None:
    logs.write(500)
    query = Query(logs, topic="events", startingSeqno="earliest", maxRecordsPerTrigger="7")
    query.start(once=True)
    assert query.run() == logs.rows
    assert sizes(query) == [500]


def test_available_now_takes_exactly_what_was_there_in_steps(logs: Logs) -> None:
    rows = logs.write(50)
    query = Query(logs, topicPattern="events.*", startingSeqno="earliest", maxRecordsPerTrigger="20")
    query.start(available_now=True)
    logs.write(30)
    query.step()
    logs.create("events-late")
    logs.write(5, "events-late")
    query.run()
    assert query.rows == rows
    assert sizes(query) == [20, 20, 10]
    query.start(available_now=True)
    assert sorted(query.run()) == sorted(logs.rows[50:])
    query.start(available_now=True)
    assert query.run() == []


def test_available_now_goes_on_after_a_crash_with_what_is_there_by_then(logs: Logs) -> None:
    logs.write(50)
    query = Query(logs, topic="events", startingSeqno="earliest", maxRecordsPerTrigger="20")
    query.start(available_now=True)
    query.step()
    with pytest.raises(Crash):
        query.step("read")
    logs.write(30)
    query.crash().start(available_now=True).run()
    assert query.rows == logs.rows


def test_what_is_dropped_behind_an_end_of_available_now_is_the_loss_of_the_next_run(logs: Logs) -> None:
    logs.create("other")
    logs.write(2)
    logs.write(50, "other")
    query = Query(logs, topic="events,other", startingSeqno="earliest", maxRecordsPerTrigger="20")
    query.start(available_now=True)
    for _ in range(2):
        query.step()
    assert query.seqnos["events"] == {"0": 2}
    logs.write(48)
    logs.trim(42)
    query.run()
    assert query.seqnos == {"events": {"0": 2}, "other": {"0": 50}}
    with pytest.raises(RecordsLost, match="events/0: seqnos 2 to 41 are not there: the log begins with 42"):
        query.start(available_now=True).run()


def test_topics_that_appear_later_are_read_from_their_first_record(logs: Logs) -> None:
    query = Query(logs, topicPattern="events.*")
    query.run()
    logs.create("events-2", 2)
    logs.create("other")
    rows = logs.write(3, "events-2", 1)
    logs.write(3, "other")
    assert query.run() == rows
    assert query.seqnos == {"events": {"0": 0}, "events-2": {"0": 0, "1": 3}}


def test_a_batch_with_a_new_topic_is_the_same_after_a_crash_or_fails(logs: Logs) -> None:
    query = Query(logs, topicPattern="events.*")
    query.run()
    logs.create("events-2")
    logs.write(30, "events-2")
    with pytest.raises(Crash):
        query.step("planned")
    logs.trim(10, "events-2")
    with pytest.raises(RecordsLost, match="events-2/0: seqnos 0 to 9 are not there: the log begins with 10"):
        query.crash().run()


def test_only_the_partitions_that_were_chosen_are_read(logs: Logs) -> None:
    logs.create("wide", 4)
    for partition in range(4):
        logs.write(5, "wide", partition)
    query = Query(logs, partitions='{"wide": [1, 3]}', startingSeqno="earliest")
    query.run()
    assert {row[1] for row in query.rows} == {1, 3}


def test_records_that_were_dropped_before_they_were_read_stop_the_query(logs: Logs) -> None:
    logs.write(20)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()
    logs.write(20)
    logs.trim(31)
    with pytest.raises(RecordsLost, match="events/0: seqnos 20 to 30 are not there: the log begins with 31"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    assert query.crash().run() == logs.rows[31:]


def test_records_that_are_dropped_behind_the_stream_do_not_matter(logs: Logs) -> None:
    logs.write(20)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()
    logs.trim(20)
    assert query.run() == []
    more = logs.write(4)
    assert query.run() == more


def test_records_that_were_dropped_while_a_batch_was_planned_stop_the_query(logs: Logs) -> None:
    logs.write(20)
    query = Query(logs, topic="events", startingSeqno="earliest")
    with pytest.raises(Crash):
        query.step("planned")
    logs.trim(5)
    with pytest.raises(RecordsLost, match="seqnos 0 to 4 are not there"):
        query.crash().run()
    query.options["failOnDataLoss"] = "false"
    assert query.crash().run() == logs.rows[5:]


def test_records_below_a_start_that_was_asked_for_stop_the_query(logs: Logs) -> None:
    logs.write(20)
    logs.trim(8)
    with pytest.raises(RecordsLost, match="events/0: seqnos 5 to 7 are not there"):
        Query(logs, topic="events", startingSeqno="5").run()
    with pytest.raises(RecordsLost, match="events/0: seqnos 20 to 24 are not there: the log ends before 20"):
        Query(logs, topic="events", startingSeqno="25").run()
    assert Query(logs, topic="events", startingSeqno="5", failOnDataLoss="false").run() == logs.rows[8:]


def test_a_topic_that_was_deleted_stops_the_query_and_says_where_it_was(logs: Logs) -> None:
    logs.create("other")
    logs.write(20)
    query = Query(logs, topic="events,other", startingSeqno="earliest")
    query.run()
    logs.data.delete_topic("events")
    rows = logs.write(5, "other")
    with pytest.raises(TopicDeleted, match=r"'events'.*\n.*at seqno 20 of partition 0; failOnDataLoss=false"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    assert query.crash().run() == rows
    query.start(available_now=True)
    rows = logs.write(5, "other")
    assert query.run() == []
    logs.create("events")
    rows += logs.write(5)
    assert sorted(query.start().run()) == sorted(rows)


def test_a_topic_that_was_made_again_stops_the_query_or_is_read_from_its_beginning(logs: Logs) -> None:
    logs.write(20)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()
    logs.data.delete_topic("events")
    logs.create("events")
    rows = logs.write(30)
    with pytest.raises(TopicRecreated, match=r"'events' is another one.*\n.*seqno 20 of partition 0"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    with pytest.raises(Crash):
        query.crash().step("planned")
    assert query.crash().run() == rows


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_goes_while_a_batch_is_planned_stops_the_query(logs: Logs, again: bool) -> None:
    logs.create("other")
    logs.write(20)
    rows = logs.write(5, "other")
    query = Query(logs, topic="events,other", startingSeqno="earliest")
    query.step()
    logs.write(20)
    rows += logs.write(5, "other")
    with pytest.raises(Crash):
        query.step("planned")
    logs.data.delete_topic("events")
    if again:
        logs.create("events")
        rows += logs.write(9)
    with pytest.raises(TopicRecreated if again else TopicDeleted, match="at seqno 20 of partition 0"):
        query.crash().run()
    query.options["failOnDataLoss"] = "false"
    query.crash().run()
    assert sorted(query.rows[20:]) == sorted(rows)


def test_a_topic_that_goes_while_its_pieces_are_looked_up_is_passed_over_when_that_is_allowed(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.create("other")
    logs.write(20)
    rows = logs.write(20, "other")
    find = FileCatalog.find

    def find_and_delete(self: FileCatalog, *wanted: Any) -> Any:
        found = find(self, *wanted)
        if deleting and any(topic.name == "events" for topic in found):
            logs.data.delete_topic("events")
        return found

    deleting = False
    monkeypatch.setattr(FileCatalog, "find", find_and_delete)
    options = {"topic": "events,other", "startingSeqno": "earliest", "failOnDataLoss": "false"}
    query = Query(logs, **options, maxBytesPerTrigger="1m")
    start = query.reader.initialOffset()
    query.reader.stop()
    deleting = True
    end = query.reader.latestOffset(start, query._limit)
    assert sorted(query._read(query.reader.partitions(start, end))) == sorted(rows)


def test_a_topic_that_is_not_there_is_an_error_at_the_start(logs: Logs) -> None:
    with pytest.raises(TopicNotFound, match="evnts"):
        Query(logs, topic="evnts").run()


def test_a_stream_of_no_topics_yet_waits_for_the_first(logs: Logs) -> None:
    query = Query(logs, topicPattern="later-.*")
    assert query.run() == []
    logs.create("later-1")
    rows = logs.write(4, "later-1")
    assert query.run() == rows


@pytest.mark.parametrize("kept", [0, 21, 50])
@pytest.mark.parametrize("written", [0, 14, 60, 90])
def test_an_end_that_was_lost_is_noticed_and_what_is_written_there_anew_is_not(
    logs: Logs, tmp_path: Path, kept: int, written: int
) -> None:
    logs.write(kept, term=1)
    logs.copy(tmp_path / "copy")
    logs.write(70 - kept, term=1)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()
    logs.restore(tmp_path / "copy")
    rows = logs.write(written, term=2)
    with pytest.raises(RecordsLost, match=f"events/0: seqnos {kept} to 69 are not there"):
        query.run()
    with pytest.raises(RecordsLost, match=f"events/0: seqnos {kept} to 69 are not there"):
        query.crash().run()
    query.options["failOnDataLoss"] = "false"
    assert query.crash().run() == rows
    rows = logs.write(5, term=2)
    assert query.run() == rows


def test_an_end_that_is_lost_while_a_batch_is_planned_is_not_read_as_another(logs: Logs, tmp_path: Path) -> None:
    """What stands there by then is of the next batch, and comes once."""
    rows = logs.write(21, term=1)
    logs.copy(tmp_path / "copy")
    logs.write(21, term=1)
    query = Query(logs, topic="events", startingSeqno="earliest")
    with pytest.raises(Crash):
        query.step("planned")
    logs.restore(tmp_path / "copy")
    rows += logs.write(35, term=2)
    with pytest.raises(RecordsLost, match=r"events/0: seqnos 21 to 41 are not there.* term 2.* term 1"):
        query.crash().run()
    query.options["failOnDataLoss"] = "false"
    assert query.crash().run() == rows


def test_an_end_that_was_lost_and_not_yet_read_is_no_loss_to_the_stream(logs: Logs, tmp_path: Path) -> None:
    rows = logs.write(20, term=1)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()
    logs.copy(tmp_path / "copy")
    logs.write(20, term=1)
    logs.restore(tmp_path / "copy")
    rows += logs.write(30, term=2)
    query.run()
    assert query.rows == rows


def test_an_older_log_in_place_of_a_newer_is_noticed(logs: Logs, tmp_path: Path) -> None:
    logs.write(20, term=1)
    logs.copy(tmp_path / "copy")
    logs.write(20, term=2)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()
    logs.restore(tmp_path / "copy")
    logs.write(30, term=1)
    with pytest.raises(RecordsLost, match=r"events/0: seqnos 39 to 39 are not there.* term 1.* term 2"):
        query.run()


def test_a_checkpoint_of_another_source_is_refused(logs: Logs) -> None:
    query = Query(logs, topic="events")
    query.offsets, query.commits = ['{"events": {"0": 17}}'], 1
    with pytest.raises(ConfigError, match="checkpointLocation"):
        query.run()


def test_a_query_may_go_on_with_other_topics_and_still_ends_the_batch_it_had_planned(logs: Logs) -> None:
    logs.create("other")
    rows = logs.write(5)
    rows += logs.write(5, "other")
    query = Query(logs, topic="events,other", startingSeqno="earliest")
    with pytest.raises(Crash):
        query.step("planned")
    query.options["topic"] = "other"
    logs.write(5)
    rows += logs.write(5, "other")
    query.crash().run()
    assert sorted(query.rows) == sorted(rows)
    assert query.seqnos == {"events": {"0": 5}, "other": {"0": 10}}
    query.options["topic"] = "events,other"
    query.crash().run()
    assert sorted(query.rows) == sorted(logs.rows), "it goes on where it was"


def test_partitions_that_are_left_out_for_a_while_are_gone_on_with_where_they_were(logs: Logs) -> None:
    logs.create("wide", 2)
    query = Query(logs, topic="wide", startingSeqno="earliest")
    for chosen in ('{"wide": [0, 1]}', '{"wide": [1]}', '{"wide": [0]}', '{"wide": [0, 1]}'):
        logs.write(5, "wide", 0)
        logs.write(5, "wide", 1)
        query.options = {"path": logs.path, "partitions": chosen, "startingSeqno": "earliest"}
        query.crash().run()
    assert sorted(query.rows) == sorted(logs.rows)


def test_a_topic_with_an_underscore_that_a_pattern_leaves_out_is_not_missed(logs: Logs) -> None:
    logs.create("_own")
    logs.write(5, "_own")
    query = Query(logs, topic="_own", startingSeqno="earliest")
    query.run()
    query.options = {"path": logs.path, "topicPattern": ".*", "startingSeqno": "earliest"}
    logs.write(5)
    query.crash().run()
    assert sorted(query.rows) == sorted(logs.rows)


def test_the_latest_offset_is_the_end_of_the_logs_whatever_a_batch_takes(logs: Logs) -> None:
    logs.write(50)
    query = Query(logs, topic="events", startingSeqno="earliest", maxRecordsPerTrigger="20")
    query.step()
    assert query.seqnos == {"events": {"0": 20}}
    assert query.latest is not None
    assert query.latest["topics"]["events"]["seqnos"] == {"0": 50}


def test_a_stream_reads_only_the_columns_and_the_records_that_are_wanted(logs: Logs) -> None:
    log = logs.data.open_topic("events")[0]
    log.append_one(build([b"a", b"b", b"c"], keys=[b"k", b"l", b"k"]), 0)
    log.commit(log.sync())
    source = LogboomSource({"path": logs.path, "topic": "events", "key": "k", "startingSeqno": "earliest"})
    reader: Any = source.streamReader(StructType([StructField("seqno", LongType())]))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    found = [batch.to_pylist() for split in reader.partitions(start, end) for batch in reader.read(split)]
    assert found == [[{"seqno": 0}, {"seqno": 2}]]


def test_an_idle_trigger_opens_no_file_of_a_log(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.write(20)
    query = Query(logs, topic="events", startingSeqno="earliest")
    query.run()

    def refuse(*_: object) -> None:
        raise AssertionError("a log was looked into")

    monkeypatch.setattr(FileCatalog, "reader", refuse)
    assert query.run() == []


def test_a_cursor_needs_a_node_and_a_name(logs: Logs) -> None:
    for options in ({"path": logs.path, "cursor": "c"}, {"path": "logboom://localhost", "cursor": "a b"}):
        with pytest.raises(LogboomError, match="cursor"):
            ReadOptions.parse({"topic": "events", **options})


@pytest.mark.parametrize("option", ["endingSeqno", "endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(logs: Logs, option: str) -> None:
    with pytest.raises(ConfigError, match="a stream has no end"):
        Query(logs, topic="events", **{option: "1000"})


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_goes_before_its_splits_are_read_stops_the_query_or_is_passed_over(
    logs: Logs, again: bool
) -> None:
    logs.write(20)
    for fail in ("true", "false"):
        query = Query(logs, topic="events", startingSeqno="earliest", failOnDataLoss=fail)
        start = query.reader.initialOffset()
        splits = query.reader.partitions(start, query.reader.latestOffset(start, ReadAllAvailable()))
        logs.data.delete_topic("events")
        if again:
            logs.create("events")
        if fail == "true":
            with pytest.raises(LogboomError, match="events"):
                list(query._read(splits))
            if not again:
                logs.create("events")
            logs.write(20)
        else:
            assert list(query._read(splits)) == []
