"""What topics may have this node do outside of itself: commands it runs, addresses it asks. Its configuration decides.

A topic's settings only choose among these, whoever sets them and over whatever protocol: `check` is asked wherever
settings are changed. Settings come from elsewhere too, from files, dumps and other nodes, and stay as they are there:
what they name and this node does not have is never run or asked. `unusable` says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from logboom.broker.append.validator_address import ValidatorRules
from logboom.errors import ConfigError
from logboom.storage.data.topic import Settings, is_hook_name

HOOK: Final = "hook.delete"
URLS: Final = "validators.urls"
_SHOWN: Final = 200
_SECRET: Final = re.compile(r"//[^/?#]*@")


@dataclass(frozen=True, slots=True)
class Allowances:
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Commands, by their names."""
    validators: ValidatorRules = field(default_factory=ValidatorRules)

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        for name, command in self.hooks.items():
            if not is_hook_name(name):
                raise ConfigError(f"hooks.{name[:_SHOWN]}", "a name is 1 to 64 of a-z, 0-9, _ and -, no sign first")
            if not command.strip() or "\0" in command:
                raise ConfigError(f"hooks.{name}", "is empty, or no text: give a command for the shell")
        self.validators.check()

    def check(self, settings: Settings, before: Settings = Settings()) -> None:  # noqa: B008
        """Raises ConfigError where something is chosen that is not here. What was chosen before may stay."""
        hook = settings.hook.delete
        if hook != before.hook.delete and (reason := self.hook_refusal(hook)) is not None:
            raise ConfigError(HOOK, reason)
        for url in settings.validators.urls:
            if url not in before.validators.urls and (reason := self.validators.refusal(url)) is not None:
                raise ConfigError(URLS, f"{shown(url)!r} {reason}")

    def unusable(self, settings: Settings) -> dict[str, str]:
        """Why what settings name is not run, or not asked, by key; empty where all is well."""
        found: dict[str, str] = {}
        if (reason := self.hook_refusal(settings.hook.delete)) is not None:
            found[HOOK] = reason
        for url in settings.validators.urls:
            if (refused := self.validators.refusal(url)) is not None:
                found[URLS] = f"{shown(url)!r} {refused}"
        return found

    def hook_refusal(self, hook: str | None) -> str | None:
        """Why a topic's hook is not run; None where it is, or there is none."""
        if hook is None or self.hooks.get(hook) is not None:
            return None
        known = f"has only {', '.join(sorted(self.hooks))}" if self.hooks else "names none"
        return f"{hook[:_SHOWN]!r} is no hook of this node: [hooks] in its configuration {known}"


def shown(url: str) -> str:
    """Without user and password: errors go to clients and into their logs."""
    return _SECRET.sub("//", url[:_SHOWN])
