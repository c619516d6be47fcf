"""What a read covers, and how it is cut into splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from logboom.batch import Selection, build
from logboom.client.catalog import Ends, ListedTopic
from logboom.client.file_catalog import FileCatalog
from logboom.errors import PartitionNotFound, RecordsLost, TopicNotFound
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import RecordSpan, Split, cut_spans, find_spans, settle
from logboom.spark.read.pushdown import Pushed
from logboom.spark.read.table import plan_splits
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings

SECOND = 1_000_000


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileCatalog]:
    """`a` has 2 logs of 500 records, a second apart; `b` 100, below 40 trimmed; `large` one batch; `c` nothing."""
    path = tmp_path_factory.mktemp("planning") / "data"
    with DataDirectory.open(str(path)) as data:
        small = Settings(segment=SegmentSettings(bytes=8192))
        for name, partitions, count in (("a", 2, 500), ("b", 1, 100), ("c", 2, 0)):
            data.create_topic(name, partitions, small)
            for log in data.open_topic(name):
                for start in range(0, count, 5):
                    times = [SECOND * (start + offset) for offset in range(5)]
                    log.append_one(build([b"x" * 90] * 5, timestamps=times), start)
                log.commit(log.sync())
        (trimmed,) = data.open_topic("b")
        trimmed.trim(40, 1000)
        trimmed.commit(trimmed.sync())
        data.create_topic("large")
        (one,) = data.open_topic("large")
        one.append_one(build([b"x" * 10] * 1000), 0)
        one.commit(one.sync())
    found = FileCatalog(path)
    yield found
    found.close()


def options(catalog: FileCatalog, **given: str) -> ReadOptions:
    return ReadOptions.parse({"path": str(catalog.directory), **given})


def spans(catalog: FileCatalog, **given: str) -> dict[str, tuple[int, int]]:
    return {span.log: (span.seqno_from, span.seqno_until) for span in find_spans(catalog, options(catalog, **given))}


def splits(catalog: FileCatalog, **given: str) -> list[Split]:
    return plan_splits(catalog, options(catalog, **given), Pushed())


def check(found: list[Split], expected: dict[str, tuple[int, int]]) -> None:
    """Each record once, in order within its log."""
    for log, (seqno_from, seqno_until) in expected.items():
        at = seqno_from
        for split in found:
            if split.log == log:
                assert split.seqno_from == at < split.seqno_until
                at = split.seqno_until
        assert at == seqno_until
    assert {split.log for split in found} == {log for log, (low, high) in expected.items() if low < high}


ALL = {"a/0": (0, 500), "a/1": (0, 500), "b/0": (40, 100)}


def test_by_default_everything_is_read(catalog: FileCatalog) -> None:
    assert spans(catalog, topic="a,b,c") == {**ALL, "c/0": (0, 0), "c/1": (0, 0)}
    assert spans(catalog, topicPattern="[ab]") == ALL
    assert spans(catalog, topicPattern="nothing.*") == {}
    assert spans(catalog, partitions='{"a": [1]}') == {"a/1": (0, 500)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingSeqno": "450"}, {"a/0": (450, 500), "a/1": (450, 500)}),
        ({"startingSeqno": "latest"}, {"a/0": (500, 500), "a/1": (500, 500)}),
        ({"endingSeqno": "earliest"}, {"a/0": (0, 0), "a/1": (0, 0)}),
        ({"startingSeqno": '{"a": {"1": 7}}'}, {"a/0": (0, 500), "a/1": (7, 500)}),
        ({"startingSeqno": '{"a": 7}', "endingSeqno": '{"a": {"0": 9}}'}, {"a/0": (7, 9), "a/1": (7, 500)}),
        ({"startingOffsets": '{"a": {"0": -1, "1": -2}}'}, {"a/0": (500, 500), "a/1": (0, 500)}),
        ({"startingTimestamp": "1970-01-01T00:01:00Z"}, {"a/0": (60, 500), "a/1": (60, 500)}),
        ({"startingTimestamp": "60001"}, {"a/0": (61, 500), "a/1": (61, 500)}),
        ({"endingTimestamp": '{"a": {"0": 2000}}'}, {"a/0": (0, 2), "a/1": (0, 500)}),
        ({"startingTimestamp": "3000", "endingTimestamp": "2000"}, {"a/0": (3, 3), "a/1": (3, 3)}),
        ({"startingTimestamp": "999000"}, {"a/0": (500, 500), "a/1": (500, 500)}),
        ({"startingOffsetsByTimestamp": '{"a": {"1": 0}}', "endingSeqno": "1"}, {"a/0": (0, 1), "a/1": (0, 1)}),
    ],
)
def test_where_a_read_begins_and_ends(
    catalog: FileCatalog, given: dict[str, str], expected: dict[str, tuple[int, int]]
) -> None:
    assert spans(catalog, topic="a", **given) == expected


def test_what_is_not_there_is_an_error_or_given_up(catalog: FileCatalog) -> None:
    with pytest.raises(RecordsLost, match="b/0: seqnos 10 to 39 are not there: the log begins with 40; failOnData"):
        spans(catalog, topic="b", startingSeqno="10")
    assert spans(catalog, topic="b", startingSeqno="10", failOnDataLoss="false") == {"b/0": (40, 100)}
    with pytest.raises(RecordsLost, match="b/0: seqnos 100 to 119 are not there: the log ends before 100"):
        spans(catalog, topic="b", endingSeqno='{"b": {"0": 120}}')
    assert spans(catalog, topic="b", endingSeqno='{"b": 120}', failOnDataLoss="false") == {"b/0": (40, 100)}
    assert spans(catalog, topic="b", startingSeqno='{"b": 120}', failOnDataLoss="false") == {"b/0": (100, 100)}
    assert spans(catalog, topic="b", endingSeqno="120") == {"b/0": (40, 100)}, "a number for all says nothing of each"
    assert spans(catalog, topic="b", startingSeqno="120") == {"b/0": (100, 100)}
    with pytest.raises(RecordsLost, match="no record is so new, and startingTimestampStrategy is error"):
        spans(catalog, topic="b", startingTimestamp="999000", startingTimestampStrategy="error")
    with pytest.raises(TopicNotFound, match="nobody"):
        spans(catalog, topic="a,nobody")
    with pytest.raises(PartitionNotFound, match="2"):
        spans(catalog, partitions='{"a": [2]}')


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"splitBytes": "1"},
        {"splitBytes": "5k"},
        {"splitBytes": "20k"},
        {"minPartitions": "7"},
        {"minPartitions": "1000"},
        {"maxRecordsPerPartition": "33"},
        {"maxRecordsPerPartition": "1"},
        {"splitBytes": "5k", "maxRecordsPerPartition": "7", "minPartitions": "50"},
    ],
)
def test_however_it_is_cut_each_record_is_in_one_split(catalog: FileCatalog, given: dict[str, str]) -> None:
    found = splits(catalog, topic="a,b,c", **given)
    check(found, {**ALL, "c/0": (0, 0)})
    assert len(found) >= int(given.get("minPartitions", "3"))
    if "maxRecordsPerPartition" in given:
        limit = int(given["maxRecordsPerPartition"])
        assert all(split.seqno_until - split.seqno_from <= limit for split in found)


def test_more_splits_than_batches_are_cut_by_records(catalog: FileCatalog) -> None:
    found = splits(catalog, topic="large", minPartitions="10")
    check(found, {"large/0": (0, 1000)})
    assert len(found) == 10
    assert len(splits(catalog, topic="large", minPartitions="5000")) == 1000, "no more than there are records"


def test_splits_of_different_logs_take_turns(catalog: FileCatalog) -> None:
    found = splits(catalog, topic="a", splitBytes="10k")
    assert [split.partition for split in found[:6]] == [0, 1, 0, 1, 0, 1]
    assert {split.node_id for split in found} == {catalog.node_id}


def test_filters_narrow_what_is_read(catalog: FileCatalog) -> None:
    def planned(pushed: Pushed) -> dict[str, tuple[int, int]]:
        return {
            split.log: (split.seqno_from, split.seqno_until)
            for split in plan_splits(catalog, options(catalog, topic="a,b"), pushed)
        }

    assert planned(Pushed(seqno_from=50, seqno_until=60)) == dict.fromkeys(("a/0", "a/1", "b/0"), (50, 60))
    assert planned(Pushed(seqno_from=0, seqno_until=45)) == {"a/0": (0, 45), "a/1": (0, 45), "b/0": (40, 45)}
    assert planned(Pushed(seqno_from=2**63 - 1)) == {}
    assert planned(Pushed(Selection(time_from=490 * SECOND))) == {"a/0": (490, 500), "a/1": (490, 500)}
    assert planned(Pushed(topics=(lambda name: name == "b",))) == {"b/0": (40, 100)}
    assert planned(Pushed(partitions=(lambda number: number == 1,))) == {"a/1": (0, 500)}


@pytest.mark.parametrize(
    ("asked", "given"),
    [((10, 20), (10, 20)), ((20, 10), (20, 20)), ((100, 100), (100, 100)), ((5, 10), (10, 10)), ((3, 4), (10, 10))],
)
def test_a_span_is_settled_to_what_is_there(asked: tuple[int, int], given: tuple[int, int]) -> None:
    topic = ListedTopic("t", "00" * 16, (Ends(10, 100),))
    span = settle(RecordSpan(topic, 0, *asked), fail_on_loss=False)
    assert (span.seqno_from, span.seqno_until) == given


def test_what_was_dropped_while_it_was_planned_is_still_in_a_split(tmp_path: Path) -> None:
    """Whoever reads it notices."""
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.create_topic("t", 1, Settings(segment=SegmentSettings(bytes=4096)))
        (log,) = data.open_topic("t")
        for number in range(100):
            log.append_one(build([b"x" * 90] * 5), number)
        log.commit(log.sync())
        catalog = FileCatalog(tmp_path / "data")
        wanted = options(catalog, topic="t", splitBytes="10k")
        planned = find_spans(catalog, wanted)
        log.drop(300)
        assert log.first > 100
        found = cut_spans(catalog, wanted, planned)
        check(found, {"t/0": (0, 500)})
        log.roll()
        log.append_one(build([b"x"]), 200)
        log.commit(log.sync())
        log.drop(500)
        check(cut_spans(catalog, wanted, planned), {"t/0": (0, 500)})
        catalog.close()


def test_what_is_appended_while_times_are_looked_up_is_not_read_and_not_missed(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("events")
        (log,) = data.open_topic("events")

        def write() -> None:
            log.append_one(
                build([b"x"] * 10, timestamps=[SECOND * seqno for seqno in range(log.next, log.next + 10)]), 0
            )
            log.commit(log.sync())

        class Growing(FileCatalog):
            def find(self, names: Sequence[str] = (), pattern: str | None = None) -> list[ListedTopic]:
                found = super().find(names, pattern)
                write()
                return found

        write()
        catalog = Growing(tmp_path)
        assert spans(catalog, topic="events", endingTimestamp="2100-01-01T00:00:00Z") == {"events/0": (0, 10)}
        assert spans(catalog, topic="events", startingTimestamp="2100-01-01T00:00:00Z") == {"events/0": (20, 20)}
        assert spans(catalog, topic="events", startingTimestamp="1970-01-01T00:00:05Z") == {"events/0": (5, 30)}
        catalog.close()


def test_a_place_in_a_partition_that_there_is_not_is_an_error(catalog: FileCatalog) -> None:
    for option in ("startingSeqno", "endingSeqno", "startingTimestamp", "endingTimestamp"):
        with pytest.raises(PartitionNotFound, match="2 is not one of them"):
            find_spans(catalog, options(catalog, topic="a,b", **{option: '{"a": {"0": 5, "2": 5}}'}))
