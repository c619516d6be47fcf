"""Progress bars on standard error, where that is a terminal and nobody asked for quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_APART: Final[dict[str, Any]] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
"""What is printed meanwhile does not go through rich, which would obey what it says."""


@contextmanager
def bytes_read(title: str, total: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """Gives what to call with each number of bytes done, or None where there is no bar."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), **_APART) as progress:
        task = progress.add_task(title, total=total)
        yield lambda size: progress.update(task, advance=size)


@contextmanager
def records_read(title: str, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """The same by records, of which nobody knows how many there will be."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), **_APART) as progress:
        task = progress.add_task(title, total=None)
        yield lambda count: progress.update(task, advance=count)
