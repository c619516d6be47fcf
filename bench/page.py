"""Writes docs/benchmarks.md and its plot from bench/results: the page says what was measured and nothing else."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import RESULTS
from plot import draw

BENCH = Path(__file__).parent
PAGE = BENCH.parent / "docs" / "benchmarks.md"
PLOT = PAGE.with_suffix(".svg")
GOALS = (
    *("produce", "consume", "faults", "wire", "latency", "scale", "publish"),
    *("spark_scan", "spark_json", "spark_select", "spark_sink"),
    *("checkpoint", "archive", "verify"),
)
INTRODUCTION = """\
# Benchmarks
"""
METHOD = """\
## How it was measured

`make bench` runs every bench and writes this page; `make bench BENCHES="produce consume"` runs these two and writes it
anew; with `QUICK=1` there are few rounds, and nothing is recorded. `make benches` says what each one asks, and which
are quick. Each file in `bench/` answers one question, runs everything it compares in one run, interleaved, and states
the ratio to what it stands against. The machine is small, shared and noisy: believe the ratios, and those within a
tenth or two.
"""
GLANCE = """\
One Python program, one topic, one partition, on one machine over loopback. Writing counts until the last record is
acknowledged, reading until the last value is there; both in **thousand records a second**, more is better. The last
two columns are what a program waits for one record, sent alone, in **microseconds** (the median), less is better. The
others have the clients that people use for them, set up for speed.
"""
OURS = (
    ("**Logboom**, columns: `write_many`, `Reader.tables`", "", "Writer.write_many", "Reader.tables", None),
    ("**Logboom**, columns, synced", ", synced", "Writer.write_many", None, None),
    ("**Logboom**, record by record: `write`, `Reader.records`", "", "Writer.write", "Reader.records", "Writer"),
    ("**Logboom**, record by record, synced", ", synced", "Writer.write", None, "Writer"),
)
"""What it is called here, and in the names of rows: how it is kept, who writes, who reads, who sends one."""
KEPT = {"": "page cache", ", synced": "**on the disk**"}
SIZES = ("100 B", "1024 B")
PLOTTED = """\
## The node, Spark, the pipeline and their goals

![How far the node, Spark's source and sink, and the pipeline are from each of their goals](benchmarks.svg)

Each bar is one ratio below that has a goal: 1 is the goal, 2 is twice as good, 0.5 half as good.
"""

Rows = Sequence[Mapping[str, Any]]


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    parts = [INTRODUCTION, *_glance(results), METHOD]
    if measured := {name: results[name]["rows"] for name in GOALS if name in results}:
        PLOT.write_text(draw(measured))
        parts.append(PLOTTED)
    for name, result in results.items():
        question = ast.get_docstring(ast.parse((BENCH / f"{name}.py").read_text())) or ""
        parts.append(f"## {name}\n\n{question}\n\n{_table(result['rows'])}")
        machine = result["machine"]
    parts.append("## Where\n\n" + "\n".join(f"- {name}: {value}" for name, value in machine.items()) + "\n")
    PAGE.write_text("\n".join(parts))


def _glance(results: Mapping[str, Any]) -> list[str]:
    """The page's first table, of what the benches of clients have measured, and how far it is from what was asked."""
    found = [results.get(name, {"rows": []}) for name in ("produce", "consume", "latency")]
    if "others" not in found[0]:
        return []
    produce, consume, latency = (result["rows"] if "others" in result else [] for result in found)
    others = results["produce"]["others"]
    lines = [
        "| | acknowledged is | write 100 B | write 1 KiB | read 100 B | read 1 KiB | one of 100 B | one of 1 KiB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for label, kept, writer, reader, sender in OURS:
        cells = [_rate(produce, [f"{writer}{kept}, {size}"]) for size in SIZES]
        cells += [_rate(consume, [f"{reader}, {size}"]) for size in SIZES]
        cells += [_time(latency, f"{sender}{kept}, {size}, p50") for size in SIZES]
        lines.append(_line(label, KEPT[kept], *cells))
    for other in others:
        name = other["name"]
        calls = [row["name"] for row in produce if row["name"].startswith(f"{name}, ")]
        cells = [_rate(produce, [call for call in calls if call.endswith(f", {size}")]) for size in SIZES]
        cells += [_rate(consume, [f"{name}, {size}"]) for size in SIZES]
        cells += [_time(latency, f"{name}, {size}, p50") for size in SIZES]
        lines.append(_line(other["versions"], other["durability"], *cells))
    load = max(result.get("load", 0) for result in found)
    cores = results["produce"]["machine"]["cpu_count"]
    state = f"Other programs kept up to {load:.1f} of the machine's {cores} cores busy, or waiting for one.\n"
    names = tuple(other["name"] for other in others)
    asked = [
        row for row in (*produce, *consume) if row["goal"] is not None and (row["against"] or "").startswith(names)
    ]
    return [
        GLANCE,
        "\n".join(lines) + "\n",
        state,
        "What was asked for against the best of these clients:\n",
        _table(asked),
    ]


def _rate(rows: Rows, names: Sequence[str]) -> str:
    """The fastest of the rows with these names, in thousands of records a second."""
    values = {row["name"]: row["value"] for row in reversed(rows)}  # the first of a name is beside these clients
    found = [values[name] for name in names if name in values]
    return f"{max(found) * 1000:,.0f}" if found else ""


def _time(rows: Rows, name: str) -> str:
    return next((f"{row['value']:,.0f}" for row in rows if row["name"] == name), "")


def _table(rows: Rows) -> str:
    lines = ["| | median | | ratio | against | goal | met |", "|---|---:|---|---:|---|---|---|"]
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        bound = "≤" if row["better"] == "lower" else "≥"
        goal = "" if row["goal"] is None else f"{bound} {row['goal']:g}"
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        lines.append(_line(row["name"], f"{row['value']:,.2f}", row["unit"], ratio, row["against"] or "", goal, met))
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
