"""Snapshots are read by many threads at once when the logs of a directory are opened."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import threading
from logboom.storage.tail import Snapshot

sys.setswitchinterval(1e-6)
data = Snapshot(0, 1).encode()
gate = threading.Barrier(16)

def read():
    gate.wait()
    assert Snapshot.decode(data) == Snapshot(0, 1)

threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
TIMES = 8
"""Without a decoder that was made before, some of them die."""


def test_threads_that_read_a_snapshot_for_the_first_time_do_not_crash() -> None:
    children = [subprocess.Popen([sys.executable, "-c", SCRIPT]) for _ in range(TIMES)]
    assert [child.wait(300) for child in children] == [0] * TIMES
