"""Where a reader of several logs stands in one of them."""

from __future__ import annotations

from typing import NamedTuple


class LogPosition(NamedTuple):
    """Where a reader stands in one log."""

    topic: str
    partition: int
    seqno: int | None
    """What is read next; None until the node has said where that is."""
    first: int
    committed: int
    """As the node last said: the first readable seqno, and the one behind the last."""
