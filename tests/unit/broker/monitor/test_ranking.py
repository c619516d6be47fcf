"""Topics with what they do: searched, sorted, a page at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from logboom.broker.api import ActivityRequest, ReadRequest
from support.brokers.watched import Watched, tell


def test_topics_are_found_by_words_in_any_case(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        for name in ("Orders.eu", "orders.us", "payments.eu"):
            await watched.broker.create_topic(name)
        assert await watched.names(search="ORDERS") == ["Orders.eu", "orders.us"]
        assert await watched.names(search=" eu  or ") == ["Orders.eu"]
        assert await watched.names(search="nothing") == []
        found = await watched.broker.activity(ActivityRequest(search="eu", limit=1))
        assert (found.total, found.matched, len(found.topics)) == (3, 2, 1)

    tell(tmp_path, story)


async def fill(watched: Watched) -> None:
    """Of each sort the order is c, b, and then those that are equal."""
    for name in ("a", "b", "c", "d"):
        await watched.broker.create_topic(name)
    await watched.send(1, "b")
    await watched.send(3, "c")
    for name in ("b", "c"):
        await watched.broker.read(ReadRequest(name))
        await watched.put_cursor("reader", 0, name)
    await watched.sample()


@pytest.mark.parametrize(
    "sort", ["records_in", "bytes_in", "records_out", "bytes_out", "size", "records", "newest", "lag"]
)
def test_topics_are_sorted_and_equal_ones_are_by_name(sort: str, tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await fill(watched)
        assert await watched.names(sort=sort, descending=True) == ["c", "b", "a", "d"]
        assert await watched.names(sort=sort) == ["a", "d", "b", "c"]

    tell(tmp_path, story)


def test_a_page_is_cut_from_the_whole_and_never_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.broker.monitor.ranking.LIMIT_MAX", 3)

    async def story(watched: Watched) -> None:
        await fill(watched)
        assert await watched.names(descending=True) == ["d", "c", "b"]
        assert await watched.names(offset=1, limit=2) == ["b", "c"]
        assert await watched.names(offset=9) == []
        assert await watched.names(offset=-1, limit=1_000) == ["a", "b", "c"]
        assert await watched.names(limit=-1) == []
        assert await watched.names(internal=True, limit=3) == ["_access", "_cursors", "_groups"]

    tell(tmp_path, story)


def test_a_topic_on_a_page_says_what_it_is_and_does(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await fill(watched)
        await watched.broker.refuse("c", "moving it")
        await watched.put_cursor("other", 1, "c")
        shown = (await watched.broker.activity(ActivityRequest(search="c"))).topics[0]
        info = await watched.broker.describe_topic("c")
        assert (shown.id, shown.partitions, shown.records) == (info.id, 1, 3)
        assert (shown.size_bytes, shown.newest) == (info.partitions[0].size_bytes, info.partitions[0].newest)
        assert (shown.refused, shown.damaged) == ("moving it", 0)
        assert (shown.records_in, shown.records_out) == (3 / 2, 3 / 2)
        assert (shown.recent_in, shown.recent_out) == ([0, 3], [0, 3])
        assert (shown.cursors, shown.lag) == (2, 3)
        quiet = (await watched.broker.activity(ActivityRequest(search="d"))).topics[0]
        assert (quiet.recent_in, quiet.newest, quiet.cursors, quiet.lag) == ([], None, 0, None)
        await watched.sample()
        assert (await watched.broker.activity(ActivityRequest(search="c"))).topics[0].records_in == 0

    tell(tmp_path, story)


def test_topics_that_come_and_go_between_two_samples_are_seen_at_once(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await fill(watched)
        assert await watched.names() == ["a", "b", "c", "d"]
        await watched.broker.create_topic("e")
        assert await watched.names() == ["a", "b", "c", "d", "e"]
        await watched.broker.delete_topic("b")
        assert await watched.names() == ["a", "c", "d", "e"]

    tell(tmp_path, story)


def test_a_topic_that_takes_the_place_of_another_is_seen_at_once(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await fill(watched)
        assert await watched.names() == ["a", "b", "c", "d"]
        await watched.broker.delete_topic("b")
        await watched.broker.create_topic("e")
        assert await watched.names() == ["a", "c", "d", "e"]

    tell(tmp_path, story)
