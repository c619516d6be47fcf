"""Members of a group that come, go, are killed and stopped at random, and their node is killed too.

Whatever happens every record is given to somebody, in order; no two members are given a log in one generation; and the
places of the group never go back. What happens depends on a seed, when it does on the machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from logboom.client.remote import connect
from logboom.errors import LogboomError
from support.nodes.process import NodeProcess
from system.test_consumer_kill import GROUP, Load, Member


class Places:
    """The places of a group, looked at all the time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._end = Event()
        self._thread = Thread(target=self._watch)
        self.newest: dict[int, int] = {}
        self.went_back: list[str] = []

    def __enter__(self) -> Places:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.2):
            with suppress(LogboomError, OSError):
                asyncio.run(self.look())

    async def look(self) -> None:
        async with connect(self._address, retry=False) as broker:
            found = (await broker.describe_group(GROUP)).logs
        for log in found:
            seqno, before = log.seqno or 0, self.newest.get(log.partition, 0)
            if seqno < before:
                self.went_back.append(f"{log.partition}: {before} to {seqno}")
            self.newest[log.partition] = seqno


class Churn:
    def __init__(self, load: Load, seed: int) -> None:
        self._load = load
        self._chance = Random(seed)
        self._living: list[Member] = []
        self._made = 0

    def join(self) -> None:
        self._made += 1
        way = self._chance.choice(("blocking", "async"))
        about = {"instance": f"instance-{self._made}"} if self._chance.random() < 0.3 else {}
        self._living.append(self._load.join(f"member-{self._made}", way, **about))

    def go_on(self, seconds: float, members: tuple[int, int]) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._step(*members)
            time.sleep(self._chance.uniform(0.1, 1.5))
        for member in self._living:
            os.kill(member.process.pid, signal.SIGCONT)

    def _step(self, least: int, most: int) -> None:
        if len(self._living) < least:
            return self.join()
        what = self._chance.choice(("join", "kill", "leave", "stop", "go on", "node"))
        member = self._chance.choice(self._living)
        assert member.process.poll() is None, member.log.read_text()
        if what == "join" and len(self._living) < most:
            self.join()
        elif what in ("kill", "leave"):
            self._living.remove(member)
            os.kill(member.process.pid, signal.SIGCONT)
            if what == "leave" and member.count() > 0:  # it has come so far that it listens
                member.finish()
            else:
                member.kill()
        elif what in ("stop", "go on"):
            os.kill(member.process.pid, signal.SIGSTOP if what == "stop" else signal.SIGCONT)
        elif what == "node":
            self._load.node.kill()
            time.sleep(self._chance.uniform(0.0, 1.0))
            self._load.node.start()
        return None


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    with NodeProcess(tmp_path) as node:
        load = Load(node, tmp_path)
        try:
            yield load
        finally:
            load.close()


def churn(load: Load, seed: int, seconds: float, members: tuple[int, int]) -> None:
    try:
        with Places(load.node.address) as places:
            with load.writing():
                Churn(load, seed).go_on(seconds, members)
            ends = load.wait_for_all()
        load.check()
        assert not places.went_back
        assert max(places.newest.values()) > 0
        assert all(seqno <= ends[log] for log, seqno in places.newest.items())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def test_nothing_is_lost_whoever_comes_and_goes(load: Load) -> None:
    churn(load, 1, 8.0, (3, 6))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 32))
def test_nothing_is_lost_whoever_comes_and_goes_for_minutes(load: Load, seed: int) -> None:
    churn(load, seed, 60.0, (3, 9))
