"""Where results are kept: a directory of this machine, or of any store that pyarrow knows (`s3://`, `gs://`, …).

A file is there whole or not at all, because it gets its name last. Nothing else is asked of a place: no renames of
directories, no locks, and no lists but to find what can go.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import crc32c

from logboom.errors import ResultsUnreadable
from logboom.results.pipeline_state import ResultFile

if TYPE_CHECKING:
    from pyarrow import NativeFile

UNFINISHED: Final = ".unfinished-"
"""What the name of a file begins with that is being written."""


def describe_change(size: int, published: int) -> str:
    """Of a file whose bytes, or their checksum, are not those that were published."""
    if size != published:
        return f"is not what was published: it has {size:,} bytes, of {published:,}"
    return f"is not what was published: its checksum differs, in {size:,} bytes"


class ResultPlace:
    """A directory for results, and what is below it."""

    def __init__(self, uri: str) -> None:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem, LocalFileSystem

        front, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
        try:
            if "://" in uri:
                self._files, self._root = FileSystem.from_uri(uri)
            else:
                self._files, self._root = LocalFileSystem(), os.path.abspath(uri)
        except (ArrowException, OSError, ValueError) as error:
            raise ResultsUnreadable(f"{uri} is no place for results: {error}") from None
        self._root = self._root.rstrip("/")
        self.is_local = isinstance(self._files, LocalFileSystem)
        self._front = self._root if self.is_local else front.rstrip("/")
        self._query = "" if self.is_local else mark + query

    @property
    def uri(self) -> str:
        """What to call it; another process finds the same under this name."""
        return self._front + self._query

    def __repr__(self) -> str:
        return f"<Place {self.uri}>"

    def below(self, path: str) -> ResultPlace:
        """A directory in it; it need not be there yet."""
        found = ResultPlace.__new__(ResultPlace)
        found._files, found.is_local, found._query = self._files, self.is_local, self._query
        found._root, found._front = f"{self._root}/{path}", f"{self._front}/{path}"
        return found

    def above(self, levels: int) -> ResultPlace:
        """The directory that it is so far below."""
        found = ResultPlace.__new__(ResultPlace)
        found._files, found.is_local, found._query = self._files, self.is_local, self._query
        found._root, found._front = (path.rsplit("/", levels)[0] for path in (self._root, self._front))
        return found

    @property
    def name(self) -> str:
        """The last part of what it is called."""
        return str(self._root.rpartition("/")[2])

    @contextmanager
    def writing(self, path: str) -> Iterator[NativeFile]:
        """A new file, which is there when the block ends without an error. One of that name gives way to it."""
        target = PurePosixPath(self._root, path)
        name = str(target.with_name(f"{UNFINISHED}{uuid.uuid4().hex}"))
        if self.is_local:
            _make_directory(str(target.parent))
        stream = self._files.open_output_stream(name)
        try:
            yield stream
            stream.close()
            if self.is_local:
                _sync(name)
                os.replace(name, target)
                _sync(str(target.parent))
            else:
                self._files.move(name, str(target))
        except BaseException:
            # A stream to a store puts what it has when it goes: it goes first.
            with suppress(Exception):
                stream.close()
            with suppress(Exception):
                self._files.delete_file(name)
            raise

    def write(self, path: str, data: bytes) -> ResultFile:
        with self.writing(path) as stream:
            stream.write(data)
        return ResultFile(path, len(data), crc32c.crc32c(data))

    def read(self, file: ResultFile) -> bytes:
        """What was stored. Raises ResultsUnreadable where that is not what is there, and tells nothing more of it."""
        differs = ResultsUnreadable(f"{self.uri}/{file.path} is not what was published")
        if self.size(file.path) not in (file.size, None):
            raise differs
        try:
            with self.open(file.path) as stream:
                data: bytes = stream.read(file.size + 1)
        except OSError as error:
            raise ResultsUnreadable(f"{self.uri}/{file.path} cannot be read: {error}") from None
        if (len(data), crc32c.crc32c(data)) != (file.size, file.crc):
            if len(data) != file.size:
                raise differs
            raise ResultsUnreadable(f"{self.uri}/{file.path} {describe_change(len(data), file.size)}")
        return data

    def open(self, path: str) -> Any:
        """A file to read from anywhere in it. Raises ResultsUnreadable."""
        self._check_below(path)
        if self.is_local and os.path.exists(f"{self._root}/{path}") and not os.path.isfile(f"{self._root}/{path}"):
            raise ResultsUnreadable(f"{self.uri}/{path} is no file")
        try:
            return self._files.open_input_file(f"{self._root}/{path}")
        except OSError as error:
            raise ResultsUnreadable(f"{self.uri}/{path} cannot be read: {error}") from None

    def size(self, path: str) -> int | None:
        """Of a file; None where there is none. Raises ResultsUnreadable where that cannot be told."""
        self._check_below(path)
        try:
            found = self._files.get_file_info(f"{self._root}/{path}")
        except OSError as error:
            raise ResultsUnreadable(f"{self.uri}/{path} cannot be read: {error}") from None
        return found.size if found.is_file else None

    def _check_below(self, path: str) -> None:
        """Paths come from what others have written."""
        if ".." in path.split("/"):
            raise ResultsUnreadable(f"{self.uri}/{path} is not below {self.uri}")

    def list(self, path: str = "", recursive: bool = False) -> list[str]:
        """Names in a directory, sorted, directories with a slash at the end; none where it is not there."""
        from pyarrow.fs import FileSelector, FileType

        root = f"{self._root}/{path}".rstrip("/")
        found = self._files.get_file_info(FileSelector(root, allow_not_found=True, recursive=recursive))
        return sorted(info.path[len(root) + 1 :] + "/" * (info.type == FileType.Directory) for info in found)

    def remove(self, path: str) -> bool:
        """A file, or a directory with all that is in it. Whether it was there."""
        from pyarrow.fs import FileType

        found = self._files.get_file_info(f"{self._root}/{path}".rstrip("/"))
        with suppress(FileNotFoundError):
            if found.type == FileType.Directory:
                self._files.delete_dir(found.path)
            elif found.type != FileType.NotFound:
                self._files.delete_file(found.path)
        return bool(found.type != FileType.NotFound)


def _make_directory(path: str) -> None:
    """With all that are above it, so that a power failure leaves them there."""
    missing = []
    above = path
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(path, exist_ok=True)
    for made in missing:
        _sync(os.path.dirname(made))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
