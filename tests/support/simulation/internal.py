"""The log behind a node's internal state, on any disk, without a broker: each append is synced at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from logboom.batch import Batch
from logboom.broker.state import cursors
from logboom.broker.state.cursors import Cursors
from logboom.broker.state.internal_log import SNAPSHOT_BYTES, InternalLog, StateLog
from logboom.errors import OutcomeUnknown
from logboom.storage import DataDirectory, Log
from logboom.storage.append import Appended
from logboom.storage.files.disk import Disk
from support.disks.simulated import PowerLoss

ROOT = "/data"
PATH = f"{ROOT}/internal/{cursors.FILE}"


@dataclass
class Backing:
    """A data directory with the internal topic; what was asked of its log is remembered."""

    data: DataDirectory
    topic_id: str
    log: Log
    appended: list[Batch] = field(default_factory=list)
    trimmed: list[int] = field(default_factory=list)

    @property
    def internal(self) -> InternalLog:
        log = self.log
        return InternalLog(self.topic_id, log.first, log.committed, log.batches, self._append, self._trim)

    async def _append(self, batch: Batch) -> Appended:
        with _dying():
            self.appended.append(batch)
            appended = self.log.append_one(batch, 0)
            self.log.commit(self.log.sync())
            return appended

    async def _trim(self, seqno: int) -> None:
        with _dying():
            self.trimmed.append(seqno)
            self.log.trim(seqno, 0)
            self.log.commit(self.log.sync())
            self.log.roll()
            self.log.drop(seqno)


@contextmanager
def _dying() -> Iterator[None]:
    """A process whose machine is gone hears nothing more."""
    try:
        yield
    except PowerLoss as loss:
        raise OutcomeUnknown("the power went") from loss


def open_backing(disk: Disk) -> Backing:
    data = DataDirectory.open(ROOT, disk)
    if all(topic.name != cursors.TOPIC for topic in data.topics()):
        data.create_topic(cursors.TOPIC)
    return Backing(data, data.topic(cursors.TOPIC).id, data.open_partition(cursors.TOPIC, 0))


def open_state(
    disk: Disk, limit: int = 1_000, snapshot_bytes: int = SNAPSHOT_BYTES, path: str = PATH
) -> tuple[Backing, StateLog]:
    backing = open_backing(disk)
    return backing, StateLog.open(disk, path, backing.internal, (cursors.LIMIT, limit), snapshot_bytes)


def open_cursors(disk: Disk, limit: int = 1_000, snapshot_bytes: int = SNAPSHOT_BYTES) -> tuple[Backing, Cursors]:
    backing, state = open_state(disk, limit, snapshot_bytes)
    return backing, Cursors(state)
