"""The state of a log over HTTP, in every format, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from logboom.batch import Record, build_records
from logboom.broker.api import Part
from logboom.results.checkpoint import TABLE_ROWS
from support.nodes.web import WebNode, tell
from support.results.checkpointed import publish

RECORDS = [Record(b"%d" % n, key=b"k%d" % (n % 4), channel="c", timestamp=n, seqno=n) for n in range(20)]
UNTIL = 12
URL = "/topics/t/checkpoint"


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def make(node: WebNode, root: Path, records: list[Record] = RECORDS[8:12], **more: Any) -> None:
    await publish(node.broker, root / "results", "t", [{0: records}], {0: UNTIL}, **more)


def test_the_state_comes_in_every_format_and_says_where_the_log_goes_on(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.append([Part("t", [build_records(RECORDS)])], "durable")
        await make(node, tmp_path)
        answer = await node.client.get(URL)
        found = answer.json()
        assert [record["seqno"] for record in found["records"]] == [8, 9, 10, 11]
        assert found["records"][0]["value"] == 8
        assert (found["by"], found["tag"], found["partition"], found["next_seqno"]) == ("key", None, 0, UNTIL)
        assert answer.headers["logboom-next-seqno"] == str(UNTIL)
        tail = (await node.client.get("/topics/t/records", params={"from": answer.headers["logboom-next"]})).json()
        assert [record["seqno"] for record in tail["records"]] == list(range(UNTIL, 20))
        lines = await node.client.get(URL, headers={"accept": "application/x-ndjson"})
        assert lines.text.count("\n") == 4
        arrow = pa.ipc.open_stream((await node.client.get(URL, params={"format": "arrow"})).content).read_all()
        parquet = pq.read_table(pa.BufferReader((await node.client.get(URL, params={"format": "parquet"})).content))
        for table in (arrow, parquet):
            assert table.column("seqno").to_pylist() == [8, 9, 10, 11]
            assert set(table.column("topic").to_pylist()) == {"t"}
        await node.broker.trim("t", 0, 10)
        assert [record["seqno"] for record in (await node.client.get(URL)).json()["records"]] == [10, 11]
        await node.broker.trim("t", 0, 15)
        assert (await node.client.get(URL)).json()["next_seqno"] == 15

    assert tell(tmp_path, story) == []


def test_a_large_state_comes_in_pieces_and_whole(tmp_path: Path) -> None:
    count = 3 * TABLE_ROWS
    records = [Record(b"x" * 20, key=b"%d" % n, seqno=n) for n in range(count)]

    async def story(node: WebNode) -> None:
        await node.broker.append([Part("t", [build_records(RECORDS)])], "durable")
        await make(node, tmp_path, records)
        pieces = 0
        lines = b""
        async with node.client.stream("GET", URL, params={"format": "ndjson"}) as answer:
            assert "content-length" not in answer.headers
            async for piece in answer.aiter_raw():
                pieces += 1
                lines += piece
        assert lines.count(b"\n") == count
        assert pieces > 3

    assert tell(tmp_path, story) == []


def test_a_state_that_is_not_there_or_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert problem(await node.client.get(URL)) == (404, "topic-not-found")
        await node.broker.append([Part("t", [build_records(RECORDS)])], "durable")
        answer = await node.client.get(URL)
        assert problem(answer) == (404, "checkpoint-not-found")
        assert "logboom pipeline run" in answer.json()["fix"]
        await make(node, tmp_path)
        await make(node, tmp_path, by="channel", tag="red/7")
        assert problem(await node.client.get(URL, params={"by": "channel"})) == (404, "checkpoint-not-found")
        assert (await node.client.get(URL, params={"by": "channel", "tag": "red/7"})).json()["tag"] == "red/7"
        await make(node, tmp_path, by="channel")
        assert problem(await node.client.get(URL)) == (404, "checkpoint-not-found")
        assert (await node.client.get(URL, params={"by": "channel"})).json()["by"] == "channel"
        assert problem(await node.client.get(URL, params={"by": "colour"})) == (400, "bad-parameter")
        assert problem(await node.client.get(URL, params={"partition": 3})) == (404, "partition-not-found")
        assert problem(await node.client.get(URL, headers={"accept": "text/html"})) == (406, "not-acceptable")
        for gone in ("*.parquet", "manifest.json"):
            for file in (tmp_path / "results" / "checkpoint" / "t" / "key").rglob(gone):
                file.unlink()
            answer = await node.client.get(URL, params={"by": "key"})
            assert problem(answer) == (500, "results-unreadable")
            assert "run the checkpoint job" in answer.json()["detail"]

    tell(tmp_path, story)
