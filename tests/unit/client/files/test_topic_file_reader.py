"""Several logs read straight from their files."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from logboom import FileReader, Record, TopicFileReader
from logboom.batch import Selection, build
from logboom.errors import InvalidPattern, PartitionNotFound, TopicDeleted, TopicNotFound, TopicRecreated
from logboom.storage.data.directory import DataDirectory


class Filled:
    """A data directory of a writer that is this test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = DataDirectory.open(str(path))

    def fill(self, topic: str, partitions: int, count: int = 20) -> None:
        if topic not in {known.name for known in self.data.topics()}:
            self.data.create_topic(topic, partitions)
        for number, log in enumerate(self.data.open_topic(topic)):
            for start in range(log.next, log.next + count, 10):
                values = [f"{topic}/{number}/{seqno}".encode() for seqno in range(start, start + 10)]
                tags = [["even"] if seqno % 2 == 0 else [] for seqno in range(start, start + 10)]
                times = [1_000_000 * seqno for seqno in range(start, start + 10)]
                log.append_one(build(values, tags=tags, timestamps=times), 1)
        self.data.sync()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Filled]:
    filled = Filled(tmp_path)
    with filled.data:
        yield filled


def by_log(records: Iterable[Record]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for record in records:
        assert record.value == f"{record.topic}/{record.partition}/{record.seqno}".encode()
        found[f"{record.topic}/{record.partition}"].append(record.seqno or 0)
    return dict(found)


def test_a_reader_of_one_log_says_who_reads_all_of_them(files: Filled) -> None:
    files.fill("rooms", 3)
    with pytest.raises(
        PartitionNotFound, match="'rooms' has 3 partitions: name one, or read all of them with TopicFileReader"
    ):
        FileReader(files.path, "rooms")


def test_all_partitions_are_read_in_every_form(files: Filled) -> None:
    files.fill("rooms", 3)
    everything = {f"rooms/{number}": list(range(20)) for number in range(3)}
    with TopicFileReader(files.path, "rooms") as reader:
        assert by_log(reader.records()) == everything
        assert by_log(reader.records()) == {}
        assert [(log.partition, log.seqno, log.committed) for log in reader.logs] == [(n, 20, 20) for n in range(3)]
    with TopicFileReader(files.path, "rooms") as reader:
        table = reader.table()
        assert table.column_names[:3] == ["topic", "partition", "seqno"]
        assert table.num_rows == 60
    with TopicFileReader(files.path, "rooms") as reader:
        rows = [row for lists in reader.lists(["partition", "seqno"]) for row in zip(*lists, strict=True)]
        assert sorted(rows) == [(number, seqno) for number in range(3) for seqno in range(20)]
    with TopicFileReader(files.path, "rooms") as reader:
        found = by_log(reader.records(where=Selection(tags_any=("even",))))
        assert found == {f"rooms/{number}": list(range(0, 20, 2)) for number in range(3)}


def test_topics_are_named_by_lists_and_patterns(files: Filled) -> None:
    for topic in ("orders.eu", "orders.us", "rooms"):
        files.fill(topic, 2, 10)

    def logs(topics: str | list[str]) -> list[str]:
        with TopicFileReader(files.path, topics) as reader:
            return sorted(by_log(reader.records()))

    assert logs("orders.*") == ["orders.eu/0", "orders.eu/1", "orders.us/0", "orders.us/1"]
    assert logs(["rooms/1", "orders.us"]) == ["orders.us/0", "orders.us/1", "rooms/1"]
    with pytest.raises(TopicNotFound, match="rooms"):
        logs(["orders.*", "romos"])
    with pytest.raises(InvalidPattern):
        logs("rooms/x")


def test_a_bookmark_stands_for_all_logs_to_the_record(files: Filled) -> None:
    files.fill("rooms", 3)
    taken: list[Record] = []
    bookmark: str | None = None
    for _ in range(9):
        with TopicFileReader(files.path, "rooms", bookmark=bookmark) as reader:
            taken += islice(reader.records(), 7)
            bookmark = reader.bookmark
    seqnos = by_log(taken)
    assert seqnos == {f"rooms/{number}": list(range(20)) for number in range(3)}
    files.data.delete_topic("rooms")
    files.fill("rooms", 3)
    with pytest.raises(TopicRecreated):
        TopicFileReader(files.path, "rooms", bookmark=bookmark)


def test_it_starts_by_time_and_at_the_end(files: Filled) -> None:
    files.fill("rooms", 2)
    with TopicFileReader(files.path, "rooms", timestamp=15_000_000) as reader:
        assert by_log(reader.records()) == {f"rooms/{number}": list(range(15, 20)) for number in range(2)}
    with TopicFileReader(files.path, "rooms", at="latest") as reader:
        assert by_log(reader.records()) == {}
        files.fill("rooms", 2, 10)
        assert by_log(reader.records()) == {f"rooms/{number}": list(range(20, 30)) for number in range(2)}


def test_followers_see_new_records_and_new_topics(files: Filled) -> None:
    files.fill("orders.eu", 2, 10)
    found: list[Record] = []
    begun = threading.Event()

    def follow() -> None:
        with TopicFileReader(files.path, "orders.*") as reader:
            for record in reader.records(follow=True, timeout_s=100):
                found.append(record)
                begun.set()
                if len(found) == 60:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(100)
    files.fill("orders.eu", 2, 10)
    files.fill("orders.us", 1, 20)
    thread.join(200)
    assert not thread.is_alive()
    assert by_log(found) == {f"orders.eu/{number}": list(range(20)) for number in range(2)} | {
        "orders.us/0": list(range(20))
    }


def test_a_topic_that_leaves_is_an_error_only_where_it_was_named(files: Filled) -> None:
    files.fill("orders.eu", 2, 10)
    files.fill("orders.us", 1, 10)
    with TopicFileReader(files.path, "orders.*") as pattern, TopicFileReader(files.path, "orders.eu") as exact:
        files.data.delete_topic("orders.eu")
        assert by_log(pattern.records()) == {"orders.us/0": list(range(10))}
        with pytest.raises(TopicDeleted, match=r"orders\.eu"):
            list(exact.records())


def test_nothing_for_a_while_ends_a_follower(files: Filled) -> None:
    files.fill("rooms", 2, 10)
    with TopicFileReader(files.path, "rooms") as reader:
        assert len(list(reader.records(follow=True, timeout_s=0.2))) == 20
