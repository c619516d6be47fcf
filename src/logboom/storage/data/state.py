"""The `state` file: where every log of a node stands, for readers in other processes and for recovery.

A slot of 64 bytes per log, written with one pwrite and read through a map; slot 0 is the file's own header:

     0 topic id  16s     16 partition u32    20 generation u32
    24 first seqno u64   32 committed seqno u64   40 synced index u64   48 term u32    52 floor u64    60 crc32c u32

It is a hint. Recovery lets it veto a cut, never permit one: `synced` rises only after the sync it speaks of, and is
lowered and synced before a truncation. It is synced itself now and then: of the last batch of a log, which no later
batch vouches for, nothing else says that it was once whole. A slot whose CRC does not hold says nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.errors import DirectoryUnusable
from logboom.storage.files.disk import Disk, File, read_file, replace_file, write_all

SLOT_SIZE: Final = 64
MAGIC: Final = b"LGST"
_ATTEMPTS: Final = 20
_VERSION: Final = (1).to_bytes(4, "little")
_SLOT = Struct("<16sIIQQQIQ")
_CRC = Struct("<I")

SlotFields = tuple[bytes, int, int, int, int, int, int, int]
"""Those of a LogState: a slot is written so often that they are compared and packed as they come."""


class LogState(NamedTuple):
    """Where a log stands."""

    topic_id: bytes
    partition: int
    generation: int
    first: int
    committed: int
    synced_index: int
    term: int = 0
    """Of the last batch: another one tells readers that the log may have lost its tail."""
    floor: int = 0
    """What a user's trim has hidden, of the archive too."""


class Slot:
    """One log's place in the state file."""

    __slots__ = ("_file", "_position", "_said", "number", "partition", "topic_id")

    def __init__(self, file: File, number: int, topic_id: bytes, partition: int, standing: LogState | None) -> None:
        self._file = file
        self.number = number
        self._position = number * SLOT_SIZE
        self.topic_id = topic_id
        self.partition = partition
        self._said: SlotFields | None = standing

    @property
    def standing(self) -> LogState | None:
        """What the slot said when it was claimed, or what was written since."""
        return None if self._said is None else LogState._make(self._said)

    def write(
        self,
        generation: int,
        first: int,
        committed: int,
        synced_index: int,
        term: int,
        floor: int = 0,
        always: bool = False,
    ) -> None:
        standing = self.topic_id, self.partition, generation, first, committed, synced_index, term, floor
        if always or standing != self._said:
            write_all(self._file, _encode(standing), self._position)
            self._said = standing

    def clear(self) -> None:
        write_all(self._file, bytes(SLOT_SIZE), self._position)
        self._said = None

    def sync(self) -> None:
        self._file.sync()


class StateFile:
    def __init__(self, file: File) -> None:
        self._file = file
        data = file.read(file.size(), 0)
        standings = [decode(data, position) for position in range(0, len(data), SLOT_SIZE)]
        self._count = max(1, len(standings))
        self._free = [number for number, standing in enumerate(standings) if standing is None and number]
        self._claimed: dict[tuple[bytes, int], Slot] = {}
        self._known = {
            (standing.topic_id, standing.partition): (number, standing)
            for number, standing in enumerate(standings)
            if standing is not None and number
        }

    @classmethod
    def open(cls, disk: Disk, path: str) -> StateFile:
        """The state file, made where there is none or what is there cannot be read: it is only a hint."""
        front = (read_file(disk, path) or b"")[:SLOT_SIZE]
        if len(front) < SLOT_SIZE or front[:4] != MAGIC or _CRC.unpack_from(front, 60)[0] != crc32c(front[:60]):
            _write_front(disk, path, front)
        elif front[4:8] != _VERSION:
            raise DirectoryUnusable(f"{path} is of a newer format: use the release that wrote it")
        file = disk.open(path)
        file.sync()
        file.drop_cache()  # what a failed sync left in the cache is not on the disk
        return cls(file)

    def claim(self, topic_id: bytes, partition: int) -> Slot:
        """The slot of this log; where it has none, one that nobody can read, or a new one at the end."""
        slot = self._claimed.get((topic_id, partition))
        if slot is None:
            slot = self._claimed[topic_id, partition] = self._find_slot(topic_id, partition)
        return slot

    def _find_slot(self, topic_id: bytes, partition: int) -> Slot:
        known = self._known.get((topic_id, partition))
        if known is not None:
            return Slot(self._file, known[0], topic_id, partition, known[1])
        if self._free:
            number = self._free.pop()
        else:
            number = self._count
            self._count += 1
        return Slot(self._file, number, topic_id, partition, None)

    def standing(self, topic_id: bytes, partition: int) -> LogState | None:
        known = self._known.get((topic_id, partition))
        return None if known is None else known[1]

    def release(self, topic_id: bytes) -> None:
        """The topic is gone: its slots are free again, and readers in other processes notice."""
        slots = {key: self._find_slot(*key) for key in self._known if key[0] == topic_id}
        slots |= {key: slot for key, slot in self._claimed.items() if key[0] == topic_id}
        for key, slot in slots.items():
            slot.clear()
            self._known.pop(key, None)
            self._claimed.pop(key, None)
            self._free.append(slot.number)

    def sync(self) -> None:
        self._file.sync()


