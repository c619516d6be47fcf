"""One segment, every byte of it: whether it is sound, and what its batches amount to.

Plain batches are checked many at a time (`batch.facts`), any other one by itself, and what neither takes is given to
the `scan` that recovery uses: so what is refused here is refused there, for the same reason. What follows damage is
examined too.

The digest of a batch is of what replicas have in common: what `rewrite.equal` compares. Digests of consecutive batches
add up, so that it does not matter where a log was rolled; a block of them ends where the index is a multiple of 1,024,
and where the file does. They tell accidents apart, not forgeries.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from logboom.batch import vector
from logboom.batch.batch import Batch
from logboom.batch.facts import BatchFacts, find_batches, gather, sweep
from logboom.batch.header import HEADER_SIZE, KIND_DATA, KIND_LOST, NO_TIMESTAMP, PADDING_MASK
from logboom.errors import BatchError, DirectoryUnusable
from logboom.storage.data.directory import read_node
from logboom.storage.files.disk import read_file
from logboom.storage.files.readonly import ReadOnlyDisk, ReadOnlyFile
from logboom.storage.health.floor import floor_fault
from logboom.storage.holes import NextNumbers, resume
from logboom.storage.index import SparseIndex
from logboom.storage.labels import COLUMNS
from logboom.storage.recovery import evidence_of_damage
from logboom.storage.scan import Bad, Window, scan
from logboom.storage.tail import Floor, LogTail, Snapshot, read_control
from logboom.verify.plan import Block, Examined, Kind, SegmentSums, SegmentTask, open_directory

if TYPE_CHECKING:
    from logboom.batch.facts import Vector

BLOCK_BATCHES: Final = 1024
PROBLEMS_MAX: Final = 100
"""Of one segment: what looks like more is one thing gone wrong."""
CHUNK_BYTES: Final = 8 << 20
"""So much is looked at together: what that costs once is little then, for each batch."""
_WITHOUT_LIMIT: Final = 2**62
_INDEX_HEADER: Final = 64
_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
_LOW: Final = 2**32 - 1


def examine_pieces(pieces: list[SegmentTask]) -> list[Examined]:
    """Raises DirectoryUnusable where their directory is not the one that was planned for."""
    disks: dict[str, ReadOnlyDisk] = {}
    for piece in pieces:
        if piece.directory not in disks:
            disks[piece.directory] = disk = open_directory(piece.directory)
            node = read_node(disk, piece.directory)
            if node is None or node.node_id != piece.node_id:
                raise DirectoryUnusable(f"{piece.directory} is not everywhere the directory of node {piece.node_id}")
    return [examine(disks[piece.directory], piece) for piece in pieces]


def examine(disk: ReadOnlyDisk, piece: SegmentTask) -> Examined:
    """Every batch of a segment. What cannot be read is a problem like any other."""
    found = Examined(next_seqno=piece.seqno, next_index=piece.index)
    try:
        found.snapshot = _read_snapshot(disk, piece)
        _Examination(disk, piece, found).run(disk.open(piece.path))
    except FileNotFoundError:
        if piece.after is not None or _promised(piece) >= piece.index:
            reason = "the file is missing"
            found.problems.append(piece.problem("missing", reason, seqno=piece.seqno, index=piece.index))
        else:
            found.sums = SegmentSums()
    except OSError as error:
        found.problems.append(piece.problem("unreadable", str(error), seqno=piece.seqno, index=piece.index))
    return found


def _read_snapshot(disk: ReadOnlyDisk, piece: SegmentTask) -> SegmentSums | None:
    snapshot = Snapshot.decode(read_file(disk, piece.snapshot_path))
    if snapshot is None or (snapshot.next_seqno, snapshot.next_index) != (piece.seqno, piece.index):
        return None
    return SegmentSums(snapshot.term, snapshot.append_time, snapshot.max_timestamp, snapshot.floor)


def _promised(piece: SegmentTask) -> int:
    """The highest index that the state file says was synced."""
    return 0 if piece.standing is None else piece.standing.synced_index


class _Chunks:
    """A file, piece by piece, in memory that is used again: fresh memory would cost as much as the checksums."""

    def __init__(self, file: ReadOnlyFile, size: int) -> None:
        self._file = file
        self._size = size
        self._descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self._memory = memoryview(bytearray(min(size, CHUNK_BYTES)))

    def __del__(self) -> None:
        os.close(self._descriptor)

    def view(self, position: int) -> memoryview:
        """What is there, until it is asked for the next."""
        wanted = min(len(self._memory), self._size - position)
        try:
            return self._memory[: os.preadv(self._descriptor, [self._memory[:wanted]], position)]
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return memoryview(self._file.read(wanted, position))  # without the blocks that the device does not give


class _Examination:
    def __init__(self, disk: ReadOnlyDisk, piece: SegmentTask, found: Examined) -> None:
        self._disk = disk
        self._piece = piece
        self._found = found
        self._tail = LogTail(piece.seqno, piece.index)
        self._whole = True
        self._starts: list[tuple[Vector, Vector, int]] = []
        """Where batches begin, their seqnos, and the index of the first."""
        self._columns = 0

    def run(self, file: ReadOnlyFile) -> None:
        piece, found, tail = self._piece, self._found, self._tail
        if piece.from_disk:
            file.drop_cache()
        size = file.size()
        window = Window(file, size)
        chunks = _Chunks(file, size)
        position = 0
        while position < size:
            done = self._take(chunks.view(position), position)
            if done is None:
                break
            if not done:
                done = self._take_large(window, position)
            if not done:
                passed = self._pass(window, position, size)
                if passed is None:
                    break
                done = passed - position
            position += done
        found.bytes, found.next_seqno, found.next_index = position, tail.next_seqno, tail.next_index
        found.records -= found.lost
        if self._whole:
            self._judge_end(position)
        if self._whole:
            found.sums = (
                SegmentSums(tail.term, tail.append_time, tail.max_timestamp, tail.floor)
                if found.batches
                else SegmentSums()
            )
            if piece.after is not None:
                self._judge_index(size)

    def _take_large(self, window: Window, position: int) -> int:
        """A batch that is larger than a chunk."""
        try:
            size = window.header(position).size
        except BatchError:
            return 0
        return self._take(window.view(position, size), position) or 0 if size > CHUNK_BYTES else 0

    def _take(self, data: memoryview, position: int) -> int | None:
        """As many batches as are sound together; their bytes. None where those end that count."""
        tail = self._tail
        bounds, _ = find_batches(data, _WITHOUT_LIMIT)
        if len(bounds) == 1:
            return 0
        facts = gather(data, bounds, tail.next_seqno, tail.next_index)
        counted = self._counted(facts)
        if not counted:
            return None if self._piece.in_motion and self._piece.after is None else 0
        if counted < len(bounds) - 1:
            bounds = bounds[: counted + 1]
            data = data[: bounds[-1]]
            facts = gather(data, bounds, tail.next_seqno, tail.next_index)
        ordered = self._ordered(facts)
        sweep(data, facts, timestamps=False)
        others: dict[int, int] = {}
        sound = self._take_others(data, position, bounds, facts, ordered, others)
        if not sound:
            return 0
        if self._piece.digests:
            self._add_blocks(data, position, bounds, facts, sound, others)
        self._count(facts, position, sound)
        return bounds[sound]

    def _counted(self, facts: BatchFacts) -> int:
        """How many of them belong here, and are committed where only that counts; by what their headers say."""
        np, piece, tail = vector.np, self._piece, self._tail
        numbers = np.arange(len(facts.counts), dtype=np.int64) + tail.next_index
        if piece.after is not None:
            belong = numbers < piece.after[1]
        elif piece.in_motion:
            committed = 0 if piece.standing is None else piece.standing.committed
            belong = (numbers <= _promised(piece)) | (
                facts.before[:-1] < np.uint64(max(0, committed - tail.next_seqno))
            )
        else:
            return len(numbers)
        return int(len(numbers) if belong.all() else belong.argmin())

    def _ordered(self, facts: BatchFacts) -> int:
        """How many of them have a term and a time that do not go back."""
        np, tail = vector.np, self._tail
        times = facts.rows[3].view(vector.I64)
        back = np.empty(len(times), bool)
        back[0] = int(facts.terms[0]) < tail.term or int(times[0]) < tail.append_time
        back[1:] = (facts.terms[1:] < facts.terms[:-1]) | (times[1:] < times[:-1])
        return int(back.argmax()) if back.any() else len(times)

    def _take_others(
        self,
        data: memoryview,
        position: int,
        bounds: list[int],
        facts: BatchFacts,
        ordered: int,
        others: dict[int, int],
    ) -> int:
        """Look at the batches that are not plain, one by one; how many are sound, plain ones included."""
        tail, digests = self._tail, self._piece.digests
        for number in vector.np.flatnonzero(~facts.plain[:ordered]).tolist():
            start = bounds[number]
            try:
                batch = Batch.parse(data[start : bounds[number + 1]])
                header = batch.header
                if header.index != tail.next_index + number:
                    return number
                if header.base_seqno != tail.next_seqno + int(facts.before[number]):
                    return number
                batch.verify()
                control = read_control(batch)
            except BatchError:
                return number
            if digests:
                others[number] = crc32c(batch.body)
            if header.kind == KIND_LOST:
                self._found.lost += header.record_count
            elif isinstance(control, Floor):
                fault = floor_fault(header, control)
                if fault is not None:
                    self._note("damage", fault, position + start, header.base_seqno, header.index)
                tail.floor = max(tail.floor, control.seqno)
        return ordered

    def _count(self, facts: BatchFacts, position: int, sound: int) -> None:
        np, tail, found = vector.np, self._tail, self._found
        times, kinds = facts.rows[3].view(vector.I64)[:sound], facts.rows[5][:sound] >> 8 & 0xFF
        highs, lows = facts.highs[:sound], facts.lows[:sound]
        moments = np.where((lows == NO_TIMESTAMP) & (times > highs), times, highs)
        newest = int(np.where(kinds == KIND_DATA, moments, NO_TIMESTAMP).max())
        if found.first is None and not found.batches and self._whole:
            found.first = int(facts.terms[0]), int(times[0])
        if self._piece.after is not None:
            seqnos = facts.before[:sound] + np.uint64(tail.next_seqno)
            self._starts.append((facts.starts[:sound] + np.uint64(position), seqnos, tail.next_index))
            held = np.where(kinds == KIND_DATA, facts.columns[:sound], 0)
            held = np.where((kinds == KIND_LOST) & (facts.counts[:sound] > 0), COLUMNS, held)
            self._columns |= int(np.bitwise_or.reduce(held)) & COLUMNS
        records = int(facts.before[sound])
        found.batches += sound
        found.records += records
        tail.next_seqno += records
        tail.next_index += sound
        tail.term, tail.append_time = int(facts.terms[sound - 1]), int(times[-1])
        if newest > tail.max_timestamp:
            tail.max_timestamp = newest

    def _add_blocks(
        self, data: memoryview, position: int, bounds: list[int], facts: BatchFacts, sound: int, others: dict[int, int]
    ) -> None:
        np, index, blocks = vector.np, self._tail.next_index, self._found.blocks
        crcs = [
            others[number] if number in others else crc32c(data[bounds[number] + HEADER_SIZE : bounds[number + 1]])
            for number in range(sound)
        ]
        digests = _digest(facts.rows[:, :sound], crcs)
        cuts = [0, *range(BLOCK_BATCHES - index % BLOCK_BATCHES, sound, BLOCK_BATCHES)]
        for start, end, digest in zip(cuts, [*cuts[1:], sound], np.add.reduceat(digests, cuts).tolist(), strict=True):
            block = Block(index + start, index + end, position + bounds[start], position + bounds[end], digest)
            last = blocks[-1] if blocks else None
            if last is not None and last.until == block.index and block.index % BLOCK_BATCHES:
                digest = (last.digest + digest) % 2**64
                blocks[-1] = Block(last.index, block.until, last.position, block.end, digest)
            else:
                blocks.append(block)

    def _pass(self, window: Window, position: int, size: int) -> int | None:
        """Note what is wrong here; where sound batches go on, or None where none do, or where nothing more counts."""
        piece, tail = self._piece, self._tail
        limit = None if piece.after is None else NextNumbers(*piece.after)
        if limit is not None and tail.next_index >= limit.index:
            self._end_with("order", "the segment goes on behind the batch that the next one begins with", position)
            return None
        bad = next(scan(window, position, size, tail))
        assert isinstance(bad, Bad), f"{piece.path} at {position}: sound for a scan"
        if limit is None:
            committed = 0 if piece.standing is None else piece.standing.committed
            if (
                _promised(piece) < tail.next_index
                and tail.next_seqno >= committed
                and (piece.in_motion or evidence_of_damage(window, bad, size, tail, piece.standing) is None)
            ):
                return None  # a torn tail
        self._note("damage", bad.reason, position, tail.next_seqno, tail.next_index)
        self._whole = False
        if len(self._found.problems) >= PROBLEMS_MAX:
            return None
        found = resume(window, bad, size, tail, limit)
        if found is None:
            return None
        tail.next_seqno, tail.next_index = found[1].base_seqno, found[1].index
        return found[0]

    def _end_with(self, kind: Kind, reason: str, position: int) -> None:
        self._note(kind, reason, position, self._tail.next_seqno, self._tail.next_index)
        self._whole = False

    def _judge_end(self, position: int) -> None:
        """Where a segment ends the next begins; the last one has all that was promised."""
        piece, tail = self._piece, self._tail
        if piece.after is not None:
            if (tail.next_seqno, tail.next_index) != piece.after:
                seqno, index = piece.after
                reason = f"it ends before batch {tail.next_index}, seqno {tail.next_seqno}; the next segment begins "
                self._end_with("missing", f"{reason}with batch {index}, seqno {seqno}", position)
        elif tail.next_index <= _promised(piece):
            reason = f"the log ends with batch {tail.next_index - 1}, the state file says that {_promised(piece)} "
            self._end_with("missing", f"{reason}were synced", position)

    def _note(self, kind: Kind, reason: str, position: int, seqno: int, index: int) -> None:
        problem = self._piece.problem(kind, reason, position=position, seqno=seqno, index=index)
        self._found.problems.append(problem)

    def _judge_index(self, size: int) -> None:
        """An index is derived, and never trusted; one that is not true costs those who read some time."""
        path = f"{self._piece.path[:-4]}.idx"
        data = read_file(self._disk, path)
        fault = None if data is None else self._index_fault(data, size)
        if fault is not None:
            self._found.problems.append(self._piece.problem("index", fault, file=path, severity="harmless"))

    def _index_fault(self, data: bytes, size: int) -> str | None:
        np, tail = vector.np, self._tail
        loaded = SparseIndex.decode(data)
        if loaded is None:
            return "it is not a whole index"
        index, summary, _ = loaded
        if summary[:3] != (size, tail.next_seqno, tail.next_index):
            return f"it speaks of {summary.size} bytes up to batch {summary.next_index}"
        if self._columns & ~index.columns:
            return "its labels deny what batches hold"
        said = np.frombuffer(data, np.uint64, 3 * len(index), _INDEX_HEADER).reshape(3, len(index))
        starts, seqnos, indexes = self._places()
        places = np.minimum(np.searchsorted(starts, said[2]), len(starts) - 1)
        true = (starts[places] == said[2]) & (seqnos[places] == said[0]) & (indexes[places] == said[1])
        return None if true.all() else f"its entry for byte {int(said[2][true.argmin()])} is not true"

    def _places(self) -> tuple[Vector, Vector, Vector]:
        np = vector.np
        starts = [starts for starts, _, _ in self._starts]
        indexes = [np.arange(first, first + len(part), dtype=np.uint64) for part, _, first in self._starts]
        return (
            np.concatenate(starts),
            np.concatenate([seqnos for _, seqnos, _ in self._starts]),
            np.concatenate(indexes),
        )


def _digest(rows: Vector, crcs: list[int]) -> Vector:
    """Of each batch, from the words of its header that replicas have in common, and the checksum of its body.

    Left out are size, `synced`, the codec, padding and the checksums: `rewrite.equal` does not look at them either.
    """
    np = vector.np
    masks = np.full(len(rows), 2**64 - 1, np.uint64)
    masks[0], masks[4], masks[5] = 0, _LOW, 2**64 - 1 ^ 0xFF << 24
    masks[10], masks[11] = 2**64 - 1 ^ PADDING_MASK << 32, 0
    first, second = (np.uint64(number) for number in _MIX)
    digest = np.array(crcs, np.uint64)
    for word, mask in zip(rows, masks, strict=True):
        digest = (digest ^ (word & mask)) * first
        digest = (digest ^ (digest >> np.uint64(29))) * second
    found: Vector = digest ^ (digest >> np.uint64(32))
    return found
