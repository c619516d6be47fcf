"""A stage: batches for any number of logs that are in none of them yet.

Its file is a row of batches as logs have them. The first, a control batch, says whose it is; another one says where
what follows it under a number is to go; data batches carry that number as their term, their place in the file as
their index, and as their seqno how many records of the stage came before them in that log. So every byte is under a
checksum, and whoever reads the file finds out everything by it.

What is a lot for one log leaves the file: it is put into pieces (`piece.py`), from its first record on, and what the
file has of it counts for nothing any more. A piece can become a segment of its log without being written again.

A stage is not synced as it grows: it counts for nothing until it is published, and `sync` comes before that. After a
crash `load` passes over what is not whole, which goes with the next write; what was staged and is missing then, whoever
publishes notices by the count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
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
    MalformedBatch,
    NotABatch,
    SequenceGap,
    StageFailed,
    WriteFailed,
)
from logboom.storage.append import Answer, Appended
from logboom.storage.config import MIB, LogConfig
from logboom.storage.files.disk import BUFFERS_MAX, SCARCE, Disk, ready_map
from logboom.storage.files.envelope import UNREADABLE
from logboom.storage.files.open_files import Space
from logboom.storage.staged.piece import PieceName, StagePiece, check_limit
from logboom.storage.staged.sheet import Sheet

SUFFIX: Final = ".stage"
LARGE_BYTES: Final = 4 * MIB
"""What is more than this for one log is put into pieces."""
LARGE_MAX: Final = 16
"""But only for so many logs: each of them keeps a file open."""
_SEGMENT_BYTES: Final = LogConfig().segment_bytes
_FILE_NAME: Final = re.compile(rf"([0-9a-f]{{32}}){re.escape(SUFFIX)}")


class Opened(msgspec.Struct, frozen=True, tag="stage"):
    """The first batch of the file."""

    id: str
    producer_id: int
    at: int
    note: str = ""


class StageTarget(msgspec.Struct, frozen=True, tag="target"):
    """A log that records of the stage are for."""

    topic: str
    topic_id: str
    partition: int


_decode = msgspec.msgpack.Decoder(Opened | StageTarget).decode
Entry = tuple[StageTarget, Batch]


class StagedBatch(NamedTuple):
    number: int
    """Of its target."""
    batch: Batch


class _Filled(NamedTuple):
    """What there is for a target."""

    records: int = 0
    records_here: int = 0
    """In the stage's own file, whether they count or not."""
    bytes_here: int = 0


