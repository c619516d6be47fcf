"""What records are printed as: lines of values, lines of JSON, a format, an Arrow stream, a Parquet file.

A sink takes what a reader gives and writes it to a binary file. An Arrow or Parquet file has an end: `close` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Final, Literal, get_args

from logboom.batch.arrow import ORDER
from logboom.batch.ndjson import encode_record
from logboom.broker.wording import printable_lines
from logboom.cli.show.output_format import OutputFormat
from logboom.cli.show.shown_values import ShownValues
from logboom.cli.show.terminal import printable_json

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["values", "ndjson", "arrow", "parquet"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)
LOG: Final = ("topic", "partition")
BINARY: Final = ("arrow", "parquet")
"""Formats that are nothing for a terminal, and that take tables."""


class LineSink:
    """Values, or JSON objects, one a line, or what a format says; byte by byte as they are, but to a terminal as
    it can be shown.
    """

    def __init__(
        self,
        file: IO[bytes],
        ndjson: bool,
        numbers: bool,
        several: bool = False,
        layout: OutputFormat | None = None,
        shown: ShownValues | None = None,
    ) -> None:
        """`several` logs are read: what is said of a record says of which it is."""
        self._file = file
        self._layout = layout
        self._shown = None if shown is None or shown.is_idle else shown
        self._show = (_show_json if ndjson else _show_text) if file.isatty() else None
        self._ndjson = ndjson
        self._numbers = numbers
        log = LOG if several else ()
        self._wanted: tuple[str, ...] = (
            (*ORDER, *log) if ndjson else ("value", "seqno", *log) if numbers else ("value",)
        )
        if layout is not None:
            self._wanted = layout.columns
        self.columns: tuple[str, ...] = tuple(dict.fromkeys((*self._wanted, *(LOG if self._shown else ()))))

    def write(self, columns: Sequence[Sequence[Any]]) -> None:
        """The columns it asked for, in that order."""
        if self._shown is not None:
            columns = self._with_shown(self._shown, columns)
        if self._layout is not None:
            text = b"".join(self._layout.rows(columns))
            self._file.write(text if self._show is None else self._show(text))
            return
        if self._ndjson:
            lines = [encode_record(*row) for row in zip(*columns, strict=True)]
        else:
            lines = [value or b"" for value in columns[0]]
        if self._numbers:
            named = dict(zip(self._wanted, columns, strict=True))
            lines = [b"%d\t%b" % (seqno, line) for seqno, line in zip(named["seqno"], lines, strict=True)]
            if "topic" in named:
                logs = zip(named["topic"], named["partition"], lines, strict=True)
                lines = [b"%b/%d\t%b" % (topic.encode(), partition, line) for topic, partition, line in logs]
        if lines:
            text = b"\n".join(lines) + b"\n"
            self._file.write(text if self._show is None else self._show(text))

    def _with_shown(self, shown: ShownValues, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Those that are printed, of one log, with values as people read them."""
        named = dict(zip(self.columns, columns, strict=True))
        if "value" in named and named["topic"]:
            named["value"] = shown.take(named["value"], named["topic"][0])
        return [named[name] for name in self._wanted]

    def flush(self) -> bool:
        """Whether what was written can be read by now."""
        self._file.flush()
        return True

    def close(self) -> None:
        self._file.flush()


def _show_text(text: bytes) -> bytes:
    return printable_lines(text.decode(errors="backslashreplace")).encode(errors="backslashreplace")


def _show_json(text: bytes) -> bytes:
    return printable_json(text.decode()).encode()


class TableSink:
    """Tables with all columns of a record. Without any it still makes a file that can be read."""

    def __init__(self, file: IO[bytes], form: str, several: bool = False) -> None:
        import pyarrow as pa

        from logboom.batch.arrow import schema

        log = [pa.field("topic", pa.string()), pa.field("partition", pa.int32())] if several else []
        columns = pa.schema([*log, *schema()])

        self._file = file
        self._streams = form == "arrow"
        self._closed = False
        if self._streams:
            self._writer: Any = pa.ipc.new_stream(file, columns)
        else:
            import pyarrow.parquet as pq

            self._writer = pq.ParquetWriter(file, columns, compression="zstd")

    def write(self, table: pa.Table) -> None:
        if len(table):
            self._writer.write_table(table)

    def flush(self) -> bool:
        """Whether what was written can be read by now. A Parquet file can when it has its end."""
        self._file.flush()
        return self._closed or self._streams

    def close(self) -> None:
        self._writer.close()
        self._file.flush()
        self._closed = True
