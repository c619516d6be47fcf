"""A real node, killed again and again under writers and readers in their own processes: the log keeps its promises."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from system.node import NodeProcess
from system.node_load import LOGS, Load, pause


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
    assert report.acknowledged == report.records >= kills * 50
    assert (report.unknown, report.refused) == (0, 0)
    assert (report.logs, report.readers) == (len(LOGS), 2)


def test_a_node_killed_under_load_loses_nothing_doubles_nothing_and_keeps_every_order(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_node_killed_fifty_times_under_load_keeps_every_promise(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 50)
