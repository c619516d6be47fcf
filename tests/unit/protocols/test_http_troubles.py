"""What went wrong, what is wrong, and what logs are made of, over HTTP."""

from __future__ import annotations

from pathlib import Path

from logboom.batch import build
from logboom.broker.api import Part, Settings
from logboom.storage.data.topic import SegmentSettings
from support.nodes.web import WebNode, tell

TINY = Settings(segment=SegmentSettings(bytes=4096))


def test_incidents_are_told_newest_first(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert (await node.client.get("/incidents")).json() == {"incidents": []}
        await node.client.post("/topics", json={"name": "_mine"})
        await node.client.post("/topics", json={"name": "_mine"})
        for wrong in ("/topics/nobody", "/topics?limit=0", "/nothing", "/topics/a%20b", "/topics/x/cursors/y"):
            assert (await node.client.get(wrong)).status_code in (400, 404)
        assert (await node.client.put("/topics", content=b"1")).status_code == 405
        await node.client.get("/topics", headers={"host": "evil.example"})
        answer = await node.client.get("/incidents")
        assert answer.headers["cache-control"] == "no-store"
        newest, older = answer.json()["incidents"]
        assert (newest["kind"], newest["name"], newest["count"]) == ("rejection", "RequestError", 1)
        assert (older["name"], older["count"]) == ("TopicNotAllowed", 2)
        assert "evil.example" in newest["text"]
        assert "_mine" in older["text"]
        assert older["first"] <= older["last"] <= newest["first"]
        assert node.broker.rejections["TopicNotFound"] == 2  # counted all the same

    assert tell(tmp_path, story) == []


def test_a_checkup_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        await node.broker.refuse("t", "moving")
        answer = await node.client.get("/checkup")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json() == {
            "findings": [
                {
                    "severity": "warning",
                    "kind": "writes refused",
                    "where": "t",
                    "reason": "moving",
                    "advice": "`logboom accept t` takes writes again",
                }
            ]
        }

    assert tell(tmp_path, story) == []


def test_a_checkup_is_kept_for_a_moment(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        first = (await node.client.get("/checkup")).json()
        await node.broker.refuse(None, "maintenance")
        assert (await node.client.get("/checkup")).json() == first

    assert tell(tmp_path, story) == []


def test_segments_are_listed_oldest_first(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t", 2, TINY)
        for _ in range(3):
            await node.broker.append([Part("t", [build([b"x" * 3000])], 1)], "durable")
        answer = await node.client.get("/topics/t/segments?partition=1")
        assert answer.headers["cache-control"] == "no-store"
        found = answer.json()["segments"]
        assert [(info["first_seqno"], info["next_seqno"], info["sealed"]) for info in found] == [
            (0, 1, True),
            (1, 2, True),
            (2, 3, False),
        ]
        assert found[0]["oldest"] == found[0]["newest"] <= found[1]["oldest"]
        newest = await node.client.get("/topics/t/segments?partition=1&limit=1")
        assert newest.json()["segments"] == found[-1:]

    assert tell(tmp_path, story) == []


def test_segments_of_what_is_not_there_are_a_problem(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t", 2)
        for path, status in (
            ("/topics/nobody/segments", 404),
            ("/topics/t/segments", 404),
            ("/topics/t/segments?partition=2", 404),
            ("/topics/t/segments?partition=0&limit=0", 400),
            ("/topics/t/segments?partition=0&limit=10001", 400),
        ):
            assert (await node.client.get(path)).status_code == status, path

    assert tell(tmp_path, story) == []


def test_each_of_them_answers_a_head(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        for path in ("/incidents", "/checkup", "/topics/t/segments"):
            got, told = await node.client.get(path), await node.client.head(path)
            assert (told.status_code, told.content) == (200, b""), path
            assert told.headers["content-length"] == got.headers["content-length"], path

    assert tell(tmp_path, story) == []
