"""How far a job has come, on standard error, where that is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logboom.broker.wording import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from logboom.spark.jobs.lease import Progress


class Screen:
    """What is to be shown now."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._waiting = ""
        self._progress: Progress | None = None

    def wait(self, runner: str, rest_s: float) -> None:
        self._waiting = f"{self._job}: {runner} runs it; taken over in {rest_s:.0f} s if nothing is heard of it"

    def begin(self, progress: Progress) -> None:
        self._progress = progress

    def render(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        def text(words: str) -> Text:
            return Text(printable(words))

        progress = self._progress
        line = Table.grid(padding=(0, 1))
        if progress is None:
            line.add_row(Spinner("dots"), text(self._waiting or f"{self._job}: begins"))
        elif progress.total:
            bar = ProgressBar(progress.total, min(progress.done, progress.total), width=30)
            line.add_row(text(f"{self._job}: {progress.doing}"), bar, f"{progress.done:,} of {progress.total:,}")
        else:
            line.add_row(Spinner("dots"), text(f"{self._job}: {progress.doing or 'runs'}"))
        return line


@contextmanager
def shown_progress(job: str, wanted: bool) -> Iterator[Screen]:
    screen = Screen(job)
    if not wanted or not sys.stderr.isatty():
        yield screen
        return
    from rich.console import Console
    from rich.live import Live

    # Spark is started with another standard error for a moment: this one stays.
    with os.fdopen(os.dup(2), "w") as terminal:
        console = Console(file=terminal)
        with Live(
            get_renderable=screen.render, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        ):
            yield screen
