r"""`logboom read --format '%t/%p %o: %k %s\n'`: text around what is known of each record, in kcat's letters and more.

    %s value              %S its size in bytes, -1 for a tombstone       %h headers, name=value with commas
    %k key                %K its size, -1 where there is none            %c channel        %g tags, with commas
    %t topic              %p partition         %o seqno                  %%  a percent sign
    %T timestamp, ms      %U timestamp, us     %I timestamp, ISO 8601    \n \r \t \0 \\ \xNN  these bytes

Bytes come out as they are, and nothing is added: no line end that the format does not name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from logboom.batch.moment import rfc3339
from logboom.cli.records.record_source import escaped_bytes
from logboom.errors import ConfigError

OPTION: Final = "--format"
_PART: Final = re.compile(r"%(.|$)|\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _number(number: int) -> bytes:
    return b"%d" % number


def _text(text: str | None) -> bytes:
    return (text or "").encode()


def _headers(headers: Sequence[tuple[str, bytes]] | None) -> bytes:
    return b",".join(b"%b=%b" % (name.encode(), content) for name, content in headers or ())


TOKENS: Final[dict[str, tuple[str, Callable[[Any], bytes]]]] = {
    "s": ("value", lambda value: value or b""),
    "S": ("value", _size),
    "k": ("key", lambda key: key or b""),
    "K": ("key", _size),
    "t": ("topic", _text),
    "p": ("partition", _number),
    "o": ("seqno", _number),
    "T": ("timestamp", lambda moment: b"%d" % (moment // 1000)),
    "U": ("timestamp", _number),
    "I": ("timestamp", lambda moment: str(rfc3339(moment)).encode()),
    "c": ("channel", _text),
    "g": ("tags", lambda tags: ",".join(tags or ()).encode()),
    "h": ("headers", _headers),
}
"""Each token's column, and what is printed of an entry of it."""


class OutputFormat:
    """A format, taken apart once. Raises ConfigError, which names the token that there is not."""

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | tuple[int, Callable[[Any], bytes]]] = []
        columns: list[str] = []
        at = 0
        for match in _PART.finditer(text):
            self._add(os.fsencode(text[at : match.start()]))
            at = match.end()
            if match[2] is not None:
                self._add(escaped_bytes(OPTION, match[2]))
            elif match[1] == "%":
                self._add(b"%")
            else:
                column, show = _token(match[1])
                if column not in columns:
                    columns.append(column)
                self._parts.append((columns.index(column), show))
        self._add(os.fsencode(text[at:]))
        self.columns: tuple[str, ...] = tuple(columns) or ("value",)

    def _add(self, text: bytes) -> None:
        if text:
            self._parts.append(text)

    def rows(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """Of each record; the columns are its own, in their order."""
        made = [part if isinstance(part, bytes) else list(map(part[1], columns[part[0]])) for part in self._parts]
        count = len(columns[0])
        return [b"".join(part if isinstance(part, bytes) else part[row] for part in made) for row in range(count)]


def _token(letter: str) -> tuple[str, Callable[[Any], bytes]]:
    if letter not in TOKENS:
        known = " ".join(f"%{one}" for one in TOKENS)
        raise ConfigError(OPTION, f"has %{letter}, which means nothing: there are {known} %%")
    return TOKENS[letter]
