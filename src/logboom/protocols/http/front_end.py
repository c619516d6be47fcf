"""The HTTP API of one node: makes a connection for whoever comes, and looks after all of them.

Knows a Broker and nothing of what is behind it. One timer sweeps all connections, for those that are silent or stuck
for too long, and keeps the time that answers carry; none runs while there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from uvicorn.config import Config
from uvicorn.server import ServerState

from logboom.broker.access.quotas import Quotas, no_quotas
from logboom.broker.api import Broker
from logboom.broker.append.gatherer import GATHER_BYTES, Gatherer
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.limits import Limits, Rejections
from logboom.broker.monitor.checkup import Examiners
from logboom.broker.monitor.measures import Meter
from logboom.broker.world import REAL, World
from logboom.errors import LimitExceeded
from logboom.protocols.front_end import FrontEnd, FrontEndSetup
from logboom.protocols.http.connection import STALL_S, HttpConnection
from logboom.protocols.http.handler import Handler
from logboom.protocols.http.hosts import names_of
from logboom.protocols.http.identity.sessions import Sessions
from logboom.protocols.http.problem import RequestError, raw_problem
from logboom.protocols.http.settings import HttpSettings
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.place_rules import PlaceRules

if TYPE_CHECKING:
    from logboom.broker.access.sign_in import SignIn

SWEEP_S: Final = 1.0
FORMAT_THREADS: Final = 2
"""What they do holds the interpreter: more of them would make no more, and leave the event loop less."""
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
"""In every answer: a browser must not take a record for a script or a page."""

Converse = Callable[[bytes, Caller], Awaitable[bytes]]
"""logd commands, and who sends them, to the answers they get."""


@runtime_checkable
class Converser(Protocol):
    """A front-end whose commands can be sent over HTTP, too."""

    async def converse(self, data: bytes) -> bytes: ...


def make(setup: FrontEndSetup) -> FrontEnd:
    logd = setup.others.get("logd")
    return HttpFrontEnd(
        setup.broker,
        setup.limits,
        setup.rejections,
        setup.settings,
        setup.described_config,
        logd.converse if isinstance(logd, Converser) else None,
        setup.server_name,
        names_of(setup.endpoints),
        setup.places,
        setup.world,
        setup.sign_in,
        setup.shows_files,
        setup.node_id,
        setup.quotas,
    )


class HttpFrontEnd:
    """Construct it in the event loop it will serve."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        rejections: Rejections,
        settings: HttpSettings,
        config: Callable[[], dict[str, Any]],
        converse: Converse | None = None,
        server_name: str = "logboom",
        names: Iterable[str] = (),
        places: PlaceRules = PlaceRules(),  # noqa: B008
        world: World = REAL,
        sign_in: SignIn | None = None,
        sees_all: Callable[[Caller], bool] = lambda caller: False,
        node_id: str = "",
        quotas: Quotas | None = None,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.rejections = rejections
        self.settings = settings
        self.config = config
        """The node's configuration as JSON can hold it, key by key: value, source, meaning."""
        self.converse = converse
        self.names = tuple(names)
        """By which it may be called, besides http.allowed_hosts."""
        self.places = places
        """Where results are read from."""
        self.world = world
        self.quotas = quotas or no_quotas()
        self.sign_in = sign_in
        """Who somebody is; None where nobody is asked."""
        self.sessions = None if sign_in is None else Sessions(sign_in, world, node_id)
        """Of people with browsers."""
        self.sees_all = sees_all
        """Whether a caller may read every topic; where nobody can say so, as on a gateway, nobody does."""
        self.threads = world.threads(FORMAT_THREADS, "logboom-http")
        """They make records into what goes out."""
        self.examiners = Examiners(broker, world.monotonic_s)
        self.meter = Meter()
        self.gatherer = Gatherer(broker, min(GATHER_BYTES, limits.batch_bytes // 2))
        self.closing = asyncio.Event()
        """Set when nothing new is taken: what waits for news ends."""
        self.held_bytes = 0
        """Of bodies that have come, or are coming, and whose requests are not answered yet; and of heads that come."""
        self.pipeline = PipelineLedger(self._its_broker, ITSELF)
        """What the pipeline has made, as of the last time it was asked for: not all of it is for everybody."""
        self.changing = asyncio.Lock()
        """For whoever changes a topic's settings by what they are."""
        self.deriving = asyncio.Lock()
        """For whoever sets a password: one at a time, whatever waits for the threads besides."""
        self.handler = Handler(self)
        """The API as an ASGI app."""
        self.refusal = raw_problem(
            RequestError(
                f"there are as many connections as limits.connections = {limits.connections:,} allows",
                503,
                "limit-exceeded",
                "try again later, or raise it",
            ),
            (NO_SNIFFING,),
        )
        """A whole response for those who come when there are too many."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        """The time of the event loop, as of the last sweep."""
        self.state = ServerState()
        self.config_of_uvicorn = Config(
            self.handler,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self.config_of_uvicorn.load()
        self._server = server_name.encode()
        self._timer: asyncio.TimerHandle | None = None
        self._left = asyncio.Event()

    async def _its_broker(self) -> Broker:
        return self.broker

    def factory(self) -> asyncio.Protocol:
        return HttpConnection(self)

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self.state.connections)

    async def close(self, grace_s: float) -> None:
        """Take no more requests, let what was promised go out, then close every connection."""
        self.closing.set()
        for connection in self._all():
            connection.finish()
        try:
            async with asyncio.timeout(grace_s):
                await self._wait_until_empty()
        except TimeoutError:
            self.abort()
        await self._wait_until_empty()
        self.threads.shutdown(wait=False)

    async def _wait_until_empty(self) -> None:
        while self.state.connections:
            self._left.clear()
            await self._left.wait()
        while self.state.tasks:
            await asyncio.wait(set(self.state.tasks))

    def abort(self) -> None:
        """Close every connection, whatever it waits for."""
        self.closing.set()
        for connection in self._all():
            connection.abort()
        for task in self.state.tasks:
            task.cancel()

    # What connections call.

    def wake(self) -> None:
        """One is about to enter."""
        if self._timer is None:
            self._sweep()

    def leave(self) -> None:
        if not self.state.connections:
            self._left.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def hold(self, size: int) -> None:
        """So many bytes more, or less, are here for requests. Raises LimitExceeded; they are counted all the same."""
        self.held_bytes += size
        most = self.limits.receive_bytes
        if size > 0 and self.held_bytes > most:
            raise LimitExceeded("limits.receive_bytes", most, "too much is on its way into the node: send it later")

    def report(self, error: BaseException) -> None:
        """An error that is not the peer's."""
        self.loop.call_exception_handler({"message": "the HTTP front-end has failed in a request", "exception": error})

    def _all(self) -> list[HttpConnection]:
        return [connection for connection in self.state.connections if isinstance(connection, HttpConnection)]

    def _sweep(self) -> None:
        self.now = now = self.loop.time()
        date = formatdate(self.world.now_us() / 1e6, usegmt=True).encode()
        self.state.default_headers = [(b"date", date), (b"server", self._server), NO_SNIFFING]
        for connection in self._all():
            if connection.check_at <= now:
                connection.check(now)
        settings = self.settings
        shortest_s = min(settings.head_ms, settings.body_ms, settings.keep_alive_ms, 1000 * STALL_S) / 1000
        self._timer = self.loop.call_later(min(SWEEP_S, shortest_s / 4), self._sweep)
