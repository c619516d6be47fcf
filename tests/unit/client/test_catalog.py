"""Which logs there are at a place: the same from a directory and from its node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import SegmentInfo
from logboom.client.catalog import LogCatalog
from logboom.client.file_catalog import FileCatalog, open_files
from logboom.client.node_catalog import NodeCatalog, cut_evenly
from logboom.errors import Damage, DirectoryUnusable, NotOpened, TopicNotFound, Unavailable
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.readable_log import SeqnoRange
from support.nodes.process import NodeProcess, free_port

SMALL = Settings(segment=SegmentSettings(bytes=8192))


def fill(path: Path) -> None:
    """`events` has 3 logs of 300 records, the third trimmed below 100; `orders.eu` 50, `empty` none, `_kept` a few."""
    with DataDirectory.open(str(path)) as data:
        for name, partitions, count in (("events", 3, 300), ("orders.eu", 1, 50), ("empty", 2, 0), ("_kept", 1, 5)):
            data.create_topic(name, partitions, SMALL)
            logs = data.open_topic(name)
            for log in logs:
                for start in range(0, count, 5):
                    times = [1000 * (start + offset) for offset in range(5)]
                    log.append_one(build([b"x" * 90] * 5, timestamps=times), start)
                log.commit(log.sync())
            if name == "events":
                logs[2].trim(100, 1000)
                logs[2].commit(logs[2].sync())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("catalog"))
    fill(node.directory)
    with node:
        yield node


@pytest.fixture(params=["directory", "node", "node far away"])
def catalog(node: NodeProcess, request: pytest.FixtureRequest) -> Iterator[LogCatalog]:
    if request.param == "directory":
        found: LogCatalog = FileCatalog(node.directory)
    else:
        found = NodeCatalog(node.address, "/nowhere" if "far" in request.param else None)
    yield found
    found.close()


def names(catalog: LogCatalog, *some: str, pattern: str | None = None) -> list[str]:
    return [topic.name for topic in catalog.find(some, pattern)]


def test_topics_are_found_by_name_and_by_pattern(catalog: LogCatalog) -> None:
    assert names(catalog, "orders.eu", "events", "nobody", "events") == ["events", "orders.eu"]
    assert names(catalog, pattern="e.*") == ["empty", "events"]
    assert names(catalog, pattern="events|orders[.]..") == ["events", "orders.eu"]
    assert names(catalog, pattern="event") == [], "whole names"
    assert names(catalog, pattern="eve?nts") == ["events"]
    assert names(catalog, pattern="x*events") == ["events"]
    assert names(catalog, "orders.eu", pattern="em.*") == ["empty", "orders.eu"]


def test_what_the_node_keeps_for_itself_matches_no_pattern(catalog: LogCatalog) -> None:
    assert "_kept" not in names(catalog, pattern=".*")
    assert names(catalog, pattern="_.*") == []


def test_a_topic_is_listed_with_the_ends_of_its_logs(catalog: LogCatalog) -> None:
    events, empty = catalog.find(["events", "empty"])[::-1]
    assert [ends[:2] for ends in events.ends] == [(0, 300), (0, 300), (100, 300)]
    assert [ends[:2] for ends in empty.ends] == [(0, 0), (0, 0)]
    assert len(bytes.fromhex(events.id)) == 16


def test_times_are_looked_up(catalog: LogCatalog) -> None:
    (events,) = catalog.find(["events"])
    assert [catalog.seqno_at(events, 0, moment) for moment in (-5, 0, 1, 150_000, 299_000)] == [0, 0, 1, 150, 299]
    assert [catalog.seqno_at(events, 2, moment, "skip") for moment in (0, 150_001, 10**9)] == [100, 151, 300]
    (empty,) = catalog.find(["empty"])
    assert catalog.seqno_at(empty, 1, 0) == 0


@pytest.mark.parametrize("every", [1, 3000, 10_000, 1 << 30])
def test_logs_are_cut_densely(catalog: LogCatalog, every: int) -> None:
    (events,) = catalog.find(["events"])
    for partition, low, high in ((0, 0, 300), (1, 17, 18), (1, 18, 250), (2, 100, 300)):
        pieces = catalog.cut(events, partition, low, high, every)
        assert (pieces[0].seqno_from, pieces[-1].seqno_until) == (low, high)
        assert all(one.seqno_until == other.seqno_from for one, other in pairwise(pieces))
        if every == 3000 and high - low > 100:
            assert 5 < len(pieces) < 20


def test_a_place_says_whose_it_is_and_where_its_files_are(node: NodeProcess, catalog: LogCatalog) -> None:
    assert catalog.node_id == FileCatalog(node.directory).node_id
    assert catalog.directory in (str(node.directory), "/nowhere")


def test_only_the_files_of_that_very_node_are_looked_at(node: NodeProcess, tmp_path: Path) -> None:
    own = FileCatalog(node.directory)
    assert open_files(str(node.directory), own.node_id) is not None
    assert open_files(str(node.directory), "another") is None
    assert open_files(None, own.node_id) is None
    assert open_files(str(tmp_path), own.node_id) is None


def test_what_is_no_data_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="nothing is not there: name a data directory, or a node as logboom://"):
        FileCatalog(tmp_path / "nothing")
    with pytest.raises(DirectoryUnusable, match=r"is no data directory: it has no node\.json"):
        FileCatalog(tmp_path)


def test_a_node_that_is_not_there_is_given_up() -> None:
    with pytest.raises(Unavailable):
        NodeCatalog(f"127.0.0.1:{free_port()}")


def test_logs_that_no_writer_has_opened_are_not_taken_for_empty(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    os.unlink(tmp_path / "data" / "state")
    with pytest.raises(NotOpened):
        FileCatalog(tmp_path / "data").find(["events"])


def test_a_topic_made_again_is_another_one(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    catalog = FileCatalog(tmp_path / "data")
    (before,) = catalog.find(["events"])
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.delete_topic("events")
        data.create_topic("events")
    (after,) = catalog.find(["events"])
    assert before.id != after.id
    with pytest.raises(TopicNotFound):
        catalog.cut(before, 0, 0, 300, 1000)
    catalog.close()


def test_a_time_is_found_behind_damage_only_when_that_may_be_passed_over(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    catalog = FileCatalog(tmp_path / "data")
    (events,) = catalog.find(["events"])
    files = sorted((tmp_path / "data" / "topics" / f"events~{events.id}" / "0").glob("*.log"))
    assert len(files) > 2
    content = bytearray(files[1].read_bytes())
    content[10] ^= 1
    files[1].write_bytes(content)
    first = int(files[1].name.split("-")[0])
    for moment in (1000 * first, 1000 * (first + 2)):
        with pytest.raises(Damage) as caught:
            catalog.seqno_at(events, 0, moment)
        assert (caught.value.seqno_from, caught.value.seqno_until) == (first, first + 5)
        assert catalog.seqno_at(events, 0, moment, "skip") == first + 5
    catalog.close()


def info(first: int, until: int, size: int) -> SegmentInfo:
    return SegmentInfo(first, until, 0, 0, size, sealed=True, oldest=None, newest=None, damage=None)


@pytest.mark.parametrize("every", [1, 7, 100, 1000, 10**9])
def test_segments_are_cut_as_if_records_were_alike(every: int) -> None:
    segments = [info(100, 200, 1000), info(200, 200, 0), info(200, 201, 10**6), info(201, 300, 0), info(300, 500, 400)]
    for low, high in ((0, 600), (100, 500), (150, 151), (199, 202), (450, 700)):
        pieces = cut_evenly(segments, low, high, every)
        assert (pieces[0].seqno_from, pieces[-1].seqno_until) == (low, high)
        assert all(one.seqno_until == other.seqno_from for one, other in pairwise(pieces))
        assert all(piece.seqno_from < piece.seqno_until for piece in pieces)
    assert cut_evenly([], 5, 9, every) == [SeqnoRange(5, 9, 0)]
    assert cut_evenly(segments, 9, 9, every) == []


def test_who_has_an_event_loop_of_its_own_may_ask_too(node: NodeProcess) -> None:
    async def ask() -> list[str]:
        catalog = NodeCatalog(node.address)
        try:
            return names(catalog, "events")
        finally:
            catalog.close()

    assert asyncio.run(ask()) == ["events"]
