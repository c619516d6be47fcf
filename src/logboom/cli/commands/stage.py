"""`logboom stage ...`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server
from logboom.cli.show.output import show_json, show_table
from logboom.errors import InvalidKey, StageBusy, StageNotFound

if TYPE_CHECKING:
    from logboom.broker.api import KeyInfo, StageInfo
    from logboom.client.remote import RemoteBroker

DONE, REFUSED = 0, 2
DETAILS = """\
A stage holds records that readers do not see until they are published, all at
once. Each publish has a key, a name and a number: the same key is never
published twice. Unused stages expire.

Examples:
  logboom stage list
  logboom stage list --json | jq '.[] | select(.state == "failed").id'
  logboom stage discard 9b2e7c40d5a1468f8e13f0a7c6d4b259
  logboom stage keys orders/
  logboom stage forget orders/import --yes
"""
app = App(name="stage", help="List and discard stages; list and forget publish keys.", help_epilogue=DETAILS)
STAGES = ("stage", "state", "records", "bytes", "logs", "touched", "expires", "note")
KEYS = ("name", "number", "records", "published", "expires", "state")


@app.command(name="list")
def list_stages(*, server: Server = None, as_json: Json = False) -> None:
    """List stages that are not published, longest unused first."""
    found = ask(server, lambda broker: broker.list_stages())
    if as_json:
        show_json(found)
    else:
        show_table(STAGES, map(_stage_row, found))


@app.command
def discard(stage: str, /, *more: str, server: Server = None) -> int:
    """Discard stages with their records.

    A client that writes to one of them gets an error. Stages that are being published stay.

    Parameters
    ----------
    stage
        Its id, as `logboom stage list` shows it.
    more
        The ids of others.
    """
    failures = ask(server, lambda broker: _discard(broker, list(dict.fromkeys([stage, *more]))))
    for failure in failures:
        print(f"logboom: {failure}", file=sys.stderr)
    return REFUSED if failures else DONE


async def _discard(broker: RemoteBroker, stages: list[str]) -> list[StageBusy | StageNotFound]:
    """One by one, so that it can be said of each what became of it."""
    left = []
    for stage in stages:
        if await broker.discard([stage]):
            print(f"discarded {stage}")
        else:
            left.append(stage)
    known = {info.id for info in await broker.list_stages()} if left else set()
    return [StageBusy(stage) if stage in known else StageNotFound(stage) for stage in left]


@app.command
def keys(prefix: str = "", /, *, server: Server = None, as_json: Json = False) -> None:
    """List publish keys: the highest number of each name.

    Parameters
    ----------
    prefix
        Only names that begin with it.
    """
    found = ask(server, lambda broker: broker.list_keys(prefix))
    if as_json:
        show_json(found)
    else:
        show_table(KEYS, map(_key_row, found))


@app.command
def forget(
    name: str,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)] = False,
    server: Server = None,
) -> int:
    """Forget a publish key: a repeated publish appends its records again.

    Gives up a publish that can never be finished: records that are in the logs stay, the rest is discarded.

    Parameters
    ----------
    name
        The whole name of the key.
    yes
        Do not ask for confirmation; needed without a terminal.
    """
    listed = ask(server, lambda broker: broker.list_keys(name))
    found = next((info for info in listed if info.name == name), None)
    if found is None:
        raise InvalidKey(name, "nothing was published under it")
    if not yes and not _agreed(found):
        print(f"logboom: {name} was not forgotten", file=sys.stderr)
        return REFUSED
    if not ask(server, lambda broker: broker.forget_key(name)):
        raise InvalidKey(name, "nothing was published under it")
    print(f"forgot {name}, which stood at number {found.number}")
    return DONE


def _agreed(key: KeyInfo) -> bool:
    if not sys.stdin.isatty():
        print("logboom: no terminal to ask for confirmation: pass --yes", file=sys.stderr)
        return False
    cost = "Give up what is not in its logs yet" if key.is_open else "A repeat will be appended again"
    print(f"{cost}. Forget {key.name}, number {key.number}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _stage_row(info: StageInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    facts = info.id, info.state, info.records, info.size_bytes, ",".join(info.logs) or None
    return *facts, show_moment(info.touched), show_moment(info.expires), info.note or None


def _key_row(info: KeyInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    expires = None if info.expires is None else show_moment(info.expires)
    state = "being published" if info.is_open else "published"
    return info.name, info.number, info.records, show_moment(info.published), expires, state
