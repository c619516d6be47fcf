"""Real processes that dump and load, SIGKILL at any moment, and the same command again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from support.simulation.dumps import NOW, assert_same
from support.simulation.model import make_batch

COMMAND = (sys.executable, "-c", "from logboom.cli import main; main()")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some MiB in two topics, many segments."""
    path = tmp_path_factory.mktemp("source") / "data"
    with DataDirectory.open(str(path)) as directory:
        for name, size in (("large", 20_000), ("small", 50)):
            directory.create_topic(name, 2, Settings(segment=SegmentSettings(bytes=1024 * 1024)))
            for log in directory.open_topic(name):
                for start in range(0, 400, 40):
                    log.append([make_batch(n, 2, NOW, size=size) for n in range(start, start + 40)], NOW + start)
        directory.sync()
    return path


def run_and_kill(arguments: list[str], seconds: float) -> bool:
    """Whether it ended by itself before."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return False
    assert process.returncode == 0, said
    return True


def run_until_done(arguments: list[str], kills: int, chance: random.Random) -> None:
    """Kill it so many times at any moment, then let it end."""
    for _ in range(kills):
        run_and_kill(arguments, 0.2 + chance.random())
    assert run_and_kill(arguments, 120)


def dump_and_load(data: Path, place: Path, kills: int) -> None:
    chance = random.Random()
    file, copy = place / "d.lgdump", place / "copy"
    run_until_done(["dump", str(data), "--output", str(file), "--resume", "--compress", "lz4"], kills, chance)
    assert run_and_kill(["load", "--dry-run", str(file)], 120)
    run_until_done(["load", str(copy), str(file)], kills, chance)
    with DataDirectory.open(str(data)) as here, DataDirectory.open(str(copy)) as there:
        assert_same(here, there)


def test_a_dump_and_a_load_killed_at_any_moment_end_in_an_equal_copy(data: Path, tmp_path: Path) -> None:
    dump_and_load(data, tmp_path, 4)


@pytest.mark.soak
def test_a_dump_and_a_load_killed_thirty_times_end_in_an_equal_copy(data: Path, tmp_path: Path) -> None:
    for number in range(3):
        place = tmp_path / str(number)
        place.mkdir()
        dump_and_load(data, place, 10)


def test_a_load_fed_by_a_dump_that_is_killed_goes_on_with_the_next(data: Path, tmp_path: Path) -> None:
    chance, copy = random.Random(), tmp_path / "copy"
    for _ in range(3):
        with (
            subprocess.Popen([*COMMAND, "dump", str(data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as dump,
            subprocess.Popen([*COMMAND, "load", str(copy)], stdin=dump.stdout, stderr=subprocess.DEVNULL) as load,
        ):
            time.sleep(0.3 + chance.random() * 0.7)
            dump.kill()
        assert load.returncode in (0, 1)
    whole = subprocess.run([*COMMAND, "dump", str(data)], capture_output=True, check=True).stdout
    subprocess.run([*COMMAND, "load", str(copy)], input=whole, capture_output=True, check=True)
    with DataDirectory.open(str(data)) as here, DataDirectory.open(str(copy)) as there:
        assert_same(here, there)
