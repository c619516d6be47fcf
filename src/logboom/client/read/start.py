"""Where a reader may be told to start, whatever it reads from, and how long a new client looks for a node."""

from __future__ import annotations

from typing import Final, Literal

At = Literal["earliest", "latest"]
Gaps = Literal["raise", "skip"]

CONNECT_PATIENCE_S: Final = 5.0
"""How long a new client looks for a node that answers."""


def check_seqno(seqno: int) -> int:
    if not isinstance(seqno, int) or not 0 <= seqno < 2**63:
        raise ValueError(f"seqno is {seqno!r}, allowed are 0 to 2^63 - 1")
    return seqno


def check_start(at: str | None, gaps: str, **starts: object) -> None:
    """Refuse two starts, and words that mean nothing."""
    if sum(start is not None for start in (*starts.values(), at)) > 1:
        raise ValueError(f"start at one of {', '.join(starts)}, at")
    if at not in (None, "earliest", "latest") or gaps not in ("raise", "skip"):
        raise ValueError(f"at is {at!r} and gaps {gaps!r}; at may be earliest or latest, gaps raise or skip")
