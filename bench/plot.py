"""Draws ratios against their goals as horizontal bars, in SVG.

All goals are brought to one scale: 1 is the goal, 2 is twice as good as asked for. The scale is logarithmic, so that
twice and half are equally far from the goal; what lies beyond its ends is drawn to the end and says its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from math import log2
from typing import Any

LABELS = 470
WIDTH = 900
LINE = 18
TOP = 44
LOW, HIGH = 0.125, 16.0
MET, MISSED, RULE, TEXT = "#2a7f8e", "#d1743c", "#cccccc", "#222222"

Rows = Iterable[Mapping[str, Any]]


def draw(benches: Mapping[str, Rows]) -> str:
    """One bar for every row with a goal, under the name of its bench."""
    parts: list[str] = []
    y = TOP
    for bench, rows in benches.items():
        judged = [row for row in rows if row["goal"] is not None and row["ratio"]]
        if not judged:
            continue
        parts.append(_text(8, y + 13, bench, bold=True))
        y += LINE
        for row in judged:
            parts.append(_bar(y, row))
            y += LINE
        y += LINE // 2
    height = y + 8
    rules = [_rule(value, height) for value in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        + _text(8, 18, "times as good as the goal", bold=True)
        + "".join(rules)
        + "".join(parts)
        + "</svg>\n"
    )


def _bar(y: int, row: Mapping[str, Any]) -> str:
    score = row["ratio"] / row["goal"] if row["better"] == "higher" else row["goal"] / row["ratio"]
    start, end = sorted((_x(1.0), _x(score)))
    bound = "at least" if row["better"] == "higher" else "at most"
    title = f"{row['name']}: {row['ratio']:.2f} of {row['against']}, {bound} {row['goal']:g}"
    label = f"{row['name']} / {row['against']}"
    return (
        f"<g><title>{escape(title)}</title>"
        + _text(16, y + 13, label if len(label) <= 76 else label[:75] + "…")
        + f'<rect x="{start:.1f}" y="{y + 3}" width="{max(1.0, end - start):.1f}" height="{LINE - 6}" '
        f'fill="{MET if row["met"] else MISSED}"/>'
        + _text(end + 4 if score >= 1 else _x(1.0) + 4, y + 13, f"{score:.2g}")
        + "</g>\n"
    )


def _rule(value: float, height: int) -> str:
    x = _x(value)
    stroke, width = (TEXT, 1.5) if value == 1 else (RULE, 1)
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{height - 8}" stroke="{stroke}" stroke-width="{width}"/>'
    return line + _text(x - 6, 26, f"{value:g}") + "\n"


def _text(x: float, y: float, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}" fill="{TEXT}"{weight}>{escape(text)}</text>\n'


def _x(score: float) -> float:
    share = log2(min(max(score, LOW), HIGH) / LOW) / log2(HIGH / LOW)
    return LABELS + share * (WIDTH - LABELS - 40)
