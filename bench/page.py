"""Writes docs/benchmarks.md and its plot from bench/results: the page says what was measured and nothing else."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from harness import RESULTS
from plot import draw

BENCH = Path(__file__).parent
PAGE = BENCH.parent / "docs" / "benchmarks.md"
PLOT = PAGE.with_suffix(".svg")
GOALS = (
    *("produce", "consume", "wire", "latency", "scale", "publish"),
    *("spark_scan", "spark_json", "spark_select", "spark_sink"),
    *("checkpoint", "archive", "verify"),
)
INTRODUCTION = """\
# Benchmarks

Made by `make bench` from `bench/results`. Each file in `bench/` answers one question, runs everything it compares in
one run, interleaved, and states the ratio to what it stands against. The machine is small, shared and noisy: believe
the ratios, and those within a tenth or two.
"""
PLOTTED = """\
## The node, Spark, the pipeline and their goals

![How far the node, Spark's source and sink, and the pipeline are from each of their goals](benchmarks.svg)

Each bar is one ratio below that has a goal: 1 is the goal, 2 is twice as good, 0.5 half as good.
"""


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    parts = [INTRODUCTION]
    if measured := {name: results[name]["rows"] for name in GOALS if name in results}:
        PLOT.write_text(draw(measured))
        parts.append(PLOTTED)
    for name, result in results.items():
        question = ast.get_docstring(ast.parse((BENCH / f"{name}.py").read_text())) or ""
        parts.append(f"## {name}\n\n{question}\n\n{_table(result['rows'])}")
        machine = result["machine"]
    parts.append("## Where\n\n" + "\n".join(f"- {name}: {value}" for name, value in machine.items()) + "\n")
    PAGE.write_text("\n".join(parts))


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| | median | | ratio | against | goal | met |", "|---|---:|---|---:|---|---|---|"]
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        bound = "≤" if row["better"] == "lower" else "≥"
        goal = "" if row["goal"] is None else f"{bound} {row['goal']:g}"
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        against = row["against"] or ""
        lines.append(f"| {row['name']} | {row['value']:,.2f} | {row['unit']} | {ratio} | {against} | {goal} | {met} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
