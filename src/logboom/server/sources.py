"""The configuration of a node from its sources: defaults, a TOML file, the environment, flags; the later wins.

    logboom.toml                       [limits]
                                       batch_bytes = "32MiB"
    environment                        LOGBOOM_LIMITS__BATCH_BYTES=32MiB
    flag                               --set limits.batch_bytes=32MiB

Each value remembers its source. A wrong key or value is never passed over: it is told with its name, its source, what
is allowed, and the nearest right name. Only the environment holds more than ours, such as what Kubernetes tells every
process about a service called logboom: a variable that resembles no key is named, and left alone.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from logboom.errors import ConfigError
from logboom.server.config import CONFIG, NodeConfig
from logboom.server.keys import KEYS, SECTIONS, Value, find_key, resembles_key, unknown

DEFAULT: Final = "default"
FILE_VARIABLE: Final = "LOGBOOM_CONFIG"
FILE_NAME: Final = "logboom.toml"
_PREFIX: Final = "LOGBOOM_"
CLIENTS: Final = (
    "SERVERS",
    "PROFILE",
    "PROFILES",
    "USER",
    "PASSWORD",
    "TOKEN",
    "CA",
    "CERTIFICATE",
    "KEY",
    "SERVER_NAME",
)
"""What clients take from the environment, and a node does not."""
_OTHERS: Final = (FILE_VARIABLE, *(f"LOGBOOM_{name}" for name in CLIENTS))
_PATHS: Final = (
    *("data", "listen.unix", "tls.certificate", "tls.key", "tls.client_ca"),
    *(f"replicate.{name}" for name in ("password_file", "token_file", "ca", "certificate", "key")),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value, before it is known whether it is a good one."""

    name: str
    raw: object
    source: str
    directory: str = ""
    """What paths are relative to, where that is not the working directory."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    config: NodeConfig
    sources: Mapping[str, str]
    """Of each key: `default`, a file, a variable or a flag."""
    file: str | None = None
    ignored: tuple[str, ...] = ()
    """Variables that look like ours and are no keys."""

    def values(self) -> dict[str, Value]:
        """Every key with its value."""
        found: dict[str, Value] = {}
        for name in KEYS:
            value: Any = self.config
            for part in name.split("."):
                value = getattr(value, part)
            found[name] = None if value is msgspec.UNSET else value
        return found


@dataclass(slots=True)
class _Gathered:
    values: dict[str, Value] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    faults: list[ConfigError] = field(default_factory=list)

    def take(self, settings: Iterable[Setting | ConfigError]) -> None:
        for setting in settings:
            if isinstance(setting, ConfigError):
                self.faults.append(setting)
                continue
            try:
                self.values[setting.name] = _parse(setting)
                self.sources[setting.name] = setting.source
            except ConfigError as error:
                self.faults.append(error)

    def source_of(self, name: str) -> str:
        """Of a table: of all that is in it."""
        found = [source for key, source in self.sources.items() if key == name or key.startswith(f"{name}.")]
        return ", ".join(dict.fromkeys(found)) or DEFAULT


def load(
    flags: Iterable[Setting] = (), file: str | None = None, environment: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Raises ConfigError for the first thing that is wrong, OSError for a file that cannot be read."""
    environment = os.environ if environment is None else environment
    path = find_file(file, environment)
    gathered = _Gathered()
    if path is not None:
        gathered.take(read_file(path))
    found, ignored = read_environment(environment)
    gathered.take(found)
    gathered.take(flags)
    if gathered.faults:
        raise gathered.faults[0]
    return LoadedConfig(build(gathered.values), {name: gathered.source_of(name) for name in KEYS}, path, ignored)


def faults_of(path: str) -> list[ConfigError]:
    """Everything that is wrong with a file, on its own. Raises OSError where it cannot be read."""
    gathered = _Gathered()
    gathered.take(read_file(path))
    if not gathered.faults:
        try:
            build(gathered.values)
        except ConfigError as error:
            return [error]
    return gathered.faults


def find_file(named: str | None, environment: Mapping[str, str]) -> str | None:
    path = named or environment.get(FILE_VARIABLE)
    if path:
        return os.path.abspath(os.path.expanduser(path))
    return os.path.abspath(FILE_NAME) if os.path.isfile(FILE_NAME) else None


def read_file(path: str) -> Iterator[Setting | ConfigError]:
    with open(path, "rb") as file:
        try:
            tree = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            yield ConfigError(path, f"is not TOML: {error}")
            return
    yield from _flatten(tree, "", path)


def _flatten(tree: Mapping[str, Any], front: str, path: str) -> Iterator[Setting | ConfigError]:
    for part, raw in tree.items():
        name = f"{front}{part}"
        if find_key(name) is not None:
            yield Setting(name, raw, path, os.path.dirname(path))
        elif name not in SECTIONS:
            yield unknown(name, path)
        elif isinstance(raw, dict):
            yield from _flatten(raw, f"{name}.", path)
        else:
            yield ConfigError(name, f"is a section, not a value ({path}): write [{name}] and its keys below it")


def read_environment(environment: Mapping[str, str]) -> tuple[list[Setting | ConfigError], tuple[str, ...]]:
    """The settings, and the variables that are none."""
    found: list[Setting | ConfigError] = []
    ignored: list[str] = []
    for variable, raw in sorted(environment.items()):
        if not variable.startswith(_PREFIX) or variable in _OTHERS:
            continue
        name = variable.removeprefix(_PREFIX).lower().replace("__", ".")
        if find_key(name) is not None:
            found.append(Setting(name, raw, variable))
        elif "." in name or resembles_key(name):
            found.append(unknown(name, variable))
        else:
            ignored.append(variable)
    return found, tuple(ignored)


def read_flag(text: str) -> Setting:
    """What `--set` gives. Raises ConfigError."""
    name, separator, raw = text.partition("=")
    name = name.strip()
    if not separator:
        raise ConfigError(name, "has no value: write --set key=value")
    if find_key(name) is None:
        raise unknown(name, "--set")
    return Setting(name, raw, "--set")


def _parse(setting: Setting) -> Value:
    key = find_key(setting.name)
    assert key is not None
    try:
        value = key.parse(setting.raw)
    except ValueError as error:
        raise ConfigError(setting.name, f"{error} ({setting.source})") from None
    if setting.name in _PATHS and isinstance(value, str):
        return os.path.abspath(os.path.join(setting.directory, os.path.expanduser(value)))
    return value


def build(values: Mapping[str, Value]) -> NodeConfig:
    """The configuration with these values and the defaults of all others."""
    tree: dict[str, Any] = {"data": KEYS["data"].default}
    for name, value in values.items():
        if value is None and KEYS[name].default is None:
            continue
        *sections, last = name.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return msgspec.convert(tree, CONFIG).check()
