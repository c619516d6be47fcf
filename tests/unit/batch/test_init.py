from __future__ import annotations

import subprocess
import sys

import logboom.batch


def test_the_public_names_are_exactly_these() -> None:
    assert logboom.batch.__all__ == [
        "BATCH_SIZE_DEFAULT",
        "BATCH_SIZE_MAX",
        "HEADER_SIZE",
        "KIND_CONTROL",
        "KIND_DATA",
        "KIND_LOST",
        "NO_TIMESTAMP",
        "SYNCED_UNKNOWN",
        "Batch",
        "Header",
        "Producer",
        "Record",
        "Selection",
        "build",
        "build_control",
        "build_records",
        "build_table",
        "microseconds",
        "read_header",
        "schema",
        "stamp",
        "to_table",
    ]
    assert all(hasattr(logboom.batch, name) for name in logboom.batch.__all__)


ONE_RECORD = """
import sys
from logboom.batch import Batch, HEADER_SIZE, Record, build, build_records, read_header, stamp
batch = build([b"v"], keys=[b"k"], timestamps=[1], channels=["c"], tags=[["t"]], headers=[[("h", b"x")]])
data = stamp(batch.data[:HEADER_SIZE], 4, 1, 2, 1, 1) + bytes(batch.data[HEADER_SIZE:])
again = Batch.parse(data)
again.verify()
assert list(again.records()) == [Record(b"v", b"k", 1, "c", ("t",), (("h", b"x"),), 4)]
assert build_records(again.records()).data == batch.data
assert again.values() == [b"v"] and again.headers() == [(("h", b"x"),)]
print([name for name in ("pyarrow", "numpy", "pandas", "asyncio") if name in sys.modules])
"""


def test_one_record_is_built_and_read_without_importing_arrow_or_numpy() -> None:
    child = subprocess.run([sys.executable, "-c", ONE_RECORD], capture_output=True, text=True, check=False)
    assert (child.stdout, child.stderr) == ("[]\n", "")
