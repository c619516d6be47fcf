"""The configuration of a node: one frozen value, whatever it was read from.

`Listen` and `NodeConfig` are what every node has. What the front-ends add, an address and perhaps a section each, comes
from their table: `CONFIG` is the whole, and all that is ever made.

`sources.load` makes it of a file, the environment and flags; `keys.KEYS` has every key with type, range and meaning.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from logboom.access.bearer import BearerSettings
from logboom.broker.access.audit_trail import AuditSettings
from logboom.broker.allowances import Allowances
from logboom.broker.append.validator_address import ValidatorRules
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.limits import Limits, TopicRules
from logboom.errors import ConfigError
from logboom.protocols.endpoint import PORT, Endpoint
from logboom.protocols.front_end import FrontEndSettings
from logboom.replication.source_access import ReplicateSettings, parse_source
from logboom.results.place_rules import PlaceRules
from logboom.server.front_ends import FRONT_ENDS, FrontEndKind
from logboom.server.security.certificates import TlsSettings
from logboom.server.security.key_sets import check_settings, is_configured
from logboom.storage.config import MIB

LogLevel = Literal["debug", "info", "warning", "error"]


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    binary: tuple[str, ...] = (f"127.0.0.1:{PORT}",)
    unix: str | None = None

    def endpoints(self, kind: FrontEndKind) -> list[Endpoint]:
        """Raises ConfigError."""
        try:
            return [Endpoint.parse(address, kind.port) for address in getattr(self, kind.name)]
        except ValueError as error:
            raise ConfigError(f"listen.{kind.name}", str(error)) from None


class AccessSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    anonymous: Literal["auto", "all", "none"] = "auto"
    insecure: bool = False
    files_group: str | None = None


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: str
    cluster_id: str | None = None
    threads: int = 4
    reserve_bytes: int = 64 * MIB
    shutdown_deadline_ms: int = 10_000
    log_level: LogLevel = "info"
    replicate_from: str | None = None
    replicate: ReplicateSettings = ReplicateSettings()
    listen: Listen = Listen()
    tls: TlsSettings = TlsSettings()
    access: AccessSettings = AccessSettings()
    oidc: BearerSettings = BearerSettings()
    audit: AuditSettings = AuditSettings()
    limits: Limits = Limits()
    topics: TopicRules = TopicRules()
    hooks: dict[str, str] = {}
    validators: ValidatorRules = ValidatorRules()
    pipeline: PlaceRules = PlaceRules()
    if TYPE_CHECKING:  # behind the sections of the front-ends
        upkeep: UpkeepSettings = UpkeepSettings()

    def check(self) -> NodeConfig:
        """What no single key can say. Raises ConfigError."""
        listen = self.listen
        if not any(listen.endpoints(kind) for kind in FRONT_ENDS) and listen.unix is None:
            raise ConfigError(
                "listen", "there is nothing to listen on: name an address in listen.binary or listen.http"
            )
        if self.replicate_from is not None:
            self.replicate.check(parse_source(self.replicate_from))
        self.tls.check()
        if is_configured(self.oidc):
            check_settings(self.oidc)
        self._check_exposure()
        self.audit.check()
        self.limits.check()
        for kind in FRONT_ENDS:
            if (settings := self.settings_of(kind)) is not None:
                settings.check()
        self.topics.check()
        self.pipeline.check()
        self.broker()
        return self

    def is_secured(self, endpoint: Endpoint) -> bool:
        """Whether there is TLS."""
        return endpoint.is_secured(self.tls.certificate is not None)

    @property
    def exposed(self) -> list[tuple[FrontEndKind, Endpoint]]:
        """Where other machines reach the node."""
        return [
            (kind, endpoint) for kind in FRONT_ENDS for endpoint in self.listen.endpoints(kind) if not endpoint.is_local
        ]

    def _check_exposure(self) -> None:
        """What other machines reach has TLS, and asks who they are. Raises ConfigError with what to add."""
        for kind in FRONT_ENDS:
            for endpoint in self.listen.endpoints(kind):
                if endpoint.tls and self.tls.certificate is None:
                    raise ConfigError("tls.certificate", f"is needed for {endpoint}: `logboom cert` makes one")
        if self.access.insecure:
            return
        for kind, endpoint in self.exposed:
            if not self.is_secured(endpoint):
                raise ConfigError(
                    f"listen.{kind.name}",
                    f"other machines reach {endpoint}, and there is no TLS. Make a certificate (`logboom cert`) and a "
                    f"user (`logboom user add NAME --role admin --data {self.data}`), and add two lines:\n"
                    '    tls.certificate = "server.pem"\n'
                    '    tls.key = "server.key"\n'
                    "or say --insecure: then everybody who reaches the node may do everything",
                )
            if self.access.anonymous == "all":
                raise ConfigError(
                    "access.anonymous", f"is all, and other machines reach {endpoint}: say --insecure to allow that"
                )

    @property
    def anonymous(self) -> Literal["all", "none"]:
        """What callers may do that have not signed in."""
        if self.access.anonymous != "auto":
            return self.access.anonymous
        return "all" if self.access.insecure or not self.exposed else "none"

    def settings_of(self, kind: FrontEndKind) -> FrontEndSettings | None:
        return None if kind.settings is None else getattr(self, kind.name)

    def broker(self) -> BrokerConfig:
        allowed = Allowances(self.hooks, self.validators)
        return BrokerConfig(
            *(self.limits, self.topics, self.upkeep, self.threads, self.reserve_bytes),
            allowed=allowed,
            anonymous=self.anonymous,
            audit=self.audit,
        )


def _compose() -> type[NodeConfig]:
    strict: dict[str, Any] = {"frozen": True, "forbid_unknown_fields": True}
    addresses = [(kind.name, tuple[str, ...], (f"127.0.0.1:{kind.port}",)) for kind in FRONT_ENDS]
    listen = msgspec.defstruct("Listen", addresses, bases=(Listen,), **strict)
    sections = [(kind.name, kind.settings, kind.settings()) for kind in FRONT_ENDS if kind.settings is not None]
    upkeep = ("upkeep", UpkeepSettings, msgspec.field(default_factory=UpkeepSettings))
    fields = [("listen", listen, listen()), *sections, upkeep]
    return cast(type[NodeConfig], msgspec.defstruct("NodeConfig", fields, bases=(NodeConfig,), **strict))


CONFIG: Final = _compose()

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
