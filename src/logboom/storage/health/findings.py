"""What a check or a doctor finds, and what it looked at.

Only *damage* means that something once promised cannot be read, or that a log takes no writes. A *warning* is wrong
too, and somebody has to act, but no record is lost yet. *Harmless* is what the next start mends by itself; *info*
is worth knowing and asks for nothing.
"""

from __future__ import annotations

import os
from typing import Literal, get_args

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
    "term owed",
    "unfinished publish",
    "writer active",
    "bad node file",
    "missing state",
    "bad topic",
    "two topics",
    "unfinished topic",
    "extra partition",
    "missing log",
    "slot without a topic",
    "trash",
    "failing hook",
    "unknown hook",
    "validator not allowed",
    "bad hook queue",
    "bad scrub ledger",
    "found by a scrub",
    "near the hard limit",
    "low space",
    "permissions",
    "read-only",
    "unreadable",
    "network file system",
    "low limit",
]
Severity = Literal["damage", "warning", "harmless", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The worst first."""


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

    def __post_init__(self) -> None:
        """A file's name may be any bytes: a finding can always be printed and encoded."""
        for name in ("log", "file", "reason", "advice"):
            said = getattr(self, name)
            if said is not None and not said.isascii():
                msgspec.structs.force_setattr(self, name, os.fsencode(said).decode("utf-8", "backslashreplace"))


class CheckReport(msgspec.Struct, kw_only=True):
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


class Diagnosis(CheckReport, kw_only=True):
    """The whole of a doctor's examination. A quick one counts neither batches nor records."""

    quick: bool = False
    topics: int = 0
    bytes_read: int = 0
    """Of all the bytes of the logs."""
    free_bytes: int = 0

    @property
    def wrong(self) -> bool:
        return any(finding.severity in ("damage", "warning") for finding in self.findings)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
