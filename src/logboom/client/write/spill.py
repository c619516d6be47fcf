"""Batches on the writer's own disk while no server can be reached.

     0 magic      8s   b"LGSPILL1"
     8 drained    u64  nothing before this position is needed any more
    16 sent       u64  nothing from here on was ever sent
    24 crc        u32  crc32c of bytes 0..24
    28 zeros to 64; then frames:

     0 size       u32  of the whole frame, a multiple of 8
     4 head       u32  bytes of the head without its padding
     8 crc        u32  crc32c of bytes 0..8, the head with its padding, and the batch
    12 zeros      u32
    16 head in msgpack (topic, topic id, partition, whether it may be in its log), padded to 8; then the batch

Frames are only appended, and synced before their records count as spilled; a group is whole or, after a crash, cut
at its first broken frame. When the last frame is settled the file is emptied. The two positions are hints, written
without a sync: where they are lost everything counts as sent and not answered, which costs repeats and nothing else.
One process uses a file at a time.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from logboom.batch import Batch
from logboom.batch.header import Buffer
from logboom.client.write.lane import SpillPlace
from logboom.errors import BatchError, ConfigError, DirectoryUnusable

log = logging.getLogger(__name__)

MAGIC: Final = b"LGSPILL1"
START: Final = 64
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024 + 64 * 1024
_HEADER: Final = Struct("<8sQQ")
_FRONT: Final = Struct("<IIII")
_CRC: Final = Struct("<I")


class Label(msgspec.Struct, frozen=True, array_like=True):
    """Where a spilled batch is to go."""

    topic: str
    topic_id: str | None
    partition: int | None
    doubt: bool = False
    """It was sent before, and not answered: it may be in the log."""


class Spilled(NamedTuple):
    """A frame as it was found."""

    label: Label
    place: SpillPlace
    batch: Batch


_decoder = msgspec.msgpack.Decoder(Label)
_encoder = msgspec.msgpack.Encoder()


class Spill:
    def __init__(self, path: str | os.PathLike[str], limit_bytes: int = 1024 * 1024 * 1024) -> None:
        self._fd = -1
        self.path = os.path.abspath(path)
        self.limit_bytes = limit_bytes
        self._fd = _open_locked(self.path)
        self._drained = self._sent = self._end = START
        self._live: dict[int, int] = {}
        """Position and size of every frame that is still needed, in order."""
        try:
            self.found = self._recover()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Spill {self.path}: {len(self._live)} batches>"

    def __len__(self) -> int:
        return len(self._live)

    def has_room(self, size: int) -> bool:
        return self._end + size + 1024 <= self.limit_bytes

    def append(self, batches: Sequence[tuple[Label, Buffer]]) -> list[SpillPlace]:
        """Write and sync these. Raises OSError where the disk does not take them; then nothing of them is kept."""
        position, places = self._end, []
        buffers: list[bytes] = []
        for label, data in batches:
            front = _front(label, data)
            places.append(SpillPlace(position + len(front), len(data)))
            buffers += (front, bytes(data))
            position += len(front) + len(data)
        try:
            _write_all(self._fd, b"".join(buffers), self._end)
            os.fdatasync(self._fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self._end)
            raise
        self._end = position
        self._live.update(places)
        return places

    def read(self, place: SpillPlace) -> bytes:
        data = os.pread(self._fd, place.size, place.position)
        if len(data) != place.size:
            raise DirectoryUnusable(f"{self.path} is shorter than it was: somebody else has changed it")
        return data

    def sending(self, place: SpillPlace) -> None:
        """This one is about to be sent."""
        if place.position >= self._sent:
            self._sent = place.position + place.size
            self._write_header()

    def settle(self, place: SpillPlace) -> None:
        """This one is not needed any more."""
        first = next(iter(self._live), None)
        self._live.pop(place.position, None)
        if not self._live:
            self._empty()
        elif first == place.position:
            self._drained = next(iter(self._live))
            self._write_header()

    def replace(self, batches: Iterable[tuple[Label, Buffer]]) -> list[SpillPlace]:
        """The file as if only these had ever been written, none of them sent: whole or not at all."""
        path = f"{self.path}.new"
        with suppress(FileNotFoundError):
            os.unlink(path)
        other = Spill(path, self.limit_bytes)
        try:
            places = [place for entry in batches for place in other.append([entry])]
            os.replace(path, self.path)
            _sync_directory(self.path)
        except BaseException:
            other.close()
            raise
        os.close(self._fd)
        self._fd, self._end, self._live = other._fd, other._end, other._live
        other._fd = -1
        self._drained = self._sent = START
        return places

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close

    def _empty(self) -> None:
        os.ftruncate(self._fd, START)
        self._drained = self._sent = self._end = START
        self._write_header()

    def _recover(self) -> list[Spilled]:
        size = os.fstat(self._fd).st_size
        header = os.pread(self._fd, START, 0)
        if size and header[:8] not in (MAGIC, MAGIC[: len(header)]):
            raise ConfigError("spill", f"{self.path} is no spill file")
        if size < START:
            self._empty()
            os.fsync(self._fd)
            _sync_directory(self.path)
            return []
        if _CRC.unpack_from(header, 24)[0] == crc32c(header[:24]):
            _, self._drained, self._sent = _HEADER.unpack_from(header)
        else:
            self._sent = size
        found = list(self._frames(size))
        if self._end < size:
            log.warning(
                "%s: %d bytes behind position %d are no whole batch, cut off", self.path, size - self._end, self._end
            )
            os.ftruncate(self._fd, self._end)
            os.fsync(self._fd)
        self._live = {spilled.place.position: spilled.place.size for spilled in found}
        if not found:
            self._empty()
        return found

    def _frames(self, size: int) -> Iterable[Spilled]:
        """Every whole frame that is needed; leaves `_end` behind the last whole one."""
        while self._end + _FRONT.size <= size:
            front = os.pread(self._fd, _FRONT.size, self._end)
            frame_size, head_size, crc, zeros = _FRONT.unpack(front)
            body_at = _FRONT.size + head_size + (-head_size & 7)
            if zeros or frame_size & 7 or not body_at <= frame_size <= min(FRAME_BYTES_MAX, size - self._end):
                return
            frame = os.pread(self._fd, frame_size, self._end)
            if crc32c(frame[16:], crc32c(frame[:8])) != crc:
                return
            try:
                label = _decoder.decode(frame[_FRONT.size : _FRONT.size + head_size])
                batch = Batch.parse(memoryview(frame)[body_at:])
            except (msgspec.MsgspecError, BatchError):
                return
            place = SpillPlace(self._end + body_at, frame_size - body_at)
            self._end += frame_size
            if place.position >= self._drained:
                sent = label.doubt or place.position < self._sent
                yield Spilled(msgspec.structs.replace(label, doubt=sent), place, batch)

    def _write_header(self) -> None:
        header = _HEADER.pack(MAGIC, self._drained, self._sent)
        os.pwrite(self._fd, header + _CRC.pack(crc32c(header)), 0)


@contextmanager
def spill_for(path: str | os.PathLike[str] | None, limit_bytes: int) -> Iterator[Spill | None]:
    """The file that a writer spills to, if it has one; closed again where the writer cannot be made after all."""
    file = None if path is None else Spill(path, limit_bytes)
    try:
        yield file
    except BaseException:
        if file is not None:
            file.close()
        raise


def _front(label: Label, data: Buffer) -> bytes:
    head = _encoder.encode(label)
    padded = head + bytes(-len(head) & 7)
    sizes = Struct("<II").pack(_FRONT.size + len(padded) + len(data), len(head))
    crc = crc32c(data, crc32c(padded, crc32c(sizes)))
    return sizes + _CRC.pack(crc) + bytes(4) + padded


def _open_locked(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError("spill", f"{path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_same = os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        is_same = False
    if not is_same:
        os.close(fd)
        raise ConfigError("spill", f"another writer uses {path}: each needs a file of its own")
    return fd


def _write_all(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written


def _sync_directory(path: str) -> None:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
