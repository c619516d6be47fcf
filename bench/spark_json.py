"""How fast does Spark group JSON objects that come from a log, next to Parquet of the same strings?

1 GiB of JSON objects of 100 bytes and of 1 KiB, cached. Two of their fields are parsed by `from_json`, and for each
`kind` the objects are counted and the `amount` is averaged. Parquet is uncompressed, one column of strings. Each side
is read as its users do: `json_values` on the source's column of bytes, `from_json` on Parquet's strings. `arrow_scan`
parses and adds up in Arrow, in the Python workers, and Spark only joins the sums.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql import DataFrame, SparkSession

from harness import Row, rate, report, time_prepared
from logboom.spark import arrow_scan, json_values
from spark_data import BATCH_BYTES, ROUNDS, SIZES, TOPIC, Records, records, running_spark, write_parquet

SCHEMA = "kind STRING, amount DOUBLE"
PARTS = "kind STRING, count BIGINT, total DOUBLE"

Answer = list[tuple[str, int, float]]


def main() -> None:
    rows: list[Row] = []
    with running_spark() as spark:
        for size in SIZES:
            with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
                rows += _group(spark, Path(directory), records(size))
    report("spark_json", rows)


def _group(spark: SparkSession, directory: Path, wanted: Records) -> list[Row]:
    what = f"{wanted.size:,} B"
    parquet, source, scan = (f"{name}, {what}" for name in ("Parquet of strings", "source", "arrow_scan"))
    log, lines = f"{directory}/log", directory / "lines"
    wanted.write_log(log)
    wanted.write_lines(lines)
    write_parquet(spark, lines, f"{directory}/parquet", "STRING")
    lines.unlink()
    strings = spark.read.parquet(f"{directory}/parquet").selectExpr(f"from_json(value, '{SCHEMA}') AS object")
    read = spark.read.format("logboom").option("topic", TOPIC).schema("value STRING").load(log)
    calls: dict[str, Callable[[], Answer]] = {
        parquet: partial(_answer, strings.select("object.*")),
        source: partial(_answer, json_values(read, SCHEMA).select("value.*")),
        scan: partial(_join, spark, log),
    }
    answers = {name: call() for name, call in calls.items()}
    assert all(_same(answer, answers[parquet]) for answer in answers.values()), answers
    timings = time_prepared({name: (_nothing, call) for name, call in calls.items()}, ROUNDS)
    return [
        rate(parquet, timings, wanted.amount),
        rate(source, timings, wanted.amount, parquet, 1.0),
        rate(scan, timings, wanted.amount, parquet),
    ]


def _answer(frame: DataFrame) -> Answer:
    grouped = frame.groupBy("kind").agg({"*": "count", "amount": "avg"})
    return _rows(grouped.selectExpr("kind", "`count(1)`", "`avg(amount)`"))


def _join(spark: SparkSession, log: str) -> Answer:
    parts = arrow_scan(spark, _add_up, PARTS, log, columns=["value"], topic=TOPIC)
    joined = parts.groupBy("kind").agg({"count": "sum", "total": "sum"})
    return _rows(joined.selectExpr("kind", "`sum(count)`", "`sum(total)` / `sum(count)`"))


def _rows(frame: DataFrame) -> Answer:
    return sorted((row[0], row[1], row[2]) for row in frame.collect())


def _add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted = pa.schema([("kind", pa.string()), ("amount", pa.float64())])
    options = pa.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
    alone = pa.json.ReadOptions(use_threads=False, block_size=4 * BATCH_BYTES)
    for batch in batches:
        text = pa.BufferReader(_text(batch.column("value")))
        objects = pa.json.read_json(text, alone, options)
        sums = objects.group_by("kind").aggregate([("amount", "count"), ("amount", "sum")])
        yield from sums.rename_columns({"amount_count": "count", "amount_sum": "total"}).to_batches()


def _text(values: pa.Array) -> pa.Buffer:
    """All of them in one text, an object in each line."""
    return pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()


def _same(one: Answer, other: Answer) -> bool:
    """Sums of fractions depend on their order in the last digits."""
    pairs: Any = zip(one, other, strict=True)
    return all(ours[:2] == theirs[:2] and np.isclose(ours[2], theirs[2]) for ours, theirs in pairs)


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
