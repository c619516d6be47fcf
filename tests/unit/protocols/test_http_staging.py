"""Stages and keys over HTTP: listed, thrown away, forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from logboom import errors
from logboom.broker.api import PublishKey, Receipt
from logboom.protocols.http.problem import problem_of
from support.brokers.staged import fill_stage
from support.nodes.web import WebNode, tell


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_stages_are_listed_longest_unused_first_or_by_size(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert (await node.client.get("/stages")).json() == {"stages": [], "total": 0}
        await node.broker.create_topic("t", 2)
        first = await fill_stage(node.broker, count=3, note="import")
        second = await fill_stage(node.broker, count=500)
        answer = await node.client.get("/stages")
        assert answer.headers["cache-control"] == "no-store"
        listed = answer.json()
        assert [stage["id"] for stage in listed["stages"]] == [first.id, second.id]
        shown = listed["stages"][0]
        assert (shown["records"], shown["logs"], shown["state"], shown["note"]) == (3, ["t/0"], "open", "import")
        assert shown["opened"] <= shown["touched"] < shown["expires"]
        page = (await node.client.get("/stages?sort=size&limit=1")).json()
        assert ([stage["id"] for stage in page["stages"]], page["total"]) == ([second.id], 2)
        page = (await node.client.get("/stages?sort=size&offset=1")).json()
        assert [stage["id"] for stage in page["stages"]] == [first.id]
        assert problem(await node.client.get("/stages?sort=age")) == (400, "bad-parameter")

    assert tell(tmp_path, story) == []


def test_a_stage_is_thrown_away_once(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        stage = await fill_stage(node.broker)
        assert (await node.client.delete(f"/stages/{stage.id}")).status_code == 204
        assert problem(await node.client.delete(f"/stages/{stage.id}")) == (404, "stage-not-found")
        assert (await node.client.get("/stages")).json()["total"] == 0

    assert tell(tmp_path, story) == []


def test_a_stage_that_is_being_published_stays(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        stage = await fill_stage(node.broker)
        publishing = asyncio.create_task(node.broker.publish(PublishKey("k", 1), [Receipt(stage.id, 3)]))
        answers = []
        while not publishing.done():
            answers.append(await node.client.delete(f"/stages/{stage.id}"))
        assert {problem(answer) for answer in answers} <= {(409, "stage-busy"), (404, "stage-not-found")}
        assert (await publishing).repeat is False
        records = (await node.client.get("/topics/t/records")).json()["records"]
        assert len(records) == 3

    assert tell(tmp_path, story) == []


def test_keys_are_listed_by_name_or_newest_first(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        stage = await fill_stage(node.broker)
        await node.broker.publish(PublishKey("orders/b", 7), [Receipt(stage.id, 3)])
        await node.broker.publish(PublishKey("orders/a", 2), [])
        await node.broker.publish(PublishKey("0f3c", lasting=False), [])
        listed = (await node.client.get("/keys")).json()
        assert [key["name"] for key in listed["keys"]] == ["0f3c", "orders/a", "orders/b"]
        random, _, named = listed["keys"]
        assert (named["number"], named["records"], named["expires"], named["is_open"]) == (7, 3, None, False)
        assert random["expires"] > random["published"]
        page = (await node.client.get("/keys?prefix=orders/&sort=published&limit=1")).json()
        assert ([key["name"] for key in page["keys"]], page["total"]) == (["orders/a"], 2)

    assert tell(tmp_path, story) == []


def test_a_key_is_forgotten_whatever_its_name(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for name in ("orders/../b//c", "100%&a=b?#", ".."):
            await node.broker.publish(PublishKey(name, 1), [])
            assert (await node.client.delete("/keys", params={"name": name})).status_code == 204
            assert problem(await node.client.delete("/keys", params={"name": name})) == (404, "key-not-found")
            assert (await node.broker.publish(PublishKey(name, 1), [])).repeat is False
        assert problem(await node.client.delete("/keys")) == (400, "bad-parameter")

    assert tell(tmp_path, story) == []


def test_stats_and_metrics_tell_of_stages_and_publishes(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        first, second, third = [await fill_stage(node.broker) for _ in range(3)]
        await node.broker.publish(PublishKey("k", 1), [Receipt(first.id, 3)])
        await node.broker.publish(PublishKey("k", 1), [Receipt(second.id, 3)])
        staging = (await node.client.get("/stats")).json()["staging"]
        size = (await node.client.get("/stages")).json()["stages"][0]["size_bytes"]
        assert staging == {
            "stages": 1,
            "staged_bytes": size,
            "publishing": 0,
            "published": 1,
            "published_records": 3,
            "repeats": 1,
            "opened": 3,
            "discarded": 1,
            "expired": 0,
            "keys": 1,
        }
        page = (await node.client.get("/metrics?topics=none")).text.splitlines()
        for line in (
            "logboom_stages 1",
            f"logboom_staged_bytes {size}",
            "logboom_publishing 0",
            "logboom_published_total 1",
            "logboom_published_records_total 3",
            "logboom_publish_repeats_total 1",
            "logboom_stages_opened_total 3",
            "logboom_stages_discarded_total 1",
            "logboom_stages_expired_total 0",
            "logboom_publish_keys 1",
            'logboom_limit{limit="stage_idle_seconds"} 86400.0',
        ):
            assert line in page, line
        assert (await node.client.delete(f"/stages/{third.id}")).status_code == 204

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("error", "status", "data"),
    [
        (errors.TopicBusy("t", "k"), 409, {"name": "t", "key": "k"}),
        (errors.StageBusy("ab"), 409, {"stage": "ab"}),
        (errors.StageIncomplete("ab", 3, 2), 409, {"stage": "ab", "expected": 3, "found": 2}),
        (errors.StageFailed("ab", "a sync failed"), 410, {"stage": "ab"}),
        (errors.InvalidKey("a b", "has a space"), 400, {"name": "a b"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_staging_have_statuses_of_their_own(
    error: errors.LogboomError, status: int, data: dict[str, object]
) -> None:
    found = problem_of(error)
    assert (found.status, found.code, found.data) == (status, errors.code_of(error), data)
