"""What does a batch cost to check and to read, next to Arrow IPC and to its checksum?

Arrow IPC reads a message without checking its offsets, so a verified batch is compared with it, and what verification
adds stands in rows of its own. Both share the memory they read from. Validation of a 64 KiB batch is compared with the
checksum over the same bytes.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from harness import Row, compare, rate, report, time_interleaved
from logboom.batch import BATCH_SIZE_MAX, HEADER_SIZE, Batch, build
from logboom.batch.validation import check_body, check_header

NOISE = random.Random(7)
NAMES = ("seqno", "timestamp", "key", "value")


def records(count: int, value_size: int = 100) -> dict[str, Any]:
    return {
        "values": [NOISE.randbytes(value_size) for _ in range(count)],
        "keys": [b"key-%05d" % number for number in range(count)],
        "timestamps": [1_700_000_000_000_000 + 7 * number for number in range(count)],
    }


def verified(data: bytes) -> Batch:
    batch = Batch.parse(data)
    batch.verify()
    return batch


def read_values(data: bytes) -> list[bytes | None]:
    return verified(data).values()


def main() -> None:
    report("decode", [*_to_arrow(), *_values(), *_validation(), *_scaling(), *_codecs()])


def _to_arrow() -> list[Row]:
    data = bytes(build(**records(1000)).data)
    batch = verified(data)
    table = batch.to_arrow(NAMES)
    message, schema = table.serialize(), table.schema
    timings = time_interleaved(
        {
            "Arrow IPC read, 1,000 records, 4 columns": lambda: pa.ipc.read_record_batch(message, schema),
            "to_arrow, verified": lambda: batch.to_arrow(NAMES),
            "to_arrow, parse and verification included": lambda: Batch.parse(data).to_arrow(NAMES),
            "crc32c of that batch": lambda: crc32c(data),
        }
    )
    ipc, ours, whole, checksum = timings
    return [
        compare(ipc, timings),
        compare(ours, timings, ipc, 4),
        compare(whole, timings, ipc),
        compare(checksum, timings),
    ]


def _values() -> list[Row]:
    columns = records(1000)
    array = pa.array(columns["values"])
    batch = verified(bytes(build(**columns).data))
    timings = time_interleaved({"to_pylist, 1,000 values": array.to_pylist, "values(), 1,000 values": batch.values})
    arrow, ours = timings
    return [compare(arrow, timings), compare(ours, timings, arrow, 1)]


def _validation() -> list[Row]:
    columns = records(625)
    return [
        *_structure("625 values", build(columns["values"]), 1),
        *_structure("625 values, keys, timestamps", build(**columns), None),
    ]


def _structure(label: str, batch: Batch, goal: float | None) -> list[Row]:
    data, header = bytes(batch.data), batch.header
    body = memoryview(data)[HEADER_SIZE : HEADER_SIZE + header.stored_size]

    def check_structure() -> None:
        check_header(header, BATCH_SIZE_MAX)
        check_body(header, body)

    checksum, structure = f"crc32c, {label}", f"structure, {label}"
    timings = time_interleaved({checksum: partial(crc32c, data), structure: check_structure})
    return [compare(checksum, timings), compare(structure, timings, checksum, goal)]


def _scaling() -> list[Row]:
    batches = {count: bytes(build(**records(count)).data) for count in (1, 10, 100, 10_000)}
    timings = time_interleaved(
        {f"parse, verify, values(), {count:,} records": partial(read_values, data) for count, data in batches.items()},
        rounds=50,
    )
    return [compare(name, timings) for name in timings]


def _codecs() -> list[Row]:
    texts = [
        b'{"site": %d, "sensor": "temp-%d", "value": %.6f, "unit": "C"}' % (n % 40, n % 9, NOISE.gauss(20, 5))
        for n in range(2_000)
    ]
    stored = {codec: bytes(build(texts, codec=codec).data) for codec in ("none", "lz4", "zstd")}
    timings = time_interleaved(
        {f"parse and verify, codec {codec}": partial(verified, data) for codec, data in stored.items()}
    )
    return [rate(name, timings, len(stored["none"])) for name in timings]


if __name__ == "__main__":
    main()
