"""A real node, killed again and again under writers and readers in their own processes: the log keeps its promises."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from logboom import connect
from logboom.batch import build
from logboom.broker.api import Part
from logboom.errors import Unavailable
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from support.nodes.process import NodeProcess
from system.node_load import LOGS, SEGMENT_BYTES, Load, create_topics, pause


def kill_the_node(root: Path, kills: int) -> None:
    with NodeProcess(root) as node, Load(node, root) as load:
        for name in ("w1", "w2", "w3"):
            load.write(name)
        load.follow("r1", "blocking")
        load.follow("r2", "async")
        for _ in range(kills):
            load.wait_for_records(random.randint(50, 600))
            pause(0.05)
            node.kill()
            pause(0.3)
            node.start()
        load.wait_for_records(200)
        report = load.finish()
    assert report.clean, report
    assert report.acknowledged == report.records >= kills * 50, load.doubts()
    assert (report.unknown, report.refused) == (0, 0)
    assert (report.logs, report.readers) == (len(LOGS), 2)


def test_a_node_killed_under_load_loses_nothing_doubles_nothing_and_keeps_every_order(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 3)


def test_writers_and_readers_killed_with_the_node_go_on_where_they_were(tmp_path: Path) -> None:
    """What a writer had in its spill file is written by the next one; a reader goes on at its cursor."""
    spill = tmp_path / "spill"
    spill.mkdir()
    with NodeProcess(tmp_path) as node, Load(node, tmp_path) as load:
        load.write("w1", spill=spill)
        load.write("w2")
        load.follow("r1")
        load.wait_for_records(300)
        node.kill()
        load.wait_for_spill(spill)
        load.kill("w1")
        load.kill("r1")
        assert load.spilled_bytes(spill)
        node.start()
        load.follow("r1")
        load.write("w3", spill=spill)
        load.wait_for_records(300)
        report = load.finish()
    assert report.clean, report
    assert report.acknowledged < report.records, "nothing that was spilled came back"
    assert not load.spilled_bytes(spill)


def test_a_committed_cursor_survives_the_kill_of_the_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        asyncio.run(create_topics(node.address, SEGMENT_BYTES))
        asyncio.run(fill(node.address))
        promised = dict.fromkeys((f"c{n}" for n in range(20)), 0)
        for _ in range(3):
            asyncio.run(commit_until_killed(node, promised))
            node.start()
            found = asyncio.run(fetch_all(node.address))
            assert found.keys() == promised.keys()
            assert all(promised[name] <= found[name] <= promised[name] + 1 for name in found)
            promised.update(found)


async def fill(address: str) -> None:
    async with connect(address) as broker:
        await broker.append([Part("alerts", [build([b"x"] * 1000)])])


async def commit_until_killed(node: NodeProcess, promised: dict[str, int]) -> None:
    """Each cursor goes on record by record; what was promised is noted when it is."""
    async with connect(node.address) as broker:
        topic = await broker.describe_topic("alerts")

        async def advance(name: str) -> None:
            with suppress(Unavailable):
                while True:
                    mark = Bookmark(bytes.fromhex(topic.id), 0, promised[name] + 1, TERM_UNKNOWN)
                    await broker.commit_cursor(name, "alerts", 0, str(mark))
                    promised[name] += 1

        tasks = [asyncio.create_task(advance(name)) for name in promised]
        enough = min(promised.values()) + random.randint(1, 20)
        while min(promised.values()) < enough:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(node.kill)
        await asyncio.gather(*tasks)


async def fetch_all(address: str) -> dict[str, int]:
    async with connect(address) as broker:
        return {info.cursor: info.seqno for info in await broker.list_cursors("alerts")}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_node_killed_fifty_times_under_load_keeps_every_promise(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 50)
