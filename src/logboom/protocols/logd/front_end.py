"""The logd protocol of one node: makes a connection for whoever comes, and looks after all of them.

Knows a Broker and nothing of what is behind it. `converse` is for those who have their commands, and want the answers,
as one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from logboom.broker.access.quotas import Quotas
from logboom.broker.access.sign_in import SignIn
from logboom.broker.api import Broker, Feeds
from logboom.broker.append.gatherer import Gatherer
from logboom.broker.caller import Caller
from logboom.broker.limits import Limits, Rejections
from logboom.broker.monitor.measures import Meter
from logboom.protocols.crowd import Crowd
from logboom.protocols.front_end import FrontEnd, FrontEndSetup
from logboom.protocols.logd.codec import RUN_BYTES, Decoder, SharedMemory
from logboom.protocols.logd.connection import LogdConnection
from logboom.protocols.logd.conversation import Conversation
from logboom.protocols.logd.errors import reason_of
from logboom.protocols.logd.settings import LogdSettings

RECEIVE_BYTES: Final = 256 * 1024
_ROOM: Final = 256
"""Of a batch's limit, for everything in it but its records."""


def make(setup: FrontEndSetup) -> FrontEnd:
    return LogdFrontEnd(
        setup.broker,
        setup.limits,
        setup.rejections,
        setup.settings,
        setup.written_config,
        setup.feeds,
        setup.end,
        next(map(str, setup.endpoints), ""),
        setup.sign_in,
        setup.check_end,
        setup.quotas,
    )


class LogdFrontEnd(Crowd[LogdConnection]):
    """Construct it in the event loop it will serve; `factory` is for `loop.create_server`."""

    refusal: Final = b"ERR unavailable\r\n"
    """For a connection that is one too many."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        rejections: Rejections,
        settings: LogdSettings,
        config: Callable[[], dict[str, Any]],
        feeds: Feeds | None = None,
        shutdown: Callable[[], None] | None = None,
        address: str = "",
        sign_in: SignIn | None = None,
        check_end: Callable[[Caller], None] = lambda _: None,
        quotas: Quotas | None = None,
    ) -> None:
        super().__init__("logd", limits, rejections, quotas)
        self.broker = broker
        self.settings = settings
        self.config = config
        self.feeds = feeds
        self.shutdown = shutdown
        self.address = address
        """Where it listens, as it was told."""
        self.sign_in = sign_in
        self.check_end = check_end
        """Raises where a caller may not end the node."""
        self._run_bytes = min(RUN_BYTES, limits.batch_bytes - _ROOM)
        self.gatherer = Gatherer(broker, self._run_bytes)
        self.meter = Meter()
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        """All connections receive into it, each use ends before the next begins."""
        self.receive_memory = SharedMemory(limits.receive_bytes)

    def factory(self) -> asyncio.BufferedProtocol:
        return LogdConnection(self)

    async def converse(self, data: bytes, caller: Caller) -> bytes:
        """The answers to these commands, in their order. Those that never end are refused."""
        if self._is_closing:
            return self.refusal
        return await Conversation(self, caller).hold(data)

    def demands_sign_in(self, caller: Caller) -> bool:
        """Whether nothing is done for this one until he has said who he is."""
        return self.sign_in is not None and self.sign_in.demands(caller)

    def refuse_stranger(self, caller: Caller) -> bytes:
        """What such a one is told."""
        assert self.sign_in is not None
        return reason_of(self.rejections.note(self.sign_in.refuse(caller)))

    def decoder(self) -> Decoder:
        return Decoder(self.limits.batch_bytes, self.receive_memory, self._run_bytes)
