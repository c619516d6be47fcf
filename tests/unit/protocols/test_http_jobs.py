"""Work queues over HTTP: records are taken, and each is settled by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from logboom.batch import build
from logboom.broker.api import Part
from support.nodes.web import WebNode, tell

MEMBERS = "/groups/w/members"
A, B = "member-a-0123456789", "member-b-0123456789"


async def join(node: WebNode, member: str, **queue: Any) -> None:
    body = {"topics": "jobs", "member": member, "mode": "queue", "queue": queue}
    answer = await node.client.post(MEMBERS, json=body)
    assert answer.status_code == 200, answer.text


async def write(node: WebNode, count: int) -> None:
    await node.broker.create_topic("jobs", 1)
    values = [b'{"job": %d}' % number for number in range(count)]
    await node.broker.append([Part("jobs", [build(values)])], "durable")


async def take(node: WebNode, member: str, query: str = "") -> list[dict[str, Any]]:
    answer = await node.client.post(f"{MEMBERS}/{member}/jobs{query}")
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["lease_ms"] == 30_000
    found: list[dict[str, Any]] = page["jobs"]
    return found


async def settle(node: WebNode, member: str, *jobs: dict[str, Any], **what: Any) -> list[dict[str, Any]]:
    said = [{"topic_id": job["topic_id"], "partition": 0, "seqno": job["record"]["seqno"], **what} for job in jobs]
    answer = await node.client.post(f"{MEMBERS}/{member}/jobs/settle", json={"settlements": said})
    assert answer.status_code == 200, answer.text
    refused: list[dict[str, Any]] = answer.json()["refused"]
    return refused


def seqnos(jobs: list[dict[str, Any]]) -> list[int]:
    return [job["record"]["seqno"] for job in jobs]


def test_jobs_are_taken_settled_and_come_again(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await write(node, 5)
        await join(node, A)
        await join(node, B)
        mine = await take(node, A, "?limit=3")
        assert seqnos(mine) == [0, 1, 2]
        assert mine[0]["record"]["value"] == {"job": 0}
        assert (mine[0]["tries"], mine[0]["record"]["topic"], mine[0]["record"]["partition"]) == (1, "jobs", 0)
        assert seqnos(await take(node, B)) == [3, 4]
        assert await settle(node, A, mine[0]) == []
        assert await settle(node, A, mine[1], verdict="release") == []
        (refused,) = await settle(node, B, mine[2])
        assert (refused["seqno"], refused["until"], refused["code"]) == (2, 3, "job-not-held")
        again = await take(node, B)
        assert [(job["record"]["seqno"], job["tries"]) for job in again] == [(1, 2)]
        waits = asyncio.create_task(take(node, B, "?wait=60"))
        await asyncio.sleep(0.05)
        assert await settle(node, A, mine[2], verdict="release") == []
        assert seqnos(await waits) == [2]

    tell(tmp_path, story)


def test_what_means_nothing_is_refused_and_said(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await write(node, 1)
        for path, body in (("jobs", None), ("jobs/settle", {"settlements": []})):
            answer = await node.client.post(f"{MEMBERS}/{A}/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "member-unknown")
        await join(node, A)
        (job,) = await take(node, A)
        for wrong in ({"verdict": "burn"}, {"until": 0}, {"topic_id": "x"}, {"delay_ms": -1}, {"seqno": -1}):
            said = {"topic_id": job["topic_id"], "partition": 0, "seqno": 0, **wrong}
            answer = await node.client.post(f"{MEMBERS}/{A}/jobs/settle", json={"settlements": [said]})
            assert answer.status_code in (400, 422), wrong
        assert (await node.client.post(f"{MEMBERS}/{A}/jobs?limit=0")).status_code in (400, 422)

    tell(tmp_path, story)
