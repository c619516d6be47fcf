"""A scan that stays in Arrow: a function of record batches runs where the records are read, before any row is made.

Twice as fast as the source where little comes out: what Spark spends on turning Arrow into rows is spent on the result
alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from logboom.errors import ConfigError, InvalidColumn
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import open_catalog
from logboom.spark.read.pushdown import Pushed
from logboom.spark.read.split_read import COLUMNS, read_split
from logboom.spark.read.table import make_job, plan_splits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Batches = Iterator[pa.RecordBatch]


def arrow_scan(
    spark: SparkSession,
    function: Callable[[Batches], Batches],
    schema: StructType | str,
    path: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """What `function` makes of the record batches of each split, as a DataFrame with this schema.

    def count(batches):
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    arrow_scan(spark, count, "rows BIGINT", "data", topic="events", columns=["seqno"]).groupBy().sum("rows")

    `options` are those of the source. The logs are cut now: what is appended later is not seen.
    """
    names = COLUMNS if columns is None else tuple(columns)
    for name in names:
        if name not in COLUMNS:
            raise InvalidColumn(name, f"unknown; a record has {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise InvalidColumn(name, "is named twice")
    texts = {name: _text(name, value) for name, value in options.items()}
    read = ReadOptions.parse(texts if path is None else {**texts, "path": str(path)})
    catalog = open_catalog(read)
    try:
        splits = plan_splits(catalog, read, Pushed(read.wanted))
    finally:
        catalog.close()
    job = make_job(read, names, None, read.wanted)

    def scan(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from function(read_split(splits[number], job))

    return spark.range(0, len(splits), 1, max(1, len(splits))).mapInArrow(scan, schema)


def _text(option: str, value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str | int | Mapping):
        return value if isinstance(value, str) else json.dumps(value)
    raise ConfigError(option, f"is {value!r}, allowed are texts, numbers, true and false, mappings, and times")
