"""A queue of a real node, whose members and node are killed and paused under load: every record is done."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom import Reader, connect
from logboom.batch import build
from logboom.broker.api import GroupDescription, Part
from support.nodes.process import NodeProcess
from support.nodes.warm import WarmProcess
from support.waiting import wait_until

PARTITIONS = 2


class Crew:
    """Workers in their own processes."""

    def __init__(self, node: NodeProcess, root: Path) -> None:
        self.node = node
        self.root = root
        self.workers: dict[str, WarmProcess] = {}

    def hire(self, name: str) -> None:
        program = str(Path(__file__).with_name("queue_worker.py"))
        with open(self.root / f"{name}.log", "ab") as log:
            command = [program, self.node.address, str(self.root / f"{name}.notes"), name]
            self.workers[name] = WarmProcess(command, stdin=subprocess.PIPE, stderr=log)

    def kill(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()
        assert worker.stdin is not None
        worker.stdin.close()

    def notes(self, kind: str) -> list[str]:
        """Values, as often as somebody has noted them so."""
        lines = [line.split() for path in self.root.glob("*.notes") for line in path.read_text().splitlines()]
        return [line[1] for line in lines if len(line) == 3 and line[0] == kind]

    @property
    def given(self) -> int:
        return len(self.notes("given"))


@contextmanager
def crew_of(root: Path, *names: str) -> Iterator[Crew]:
    with NodeProcess(root) as node:
        crew = Crew(node, root)
        try:
            asyncio.run(make_topics(node.address))
            for name in names:
                crew.hire(name)
            yield crew
        finally:
            for name in list(crew.workers):
                crew.kill(name)


async def make_topics(address: str) -> None:
    async with connect(address) as broker:
        await broker.create_topic("jobs", PARTITIONS)
        await broker.create_topic("dead", 1)


async def write(address: str, first: int, until: int) -> None:
    async with connect(address) as broker:
        for start in range(first, until, 100):
            values = [b"%d" % number for number in range(start, min(start + 100, until))]
            (answer,) = await broker.append([Part("jobs", [build(values)], start // 100 % PARTITIONS)])
            assert not isinstance(answer, Exception), answer


async def describe(address: str) -> GroupDescription:
    async with connect(address) as broker:
        return await broker.describe_group("w")


def finish(crew: Crew, count: int) -> None:
    """Wait until all is done, and compare."""

    def is_over() -> bool:
        found = asyncio.run(describe(crew.node.address))
        return found.lag == 0 and sum(log.committed for log in found.logs) == count

    wait_until(is_over, "everything to be done", every_s=0.2)
    for log in asyncio.run(describe(crew.node.address)).logs:
        assert (log.in_flight, log.delayed, log.seqno) == (0, 0, log.committed)
    given = set(crew.notes("given"))
    assert given == {str(number) for number in range(count)}, "each record was given to somebody"
    with Reader("dead", crew.node.address) as reader:
        letters = [record.value.decode() for record in reader.records()]
    assert set(letters) == {value for value in given if value.endswith("7")}, "what was rejected, and nothing else"
    assert not set(crew.notes("done")) & set(letters)


def wait_for_more(crew: Crew, count: int) -> None:
    before = crew.given
    wait_until(lambda: crew.given > before + count)


def doubles(crew: Crew) -> dict[str, int]:
    """Records of which the end was told to somebody more than once."""
    return {value: times for value, times in Counter(crew.notes("done")).items() if times > 1}


def test_members_that_are_killed_and_paused_leave_nothing_undone_and_nothing_is_done_twice(tmp_path: Path) -> None:
    with crew_of(tmp_path, "a", "b", "c") as crew:
        asyncio.run(write(crew.node.address, 0, 1500))
        wait_until(lambda: crew.given > 150)
        crew.kill("a")
        paused = crew.workers["b"]
        paused.send_signal(signal.SIGSTOP)
        wait_until(lambda: crew.given > 500)
        time.sleep(4)  # longer than its session and its leases
        paused.send_signal(signal.SIGCONT)
        crew.hire("d")
        finish(crew, 1500)
        assert doubles(crew) == {}


def kill_the_node(root: Path, kills: int) -> None:
    count = 400 * (kills + 1)
    with crew_of(root, "a", "b", "c") as crew:
        for kill in range(kills + 1):
            asyncio.run(write(crew.node.address, 400 * kill, 400 * (kill + 1)))
            if kill < kills:
                wait_for_more(crew, random.randint(20, 150))
                crew.node.kill()
                name = random.choice(list(crew.workers))
                if kill % 3 == 1:
                    crew.kill(name)
                crew.node.start()
                if name not in crew.workers:
                    crew.hire(name)
        finish(crew, count)


def test_a_queue_survives_kills_of_the_node(tmp_path: Path) -> None:
    kill_the_node(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(5))
def test_a_queue_survives_many_kills_of_the_node(tmp_path: Path, turn: int) -> None:
    kill_the_node(tmp_path, 30)
