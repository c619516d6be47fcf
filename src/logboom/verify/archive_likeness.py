"""Is an archived file what was published, and what is the log's, where the log still has it?

Its bytes have the size and checksum that the manifest says. Its rows are of its topic and partition, by seqno, between
those that its name says. What a log gives of the same seqnos is equal; what a log does not give any more, because it
was dropped or is damaged, is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import crc32c
import msgspec

from logboom.batch import vector
from logboom.errors import ResultsUnreadable
from logboom.results.archive import ArchivedFile, schema
from logboom.results.places import ResultPlace, describe_change
from logboom.verify.likeness import first_difference
from logboom.verify.plan import VerifyProblem

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES: Final = 4 << 20
_ROWS: Final = 32_768


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """An archived file, the log it was made of, and which records of it that still has."""

    home: str
    """The directory of the archive."""
    file: ArchivedFile
    directory: str
    topic: str
    topic_id: str
    seqno_from: int
    seqno_until: int

    def problem(self, reason: str, seqno: int | None = None) -> VerifyProblem:
        return VerifyProblem(
            kind="archive",
            directory=self.home,
            topic=self.topic,
            partition=self.file.partition,
            file=f"{self.home}/{self.file.path}",
            seqno=self.file.seqno_from if seqno is None else seqno,
            reason=reason,
        )


def check_file(shelved: Shelved) -> VerifyProblem | None:
    """Whether its bytes are those that were published."""
    size = checksum = 0
    try:
        with ResultPlace(shelved.home).open(shelved.file.path) as stream:
            while piece := stream.read(_PIECE_BYTES):
                checksum = crc32c.crc32c(piece, checksum)
                size += len(piece)
    except (ResultsUnreadable, OSError) as error:
        return shelved.problem(str(error))
    if (size, checksum) != (shelved.file.size, shelved.file.crc):
        return shelved.problem(f"it {describe_change(size, shelved.file.size)}")
    return None


def compare_file(shelved: Shelved, log: Iterable[pa.Table]) -> VerifyProblem | None:
    """The first thing that is wrong with its rows; `log` gives records without a gap in each table."""
    rows = _Rows(shelved)
    try:
        for table in log:
            problem = rows.compare(table)
            if problem is not None:
                return problem
        return rows.finish()
    except (OSError, ValueError, vector.pa.ArrowException) as error:
        return shelved.problem(f"it cannot be read: {error}")


class _Rows:
    """Of a file, as they are asked for."""

    def __init__(self, shelved: Shelved) -> None:
        self._shelved = shelved
        self._wrong: VerifyProblem | None = None
        self._held = schema().empty_table()
        self._last = shelved.file.seqno_from - 1
        self._more = self._read()

    def compare(self, table: pa.Table) -> VerifyProblem | None:
        start, end = table.column("seqno")[0].as_py(), table.column("seqno")[-1].as_py() + 1
        while self._last < end - 1 and (read := next(self._more, None)) is not None:
            self._held = vector.pa.concat_tables([self._held, read])
        if self._wrong is not None:
            return self._wrong
        seqnos = self._held.column("seqno").to_numpy()
        low, high = (int(place) for place in vector.np.searchsorted(seqnos, (start, end)))
        ours, self._held = self._held.slice(low, high - low), self._held.slice(high)
        if len(ours) != len(table):
            missing = set(range(start, end)).difference(ours.column("seqno").to_pylist())
            return self._shelved.problem("the log has this record, and the file has not", min(missing))
        found = first_difference(table, ours.select(table.column_names))
        return None if found is None else self._shelved.problem(f"{found[1]} as in the log", found[0])

    def finish(self) -> VerifyProblem | None:
        """What nobody has asked for."""
        for _ in self._more:
            pass
        return self._wrong

    def _read(self) -> Iterator[pa.Table]:
        from pyarrow.parquet import ParquetFile

        shelved = self._shelved
        with ResultPlace(shelved.home).open(shelved.file.path) as stream:
            file = ParquetFile(stream)
            if file.schema_arrow.remove_metadata() != schema():
                self._wrong = shelved.problem("its columns are not those of an archive")
                return
            for batch in file.iter_batches(_ROWS):
                table = vector.pa.Table.from_batches([batch.cast(schema())])
                self._wrong = self._wrong or self._judge(table)
                if self._wrong is not None:
                    return
                yield table

    def _judge(self, table: pa.Table) -> VerifyProblem | None:
        shelved, np = self._shelved, vector.np
        if not len(table):
            return None
        seqnos = np.concatenate(([self._last], table.column("seqno").to_numpy()))
        back = np.flatnonzero(seqnos[1:] <= seqnos[:-1])
        if len(back):
            row = int(back[0])
            return shelved.problem(f"seqno {seqnos[row + 1]} stands behind {seqnos[row]}", int(seqnos[row + 1]))
        self._last = int(seqnos[-1])
        if self._last >= shelved.file.seqno_until:
            return shelved.problem(f"seqno {self._last} is not one of its segment", self._last)
        for name, value in (("topic", shelved.topic), ("partition", shelved.file.partition)):
            found = table.column(name).unique().to_pylist()
            if found != [value]:
                return shelved.problem(f"{name} is {found[0]!r}, not {value!r}", int(seqnos[1]))
        return None
