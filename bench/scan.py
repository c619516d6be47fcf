"""How fast is a scan, next to the checksum it cannot do without?

A mapped file of stored batches becomes one Arrow table, with every batch verified. Next to it one call of crc32c goes
over the same memory: what any reader that checks what it reads has to pay. Both go through the page cache's memory, and
neither copies a value.
"""

from __future__ import annotations

import mmap
import random
import tempfile
from functools import partial
from typing import Any

from crc32c import crc32c

from harness import Row, rate, report, time_interleaved
from logboom.batch import HEADER_SIZE, build, stamp, to_table

STRETCH_BYTES = 32 * 1024 * 1024
ROUNDS = 60
SHAPES: dict[str, tuple[int, bool]] = {
    "values of 100 B": (100, False),
    "values of 100 B, keys, timestamps": (100, True),
    "values of 16 B": (16, False),
}
GOALS = {64: 0.35, 256: 0.5}


def stored(size_bytes: int, value_size: int, columns: bool) -> memoryview:
    """A mapped file of batches of about this size; values vary in length by half."""
    noise = random.Random(11)
    count = size_bytes // (value_size + (24 if columns else 4))
    more: dict[str, Any] = {
        "keys": [b"key-%05d" % number for number in range(count)],
        "timestamps": [1_700_000_000_000_000 + 7 * number for number in range(count)],
    }
    sizes = range(value_size // 2, value_size * 3 // 2 + 1)
    batches = [
        build([noise.randbytes(noise.choice(sizes)) for _ in range(count)], **(more if columns else {})).data
        for _ in range(8)
    ]
    file = tempfile.TemporaryFile()  # noqa: SIM115
    for number in range(STRETCH_BYTES // size_bytes):
        data = batches[number % len(batches)]
        file.write(stamp(data[:HEADER_SIZE], number * count, number + 1, 1_700_000_000_000_000 + number, 1, 1))
        file.write(data[HEADER_SIZE:])
    file.flush()
    return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def compare_scan(size_kib: int, label: str) -> list[Row]:
    data = stored(size_kib * 1024, *SHAPES[label])
    checksum = f"crc32c, {size_kib} KiB batches, {label}"
    everything, values = f"to_table, {size_kib} KiB batches, {label}", "the same, value column only"
    timings = time_interleaved(
        {
            checksum: partial(crc32c, data),
            everything: partial(to_table, data, 0, 1),
            values: partial(to_table, data, 0, 1, ("value",)),
        },
        ROUNDS,
    )
    size = len(data)
    return [
        rate(checksum, timings, size),
        rate(everything, timings, size, checksum, GOALS[size_kib]),
        rate(values, timings, size, checksum),
    ]


def main() -> None:
    report("scan", [row for size_kib in GOALS for label in SHAPES for row in compare_scan(size_kib, label)])


if __name__ == "__main__":
    main()
