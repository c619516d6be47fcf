"""A topic, or several, as a table: what a batch read covers, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from logboom.batch import Selection
from logboom.errors import Damage
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import RecordSpan, Split, cut_spans, find_spans, open_catalog
from logboom.spark.read.pushdown import Pushed, push
from logboom.spark.read.split_read import ScanSpec, read_split
from logboom.spark.runtime.tidiness import begin_task
from logboom.spark.runtime.worker_parcel import WorkerParcel

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.client.catalog import LogCatalog


class TableReader(WorkerParcel, DataSourceReader):
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
        begin_task()
        job = make_job(self._options, self._columns, self._arrow, self._pushed.wanted)
        if isinstance(partition, Split):  # Spark makes one of its own where there are none
            yield from read_split(partition, job)


class PushingReader(TableReader):
    """Takes over the filters it can evaluate."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        self._pushed, rest = push(filters, self._options.wanted)
        return rest


def make_job(options: ReadOptions, columns: tuple[str, ...], arrow: pa.Schema, wanted: Selection) -> ScanSpec:
    return ScanSpec(
        columns, wanted, options.servers, options.access, options.fail_on_loss, options.skip_damage, schema=arrow
    )


def plan_splits(catalog: LogCatalog, options: ReadOptions, pushed: Pushed) -> list[Split]:
    """What a batch read covers, without what filters say is not wanted."""
    spans = [span for span in find_spans(catalog, options) if pushed.takes(span.topic.name, span.partition)]
    return cut_spans(catalog, options, [_narrow(catalog, span, pushed) for span in spans])


def _narrow(catalog: LogCatalog, span: RecordSpan, pushed: Pushed) -> RecordSpan:
    start, end = max(span.seqno_from, pushed.seqno_from), min(span.seqno_until, pushed.seqno_until)
    moment = pushed.wanted.time_from
    if start < end and moment is not None and moment > -(2**63):
        with suppress(Damage):  # whoever reads it will be told
            start = max(start, catalog.seqno_at(span.topic, span.partition, moment))
    return replace(span, seqno_from=start, seqno_until=max(start, end))
