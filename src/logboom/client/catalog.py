"""Which logs there are at a place, how far they reach and where to cut them: asked in the calling thread.

A place is a data directory (`file_catalog.py`) or a running node (`node_catalog.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from logboom.client.read.start import Gaps
from logboom.results.archived import ArchivedLogReader
from logboom.storage.bookmark import Bookmark, Term
from logboom.storage.readable_log import SeqnoRange


class Ends(NamedTuple):
    first: int
    committed: int
    term: int | None = None
    """Of the last batch, where that was told too. Another one than before: the log may have lost its tail."""
    stored: int | None = None
    """The first of the log's own, where that is not `first`: what is before it is archived."""


class LogPoint(NamedTuple):
    """Between two records of a log."""

    topic: ListedTopic
    partition: int
    seqno: int


class ListedTopic(NamedTuple):
    """A topic, and where each of its logs begins and ends."""

    name: str
    id: str
    ends: tuple[Ends, ...]


class LogCatalog(Protocol):
    node_id: str
    directory: str | None
    """The data directory, as the node's machine names it."""
    servers: tuple[str, ...]
    incarnation: int
    """Rises when the node may have been restarted since it was last asked. Where nobody is asked, `Ends.term` tells."""
    is_copy: bool
    """Whether a replica answers: what it lacks may only not have come yet."""

    def find(self, names: Sequence[str] = (), pattern: str | None = None) -> list[ListedTopic]:
        """Those of these topics that there are, and all whose whole name matches; by name."""
        ...

    def seqno_at(self, topic: ListedTopic, partition: int, moment: int, gaps: Gaps = "raise") -> int:
        """The first record at or after this time; behind the last where there is none.

        Raises Damage where that may be one that cannot be read; or passes over those.
        """
        ...

    def cut(
        self, topic: ListedTopic, partition: int, seqno_from: int, seqno_until: int, every_bytes: int
    ) -> list[SeqnoRange]:
        """What there is of these records, in pieces of about so many bytes."""
        ...

    def archived(self, topic: ListedTopic, partition: int) -> ArchivedLogReader | None:
        """What is archived of a log."""
        ...

    def terms_before(self, places: Sequence[LogPoint]) -> list[Term | None]:
        """The term of the record before each place; None where nobody knows. Terms never go back within a log."""
        ...

    def commit_cursor(self, cursor: str, bookmarks: Sequence[tuple[str, Bookmark]]) -> None:
        """Topics, each with a bookmark of one of its logs. Raises what was wrong with the first that could not be kept;
        the others are."""
        ...

    def close(self) -> None: ...


def matches(name: str, names: Sequence[str], pattern: str | None) -> bool:
    """Topics that the node keeps for itself have to be named."""
    if name in names:
        return True
    return pattern is not None and not name.startswith("_") and re.fullmatch(pattern, name) is not None
