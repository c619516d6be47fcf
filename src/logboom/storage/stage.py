"""A stage: batches for any number of logs that are in none of them yet, in one file.

The file is a row of batches as logs have them. The first, a control batch, says whose it is; another one says where
what follows it under a number is to go; data batches carry that number as their term, their place in the stage as
their index, and as their seqno how many records of the stage came before them in that log. So every byte is under a
checksum, and whoever reads the file finds out everything by it.

A stage is not synced as it grows: it counts for nothing until it is published, and `sync` comes before that. After a
crash `load` passes over what is not whole, which goes with the next write; what was staged and is missing then, whoever
publishes notices by the count. A short or failed write is cut off, durably, for what was refused must not come back;
where that fails, or a sync does, the stage has failed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from logboom.batch.batch import Batch
from logboom.batch.builder import build_control
from logboom.batch.header import (
    HEADER_SIZE,
    KIND_CONTROL,
    KIND_DATA,
    SEQUENCE_MODULUS,
    STAGED_IDS,
    SYNCED_UNKNOWN,
    Buffer,
    Header,
    read_header,
    stamp,
)
from logboom.batch.validation import check_crc
from logboom.errors import (
    AppendRefused,
    BatchError,
    LowSpace,
    MalformedBatch,
    NotABatch,
    SequenceGap,
    StageFailed,
    WriteFailed,
)
from logboom.storage.append import Answer, Appended
from logboom.storage.disk import BUFFERS_MAX, Disk, File
from logboom.storage.envelope import UNREADABLE
from logboom.storage.files import Space

SUFFIX: Final = ".stage"
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_FILE_NAME: Final = re.compile(rf"([0-9a-f]{{32}}){re.escape(SUFFIX)}")


class Opened(msgspec.Struct, frozen=True, tag="stage"):
    """The first batch of the file."""

    id: str
    producer_id: int
    at: int
    note: str = ""


class Target(msgspec.Struct, frozen=True, tag="target"):
    """A log that records of the stage are for."""

    topic: str
    topic_id: str
    partition: int


_decode = msgspec.msgpack.Decoder(Opened | Target).decode


class StagedBatch(NamedTuple):
    number: int
    """Of its target."""
    batch: Batch


class StageFile:
    """Not for two threads at once, but for `sync`."""

    def __init__(self, disk: Disk, space: Space, path: str, file: File, opened: Opened) -> None:
        self._disk = disk
        self._space = space
        self._file: File | None = file
        self.path = path
        self.opened = opened
        self.targets: dict[Target, int] = {}
        """With their numbers."""
        self.counts: list[int] = []
        """Records for each target."""
        self.size_bytes = 0
        self.synced_bytes = 0
        self.failure: StageFailed | None = None
        self._index = 1
        self._is_torn = False
        """Whether something that is none of its batches lies behind them."""

    @classmethod
    def create(cls, disk: Disk, space: Space, directory: str, opened: Opened) -> StageFile:
        path = f"{directory}/{opened.id}{SUFFIX}"
        stage = cls(disk, space, path, disk.create(path), opened)
        stage._put([*stage._control(opened, opened.at)])
        return stage

    @classmethod
    def load(cls, disk: Disk, space: Space, path: str) -> StageFile:
        """What a file holds after a restart: verified, as the disk has it. Raises BatchError where it is no stage."""
        file = disk.open(path)
        file.sync()
        file.drop_cache()
        data = file.map(file.size())
        batch = Batch.parse(data)
        stage = cls(disk, space, path, file, _read_opened(batch, path))
        stage.size_bytes = batch.header.size
        stage._index = 2
        try:
            for position, header in stage._walk(data, batch.header.size, len(data)):
                check_crc(header, data[position : position + header.size])
                stage._follow(header, data[position : position + header.size])
        except (BatchError, *UNREADABLE):
            stage._is_torn = True
        stage.synced_bytes = stage.size_bytes
        return stage

    @property
    def records(self) -> int:
        return sum(self.counts)

    @property
    def is_synced(self) -> bool:
        return self.synced_bytes == self.size_bytes

    def write(self, entries: Sequence[tuple[Target, Batch]], now: int, limit_bytes: int) -> list[Answer]:
        """Stage batches, with as few writes as can be; one answer for each, in order. Once one is refused, all are."""
        answers: list[Answer] = []
        refusal: AppendRefused | BatchError | None = None
        start = 0
        while start < len(entries):
            some = entries[start : start + BUFFERS_MAX // 4]
            answers += self._write(some, now, limit_bytes) if refusal is None else [refusal] * len(some)
            refused = (answer for answer in answers[start:] if isinstance(answer, AppendRefused | BatchError))
            refusal = refusal or next(refused, None)
            start += len(some)
        return answers

    def _write(self, entries: Sequence[tuple[Target, Batch]], now: int, limit_bytes: int) -> list[Answer]:
        targets, counts, index = dict(self.targets), list(self.counts), self._index
        buffers: list[Buffer] = []
        answers: list[Answer] = []
        refusal: AppendRefused | BatchError | None = None
        for target, batch in entries:
            try:
                if refusal is not None:
                    raise refusal
                answers.append(self._place(target, batch, now, limit_bytes, buffers))
            except (AppendRefused, BatchError) as error:
                refusal = error
                answers.append(error)
        try:
            self._put(buffers)
        except AppendRefused as error:
            self.targets, self.counts, self._index = targets, counts, index
            return [
                answer if isinstance(answer, Appended) and self._holds(target, answer) else error
                for (target, _), answer in zip(entries, answers, strict=True)
            ]
        return answers

    def _holds(self, target: Target, answer: Appended) -> bool:
        """Whether it is the answer to a repeat of what was in the file before."""
        number = self.targets.get(target)
        return number is not None and answer.next_seqno <= self.counts[number]

    def _place(self, target: Target, batch: Batch, now: int, limit_bytes: int, buffers: list[Buffer]) -> Appended:
        batch.verify(limit_bytes)
        header = batch.header
        if header.kind != KIND_DATA:
            raise MalformedBatch("only the server writes control batches")
        if (header.producer_id, header.producer_epoch) != (self.opened.producer_id, 0):
            raise MalformedBatch(f"a batch of producer {header.producer_id} is not one of this stage")
        number = self.targets.get(target)
        if number is None:
            if header.producer_seq:
                raise SequenceGap(header.producer_id, header.producer_seq, 0)
            buffers += self._control(target, now)
            number = self._add(target)
        seqno, count = self.counts[number], header.record_count
        ahead = (header.producer_seq - seqno) % SEQUENCE_MODULUS
        if ahead:
            if SEQUENCE_MODULUS - ahead < count or ahead < SEQUENCE_MODULUS // 2:
                raise SequenceGap(header.producer_id, header.producer_seq, seqno % SEQUENCE_MODULUS)
            return Appended(seqno + ahead - SEQUENCE_MODULUS, count, self._index, now, True)
        buffers += (stamp(batch.data, seqno, self._index, now, number, SYNCED_UNKNOWN), batch.data[HEADER_SIZE:])
        self._index += 1
        self.counts[number] += count
        return Appended(seqno, count, self._index - 1, now)

    def _add(self, target: Target) -> int:
        number = self.targets[target] = len(self.targets)
        self.counts.append(0)
        return number

    def _control(self, body: Opened | Target, now: int) -> tuple[Buffer, Buffer]:
        data = build_control(body).data
        front = stamp(data, 0, self._index, now, len(self.targets), SYNCED_UNKNOWN)
        self._index += 1
        return front, data[HEADER_SIZE:]

    def _put(self, buffers: list[Buffer]) -> None:
        if self.failure is not None:
            raise WriteFailed(str(self.failure))
        size = sum(map(len, buffers))
        if not size:
            return
        self._space.take(size)
        try:
            file = self._opened_file()
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error.strerror}") from None
        if self._is_torn:
            self._cut_back("what a crash left could not be cut off")
        try:
            written = file.write(buffers, self.size_bytes)
            if written != size:
                full = self._disk.free_bytes() < size - written
                raise OSError(errno.ENOSPC if full else errno.EIO, f"only {written} of {size} bytes were written")
        except OSError as error:
            self._cut_back(f"a write failed ({error}) and could not be cut off")
            if error.errno in _NO_SPACE:
                raise LowSpace(0, self._space.reserve_bytes) from None
            raise WriteFailed(f"{self.path}: {error.strerror}") from None
        self.size_bytes += size

    def _cut_back(self, failing: str) -> None:
        """The file ends with its last batch again, durably. Raises WriteFailed, and the stage has failed."""
        try:
            self._opened_file().truncate(self.size_bytes)
            self._opened_file().sync()
        except OSError as error:
            self.failure = StageFailed(self.opened.id, f"{failing}: {error}")
            raise WriteFailed(str(self.failure)) from error
        self._is_torn = False

    def _opened_file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def sync(self) -> None:
        """On any thread: all that was written before is durable, but for the name. Raises StageFailed."""
        size = self.size_bytes
        if self.failure is not None:
            raise self.failure
        if size == self.synced_bytes:
            return
        try:
            self._opened_file().sync()
        except OSError as error:
            self.failure = StageFailed(self.opened.id, f"a sync failed: {error}")
            raise self.failure from error
        self.synced_bytes = max(self.synced_bytes, size)

    def let_go(self) -> None:
        """Close the file; it is opened again when it is needed. One that is not synced stays: it may have news."""
        if self.is_synced:
            self._file = None

    def verify(self, limit_bytes: int) -> None:
        """Read everything, and compare it with what was staged. Raises StageFailed."""
        try:
            batches = targets = 0
            counts = [0] * len(self.counts)
            data = self._data()
            for position, header in self._walk(data, 0, self.size_bytes, 1):
                check_crc(header, data[position : position + header.size])
                if max(header.size, header.body_size) > limit_bytes:
                    raise NotABatch(f"a batch of {max(header.size, header.body_size):,} bytes, over {limit_bytes:,}")
                batches += 1
                if header.kind == KIND_DATA:
                    counts[header.term] += header.record_count
                else:
                    targets += 1
            if (batches + 1, targets - 1, counts) != (self._index, len(self.targets), self.counts):
                raise NotABatch("it is not what was staged")
        except (BatchError, OSError, IndexError) as error:
            self.failure = StageFailed(self.opened.id, f"it cannot be read as it was written: {error}")
            raise self.failure from error

    def batches(self) -> Iterator[StagedBatch]:
        """Every batch in its order, as views of the file. It has been verified."""
        data = self._data()
        for position, header in self._walk(data, 0, self.size_bytes, 1):
            if header.kind == KIND_DATA:
                yield StagedBatch(header.term, Batch(header, data[position : position + header.size], True))

    def _data(self) -> memoryview:
        data = self._opened_file().map(self.size_bytes)
        if len(data) < self.size_bytes:
            raise NotABatch(f"the file has {len(data)} bytes, {self.size_bytes} were written")
        return data

    def _walk(self, data: memoryview, position: int, end: int, index: int = 2) -> Iterator[tuple[int, Header]]:
        while position < end:
            header = read_header(data, position)
            if header.index != index or position + header.size > end:
                raise NotABatch(f"batch {header.index} stands where {index} must be whole")
            yield position, header
            position += header.size
            index += 1

    def _follow(self, header: Header, data: memoryview) -> None:
        """Take up what was found in the file."""
        if header.kind == KIND_CONTROL:
            target = _decode(Batch.parse(data).body)
            if not isinstance(target, Target) or target in self.targets:
                raise NotABatch("what is in a stage is said once")
            self._add(target)
        elif header.producer_id != self.opened.producer_id:
            raise NotABatch("a batch is one of another stage")
        elif header.term >= len(self.targets) or header.base_seqno != self.counts[header.term]:
            raise NotABatch("a batch stands where another must be")
        else:
            self.counts[header.term] += header.record_count
        self._index = header.index + 1
        self.size_bytes += header.size

    def remove(self) -> None:
        """The file goes; whoever reads it goes on."""
        self._file = None
        if self._disk.exists(self.path):
            self._disk.unlink(self.path)


def _read_opened(batch: Batch, path: str) -> Opened:
    """Whose file it is."""
    batch.verify()
    try:
        opened = _decode(batch.body) if batch.header.kind == KIND_CONTROL else None
    except UNREADABLE as error:
        raise NotABatch(f"{path} does not begin as a stage does: {error}") from None
    if not isinstance(opened, Opened) or opened.id != stage_id(path) or not opened.producer_id >= STAGED_IDS:
        raise NotABatch(f"{path} does not begin as this stage does")
    return opened


def stage_id(path: str) -> str | None:
    """Of a file with such a name."""
    name = _FILE_NAME.fullmatch(os.path.basename(path))
    return None if name is None else name[1]
