"""What a read gives: consecutive whole batches as one range of one file.

The range can be sent as it is, mapped or read; `batches` parses and verifies it on the way to a local reader. The first
batch may begin before the seqno asked for: the reader skips within it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from logboom.batch.batch import Batch
from logboom.errors import BatchError, Damage
from logboom.storage.files.mapped import populate
from logboom.storage.index import BatchPlace


class RunSource(Protocol):
    """What a run is a range of: a file, or what stands for one."""

    @property
    def path(self) -> str: ...
    def read(self, size: int, position: int) -> bytes: ...
    def map(self, end: int) -> memoryview: ...


class Run(NamedTuple):
    file: RunSource
    position: int
    size: int
    base_seqno: int
    next_seqno: int
    first_index: int
    next_index: int
    mappable: bool
    """Whether these bytes will never be cut, so that they may be mapped."""

    @property
    def end(self) -> BatchPlace:
        return BatchPlace(self.position + self.size, self.next_seqno, self.next_index)

    def view(self, ready: bool = True) -> memoryview:
        """The bytes: shared with the map where there may be one, else read now. What the device cannot read is damage.

        Where they need not be `ready`, a map may not be in memory: whoever touches it waits for the disk, or dies where
        that has nothing to give.
        """
        data = self._mapped() if self.mappable else None
        try:
            if data is None or (ready and not populate(data)):
                data = memoryview(self.file.read(self.size, self.position))
        except OSError as error:
            raise self._damage(f"it cannot be read: {error}") from error
        if len(data) != self.size:
            raise self._damage("the file is too short")
        return data

    def _damage(self, reason: str) -> Damage:
        return Damage(self.file.path, self.position, self.base_seqno, self.next_seqno, reason)

    def _mapped(self) -> memoryview | None:
        """None where there is no room for a map: then the bytes are read."""
        try:
            return self.file.map(self.position + self.size)[self.position :]
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            return None

    def batches(self) -> Iterator[Batch]:
        """Every batch, control batches too, each one verified. Raises Damage at the first that is not sound."""
        data, offset, seqno, index = self.view(), 0, self.base_seqno, self.first_index
        while offset < self.size:
            until = None
            try:
                batch = Batch.parse(data[offset:])
                header = batch.header
                until = header.next_seqno
                if header.base_seqno != seqno or header.index != index:
                    until = None
                    raise BatchError(f"batch {header.index} stands where {index} must be")
                batch.verify()
            except BatchError as error:
                raise Damage(self.file.path, self.position + offset, seqno, until, str(error)) from None
            yield batch
            offset += header.size
            seqno, index = header.next_seqno, header.index + 1
