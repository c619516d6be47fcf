"""A real node whose disk is full, or fails, under load: what its clients are told is true."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from logboom import Writer, connect
from logboom.storage.config import MIB
from support.faults import failing, own_volume
from support.nodes.process import NodeProcess
from support.waiting import wait_until
from system.node_load import Load, pause

FILE_BYTES = 64 * 1024


async def low_space(address: str) -> int:
    async with connect(address) as broker:
        return (await broker.stats()).rejections.get("LowSpace", 0)


def wait_for_low_space(address: str) -> None:
    """Until the node has refused something for want of room; a writer tries again, and says nothing."""
    wait_until(lambda: asyncio.run(low_space(address)), "a volume that is full", every_s=0.05)


async def delete(address: str, topic: str) -> None:
    async with connect(address) as broker:
        await broker.delete_topic(topic)


@pytest.mark.parametrize("reserve_bytes", [0, MIB])
def test_writers_wait_while_the_volume_is_full_and_go_on_when_there_is_room(tmp_path: Path, reserve_bytes: int) -> None:
    node = NodeProcess(tmp_path, "--set", f"reserve_bytes={reserve_bytes}", "--set", "upkeep.retention_every_ms=200")
    node.start(under=own_volume(node.directory))
    with node.ended(), Load(node, tmp_path) as load:
        with Writer("ballast", node.address) as ballast:
            ballast.write_many([bytes(64 * 1024)] * ((4 * MIB - MIB // 4 - reserve_bytes) // (64 * 1024)))
        for name in ("w1", "w2"):
            load.write(name)
        load.follow("r1")
        load.wait_for_records(1)
        wait_for_low_space(node.address)
        pause(0.5)
        asyncio.run(delete(node.address, "ballast"))
        load.wait_for_records(100)
        report = load.finish()
    assert report.clean, report
    assert report.acknowledged == report.records, load.doubts()
    assert (report.unknown, report.refused) == (0, 0)


def test_a_file_that_may_not_grow_refuses_writes_and_a_restart_takes_them_again(tmp_path: Path) -> None:
    limits = FILE_BYTES, FILE_BYTES
    node = NodeProcess(tmp_path)
    node.start(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    with node.ended(), Load(node, tmp_path, segment_bytes=4 * MIB) as load:
        load.write("w1", timeout_s=10)
        load.follow("r1")
        load.wait_for_refusal("WriteFailed")
        load.wait_for_records(50)
        load.stop_writers()
        node.kill()
        node.start()
        load.write("w2")
        load.wait_for_records(100)
        report = load.finish()
    assert report.clean, report
    assert report.refused
    assert report.acknowledged <= report.records <= report.acknowledged + report.unknown


@pytest.mark.parametrize("call", [40, 77])
def test_after_a_failed_sync_a_node_takes_no_writes_and_a_restart_recovers(tmp_path: Path, call: int) -> None:
    node = NodeProcess(tmp_path)
    node.start(under=failing(f"fdatasync:error=EIO:when={call}"))
    with node.ended(), Load(node, tmp_path) as load:
        for name in ("w1", "w2"):
            load.write(name, timeout_s=5)
        load.follow("r1")
        load.wait_for_refusal("LogReadOnly")
        load.wait_for_records(100)
        load.stop_writers()
        assert node.stop() == 1
        node.start()
        load.write("w3")
        load.wait_for_records(100)
        report = load.finish()
    assert report.clean, report
    assert report.refused
    assert report.acknowledged <= report.records <= report.acknowledged + report.unknown
