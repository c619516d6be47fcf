"""What a terminal is given: text as it is, and never what it would obey.

Records, names, reasons and errors were written by others. Where standard output or standard error is a terminal,
everything that is printed goes through a `Guarded` stream, which shows what is not printable as an escape: control
characters of both sets, so that no sequence begins, and what changes the direction of writing. Line ends and tabs stay.
What is piped or written to a file stays byte by byte what it was. Rich draws its own sequences past the guard: whatever
is handed to it goes through `printable` first, as Text, which has no markup.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO


class Guarded(io.TextIOWrapper):
    """A terminal's stream, for whatever text."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
        self.rich_proxied_file = stream
        """Where rich writes instead, as it does for its own streams."""

    def write(self, text: str, /) -> int:
        from logboom.broker.wording import printable_lines  # nothing of it is needed to show the help

        super().write(printable_lines(text))
        return len(text)


class _Named(io.FileIO):
    """A descriptor whose errors say what it is."""

    def __init__(self, fd: int, title: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self._title = title

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._title
            raise


def name_streams() -> None:
    """From now on what cannot be written to standard output is an error that names it."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        raw = io.BufferedWriter(_Named(sys.stdout.fileno(), "standard output"))
        sys.stdout = io.TextIOWrapper(
            raw, sys.stdout.encoding, sys.stdout.errors, line_buffering=sys.stdout.line_buffering
        )


def guard() -> None:
    """From now on, of both standard streams, where they are terminals."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def _guarded(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, Guarded):
        return stream
    if stream.isatty():
        return Guarded(stream)
    # Elsewhere the name of a file that is no text comes out as its bytes, and what the encoding lacks as an escape.
    stream.reconfigure(errors="surrogateescape" if stream.encoding == "utf-8" else "backslashreplace")
    return stream


def printable_json(text: str) -> str:
    """The same JSON, with nothing in it that a terminal would obey.

    >>> printable_json('["' + chr(0x9B) + '31m"]'), printable_json('"' + chr(0xE0001) + '"')
    ('["\\\\u009b31m"]', '"\\\\udb40\\\\udc01"')
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
