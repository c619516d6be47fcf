"""Names of a package that are imported when they are first used: whoever imports one module does not pay for all.

A package says under `TYPE_CHECKING` what they are, for those who read its types, and here where they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(
    package: str, homes: Mapping[str, str], names: dict[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The package's `__getattr__` and `__dir__`. `homes` is the module of each name, `names` the package's globals."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = names[name] = getattr(import_module(homes[name]), name)
        return value

    return find, lambda: sorted({*names, *homes})
