"""The one seam to the operating system.

Everything storage does to files goes through a `Disk`, so that tests can tear, lose, reorder and fail it. Paths are
plain strings. A `File` closes itself when the last reference goes; views of its map keep it alive.

`Disk.sync` is the group commit of the whole node: a few files get fdatasync, many get one syncfs of the volume, which
reports write-back errors since Linux 5.8. Names are durable only after their directory is synced. Whoever changes a
name that matters opens its directory first: what cannot be opened, because there are no descriptors, then changes
nothing, and only a sync that was really tried can fail.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import re
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from logboom.batch.header import Buffer
from logboom.errors import DirectoryInUse
from logboom.storage.files.mapped import map_file, populate

SYNCFS_ABOVE: Final = 8
BUFFERS_MAX: Final = 1024
"""IOV_MAX: the most buffers one write takes."""
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "gpfs", "beegfs", "virtiofs")
)


class File(Protocol):
    """An open file. Reads may be short only at the end of the file; writes may be short at any time."""

    @property
    def path(self) -> str: ...
    def size(self) -> int: ...
    def links(self) -> int: ...
    def read(self, size: int, position: int) -> bytes: ...
    def write(self, buffers: Sequence[Buffer], position: int) -> int: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def drop_cache(self) -> None: ...
    def map(self, end: int) -> memoryview: ...


class Directory(Protocol):
    """An open directory."""

    def sync(self) -> None:
        """The names in it are durable."""
        ...


class Disk(Protocol):
    def open(self, path: str) -> File: ...
    def create(self, path: str) -> File: ...
    def exists(self, path: str) -> bool: ...
    def is_directory(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]: ...
    def make_directory(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def link(self, path: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def open_directory(self, path: str) -> Directory: ...
    def sync_directory(self, path: str) -> None: ...
    def sync(self, files: Collection[File]) -> None: ...
    def free_bytes(self) -> int: ...
    def lock(self, path: str) -> File: ...


class OsFile:
    """A file of this machine."""

    __slots__ = ("_fd", "_map", "_path", "device")

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self._path = path
        self._map: memoryview | None = None
        self.device = os.fstat(self._fd).st_dev

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def links(self) -> int:
        """How many names it has."""
        return os.fstat(self._fd).st_nlink

    def read(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size:
            return data
        pieces = [data]
        while data and (size := size - len(data)):
            position += len(data)
            data = os.pread(self._fd, size, position)
            pieces.append(data)
        return b"".join(pieces)

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, buffers, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def drop_cache(self) -> None:
        """Best effort: what is read next should come from the disk, not from pages that may never have reached it."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def map(self, end: int) -> memoryview:
        """The file up to byte `end`, or to its own end. Only for bytes never cut: touching what is gone kills.

        So the size is looked at each time: a file that somebody cut all the same gives a shorter view, not a death.
        """
        end = min(end, self.size())
        mapped = self._map  # another thread may put a shorter one in its place
        if mapped is None or len(mapped) < end:
            mapped = self._map = map_file(self._fd, end) if end else memoryview(b"")
        return mapped[:end]

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class OsDirectory(OsFile):
    """A directory of this machine."""

    __slots__ = ()

    def __init__(self, path: str) -> None:
        super().__init__(path, os.O_RDONLY | os.O_DIRECTORY)

    def sync(self) -> None:
        os.fsync(self.fileno())


