"""The data source `logboom`: a topic, or several, as a table and as a stream.

Spark makes it anew in every process that plans a read or ends a write, and hands it around pickled: nothing is open
here, and what only reads, or only writes, is imported when it does. Options are looked at when a reader is made: Spark
also makes the source without any. It forgets the options of a table in its catalog and keeps the schema, so for such
a table the options travel with the schema's first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logboom.errors import ConfigError, InvalidColumn
from logboom.spark.option_table import is_in_catalog
from logboom.spark.read.options import ReadOptions, names_place, options_to_keep, overlay
from logboom.spark.runtime.tidiness import leave_quietly
from logboom.spark.runtime.worker_parcel import WorkerParcel

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from logboom.spark.write.options import WriteOptions

TYPES: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "seqno": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "channel": StringType(),
    "tags": ArrayType(StringType()),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
COLUMNS: Final = tuple(TYPES)
TEXTS: Final = frozenset(("key", "value"))
"""Bytes that may be read as STRING too: what a cast would do, without its cost. The option `text` makes it the schema;
a table of SQL takes strings for them then."""
METADATA: Final = "logboom.options"

leave_quietly()  # processes that only plan begin no task


class LogboomSource(WorkerParcel, DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "logboom"

    def schema(self) -> StructType:
        options = ReadOptions.parse(self.options)  # said now, a mistake is told where it was made
        types = {**TYPES, **dict.fromkeys(TEXTS, StringType())} if options.text else TYPES
        fields = [StructField(name, types[name]) for name in COLUMNS]
        if is_in_catalog(self.options):
            kept = {METADATA: json.dumps(options_to_keep(self.options))}
            fields[0] = StructField(fields[0].name, fields[0].dataType, True, kept)
        return StructType(fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        from logboom.spark.read.table import PushingReader, TableReader

        options, columns = self._options(schema), _columns(schema)
        # Spark 4.3 keeps what a reader has planned with its filters for every other scan of the same DataFrame, which
        # then lacks the rows that those filters left out. So they are taken only from who asks for it.
        make = PushingReader if options.pushdown else TableReader
        return make(options, columns, _arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from logboom.spark.read.stream import LogStreamReader
        from logboom.spark.read.table import make_job

        options = self._options(schema)
        return LogStreamReader(options, make_job(options, _columns(schema), _arrow_schema(schema), options.wanted))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from logboom.spark.write.layout import plan_layout
        from logboom.spark.write.sink import TableWriter

        options = self._write_options(schema, overwrite)
        return TableWriter(options, plan_layout(schema, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from logboom.spark.write.layout import plan_layout
        from logboom.spark.write.sink import StreamWriter

        options = self._write_options(schema, overwrite)
        if options.app is not None:
            raise ConfigError("txnAppId", "is for writes of tables: a stream is written once by its own id")
        return StreamWriter(options, plan_layout(schema, options))

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        from logboom.spark.write.options import WriteOptions, options_of_table, overlay

        if overwrite:
            raise ConfigError(
                "mode",
                "overwrite is refused, for a log only grows: use append, in a stream outputMode('append'); "
                "to begin anew, delete the topic or write to another one",
            )
        kept = _kept_options(schema)
        if names_place(self.options) or kept is None:
            return WriteOptions.parse(self.options)
        return WriteOptions.parse(overlay(options_of_table(kept), self.options))

    def _options(self, schema: StructType) -> ReadOptions:
        kept = _kept_options(schema)
        if names_place(self.options):
            kept = None  # the schema is that of a table, and what is read is something else
        if kept is None and not self.options:
            raise ConfigError(
                "path",
                "Spark has kept no options of this table: make it without a list of columns, "
                "CREATE TABLE … USING logboom OPTIONS (path '…', topic '…')",
            )
        return ReadOptions.parse(self.options if kept is None else overlay(kept, self.options))


def _kept_options(schema: StructType) -> dict[str, str] | None:
    """Those of a table, where this is its schema."""
    texts = (field.metadata[METADATA] for field in schema.fields if METADATA in (field.metadata or {}))
    text = next(texts, None)
    return None if text is None else dict(json.loads(text))


def _columns(schema: StructType) -> tuple[str, ...]:
    """The names of a schema that is ours, or a part of it in any order."""
    for column in schema.fields:
        if column.name not in TYPES:
            raise InvalidColumn(column.name, f"unknown; a record has {', '.join(COLUMNS)}")
        wanted, found = TYPES[column.name].simpleString(), column.dataType.simpleString()
        if found != wanted and not (column.name in TEXTS and found == "string"):
            raise InvalidColumn(column.name, f"is {wanted} and not {found}: read it so, and cast it in the query")
    return tuple(schema.fieldNames())


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
