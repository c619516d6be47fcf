"""As `record_pump`, of several logs: each has an end of its own, and a limit is for all of them together."""

from __future__ import annotations

from typing import Any

from logboom.batch.arrow import PARTITION, TOPIC
from logboom.cli.records.record_pump import RecordPump
from logboom.cli.show.sink import LineSink, TableSink

LogKey = tuple[str, int]


class TopicsPump(RecordPump):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._cut: dict[LogKey, int] = {}
        """Logs of which no more is wanted: from this seqno on."""
        self._is_moved = False

    def _copy_lines(self, sink: LineSink) -> None:
        names = tuple(dict.fromkeys((*sink.columns, *self._bounds.columns, TOPIC, PARTITION)))
        at, timed = names.index("seqno"), "timestamp" in self._bounds.columns
        for lists in self._rounds(lambda timeout_s: self._reader.lists(names, self._follow, timeout_s)):
            log = lists[names.index(TOPIC)][0], lists[names.index(PARTITION)][0]
            if log in self._cut:
                continue
            count = self._bounds.keep(lists[at], lists[names.index("timestamp")] if timed else ())
            sink.write([column[:count] for column in lists[: len(sink.columns)]])
            self._note_log(log, count, lists[at][count] if count < len(lists[at]) else None)

    def _copy_tables(self, sink: TableSink) -> None:
        for table in self._rounds(lambda timeout_s: self._reader.tables(None, self._follow, timeout_s)):
            log = table.column(TOPIC)[0].as_py(), table.column(PARTITION)[0].as_py()
            if log in self._cut:
                continue
            count = self._bounds.keep_table(table)
            sink.write(table.slice(0, count))
            self._note_log(log, count, table.column("seqno")[count].as_py() if count < len(table) else None)

    def _note_log(self, log: LogKey, count: int, unwanted: int | None) -> None:
        """So many records of a log were written; those from `unwanted` on came with them, and were not."""
        self._is_moved = True
        if unwanted is not None:
            self._cut[log] = unwanted
            left = {(each.topic, each.partition) for each in self._reader.logs} - self._cut.keys()
            self._bounds.reached = self._bounds.is_full or not left
        if self._advance is not None:
            self._advance(count)

    def _commit(self) -> None:
        self._rest()
        if self._reader.cursor is None or not self._is_moved or not self._sink.flush():
            return
        for (topic, partition), seqno in self._cut.items():
            self._reader.seek(seqno, topic, partition)
        self._put_cursor()
        self._is_moved = False
