"""What commands print: tables that are aligned on a terminal and tab-separated elsewhere, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import msgspec

from logboom.broker.wording import printable
from logboom.cli.show.terminal import printable_json


def show_json(value: Any, to: TextIO | None = None) -> None:
    """One indented JSON value, on standard output unless told otherwise."""
    _write_json(msgspec.json.format(_encode(value), indent=2), to or sys.stdout)


def show_json_line(value: Any) -> None:
    """One JSON value on one line."""
    _write_json(_encode(value), sys.stdout)


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a file that is no text
        return json.dumps(msgspec.to_builtins(value)).encode()


def _write_json(text: bytes, to: TextIO) -> None:
    to.write((printable_json(text.decode()) if to.isatty() else text.decode()) + "\n")


def show_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Numbers go to the right and, on a terminal, get separators."""
    if not sys.stdout.isatty():
        print("\t".join(names))
        for row in rows:
            print("\t".join(map(_plain, row)))
        return
    from rich.console import Console
    from rich.table import Table

    table, found = Table(box=None, pad_edge=False, header_style="bold"), [list(row) for row in rows]
    for number, name in enumerate(names):
        right = any(isinstance(row[number], (int, float)) for row in found)
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in found:
        table.add_row(*map(_pretty, row))
    Console(markup=False, highlight=False, emoji=False).print(table)


def show_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one pair a line."""
    found = list(pairs)
    width = max((len(name) for name, _ in found), default=0) if sys.stdout.isatty() else 0
    for name, value in found:
        print(f"{name}{' ' * (width + 2 - len(name))}{_pretty(value)}" if width else f"{name}\t{_plain(value)}")


def _plain(value: Any) -> str:
    return "-" if value is None else printable(str(value))


def _pretty(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}"
    return _plain(value)
