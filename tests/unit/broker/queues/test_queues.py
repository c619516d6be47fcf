"""Work queues of a broker: who is given what, what becomes of it, what survives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from logboom.batch import Record, build
from logboom.broker.api import (
    GroupJoin,
    JobRange,
    LeasedJobs,
    Part,
    QueueSettings,
    ReadRequest,
    RefusedSettlement,
    Settlement,
    Start,
    TakeJobs,
)
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN
from logboom.errors import GroupMismatch, LimitExceeded, MemberUnknown
from support.brokers.any_broker import AnyBroker
from support.waiting import eventually

Story = Callable[[LocalBroker], Awaitable[None]]


def tell(path: Path, *stories: Story, config: BrokerConfig | None = None) -> None:
    """Each with the node begun anew on the same directory."""

    async def run(story: Story) -> None:
        async with asyncio.timeout(300):
            broker = await LocalBroker.open(str(path), config, rules=OPEN)
            try:
                await story(broker)
            finally:
                await broker.close()

    path.mkdir(exist_ok=True)
    for story in stories:
        asyncio.run(run(story))
