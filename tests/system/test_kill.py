"""Real processes, SIGKILL at any moment: while appending, syncing, rolling, trimming, truncating, and while opening."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logboom.storage import DataDirectory
from system import kill_writer

WRITER = kill_writer.__file__


def run_and_kill(path: str, durable: int, floor: int, chance: random.Random) -> tuple[int, int, bool]:
    """One incarnation of the writer; returns what it said was durable, the floor, and whether it had opened the log."""
    arguments = [sys.executable, WRITER, path, str(durable), str(floor)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        lines = 1 if chance.random() < 0.2 else chance.randint(2, 150)
        said = [writer.stdout.readline() for _ in range(lines)]
        time.sleep(chance.random() * 0.005)
        writer.kill()
        said += writer.stdout
        assert writer.wait() == -signal.SIGKILL, writer.stderr.read()
    for line in said:
        match line.split():
            case ["durable", seqno] if line.endswith("\n"):
                durable = int(seqno)
            case ["floor", seqno] if line.endswith("\n"):
                floor = int(seqno)
    return durable, floor, any(line.startswith("open ") for line in said)


def kill_again_and_again(path: str, kills: int) -> None:
    chance = random.Random()
    durable = floor = 0
    for kill in range(kills):
        durable, floor, opened = run_and_kill(path, durable, floor, chance)
        if kill == kills - 1 or chance.random() < 0.3:
            with DataDirectory.open(path) as data:
                assert not (opened and data.was_clean)
                log = data.open_log(kill_writer.NAME, kill_writer.CONFIG)
                kill_writer.check(log, durable, floor)
    assert durable
    with DataDirectory.open(path) as data:
        assert data.was_clean
        kill_writer.check(data.open_log(kill_writer.NAME, kill_writer.CONFIG), durable, floor)


def test_a_writer_killed_at_any_moment_loses_nothing_durable_and_doubles_nothing(tmp_path: Path) -> None:
    kill_again_and_again(str(tmp_path), 6)


@pytest.mark.soak
def test_a_writer_killed_fifty_times_loses_nothing_durable_and_doubles_nothing(tmp_path: Path) -> None:
    kill_again_and_again(str(tmp_path), 50)
