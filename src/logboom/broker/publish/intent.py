"""What is kept of a publish in `_publish`: while it is open the intent, then what it has put where.

Written by the node alone. Fields are added at the end, with defaults, so that a later node reads what an earlier one
has written; the offline tools read the first of them (`storage/staged/unfinished.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from logboom.broker.api import PublishedPart
from logboom.broker.state.cursors import CursorEntry
from logboom.storage.staged.stage import StageTarget

TOPICS_KEPT: Final = 64
KEY_EXPIRY_US: Final = 86_400_000_000
"""A name that is not lasting is kept for so long after it was published."""


class Into(msgspec.Struct, frozen=True, array_like=True):
    """A log that an intent has records for."""

    target: StageTarget
    index: int
    """Of the first batch that may be one of the publish."""


class KeptMove(msgspec.Struct, frozen=True, array_like=True):
    """A cursor, and where it is to stand; both as in `_cursors`."""

    key: bytes
    entry: CursorEntry


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """What was last published under a name, as it is kept. Fields may be added with defaults; never moved."""

    number: int
    at: int
    lasting: bool
    is_open: bool = True
    """Whether records of it may still be missing in their logs."""
    stages: list[str] = []
    """Where its records are; when it is done, what is to be removed, until many are known to be gone."""
    into: list[Into] = []
    records: int = 0
    """In all of the stages together."""
    parts: list[PublishedPart] | None = None
    """Where everything went; None while it is on its way, and where that would be too much to keep."""
    digest: str = ""
    topics: dict[str, str] = {}
    """Those that anything was published to under this name, and their ids: of a lasting one, the last TOPICS_KEPT."""
    in_one: bool = False
    """Whether it came in one call, without stages."""
    bundle: bytes = b""
    """Then its records, as long as it is open."""
    moves: list[KeptMove] = []
    """Cursors that are moved with it, as long as it is open."""
    order: int = 0
    """Among those with moves: they are finished in this order, so that records follow each other as the moves do."""

    @property
    def known_topics(self) -> dict[str, str]:
        return self.topics or {part.topic: part.topic_id for part in self.parts or ()}

    @property
    def expires(self) -> int | None:
        return None if self.lasting else self.at + KEY_EXPIRY_US

    def has_expired(self, now: int) -> bool:
        return self.expires is not None and not self.is_open and self.expires <= now


def decode_intent(value: bytes) -> Intent:
    return msgspec.msgpack.decode(value, type=Intent)


def merge_topics(known: Intent | None, into: Sequence[Into]) -> dict[str, str]:
    """The topics of a name, with those it has records for now last."""
    now = {log.target.topic: log.target.topic_id for log in into}
    before = {} if known is None else {name: id_ for name, id_ in known.known_topics.items() if name not in now}
    return dict([*before.items(), *now.items()][-TOPICS_KEPT:])
