"""What each task has read and skipped: logged, and noted in a directory for `scans` to find.

The directory is $LOGBOOM_SCANS of whoever runs the tasks; `logboom.spark.session` makes one and names it. Each process
appends to a file of its own, a line for each split, and begins it anew when it is full: a stream may run for years.
Where tasks run on other machines, their lines are there.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

VARIABLE: Final = "LOGBOOM_SCANS"
FILE_BYTES_MAX: Final = 4 << 20

logger = logging.getLogger("logboom.spark")


class Scan(msgspec.Struct):
    """One split, as one task read it."""

    topic: str
    partition: int
    seqno_from: int
    seqno_until: int
    size_bytes: int
    """About how many bytes of files the split has."""
    source: str = "files"
    """`files`, `archive`, `server`, or `files, server` where it went on there."""
    records: int = 0
    """Given to Spark."""
    bytes_read: int = 0
    """Of files or of answers; the rest of `size_bytes` was skipped."""
    damaged: int = 0
    """Records that were skipped because they cannot be read."""
    lost: int = 0
    """Records that were skipped because they are not there any more."""
    seconds: float = 0.0
    at: float = 0.0
    host: str = ""
    pid: int = 0

    @property
    def bytes_skipped(self) -> int:
        return max(0, self.size_bytes - self.bytes_read)


@contextmanager
def noted(scan: Scan, directory: str | None = None) -> Iterator[Scan]:
    """Whatever becomes of the read, what it did is logged and written down."""
    began = time.perf_counter()
    try:
        yield scan
    finally:
        scan.seconds, scan.at = time.perf_counter() - began, time.time()
        scan.host, scan.pid = socket.gethostname(), os.getpid()
        log = logger.warning if scan.damaged or scan.lost else logger.info
        log(
            "%s/%d seqnos %d to %d from %s: %d records, %d bytes read, %d skipped, %d records damaged, %d gone",
            *(scan.topic, scan.partition, scan.seqno_from, scan.seqno_until - 1, scan.source, scan.records),
            *(scan.bytes_read, scan.bytes_skipped, scan.damaged, scan.lost),
        )
        directory = directory or os.environ.get(VARIABLE)
        if directory:
            with suppress(OSError), open(f"{directory}/{scan.host}-{scan.pid}.jsonl", "ab") as file:
                if file.tell() > FILE_BYTES_MAX:
                    file.truncate(0)
                file.write(msgspec.json.encode(scan) + b"\n")


def scans(since: float = 0.0, directory: str | None = None) -> list[Scan]:
    """What tasks on this machine have read since then (seconds since 1970), in the order they ended.

    >>> scans(directory="/nowhere")
    []
    """
    directory = directory or os.environ.get(VARIABLE)
    if not directory:
        return []
    decode = msgspec.json.Decoder(Scan).decode
    lines = [line for path in Path(directory).glob("*.jsonl") for line in path.read_bytes().splitlines()]
    return sorted((scan for scan in map(decode, lines) if scan.at >= since), key=lambda scan: scan.at)
