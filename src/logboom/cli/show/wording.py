"""Findings and counts in words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from logboom.broker.wording import printable

if TYPE_CHECKING:
    from logboom.storage.health.findings import CheckReport, Finding

__all__ = ["count_of", "describe", "printable", "seqnos_of", "summarise"]


def describe(finding: Finding, root: str) -> str:
    """Three lines: what and where, why, what to do."""
    where = os.path.relpath(finding.file, root)
    if finding.position:
        where += f" at byte {finding.position:,}"
    seqnos = seqnos_of(finding)
    what = finding.kind if finding.kind == finding.severity else f"{finding.severity}: {finding.kind}"
    first = f"{what} in {where}{f' ({seqnos})' if seqnos else ''}"
    return f"{first}\n    {finding.reason}\n    to do: {finding.advice}"


def seqnos_of(finding: Finding) -> str:
    start, until = finding.seqno_from, finding.seqno_until
    if start is None or start == until:
        return ""
    if until is None:
        return f"from seqno {start}"
    return f"seqno {start}" if until == start + 1 else f"seqnos {start} to {until - 1}"


def summarise(report: CheckReport) -> str:
    counts = ", ".join(
        count_of(number, noun)
        for number, noun in (
            (report.logs, "log"),
            (report.segments, "segment"),
            (report.batches, "batch"),
            (report.records, "record"),
            (report.bytes, "byte"),
        )
    )
    severities = [finding.severity for finding in report.findings]
    verdict = "damaged" if report.damaged else "sound"
    rest = ", ".join(
        f"{number} {word}" for word in ("damage", "harmless", "info") if (number := severities.count(word))
    )
    return f"{counts}: {verdict}{f' (findings: {rest})' if rest else ''}"


def count_of(number: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
