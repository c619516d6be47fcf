"""A block of a mapped file that cannot be read is damage for whoever reads it, and no reason to die.

The test's file ends before its map does, and nobody looks at its size: touching what is missing is what touching a
block is that its device cannot read. A process that does so is ended by SIGBUS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings

NOW = 1_700_000_000_000_000
BATCHES = 64
BEGIN = """
import os, sys
from logboom.errors import Damage
from logboom.storage.files.disk import OsFile

def size(self):
    found = os.fstat(self.fileno()).st_size
    return int(sys.argv[2]) if self.path.endswith(".log") and 0 < found < int(sys.argv[2]) else found

OsFile.size = size
"""
READERS = {
    "tables": """
from logboom.client import FileReader
with FileReader(sys.argv[1], "t", gaps="skip") as reader:
    rows = sum(len(table) for table in reader.tables(max_bytes=1 << 26))
    print(rows, reader.skipped)
""",
    "records": """
from logboom.client import FileReader
with FileReader(sys.argv[1], "t", gaps="skip") as reader:
    print(sum(1 for _ in reader.records()), reader.skipped)
""",
    "one view of everything": """
from logboom.client import FileReader
with FileReader(sys.argv[1], "t") as reader:
    try:
        for table in reader.tables(max_bytes=1 << 26):
            pass
    except Damage as damage:
        print("damage", "cannot be read" in str(damage))
""",
    "dump": """
import io
from logboom.storage.moving.dump import dump, plan_dump
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import Request
try:
    with DumpOrigin.beside(sys.argv[1]) as origin:
        dump(origin, plan_dump(origin, Request(), 0), io.BytesIO())
except Damage as damage:
    print("damage", True)
""",
    "node": """
import asyncio
from logboom.broker.api import ReadRequest, Start
from logboom.broker.local import LocalBroker

async def story():
    broker = await LocalBroker.open(sys.argv[1])
    seqno = 0
    try:
        while True:
            chunk = await broker.read(ReadRequest("t", Start(seqno=seqno), max_bytes=8 << 20))
            sum(len(record.value) for record in chunk.records())
            seqno = chunk.next_seqno
    except Damage as damage:
        print("damage", True)
    await broker.close()

asyncio.run(story())
""",
}


@pytest.fixture
def cut(tmp_path: Path) -> tuple[Path, int]:
    """A directory whose first segment lacks half of its last batch, and how many bytes that segment had."""
    path = tmp_path / "data"
    batch, large = build([os.urandom(32 * 1024)]), build([os.urandom(2 << 20)])
    with DataDirectory.open(str(path)) as data:
        data.create_topic("t", 1, Settings(segment=SegmentSettings(bytes=1 << 30)))
        (log,) = data.open_topic("t")
        log.append([*([batch] * BATCHES), large], NOW)
        log.roll()
        log.append_one(batch, NOW)
        log.commit(log.sync())
        file = log.segments[0].log_path
    size = os.path.getsize(file)
    os.truncate(file, size - (1 << 20))
    return path, size


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_is_ended_by_a_block_that_cannot_be_read(cut: tuple[Path, int], reader: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + READERS[reader], str(cut[0]), str(cut[1])],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    if reader in ("tables", "records"):
        assert done.stdout.split() == [str(BATCHES + 1), "1"]
    else:
        assert done.stdout == "damage True\n"
