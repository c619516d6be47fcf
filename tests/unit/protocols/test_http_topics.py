"""Topics over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from logboom.broker.allowances import Allowances
from logboom.broker.api import Settings
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import TopicRules
from logboom.protocols.http.api.topics import merge_settings
from logboom.protocols.http.problem import BadParameter
from logboom.storage import DataDirectory
from logboom.storage.data.topic import HookSettings, RetentionSettings, ValidatorSettings
from support.nodes.web import WebNode, tell


def test_a_topic_is_made_shown_and_deleted(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        made = await node.client.post("/topics", json={"name": "events", "partitions": 3})
        assert (made.status_code, made.headers["location"]) == (201, "/topics/events")
        shown = await node.client.get("/topics/events")
        assert shown.json() == made.json()
        assert [partition["partition"] for partition in shown.json()["partitions"]] == [0, 1, 2]
        again = await node.client.post("/topics", json={"name": "events"})
        assert (again.status_code, again.json()["code"]) == (409, "topic-exists")
        assert again.json()["data"]["topic_id"] == made.json()["id"]
        other = await node.client.delete("/topics/events", params={"topic_id": "0" * 32})
        assert other.status_code == 410
        assert (await node.client.delete("/topics/events", params={"topic_id": made.json()["id"]})).status_code == 204
        gone = await node.client.get("/topics/events")
        assert (gone.status_code, gone.json()["code"]) == (404, "topic-not-found")
        assert gone.json()["fix"].startswith("create it with POST /topics")

    assert tell(tmp_path, story) == []


def test_of_two_changes_at_once_both_last(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "events"})
        changes: list[dict[str, int]] = [{"bytes": 10_000_000}, {"records": 1000}, {"age_ms": 60_000}]
        patches = [node.client.patch("/topics/events", json={"settings": {"retention": change}}) for change in changes]
        assert {answer.status_code for answer in await asyncio.gather(*patches)} == {200}
        found = (await node.client.get("/topics/events")).json()["settings"]["retention"]
        assert (found["bytes"], found["records"], found["age_ms"]) == (10_000_000, 1000, 60_000)

    assert tell(tmp_path, story) == []


def test_settings_are_given_in_part_and_the_rest_is_default(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        new = {"name": "a", "settings": {"retention": {"bytes": 1_000_000}, "flush": {"policy": "os"}}}
        settings = (await node.client.post("/topics", json=new)).json()["settings"]
        others = dict.fromkeys(("age_ms", "records", "hard_bytes", "after"))
        assert settings["retention"] == {"bytes": 1_000_000, **others}
        assert settings["segment"]["bytes"] == 128 * 1024 * 1024
        change = {"settings": {"retention": {"age_ms": 5000, "bytes": None}, "flush": None}}
        changed = await node.client.patch("/topics/a", json=change)
        assert changed.status_code == 200
        assert changed.json()["settings"]["retention"]["age_ms"] == 5000
        assert changed.json()["settings"]["retention"]["bytes"] is None
        assert changed.json()["settings"]["flush"]["policy"] == "each"
        assert (await node.broker.describe_topic("a")).settings == Settings(retention=RetentionSettings(age_ms=5000))

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("body", "parameter", "code"),
    [
        ({"name": "a", "settings": {"retention": {"byte": 1}}}, "settings.retention", "bad-parameter"),
        ({"name": "a", "settings": {"retention": {"bytes": "1"}}}, "settings.retention.bytes", "bad-parameter"),
        ({"name": "a", "settings": {"segment": {"bytes": 1}}}, "segment.bytes", "config-error"),
        ({"name": "a", "partitions": 0}, "partitions", "bad-parameter"),
        ({"name": "a", "partitions": 100_000}, "partitions", "config-error"),
        ({"name": "a", "unknown": 0}, "body", "bad-parameter"),
        ({}, "body", "bad-parameter"),
        ([], "body", "bad-parameter"),
        ({"name": "a b"}, None, "invalid-topic-name"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_by_the_name_of_what_is_wrong(
    tmp_path: Path, body: Any, parameter: str | None, code: str
) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post("/topics", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert answer.json().get("parameter") == parameter

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'"\\ud800"'])
def test_a_body_that_is_no_json_is_told_so(tmp_path: Path, body: bytes) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post("/topics", content=body)
        assert answer.status_code == 400
        assert answer.json()["code"] in ("bad-json", "bad-parameter")

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"retention": 1}, "settings.retention"),
        ({"retained": {}}, "settings.retained"),
        ({"retention": {"byte": 1}}, "settings.retention.byte"),
        ({"retention": {"bytes": "1"}}, "settings.retention.bytes"),
        ({"validators": {"urls": [1]}}, "settings.validators.urls[0]"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_the_name_of_what_is_wrong(change: Any, parameter: str) -> None:
    with pytest.raises(BadParameter) as caught:
        merge_settings(Settings(), change)
    assert caught.value.parameter == parameter


def test_a_list_in_a_change_takes_the_place_of_the_one_before() -> None:
    before = Settings(validators=ValidatorSettings(urls=("http://a", "http://b"), timeout_ms=5))
    assert merge_settings(before, {"validators": {"urls": ["http://c"]}}) == Settings(
        validators=ValidatorSettings(urls=("http://c",), timeout_ms=5)
    )


def test_topics_are_listed_page_by_page(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for name in ("b.2", "a.1", "b.1", "b.3"):
            await node.client.post("/topics", json={"name": name})

        async def names(**query: Any) -> tuple[list[str], str | None]:
            found = (await node.client.get("/topics", params=query)).json()
            return [topic["name"] for topic in found["topics"]], found["next"]

        assert await names() == (["a.1", "b.1", "b.2", "b.3"], None)
        assert await names(prefix="b.", limit=2) == (["b.1", "b.2"], "b.2")
        assert await names(prefix="b.", limit=2, after="b.2") == (["b.3"], None)
        assert "_cursors" in (await names(internal="true"))[0]
        for query in ({"limit": 0}, {"limit": "x"}, {"internal": "perhaps"}, {"unknown": 1}):
            answer = await node.client.get("/topics", params=query)
            assert (answer.status_code, answer.json()["parameter"]) == (400, next(iter(query)))
        twice = await node.client.get("/topics?limit=1&limit=2")
        assert twice.json()["detail"] == "limit: is given twice"
        for wrong in ("1e2", " 1", "true", "null", "٣"):
            assert (await node.client.get("/topics", params={"limit": wrong})).status_code == 400, wrong

    assert tell(tmp_path, story) == []


def test_the_nodes_rules_hold(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        made = await node.client.post("/topics", json={"name": "good"})
        assert len(made.json()["partitions"]) == 2
        for answer in (
            await node.client.post("/topics", json={"name": "bad"}),
            await node.client.post("/topics", json={"name": "_own"}),
            await node.client.delete("/topics/_cursors"),
            await node.client.post("/topics/_cursors/records", content=b"1"),
            await node.client.post("/topics/new/records", content=b"1"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "topic-not-allowed")

    config = BrokerConfig(topics=TopicRules(denied=("bad",), partitions=2, auto_create=False))
    assert tell(tmp_path, story, config=config) == []


def test_what_is_trimmed_is_gone(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics/a/records", content=b"[1,2,3,4]")
        answer = await node.client.post("/topics/a/trim", json={"seqno": 3})
        assert (answer.status_code, answer.json()["first"], answer.json()["floor"]) == (200, 3, 3)
        answer = await node.client.post("/topics/a/trim", json={"seqno": 9})
        assert (answer.status_code, answer.json()["code"]) == (416, "seqno-out-of-range")
        answer = await node.client.post("/topics/a/trim", json={"seqno": 0, "partition": 7})
        assert (answer.status_code, answer.json()["code"]) == (404, "partition-not-found")
        assert (await node.client.post("/topics/a/trim", json={"seqno": -1})).json()["parameter"] == "seqno"

    assert tell(tmp_path, story) == []


def test_writes_are_refused_and_accepted_again(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        async def write(topic: str) -> int:
            return (await node.client.post(f"/topics/{topic}/records", content=b"1")).status_code

        assert await write("a") == 200
        assert (await node.client.post("/topics/a/refuse", json={"reason": "moving"})).status_code == 204
        answer = await node.client.post("/topics/a/records", content=b"1")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["code"] == "writes-refused"
        assert "moving" in answer.json()["detail"]
        assert await write("b") == 200
        assert (await node.client.post("/topics/a/accept")).status_code == 204
        assert await write("a") == 200
        assert (await node.client.post("/refuse")).status_code == 204
        assert (await write("a"), await write("b")) == (503, 503)
        assert (await node.client.post("/accept")).status_code == 204
        assert (await write("a"), await write("b")) == (200, 200)
        assert (await node.client.post("/topics/none/refuse")).status_code == 404

    assert tell(tmp_path, story) == []


def test_a_node_that_is_no_replica_may_be_promoted_for_nothing(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert (await node.client.post("/promote")).status_code == 204

    assert tell(tmp_path, story) == []


def test_a_hook_is_chosen_among_those_of_the_node_and_one_that_is_none_may_stay(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.create_topic("b", 1, Settings(hook=HookSettings("rm -r /")))

    async def story(node: WebNode) -> None:
        answer = await node.client.post("/topics", json={"name": "a", "settings": {"hook": {"delete": "archive"}}})
        assert (answer.status_code, answer.json()["settings"]["hook"]["delete"]) == (201, "archive")
        answer = await node.client.post("/topics", json={"name": "c", "settings": {"hook": {"delete": "true"}}})
        assert (answer.status_code, answer.json()["parameter"]) == (400, "hook.delete")
        answer = await node.client.patch("/topics/b", json={"settings": {"retention": {"bytes": 10_000}}})
        assert answer.json()["settings"]["hook"]["delete"] == "rm -r /"
        assert "is no hook of this node" in answer.json()["unusable"]["hook.delete"]
        answer = await node.client.patch("/topics/b", json={"settings": {"hook": {"delete": "false"}}})
        assert answer.status_code == 400
        answer = await node.client.patch("/topics/b", json={"settings": {"hook": {"delete": None}}})
        assert answer.json()["settings"]["hook"]["delete"] is None
        urls = {"validators": {"urls": ["http://169.254.169.254/latest/meta-data/"]}}
        answer = await node.client.patch("/topics/b", json={"settings": urls})
        assert (answer.status_code, answer.json()["parameter"]) == (400, "validators.urls")

    tell(tmp_path, story, config=BrokerConfig(allowed=Allowances({"archive": "true"})))
