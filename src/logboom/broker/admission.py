"""Whether the node takes a request now: not while it closes, no changes while it is a copy, no writes where an operator
said so.

Refusals are not kept: after a restart the node takes writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logboom.broker.catalog import Hosted
from logboom.broker.limits import Rejections
from logboom.errors import LogboomError, ReadOnlyReplica, ShuttingDown, TopicNotAllowed, WritesRefused


class Admission:
    __slots__ = ("_rejections", "closing", "refused", "source")

    def __init__(self, rejections: Rejections, source: str | None) -> None:
        self._rejections = rejections
        self.closing = False
        self.refused: str | None = None
        """Why the node takes no writes."""
        self.source = source
        """Whose copy the node is, while it is one."""

    @contextmanager
    def counting(self, on_copies: bool = False) -> Iterator[None]:
        """A request that changes something, and is counted where it is refused."""
        try:
            self.check_open()
            if not on_copies:
                self.check_original()
            yield
        except LogboomError as error:
            self._rejections.note(error)
            raise

    def check_open(self) -> None:
        if self.closing:
            raise ShuttingDown

    def check_original(self) -> None:
        if self.source is not None:
            raise ReadOnlyReplica(self.source)

    def check_changeable(self) -> None:
        """Both: called for each append."""
        if self.closing or self.source is not None:
            self.check_open()
            self.check_original()

    def check_node(self) -> None:
        if self.refused is not None:
            raise WritesRefused("the node", self.refused)

    def check_accepted(self, hosted: Hosted) -> None:
        if self.refused is not None:
            raise WritesRefused("the node", self.refused)
        if hosted.refused is not None:
            raise WritesRefused(f"topic {hosted.topic.name!r}", hosted.refused)


def check_not_internal(name: str, but: str | None = None) -> None:
    if name.startswith("_") and name != but:
        raise TopicNotAllowed(name, "internal topics are written by the node itself")
