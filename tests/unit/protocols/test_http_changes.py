"""The feed of changes: what is posted comes back in order, numbered from 1, and says whether anything is missing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import Record, build_records
from logboom.broker.api import Part
from logboom.broker.limits import Limits
from logboom.protocols.http.settings import HttpSettings
from support.nodes.web import WebNode, tell


async def post(node: WebNode, body: Any) -> dict[str, Any]:
    answer = await node.client.post("/changes", json=body)
    assert answer.status_code == 200, answer.text
    change: dict[str, Any] = answer.json()
    return change


async def changes(node: WebNode, query: str = "") -> tuple[list[int], bool, bool]:
    """Numbers, at start, at end."""
    answer = await node.client.get(f"/changes?{query}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return [change["_id"] for change in found["changes"]], found["atStart"], found["atEnd"]


def test_changes_come_back_as_they_were_posted(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        before = time.time_ns()
        first = await post(node, {"data": {"hello": "world"}})
        assert (first["_id"], first["data"]) == (1, {"hello": "world"})
        assert before - 1000 <= first["_ts"] <= time.time_ns()
        assert "tags" not in first
        second = await post(node, {"data": [1, 2], "tags": ["a", "b"]})
        assert (second["_id"], second["tags"]) == (2, ["a", "b"])
        answer = (await node.client.get("/changes")).json()
        assert answer == {"changes": [first, second], "atStart": True, "atEnd": True}
        assert (await node.client.get("/changes/2")).json() == second
        for number in ("0", "3", "x"):
            missing = await node.client.get(f"/changes/{number}")
            assert (missing.status_code, missing.json()["code"]) == (404, "change-not-found")

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("body", "data", "tags"),
    [
        ({"data": None}, None, []),
        ({"data": "text", "tags": []}, "text", []),
        ({"data": {"base64": "/w=="}}, {"base64": "/w=="}, []),
        ({"data": 1, "_id": 7, "_ts": 8, "more": 9}, 1, []),
        ({"hello": "world"}, {"hello": "world"}, []),
        ({"tags": 5}, {"tags": 5}, []),
        ([1, 2], [1, 2], []),
        ("text", "text", []),
    ],
)
def test_whatever_has_no_data_is_itself_the_data(tmp_path: Path, body: Any, data: Any, tags: list[str]) -> None:
    async def story(node: WebNode) -> None:
        change = await post(node, body)
        assert (change["data"], change.get("tags", [])) == (data, tags)
        assert (await node.client.get("/changes/1")).json() == change

    tell(tmp_path, story)


@pytest.mark.parametrize("body", [b"", b"{", b'{"data": 1, "tags": "x"}', b'{"data": 1, "tags": [1]}', b'{"data": }'])
def test_what_is_no_change_is_refused(tmp_path: Path, body: bytes) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post("/changes", content=body)
        assert answer.status_code == 400
        assert answer.json()["code"] in ("bad-json", "bad-parameter")
        assert await node.broker.list_topics() == []

    tell(tmp_path, story)


def test_since_limit_and_tags_say_which(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert await changes(node) == ([], True, True)
        for number in range(1, 8):
            await post(node, {"data": number, "tags": ["odd" if number % 2 else "even", f"n{number}"]})
        assert await changes(node) == ([1, 2, 3, 4, 5, 6, 7], True, True)
        assert await changes(node, "limit=1") == ([1], True, False)
        assert await changes(node, "since=1") == ([2, 3, 4, 5, 6, 7], False, True)
        assert await changes(node, "since=5&limit=2") == ([6, 7], False, True)
        assert await changes(node, "since=7") == ([], False, True)
        assert await changes(node, "since=100") == ([], False, True)
        assert await changes(node, "tag=even&limit=2") == ([2, 4], True, False)
        assert await changes(node, "tag=n1&tag=n6&since=1") == ([6], False, True)
        assert await changes(node, "tag=none") == ([], True, True)
        assert (await node.client.get("/changes?limit=many")).json()["parameter"] == "limit"

    tell(tmp_path, story)


def test_a_client_learns_that_what_it_had_not_seen_is_gone(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for number in range(6):
            await post(node, {"data": number})
        await node.broker.trim("changes", None, 3)
        assert await changes(node) == ([4, 5, 6], True, True)
        assert await changes(node, "since=2&limit=1") == ([4], True, False)
        assert await changes(node, "since=4") == ([5, 6], False, True)
        assert (await node.client.get("/changes/3")).status_code == 404

    tell(tmp_path, story)


@pytest.mark.parametrize(("since", "posts"), [(0, 1), (1, 1), (2, 2)])
def test_block_waits_for_the_next_change(tmp_path: Path, since: int, posts: int) -> None:
    async def story(node: WebNode) -> None:
        if since:
            await post(node, {"data": "first"})
        waiting = asyncio.ensure_future(changes(node, f"since={since}&block=30"))
        if since:
            while not (await node.broker.stats()).reads["waiting"]:
                await asyncio.sleep(0.001)
        for _ in range(posts):
            assert not waiting.done()
            last = await post(node, {"data": "news"})
        assert await waiting == ([last["_id"]], since == 0, True)

    tell(tmp_path, story)


def test_block_waits_for_a_change_with_the_tag_and_no_longer_than_it_says(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await post(node, {"data": 1})
        waiting = asyncio.ensure_future(changes(node, "since=1&tag=x&block=30"))
        while not (await node.broker.stats()).reads["waiting"]:
            await asyncio.sleep(0.001)
        await post(node, {"data": 2, "tags": ["y"]})
        await post(node, {"data": 3, "tags": ["x"]})
        assert await waiting == ([3], False, True)
        assert await changes(node, "since=3&block=0.05") == ([], False, True)
        assert await changes(node, "since=7&block=0.05") == ([], False, True)

    tell(tmp_path, story)


def test_closing_ends_the_wait_for_the_first_change(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        waiting = asyncio.ensure_future(changes(node, "block=30"))
        while not node.front_end.connections:
            await asyncio.sleep(0.001)
        node.front_end.closing.set()
        assert await waiting == ([], True, True)

    tell(tmp_path, story)


def test_the_topic_is_as_configured_and_has_one_order(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await post(node, {"data": 1})
        assert [topic.name for topic in await node.broker.list_topics()] == ["feed"]
        await node.broker.delete_topic("feed")
        await node.broker.create_topic("feed", 2)
        for answer in (await node.client.get("/changes"), await node.client.post("/changes", json={"data": 1})):
            assert (answer.status_code, answer.json()["code"]) == (404, "partition-not-found")

    tell(tmp_path, story, settings=HttpSettings(changes_topic="feed"))


def test_records_that_came_otherwise_are_changes_too(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        records = [Record(b"text", timestamp=5), Record(b"\xff", timestamp=5), Record(b"[1]", timestamp=5, tags=("a",))]
        await node.broker.append([Part("changes", [build_records(records)])], "durable")
        assert (await node.client.get("/changes")).json()["changes"] == [
            {"_id": 1, "_ts": 5000, "data": "text"},
            {"_id": 2, "_ts": 5000, "data": {"base64": "/w=="}},
            {"_id": 3, "_ts": 5000, "tags": ["a"], "data": [1]},
        ]

    tell(tmp_path, story)


def test_many_changes_come_in_pieces(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        records = [Record(b"%04d" % number + b"x" * 1000) for number in range(600)]
        await node.broker.append([Part("changes", [build_records(records)])], "durable")
        numbers, at_start, at_end = await changes(node, "limit=500")
        assert (numbers, at_start, at_end) == (list(range(1, 501)), True, False)
        assert await changes(node, "since=500&limit=500") == (list(range(501, 601)), False, True)

    tell(tmp_path, story, limits=Limits(read_wait_ms=100))


def test_a_change_may_be_large(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        posted = [await post(node, {"data": data, "tags": ["a"]}) for data in ("\0" * 1_000_000, [1] * 500_000)]
        assert (await node.client.get("/changes")).json()["changes"] == posted
        assert (await node.client.get("/changes/2")).json() == posted[1]

    assert tell(tmp_path, story) == []
