"""How far cursors are behind: remembered, and of very many only what somebody asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from logboom.broker.api import ActivityRequest
from logboom.broker.monitor import lags
from support.brokers.watched import Watched, tell


def test_the_lag_of_cursors_is_remembered_from_when_they_are_there(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.send(10)
        await watched.put_cursor("b", 4)
        await watched.sample()
        await watched.put_cursor("a", 9)
        await watched.put_cursor("b", 10)
        await watched.sample()
        found = (await watched.broker.topic_history("t")).cursors
        assert [(each.cursor, each.partition, each.lag) for each in found] == [
            ("a", 0, [None, None, 1]),
            ("b", 0, [None, 6, 0]),
        ]

    tell(tmp_path, story)


def test_a_cursor_that_is_deleted_is_followed_no_more_and_counts_no_more(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.send(10)
        for name, seqno in (("a", 1), ("b", 6)):
            await watched.put_cursor(name, seqno)
        await watched.sample()
        (shown,) = (await watched.broker.activity(ActivityRequest())).topics
        assert (shown.cursors, shown.lag) == (2, 9)
        await watched.broker.delete_cursor("a", "t")
        await watched.sample()
        (shown,) = (await watched.broker.activity(ActivityRequest())).topics
        assert (shown.cursors, shown.lag) == (1, 4)
        assert [each.cursor for each in (await watched.broker.topic_history("t")).cursors] == ["b"]

    tell(tmp_path, story)


def test_of_very_many_cursors_the_lag_on_a_page_is_looked_at_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lags, "COUNTED_MAX", 1)

    async def story(watched: Watched) -> None:
        async def lag() -> int | None:
            return (await watched.broker.activity(ActivityRequest())).topics[0].lag

        await watched.send(10)
        for name in ("a", "b"):
            await watched.put_cursor(name, 1)
        seen = []
        for _ in range(7):
            await watched.sample()
            seen.append(await lag())
            await watched.send(1)
        assert seen == [9, 9, 9, 12, 12, 12, 15]

    tell(tmp_path, story)


def test_of_very_many_cursors_those_of_topics_that_were_asked_for_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lags, "FOLLOWED_MAX", 3)

    async def story(watched: Watched) -> None:
        async def followed(topic: str) -> list[str]:
            return [each.cursor for each in (await watched.broker.topic_history(topic)).cursors]

        for topic in ("t", "u"):
            await watched.send(1, topic)
            for name in ("a", "b"):
                await watched.put_cursor(name, 0, topic)
        await watched.sample()
        assert await followed("t") == []
        await watched.sample()
        assert await followed("t") == ["a", "b"]
        assert await followed("u") == []
        await watched.sample()
        assert len(await followed("u") + await followed("t")) == 3
        await watched.sample(after_s=601)
        await watched.sample()
        assert await followed("t") == []

    tell(tmp_path, story)
