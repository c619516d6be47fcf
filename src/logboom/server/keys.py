"""Every key of the configuration: its type, default, allowed range and meaning.

Keys, types and defaults are those of `config.CONFIG`; the ranges are those by which its parts check themselves. A
meaning that is missing is an error when this is imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import msgspec.inspect as types

from logboom.broker import config as upkeep
from logboom.broker import limits
from logboom.broker.access import audit_trail
from logboom.errors import ConfigError
from logboom.server import config
from logboom.server.front_ends import FRONT_ENDS
from logboom.server.meanings import MEANINGS
from logboom.server.units import format_duration, format_size, parse_duration, parse_size
from logboom.storage.data import topic

Value = bool | int | float | str | tuple[str, ...] | Mapping[str, str] | None
Kind = Literal["size", "duration", "number", "share", "flag", "text", "texts", "choice", "table"]

_RANGES: Final[dict[str, tuple[float, float]]] = {
    **config.RANGES,
    **{f"limits.{name}": span for name, span in limits.RANGES.items()},
    **{
        f"{kind.name}.{name}": span
        for kind in FRONT_ENDS
        if kind.settings is not None
        for name, span in kind.settings.ranges.items()
    },
    **{f"upkeep.{name}": span for name, span in upkeep.RANGES.items()},
    **{f"audit.{name}": span for name, span in audit_trail.RANGES.items()},
    "topics.partitions": (1, topic.PARTITIONS_MAX),
    **{f"topics.settings.{name}": span for name, span in topic.RANGES.items()},
}
_FLAGS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_NO_BOUND: Final = {"duration": 2**40, "size": 2**41}
"""Beyond this a limit only keeps numbers out of trouble: nobody needs to know it."""
_NONE: Final = ("", "none")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    kind: Kind
    default: Value
    optional: bool
    meaning: str
    span: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()

    def parse(self, raw: object) -> Value:
        """The value that a file, a variable or a flag gives. Raises ValueError with what is allowed."""
        try:
            value = self._convert(raw)
        except (TypeError, ValueError, KeyError):
            raise ValueError(f"is {raw!r}, allowed is {self.allowed}") from None
        if self.span is not None and isinstance(value, int | float) and not self.span[0] <= value <= self.span[1]:
            raise ValueError(f"is {raw!r}, allowed is {self.allowed}")
        return value

    def _convert(self, raw: object) -> Value:
        if self.optional and isinstance(raw, str) and raw.strip().lower() in _NONE:
            return None
        if self.kind == "flag":
            return raw if isinstance(raw, bool) else _FLAGS[_text(raw).lower()]
        if self.kind == "texts":
            return _texts(raw)
        if self.kind in ("text", "table"):
            return _text(raw) or _no()
        if self.kind == "choice":
            return _text(raw).lower() if _text(raw).lower() in self.choices else _no()
        if isinstance(raw, bool):
            return _no()
        if self.kind == "share":
            return float(raw) if isinstance(raw, int | float) else float(_text(raw))
        if isinstance(raw, int):
            return raw
        if self.kind == "size":
            return parse_size(_text(raw))
        return parse_duration(_text(raw)) if self.kind == "duration" else int(_text(raw))

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"LOGBOOM_{self.name.upper().replace('.', '__')}"

    @property
    def allowed(self) -> str:
        words = {
            "size": "a size such as 64MiB",
            "duration": "a duration such as 500ms, 10s or 7d",
            "number": "a whole number",
            "share": "a number",
            "flag": "true or false",
            "text": "text that is not empty",
            "texts": "a list of texts",
            "table": "a name and text for each",
            "choice": f"one of {', '.join(self.choices)}",
        }[self.kind]
        if self.span is not None:
            low, high = self.span
            bounded = high < _NO_BOUND.get(self.kind, 2**50)
            words += f", {self._bound(low)} {f'to {self._bound(high)}' if bounded else 'or more'}"
        return f"{words}, or none" if self.optional else words

    def _bound(self, bound: float) -> str:
        return f"{bound:,}" if self.kind == "number" else self.write(bound)

    def write(self, value: Value) -> str:
        """A value in words, as `parse` reads it."""
        if value is None:
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple | Mapping):
            return ", ".join(value)
        if isinstance(value, int):
            written = {"size": format_size, "duration": format_duration}.get(self.kind, str)(value)
            return f"{written}ms" if self.kind == "duration" and written.isdigit() and value else written
        return str(value)


def _no() -> Value:
    raise ValueError


def _text(raw: object) -> str:
    if not isinstance(raw, str) or "\0" in raw:
        raise TypeError
    return raw.strip()


def _texts(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = [part for part in raw.split(",") if part.strip()]
    if not isinstance(raw, list | tuple):
        raise TypeError
    found = tuple(map(_text, raw))
    if "" in found:
        raise ValueError
    return found


def _find_keys(type_info: types.StructType | types.DataclassType, front: str) -> Iterator[ConfigKey]:
    for field in type_info.fields:
        name = f"{front}{field.name}"
        inner: Any = field.type
        if isinstance(inner, types.StructType | types.DataclassType):
            yield from _find_keys(inner, f"{name}.")
            continue
        optional = isinstance(inner, types.UnionType)
        if optional:
            (inner,) = (part for part in inner.types if not isinstance(part, types.NoneType))
        default = config.default_directory() if name == "data" else field.default
        if (default, field.default_factory, field.required) == (msgspec.NODEFAULT, msgspec.NODEFAULT, False):
            default, optional = None, True  # not set is none
        if isinstance(inner, types.DictType):
            default = {}
        choices = tuple(map(str, inner.values)) if isinstance(inner, types.LiteralType) else ()
        yield ConfigKey(name, _kind_of(name, inner), default, optional, MEANINGS[name], _RANGES.get(name), choices)


def _kind_of(name: str, inner: types.Type) -> Kind:
    last = name.rpartition(".")[2]
    if isinstance(inner, types.IntType):
        return "duration" if last.endswith("_ms") else "size" if "bytes" in last else "number"
    kinds: dict[type, Kind] = {
        types.FloatType: "share",
        types.BoolType: "flag",
        types.StrType: "text",
        types.VarTupleType: "texts",
        types.DictType: "table",
        types.LiteralType: "choice",
    }
    return kinds[type(inner)]


def _all_keys() -> dict[str, ConfigKey]:
    node = types.type_info(config.CONFIG)
    assert isinstance(node, types.StructType)
    return {key.name: key for key in _find_keys(node, "")}


KEYS: Final = _all_keys()
_TABLES: Final = frozenset(key.name for key in KEYS.values() if key.kind == "table")
SECTIONS: Final = _TABLES | {name[:at] for name in KEYS for at, letter in enumerate(name) if letter == "."}


def find_key(name: str) -> ConfigKey | None:
    """What can be set under this name; of a table, each name in it: hooks.archive is one of hooks."""
    section, _, last = name.rpartition(".")
    return KEYS.get(section if section in _TABLES and last else name) if name not in _TABLES else None


_LASTS: Final = {name.rpartition(".")[2]: name for name in reversed(KEYS)}
_RESEMBLES: Final = 0.8


def unknown(name: str, source: str) -> ConfigError:
    """The error for a key there is not, with the nearest there is."""
    nearest = nearest_key(name)
    if nearest in _TABLES:
        nearest += ".NAME"
    hint = f"the nearest is {nearest}" if nearest else "`logboom config example` shows all there are"
    return ConfigError(name, f"there is no such key ({source}); {hint}")


def nearest_key(name: str) -> str | None:
    """Also where only the last part was given."""
    found = difflib.get_close_matches(name, KEYS, 1)
    if name in _LASTS or not found:
        found = [_LASTS[last] for last in difflib.get_close_matches(name, _LASTS, 1)]
    return found[0] if found else None


def resembles_key(name: str) -> bool:
    """Whether this was probably meant to be one."""
    return name in _LASTS or bool(difflib.get_close_matches(name, KEYS, 1, _RESEMBLES))
