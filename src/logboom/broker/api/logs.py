"""Everything that is done to one log: appends, reads, and trims, after which nothing below a seqno is served."""

from __future__ import annotations

from typing import Protocol

from logboom.broker.api.appends import AppendCalls
from logboom.broker.api.reads import ReadCalls
from logboom.broker.api.topics import PartitionInfo
from logboom.broker.caller import Caller


class LogCalls(AppendCalls, ReadCalls, Protocol):
    """Writes, reads, and what is given up."""

    async def trim(self, topic: str, partition: int | None, seqno: int, *, caller: Caller) -> PartitionInfo:
        """Nothing below `seqno` is ever served again."""
        ...
