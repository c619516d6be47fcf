"""How a client gets to a node, and who it is there: servers, certificates, a user with a password, or a token.

    Profile(servers="tls://node:1773", ca="ca.pem", user="alice", password=...)

is taken wherever servers are. `@NAME` stands for a profile in a file that nobody else may read
(`~/.config/logboom/profiles.toml`, or $LOGBOOM_PROFILES), so that secrets are on no command line:

    [prod]
    servers = ["tls://one:1773", "tls://two:1773"]
    ca = "/etc/logboom/ca.pem"
    user = "alice"
    password = "..."

What is not said comes from the environment: LOGBOOM_PROFILE names a profile, LOGBOOM_SERVERS, LOGBOOM_USER,
LOGBOOM_PASSWORD, LOGBOOM_TOKEN, LOGBOOM_CA, LOGBOOM_CERTIFICATE, LOGBOOM_KEY and LOGBOOM_CLIENT the rest.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from logboom.errors import ConfigError

FILE_VARIABLE: Final = "LOGBOOM_PROFILES"
NAME_VARIABLE: Final = "LOGBOOM_PROFILE"
SIGN: Final = "@"
"""Before the name of a profile, in the place of servers."""
_SECRETS: Final = frozenset(("password", "token"))
_PATHS: Final = frozenset(("ca", "certificate", "key"))


@dataclass(frozen=True, slots=True)
class Profile:
    servers: str | tuple[str, ...] | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    """Instead of a user and a password."""
    ca: str | None = None
    """A file with the certificates that are trusted; without one those of the system are."""
    certificate: str | None = None
    """A file with the client's own, and perhaps its key."""
    key: str | None = None
    server_name: str | None = None
    """What the node's certificate must be for, where that is not the host that was called."""
    client: str | None = None
    """What this client calls itself: rules on channels may say `%c` for it. Proves nothing."""

    def __repr__(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        told = (f"{name}={'...' if name in _SECRETS else repr(value)}" for name, value in shown.items() if value)
        return f"Profile({', '.join(told)})"

    def __post_init__(self) -> None:
        if self.token is not None and (self.user is not None or self.password is not None):
            raise ConfigError("token", "a token says who its user is: name no user and no password beside it")
        if self.password is not None and self.user is None:
            raise ConfigError("user", "there is a password, and no user: name one")

    @property
    def has_identity(self) -> bool:
        return self.user is not None or self.token is not None

    @classmethod
    def find(cls, servers: Servers = None, environment: Mapping[str, str] | None = None) -> Profile:
        """What is known of these servers, or where none are given of those that the environment names."""
        environment = os.environ if environment is None else environment
        if isinstance(servers, ServerList):
            return servers.profile
        if isinstance(servers, Profile):
            return servers
        if servers is not None and not isinstance(servers, str):
            servers = tuple(servers)
            if len(servers) == 1 and servers[0].startswith(SIGN):
                servers = servers[0]
        if isinstance(servers, str) and servers.strip().startswith(SIGN):
            return load_profile(servers.strip().removeprefix(SIGN), environment)
        name = environment.get(NAME_VARIABLE, "").strip()
        if name:
            found = load_profile(name, environment)
            return found if servers is None else replace(found, servers=servers)
        given = {
            each.name: environment[f"LOGBOOM_{each.name.upper()}"]
            for each in fields(cls)
            if environment.get(f"LOGBOOM_{each.name.upper()}", "").strip()
        }
        if servers is not None:
            given["servers"] = servers  # type: ignore[assignment]
        return cls(**given)


class ServerList(tuple[str, ...]):
    """Addresses as text, and who calls there.

    It looks like a tuple of texts wherever it is shown or written down. What is secret goes with it only where it goes
    as an object: to the tasks of a Spark job, say.
    """

    profile: Profile

    @classmethod
    def of(cls, addresses: Iterable[str], profile: Profile) -> ServerList:
        made = cls(addresses)
        made.profile = replace(profile, servers=tuple(made))
        return made


Servers = str | Sequence[str] | Profile | None


def profiles_file(environment: Mapping[str, str]) -> str:
    path = environment.get(FILE_VARIABLE, "")
    if path:
        return os.path.expanduser(path)
    home = environment.get("XDG_CONFIG_HOME", "")
    return os.path.join(home if os.path.isabs(home) else os.path.expanduser("~/.config"), "logboom", "profiles.toml")


def load_profile(name: str, environment: Mapping[str, str]) -> Profile:
    """Raises ConfigError with what to do."""
    path = profiles_file(environment)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            tree = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"profile {name}", f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(path, f"is not TOML: {error}") from None
    found = tree.get(name)
    if not isinstance(found, dict):
        known = ", ".join(sorted(tree)) or "none"
        raise ConfigError(f"profile {name}", f"is not in {path}: there is {known}")
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not _SECRETS.isdisjoint(found):
        raise ConfigError(path, f"holds secrets and can be read by others: chmod 600 {path}")
    return _build(name, found, os.path.dirname(path))


def _build(name: str, found: Mapping[str, Any], directory: str) -> Profile:
    allowed = {each.name for each in fields(Profile)}
    given: dict[str, Any] = {}
    for key, value in found.items():
        if key not in allowed:
            raise ConfigError(f"profile {name}", f"has no key {key!r}: there are {', '.join(sorted(allowed))}")
        if key == "servers" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            given[key] = tuple(value)
        elif isinstance(value, str):
            given[key] = os.path.join(directory, os.path.expanduser(value)) if key in _PATHS else value
        else:
            raise ConfigError(f"profile {name}", f"{key} is no text")
    return Profile(**given)
