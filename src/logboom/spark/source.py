"""The data source `logboom`: a topic, or several, as a table and as a stream.

Spark makes it anew in every process that plans a read, and hands it around pickled: nothing is open here. Options are
looked at when a reader is made, because Spark also makes the source without any: it forgets the options of a table in
its catalogue and keeps the schema, so for such a table the options travel with the schema's first column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
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

from logboom.batch import Selection
from logboom.errors import ConfigError, Damage, InvalidColumn
from logboom.spark.option_table import is_catalogued
from logboom.spark.options import ReadOptions, names_place, options_to_keep, overlay
from logboom.spark.planning import Span, Split, cut_spans, find_spans, open_catalog
from logboom.spark.pushing import Pushed, push
from logboom.spark.reading import COLUMNS, Job, read_split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

    from logboom.client.catalog import Catalog
    from logboom.spark.write_options import WriteOptions

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
TEXTS: Final = frozenset(("key", "value"))
"""Bytes that may be read as STRING too: what a cast would do, without its cost."""
METADATA: Final = "logboom.options"


class LogboomSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "logboom"

    def schema(self) -> StructType:
        ReadOptions.parse(self.options)  # said now, a mistake is told where it was made
        fields = [StructField(name, TYPES[name]) for name in COLUMNS]
        if is_catalogued(self.options):
            kept = {METADATA: json.dumps(options_to_keep(self.options))}
            fields[0] = StructField(fields[0].name, fields[0].dataType, True, kept)
        return StructType(fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        options, columns = self._options(schema), _columns(schema)
        # Spark 4.3 keeps what a reader has planned with its filters for every other scan of the same DataFrame, which
        # then lacks the rows that those filters left out. So they are taken only from who asks for it.
        make = PushingReader if options.pushdown else LogReader
        return make(options, columns, _arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from logboom.spark.stream import LogStreamReader

        options = self._options(schema)
        return LogStreamReader(options, make_job(options, _columns(schema), _arrow_schema(schema), options.wanted))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from logboom.spark.layout import plan_layout
        from logboom.spark.sink import LogWriter

        options = self._write_options(schema, overwrite)
        return LogWriter(options, plan_layout(schema, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from logboom.spark.layout import plan_layout
        from logboom.spark.sink import LogStreamWriter

        options = self._write_options(schema, overwrite)
        if options.app is not None:
            raise ConfigError("txnAppId", "is for writes of tables: a stream is written once by its own id")
        return LogStreamWriter(options, plan_layout(schema, options))

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        from logboom.spark.write_options import WriteOptions, options_of_table, overlay

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


class LogReader(DataSourceReader):
    """Reads what the options say. Takes no filters: any session may use it."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], arrow: pa.Schema) -> None:
        self._options = options
        self._pushed = Pushed(options.wanted)
        self._columns = columns
        self._arrow = arrow

    def partitions(self) -> list[InputPartition]:
        catalog = open_catalog(self._options)
        try:
            return list(plan_splits(catalog, self._options, self._pushed))
        finally:
            catalog.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        job = make_job(self._options, self._columns, self._arrow, self._pushed.wanted)
        if isinstance(partition, Split):  # Spark makes one of its own where there are none
            yield from read_split(partition, job)


class PushingReader(LogReader):
    """Takes over the filters it can evaluate."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        self._pushed, rest = push(filters, self._options.wanted)
        return rest


def make_job(options: ReadOptions, columns: tuple[str, ...], arrow: pa.Schema, wanted: Selection) -> Job:
    return Job(
        columns, wanted, options.servers, options.access, options.fail_on_loss, options.skip_damage, schema=arrow
    )


def plan_splits(catalog: Catalog, options: ReadOptions, pushed: Pushed) -> list[Split]:
    """What a batch read covers, without what filters say is not wanted."""
    spans = [span for span in find_spans(catalog, options) if pushed.takes(span.topic.name, span.partition)]
    return cut_spans(catalog, options, [_narrow(catalog, span, pushed) for span in spans])


def _narrow(catalog: Catalog, span: Span, pushed: Pushed) -> Span:
    start, end = max(span.seqno_from, pushed.seqno_from), min(span.seqno_until, pushed.seqno_until)
    moment = pushed.wanted.time_from
    if start < end and moment is not None and moment > -(2**63):
        with suppress(Damage):  # whoever reads it will be told
            start = max(start, catalog.seqno_at(span.topic, span.partition, moment))
    return replace(span, seqno_from=start, seqno_until=max(start, end))


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
