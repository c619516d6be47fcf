"""Publishes to a real node that is killed or stopped in the middle: all or nothing, once, and the answer is true."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logboom import Client
from logboom.broker.publish.publication import PublishKey, Receipt
from logboom.client.publish.publish_calls import publish
from logboom.client.publish.stage_writer import StageWriter
from support.effort import some_of
from support.faults import WRITES, works
from support.nodes.process import NodeProcess
from support.packages import need
from support.waiting import wait_until
from system.node_load import LOGS, Load, pause
from system.staged_node import KEY, StagedNode, read_values


class PublishLoad(Load):
    """Publishers beside writers and readers."""

    def __enter__(self) -> PublishLoad:
        return self

    def publish(self, name: str, key: str) -> None:
        self._writers[name] = self._start("publish_load.py", name, [key, ",".join(LOGS)])


def kill_the_node(root: Path, kills: int) -> None:
    with NodeProcess(root) as node, PublishLoad(node, root) as load:
        for name in ("p1", "p2", "p3"):
            load.publish(name, name)
        for name in ("w1", "w2"):
            load.write(name)
        load.follow("r1", "blocking")
        load.follow("r2", "async")
        for _ in range(kills):
            load.wait_for_records(random.randint(200, 1500))
            pause(0.05)
            node.kill()
            pause(0.3)
            node.start()
        load.wait_for_records(200)
        report = load.finish()
    assert report.clean, report
    assert report.acknowledged == report.records, load.doubts()
    assert report.publishes > kills
    assert report.unknown == 0


def test_a_node_killed_under_publishers_keeps_every_publish_whole_and_once(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 2)


STEPS = {
    "the sync of a stage": ("fdatasync", "stage", 1, False),
    "the sync of its name": ("fsync", "staging", 1, False),
    "the write of the intent": (WRITES, "_publish/0", 3, False),
    "the sync of the intent": ("fdatasync", "_publish/0", 3, True),
    "the first write to a log": (WRITES, "orders/0", 1, True),
    "a write to another log": (WRITES, "orders/1", 1, True),
    "the last write": (WRITES, "alerts/0", 2, True),
    "the sync of a log": ("fdatasync", "alerts/0", 2, True),
    "the write that it is done": (WRITES, "_publish/0", 4, True),
    "the sync that it is done": ("fdatasync", "_publish/0", 4, True),
    "the removal of a stage": ("unlink,unlinkat", "stage", 1, None),
}
"""A system call, on what, which of those that a thread makes; and whether the publish is past its commit point then."""


def killing(calls: str, path: Path, number: int) -> list[str]:
    """A command that kills another one as it begins such a call on this file."""
    need("strace", "strace")
    command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={calls}"]  # with --seccomp-bpf it sends no signals
    if not works(*command):
        pytest.skip("strace does not work here")
    return [*command, "-P", str(path), "-e", f"inject={calls}:signal=KILL:when={number}"]


def start_dying(node: StagedNode, step: str) -> bool | None:
    """It will, at this step. Returns whether the publish is past its commit point then."""
    calls, what, number, is_committed = STEPS[step]
    node.start(under=killing(calls, node.path(what), number))
    if "/" in what:
        node.warm_up()
    return is_committed


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> StagedNode:
    node = StagedNode(tmp_path_factory.mktemp("staged"))
    node.prepare()
    return node


@pytest.mark.parametrize("step", STEPS)
def test_a_publish_is_whole_and_its_publisher_told_the_truth_wherever_the_node_dies(
    tmp_path: Path, staged: StagedNode, step: str
) -> None:
    node = staged.copy(tmp_path)
    with node.ended():
        is_committed = start_dying(node, step)
        with node.publishing() as publication:
            node.wait_for_death()
            node.start()
        if is_committed is not None:
            assert publication.result().repeat is is_committed
        node.check_published()


@pytest.mark.parametrize("step", some_of(STEPS, "the write of the intent", "the sync of the intent", "the last write"))
def test_a_publish_that_nobody_asks_for_again_is_whole_or_absent_wherever_the_node_dies(
    tmp_path: Path, staged: StagedNode, step: str
) -> None:
    node = staged.copy(tmp_path)
    with node.ended():
        is_committed = start_dying(node, step)
        node.publish_until_death()
        node.start()
        if is_committed is False:
            node.check_unpublished()
        else:
            node.check_published()


@pytest.mark.parametrize("what", ["orders/0", "alerts/0", "_publish/0"])
def test_a_node_that_dies_again_while_it_finishes_a_publish_finishes_it_the_next_time(
    tmp_path: Path, staged: StagedNode, what: str
) -> None:
    node = staged.copy(tmp_path)
    with node.ended():
        start_dying(node, "the first write to a log")
        node.publish_until_death()
        with pytest.raises(AssertionError, match="did not start"):
            node.start(under=killing(WRITES, node.path(what), 1))
        node.start()
        node.check_published()


def kill_the_publishers(root: Path, lives: int) -> None:
    """And the node in the second of their lives, and every tenth from there."""
    with NodeProcess(root) as node, PublishLoad(node, root) as load:
        load.publish("other", "other")
        load.write("w1")
        load.follow("r1")
        for life in range(lives):
            for key in ("p1", "p2"):
                load.publish(f"{key}.{life}", key)
            load.wait_for_records(300)
            for key in ("p1", "p2"):
                pause(0.05)
                load.kill(f"{key}.{life}")
            if life % 10 == 1:
                node.kill()
                node.start()
        load.publish("p1.last", "p1")
        load.wait_for_records(300)
        report = load.finish()
    assert report.clean, report
    assert report.acknowledged <= report.records <= report.acknowledged + report.unknown
    assert report.publishes


def test_publishers_killed_in_the_middle_go_on_with_the_next_process_of_their_key(tmp_path: Path) -> None:
    kill_the_publishers(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_publishers_killed_thirty_times_go_on_with_the_next_process_of_their_key(tmp_path: Path) -> None:
    kill_the_publishers(tmp_path, 30)


def test_of_two_publishers_that_race_under_one_key_each_number_is_published_by_one(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, PublishLoad(node, tmp_path) as load:
        for name in ("p1", "p2", "p3"):
            load.publish(name, "shared")
        load.follow("r1")
        load.wait_for_records(600)
        node.kill()
        node.start()
        load.wait_for_records(600)
        report = load.finish()
    assert report.clean, report
    assert report.acknowledged == report.records
    assert report.unknown == 0


def test_publishers_of_the_same_number_at_the_same_moment_are_told_who_was_first(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, ThreadPoolExecutor(4) as threads:
        for number in range(10):
            values = [b"%d of %d" % (rival, number) for rival in range(4)]
            receipts = [staged_value(node.address, value) for value in values]
            said = [
                threads.submit(publish, node.address, PublishKey("shared", number), [receipt]) for receipt in receipts
            ]
            answers = [future.result() for future in said]
            (winner,) = [value for value, answer in zip(values, answers, strict=True) if not answer.repeat]
            assert all(answer.parts == answers[0].parts for answer in answers)
            assert read_values(node.address, "orders/0")[number:] == [winner]
        with Client(node.address) as client:
            assert client.stages() == []


def staged_value(address: str, value: bytes) -> Receipt:
    writer = StageWriter(address)
    writer.write("orders", value, partition=0)
    return writer.finish()


def test_a_node_that_is_stopped_during_a_large_publish_ends_well_and_the_publish_is_whole(tmp_path: Path) -> None:
    node = StagedNode(tmp_path)
    node.prepare(large_count=400)
    node.start()
    with node.ended(), node.publishing():
        wait_for_open_key(node.address)
        assert node.stop() == 0
        assert "Traceback" not in node.log.read_text()
        node.start()
        node.check_published()


def wait_for_open_key(address: str) -> None:
    """Until a publish is under way, or was."""
    with Client(address) as client:
        wait_until(
            lambda: any(info.is_open or info.number == KEY.number for info in client.keys(KEY.name)),
            "somebody who publishes",
            every_s=0,
        )


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_node_killed_fifty_times_under_publishers_keeps_every_publish_whole_and_once(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 50)
