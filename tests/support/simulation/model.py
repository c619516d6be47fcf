"""What a log must hold, kept as a plain list; and the comparison of a real one with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from logboom.batch import Batch, Producer, build
from logboom.errors import SeqnoOutOfRange
from logboom.storage import Appended, Log, LogConfig, OpenFiles, StateFile
from logboom.storage.data.state import StateReader
from logboom.storage.view import LogView
from support.disks.simulated import SimulatedDisk

DIRECTORY = "/data/topics/t~00000000000000000000000000000001/0"
NOBODY = Producer()
TOPIC_ID = bytes(15) + b"\1"
SMALL = LogConfig(segment_bytes=4096, index_bytes=512, batch_bytes_max=65536)


def open_log(disk: SimulatedDisk, config: LogConfig = SMALL, files_max: int = 4) -> Log:
    """A log on a simulated disk, with its state file, as a data directory would open it."""
    disk.make_directory("/data")
    slot = StateFile.open(disk, "/data/state").claim(TOPIC_ID, 0)
    return Log.open(OpenFiles(disk, files_max, reserve_bytes=0), DIRECTORY, config, slot)


def open_view(disk: SimulatedDisk) -> LogView:
    """The same log as another process sees it."""
    states = StateReader(disk, "/data/state")
    return LogView.open(OpenFiles(disk, 4, reserve_bytes=0), DIRECTORY, states, TOPIC_ID, 0)


@dataclass
class Entry:
    """One batch: its numbers and its records, as (value, timestamp) pairs; none for a control batch."""

    index: int
    base_seqno: int
    term: int
    records: list[tuple[bytes | None, int]]
    floor: int | None = None
    producer: Producer = NOBODY

    @property
    def next_seqno(self) -> int:
        return self.base_seqno + len(self.records)


@dataclass
class Model:
    entries: list[Entry] = field(default_factory=list)
    synced_index: int = 0
    committed_index: int = 0
    dropped_below: int = 0
    """Records below this seqno are gone with their segments."""

    @property
    def next_seqno(self) -> int:
        return self.entries[-1].next_seqno if self.entries else 0

    @property
    def last_index(self) -> int:
        return self.entries[-1].index if self.entries else 0

    @property
    def floor(self) -> int:
        committed = (entry for entry in self.entries if entry.index <= self.committed_index)
        return max((entry.floor for entry in committed if entry.floor is not None), default=0)

    def committed_records(self) -> list[tuple[int, bytes | None, int]]:
        return [
            (entry.base_seqno + offset, value, timestamp)
            for entry in self.entries
            if entry.index <= self.committed_index
            for offset, (value, timestamp) in enumerate(entry.records)
        ]

    def appended(self, answer: Appended, batch: Batch, term: int) -> None:
        assert answer.base_seqno == self.next_seqno
        assert answer.index == self.last_index + 1
        times = [answer.append_time if t == -(2**63) else t for t in raw_timestamps(batch)]
        records = list(zip(batch.values(), times, strict=True))
        header = batch.header
        producer = Producer(header.producer_id, header.producer_epoch, header.producer_seq)
        self.entries.append(Entry(answer.index, answer.base_seqno, term, records, None, producer))

    def trimmed(self, answer: Appended, seqno: int, term: int) -> None:
        self.entries.append(Entry(answer.index, self.next_seqno, term, [], floor=seqno))

    def cut_to(self, index: int) -> None:
        self.entries = [entry for entry in self.entries if entry.index <= index]
        self.synced_index = min(self.synced_index, index)

    def check(self, log: Log) -> None:
        """Everything a reader can ask gives what the list says."""
        assert log.next == self.next_seqno
        assert log.last_index == self.last_index
        records = self.committed_records()
        committed = records[-1][0] + 1 if records else 0
        assert log.committed == max(committed, log.committed if not records else 0)
        first = log.first
        assert first >= self.floor
        visible = [record for record in records if record[0] >= first]
        got = [
            (record.seqno, record.value, record.timestamp)
            for batch in (log.batches() if first < log.committed else [])
            for record in batch.records()
            if record.seqno is not None and record.seqno >= first
        ]
        assert got == visible
        self._check_lookups(log, visible)

    def _check_lookups(self, log: Log, visible: list[tuple[int, bytes | None, int]]) -> None:
        for seqno, value, _ in visible[:: max(1, len(visible) // 7)]:
            run = log.read(seqno, max_bytes=1)
            assert run is not None
            (batch,) = [batch for batch in run.batches() if batch.header.record_count]
            assert batch.values()[seqno - batch.header.base_seqno] == value
            assert run.base_seqno <= seqno < run.next_seqno
        for timestamp in {t for _, _, t in visible[:: max(1, len(visible) // 5)]}:
            wanted = next((seqno for seqno, _, t in visible if t >= timestamp), log.committed)
            assert log.seqno_at(timestamp) == wanted
        newest = max((t for _, _, t in visible), default=0)
        assert log.seqno_at(newest + 1) == log.committed
        for outside in (log.first - 1, log.committed + 1):
            try:
                log.read(outside)
            except SeqnoOutOfRange:
                continue
            raise AssertionError(f"seqno {outside} was served")


def raw_timestamps(batch: Batch) -> list[int]:
    """As written: the i64 minimum where a record has none (append_time is 0 before the log stamps it)."""
    header = batch.header
    if header.min_timestamp == header.max_timestamp:
        return [header.min_timestamp] * header.record_count
    return [header.min_timestamp if header.min_timestamp == -(2**63) and t == 0 else t for t in batch.timestamps()]


def make_batch(number: int, count: int, timestamp: int | None, producer: Producer = NOBODY, size: int = 20) -> Batch:
    """A batch whose values name it."""
    values = [b"%d/%d:" % (number, offset) + b"x" * size for offset in range(count)]
    times = None if timestamp is None else [timestamp + (offset * 7) % 5 for offset in range(count)]
    return build(values, timestamps=times, producer=producer)
