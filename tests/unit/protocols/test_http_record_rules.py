"""Rules on channels and tags over HTTP: pages, single records, tails, changes, checkpoints, reports and writes."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from logboom.access.rule import Rule
from logboom.batch import Record, build, build_records
from logboom.broker.api import Part
from logboom.broker.caller import ITSELF
from logboom.results.places import ResultPlace
from support.nodes.guarded import PASSWORD, basic, closed
from support.nodes.web import WebNode
from support.results.checkpointed import publish
from unit.protocols.test_http_pipeline import JOB
from unit.protocols.test_http_pipeline import publish as publish_report

RECORDS = "/topics/orders/records"
ALICE = basic()
CHANNELS = ["open/1", "closed/1", None, "open/2", "closed/2", "closed/3", "open/3"]
OPEN = [0, 3, 6]


async def rule(node: WebNode, *words: Any, effect: Any = "allow", who: str = "alice") -> int:
    rights, kind, name = words
    return (await node.broker.add_rule(Rule(effect, who, (rights,), kind, name), caller=ITSELF)).number


async def fill(node: WebNode, topic: str = "orders") -> None:
    batch = build([b"%d" % number for number in range(len(CHANNELS))], channels=CHANNELS)
    await node.broker.append([Part(topic, [batch])], "durable", caller=ITSELF)


def seqnos(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [record["seqno"] for record in answer.json()["records"]]


def test_pages_show_what_may_be_read_and_go_on_behind_it(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        assert seqnos(await node.client.get(RECORDS, headers=ALICE)) == list(range(7))
        await rule(node, "read", "channel", "open/#")
        assert seqnos(await node.client.get(RECORDS, headers=ALICE)) == OPEN
        assert seqnos(await node.client.get(RECORDS, params={"channel": "closed/#"}, headers=ALICE)) == []
        assert seqnos(await node.client.get(RECORDS, params={"channel": "+/2"}, headers=ALICE)) == [3]
        assert seqnos(await node.client.get(RECORDS, params={"from": 1, "until": 6}, headers=ALICE)) == [3]
        found: list[int] = []
        start: str | int = 0
        for _ in range(5):
            page = await node.client.get(RECORDS, params={"from": start, "limit": 1}, headers=ALICE)
            found += seqnos(page)
            start = page.json()["next"]
        assert found == OPEN
        page = await node.client.get(RECORDS, params={"from": 5, "limit": 3}, headers=ALICE)
        assert seqnos(page) == [6]
        assert seqnos(await node.client.get(page.json()["links"]["previous"], headers=ALICE)) == [3]
        table = await node.client.get(RECORDS, params={"format": "arrow"}, headers=ALICE)
        assert pa.ipc.open_stream(io.BytesIO(table.content)).read_all().column("seqno").to_pylist() == OPEN
        assert seqnos(await node.client.get(RECORDS, headers=basic("root"))) == list(range(7))
        waited = await node.client.get(RECORDS, params={"from": 7, "wait": 0.01}, headers=ALICE)
        assert (seqnos(waited), waited.json()["next_seqno"]) == ([], 7)

    assert closed(tmp_path, story) == []


def test_a_record_that_may_not_be_read_is_not_shown_in_its_place(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        await rule(node, "read", "channel", "closed/#", effect="deny")
        shown = await node.client.get(f"{RECORDS}/3", headers=ALICE)
        assert shown.json()["seqno"] == 3
        for number in (1, 4, 5):
            hidden = await node.client.get(f"{RECORDS}/{number}", headers=ALICE)
            assert (hidden.status_code, hidden.json()["code"]) == (404, "record-not-found")
            assert "closed" not in hidden.text
            assert "not for you" in hidden.json()["detail"]

    assert closed(tmp_path, story) == []


def test_a_tail_leaves_out_what_may_not_be_read_and_follows_the_rules(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        number = await rule(node, "read", "channel", "open/#")
        found: list[int] = []
        async with node.client.stream("GET", "/topics/orders/tail", params={"from": 0}, headers=ALICE) as answer:
            lines = answer.aiter_lines()
            while len(found) < 3:
                line = await anext(lines)
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: "))["seqno"])
            await node.broker.remove_rule(number, caller=ITSELF)
            await rule(node, "read", "channel", "closed/3")
            await fill(node)
            while len(found) < 4:
                line = await anext(lines)
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: "))["seqno"])
        assert found == [*OPEN, 12]

    assert closed(tmp_path, story) == []


def test_changes_are_left_out_by_their_tags(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        name = node.front_end.settings.changes_topic
        await node.broker.create_topic(name, caller=ITSELF)
        await rule(node, "all", "topic", name)
        for tag in ("red", "blue", "red"):
            answer = await node.client.post("/changes", json={"data": tag, "tags": [tag]}, headers=ALICE)
            assert answer.status_code == 200, answer.text
        await rule(node, "all", "tag", "blue", effect="deny")
        listed = (await node.client.get("/changes", headers=ALICE)).json()
        assert [change["_id"] for change in listed["changes"]] == [1, 3]
        assert (await node.client.get("/changes/2", headers=ALICE)).status_code == 404
        assert (await node.client.get("/changes/3", headers=ALICE)).json()["data"] == "red"
        refused = await node.client.post("/changes", json={"data": 1, "tags": ["red", "blue"]}, headers=ALICE)
        assert (refused.status_code, refused.json()["code"]) == (403, "record-not-allowed")

    assert closed(tmp_path, story) == []


def test_a_write_is_refused_for_its_own_records_and_nobody_elses(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await rule(node, "write", "channel", "in/%u/#")

        def post(channel: str | None) -> Any:
            return node.client.post(RECORDS, json=[{"value": 1, "channel": channel}], headers=ALICE)

        answers = await asyncio.gather(*(post("in/alice/x" if number % 5 else "in/bob/x") for number in range(40)))
        codes = [answer.status_code for answer in answers]
        assert [code == 200 for code in codes] == [bool(number % 5) for number in range(40)]
        assert answers[0].json()["code"] == "record-not-allowed"
        assert "in/bob/x" in answers[0].json()["detail"]
        page = await node.client.get(RECORDS, headers=basic("root"))
        assert {record["channel"] for record in page.json()["records"]} == {"in/alice/x"}
        assert len(seqnos(page)) == 32
        once = {"Idempotency-Key": "k1", **ALICE}
        body = [{"value": 1, "channel": "in/bob"}]
        assert (await node.client.post(RECORDS, json=body, headers=once)).status_code == 403
        incidents = await node.client.get("/incidents", headers=basic("root"))
        assert "in/bob" not in incidents.text

    assert closed(tmp_path, story) == []


async def as_anybody(node: WebNode) -> int:
    return await rule(node, "all", "all", "*", who="anonymous")


def test_a_checkpoint_is_for_those_who_may_read_all_records(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        records = [Record(b"%d" % n, key=b"k%d" % n, channel="c", seqno=n) for n in range(4)]
        await node.broker.append([Part("orders", [build_records(records)])], "durable", caller=ITSELF)
        number = await as_anybody(node)
        await publish(node.broker, tmp_path / "results", "orders", [{0: records}], {0: 4})
        await node.broker.remove_rule(number, caller=ITSELF)
        url = "/topics/orders/checkpoint"
        assert len(seqnos(await node.client.get(url, headers=ALICE))) == 4
        denied = await rule(node, "read", "topic", "orders", effect="deny")
        assert (await node.client.get(url, headers=ALICE)).status_code == 403
        await node.broker.remove_rule(denied, caller=ITSELF)
        await rule(node, "read", "tag", "secret", effect="deny")
        refused = await node.client.get(url, headers=ALICE)
        assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
        assert "leave records out" in refused.json()["detail"]

    assert closed(tmp_path, story) == []


def test_the_page_of_a_report_is_for_those_who_may_read_its_topics(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        place = ResultPlace(str(tmp_path / "results"))
        number = await as_anybody(node)
        await publish_report(node, place, place.write("report.html", b"<h1>Keys and channels</h1>"))
        await node.broker.remove_rule(number, caller=ITSELF)
        await rule(node, "read", "pipeline", "*")

        async def status() -> int:
            return (await node.client.get("/pipeline/report", params={"job": JOB}, headers=ALICE)).status_code

        assert await status() == 200
        denied = await rule(node, "read", "topic", "orders", effect="deny")
        assert await status() == 404
        await node.broker.remove_rule(denied, caller=ITSELF)
        await rule(node, "read", "tag", "secret", effect="deny")
        assert await status() == 403

    assert closed(tmp_path, story) == []


def test_rules_are_made_and_explained(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        root = basic("root")
        new = {"effect": "allow", "who": "alice", "rights": ["read"], "kind": "channel", "name": "a/%u/#"}
        made = await node.client.post("/access/rules", json=new, headers=root)
        assert (made.status_code, made.json()["rule"]["name"]) == (201, "a/%u/#")
        for wrong in ({"name": "a/#/b"}, {"rights": ["manage"]}, {"kind": "tag", "name": "a*b"}):
            assert (await node.client.post("/access/rules", json=new | wrong, headers=root)).status_code == 400
        asked = {"user": "alice", "right": "read", "name": "orders", "channel": "a/alice/x"}
        found = (await node.client.get("/access/explain", params=asked, headers=root)).json()
        assert (found["allowed"], found["number"]) == (True, made.json()["number"])
        asked["channel"] = "a/bob"
        assert not (await node.client.get("/access/explain", params=asked, headers=root)).json()["allowed"]

    assert closed(tmp_path, story) == []


def test_who_may_read_some_records_only_does_not_see_all(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await rule(node, "read", "topic", "*")
        alice = await node.broker.sign_in.with_password(ITSELF, "alice", PASSWORD)
        assert node.front_end.sees_all(alice)
        await rule(node, "read", "channel", "#")
        assert not node.front_end.sees_all(alice)

    assert closed(tmp_path, story) == []
