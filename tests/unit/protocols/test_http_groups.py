"""Groups over HTTP: what a member polls, commits and gives back; and what those who look after groups do."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from logboom.batch import build
from logboom.broker.api import Part
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from support.nodes.web import WebNode, tell

MEMBERS = "/groups/team/billing/members"
A, B = "member-a-0123456789", "member-b-0123456789"


async def fill(node: WebNode, topic: str = "t", partitions: int = 2, count: int = 5) -> None:
    """The same values in each partition: 0, 1, 2…"""
    known = [info.name for info in await node.broker.list_topics()]
    if topic not in known:
        await node.broker.create_topic(topic, partitions)
    batches = [build([b"%d" % n for n in range(count)])]
    await node.broker.append([Part(topic, batches, partition) for partition in range(partitions)], "durable")


async def join(node: WebNode, member: str = A, topics: str = "t", **more: Any) -> dict[str, Any]:
    answer = await node.client.post(MEMBERS, json={"topics": topics, "member": member, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def poll(node: WebNode, member: str = A, wait: float = 0, limit: int = 1000, **body: str) -> dict[str, Any]:
    """What there is, up to the limit. A node that is busy gives it in several pages."""
    records: list[Any] = []
    while True:
        query = f"wait={wait}&limit={limit - len(records)}"
        answer = await node.client.post(f"{MEMBERS}/{member}/poll?{query}", json=body)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        page["records"] = records = [*records, *page["records"]]
        if page["at_end"] or len(records) == limit:
            return page
        body = {"after": page["next"]}


def seen(page: dict[str, Any]) -> list[tuple[int, int]]:
    return sorted((record["partition"], record["seqno"]) for record in page["records"])


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def both(count: int = 5, start: int = 0) -> list[tuple[int, int]]:
    return [(partition, seqno) for partition in (0, 1) for seqno in range(start, count)]


def test_a_member_polls_commits_and_leaves(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        member = (await node.client.post(MEMBERS, json={"topics": "t"})).json()["member"]
        page = await poll(node, member)
        assert seen(page) == both()
        assert (page["at_end"], page["logs"], page["refused"]) == (True, 2, [])
        assert sorted((place["partition"], place["seqno"]) for place in page["places"]) == [(0, 5), (1, 5)]
        answer = await node.client.post(f"{MEMBERS}/{member}/commit", json={"next": page["next"]})
        assert answer.json() == {"committed": 2, "refused": []}
        again = await poll(node, member)
        assert (again["records"], again["next"]) == ([], "")
        found = (await node.client.get("/groups/team/billing")).json()
        assert [(log["seqno"], log["lag"], log["member"]) for log in found["logs"]] == [(5, 0, member)] * 2
        assert (await node.client.delete(f"{MEMBERS}/{member}")).status_code == 204
        assert problem(await node.client.post(f"{MEMBERS}/{member}/poll")) == (404, "member-unknown")

    assert tell(tmp_path, story) == []


def test_what_was_not_committed_comes_again_and_what_was_said_to_be_taken_does_not(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node, partitions=1)
        await join(node)
        first = await poll(node, limit=2)
        assert seen(first) == seen(await poll(node, limit=2)) == [(0, 0), (0, 1)]
        second = await poll(node, limit=2, after=first["next"])
        assert seen(second) == [(0, 2), (0, 3)]
        third = await poll(node, commit=first["next"], after=second["next"])
        assert seen(third) == [(0, 4)]
        assert (await node.client.get("/groups/team/billing")).json()["logs"][0]["seqno"] == 2
        last = await poll(node, commit=third["next"])
        assert (last["records"], (await node.client.get("/groups")).json()["groups"][0]["lag"]) == ([], 0)

    assert tell(tmp_path, story) == []


def test_a_member_commits_part_of_a_page_by_its_places(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node, partitions=1)
        await join(node)
        (place,) = (await poll(node))["places"]
        done = {**place, "seqno": 3}
        answer = await node.client.post(f"{MEMBERS}/{A}/commit", json={"places": [done]})
        assert answer.json() == {"committed": 1, "refused": []}
        assert seen(await poll(node)) == [(0, 3), (0, 4)]
        stale = {**place, "generation": place["generation"] - 1}
        (refused,) = (await node.client.post(f"{MEMBERS}/{A}/commit", json={"places": [stale]})).json()["refused"]
        assert (refused["topic"], refused["partition"], refused["code"]) == ("t", 0, "log-not-held")
        answer = await node.client.post(f"{MEMBERS}/{A}/commit", json={"places": [{**place, "seqno": 9}]})
        assert problem(answer) == (416, "seqno-out-of-range")
        assert problem(await node.client.post(f"{MEMBERS}/{A}/commit", json={})) == (400, "bad-request")

    assert tell(tmp_path, story) == []


def test_two_members_share_the_logs_and_the_first_gives_back_only_what_it_is_done_with(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        await join(node)
        page = await poll(node)
        await join(node, B)
        kept = await poll(node, after=page["next"])
        assert (kept["logs"], seen(kept), seen(await poll(node, B))) == (2, [], [])
        given = await poll(node, commit=page["next"])
        assert (given["logs"], given["refused"]) == (1, [])
        assert (await poll(node, B))["logs"] == 1
        await fill(node)
        mine, other = await poll(node), await poll(node, B)
        assert sorted([*seen(mine), *seen(other)]) == both(10, 5)
        assert len({partition for partition, _ in seen(mine)}) == len({partition for partition, _ in seen(other)}) == 1

    assert tell(tmp_path, story) == []


def test_what_a_member_that_was_given_up_commits_moves_nothing(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node, partitions=1)
        await join(node)
        page = await poll(node)
        await node.client.delete(f"{MEMBERS}/{A}")
        await join(node, B)
        assert seen(await poll(node, B, wait=60)) == [(0, seqno) for seqno in range(5)]
        await join(node)
        refused = (await poll(node, commit=page["next"]))["refused"]
        assert [(move["partition"], move["code"]) for move in refused] == [(0, "log-not-held")]
        assert (await node.client.get("/groups/team/billing")).json()["logs"][0]["seqno"] in (None, 0)

    assert tell(tmp_path, story) == []


def test_a_poll_waits_for_records_and_for_logs(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t", 1)
        await join(node, topics="t,later.*")
        waiting = asyncio.ensure_future(poll(node, wait=60))
        await asyncio.sleep(0.05)
        await fill(node, partitions=1, count=1)
        assert seen(await waiting) == [(0, 0)]
        waiting = asyncio.ensure_future(poll(node, wait=60, commit=(await waiting)["next"]))
        await asyncio.sleep(0.05)
        await fill(node, "later.one", 1, 1)
        assert [record["topic"] for record in (await waiting)["records"]] == ["later.one"]

    assert tell(tmp_path, story) == []


def test_a_poll_that_waits_keeps_its_member_alive(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t", 1)
        await join(node, session_ms=1000)
        assert (await poll(node, wait=2))["logs"] == 1
        beat = await node.client.post(f"{MEMBERS}/{A}/beat")
        assert beat.status_code == 200, beat.text

    assert tell(tmp_path, story) == []


def test_a_beat_says_what_is_held_and_waits_for_news(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        generation = (await join(node))["generation"]
        page = await poll(node)
        body = {"generation": generation, "next": page["next"]}
        waiting = asyncio.ensure_future(node.client.post(f"{MEMBERS}/{A}/beat?wait=60", json=body))
        await asyncio.sleep(0.05)
        await join(node, B)
        told = (await waiting).json()
        assert [grant["is_asked_back"] for grant in told["grants"]].count(True) == 1
        body["generation"] = told["generation"]
        kept = (await node.client.post(f"{MEMBERS}/{A}/beat", json=body)).json()
        assert len(kept["grants"]) == 2
        held = [
            {"topic_id": grant["topic_id"], "partition": grant["partition"]}
            for grant in told["grants"]
            if not grant["is_asked_back"]
        ]
        left = await node.client.post(f"{MEMBERS}/{A}/beat", json={"generation": told["generation"], "held": held})
        assert [{name: grant[name] for name in held[0]} for grant in left.json()["grants"]] == held

    assert tell(tmp_path, story) == []


def test_records_of_a_poll_come_in_every_format(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        await join(node)
        await poll(node)
        lines = await node.client.post(f"{MEMBERS}/{A}/poll?format=ndjson")
        assert len(lines.text.splitlines()) == 10
        arrow = await node.client.post(f"{MEMBERS}/{A}/poll?format=arrow")
        table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
        assert sorted(zip(table["partition"].to_pylist(), table["seqno"].to_pylist(), strict=True)) == both()
        assert (arrow.headers["logboom-next"], arrow.headers["logboom-at-end"]) == (
            lines.headers["logboom-next"],
            "true",
        )
        answer = await node.client.post(f"{MEMBERS}/{A}/commit", json={"next": arrow.headers["logboom-next"]})
        assert answer.json()["committed"] == 2

    assert tell(tmp_path, story) == []


def test_a_member_holds_no_more_logs_than_one_read_may_be_of(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node, partitions=5, count=1)
        await join(node)
        found: set[tuple[int, int]] = set()
        commit = ""
        for _ in range(4):
            page = await poll(node, commit=commit)
            found |= {*seen(page)}
            commit = page["next"]
        assert len(found) == 2

    limits = Limits(logs_per_subscription=2)
    assert tell(tmp_path, story, limits=limits, config=BrokerConfig(limits=limits)) == []


def test_what_is_no_next_of_a_page_is_refused(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        await join(node)
        text = (await poll(node))["next"]
        for wrong in (
            "x",
            "%",
            text[:-1],
            text[1:],
            f"{text[:-2]}{'AB' if text[-2:] != 'AB' else 'BA'}",
            "A" * 100_000,
        ):
            for name in ("commit", "after"):
                answer = await node.client.post(f"{MEMBERS}/{A}/poll", json={name: wrong})
                assert (problem(answer), answer.json()["parameter"]) == ((400, "bad-parameter"), name), wrong
        for body in ({"topics": ""}, {"topics": "t", "member": "short"}, {"topics": "t", "from": "7"}, {"topics": "/"}):
            assert (await node.client.post(MEMBERS, json=body)).status_code == 400, body

    assert tell(tmp_path, story) == []


def test_groups_are_listed_reset_and_deleted(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        await join(node)
        page = await poll(node)
        assert problem(await node.client.delete("/groups/team/billing")) == (409, "group-busy")
        await poll(node, commit=page["next"])
        await node.client.delete(f"{MEMBERS}/{A}")
        reset = {"topics": "t/0", "to": "2", "dry_run": True}
        expected = [{"topic": "t", "partition": 0, "seqno_from": 5, "seqno": 2}]
        assert (await node.client.post("/groups/team/billing/reset", json=reset)).json()["resets"] == expected
        assert (await node.client.get("/groups?prefix=team")).json()["groups"][0]["lag"] == 0
        answer = await node.client.post("/groups/team/billing/reset", json={**reset, "dry_run": False})
        assert answer.json()["resets"] == expected
        await node.client.post("/groups/other/reset", json={"topics": "t", "to": "earliest"})
        listed = (await node.client.get("/groups?sort=lag")).json()
        assert ([info["group"] for info in listed["groups"]], listed["total"]) == (["other", "team/billing"], 2)
        assert [info["lag"] for info in listed["groups"]] == [10, 3]
        page = (await node.client.get("/groups?offset=1&limit=1")).json()
        assert ([info["group"] for info in page["groups"]], page["total"]) == (["team/billing"], 2)
        assert (await node.client.delete("/groups/team/billing")).status_code == 204
        assert problem(await node.client.get("/groups/team/billing")) == (404, "group-not-found")

    assert tell(tmp_path, story) == []
