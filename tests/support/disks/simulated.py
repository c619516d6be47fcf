"""A disk that misbehaves on request: tears, loses, reorders, fails, and lies after a failed sync.

It keeps two truths per file: what the page cache shows and what is on the platter, with the unsynced operations between
them. `power_loss` builds the disk a machine might find afterwards: of each file's unsynced operations any subset has
happened, a write perhaps only in part; of unsynced changes of names any subset too. A killed process is simply a new
user of the same disk. A failed sync is as Linux does it: the pages count as clean, the cache goes on showing them, and
the platter never gets them.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from logboom.errors import DirectoryInUse
from logboom.storage.files.disk import File

UNCOUNTED = ("read", "open", "open_directory")
"""Calls that change nothing: a fault may look at them, but their number is -1."""


class PowerLoss(BaseException):
    """The machine is gone in the middle of a call. Not an Exception, so that nothing handles it."""


@dataclass
class Write:
    position: int
    data: bytes


@dataclass
class Truncate:
    size: int


Operation = Write | Truncate


@dataclass
class Inode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)


@dataclass
class Rename:
    old: str | None
    new: str | None
    inode: Inode
    """Created where `old` is None, unlinked where `new` is None."""


@dataclass
class MoveDirectory:
    old: str
    new: str

    def moved(self, path: str) -> str:
        return self.new + path[len(self.old) :] if path == self.old or path.startswith(f"{self.old}/") else path


@dataclass(frozen=True)
class Call:
    """What is about to happen: the number of this call, its name, the path, and how many bytes it writes."""

    number: int
    name: str
    path: str
    size: int = 0


Fault = Callable[[Call], int | None]
"""Looks at a call before it happens. May raise OSError or PowerLoss; a number makes a write short."""


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self.inode = inode

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return len(self.inode.cached)

    def links(self) -> int:
        return sum(inode is self.inode for inode in self._disk.names.values())

    def read(self, size: int, position: int) -> bytes:
        self._disk.call("read", self._path)
        return bytes(self.inode.cached[position : position + size])

    def write(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        data = b"".join(buffers)
        try:
            short = self._disk.call("write", self._path, len(data))
        except PowerLoss as loss:
            if loss.args:
                self._apply(Write(position, data[: loss.args[0]]))
            raise
        data = data[:short]
        self._apply(Write(position, data))
        return len(data)

    def truncate(self, size: int) -> None:
        self._disk.call("truncate", self._path)
        self._apply(Truncate(size))

    def _apply(self, operation: Operation) -> None:
        apply(self.inode.cached, operation)
        self.inode.unsynced.append(operation)

    def sync(self) -> None:
        """What was written before: what others write while it lasts may as well be lost."""
        inode = self.inode
        begun = list(inode.unsynced)
        try:
            self._disk.call("sync", self._path)
        except OSError:
            inode.unsynced.clear()
            raise
        written = set(map(id, begun))
        for operation in inode.unsynced:
            if id(operation) in written:
                apply(inode.durable, operation)
        inode.unsynced[:] = [operation for operation in inode.unsynced if id(operation) not in written]

    def drop_cache(self) -> None:
        if not self.inode.unsynced:
            self.inode.cached[:] = self.inode.durable

    def map(self, end: int) -> memoryview:
        return memoryview(bytes(self.inode.cached[:end]))


class SimulatedDirectory:
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_names(self._path)


class LockFile(SimulatedFile):
    """Held as long as it is open."""

    def __del__(self) -> None:
        self._disk.unlock(self._path)


def apply(content: bytearray, operation: Operation) -> None:
    if isinstance(operation, Truncate):
        if operation.size <= len(content):
            del content[operation.size :]
        else:
            content.extend(bytes(operation.size - len(content)))
        return
    end = operation.position + len(operation.data)
    if not operation.data:
        return
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[operation.position : end] = operation.data


class SimulatedDisk:
    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.unsynced_names: list[Rename | MoveDirectory] = []
        self.directories: set[str] = {"/"}
        self.free = 1 << 40
        self.fault: Fault | None = None
        self.calls = 0
        self._locked: set[str] = set()

    def call(self, name: str, path: str, size: int = 0) -> int | None:
        if name in UNCOUNTED:
            return self.fault(Call(-1, name, path)) if self.fault else None
        self.calls += 1
        return self.fault(Call(self.calls, name, path, size)) if self.fault else None

    def open(self, path: str) -> SimulatedFile:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.call("open", path)
        return SimulatedFile(self, path, self.names[path])

    def create(self, path: str) -> SimulatedFile:
        self.call("create", path)
        if path in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        inode = Inode()
        self.names[path] = inode
        self.unsynced_names.append(Rename(None, path, inode))
        return SimulatedFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def list(self, path: str) -> list[str]:
        prefix = path + "/"
        below = [name[len(prefix) :] for name in (*self.names, *self.directories) if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in below})

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def make_directory(self, path: str) -> None:
        self.call("open_directory", os.path.dirname(path))
        while path and path not in self.directories:
            self.directories.add(path)
            path = os.path.dirname(path)

    def remove_directory(self, path: str) -> None:
        self.call("remove_directory", path)
        if any(name.startswith(f"{path}/") for name in (*self.names, *self.directories)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.directories.discard(path)

    def rename(self, old: str, new: str) -> None:
        self.call("rename", new)
        if old in self.directories:
            self._rename_directory(old, new)
            return
        inode = self.names.pop(old)
        self.names[new] = inode
        self.unsynced_names.append(Rename(old, new, inode))

    def link(self, path: str, new: str) -> None:
        self.call("link", new)
        if new in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        inode = self.names[new] = self.names[path]
        self.unsynced_names.append(Rename(None, new, inode))

    def _rename_directory(self, old: str, new: str) -> None:
        """All names below it at once: it is one entry that changes."""
        move = MoveDirectory(old, new)
        self.directories = {move.moved(path) for path in self.directories}
        apply_name(self.names, move)
        self.unsynced_names.append(move)

    def unlink(self, path: str) -> None:
        self.call("unlink", path)
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.unsynced_names.append(Rename(path, None, self.names.pop(path)))

    def open_directory(self, path: str) -> SimulatedDirectory:
        self.call("open_directory", path)
        return SimulatedDirectory(self, path)

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def sync_names(self, path: str) -> None:
        self.call("sync_directory", path)
        rest = []
        for change in self.unsynced_names:
            if os.path.dirname(change.new or change.old or "") == path:
                apply_name(self.durable_names, change)
            else:
                rest.append(change)
        self.unsynced_names = rest

    def sync(self, files: Collection[File]) -> None:
        for file in files:
            file.sync()

    def free_bytes(self) -> int:
        return self.free

    def lock(self, path: str) -> SimulatedFile:
        if path in self._locked:
            raise DirectoryInUse(f"{os.path.dirname(path)} is in use by another process")
        self._locked.add(path)
        return LockFile(self, path, (self.open(path) if path in self.names else self.create(path)).inode)

    def unlock(self, path: str) -> None:
        self._locked.discard(path)

    def kill(self) -> None:
        """The process is gone; what it wrote is still in the cache."""
        self._locked.clear()
        self.fault = None

    def power_loss(self, choose: random.Random) -> SimulatedDisk:
        """One of the disks that a power loss may leave, picked by chance."""

        def survives(operation: Operation) -> Operation | None:
            fate = choose.random()
            if fate < 0.4:
                return None
            if fate < 0.7 or isinstance(operation, Truncate):
                return operation
            return Write(operation.position, operation.data[: choose.randrange(len(operation.data) + 1)])

        return self._after(survives, lambda change: choose.random() < 0.5)

    def power_losses(self) -> Iterator[SimulatedDisk]:
        """Every disk a power loss may leave where each unsynced operation has either happened or not."""
        operations = [operation for inode in self._inodes() for operation in inode.unsynced]
        for fates in product((False, True), repeat=len(operations) + len(self.unsynced_names)):
            fate = dict(zip([*map(id, operations), *map(id, self.unsynced_names)], fates, strict=True))
            yield self._after(
                lambda operation, fate=fate: operation if fate[id(operation)] else None,  # type: ignore[misc]
                lambda change, fate=fate: fate[id(change)],  # type: ignore[misc]
            )

    def _inodes(self) -> Collection[Inode]:
        changed = (change.inode for change in self.unsynced_names if isinstance(change, Rename))
        inodes = [*self.names.values(), *self.durable_names.values(), *changed]
        return {id(inode): inode for inode in inodes}.values()

    def _after(
        self, survives: Callable[[Operation], Operation | None], keeps: Callable[[Rename | MoveDirectory], bool]
    ) -> SimulatedDisk:
        left = SimulatedDisk()
        left.directories = set(self.directories) | {
            os.path.dirname(change.old) for change in self.unsynced_names if isinstance(change, MoveDirectory)
        }
        left.free = self.free
        content: dict[int, Inode] = {}
        for inode in self._inodes():
            durable = bytearray(inode.durable)
            for operation in inode.unsynced:
                survivor = survives(operation)
                if survivor is not None:
                    apply(durable, survivor)
            content[id(inode)] = Inode(bytearray(durable), durable)
        names = dict(self.durable_names)
        for change in self.unsynced_names:
            if keeps(change):
                apply_name(names, change)
        for path in names:
            left.make_directory(os.path.dirname(path))
        left.names = {path: content[id(inode)] for path, inode in names.items()}
        left.durable_names = dict(left.names)
        return left


def apply_name(names: dict[str, Inode], change: Rename | MoveDirectory) -> None:
    if isinstance(change, MoveDirectory):
        for path in list(names):
            if (moved := change.moved(path)) != path:
                names[moved] = names.pop(path)
        return
    if change.old is not None and names.get(change.old) is change.inode:
        del names[change.old]
    if change.new is not None:
        names[change.new] = change.inode
