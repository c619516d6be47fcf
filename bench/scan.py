"""How fast is a whole log read into Arrow, next to the checksum it cannot do without?

A `FileReader` reads a log of 128 MiB into one Arrow table, with every batch verified. Next to it one call of crc32c
goes over the same bytes: what any reader that checks what it reads has to pay. Both have mapped them before, and
neither copies a value. The reader may have a second core take the checksums. `all columns` is what a table has by
default: seqnos and timestamps are made, too. The last row of each shape opens the log and maps its file anew, page
faults included.
"""

from __future__ import annotations

import mmap
import random
import tempfile
from functools import partial
from typing import Any

from crc32c import crc32c

from harness import Row, rate, report, time_interleaved
from logboom.batch import build
from logboom.client import FileReader
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings

LOG_BYTES = 128 * 1024 * 1024
ROUNDS = 40
TOPIC = "bench"
SHAPES: dict[str, tuple[int, bool]] = {
    "values of 100 B": (100, False),
    "values of 100 B, keys, timestamps": (100, True),
    "values of 16 B": (16, False),
    "values of 1,000 B": (1000, False),
}
SIZES_KIB = (64, 256)
GOAL = 0.5
GOALS = {"values of 16 B": 0.3}
"""Of so small values most of what is read is made: a seqno, a timestamp and an offset for each."""


def write_log(path: str, batch_bytes: int, value_size: int, columns: bool) -> str:
    """A log of batches of about this size, in one sealed segment; values vary in length by half. Returns its file."""
    noise = random.Random(11)
    count = batch_bytes // (value_size + (24 if columns else 4))
    more: dict[str, Any] = {
        "keys": [b"key-%05d" % number for number in range(count)],
        "timestamps": [1_700_000_000_000_000 + 7 * number for number in range(count)],
    }
    sizes = range(value_size // 2, value_size * 3 // 2 + 1)
    batches = [
        build([noise.randbytes(noise.choice(sizes)) for _ in range(count)], **(more if columns else {}))
        for _ in range(8)
    ]
    with DataDirectory.open(path) as data:
        data.create_topic(TOPIC, settings=Settings(segment=SegmentSettings(bytes=2 * LOG_BYTES)))
        (log,) = data.open_topic(TOPIC)
        while log.active_bytes < LOG_BYTES:
            log.append(batches, 1_700_000_000_000_000)
        log.roll()
        log.append_one(batches[0], 1_700_000_000_000_000)
        log.commit(log.sync())
        return log.segments[0].log_path


def compare_scan(directory: str, size_kib: int, label: str) -> list[Row]:
    path = f"{directory}/{size_kib}-{label.replace(' ', '-')}"
    with open(write_log(path, size_kib * 1024, *SHAPES[label]), "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))

    reader = FileReader(path, TOPIC)

    def read(columns: list[str] | None = None) -> None:
        reader.seek(0)
        reader.table(columns)

    def open_and_read() -> None:
        with FileReader(path, TOPIC) as reader:
            reader.table()

    checksum = f"crc32c, {size_kib} KiB batches, {label}"
    everything, values = f"FileReader, {size_kib} KiB batches, {label}, all columns", "the same, value column only"
    opened = "the same, all columns, opened and mapped anew"
    timings = time_interleaved(
        {
            checksum: partial(crc32c, data),
            everything: read,
            values: partial(read, ["value"]),
            opened: open_and_read,
        },
        ROUNDS,
    )
    size = len(data)
    return [
        rate(checksum, timings, size),
        rate(everything, timings, size, checksum, GOALS.get(label, GOAL)),
        rate(values, timings, size, checksum, GOALS.get(label, GOAL)),
        rate(opened, timings, size, checksum),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        rows = [row for size_kib in SIZES_KIB for label in SHAPES for row in compare_scan(directory, size_kib, label)]
    report("scan", rows)


if __name__ == "__main__":
    main()
