"""Compare callables in one run: interleaved rounds, medians and spread, one table and one JSON file.

A shared machine is fast and slow by turns, so only ratios within a run mean anything: every round times each
subject once, for a short burst, and a ratio is the median of the ratios within the rounds: when the machine changes
its pace half way, it changes for both sides. The collector is off meanwhile. With `--quick` there are few rounds, and
what was recorded before is left as it is.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table

Subject = Callable[[], object]
Better = Literal["lower", "higher"]

RESULTS: Final = Path(__file__).parent / "results"
ROUNDS: Final = 200
BURST_NS: Final = 500_000
BEGAN_NS: Final = perf_counter_ns()
LOAD: Final = os.getloadavg()[0]
"""Of the minute before: what other programs did."""
QUICK: Final = "--quick" in sys.argv


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds per call: the median of all rounds, the middle half around it, and each round."""

    median_us: float
    low_us: float
    high_us: float
    rounds_us: tuple[float, ...]

    def ratio_to(self, other: Timing) -> float:
        return median(ours / theirs for ours, theirs in zip(self.rounds_us, other.rounds_us, strict=True))


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value. `ratio` is to `against`; `better` says on which side of `goal` it has to be."""

    name: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    against: str | None = None
    ratio: float | None = None
    goal: float | None = None
    better: Better = "lower"
    met: bool | None = None


def time_interleaved(subjects: Mapping[str, Subject], rounds: int = ROUNDS) -> dict[str, Timing]:
    """Time each subject in every round, in bursts of about half a millisecond."""
    calls = {name: _calls_per_burst(subject) for name, subject in subjects.items()}
    times: dict[str, list[float]] = {name: [] for name in subjects}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, subject in subjects.items():
                times[name].append(_burst(subject, calls[name]))
    finally:
        gc.enable()
    return {name: summarise(samples) for name, samples in times.items()}


def time_prepared(subjects: Mapping[str, tuple[Subject, Subject]], rounds: int = ROUNDS) -> dict[str, Timing]:
    """Time subjects that use something up: each one is prepared, untimed, and then called once, in every round."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, (prepare, subject) in subjects.items():
                prepare()
                times[name].append(_burst(subject, 1))
    finally:
        gc.enable()
    return {name: summarise(samples) for name, samples in times.items()}


def free_memory(directory: str, size: int) -> None:
    """Fill as much of it with a file, and give it back.

    A virtual machine takes memory that was not used for a while from its host, page by page: who writes files first
    would pay for all.
    """
    path = Path(directory, "freed")
    piece = bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        file.writelines(piece for _ in range(size >> 20))
    path.unlink()


def summarise(samples: list[float]) -> Timing:
    """Microseconds per call, one for each round."""
    quarters = quantiles(samples, n=4)
    return Timing(median(samples), quarters[0], quarters[2], tuple(samples))


def compare(
    name: str,
    timings: Mapping[str, Timing],
    against: str | None = None,
    goal: float | None = None,
    unit: Literal["us", "ms", "s"] = "us",
) -> Row:
    """A row of time per call, as a ratio to another subject of the same run."""
    timing = timings[name]
    ratio = timing.ratio_to(timings[against]) if against else None
    met = ratio <= goal if ratio is not None and goal is not None else None
    scale = {"us": 1, "ms": 1000, "s": 1_000_000}[unit]
    spread = (timing.low_us / scale, timing.high_us / scale)
    return Row(name, timing.median_us / scale, unit, spread, against, ratio, goal, "lower", met)


def rate(
    name: str,
    timings: Mapping[str, Timing],
    amount: float,
    against: str | None = None,
    goal: float | None = None,
    unit: str = "MB/s",
) -> Row:
    """A row of so much per microsecond, bytes for MB/s, of what one call handles; as a ratio to another of the run."""
    timing = timings[name]
    spread = (amount / timing.high_us, amount / timing.low_us)
    ratio = timings[against].ratio_to(timing) if against else None
    met = ratio >= goal if ratio is not None and goal is not None else None
    return Row(name, amount / timing.median_us, unit, spread, against, ratio, goal, "higher", met)


def best_of(timings: Mapping[str, Timing], names: Iterable[str]) -> str | None:
    """The fastest of these; None where there are none."""
    return min(names, key=lambda name: timings[name].median_us, default=None)


def report(bench: str, rows: list[Row], others: Sequence[Mapping[str, str]] = ()) -> None:
    """Print the table and write results/BENCH.json, unless this run was a quick one.

    `others` say who was measured beside us: name, versions, durability.
    """
    table = Table(title=bench)
    for heading in ("", "median", "middle half", "", "against", "ratio", "goal", "met"):
        table.add_column(heading, justify="left" if heading in ("", "against") else "right")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=150).print(table)
    if QUICK:
        return
    RESULTS.mkdir(exist_ok=True)
    content = {
        "bench": bench,
        "load": LOAD,
        "seconds": round((perf_counter_ns() - BEGAN_NS) / 1e9),
        "machine": machine(),
        **({"others": others} if others else {}),
        "rows": [_rounded(asdict(row)) for row in rows],
    }
    (RESULTS / f"{bench}.json").write_text(json.dumps(content, indent=1) + "\n")


def machine() -> dict[str, str | int | None]:
    return {
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "numpy": version("numpy"),
        "pyspark": version("pyspark"),
    }


def _calls_per_burst(subject: Subject) -> int:
    subject()
    calls = 1
    while (took := _burst(subject, calls) * calls * 1000) < BURST_NS / 4:
        calls *= 2
    return max(1, round(calls * BURST_NS / took))


def _burst(subject: Subject, calls: int) -> float:
    start = perf_counter_ns()
    for _ in range(calls):
        subject()
    return (perf_counter_ns() - start) / calls / 1000


def _cells(row: Row) -> tuple[str, ...]:
    bound = {"lower": "≤", "higher": "≥"}[row.better]
    return (
        row.name,
        f"{row.value:,.2f}",
        "" if row.spread is None else f"{row.spread[0]:,.2f} to {row.spread[1]:,.2f}",
        row.unit,
        row.against or "",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.goal is None else f"{bound} {row.goal:g}",
        {True: "yes", False: "no", None: ""}[row.met],
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(entry) for entry in value]
    return value


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
