"""What does a batch cost to build, next to the Arrow columns it is made of?

The floor is `pa.array` of the same Python objects: no encoder that goes through Arrow can be faster. A batch also has
a header, both checksums and its own memory. A single record is compared with the message Arrow IPC makes of it,
which has no checksum. Codecs are measured on small JSON documents; rates are of what goes in.
"""

from __future__ import annotations

import random
from functools import partial

import pyarrow as pa

from harness import Row, compare, rate, report, time_interleaved
from logboom.batch import build

NOISE = random.Random(7)
VALUES = [NOISE.randbytes(100) for _ in range(10_000)]
KEYS = [b"key-%05d" % number for number in range(10_000)]
TIMES = [1_700_000_000_000_000 + 7 * number for number in range(10_000)]
TEXTS = [
    b'{"site": %d, "sensor": "temp-%d", "value": %.6f, "unit": "C"}' % (n % 40, n % 9, NOISE.gauss(20, 5))
    for n in range(2_000)
]


def main() -> None:
    report("encode", [*_thousand(), *_single(), *_scaling(), *_codecs()])


def _thousand() -> list[Row]:
    values, keys, times = VALUES[:1000], KEYS[:1000], TIMES[:1000]
    timings = time_interleaved(
        {
            "pa.array, 1,000 values of 100 B": lambda: pa.array(values),
            "build, 1,000 values of 100 B": lambda: build(values),
            "pa.array, 1,000 values, keys, timestamps": lambda: (pa.array(values), pa.array(keys), pa.array(times)),
            "build, 1,000 values, keys, timestamps": lambda: build(values, keys=keys, timestamps=times),
        }
    )
    floor, ours, floor_three, ours_three = timings
    return [
        compare(floor, timings),
        compare(ours, timings, floor, 1.5),
        compare(floor_three, timings),
        compare(ours_three, timings, floor_three, 1.25),
    ]


def _single() -> list[Row]:
    value, key, moment = VALUES[:1], KEYS[:1], TIMES[:1]
    names = ["timestamp", "key", "value"]
    timings = time_interleaved(
        {
            "Arrow IPC message, 1 record": lambda: pa.record_batch(
                [pa.array(moment), pa.array(key), pa.array(value)], names=names
            ).serialize(),
            "build, 1 record": lambda: build(value, keys=key, timestamps=moment),
        }
    )
    ipc, ours = timings
    return [compare(ipc, timings), compare(ours, timings, ipc, 0.2)]


def _scaling() -> list[Row]:
    timings = time_interleaved(
        {
            f"build, {count:,} records": partial(build, VALUES[:count], keys=KEYS[:count], timestamps=TIMES[:count])
            for count in (10, 100, 10_000)
        },
        rounds=50,
    )
    return [compare(name, timings) for name in timings]


def _codecs() -> list[Row]:
    size = len(build(TEXTS).data)
    codecs = ("none", "lz4", "zstd")
    timings = time_interleaved({f"build, codec {codec}": partial(build, TEXTS, codec=codec) for codec in codecs})
    rows = [rate(name, timings, size) for name in timings]
    for codec in codecs[1:]:
        gain = size / len(build(TEXTS, codec=codec).data)
        rows.append(Row(f"size, none / {codec}", gain, "times", better="higher"))
    return rows


if __name__ == "__main__":
    main()