class OsDisk:
    """The file systems of this machine; `root` names the volume that `syncfs` and `free_bytes` speak of."""

    def __init__(self, root: str, read_only: bool = False) -> None:
        self._root = OsFile(root, os.O_RDONLY | os.O_DIRECTORY)
        self._syncfs = None if read_only else _find_syncfs(self._root.device)
        self._flags = os.O_RDONLY if read_only else os.O_RDWR

    @property
    def file_system(self) -> str | None:
        """The type of the file system, such as ext4 or nfs4; None where that cannot be told."""
        return _file_system(self._root.device)

    @classmethod
    def at(cls, root: str) -> OsDisk:
        """The disk of this directory, which is made, durably with those above it, where there is none."""
        missing, path = [], os.path.abspath(root)
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        os.makedirs(root, exist_ok=True)
        disk = cls(root)
        for path in reversed(missing):
            disk.sync_directory(os.path.dirname(path))
        return disk

    def open(self, path: str) -> OsFile:
        try:
            return OsFile(path, self._flags)
        except OSError as error:
            if error.errno not in _READ_ONLY_ERRORS:
                raise
            return OsFile(path, os.O_RDONLY)

    def create(self, path: str) -> OsFile:
        """A new, empty file; what had that name is an error."""
        return OsFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def make_directory(self, path: str) -> None:
        """The directory and those between it and the root, all of them durable, also where they were there already."""
        os.makedirs(path, exist_ok=True)
        while path != self._root.path and (parent := os.path.dirname(path)) not in ("", path):
            self.sync_directory(parent)
            path = parent

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, path: str, new: str) -> None:
        """The file has this name too; what had it is an error."""
        os.link(path, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def open_directory(self, path: str) -> Directory:
        return OsDirectory(path)

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def sync(self, files: Collection[File]) -> None:
        if len(files) > SYNCFS_ABOVE and self._syncfs is not None:
            here = [file for file in files if isinstance(file, OsFile) and file.device == self._root.device]
            if len(here) > SYNCFS_ABOVE:
                if self._syncfs(self._root.fileno()):
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error))
                done = set(map(id, here))
                files = [file for file in files if id(file) not in done]
        for file in files:
            file.sync()

    def free_bytes(self) -> int:
        volume = os.fstatvfs(self._root.fileno())
        return volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> OsFile:
        """Hold this file exclusively until it is closed or the process ends."""
        file = OsFile(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = re.search(rb'"pid":\s*(\d+)', file.read(200, 0))
            holder = f"process {int(pid[1])}" if pid else "another process"
            raise DirectoryInUse(
                f"{os.path.dirname(path)} is in use by {holder}: stop it, or use another directory"
            ) from None
        return file


NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""No descriptors or no memory for an open: it may pass, and says nothing about the file."""
_READ_ONLY_ERRORS: Final = (errno.EPERM, errno.EACCES, errno.EROFS)  # a check may run where it must not write
_SYNCFS_KERNEL: Final = (5, 17)  # before, errors of the file system's own commit were not reported
_SYNCFS_FILE_SYSTEMS: Final = ("ext4", "xfs", "btrfs", "f2fs")  # others may not reach what fdatasync reaches


def _find_syncfs(device: int) -> ctypes._NamedFuncPointer | None:
    """The system call, where it can be relied on for this device."""
    try:
        release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
        if release < _SYNCFS_KERNEL or _file_system(device) not in _SYNCFS_FILE_SYSTEMS:
            return None
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (ValueError, OSError, AttributeError):
        return None


def _file_system(device: int) -> str | None:
    """The type of the file system on this device, as /proc/self/mountinfo has it."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            front, _, back = line.partition(" - ")
            if front.split()[2] == wanted:
                return back.split()[0]
    return None


def is_network(file_system: str | None) -> bool:
    """Whether a file system of this type does not share its page cache between all who use it."""
    return file_system is not None and (file_system in _NETWORK_FILE_SYSTEMS or file_system.startswith("fuse."))


def ready_map(file: File, end: int) -> memoryview:
    """The file up to byte `end`, or to its own end, in memory. Raises OSError where it cannot be read.

    Systems that cannot say so read it when it is touched.
    """
    data = file.map(end)
    populate(data)
    return data


def read_file(disk: Disk, path: str) -> bytes | None:
    """The whole file, or None where there is none."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    return file.read(file.size(), 0)


def replace_file(disk: Disk, path: str, data: bytes, durable: bool = True) -> None:
    """Write a file so that after a crash it is whole or as it was before; if not `durable`, it may also be garbage."""
    publish_file(disk, write_aside(disk, path, data, durable), path, durable)


def write_aside(disk: Disk, path: str, data: bytes, durable: bool = True) -> str:
    """The file under a temporary name, which is returned. Nothing depends on it yet."""
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.unlink(temporary)
    file = disk.create(temporary)
    write_all(file, data)
    if durable:
        file.sync()
    return temporary


def publish_file(disk: Disk, temporary: str, path: str, durable: bool = True) -> None:
    directory = disk.open_directory(os.path.dirname(path)) if durable else None
    disk.rename(temporary, path)
    if directory is not None:
        directory.sync()


def write_all(file: File, data: Buffer, position: int = 0) -> None:
    rest = data
    while rest and (written := file.write([rest], position)) != len(rest):
        if not written:
            raise OSError(errno.EIO, "nothing was written", file.path)
        position += written
        rest = memoryview(rest)[written:]
