"""What the node and its topics do, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.api import Part
from support.nodes.web import WebNode, tell


async def get(node: WebNode, path: str, status: int = 200) -> Any:
    answer = await node.client.get(path)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def fill(node: WebNode) -> None:
    for name, count in (("orders.eu", 3), ("orders.us", 5), ("payments", 1)):
        await node.broker.append([Part(name, [build([b"v"] * count)])])
    await node.client.put("/topics/orders.eu/cursors/billing", json={"seqno": 1})
    await node.broker.watcher.sample()


def test_the_last_minutes_of_the_node_are_columns_of_one_length(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        found = await get(node, "/activity")
        assert found["interval_ms"] == 2000
        columns = [
            *found.values(),
            *(found[name][share] for name in ("append", "sync", "read") for share in found[name]),
        ]
        assert {len(column) for column in columns if isinstance(column, list)} == {len(found["at"])}
        assert max(found["records_in"]) > 0
        assert (await get(node, f"/activity?since={found['at'][-1]}"))["at"] != found["at"]

    assert tell(tmp_path, story) == []


def test_topics_are_searched_sorted_and_cut_into_pages(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        found = await get(node, "/activity/topics?search=ORDERS&sort=records&descending=true")
        assert (found["total"], found["matched"]) == (3, 2)
        assert [topic["name"] for topic in found["topics"]] == ["orders.us", "orders.eu"]
        assert [topic["records"] for topic in found["topics"]] == [5, 3]
        page = await get(node, "/activity/topics?offset=6&limit=1&internal=true")
        assert [topic["name"] for topic in page["topics"]] == ["orders.eu"]
        assert (page["topics"][0]["cursors"], page["topics"][0]["lag"]) == (1, 2)

    assert tell(tmp_path, story) == []


def test_a_topic_shows_its_last_minutes_and_the_lag_of_its_cursors(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        found = await get(node, "/activity/topics/orders.eu")
        assert sum(found["records_in"]) == 3
        assert [(cursor["cursor"], cursor["partition"]) for cursor in found["cursors"]] == [("billing", 0)]
        assert found["cursors"][0]["lag"][-1] == 2
        assert len(found["at"]) == len(found["records_in"]) == len(found["cursors"][0]["lag"])
        assert (await get(node, "/activity/topics/nothing", 404))["code"] == "topic-not-found"

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/activity?since=-1", "since"),
        ("/activity?since=now", "since"),
        ("/activity/topics?limit=501", "limit"),
        ("/activity/topics?limit=0", "limit"),
        ("/activity/topics?offset=-1", "offset"),
        ("/activity/topics?sort=age", "sort"),
        ("/activity/topics?search=" + 257 * "a", "search"),
        ("/activity/topics?order=name", "order"),
        ("/activity/topics/t?since=0", "since"),
    ],
    ids=lambda text: text[:40],
)
def test_a_parameter_that_is_wrong_is_named(path: str, parameter: str, tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        problem = await get(node, path, 400)
        assert (problem["code"], problem["parameter"]) == ("bad-parameter", parameter)

    assert tell(tmp_path, story) == []
