"""A topic, or all topics that fit a pattern, as a relation: what speaks Arrow's C stream can scan it again and again, a
table at a time.

Nothing is read before the first row is asked for, and each scan reads the logs anew, from the first record to where
they end then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from logboom.batch.arrow import ORDER, schema

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.client.link.profile import Servers


class TopicRelation:
    def __init__(self, topic: str, partitions: int | None, servers: Servers, gaps: Literal["raise", "skip"]) -> None:
        """Without `partitions` the topic is a pattern."""
        self.topic = topic
        self._partitions = partitions
        self._servers = servers
        self._gaps: Literal["raise", "skip"] = gaps
        self.error: Exception | None = None
        """Why the last scan broke off."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(columns(), self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        from logboom import Reader

        try:
            if self._partitions is None:
                with Reader(self.topic, self._servers, gaps=self._gaps) as reader:
                    for table in reader.tables(columns().names):
                        yield from table.cast(columns()).to_batches()
            for partition in range(self._partitions or 0):
                with Reader(self.topic, self._servers, partition=partition, gaps=self._gaps) as reader:
                    for table in reader.tables():
                        yield from self._named(table, partition)
        except Exception as error:
            self.error = error
            raise

    def _named(self, table: Any, partition: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in table.to_batches():
            names = pa.repeat(pa.scalar(self.topic), len(batch))
            numbers = pa.repeat(pa.scalar(partition, pa.int32()), len(batch))
            yield pa.RecordBatch.from_arrays([names, numbers, *batch.columns], schema=columns())


@cache
def columns() -> pa.Schema:
    """topic, partition, and the columns of a record."""
    import pyarrow as pa

    return pa.schema([pa.field("topic", pa.string()), pa.field("partition", pa.int32()), *schema(ORDER)])
