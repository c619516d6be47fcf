"""The configuration of a node: one frozen value, whatever it was read from.

`sources.load` makes it of a file, the environment and flags; `keys.KEYS` has every key with type, range and meaning.
"""

from __future__ import annotations

import os
from typing import Final, Literal

import msgspec

from logboom.broker.allowances import Allowances
from logboom.broker.append.validator_address import ValidatorRules
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.limits import Limits, TopicRules
from logboom.errors import ConfigError
from logboom.protocols.endpoint import HTTP_PORT, LOGD_PORT, PORT, Endpoint
from logboom.protocols.http.settings import HttpSettings
from logboom.protocols.logd.settings import LogdSettings
from logboom.results.place_rules import PlaceRules
from logboom.storage.config import MIB

LogLevel = Literal["debug", "info", "warning", "error"]


PORTS: Final = {"binary": PORT, "logd": LOGD_PORT, "http": HTTP_PORT}


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    binary: tuple[str, ...] = (f"127.0.0.1:{PORT}",)
    unix: str | None = None
    logd: tuple[str, ...] = (f"127.0.0.1:{LOGD_PORT}",)
    http: tuple[str, ...] = (f"127.0.0.1:{HTTP_PORT}",)

    def endpoints(self, protocol: str) -> list[Endpoint]:
        """Raises ConfigError."""
        try:
            return [Endpoint.parse(address, PORTS[protocol]) for address in getattr(self, protocol)]
        except ValueError as error:
            raise ConfigError(f"listen.{protocol}", str(error)) from None


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: str
    cluster_id: str | None = None
    threads: int = 4
    reserve_bytes: int = 64 * MIB
    shutdown_deadline_ms: int = 10_000
    log_level: LogLevel = "info"
    replicate_from: str | None = None
    listen: Listen = Listen()
    limits: Limits = Limits()
    topics: TopicRules = TopicRules()
    hooks: dict[str, str] = {}
    validators: ValidatorRules = ValidatorRules()
    pipeline: PlaceRules = PlaceRules()
    logd: LogdSettings = LogdSettings()
    http: HttpSettings = HttpSettings()
    upkeep: UpkeepSettings = msgspec.field(default_factory=UpkeepSettings)

    def check(self) -> NodeConfig:
        """What no single key can say. Raises ConfigError."""
        listen = self.listen
        if not any(listen.endpoints(protocol) for protocol in PORTS) and listen.unix is None:
            raise ConfigError(
                "listen", "there is nothing to listen on: name an address in listen.binary or listen.http"
            )
        if self.replicate_from is not None:
            try:
                Endpoint.parse(self.replicate_from, LOGD_PORT)
            except ValueError as error:
                raise ConfigError("replicate_from", str(error)) from None
        self.limits.check()
        self.http.check()
        self.topics.check()
        self.pipeline.check()
        self.broker()
        return self

    def broker(self) -> BrokerConfig:
        allowed = Allowances(self.hooks, self.validators)
        return BrokerConfig(self.limits, self.topics, self.upkeep, self.threads, self.reserve_bytes, allowed=allowed)


RANGES: Final = {
    "threads": (1, 256),
    "reserve_bytes": (0, 2**50),
    "shutdown_deadline_ms": (100, 3_600_000),
}


def default_directory() -> str:
    """Where data goes unless somebody says otherwise."""
    home = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(home):
        return f"{home}/logboom"
    return "/var/lib/logboom" if os.geteuid() == 0 else os.path.expanduser("~/.local/share/logboom")
