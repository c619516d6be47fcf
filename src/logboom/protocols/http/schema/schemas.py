"""The types of the API as JSON schema: what msgspec knows of them, and what their source says of each field.

Made of the types that encode and decode, so it cannot say anything else than they do. The same types give the same
schemas, in the same order.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

from logboom.storage.data import topic

_PREFIX: Final = "#/components/schemas/"
Schema = dict[str, Any]


class Schemas:
    """All that these types need, each struct once and by its name."""

    def __init__(self, types: Iterable[Any], limits: Mapping[str, int] | None = None) -> None:
        """`limits` are maxima that types give by name, because they are the node's."""
        wanted = list(dict.fromkeys(types))
        structs = list(dict.fromkeys(_structs(shapes.multi_type_info(wanted))))
        made, components = msgspec.json.schema_components([*wanted, *structs], ref_template=_PREFIX + "{name}")
        self._components: dict[str, Schema] = _modern(components)
        self._schemas: dict[Any, Schema] = dict(zip([*wanted, *structs], _modern(made), strict=True))
        for struct in structs:
            _explain(self.component(struct), struct)
        self._limit_settings()
        for component in self._components.values():
            _name_limits(component, limits or {})

    def of(self, kind: Any) -> Schema:
        """Of one of the types, as it is used."""
        return self._schemas[kind]

    def component(self, struct: type[msgspec.Struct]) -> Schema:
        """The schema itself, where `of` is a reference to it."""
        return self._components[self._schemas[struct]["$ref"].removeprefix(_PREFIX)]

    def without(self, structs: Iterable[type[msgspec.Struct]]) -> dict[str, Schema]:
        """The components by name, but these."""
        left_out = {self._schemas[struct]["$ref"].removeprefix(_PREFIX) for struct in structs}
        return {name: schema for name, schema in sorted(self._components.items()) if name not in left_out}

    def _limit_settings(self) -> None:
        """Topics have settings whose ranges are not part of their types."""
        for key, (low, high) in topic.RANGES.items():
            group, _, name = key.partition(".")
            struct = type(getattr(topic.Settings(), group))
            if struct in self._schemas:
                _limit(self.component(struct)["properties"][name], low, high)
        if "TopicChange" in self._components and topic.Settings in self._schemas:
            self._components["TopicChange"]["properties"]["settings"] = self._change_of(self._schemas[topic.Settings])

    def _change_of(self, schema: Schema) -> Schema:
        """Of settings of which some are named, each of which may be null."""
        if "$ref" not in schema:
            return _or_null({name: part for name, part in schema.items() if name != "default"})
        whole = self._components[schema["$ref"].removeprefix(_PREFIX)]
        named = {name: _or_null(self._change_of(part)) for name, part in whole["properties"].items()}
        return {"type": "object", "properties": named, "additionalProperties": False}


def _or_null(schema: Schema) -> Schema:
    choices = schema.get("anyOf", [schema])
    return schema if {"type": "null"} in choices else {"anyOf": [*choices, {"type": "null"}]}


def _name_limits(schema: Any, limits: Mapping[str, int]) -> None:
    if isinstance(schema, list):
        for part in schema:
            _name_limits(part, limits)
    elif isinstance(schema, dict):
        if isinstance(schema.get("maximum"), str):
            schema["maximum"] = limits[schema["maximum"]]
        for part in schema.values():
            _name_limits(part, limits)


def _modern(schema: Any) -> Any:
    """Tuples as JSON schema has them since 2020."""
    if isinstance(schema, list | tuple):
        return [_modern(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _modern(part) for name, part in schema.items()}
    if isinstance(made.get("items"), list):
        made |= {"prefixItems": made["items"], "items": False}
    return made


def _limit(schema: Schema, low: float, high: float) -> None:
    number = next(part for part in schema.get("anyOf", [schema]) if part["type"] != "null")
    number.update(minimum=low, maximum=high)


def _structs(found: Any) -> Iterator[type[msgspec.Struct]]:
    """Every struct in descriptions of types, which are structs themselves."""
    if isinstance(found, shapes.StructType):
        yield found.cls
    if isinstance(found, shapes.Type | shapes.Field):
        found = [getattr(found, name) for name in found.__struct_fields__]
    if isinstance(found, list | tuple):
        for part in found:
            yield from _structs(part)


def _explain(schema: Schema, struct: type[msgspec.Struct]) -> None:
    schema.pop("title", None)
    more = getattr(struct, "rule", None)  # what no type of a field can say
    schema |= more if isinstance(more, dict) else {}
    if struct.__doc__:
        schema["description"] = inspect.cleandoc(struct.__doc__)
    meanings = field_meanings(struct)
    for field in msgspec.structs.fields(struct):
        if field.name in meanings:
            shown = schema["properties"][field.encode_name]
            shown["description"] = meanings[field.name]


def field_meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What stands below each field in the source; nothing where there is no source."""
    return _classes(struct.__module__).get(struct.__name__, {})


@cache
def _classes(module: str) -> dict[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, KeyError):
        return {}
    return {node.name: dict(_meanings(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _meanings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(node.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            yield field.target.id, inspect.cleandoc(below.value.value)
