"""Columns of any length, written to a real node: in bounded memory, in their order, up to an entry that cannot be."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from logboom import AsyncWriter, Reader, Writer, connect
from logboom.batch.partitioner import partition_of
from logboom.errors import BufferFull, InvalidColumn
from support.nodes.process import NodeProcess
from support.waiting import wait_until

OPTIONS: dict[str, Any] = {"buffer_bytes": 1024 * 1024, "batch_bytes": 64 * 1024}
WriteMany = Callable[..., None]


def create(node: NodeProcess, partitions: int) -> None:
    async def run() -> None:
        async with connect(node.address) as broker:
            await broker.create_topic("events", partitions)

    asyncio.run(run())


def read(node: NodeProcess, partition: int | None = None) -> list[bytes | None]:
    with Reader("events", node.address, partition=partition) as reader:
        return [value for (values,) in reader.lists() for value in values]


def write_blocking(node: NodeProcess, **columns: Any) -> None:
    with Writer("events", node.address, **OPTIONS) as writer:
        writer.write_many(**columns)


def write_asyncio(node: NodeProcess, **columns: Any) -> None:
    async def run() -> None:
        async with AsyncWriter("events", node.address, **OPTIONS) as writer:
            await writer.write_many(**columns)

    asyncio.run(run())


WAYS = pytest.mark.parametrize("write_many", [write_blocking, write_asyncio], ids=["blocking", "asyncio"])

GROWN = """
    import asyncio, sys
    from pathlib import Path
    import pyarrow as pa
    from logboom import AsyncWriter, Writer

    value, options = bytes(1000), {"acks": "leader", "buffer_bytes": 4 << 20}

    def peak():
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    async def write_asyncio(values):
        async with AsyncWriter("events", sys.argv[1], **options) as writer:
            await writer.write_many(values)

    def write(name, count):
        with Writer("events", sys.argv[1], **options) as writer:
            if name == "list":
                writer.write_many([value] * count)
            elif name == "text":
                writer.write_many(["x" * 1000] * count)
            elif name == "generator":
                writer.write_many(bytes(1000) for _ in range(count))
            elif name == "keyed":
                keys = [b"k%d" % number for number in range(100)] * (count // 100)
                writer.write_many([value] * count, keys=keys, channels="c")
            elif name == "table":
                piece = pa.table({"value": pa.array([value] * 1000, pa.binary())})
                writer.write_table(pa.concat_tables([piece] * (count // 1000)))
            else:
                asyncio.run(write_asyncio([value] * count))

    write(sys.argv[2], 10_000)
    before = peak()
    write(sys.argv[2], 150_000)
    print(peak() - before)
"""


@pytest.mark.parametrize("name", ["list", "text", "generator", "keyed", "table", "asyncio"])
def test_memory_does_not_grow_with_what_is_written(name: str, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        create(node, 3 if name == "keyed" else 1)
        command = [sys.executable, "-c", textwrap.dedent(GROWN), node.address, name]
        child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) < 40_000_000, "150 MB of values"


@WAYS
@pytest.mark.parametrize("kind", [list, iter, pa.array, pd.Series, np.array],
                         ids=["list", "iterator", "Arrow", "pandas", "NumPy"])  # fmt: skip
def test_every_kind_of_column_arrives_whole_and_in_order(write_many: WriteMany, kind: Any, tmp_path: Path) -> None:
    values = [b"%0*d" % (1 + number % 100, number) for number in range(30_000)]
    with NodeProcess(tmp_path) as node:
        create(node, 1)
        write_many(node, values=kind(values))
        assert read(node) == values


@WAYS
@pytest.mark.parametrize("kind", [list, iter, pa.array], ids=["list", "iterator", "Arrow"])
def test_every_partition_has_the_records_of_its_keys_in_their_order(
    write_many: WriteMany, kind: Any, tmp_path: Path
) -> None:
    values = [b"%050d" % number for number in range(30_000)]
    keys = [b"k%d" % (number % 64) for number in range(30_000)]
    with NodeProcess(tmp_path) as node:
        create(node, 3)
        write_many(node, values=kind(values), keys=kind(keys))
        for partition in range(3):
            mine = [v for v, key in zip(values, keys, strict=True) if partition_of(key, 3) == partition]
            assert read(node, partition) == mine


@WAYS
@pytest.mark.parametrize("partitions", [1, 3])
def test_what_comes_before_an_entry_that_cannot_be_taken_is_written(
    write_many: WriteMany, partitions: int, tmp_path: Path
) -> None:
    values: list[Any] = [b"%050d" % number for number in range(20_000)]
    keys = [b"k%d" % (number % 64) for number in range(20_000)]
    bad: list[Any] = [*values[:15_000], 7, *values[15_001:]]
    with NodeProcess(tmp_path) as node:
        create(node, partitions)
        with pytest.raises(InvalidColumn, match="int is neither bytes nor text"):
            write_many(node, values=bad, keys=keys)
        found = sorted(value for partition in range(partitions) for value in read(node, partition) if value)
    assert found == values[: len(found)]
    assert 9_000 < len(found) <= 15_000


@WAYS
def test_columns_of_different_lengths_write_nothing(write_many: WriteMany, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        create(node, 1)
        with pytest.raises(InvalidColumn, match="19999 entries for 20000 records"):
            write_many(node, values=[bytes(100)] * 20_000, keys=[b"k"] * 19_999)
        assert read(node) == []


def test_a_full_buffer_raises_drops_or_waits_in_the_middle_of_a_column(tmp_path: Path) -> None:
    values = [b"%0100d" % number for number in range(20_000)]
    options: dict[str, Any] = {"buffer_bytes": 100_000, "batch_bytes": 10_000, "delivery_timeout_s": 300.0}
    with NodeProcess(tmp_path) as node:
        create(node, 1)
        strict = Writer("events", node.address, on_full="error", **options)
        loose = Writer("events", node.address, on_full="drop", **options)
        patient = Writer("events", node.address, on_full="block", **options)
        node.kill()
        with pytest.raises(BufferFull):
            strict.write_many(values)
        loose.write_many(values)
        assert 18_000 < loose.stats["dropped"] < 20_000
        given = 0

        def entries() -> Iterator[bytes]:
            nonlocal given
            for value in values:
                given += 1
                yield value

        worker = threading.Thread(target=patient.write_many, args=(entries(),))
        worker.start()
        wait_until(lambda: given > 900, "what the buffer holds")
        assert worker.is_alive()
        assert given < 2000
        node.start()
        worker.join(300)
        for writer in (strict, loose, patient):
            writer.close()
        assert (patient.stats["written"], given) == (20_000, 20_000)
        assert loose.stats["written"] + loose.stats["dropped"] == 20_000
        assert 0 < strict.stats["written"] < 2000


def test_what_an_iterable_does_with_the_writer_is_done(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        create(node, 1)
        with Writer("events", node.address, **OPTIONS) as writer:

            def entries() -> Iterator[bytes]:
                for number in islice(count(), 5000):
                    if number % 1000 == 0:
                        writer.send(b"aside").result(300)
                    yield b"%d" % number

            writer.write_many(entries())
        found = read(node)
    assert found.count(b"aside") == 5
    assert [value for value in found if value != b"aside"] == [b"%d" % number for number in range(5000)]
