"""Read, transform, write, where nodes and programs are killed: each record is copied exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from logboom import Client, Reader, Writer
from support.nodes.process import NodeProcess
from support.waiting import wait_until

PROGRAM: Final = Path(__file__).with_name("copy_load.py")
PARTITIONS: Final = 3
CURSOR: Final = "copy"


class Copier:
    """One process that copies, until it is killed or told to end."""

    def __init__(self, address: str, log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), address, CURSOR],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)

    def end(self) -> None:
        self._process.communicate(timeout=300)
        assert self._process.returncode == 0, self.log.read_text()

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()

    @property
    def transactions(self) -> int:
        return self.log.read_text().count("copied")


class MoreThan:
    """So many transactions of these copiers, from now on."""

    def __init__(self, copiers: list[Copier], count: int) -> None:
        self._copiers = copiers
        self._until = self._count() + count

    def _count(self) -> int:
        return sum(copier.transactions for copier in self._copiers)

    def __call__(self) -> bool:
        return self._count() >= self._until


def write_some(address: str, begin: int, count: int) -> None:
    with Writer("in", address) as writer:
        writer.write_many([b"%d" % number for number in range(begin, begin + count)])
        for number in range(begin, begin + count):
            writer.write(b"%d" % number, key=b"%d" % number)


def read_all(address: str, topic: str) -> list[bytes]:
    with Reader(topic, address) as reader:
        if topic == "out":
            return [(record.value or b"").rpartition(b" ")[0] for record in reader]
        return [f"{record.partition}/{record.seqno} ".encode() + (record.value or b"") for record in reader]


def stands_at_the_end(client: Client) -> bool:
    places = {info.partition: info.lag for info in client.list_cursors("in") if info.cursor == CURSOR}
    return places == dict.fromkeys(range(PARTITIONS), 0)


def copy_under_kills(root: Path, kills: int, rivals: int) -> None:
    """The node is killed, and every other time the copiers too; `rivals` of them have the same cursor."""
    with NodeProcess(root) as node, ExitStack() as ends:
        with Client(node.address) as client:
            client.create_topic("in", PARTITIONS)
            client.create_topic("out", 1)

        def begin() -> list[Copier]:
            return [ends.enter_context(Copier(node.address, root / f"copier{number}.log")) for number in range(rivals)]

        copiers = begin()
        for kill in range(kills):
            write_some(node.address, 1000 * kill, 150)
            wait_until(MoreThan(copiers, 3), "some transactions")
            if kill % 2:
                for copier in copiers:
                    copier.kill()
            node.kill()
            node.start()
            if kill % 2:
                copiers = begin()
        with Client(node.address) as client:
            wait_until(lambda: stands_at_the_end(client), "a copy of everything")
        for copier in copiers:
            copier.end()
        written, copied = read_all(node.address, "in"), read_all(node.address, "out")
    assert len(written) == 300 * kills
    assert Counter(copied) == Counter(written)
    for partition in range(PARTITIONS):
        mine = [value for value in copied if value.startswith(b"%d/" % partition)]
        assert mine == [value for value in written if value.startswith(b"%d/" % partition)]


def test_a_node_killed_under_a_copy_copies_every_record_exactly_once(tmp_path: Path) -> None:
    copy_under_kills(tmp_path, 3, rivals=1)


def test_of_copiers_with_one_cursor_each_record_is_copied_by_one(tmp_path: Path) -> None:
    copy_under_kills(tmp_path, 2, rivals=2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rivals", [1, 3])
def test_a_node_killed_forty_times_under_a_copy_copies_every_record_exactly_once(tmp_path: Path, rivals: int) -> None:
    copy_under_kills(tmp_path, 40, rivals)
