"""What an operator tells the node: whether it takes writes.

A refusal ends with a restart; a promotion lasts.
"""

from __future__ import annotations

from typing import Protocol

from logboom.broker.caller import Caller


class OperatorCalls(Protocol):
    """For those who run the node."""

    async def refuse(self, topic: str | None = None, reason: str = "", *, caller: Caller) -> None:
        """Take no more writes: of a topic, or at all. Lasts until `accept`, or a restart."""
        ...

    async def accept(self, topic: str | None = None, *, caller: Caller) -> None: ...

    async def promote(self, *, caller: Caller) -> None:
        """A replica copies no more and takes writes from now on; done when it does. Nothing to do for other nodes."""
        ...
