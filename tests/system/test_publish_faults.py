"""Publishes to a real node whose disk is full or fails, whose topics go, or whose clients are slow: all or nothing."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from logboom import Client, Writer, connect
from logboom.broker.publish.publication import PublishKey, StageInfo
from logboom.client.publish.publish_calls import publish
from logboom.client.publish.stage_writer import StageWriter
from logboom.errors import LowSpace, OutcomeUnknown, StageNotFound, TopicDeleted, TopicRecreated
from logboom.storage.config import MIB
from support.brokers.any_broker import AnyBroker
from support.faults import WRITES, failing, own_volume
from support.nodes.process import NodeProcess
from support.waiting import wait_until
from system.node_load import pause
from system.staged_node import LARGE_BYTES, StagedNode, read_values
from system.test_node_faults import delete, wait_for_low_space
from system.test_publish_kill import PublishLoad

Result = TypeVar("Result")
WAIT_S = 300.0


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> StagedNode:
    node = StagedNode(tmp_path_factory.mktemp("staged"))
    node.prepare()
    return node


def failing_on(path: Path, fault: str) -> list[str]:
    """A command that lets system calls of another one on this file fail."""
    return [*failing(fault), "-P", str(path)]


def ask(address: str, question: Callable[[AnyBroker], Awaitable[Result]]) -> Result:
    async def answer() -> Result:
        async with connect(address) as broker:
            return await question(broker)

    return asyncio.run(answer())


@pytest.mark.parametrize(("what", "calls"), [("orders/0", "1..2"), ("alerts/0", "2..3"), ("_publish/0", "4..5")])
def test_a_publish_that_finds_the_volume_full_in_the_middle_waits_for_room_and_ends(
    tmp_path: Path, staged: StagedNode, what: str, calls: str
) -> None:
    node = staged.copy(tmp_path)
    node.start(under=failing_on(node.path(what), f"{WRITES}:error=ENOSPC:when={calls}"))
    with node.ended():
        node.warm_up()
        assert not node.publish().repeat
        assert "a publish waits" in node.log.read_text()
        node.check_published()


def test_a_publish_that_finds_no_room_before_its_intent_is_refused_and_may_be_said_again(
    tmp_path: Path, staged: StagedNode
) -> None:
    node = staged.copy(tmp_path)
    node.start(under=failing_on(node.path("_publish/0"), f"{WRITES}:error=ENOSPC:when=3"))
    with node.ended():
        node.warm_up()
        with pytest.raises(LowSpace):
            node.publish()
        node.check_unpublished()
        assert not node.publish().repeat
        node.check_published()


@pytest.mark.parametrize(("what", "call"), [("_publish/0", 3), ("alerts/0", 2), ("_publish/0", 4)])
def test_after_a_failed_sync_in_a_publish_nobody_is_told_a_lie_and_a_restart_finishes_it(
    tmp_path: Path, staged: StagedNode, what: str, call: int
) -> None:
    node = staged.copy(tmp_path)
    node.start(under=failing_on(node.path(what), f"fdatasync:error=EIO:when={call}"))
    with node.ended():
        node.warm_up()
        with pytest.raises(OutcomeUnknown):
            node.publish(timeout_s=5)
        assert node.stop() == 1
        node.start()
        node.check_published()


def test_a_stage_that_cannot_be_removed_is_published_once_all_the_same(tmp_path: Path, staged: StagedNode) -> None:
    node = staged.copy(tmp_path)
    node.start(under=failing_on(node.path("stage"), "unlink,unlinkat:error=EIO"))
    with node.ended():
        assert not node.publish().repeat
        node.kill()
        node.start()
        node.check_published()


def test_a_publish_whose_log_may_not_grow_is_finished_by_a_start_without_that_limit(
    tmp_path: Path, staged: StagedNode
) -> None:
    limit = 20 * LARGE_BYTES
    node = staged.copy(tmp_path)
    node.start(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    with node.ended(), node.publishing() as publication:
        deadline = time.monotonic() + WAIT_S
        while "a publish waits" not in node.log.read_text():
            assert time.monotonic() < deadline, "it does not wait"
            time.sleep(0.05)
        node.kill()
        node.start()
        assert publication.result().repeat
        node.check_published()


@pytest.mark.parametrize("reserve_bytes", [0, MIB])
def test_publishers_wait_while_the_volume_is_full_and_go_on_when_there_is_room(
    tmp_path: Path, reserve_bytes: int
) -> None:
    node = NodeProcess(tmp_path, "--set", f"reserve_bytes={reserve_bytes}", "--set", "upkeep.retention_every_ms=200")
    node.start(under=own_volume(node.directory))
    with node.ended(), PublishLoad(node, tmp_path) as load:
        with Writer("ballast", node.address) as ballast:
            ballast.write_many([bytes(64 * 1024)] * ((4 * MIB - MIB // 2 - reserve_bytes) // (64 * 1024)))
        for name in ("p1", "p2"):
            load.publish(name, name)
        load.write("w1")
        load.follow("r1")
        load.wait_for_records(1)
        wait_for_low_space(node.address)
        pause(0.5)
        asyncio.run(delete(node.address, "ballast"))
        load.wait_for_records(500)
        report = load.finish()
    assert report.clean, report
    assert report.publishes
    assert report.unknown == 0


def test_a_stage_for_a_topic_that_was_recreated_is_refused_and_nothing_of_it_is_published(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        for topic in ("orders", "alerts"):
            ask(node.address, lambda broker, topic=topic: broker.create_topic(topic, 1))  # type: ignore[misc]
        early, late = StageWriter(node.address, batch_bytes=1), StageWriter(node.address, batch_bytes=1)
        for writer in (early, late):
            writer.write("alerts", b"whole or not at all")
            writer.write("orders", b"for the first of this name")
        receipt = early.finish()
        ask(node.address, lambda broker: broker.delete_topic("orders"))
        with pytest.raises(TopicDeleted):
            publish(node.address, PublishKey("early", 1), [receipt])
        ask(node.address, lambda broker: broker.create_topic("orders", 1))
        with pytest.raises(TopicRecreated):
            publish(node.address, PublishKey("early", 1), [receipt])
        late.write("orders", b"also")
        with closing(late), pytest.raises(TopicRecreated):
            late.finish()
        assert read_values(node.address, "orders/0") == read_values(node.address, "alerts/0") == []
        node.kill()
        node.start()
        with pytest.raises(TopicRecreated):
            publish(node.address, PublishKey("early", 1), [receipt])
        again = StageWriter(node.address)
        again.write("orders", b"for the second")
        assert not again.publish(PublishKey("early", 1)).repeat
        assert read_values(node.address, "orders/0") == [b"for the second"]
        assert read_values(node.address, "alerts/0") == []


def test_what_a_slow_client_has_staged_expires_and_is_never_published(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path, "--set", "limits.stage_idle_ms=8000") as node,
        closing(StageWriter(node.address, batch_bytes=1)) as slow,
        closing(StageWriter(node.address, batch_bytes=1)) as slower,
    ):
        slow.write("orders", b"staged")
        slower.write("orders", b"staged")
        receipt = slow.finish()
        wait_for_no_stages(node.address)
        with pytest.raises(StageNotFound):
            publish(node.address, PublishKey("slow", 1), [receipt])
        slower.write("orders", b"later")
        with pytest.raises(StageNotFound):
            slower.finish()
        with Client(node.address) as client:
            assert client.keys("slow") == []
            with client.transaction("slow", 1) as transaction:
                transaction.write("orders", b"at once")
        assert read_values(node.address, "orders/0") == [b"at once"]
        assert list((node.directory / "staging").iterdir()) == []


def wait_for_no_stages(address: str) -> None:
    def list_stages() -> list[StageInfo]:
        with Client(address) as client:
            return client.stages()

    wait_until(lambda: not list_stages(), lambda: f"the end of {list_stages()}", limit_s=WAIT_S, every_s=0.05)
