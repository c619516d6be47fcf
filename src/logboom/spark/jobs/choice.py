"""What a job on any topics is called, and which topics it is on."""

from __future__ import annotations

import re
from typing import Final

from logboom.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def check_choice(name: str, pattern: str | None) -> None:
    """Raises ConfigError: of a name that no path can have, or a pattern that is none."""
    if not _NAME.fullmatch(name):
        raise ConfigError("name", f"is {name!r}, allowed are up to 100 letters, digits, '.', '_' and '-'")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError("pattern", f"is {pattern!r}, which is no regular expression: {error}") from None
