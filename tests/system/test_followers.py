"""Readers in other processes, while the log is rolled, cut, dropped, swapped, and its writer killed and restarted."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from logboom.storage import DataDirectory
from logboom.storage.files.disk import OsDisk
from logboom.storage.health.check import check
from support.nodes.warm import WarmProcess
from system import life_reader, life_writer


def start(script: str, *arguments: str) -> WarmProcess:
    """A child that has said its first line."""
    child = WarmProcess([script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline(), child.stderr.read()
    return child


def follow_through_kills(directory: Path, kills: int, readers_count: int) -> None:
    path, journal = str(directory / "data"), str(directory / "journal")
    chance = random.Random()
    writer = start(life_writer.__file__, path, journal)
    outputs = [
        (str(directory / f"seen-{n}"), life_reader.WAYS[n % len(life_reader.WAYS)]) for n in range(readers_count)
    ]
    readers = [start(life_reader.__file__, path, output, way) for output, way in outputs]
    children = [writer, *readers]
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.8))
            writer.kill()
            assert writer.wait() == -signal.SIGKILL, writer.stderr and writer.stderr.read()
            writer = start(life_writer.__file__, path, journal)
            children.append(writer)
        time.sleep(0.3)
        writer.kill()
        writer.wait()
        last = start(life_writer.__file__, path, journal, "end")
        children.append(last)
        assert last.wait(300) == 0, last.stderr and last.stderr.read()
        for reader in readers:
            assert reader.wait(300) == 0, reader.stderr and reader.stderr.read()
    finally:
        for child in children:
            child.kill()
            child.communicate()
    wanted = dict(line.split(" ", 1) for line in Path(journal).read_text().splitlines())
    for output, way in outputs:
        compare(output, way, wanted)
    assert not check(OsDisk(path), path).damaged
    with DataDirectory.open(path) as data:
        assert data.open_topic(life_writer.TOPIC)[0].committed == len(wanted)


def compare(output: str, way: str, wanted: dict[str, str]) -> None:
    """Each record as it was committed, in order; none is left out but what retention may have taken."""
    seen = [line.split(" ", 1) for line in Path(output).read_text().splitlines()]
    assert seen, way
    before = int(seen[0][0]) - 1
    for seqno, value in seen:
        assert int(seqno) > before, (way, seqno, before)
        assert int(seqno) == before + 1 or int(seqno) + life_writer.KEEP <= len(wanted), (way, seqno, before)
        assert wanted[seqno] == value, (way, seqno)
        before = int(seqno)
    assert before == len(wanted) - 1


def test_ten_readers_see_what_was_committed_while_the_writer_is_killed_and_restarted(tmp_path: Path) -> None:
    follow_through_kills(tmp_path, 2, 10)


@pytest.mark.soak
def test_ten_readers_see_what_was_committed_through_forty_kills(tmp_path: Path) -> None:
    follow_through_kills(tmp_path, 40, 10)
