"""`logboom config`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.names import complete_node_settings
from logboom.cli.options import Json
from logboom.cli.show.output import show_json

RIGHT, WRONG = 0, 1
DETAILS = """\
Values come from the defaults, a TOML file (--config, else $LOGBOOM_CONFIG, else ./logboom.toml), the environment
(LOGBOOM_LIMITS__BATCH_BYTES=32MiB) and the flags of `logboom serve`; a later source overrides an earlier one.

Exit code 0: valid. 1: `check` found errors. 2: the configuration has errors, or there is no such file.

Examples:
  logboom config
  logboom config --json | jq '.settings["limits.batch_bytes"]'
  logboom config check /etc/logboom.toml
  logboom config example > logboom.toml
"""
app = App(name="config", help_epilogue=DETAILS)


@app.default
def show(
    *,
    config: Path | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", completer=complete_node_settings)] = None,
    as_json: Json = False,
) -> int:
    """What is the configuration here, and where does each value come from?

    Parameters
    ----------
    config
        The TOML file, as for `logboom serve`.
    set_
        KEY=VALUE, as for `logboom serve`.
    as_json
        One JSON object on standard output instead of text.
    """
    from logboom.server.keys import KEYS
    from logboom.server.sources import load, read_flag

    loaded = load([read_flag(text) for text in set_ or ()], None if config is None else str(config))
    values = loaded.values()
    if as_json:
        settings = {name: {"value": value, "source": loaded.sources[name]} for name, value in values.items()}
        found = {"file": loaded.file, "ignored": loaded.ignored, "settings": settings}
        show_json(found)
        return RIGHT
    name_width = max(map(len, values))
    written = {name: KEYS[name].write(value) for name, value in values.items()}
    value_width = min(40, max(map(len, written.values())))
    for name, text in written.items():
        print(f"{name:{name_width}}  {text:{value_width}}  {loaded.sources[name]}")
    for variable in loaded.ignored:
        print(f"{variable} in the environment is not a setting of a node", file=sys.stderr)
    return RIGHT


@app.command
def check(file: Path, /, *, as_json: Json = False) -> int:
    """Check a configuration file.

    Parameters
    ----------
    file
        A TOML file.
    as_json
        One JSON object on standard output instead of text.
    """
    from logboom.server.sources import faults_of

    faults = faults_of(str(file.absolute()))
    if as_json:
        found = {"right": not faults, "faults": [{"key": fault.key, "reason": fault.reason} for fault in faults]}
        show_json(found)
    else:
        for fault in faults:
            print(fault)
        print(f"{file}: {len(faults)} wrong" if faults else f"{file}: right")
    return WRONG if faults else RIGHT


@app.command
def example() -> int:
    """Print a configuration file with every key, its meaning and its default."""
    from logboom.server.reference import example as written

    sys.stdout.write(written())
    return RIGHT