class StateReader:
    """The state file as another process reads it.

    A slot is looked up by what it says of itself, because a slot may be given to another log. It is read with one
    pread: a map would be a little faster, and would kill the process if somebody cut the file.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._places: dict[tuple[bytes, int], int] = {}
        self.reopen()

    def reopen(self) -> None:
        """Somebody may have put another file in its place."""
        file = self._disk.open(self._path)
        front = file.read(SLOT_SIZE, 0)
        if front != FRONT and front[:4] == MAGIC and decode(front, 0) is not None:
            raise DirectoryUnusable(f"{self._path} is of a newer format: use the release that wrote it")
        self._file = file

    def standing(self, topic_id: bytes, partition: int) -> LogState | None:
        """Where this log stands; None where no slot says so, or none that can be read at the moment."""
        position = self._places.get((topic_id, partition))
        if position is not None:
            for _ in range(_ATTEMPTS):  # a slot may be caught half written
                standing = decode(self._file.read(SLOT_SIZE, position), 0)
                if standing is not None:
                    if standing[:2] == (topic_id, partition):
                        return standing
                    break
        return self._find(topic_id, partition)

    def _find(self, topic_id: bytes, partition: int) -> LogState | None:
        key = topic_id + partition.to_bytes(4, "little")
        for _ in range(_ATTEMPTS):
            data = self._file.read(self._file.size(), 0)
            position = data.find(key, SLOT_SIZE)
            while position >= 0:
                standing = decode(data, position) if position % SLOT_SIZE == 0 else None
                if standing is not None:
                    self._places[topic_id, partition] = position
                    return standing
                position = data.find(key, position + 1)
        self._places.pop((topic_id, partition), None)
        return None


def decode(data: bytes | memoryview, position: int) -> LogState | None:
    """The slot at this byte position; None where its CRC does not hold."""
    slot = data[position : position + SLOT_SIZE]
    if len(slot) < SLOT_SIZE or _CRC.unpack_from(slot, 60)[0] != crc32c(slot[:60]):
        return None
    return LogState._make(_SLOT.unpack_from(slot))


def _encode(standing: SlotFields) -> bytes:
    return _sealed(_SLOT.pack(*standing))


def _sealed(front: bytes) -> bytes:
    return front + _CRC.pack(crc32c(front))


FRONT: Final = _sealed((MAGIC + _VERSION).ljust(60, b"\0"))
"""Slot 0 of this release."""


def _write_front(disk: Disk, path: str, front: bytes) -> None:
    """In place where there are slots behind it: they are hints by themselves."""
    if len(front) < SLOT_SIZE:
        replace_file(disk, path, FRONT)
        return
    file = disk.open(path)
    file.write([FRONT], 0)
    file.sync()
