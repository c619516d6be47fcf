"""One writer per data directory, and what the next one learns of how the last one left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom.errors import DirectoryInUse
from logboom.storage import DataDirectory

HOLD = """
import sys
from logboom.storage import DataDirectory
data = DataDirectory.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
data.close()
"""
TRY = """
import sys
from logboom.errors import DirectoryInUse
from logboom.storage import DataDirectory
try:
    DataDirectory.open(sys.argv[1])
except DirectoryInUse as error:
    print(error)
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the directory open until its standard input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_directory_in_use_is_refused_with_the_name_of_its_holder(tmp_path: Path) -> None:
    with holder(tmp_path) as process, pytest.raises(DirectoryInUse) as refused:
        DataDirectory.open(str(tmp_path))
    assert f"{tmp_path} is in use" in str(refused.value)
    assert str(process.pid) in str(refused.value)


def test_a_second_process_is_refused_too(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)):
        done = subprocess.run([sys.executable, "-c", TRY, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"{tmp_path} is in use" in done.stdout


def test_being_refused_does_not_disturb_the_holder(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        for _ in range(3):
            with pytest.raises(DirectoryInUse):
                DataDirectory.open(str(tmp_path))
        data.open_log(f"topics/held~{1:032x}/0")
    with DataDirectory.open(str(tmp_path)) as data:
        assert data.was_clean


def test_a_directory_whose_holder_was_killed_opens_and_says_that_it_was_not_clean(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
        with DataDirectory.open(str(tmp_path)) as data:
            assert not data.was_clean


def test_a_directory_that_was_closed_opens_and_says_that_it_was_clean(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.communicate()
        assert process.returncode == 0
        with DataDirectory.open(str(tmp_path)) as data:
            assert data.was_clean


def test_an_unclean_end_is_reported_once(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
    with DataDirectory.open(str(tmp_path)) as data:
        assert not data.was_clean
    with DataDirectory.open(str(tmp_path)) as data:
        assert data.was_clean
