"""A file in memory, read-only, also while it grows.

Python's own maps hold a descriptor each (before 3.13) and may not reach beyond the end of the file. These hold none,
and may: what is appended later shows in them, so one map serves a file until it is much larger. A map goes when its
last view does.

Touching bytes behind the end of the file kills the process, and so does touching a block that its device cannot read.
So a view is handed out only of bytes that are there and that nobody ever cuts: whoever maps knows that they are
committed. And whoever touches bytes that may not be in memory calls `populate` before, for which both are an error. To
ask whether they are there costs much less than to bring them; but the system tells only who owns a file or may write
to it, and everybody else that all is there.
What it brought into memory may leave it again: a block that could be read then, and cannot be read a moment later,
still kills.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from typing import Any, Final

_GROWTH_BYTES_MAX: Final = 64 * 1024 * 1024
_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_mincore = getattr(_libc, "mincore", None)
if _mincore is not None:
    _mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_madvise = getattr(_libc, "madvise", None)
if _madvise is not None:
    _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_POPULATE_READ: Final = 22
"""MADV_POPULATE_READ, since Linux 5.14."""
_UNKNOWN: Final = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ENOMEM)


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer: where the memory of an object lies. What follows the first three fields is not looked at."""

    _fields_ = (
        ("address", ctypes.c_size_t),
        ("object", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
        ("rest", ctypes.c_void_p * 8),
    )


def map_file(fd: int, size: int) -> memoryview:
    """The file from its start, at least `size` bytes far; more than it has today."""
    length = size + min(size, _GROWTH_BYTES_MAX)
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    memory: Any = (ctypes.c_ubyte * length).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, length).atexit = False
    view = memoryview(memory).cast("B").toreadonly()
    memory.is_told = not resident(view[-1:])
    """Whether the system tells what is there: behind the end of the file there is nothing."""
    return view


def resident(view: memoryview) -> bool:
    """Whether touching these bytes waits for no disk. Also True where nobody can tell."""
    if not view.nbytes or _mincore is None:
        return True
    first, size = _pages(view)
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    return bool(_mincore(first, size, pages)) or 0 not in bytes(pages)


def populate(view: memoryview) -> bool:
    """Bring these bytes into memory, so that touching them is safe; False where the system does not do that.

    Raises OSError where they cannot be read.
    """
    if not view.nbytes or (getattr(view.obj, "is_told", False) and resident(view)):
        return True
    if _madvise is None:
        return False
    while _madvise(*_pages(view), _POPULATE_READ):
        error = ctypes.get_errno()
        if error in _UNKNOWN:
            return False
        if error != errno.EINTR:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    return True


def _pages(view: memoryview) -> tuple[int, int]:
    """Where the pages begin that hold these bytes, and how far they reach."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    first = buffer.address & -mmap.PAGESIZE
    size = buffer.address + buffer.size - first
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return first, size
