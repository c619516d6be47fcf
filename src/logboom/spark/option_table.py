"""Options as Spark gives them, texts by name, and how each is read: what reading and writing have in common.

Names are taken in any case. Those of Spark's Kafka connector mean here what they mean there, so that a job moves by
changing its format; what only tunes Kafka's client is named in the log and left alone.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

from logboom.client.link.address import list_servers
from logboom.client.link.profile import ServerList
from logboom.errors import ConfigError

Entries = Mapping[str, tuple[str, Callable[[str], Any], tuple[str, ...]]]
"""Each option: which field it becomes, how its text is read, and what else it may be called."""

IGNORED: Final = ("serialization.format",)
"""What Spark itself adds, and nobody has to know."""

IDENTITY: Final = ("user", "ca", "certificate", "key", "server_name")
"""What options may say of a Profile."""
SECRETS: Final = dict.fromkeys(
    ("password", "token"),
    "Spark shows options to many: use LOGBOOM_PASSWORD or LOGBOOM_TOKEN in the environment, or a profile",
)
"""What options may not say."""
KNOWN_MOST: Final = 1000
_KNOWN: Final[dict[str, ServerList]] = {}
logger = logging.getLogger("logboom.spark")


class OptionTable:
    def __init__(
        self,
        whose: str,
        entries: Entries,
        *,
        ignored: Collection[str] = (),
        unsupported: Mapping[str, str] | None = None,
    ) -> None:
        self.names: Final = tuple(name for option, (_, _, others) in entries.items() for name in (option, *others))
        self._whose = whose
        self._options = {
            name.lower(): (attribute, read)
            for option, (attribute, read, others) in entries.items()
            for name in (option, *others)
        }
        self._spelled = {name.lower(): name for name in self.names}
        self._ignored = frozenset(name.lower() for name in ignored)
        self._unsupported = {name.lower(): reason for name, reason in (unsupported or {}).items()}

    def attribute(self, name: str) -> str:
        return self._options[name.lower()][0] if name.lower() in self._options else name.lower()

    def read(self, options: Mapping[str, str]) -> dict[str, Any]:
        """The fields that are given. Raises ConfigError, which names the option and what it may be."""
        given: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, text in options.items():
            lower = name.lower()
            if lower in IGNORED:
                continue
            if lower in self._ignored or (lower.startswith("kafka.") and lower not in self._options):
                logger.warning("option %s is for Kafka's client and means nothing here", name)
                continue
            if lower not in self._options:
                self._refuse(name)
            name = self._spelled[lower]  # Spark gives all in lower case
            attribute, read = self._options[lower]
            if attribute in given:
                raise ConfigError(name, f"says the same as {spelled[attribute]}: give one of them")
            given[attribute], spelled[attribute] = _read(read, name, text), name
        return given

    def _refuse(self, name: str) -> NoReturn:
        if name.lower() in self._unsupported:
            raise ConfigError(name, f"is not supported: {self._unsupported[name.lower()]}")
        near = get_close_matches(name.lower(), self._spelled, 1, 0.5)
        hint = f"did you mean {self._spelled[near[0]]}?" if near else f"there are {', '.join(self.names)}"
        raise ConfigError(name, f"is no option of the logboom {self._whose}: {hint}")


PROFILE: Final[Entries] = {
    "profile": ("profile", str.strip, ()),
    "user": ("own_user", str, ()),
    "ca": ("own_ca", str, ()),
    "certificate": ("own_certificate", str, ()),
    "certificateKey": ("own_key", str, ()),
    "serverName": ("own_server_name", str, ()),
}
"""How a node is reached, and by whom: the same for reading and writing."""


def is_in_catalog(options: Mapping[str, str]) -> bool:
    """Whether these are of a table of Spark's catalog: Spark mixes in what it knows of the table."""
    return "provider" in options


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """What the user gave."""
    if not is_in_catalog(options):
        return dict(options)
    given = {name[len("option.") :]: text for name, text in options.items() if name.lower().startswith("option.")}
    for name in ("path", "location"):
        if name in options and "path" not in given:
            given["path"] = options[name]
    return given


def take_place(given: dict[str, Any]) -> dict[str, Any]:
    """What path and servers say together."""
    directory, servers = given.pop("path", (None, ()))
    more = given.pop("servers", ())
    if servers and more and servers != more:
        raise ConfigError("servers", "is another place than the path: give one of them")
    identity = {name: given.pop(f"own_{name}") for name in IDENTITY if f"own_{name}" in given}
    profile = given.pop("profile", None)
    if profile is not None:
        found = list_servers(f"@{profile}")
        more = found if not servers and not more else list_servers(replace(found.profile, servers=servers or more))
        servers = ()
    reached = servers or more
    if identity:
        if not reached:
            raise ConfigError(next(iter(identity)), "is for a node: load('tls://host:port')")
        reached = list_servers(replace(reached.profile, **identity))
    return {"directory": directory, "servers": remember(reached)}


def remember(servers: tuple[str, ...]) -> tuple[str, ...]:
    """So that `recall` finds who calls there, where only the text was written down."""
    if isinstance(servers, ServerList):
        if len(_KNOWN) >= KNOWN_MOST:
            _KNOWN.clear()
        _KNOWN[",".join(servers)] = servers
    return servers


def recall(text: str) -> str | ServerList:
    """The servers that were last named so in this process, with who calls there."""
    return _KNOWN.get(text, text)


def _read(read: Callable[[str], Any], name: str, text: str) -> Any:
    try:
        return read(text)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(name, str(error)) from None


def read_path(text: str) -> tuple[str | None, tuple[str, ...]]:
    """A directory, or servers."""
    if text.startswith(("logboom:", "tls:", "unix:", "@")):
        return None, read_servers(text)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        raise ValueError(f"{text!r} is neither a directory of this machine nor logboom://host:port nor tls://host:port")
    return os.path.abspath(os.path.expanduser(text)), ()


def read_servers(text: str) -> tuple[str, ...]:
    return list_servers(text)


def read_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("is empty")
    return names


def read_whole(text: str) -> int:
    if not re.fullmatch(r"\d+", text.strip()):
        raise ValueError(f"is {text!r}, allowed are whole numbers")
    return int(text)


def read_size(text: str) -> int:
    """Bytes, as Spark writes sizes: 67108864, 64m, 64mb."""
    form = re.fullmatch(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", text.strip().lower())
    if form is None or not int(form[1]):
        raise ValueError(f"is {text!r}, allowed are bytes such as 67108864, 64k, 64m, 1g")
    return int(form[1]) << 10 * " kmgt".index(form[2] or " ")


def read_seconds(text: str) -> float:
    """As `60`, `60s`, `2m`, `1h`."""
    form = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", text.strip().lower())
    seconds = float(form[1]) * {"ms": 0.001, "m": 60, "min": 60, "h": 3600}.get(form[2] or "s", 1) if form else 0.0
    if not 0 < seconds <= 7 * 86_400:
        raise ValueError(f"is {text!r}, allowed are seconds, or 500ms, 60s, 2m, 1h, up to a week")
    return seconds


def read_word(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"is {text!r}, allowed are {', '.join(words)}")
        return word

    return read
