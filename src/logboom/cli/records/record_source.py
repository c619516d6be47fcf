"""What `logboom write` makes records of: arguments, lines of a file, what a delimiter ends, or whole files.

What is longer than any record may be is not read to its end, so memory does not depend on the input.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from logboom.batch import BATCH_SIZE_MAX
from logboom.cli.show.progress import bytes_read
from logboom.errors import BatchTooLarge, ConfigError, InvalidColumn

PROGRESS_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 2 * BATCH_SIZE_MAX
"""What is longer is no record, also not as base64 in JSON."""
DELIMITER_BYTES_MAX: Final = 1024
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_LETTERS: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


class GivenRecords(NamedTuple):
    title: str
    """What one of them is called."""
    entries: Iterator[bytes]


@contextmanager
def opened_source(
    values: Sequence[str], file: Path | None, whole: Sequence[Path] | None, delimiter: str | None, progress: bool
) -> Iterator[GivenRecords]:
    given = [name for name, one in (("arguments", values), ("--file", file), ("--whole", whole)) if one]
    if len(given) > 1:
        raise ConfigError(given[-1], f"values come from {given[0]} or from {given[-1]}, not from both")
    ends = None if delimiter is None else parse_delimiter("--delimiter", delimiter)
    if ends is not None and (values or whole):
        raise ConfigError("--delimiter", f"is for standard input and --file; {given[0]} are records already")
    if values:
        yield GivenRecords("value", (os.fsencode(value) for value in values))
    elif whole:
        yield GivenRecords("file", map(_read_whole, whole))
    elif file is not None and str(file) != "-":
        with open(file, "rb") as source, bytes_read("writing", os.fstat(source.fileno()).st_size, progress) as advance:
            yield _source(source, ends, advance)
    else:
        if sys.stdin.isatty():
            print("one record a line; Ctrl-D ends", file=sys.stderr)
        yield _source(sys.stdin.buffer, ends, None)


def parse_delimiter(option: str, text: str) -> bytes:
    """With its escapes as the bytes they stand for. Raises ConfigError.

    >>> parse_delimiter("-D", r"\\0"), parse_delimiter("-D", r"\\x1e|")
    (b'\\x00', b'\\x1e|')
    """
    found, at = b"", 0
    for match in _ESCAPE.finditer(text):
        found += os.fsencode(text[at : match.start()]) + escaped_bytes(option, match[1])
        at = match.end()
    found += os.fsencode(text[at:])
    if not 0 < len(found) <= DELIMITER_BYTES_MAX:
        raise ConfigError(option, f"has {len(found):,} bytes, allowed are 1 to {DELIMITER_BYTES_MAX:,}")
    return found


def escaped_bytes(option: str, letters: str) -> bytes:
    """What a backslash and these letters stand for."""
    if len(letters) == 3:
        return bytes.fromhex(letters[1:])
    if letters not in _LETTERS:
        raise ConfigError(option, f"has \\{letters}, which means nothing: there are \\n \\r \\t \\0 \\\\ and \\xNN")
    return _LETTERS[letters]


def _read_whole(path: Path) -> bytes:
    if str(path) == "-":
        data = sys.stdin.buffer.read(BATCH_SIZE_MAX + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(BATCH_SIZE_MAX + 1)
    if len(data) > BATCH_SIZE_MAX:
        raise BatchTooLarge(len(data), BATCH_SIZE_MAX)
    return data


def _source(source: IO[bytes], ends: bytes | None, advance: Callable[[int], None] | None) -> GivenRecords:
    entries = _lines(source) if ends in (None, b"\n") else _pieces(source, ends or b"\n")
    return GivenRecords("line" if ends is None else "record", _counted(entries, len(ends or b"\n"), advance))


def _counted(entries: Iterator[bytes], more: int, advance: Callable[[int], None] | None) -> Iterator[bytes]:
    done = 0
    for entry in entries:
        yield entry
        done += len(entry) + more
        if advance is not None and done >= PROGRESS_BYTES:
            advance(done)
            done = 0


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise _too_long("line")
        yield line[:-1] if line.endswith(b"\n") else line


def _pieces(source: IO[bytes], ends: bytes) -> Iterator[bytes]:
    """What a delimiter ends, as soon as it has come; and the rest, if there is any."""
    take = getattr(source, "read1", source.read)
    rest = bytearray()
    while chunk := take(CHUNK_BYTES):
        looked = max(0, len(rest) - len(ends) + 1)
        rest += chunk
        start = 0
        while (at := rest.find(ends, max(start, looked))) >= 0:
            yield bytes(rest[start:at])
            start = looked = at + len(ends)
        del rest[:start]
        if len(rest) > LINE_BYTES_MAX:
            raise _too_long("record")
    if rest:
        yield bytes(rest)


def _too_long(title: str) -> InvalidColumn:
    return InvalidColumn(title, f"has more than {LINE_BYTES_MAX:,} bytes, which no record may have")
