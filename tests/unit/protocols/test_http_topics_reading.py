"""Pages and events of several logs over HTTP: all partitions of a topic, several topics, patterns."""

from __future__ import annotations

import asyncio
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logboom.batch import build
from logboom.broker.api import Part
from logboom.broker.local import LocalBroker
from logboom.storage.bookmark import BookmarkSet
from support.nodes.web import WebNode, tell
from unit.protocols.test_http_tail import Events, Stream

Logs = dict[str, list[int]]


async def fill(broker: LocalBroker, topic: str, partitions: int, count: int = 20) -> None:
    if not await broker.list_topics(topic):
        await broker.create_topic(topic, partitions)
    for partition in range(partitions):
        begin = (await broker.describe_topic(topic)).partitions[partition].next
        numbers = range(begin, begin + count)
        batch = build([b"%d" % number for number in numbers], timestamps=[1_000_000 * number for number in numbers])
        await broker.append([Part(topic, [batch], partition)], "durable")


def by_log(records: list[dict[str, Any]]) -> Logs:
    found: Logs = defaultdict(list)
    for record in records:
        assert record["value"] == record["seqno"]
        found[f"{record['topic']}/{record['partition']}"].append(record["seqno"])
    return dict(found)


async def get(node: WebNode, path: str) -> Any:
    answer = await node.client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pages_of_a_topic_have_the_records_of_all_its_partitions(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 3)
        page = await get(node, "/topics/rooms/records")
        assert by_log(page["records"]) == {f"rooms/{number}": list(range(20)) for number in range(3)}
        assert (page["topic_id"], page["partition"], page["next_seqno"]) == (None, None, None)
        assert (page["at_start"], page["at_end"]) == (True, True)
        one = await get(node, "/topics/rooms/records?partition=1")
        assert (one["partition"], "topic" in one["records"][0]) == (1, False)

    assert tell(tmp_path, story) == []


def test_following_the_links_every_record_comes_once(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 3)
        await fill(node.broker, "orders.eu", 1)
        records, path = [], "/topics/rooms,orders.*/records?limit=7"
        while True:
            page = await get(node, path)
            assert len(page["records"]) <= 7
            records += page["records"]
            if page["at_end"]:
                break
            path = page["links"]["next"]
        wanted = {f"rooms/{number}": list(range(20)) for number in range(3)} | {"orders.eu/0": list(range(20))}
        assert by_log(records) == wanted
        await fill(node.broker, "rooms", 3, 5)
        await fill(node.broker, "orders.us", 1, 5)
        page = await get(node, f"/topics/rooms,orders.*/records?from={page['next']}")
        news = {f"rooms/{number}": list(range(20, 25)) for number in range(3)} | {"orders.us/0": list(range(5))}
        assert by_log(page["records"]) == news

    assert tell(tmp_path, story) == []


def test_arrow_parquet_and_lines_say_the_log_of_each_record(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 2)
        wanted = {f"rooms/{number}": list(range(20)) for number in range(2)}
        lines = await node.client.get("/topics/rooms/records?format=ndjson")
        assert by_log([json.loads(line) for line in lines.text.splitlines()]) == wanted
        assert BookmarkSet.parse(lines.headers["logboom-next"])[0].seqno == 20
        assert "logboom-next-seqno" not in lines.headers
        arrow = await node.client.get("/topics/rooms/records?format=arrow")
        parquet = await node.client.get("/topics/rooms/records?format=parquet")
        tables = pa.ipc.open_stream(arrow.content).read_all(), pq.read_table(io.BytesIO(parquet.content))
        for table in tables:
            rows = table.select(["topic", "partition", "seqno"]).to_pylist()
            assert by_log([row | {"value": row["seqno"]} for row in rows]) == wanted

    assert tell(tmp_path, story) == []


def test_a_page_of_several_logs_begins_and_ends_by_time_and_waits(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 2)
        times = "from=1970-01-01T00:00:05Z&until=1970-01-01T00:00:08Z"
        page = await get(node, f"/topics/rooms/records?{times}")
        assert by_log(page["records"]) == {f"rooms/{number}": [5, 6, 7] for number in range(2)}
        assert page["links"]["next"] is None
        nothing = await get(node, "/topics/rooms/records?from=latest")
        assert (nothing["records"], nothing["at_end"]) == ([], True)
        waiting = asyncio.create_task(get(node, f"/topics/rooms/records?from={nothing['next']}&wait=100"))
        await asyncio.sleep(0.1)
        await node.broker.append([Part("rooms", [build([b"20"])], 1)], "durable")
        assert by_log((await waiting)["records"]) == {"rooms/1": [20]}

    assert tell(tmp_path, story) == []


def test_a_cursor_stands_in_all_partitions(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 2)
        page = await get(node, "/topics/rooms/records?limit=25")
        for bookmark in BookmarkSet.parse(page["next"]):
            await node.broker.commit_cursor("billing", "rooms", bookmark.partition, str(bookmark))
        rest = await get(node, "/topics/rooms/records?cursor=billing")
        both = by_log([*page["records"], *rest["records"]])
        assert both == {f"rooms/{number}": list(range(20)) for number in range(2)}

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/rooms/records?from=3", 400, "invalid-bookmark"),
        ("/topics/rooms/records?until=3", 400, "bad-parameter"),
        ("/topics/rooms,nothing/records", 404, "topic-not-found"),
        ("/topics/rooms,/records", 400, "invalid-pattern"),
        ("/topics/rooms/tail?from=3", 400, "invalid-bookmark"),
        ("/topics/rooms/records?partition=7", 404, "partition-not-found"),
    ],
)
def test_what_means_nothing_of_several_logs_is_a_problem(tmp_path: Path, path: str, status: int, code: str) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 2)
        answer = await node.client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text

    tell(tmp_path, story)


def test_events_of_several_logs_go_on_with_their_id_however_often_the_connection_is_lost(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, "rooms", 3)
        records: list[dict[str, Any]] = []
        last: str | None = None
        rounds = 0
        while len(records) < 90:
            rounds += 1
            headers = {} if last is None else {"last-event-id": last}
            async with node.client.stream("GET", "/topics/ro*/tail?from=earliest", headers=headers) as answer:
                stream = Stream(answer.aiter_bytes(), Events(last))
                await stream.read()
                for _ in range(7):
                    if len(records) == 90:
                        break
                    event = await stream.next()
                    assert event is not None
                    records.append(json.loads(event.data))
                    last = event.id
                    if len(records) == 40:
                        await fill(node.broker, "rooms", 3, 5)
                        await fill(node.broker, "roofs", 3, 5)
        assert rounds > 10
        assert by_log(records) == {f"rooms/{number}": list(range(25)) for number in range(3)} | {
            f"roofs/{number}": list(range(5)) for number in range(3)
        }

    assert tell(tmp_path, story) == []
