"""Keeps what Java loads to run Spark, in a file that further Javas take it from: half of what a start of Spark costs.

    python tests/spark/classes.py FILE

Where this Java cannot make such a file there is none, and the tests take longer.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from logboom.spark import session

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off,cds+dynamic=off"
"""For every Java that the tests start: none lives long enough for its better compiler to pay."""


def java_options() -> str:
    """For `JAVA_TOOL_OPTIONS`: with the file that `make test` has made, where there is one."""
    classes = Path(sys.prefix, "spark.jsa")
    return f"{OPTIONS} -XX:SharedArchiveFile={classes}" if classes.exists() else OPTIONS


def main(path: str) -> None:
    os.environ["JAVA_TOOL_OPTIONS"] = OPTIONS
    with tempfile.TemporaryDirectory(prefix="logboom-classes-") as directory:
        work(directory, f"-XX:ArchiveClassesAtExit={path}")


def work(directory: str, option: str) -> None:
    """A little of all that the tests do with Spark."""
    settings = {
        "spark.driver.extraJavaOptions": option,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{directory}/local",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    spark = session("classes", "local[2]", config=settings)
    gateway = spark.sparkContext._gateway
    assert gateway is not None

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    numbers = spark.range(1000).selectExpr("id % 7 AS key", "CAST(id AS STRING) AS text")
    numbers.mapInArrow(pass_on, numbers.schema).write.parquet(f"{directory}/numbers")
    spark.read.parquet(f"{directory}/numbers").groupBy("key").count().orderBy("key").collect()
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = ticks.writeStream.format("noop").option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    spark.stop()
    gateway.proc.stdin.close()  # which is how Java hears that nobody needs it any more
    gateway.proc.wait()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
