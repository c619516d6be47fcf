"""What commands print: tables that are aligned on a terminal and tab-separated elsewhere, and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from logboom.cli.wording import printable


def show_json(value: Any) -> None:
    """One indented JSON value."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


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
