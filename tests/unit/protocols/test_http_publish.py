"""Publishing over HTTP: records for any topics, and cursors, all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from logboom.broker.publish.publication import BUNDLE_BYTES_MAX
from support.nodes.web import WebNode, tell


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def publish(node: WebNode, number: int, **what: Any) -> httpx.Response:
    return await node.client.post("/publish", json={"name": "job", "number": number, **what})


async def values(node: WebNode, topic: str, partition: int = 0) -> list[Any]:
    answer = await node.client.get(f"/topics/{topic}/records?partition={partition}")
    return [record["value"] for record in answer.json()["records"]]


def test_records_and_cursors_are_published_once(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics/in/records", json=[1, 2, 3])
        await node.broker.create_topic("out", 2)
        after = (await node.client.get("/topics/in/records?limit=2")).json()["next"]
        what: dict[str, Any] = {
            "records": [
                {"topic": "out", "records": [{"value": {"n": 1.50}, "key": "a"}, {"value": 12345678901234567890}]},
                {"topic": "out", "partition": 1, "records": ["x", "y"]},
                {"topic": "made", "records": [{"value": None, "tags": ["t"]}]},
            ],
            "moves": [{"cursor": "c", "topic": "in", "bookmark": after, "expect": ""}],
        }
        first = await publish(node, 1, **what)
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-store")
        done = first.json()
        assert (done["name"], done["number"], done["repeat"]) == ("job", 1, False)
        assert {part["topic"]: part["records"] for part in done["parts"] if part["topic"] == "made"} == {"made": 1}
        assert (await publish(node, 1, **what)).json() == {**done, "repeat": True}
        found = await values(node, "out", 0) + await values(node, "out", 1)
        assert sorted(map(str, found)) == ["12345678901234567890", "x", "y", "{'n': 1.5}"]
        assert await values(node, "made") == [None]
        assert (await node.client.get("/topics/in/cursors/c")).json()["seqno"] == 2

    assert tell(tmp_path, story) == []


def test_what_is_wrong_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics/in/records", json=[1, 2, 3])
        after = (await node.client.get("/topics/in/records?limit=2")).json()["next"]
        await node.client.put("/topics/in/cursors/c", json={"seqno": 3})
        good = {"topic": "in", "records": [4]}

        def move(**how: Any) -> dict[str, Any]:
            return {"records": [good], "moves": [{"cursor": "c", "topic": "in", "bookmark": after, **how}]}

        refused: list[tuple[dict[str, Any], tuple[int, str]]] = [
            (move(), (409, "cursor-moved-back")),
            (move(expect=""), (409, "unexpected-cursor")),
            (move(topic="other"), (404, "topic-not-found")),
            (move(bookmark="nonsense"), (400, "invalid-bookmark")),
            (move(cursor="@c"), (400, "invalid-cursor-name")),
            (move(member="m", generation=1), (404, "member-unknown")),
            ({"moves": [move()["moves"][0]] * 501}, (429, "limit-exceeded")),
            ({"records": [{"topic": "in", "records": []}]}, (400, "no-records")),
            ({"records": [good, {"topic": "in", "records": [{"value": 1, "tags": 5}]}]}, (400, "invalid-column")),
            ({"records": [good, {"topic": "in", "partition": 7, "records": [1]}]}, (404, "partition-not-found")),
            ({"records": [good, {"topic": "a b", "records": [1]}]}, (400, "invalid-topic-name")),
            ({"records": [good] * 65}, (429, "limit-exceeded")),
            ({"records": [{"topic": "in", "records": ["x" * BUNDLE_BYTES_MAX]}]}, (429, "limit-exceeded")),
        ]
        for what, expected in refused:
            assert problem(await publish(node, 1, **what)) == expected, what
        assert problem(await node.client.post("/publish", content=b"{")) == (400, "bad-json")
        assert problem(await node.client.post("/publish", json={"name": "a b", "number": 1})) == (400, "invalid-key")
        assert await values(node, "in") == [1, 2, 3]
        assert (await publish(node, 1, **move(force=True))).status_code == 200
        assert (await node.client.get("/topics/in/cursors/c")).json()["seqno"] == 2

    assert tell(tmp_path, story) == []
