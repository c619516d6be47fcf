"""Topic settings as `key=value`, by the names that topic.json has.

Keys in milliseconds are also known without `_ms`: `retention.age=7d` is `retention.age_ms=604800000`. An empty value
puts the default back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from logboom.errors import ConfigError
from logboom.server.keys import KEYS as NODE_KEYS
from logboom.server.keys import ConfigKey
from logboom.storage.data.topic import Settings

_FRONT: Final = "topics.settings."
KEYS: Final = {name.removeprefix(_FRONT): key for name, key in NODE_KEYS.items() if name.startswith(_FRONT)}
SHORT: Final = {name.removesuffix("_ms"): name for name in KEYS if name.endswith("_ms")}


def apply_settings(settings: Settings, changes: Sequence[str]) -> Settings:
    """The settings with these changes. Raises ConfigError, which names the key and what it may be."""
    groups: dict[str, Any] = msgspec.to_builtins(settings)
    for change in changes:
        name, separator, text = change.partition("=")
        if not separator:
            raise ConfigError(change, "is no setting: write key=value, or key= for the default")
        full = _find(name.strip())
        group, separator, last = full.rpartition(".")
        inner = groups[group] if separator else groups
        inner[last] = _parse(name.strip(), KEYS[full], text.strip())
        if not separator and inner[last] is None:
            del inner[last]
    try:
        return msgspec.convert(groups, Settings).check()
    except ValueError as error:
        raise ConfigError(", ".join(changes), str(error)) from None


def list_settings(settings: Settings) -> Iterator[tuple[str, str, bool]]:
    """Every key with its value in words, and whether that is the default."""
    for name, key in KEYS.items():
        value: Any = settings
        for part in name.split("."):
            value = getattr(value, part)
        value = None if value is msgspec.UNSET else value
        yield name, key.write(value), value == key.default


def _find(name: str) -> str:
    full = name if name in KEYS else SHORT.get(name)
    if full is not None:
        return full
    near = get_close_matches(name, [*KEYS, *SHORT], 1, 0.6)
    hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(KEYS)}"
    raise ConfigError(name, f"is no setting of a topic; {hint}")


def _parse(name: str, key: ConfigKey, text: str) -> Any:
    if not text:
        return key.default
    if name in SHORT and text.isdecimal() and text != "0":
        raise ConfigError(name, f"is {text!r}, it needs a unit: {key.allowed}")
    try:
        return key.parse(text)
    except ValueError as error:
        raise ConfigError(name, str(error)) from None
