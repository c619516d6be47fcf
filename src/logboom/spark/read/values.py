"""Values that are JSON, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logboom.errors import InvalidColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SAMPLE = 1000


def json_values(
    records: DataFrame, schema: StructType | str | None = None, *, column: str = "value", sample: int = SAMPLE
) -> DataFrame:
    """The same records, with the fields of their JSON values in place of bytes.

    json_values(events, "device STRING, temperature DOUBLE").groupBy("value.device").avg("value.temperature")

    A schema with the fields that are needed, and no others, is the fastest; so are records read with the schema
    `value STRING`. Without one it is inferred from the first
    `sample` values. What is no JSON, or does not fit, becomes null.
    """
    from pyspark.sql.functions import col, from_json

    if schema is None:
        if records.isStreaming:
            raise InvalidColumn(column, "a stream has no sample to infer from: name the fields, or use json_schema()")
        schema = _infer(records, column, sample)
    return records.withColumn(column, from_json(col(column).cast("string"), schema))


def json_schema(spark: SparkSession, path: str | None = None, *, sample: int = SAMPLE, **options: Any) -> StructType:
    """What the values of a topic hold, by the first `sample` of them; the same options as the source."""
    reader = spark.read.format("logboom").options(**options).schema("value STRING")
    return _infer(reader.load(path), "value", sample)


def _infer(records: DataFrame, column: str, sample: int) -> StructType:
    from pyspark.sql.functions import col
    from pyspark.sql.types import StructType

    texts = records.select(col(column).cast("string")).limit(sample)
    session = records.sparkSession
    broken = session.conf.get("spark.sql.columnNameOfCorruptRecord")
    found = [field for field in session.read.json(texts).schema.fields if field.name != broken]
    if not found:
        raise InvalidColumn(column, f"none of the first {sample} is JSON with fields")
    return StructType(found)
