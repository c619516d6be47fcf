"""Cursors over HTTP: put, seen, listed, deleted; and what they refuse to stand on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from logboom.batch import build
from logboom.broker.api import Part
from logboom.storage.bookmark import Bookmark
from support.brokers.any_broker import AnyBroker
from support.nodes.web import WebNode, tell

CURSOR = "/topics/t/cursors/bill/eu:1"


async def fill(broker: AnyBroker, topic: str = "t", count: int = 10, partition: int | None = None) -> None:
    await broker.append([Part(topic, [build([b"%d" % n for n in range(count)])], partition)], "durable")


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def bookmark(node: WebNode, topic: str = "t", **query: Any) -> str:
    found: str = (await node.client.get(f"/topics/{topic}/records", params=query)).json()["next"]
    return found


def test_a_cursor_stands_where_it_was_put(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker)
        assert problem(await node.client.get(CURSOR)) == (404, "cursor-not-found")
        here = await bookmark(node, limit=4)
        place = {"cursor": "bill/eu:1", "topic": "t", "partition": 0, "seqno": 4, "bookmark": here, "lag": 6}
        answer = await node.client.put(CURSOR, json={"bookmark": here})
        assert (answer.status_code, answer.json()) == (200, place)
        assert (await node.client.get(CURSOR)).json() == place
        assert await node.broker.fetch_cursor("bill/eu:1", "t") == here
        records = (await node.client.get("/topics/t/records?cursor=bill/eu:1")).json()["records"]
        assert [record["seqno"] for record in records] == [4, 5, 6, 7, 8, 9]

    assert tell(tmp_path, story) == []


def test_a_cursor_goes_back_only_by_force_and_only_from_where_it_is_expected(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker)
        assert (await node.client.put(CURSOR, json={"seqno": 7, "expect": ""})).status_code == 200
        refused = await node.client.put(CURSOR, json={"seqno": 3})
        assert problem(refused) == (409, "cursor-moved-back")
        assert (refused.json()["data"]["at"], "force" in refused.json()["fix"]) == (7, True)
        assert problem(await node.client.put(CURSOR, json={"seqno": 8, "expect": ""})) == (409, "unexpected-cursor")
        assert problem(await node.client.put(CURSOR, json={"seqno": 8, "expect": "?"})) == (400, "invalid-bookmark")
        here = await bookmark(node, limit=7)
        back = await node.client.put(CURSOR, json={"seqno": 3, "force": True, "expect": here})
        assert back.json()["seqno"] == 3

    tell(tmp_path, story)


def test_a_cursor_is_put_by_seqno_too(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker)
        answer = await node.client.put(CURSOR, json={"seqno": 7})
        assert (answer.json()["seqno"], answer.json()["lag"]) == (7, 3)
        assert answer.json()["bookmark"] == await bookmark(node, limit=7)
        assert (await node.client.put(CURSOR, json={"seqno": 10})).json()["lag"] == 0
        assert problem(await node.client.put(CURSOR, json={"seqno": 11})) == (416, "seqno-out-of-range")
        await node.broker.trim("t", None, 5)
        assert problem(await node.client.put(CURSOR, json={"seqno": 4})) == (416, "seqno-out-of-range")
        assert (await node.client.get(CURSOR)).json()["seqno"] == 10

    tell(tmp_path, story)


def test_a_bookmark_of_another_log_is_refused(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker)
        await node.broker.create_topic("u", 2)
        await fill(node.broker, "u", partition=1)
        other = await bookmark(node, "u", partition=1)
        assert problem(await node.client.put(CURSOR, json={"bookmark": other})) == (410, "topic-recreated")
        answer = await node.client.put("/topics/u/cursors/c?partition=0", json={"bookmark": other})
        assert problem(answer) == (400, "invalid-bookmark")
        assert problem(await node.client.put("/topics/u/cursors/c", json={"seqno": 1})) == (404, "partition-not-found")
        assert (await node.client.put("/topics/u/cursors/c", json={"bookmark": other})).json()["partition"] == 1
        place = Bookmark.parse(await bookmark(node))
        recreated = str(place._replace(topic_id=bytes(16)))
        assert problem(await node.client.put(CURSOR, json={"bookmark": recreated})) == (410, "topic-recreated")
        ahead = str(place._replace(seqno=place.seqno + 1))
        assert problem(await node.client.put(CURSOR, json={"bookmark": ahead})) == (410, "bookmark-lost")

    tell(tmp_path, story)


def test_a_body_that_names_no_place_is_refused(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker)
        for body in (
            b"",
            b"{}",
            b'{"seqno": 1, "bookmark": "x"}',
            b'{"seqno": -1}',
            b'{"at": 1}',
            b"[",
            b'{"seqno":"1"}',
        ):
            answer = await node.client.put(CURSOR, content=body)
            assert answer.status_code == 400, body
        assert problem(await node.client.put(CURSOR, json={"bookmark": "x"})) == (400, "invalid-bookmark")
        assert problem(await node.client.put("/topics/t/cursors/a b", json={"seqno": 1})) == (
            400,
            "invalid-cursor-name",
        )
        assert problem(await node.client.put("/topics/v/cursors/a", json={"seqno": 1})) == (404, "topic-not-found")

    tell(tmp_path, story)


def test_cursors_are_listed_by_topic_and_prefix(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for topic in ("t", "u"):
            await fill(node.broker, topic)
            for cursor in ("a", "b/1", "b/2"):
                await node.client.put(f"/topics/{topic}/cursors/{cursor}", json={"seqno": 4})

        async def listed(path: str) -> list[tuple[str, str, int]]:
            found = (await node.client.get(path)).json()["cursors"]
            return [(info["cursor"], info["topic"], info["lag"]) for info in found]

        assert len(await listed("/cursors")) == 6
        assert await listed("/cursors?topic=u&prefix=b/") == [("b/1", "u", 6), ("b/2", "u", 6)]
        assert await listed("/topics/t/cursors?prefix=a") == [("a", "t", 6)]
        assert problem(await node.client.get("/topics/v/cursors")) == (404, "topic-not-found")

    tell(tmp_path, story)


def test_cursors_are_listed_page_by_page_those_that_lag_most_first_if_asked(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "t")
        for number, cursor in enumerate(("a", "b", "c", "d")):
            await node.client.put(f"/topics/t/cursors/{cursor}", json={"seqno": number * 7 % 5})

        async def listed(query: str) -> tuple[list[str], int]:
            page = (await node.client.get(f"/topics/t/cursors?{query}")).json()
            return [info["cursor"] for info in page["cursors"]], page["total"]

        assert await listed("limit=2") == (["a", "b"], 4)
        assert await listed("limit=2&offset=3") == (["d"], 4)
        assert await listed("offset=9") == ([], 4)
        assert await listed("sort=lag") == (["a", "d", "b", "c"], 4)
        for wrong in ("limit=0", "limit=10001", "offset=-1", "sort=size"):
            assert problem(await node.client.get(f"/cursors?{wrong}")) == (400, "bad-parameter")

    tell(tmp_path, story)


def test_a_cursor_that_is_deleted_is_gone_in_every_partition(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t", 2)
        for partition in (0, 1):
            await fill(node.broker, partition=partition)
            await node.client.put(f"{CURSOR}?partition={partition}", json={"seqno": 4})
        assert (await node.client.get(f"{CURSOR}?partition=1")).json()["seqno"] == 4
        answer = await node.client.delete(CURSOR)
        assert (answer.status_code, answer.content) == (204, b"")
        for partition in (0, 1):
            assert problem(await node.client.get(f"{CURSOR}?partition={partition}")) == (404, "cursor-not-found")
        assert problem(await node.client.delete(CURSOR)) == (404, "cursor-not-found")
        assert problem(await node.client.delete(f"{CURSOR}?partition=1")) == (400, "bad-parameter")

    tell(tmp_path, story)
