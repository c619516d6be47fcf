"""Members of a group in processes of their own, which come, go, are killed and stopped, and a node that is killed too.

Whatever happens every record is given to somebody, in order; none twice where nobody was killed; no two members are
given a log in one generation; and the places of the group never go back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest

from logboom import Client, Writer
from support.nodes.process import NodeProcess
from support.nodes.warm import WarmProcess
from support.waiting import wait_until

TOPIC, GROUP = "orders", "billing"
PARTITIONS = 6
SESSION_S = 2.0
READER = str(Path(__file__).with_name("group_reader.py"))


class Note(NamedTuple):
    what: str
    partition: int
    generation: int
    seqno: int | None = None


class Member:
    def __init__(self, node: NodeProcess, root: Path, name: str, way: str = "blocking", **options: object) -> None:
        self.notes_path = root / f"{name}.notes"
        wishes = {"topic": TOPIC, "group": GROUP, "session_s": SESSION_S, "commit_interval_s": 0.1} | options
        command = [READER, node.address, str(self.notes_path), way, json.dumps(wishes)]
        self.log = root / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = WarmProcess(command, stdin=subprocess.PIPE, stderr=log)

    @property
    def notes(self) -> list[Note]:
        if not self.notes_path.exists():
            return []
        lines = self.notes_path.read_text().splitlines(keepends=True)
        return [Note(*json.loads(line)) for line in lines if line.endswith("\n")]

    @property
    def held(self) -> set[int]:
        found: set[int] = set()
        for note in self.notes:
            if note.what == "assigned":
                found.add(note.partition)
            elif note.what != "record":
                found.discard(note.partition)
        return found

    def count(self, what: str = "record") -> int:
        return sum(note.what == what for note in self.notes)

    def finish(self) -> None:
        """It ends its loop, and leaves."""
        self.process.communicate(b"\n", timeout=300)
        assert self.process.returncode == 0, self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Load:
    """A writer, and members."""

    def __init__(self, node: NodeProcess, root: Path) -> None:
        self.node = node
        self._root = root
        self.members: dict[str, Member] = {}
        self._end = Event()
        self._written = 0
        with Client(node.address) as client:
            client.create_topic(TOPIC, PARTITIONS)

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _write(self) -> None:
        with Writer(TOPIC, self.node.address, linger_ms=5) as writer:
            while not self._end.wait(0.005):
                for _ in range(5):
                    writer.write(b"%d" % self._written, key=b"%d" % (self._written % 50))
                    self._written += 1

    def join(self, name: str, way: str = "blocking", **options: object) -> Member:
        self.members[name] = Member(self.node, self._root, name, way, **options)
        return self.members[name]

    def wait_for_records(self, *members: Member, count: int = 30) -> None:
        for member in members:
            before = member.count()
            wait_until(lambda: member.count() >= before + count, member.log.read_text)  # noqa: B023

    def ends(self) -> list[int]:
        with Client(self.node.address) as client:
            return [log.next for log in client.describe_topic(TOPIC).partitions]

    def wait_for_all(self) -> list[int]:
        """Until somebody was given each record that was written."""
        ends = self.ends()
        wait_until(lambda: all(set(range(end)) <= self.given(log) for log, end in enumerate(ends)))
        return ends

    def given(self, partition: int) -> set[int | None]:
        return {
            note.seqno
            for member in self.members.values()
            for note in member.notes
            if note.what == "record" and note.partition == partition
        }

    def close(self) -> None:
        for member in self.members.values():
            member.kill()

    def check(self) -> int:
        """Orders and generations; how many records were given more than once."""
        holders: dict[tuple[int, int], set[str]] = defaultdict(set)
        times: dict[tuple[int, int | None], int] = defaultdict(int)
        for name, member in self.members.items():
            last: dict[tuple[int, int], int] = {}
            for note in member.notes:
                log = note.partition, note.generation
                if note.what == "assigned":
                    last.pop(log, None)  # it has found its way back to its node before its session was over there
                if note.what != "record" or note.seqno is None:
                    continue
                holders[log].add(name)
                times[note.partition, note.seqno] += 1
                assert last.get(log, note.seqno - 1) == note.seqno - 1, f"{name}: {note} after {last[log]}"
                last[log] = note.seqno
        assert all(len(names) == 1 for names in holders.values()), "two members in one generation"
        return sum(count > 1 for count in times.values())


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    with NodeProcess(tmp_path) as node:
        load = Load(node, tmp_path)
        try:
            yield load
        finally:
            load.close()


def test_members_that_come_and_go_are_given_each_record_once(load: Load) -> None:
    with load.writing():
        one, two = load.join("one"), load.join("two", "async")
        load.wait_for_records(one, two)
        three = load.join("three")
        load.wait_for_records(one, two, three)
        two.finish()
        load.wait_for_records(one, three)
        four = load.join("four", "async")
        load.wait_for_records(one, three, four)
        one.finish()
        load.wait_for_records(three, four)
    load.wait_for_all()
    assert load.check() == 0
    assert all(member.count("lost") == 0 for member in load.members.values())


def test_what_a_killed_member_had_the_others_read(load: Load) -> None:
    with load.writing():
        one, two = load.join("one"), load.join("two", "async")
        load.wait_for_records(one, two)
        one.kill()
        wait_until(lambda: len(two.held) == PARTITIONS)
        three = load.join("three")
        load.wait_for_records(two, three)
        two.kill()
        wait_until(lambda: len(three.held) == PARTITIONS)
    load.wait_for_all()
    load.check()


def test_a_member_that_was_stopped_for_too_long_is_told_and_disturbs_nobody(load: Load) -> None:
    with load.writing():
        one, two = load.join("one"), load.join("two")
        load.wait_for_records(one, two)
        os.kill(one.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: len(two.held) == PARTITIONS)
            load.wait_for_records(two)
        finally:
            os.kill(one.process.pid, signal.SIGCONT)
        wait_until(lambda: one.count("lost") > 0)
        wait_until(lambda: len(one.held) == len(two.held) == PARTITIONS // 2)
        load.wait_for_records(one, two)
    load.wait_for_all()
    load.check()
    assert two.count("lost") == 0


def test_members_go_on_through_restarts_of_their_node(load: Load) -> None:
    with load.writing():
        one, two = load.join("one", session_s=60.0), load.join("two", "async", session_s=60.0)
        load.wait_for_records(one, two)
        for _ in range(2):
            load.node.kill()
            load.node.start()
            load.wait_for_records(one, two)
    load.wait_for_all()
    assert load.check() == 0
    assert one.count("lost") == two.count("lost") == 0
    one.finish()
    two.finish()


def test_members_and_their_node_are_killed_together(load: Load) -> None:
    with load.writing():
        one, two, three = load.join("one"), load.join("two"), load.join("three", "async")
        load.wait_for_records(one, two, three)
        load.node.kill()
        one.kill()
        load.node.start()
        wait_until(lambda: len(two.held | three.held) == PARTITIONS)
        four = load.join("four")
        load.wait_for_records(two, three, four)
    load.wait_for_all()
    load.check()