class StageFile:
    """Not for two threads at once, but for `sync`."""

    def __init__(self, disk: Disk, space: Space, sheet: Sheet, opened: Opened) -> None:
        self._disk = disk
        self._space = space
        self._sheet = sheet
        self._directory = os.path.dirname(sheet.path)
        self.opened = opened
        self.targets: dict[StageTarget, int] = {}
        """With their numbers."""
        self._filled: list[_Filled] = []
        self.pieces: list[StagePiece] = []
        """Those of one target in their order."""
        self._growing: dict[int, StagePiece | None] = {}
        """The piece that takes what comes for a target next; None where that is to be made."""
        self._strays: list[str] = []
        """Pieces that were found and count for nothing: they are gone before anything is written."""
        self._failure: StageFailed | None = None
        self._index = 1

    @classmethod
    def create(cls, disk: Disk, space: Space, directory: str, opened: Opened) -> StageFile:
        path = f"{directory}/{opened.id}{SUFFIX}"
        stage = cls(disk, space, Sheet(disk, space, opened.id, path, disk.create(path)), opened)
        stage._sheet.put(stage._control(opened, opened.at))
        return stage

    @classmethod
    def load(cls, disk: Disk, space: Space, path: str) -> StageFile:
        """What the files hold after a restart: verified, as the disk has it. Raises BatchError where it is no stage."""
        file = disk.open(path)
        file.sync()
        file.drop_cache()
        data = ready_map(file, file.size())
        batch = Batch.parse(data)
        opened = _read_opened(batch, path)
        stage = cls(disk, space, Sheet(disk, space, opened.id, path, file), opened)
        stage._sheet.size_bytes = batch.header.size
        stage._index = 2
        try:
            for position, header in walk(data, batch.header.size, len(data), 2):
                check_crc(header, data[position : position + header.size])
                stage._follow(header, data[position : position + header.size])
        except (BatchError, *UNREADABLE):
            stage._sheet.is_torn = True
        stage._sheet.synced_bytes = stage._sheet.size_bytes
        stage._sheet.let_go()
        stage._load_pieces()
        return stage

    def _load_pieces(self) -> None:
        names = filter(None, map(PieceName.parse, self._disk.list(self._directory)))
        mine = sorted(name for name in names if name.stage == self.opened.id)
        for number, some in groupby(mine, lambda name: name.number):
            self._load_pieces_of(number, list(some))

    def _load_pieces_of(self, number: int, names: list[PieceName]) -> None:
        """Those that follow each other count, if they have at least what the stage's own file has for the target."""
        found, after = list[StagePiece](), 0
        for name, following in zip_longest(names, names[1:]):
            if number < len(self._filled) and name.first == after:
                until = None if following is None else following.first
                piece = StagePiece.load(self._disk, self._space, self._directory, name, self.opened.producer_id, until)
                if piece.next > after:
                    found.append(piece)
                    after = piece.next
        if found and after >= self._filled[number].records:
            self.pieces += found
            self._growing[number] = None
            self._filled[number] = self._filled[number]._replace(records=after)
        counted = {piece.path for piece in self.pieces}
        self._strays += [path for name in names if (path := name.path(self._directory)) not in counted]

    @property
    def path(self) -> str:
        return self._sheet.path

    @property
    def _sheets(self) -> list[Sheet]:
        return [self._sheet, *self.pieces]

    @property
    def failure(self) -> StageFailed | None:
        return self._failure or next((sheet.failure for sheet in self._sheets if sheet.failure is not None), None)

    @property
    def counts(self) -> list[int]:
        """Records for each target."""
        return [filled.records for filled in self._filled]

    @property
    def records(self) -> int:
        return sum(self.counts)

    @property
    def size_bytes(self) -> int:
        return sum(sheet.size_bytes for sheet in self._sheets)

    @property
    def unsynced_bytes(self) -> int:
        return sum(sheet.size_bytes - sheet.synced_bytes for sheet in self._sheets)

    @property
    def is_synced(self) -> bool:
        return not self.unsynced_bytes

    def holds(self, target: StageTarget, header: Header) -> bool:
        """Whether a batch repeats what is here: then `write` answers, and writes nothing."""
        number = self.targets.get(target)
        if number is None or (header.producer_id, header.producer_epoch) != (self.opened.producer_id, 0):
            return False
        ahead = (header.producer_seq - self._filled[number].records) % SEQUENCE_MODULUS
        return ahead >= SEQUENCE_MODULUS // 2 and SEQUENCE_MODULUS - ahead >= header.record_count

    def write(
        self,
        entries: Sequence[Entry],
        now: int,
        limit_bytes: int,
        segment_bytes: Mapping[StageTarget, int] | None = None,
    ) -> list[Answer]:
        """Stage batches, with as few writes as can be; one answer for each, in order. Once one is refused, all are.

        `segment_bytes` says how large segments of the targets are.
        """
        answers: list[Answer] = []
        while len(answers) < len(entries):
            start = len(answers)
            try:
                self._remove_strays()
                sheet, room = self._find_sheet(entries[start], segment_bytes or {})
                some = entries[start : start + self._count_fitting(entries, start, sheet, room)]
                answers += self._write(sheet, some, now, limit_bytes)
            except AppendRefused as error:
                answers.append(error)
            refused = (answer for answer in answers[start:] if isinstance(answer, AppendRefused | BatchError))
            refusal = next(refused, None)
            if refusal is not None:
                answers += [refusal] * (len(entries) - len(answers))
        return answers

    def _find_sheet(self, entry: Entry, segment_bytes: Mapping[StageTarget, int]) -> tuple[Sheet, int]:
        """Where a batch is to go, and how many bytes go there with one write."""
        target, batch = entry
        number = self.targets.get(target)
        if number is None or not self._is_large(number):
            return self._sheet, LARGE_BYTES
        most, piece = segment_bytes.get(target, _SEGMENT_BYTES), self._growing.get(number)
        while piece is None or (piece.batch_count and piece.size_bytes + batch.header.size > most):
            if self.failure is not None:
                raise WriteFailed(str(self.failure))
            try:
                piece = self._begin_piece(number, most)
            except OSError as error:
                raise WriteFailed(f"{self.path}: no piece: {error.strerror}") from None
        return piece, most - piece.size_bytes

    def _is_large(self, number: int) -> bool:
        if number in self._growing:
            return True
        return len(self._growing) < LARGE_MAX and self._filled[number].bytes_here >= LARGE_BYTES

    def _begin_piece(self, number: int, most: int) -> StagePiece:
        """The next piece of a target. The first begins with what the stage's own file has for it, and so may others."""
        is_first = number not in self._growing
        made = [self._create_piece(number, 0 if is_first else self._filled[number].records)]
        try:
            for found, batch in self._batches_here() if is_first else ():
                if found == number:
                    if made[-1].batch_count and made[-1].size_bytes + batch.header.size > most:
                        made.append(self._create_piece(number, made[-1].next))
                    data = batch.data
                    made[-1].add([(data[:HEADER_SIZE], data[HEADER_SIZE:])], batch.header.record_count)
        except (OSError, AppendRefused):
            self._strays += [piece.path for piece in made]
            raise
        self._growing[number] = made[-1]
        self.pieces += made  # only now: a sync may be under way, and closes those that do not grow
        return made[-1]

    def _create_piece(self, number: int, first: int) -> StagePiece:
        name = PieceName(self.opened.id, number, first)
        return StagePiece.create(self._disk, self._space, self._directory, name, self.opened.producer_id)

    def _remove_strays(self) -> None:
        """Else one of them could count for something with what is written now. Raises WriteFailed."""
        try:
            while self._strays:
                if self._disk.exists(self._strays[-1]):
                    self._disk.unlink(self._strays[-1])
                self._disk.sync_directory(self._directory)
                self._strays.pop()
        except OSError as error:
            raise WriteFailed(f"{self._strays[-1]}: {error.strerror}") from None

    def _count_fitting(self, entries: Sequence[Entry], start: int, sheet: Sheet, room: int) -> int:
        """How many of the entries from `start` on, at least one, go to this sheet with one write."""
        count, size = 1, entries[start][1].header.size
        for target, batch in entries[start + 1 : start + BUFFERS_MAX // 4]:
            size += batch.header.size
            number = self.targets.get(target)
            home = self._sheet if number is None or not self._is_large(number) else self._growing.get(number)
            if home is not sheet or size > room:
                break
            count += 1
        return count

    def _write(self, sheet: Sheet, entries: Sequence[Entry], now: int, limit_bytes: int) -> list[Answer]:
        targets, filled, index = dict(self.targets), list(self._filled), self._index
        batches: list[tuple[Buffer, Buffer]] = []
        answers: list[Answer] = []
        refusal: AppendRefused | BatchError | None = None
        for target, batch in entries:
            try:
                if refusal is not None:
                    raise refusal
                answers.append(self._place(sheet, target, batch, now, limit_bytes, batches))
            except (AppendRefused, BatchError) as error:
                refusal = error
                answers.append(error)
        try:
            if isinstance(sheet, StagePiece):
                sheet.add(batches, self._filled[sheet.number].records - sheet.next)
            else:
                sheet.put([buffer for batch in batches for buffer in batch])
        except AppendRefused as error:
            self.targets, self._filled, self._index = targets, filled, index
            return [
                answer if isinstance(answer, Appended) and self._holds(target, answer) else error
                for (target, _), answer in zip(entries, answers, strict=True)
            ]
        return answers

    def _holds(self, target: StageTarget, answer: Appended) -> bool:
        """Whether it is the answer to a repeat of what was in the file before."""
        number = self.targets.get(target)
        return number is not None and answer.next_seqno <= self._filled[number].records

    def _place(
        self,
        sheet: Sheet,
        target: StageTarget,
        batch: Batch,
        now: int,
        limit_bytes: int,
        batches: list[tuple[Buffer, Buffer]],
    ) -> Appended:
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
            batches.append(self._control(target, now))
            number = self._add(target)
        (seqno, here, size), count = self._filled[number], header.record_count
        ahead = (header.producer_seq - seqno) % SEQUENCE_MODULUS
        if ahead:
            if SEQUENCE_MODULUS - ahead < count or ahead < SEQUENCE_MODULUS // 2:
                raise SequenceGap(header.producer_id, header.producer_seq, seqno % SEQUENCE_MODULUS)
            return Appended(seqno + ahead - SEQUENCE_MODULUS, count, self._index, now, True)
        index = self._index
        batches.append((stamp(batch.data, seqno, index, now, number, SYNCED_UNKNOWN), batch.data[HEADER_SIZE:]))
        if sheet is self._sheet:
            self._index += 1
            here, size = here + count, size + header.size
        self._filled[number] = _Filled(seqno + count, here, size)
        return Appended(seqno, count, index, now)

    def _add(self, target: StageTarget) -> int:
        number = self.targets[target] = len(self.targets)
        self._filled.append(_Filled())
        return number

    def _control(self, body: Opened | StageTarget, now: int) -> tuple[Buffer, Buffer]:
        data = build_control(body).data
        front = stamp(data, 0, self._index, now, len(self.targets), SYNCED_UNKNOWN)
        self._index += 1
        return front, data[HEADER_SIZE:]

    def sync(self) -> None:
        """On any thread: all that was written before is durable, but for the names. Raises StageFailed."""
        for sheet in self._sheets:
            sheet.sync()
            if isinstance(sheet, StagePiece) and self._growing.get(sheet.number) is not sheet:
                sheet.let_go()

    def let_go(self) -> None:
        """Close the files; they are opened again when they are needed. One that is not synced stays."""
        for sheet in self._sheets:
            sheet.let_go()

    def verify(self, limit_bytes: int) -> None:
        """Read everything, and compare it with what was staged. Raises StageFailed, or WriteFailed where it cannot be
        opened now."""
        try:
            batches = targets = 0
            counts = [0] * len(self._filled)
            data = self._sheet.data()
            for position, header in walk(data, 0, len(data), 1):
                check_crc(header, data[position : position + header.size])
                check_limit(header, limit_bytes)
                batches += 1
                if header.kind == KIND_DATA:
                    counts[header.term] += header.record_count
                else:
                    targets += 1
            here = [filled.records_here for filled in self._filled]
            if (batches + 1, targets - 1, counts) != (self._index, len(self.targets), here):
                raise NotABatch("it is not what was staged")
            for piece in self.pieces:
                piece.verify(limit_bytes)
                piece.let_go()
            self._sheet.let_go()
        except (BatchError, OSError, IndexError) as error:
            if isinstance(error, OSError) and error.errno in SCARCE:
                raise WriteFailed(f"{self.path}: {error.strerror}") from error
            self._failure = StageFailed(self.opened.id, f"it cannot be read as it was written: {error}")
            raise self._failure from error

    def data(self) -> memoryview:
        """What its own file holds, which is open then. Raises OSError where that cannot be now."""
        return self._sheet.data()

    def batches(self) -> Iterator[StagedBatch]:
        """Every batch that is in no piece, in its order, as views of the file. It has been verified."""
        return (staged for staged in self._batches_here() if staged.number not in self._growing)

    def all_batches(self) -> Iterator[Batch]:
        """Those in pieces too. Raises WriteFailed where they cannot be opened now."""
        try:
            yield from (staged.batch for staged in self.batches())
            for piece in self.pieces:
                yield from piece.batches()
                piece.let_go()
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error.strerror}") from error

    def _batches_here(self) -> Iterator[StagedBatch]:
        data = self._sheet.data()
        for position, header in walk(data, 0, len(data), 1):
            if header.kind == KIND_DATA:
                yield StagedBatch(header.term, Batch(header, data[position : position + header.size], True))

    def _follow(self, header: Header, data: memoryview) -> None:
        """Take up what was found in the file."""
        if header.kind == KIND_CONTROL:
            target = _decode(Batch.parse(data).body)
            if not isinstance(target, StageTarget) or target in self.targets:
                raise NotABatch("what is in a stage is said once")
            self._add(target)
        elif header.producer_id != self.opened.producer_id:
            raise NotABatch("a batch is one of another stage")
        elif header.term >= len(self.targets) or header.base_seqno != self._filled[header.term].records:
            raise NotABatch("a batch stands where another must be")
        else:
            records, _, size = self._filled[header.term]
            records += header.record_count
            self._filled[header.term] = _Filled(records, records, size + header.size)
        self._index = header.index + 1
        self._sheet.size_bytes += header.size


def remove_stages(disk: Disk, directory: str, stages: Collection[str]) -> None:
    """Their files go; whoever reads them goes on. Raises what went wrong first, when all the others are gone.

    The file that says whose the others are goes first: without it they are removed by the next start.
    """
    pieces = [(name, piece.stage) for name in disk.list(directory) if (piece := PieceName.parse(name)) is not None]
    names = [f"{stage}{SUFFIX}" for stage in stages] + [name for name, stage in pieces if stage in stages]
    failure: OSError | None = None
    for path in (f"{directory}/{name}" for name in names):
        try:
            if disk.exists(path):
                disk.unlink(path)
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def walk(data: memoryview, position: int, end: int, index: int) -> Iterator[tuple[int, Header]]:
    """Every batch from here on, with its position. Raises NotABatch where they are not numbered one after the other."""
    while position < end:
        header = read_header(data, position)
        if header.index != index or position + header.size > end:
            raise NotABatch(f"batch {header.index} stands where {index} must be whole")
        yield position, header
        position += header.size
        index += 1


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
