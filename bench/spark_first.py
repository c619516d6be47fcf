"""How long does a fresh program wait for its first answer from Spark, and what of that is ours?

Every program is a new Python with a new session on two cores, and counts 10,000 records, twice: from Logboom with
`logboom.spark.session`, from Parquet with a session of Spark's own, and from a source in Python that has nothing in it
but one Arrow table. What that takes more than Parquet is the price of a source in Python; what Logboom takes more than
that is ours. A program's time has parts: imports, the session (the JVM and Spark), the plan, the first answer, and,
after that, the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 10_000
CONFIG = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
PHASES = ("imports", "session", "plan", "first answer", "second answer")
WHOLE = "all until the first answer"

Opened = tuple[Callable[[], "SparkSession"], Callable[["SparkSession"], "DataFrame"]]


def main() -> None:
    from harness import QUICK, Row, compare, report, summarise
    from logboom import Writer
    from node import running_node

    rounds = 2 if QUICK else 5
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_node(f"{directory}/node") as node:
        with Writer(node.create("first"), node.address, acks="leader") as writer:
            writer.write_many([b"%0100d" % number for number in range(COUNT)])
        _write_parquet(f"{directory}/parquet")
        places = {"Logboom": node.address, "Parquet": f"{directory}/parquet", "an empty Python source": ""}
        samples: dict[str, dict[str, list[float]]] = {name: {} for name in places}
        for _ in range(rounds):
            for name, place in places.items():
                for phase, seconds in _run(name, place).items():
                    samples[name].setdefault(phase, []).append(seconds * 1e6)
    rows: list[Row] = []
    for phase in (WHOLE, *PHASES):
        timings = {f"{name}: {phase}": summarise(samples[name][phase]) for name in places}
        ours, parquet, empty = timings
        rows += [compare(parquet, timings, unit="s"), compare(empty, timings, parquet, unit="s")]
        rows.append(compare(ours, timings, empty, unit="s"))
    report("spark_first", rows)


def _run(name: str, place: str) -> dict[str, float]:
    """The phases of one program, in seconds."""
    done = subprocess.run([sys.executable, __file__, name, place], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {WHOLE: sum(seconds[phase] for phase in PHASES[:-1]), **seconds}


def _program(name: str, place: str) -> dict[str, float]:
    times = [time.perf_counter()]
    start, read = {"Logboom": _logboom, "Parquet": _parquet}.get(name, _empty)(place)
    times.append(time.perf_counter())
    spark = start()
    times.append(time.perf_counter())
    frame = read(spark)
    times.append(time.perf_counter())
    for _ in range(2):
        assert frame.count() == COUNT
        times.append(time.perf_counter())
    spark.stop()
    return {phase: times[number + 1] - times[number] for number, phase in enumerate(PHASES)}


def _logboom(address: str) -> Opened:
    from logboom.spark import session

    def read(spark: SparkSession) -> DataFrame:
        return spark.read.format("logboom").option("topic", "first").load(f"logboom://{address}")

    return partial(session, "first", "local[2]", config=CONFIG), read


def _parquet(path: str) -> Opened:
    import pyspark.sql  # noqa: F401

    return _session, lambda spark: spark.read.parquet(path)


def _empty(_: str) -> Opened:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class OneTable(DataSourceReader):
        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            yield from pa.table({"value": [b"x" * 100] * COUNT}).to_batches()

    class OneTableSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "empty"

        def schema(self) -> str:
            return "value BINARY"

        def reader(self, schema: Any) -> DataSourceReader:
            return OneTable()

    def read(spark: SparkSession) -> DataFrame:
        spark.dataSource.register(OneTableSource)
        return spark.read.format("empty").load()

    return _session, read


def _session() -> SparkSession:
    """As Spark's own documentation has it, with this Python for its workers, and Java found as ours is."""
    from pyspark.sql import SparkSession

    from logboom.spark.runtime.java import prepare_java

    prepare_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("first").master("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _write_parquet(path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(path).mkdir()
    pq.write_table(pa.table({"value": [b"%0100d" % number for number in range(COUNT)]}), f"{path}/part.parquet")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(_program(*sys.argv[1:])))
    else:
        main()
