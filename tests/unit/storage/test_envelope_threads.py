"""Small files are read by many threads at once: as when the logs of a directory are opened."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import threading
import msgspec
from logboom.storage import envelope

sys.setswitchinterval(1e-6)

def make(n):
    inner = msgspec.defstruct(f"Inner{n}", [(f"f{m}", int, 0) for m in range(5)], array_like=True, frozen=True)
    lists = [("epoch", int, 0), ("batches", tuple[inner, ...], ())]
    middle = msgspec.defstruct(f"Middle{n}", lists, array_like=True, frozen=True)
    return msgspec.defstruct(f"Kind{n}", [("a", int, 0), ("producers", dict[int, middle], {})], frozen=True)

kinds = [make(n) for n in range(200)]
files = [envelope.pack(b"TEST", kind()) for kind in kinds]
gate = threading.Barrier(8)

def read():
    for kind, data in zip(kinds, files):
        gate.wait()
        envelope.unpack(b"TEST", data, kind)

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_read_a_kind_of_file_for_the_first_time_do_not_crash() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
