"""The configuration as pages: an example file with every default, and the reference."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Final

from logboom.server.keys import KEYS, ConfigKey, Value
from logboom.server.meanings import SECTION_MEANINGS

_WIDTH: Final = 100
_HOME: Final = "~/.local/share/logboom"
_INTRODUCTION: Final = """\
# Configuration

A node needs none. Settings come from four sources, and a later one overrides an earlier one: the defaults, a TOML file
(`--config FILE`, else the one `LOGBOOM_CONFIG` names, else `logboom.toml` in the working directory), environment
variables, flags.

```shell
logboom config                        # the settings in effect, and where each comes from
logboom config example > logboom.toml # every key with its default, to be edited
logboom config check logboom.toml     # what is wrong with a file
```

The variable of a key is its name in capitals after `LOGBOOM_`, with two underscores for each dot:
`LOGBOOM_LIMITS__BATCH_BYTES=32MiB`. The flag of `logboom serve` is `--set limits.batch_bytes=32MiB`. Sizes are bytes,
or have a unit (`kB`, `MB`, `GB`, `TB`, `KiB`, `MiB`, `GiB`, `TiB`); durations are milliseconds, or have one (`ms`, `s`,
`m`, `h`, `d`, `w`; `1h30m` works too). Lists are lists in TOML, and have commas between their parts elsewhere. `none`
unsets an optional value. A hook is one key for each name: `LOGBOOM_HOOKS__ARCHIVE`, `--set hooks.archive=COMMAND`.
With a wrong name or value the node does not start; the error names the allowed values.

This page is generated from the code; `logboom config example` prints the same.
"""


def example() -> str:
    """A TOML file that changes nothing: every key is there, commented out, with its default."""
    lines = ["# The configuration of a Logboom node. Every line that is commented out shows the default.", ""]
    for section, keys in _by_section():
        lines += [f"# {line}" for line in textwrap.wrap(SECTION_MEANINGS[section], _WIDTH)]
        lines += [f"[{section}]"] if section else []
        for key in keys:
            lines.append("")
            lines += [f"# {line}" for line in textwrap.wrap(f"{key.meaning} Allowed: {key.allowed}.", _WIDTH)]
            line = f"#{key.name.rpartition('.')[2]} = {_toml(key, default_of(key))}"
            lines.append('# NAME = "COMMAND"' if key.kind == "table" else line)
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """docs/reference/config.md."""
    lines = [_INTRODUCTION]
    for section, keys in _by_section():
        title = f"[{section}]" if section else "Top level"
        lines += [f"## {title}", "", SECTION_MEANINGS[section], "", "| key | default | allowed | meaning |"]
        lines.append("|---|---|---|---|")
        for key in keys:
            default = key.write(default_of(key)) or "(empty)"
            name = f"{key.name}.NAME" if key.kind == "table" else key.name
            lines.append(f"| `{name}` | {_cell(default)} | {key.allowed} | {key.meaning} |")
        lines.append("")
    return "\n".join(lines)


def default_of(key: ConfigKey) -> Value:
    """The default, as it is for most people: pages say the same on every machine."""
    return _HOME if key.name == "data" else key.default


def _by_section() -> Iterator[tuple[str, list[ConfigKey]]]:
    sections: dict[str, list[ConfigKey]] = {}
    for key in KEYS.values():
        section = key.name if key.kind == "table" else key.name.rpartition(".")[0]
        sections.setdefault(section, []).append(key)
    yield from sections.items()


def _toml(key: ConfigKey, value: Value) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value))
    if isinstance(value, bool | float) or (isinstance(value, int) and key.write(value).isdigit()):
        return key.write(value)
    return json.dumps(key.write(value))


def _cell(text: str) -> str:
    return f"`{text}`" if text != "(empty)" else text
