from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from logboom.client.files import file_watch
from logboom.client.files.file_watch import FileWatch, ReadPace


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "state"
    path.write_bytes(bytes(64))
    return str(path)


def write(path: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"x", 3)
    os.close(fd)


def test_a_write_wakes(path: str) -> None:
    watch = FileWatch(path)
    assert watch.by_inotify
    threading.Timer(0.05, write, [path]).start()
    began = time.monotonic()
    watch.wait(300)
    assert time.monotonic() - began < 250


def test_a_write_before_the_wait_is_not_missed(path: str) -> None:
    watch = FileWatch(path)
    write(path)
    began = time.monotonic()
    watch.wait(300)
    assert time.monotonic() - began < 250


def test_a_file_put_in_place_of_another_is_watched_after_renewal(path: str) -> None:
    watch = FileWatch(path)
    os.unlink(path)
    watch.renew()
    Path(path).write_bytes(bytes(64))
    watch.renew()
    for _ in range(3):
        watch.wait(0)  # told of the old one's end
    write(path)
    began = time.monotonic()
    watch.wait(300)
    assert watch.by_inotify
    assert time.monotonic() - began < 250


def test_without_inotify_it_polls_and_comes_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "_open_inotify", lambda: -1)
    watch = FileWatch(path)
    assert not watch.by_inotify
    for _ in range(20):
        watch.wait(300)
    watch.close()


def test_a_closed_watch_leaves_no_descriptor(path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        watch = FileWatch(path)
        watch.close()
        watch.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_reader_rests_after_small_reads_and_not_after_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[float] = [10.0]
    slept: list[float] = []
    monkeypatch.setattr("logboom.client.files.file_watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr("logboom.client.files.file_watch.time.sleep", slept.append)
    pace = ReadPace()
    pace.rest()
    for worked_s, size in ((0.001, 100), (0.00001, 100), (1.0, 100), (1.0, file_watch.GATHER_BYTES)):
        pace.begin()
        now[0] += worked_s
        pace.end(size)
        pace.rest()
        pace.rest()
    assert slept == [pytest.approx(0.008), pytest.approx(file_watch.REST_MAX_S)]
