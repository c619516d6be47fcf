"""What a front-end is to the node that has it, and what a node gives to a front-end.

A front-end is a folder here with a `front_end.py` that has `make(setup) -> FrontEnd`, and a line in the table of
`logboom.server.front_ends`. It knows a Broker and nothing of what is behind it, nor of the other front-ends. The node
binds, accepts, counts and bounds connections; the front-end speaks with them. Closing answers what was promised, within
the time it is given, and returns when no connection and no task of one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from logboom.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from logboom.broker.access.quotas import Quotas
    from logboom.broker.access.sign_in import SignIn
    from logboom.broker.api import Broker, Feeds
    from logboom.broker.caller import Caller
    from logboom.broker.limits import Limits, Rejections
    from logboom.broker.monitor.measures import Meter
    from logboom.broker.world import World
    from logboom.protocols.endpoint import Endpoint
    from logboom.results.place_rules import PlaceRules


class FrontEnd(Protocol):
    """What a node needs of a protocol."""

    meter: Meter

    @property
    def refusal(self) -> bytes:
        """What a connection over the limit is told."""
        ...

    def factory(self) -> asyncio.BaseProtocol: ...
    @property
    def connections(self) -> int: ...
    async def close(self, grace_s: float) -> None: ...


class FrontEndSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of the node's configuration that is a front-end's own."""

    section: ClassVar[str] = ""
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """The least and the most of numbers."""
    meanings: ClassVar[Mapping[str, str]] = {}
    """What each key means to whoever runs a node."""

    def check(self) -> None:
        """Raises ConfigError."""
        for name, (low, high) in self.ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{self.section}.{name}", f"is {value:,}, allowed are {low:,} to {high:,}")


@dataclass(frozen=True, slots=True)
class FrontEndSetup:
    """What a node gives to each of its front-ends."""

    broker: Broker
    limits: Limits
    rejections: Rejections
    settings: Any
    """Its section of the configuration; None where it has none."""
    endpoints: tuple[Endpoint, ...]
    """Where it was told to listen."""
    node_id: str
    cluster_id: str
    server_name: str
    directory: str | None
    """Where the data is, for clients on the same machine."""
    feeds: Feeds | None
    """For those who copy the node."""
    replica_of: Callable[[], str | None]
    issue_id: Callable[[], int]
    """A producer id that nobody has had."""
    written_config: Callable[[], dict[str, Any]]
    """The node's configuration, key by key: the value in words."""
    described_config: Callable[[], dict[str, Any]]
    """The same as JSON can hold it: value, source, meaning."""
    places: PlaceRules
    """Where results of the pipeline are read from."""
    world: World
    """Clock, chance and threads."""
    end: Callable[[], None]
    """Ends the node, where a client may."""
    check_end: Callable[[Caller], None]
    """Raises where a caller may not end it."""
    sign_in: SignIn | None
    """Who somebody is; None where nobody is asked."""
    quotas: Quotas
    """How much anybody may take, and how long he is to rest before he takes more."""
    shows_files: Callable[[Caller], bool]
    """Whether a caller may be told where the files are."""
    others: Mapping[str, FrontEnd]
    """The front-ends before it in the table, by name."""
