"""What a check finds, and what it looked at.

Only *damage* means that something once promised cannot be read, or that a log takes no writes. *Harmless* is what the
next start mends by itself; *info* is worth knowing and asks for nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "damage",
    "missing segment",
    "missing tail",
    "damaged snapshot",
    "unknown format",
    "torn tail",
    "bad index",
    "bad state",
    "leftover",
    "foreign file",
    "lost",
    "kept by repair",
    "unclean shut-down",
    "writer active",
]
Severity = Literal["damage", "harmless", "info"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a check found. Seqnos from `seqno_from` up to and not including `seqno_until`; None: not known."""

    kind: Kind
    severity: Severity
    log: str | None = None
    file: str
    position: int = 0
    seqno_from: int | None = None
    seqno_until: int | None = None
    reason: str
    advice: str
    repairable: bool = False


class Report(msgspec.Struct, kw_only=True):
    """The whole of a check."""

    path: str
    writer_active: bool = False
    logs: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = []

    @property
    def damaged(self) -> bool:
        return any(finding.severity == "damage" for finding in self.findings)
