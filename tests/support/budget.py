"""How many seconds the tests of each folder may take, from tests/budget.toml, and what a run has taken of them.

A folder without a line of its own counts to the nearest one above it that has one. Seconds are those of setup, call and
teardown, added up over all workers. Nothing fails for taking too long, because machines differ; whoever spends more
than there is reads it at the end of a run in CI. Where several runs share the cores (`make test`) each takes as many
times as long, and is allowed to: BESIDE says how many there are.
"""

from __future__ import annotations

import os
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

TESTS: Final = Path(__file__).parents[1]
FILE: Final = TESTS / "budget.toml"
BESIDE: Final = "TESTS_BESIDE"


def read_budget() -> dict[str, float]:
    """Seconds by folder, as `unit/broker`."""
    found: dict[str, float] = tomllib.loads(FILE.read_text())["seconds"]
    return found


def share_budget() -> dict[str, float]:
    """What this run may take, where others run beside it."""
    runs = int(os.environ.get(BESIDE) or 1)
    return {folder: seconds * runs for folder, seconds in read_budget().items()}


def folder_of(test: str, budget: Mapping[str, float]) -> str | None:
    """The folder that a test counts to, by its file below `tests`: None where there is none."""
    above = (str(folder) for folder in PurePosixPath(test).parents)
    return next((folder for folder in above if folder in budget), None)


class Spending:
    """What a run takes, added up by folder."""

    def __init__(self, budget: Mapping[str, float]) -> None:
        self._budget = budget
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, node_id: str, seconds: float) -> None:
        test = node_id.partition("::")[0].removeprefix("tests/")
        self._seconds[folder_of(test, self._budget) or str(PurePosixPath(test).parent)] += seconds

    def over(self) -> list[str]:
        """Folders that have taken more than they have."""
        return [folder for folder, seconds in sorted(self._seconds.items()) if seconds > self._budget.get(folder, 0.0)]

    def lines(self) -> Iterator[str]:
        yield f"{'folder':24} {'seconds':>8} {'budget':>8}"
        for folder, seconds in sorted(self._seconds.items(), key=lambda entry: -entry[1]):
            mark = "  OVER BUDGET" if folder in self.over() else ""
            yield f"{folder:24} {seconds:8.0f} {self._budget.get(folder, 0.0):8.0f}{mark}"
        yield f"{'together':24} {sum(self._seconds.values()):8.0f} {sum(self._budget.values()):8.0f}"
