"""A piece: what a stage has for one log, as much as a segment takes, in a file of its own that can become one.

Its batches follow each other without anything between them, and are known by their producer: the stage's id, and their
place in its stream. Their stamps count for nothing. So a piece whose batches are being stamped for the log when the
machine dies is still the piece it was, however many stamps are new, old or torn.

One that is found after a restart may be a segment of its log already, under another name, and one that others append
to: nothing is put into it any more, and what lies behind its batches is never cut off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from logboom.batch.batch import Batch
from logboom.batch.header import KIND_DATA, SEQUENCE_MODULUS, Buffer, Header, read_signed
from logboom.batch.validation import check_crc
from logboom.errors import BatchError, NotABatch
from logboom.storage.files.disk import Disk, File, ready_map
from logboom.storage.files.open_files import Space
from logboom.storage.staged.sheet import Sheet

SUFFIX: Final = ".piece"
_FILE_NAME: Final = re.compile(rf"([0-9a-f]{{32}})-(\d{{10}})-(\d{{20}}){re.escape(SUFFIX)}", re.ASCII)


class PieceName(NamedTuple):
    """What the name of its file says."""

    stage: str
    number: int
    """Of its target in the stage."""
    first: int
    """How many records of the stage for that target come before it."""

    def path(self, directory: str) -> str:
        return f"{directory}/{self.stage}-{self.number:010}-{self.first:020}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> PieceName | None:
        match = _FILE_NAME.fullmatch(name)
        return None if match is None else cls(match[1], int(match[2]), int(match[3]))


class StagePiece(Sheet):
    def __init__(
        self, disk: Disk, space: Space, directory: str, name: PieceName, producer_id: int, file: File | None = None
    ) -> None:
        path = name.path(directory)
        super().__init__(disk, space, name.stage, path, file or disk.open(path))
        self.number = name.number
        self.first = self.next = name.first
        """`next` is how many records of the stage for its target come before what is put next."""
        self.batch_count = 0
        self._producer_id = producer_id

    @classmethod
    def create(cls, disk: Disk, space: Space, directory: str, name: PieceName, producer_id: int) -> StagePiece:
        """An empty one. A file with its name is one of which a crash left nothing."""
        path = name.path(directory)
        if disk.exists(path):
            disk.unlink(path)
        return cls(disk, space, directory, name, producer_id, disk.create(path))

    @classmethod
    def load(
        cls, disk: Disk, space: Space, directory: str, name: PieceName, producer_id: int, until: int | None = None
    ) -> StagePiece:
        """As much as is sound, as the disk has it; `until` is where the next piece begins.

        What is that one's may have been appended here too, where this one has become the last segment of the log.
        """
        piece = cls(disk, space, directory, name, producer_id)
        file = piece.file()
        file.sync()
        file.drop_cache()
        data = ready_map(file, file.size())
        try:
            for position, header in piece._walk(data, len(data)):
                check_crc(header, data[position : position + header.size])
                if piece.next == until:
                    raise NotABatch("the next piece begins here")
                piece._count(header.size, header.record_count)
        except BatchError:
            piece.is_torn = True
        piece.synced_bytes = piece.size_bytes
        piece.let_go()
        return piece

    def add(self, batches: Sequence[tuple[Buffer, Buffer]], records: int) -> None:
        """Put so many records in it, in batches that are a header and a body. Raises as `put`."""
        self.put([buffer for batch in batches for buffer in batch])
        self.next += records
        self.batch_count += len(batches)

    def _count(self, size: int, records: int) -> None:
        self.size_bytes += size
        self.next += records
        self.batch_count += 1

    def verify(self, limit_bytes: int) -> None:
        """Read everything, and compare it with what was put. Raises BatchError or OSError."""
        batches, after, data = 0, self.first, self.data()
        for position, header in self._walk(data, self.size_bytes):
            check_crc(header, data[position : position + header.size])
            check_limit(header, limit_bytes)
            batches += 1
            after += header.record_count
        if (batches, after) != (self.batch_count, self.next):
            raise NotABatch(f"{os.path.basename(self.path)} is not what was staged")

    def batches(self) -> Iterator[Batch]:
        """Every batch in its order, as views of the file, but for its stamp. It has been verified."""
        data = self.data()
        for position, header in self._walk(data, self.size_bytes):
            yield Batch(header, data[position : position + header.size], True)

    def _walk(self, data: memoryview, end: int) -> Iterator[tuple[int, Header]]:
        position, seq = 0, self.first
        while position < end:
            header = read_signed(data, position)
            expected = KIND_DATA, self._producer_id, seq % SEQUENCE_MODULUS
            if (header.kind, header.producer_id, header.producer_seq) != expected or position + header.size > end:
                raise NotABatch(f"at byte {position} stands something else than batch {seq} of the stage")
            yield position, header
            position += header.size
            seq += header.record_count


def check_limit(header: Header, limit_bytes: int) -> None:
    size = max(header.size, header.body_size)
    if size > limit_bytes:
        raise NotABatch(f"a batch of {size:,} bytes, over {limit_bytes:,}")
