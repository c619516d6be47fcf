"""What is shown: a line for what was done, commands with what they print, and how far the writers are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False)

    def done(self, what: str, text: str, mark: str = "[green]✓[/]") -> None:
        self.console.print(f"{mark} [bold]{what:<10}[/]{text}", soft_wrap=True)

    def shown(self, command: str, output: str) -> None:
        self._print_with("$ logboom " + command, output)

    def said(self, line: str, output: str) -> None:
        """What a line of Python says."""
        self._print_with(">>> " + line, output)

    def _print_with(self, line: str, output: str) -> None:
        self.console.print("\n" + line, style="bold cyan", markup=False, soft_wrap=True)
        self.console.print(output, style="dim", markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def bar(self, total: int) -> Iterator[Callable[[int], None]]:
        columns = TextColumn("  [cyan]promised"), BarColumn(bar_width=50), TaskProgressColumn()
        disabled = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=disabled) as progress:
            task = progress.add_task("", total=total)
            yield lambda done: progress.update(task, completed=done)
