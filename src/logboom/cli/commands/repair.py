"""`logboom repair DIR`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from logboom.cli.options import Flag, Json, Quiet
from logboom.cli.place import locate
from logboom.cli.show.output import show_json
from logboom.cli.show.progress import bytes_read
from logboom.cli.show.wording import count_of, describe, seqnos_of
from logboom.errors import DirectoryInUse

if TYPE_CHECKING:
    from logboom.storage.files.disk import OsDisk
    from logboom.storage.health.check import CheckTarget
    from logboom.storage.health.repair import RepairPlan

DONE, DAMAGED, REFUSED = 0, 1, 2
DETAILS = """\
Sound records keep their seqnos. Records that cannot be saved are marked as lost: readers get an error there, and can
skip them. Files and bytes that repair replaces are kept beside the log as .damaged or .torn. Stop the server first. A
repair that was interrupted can be run again.

Exit code 0: nothing is left to repair. 1: some damage cannot be repaired. 2: refused, nothing was changed.

Examples:
  logboom repair --dry-run data
  logboom repair data
  logboom repair --yes data
"""
app = App(name="repair", help_epilogue=DETAILS)


@app.default
def repair(
    directory: Path,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    dry_run: Flag = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Mend what a check finds.

    Parameters
    ----------
    directory
        A data directory, a topic's directory or one log's directory.
    yes
        Do not ask.
    dry_run
        Print the steps, and change nothing.
    as_json
        One JSON object on standard output instead of text; to mend something it needs --yes.
    quiet
        No progress.
    """
    from logboom.storage.health.check import total_bytes
    from logboom.storage.health.repair import hold, plan_repair

    disk, place = locate(directory)
    with _look_on(disk, place) if dry_run else hold(disk, place.root):
        with bytes_read("reading", total_bytes(disk, place), not (quiet or as_json)) as progress:
            plan = plan_repair(disk, place.path, progress)
        if not as_json:
            _show(plan, place.path)
        if plan.steps and not dry_run:
            if not yes and (as_json or not sys.stdin.isatty()):
                print("logboom: not a terminal: pass --yes, or --dry-run to see the plan", file=sys.stderr)
                return REFUSED
            if not yes and not _agreed():
                print("logboom: nothing was changed", file=sys.stderr)
                return REFUSED
            for step in plan.steps:
                step.run()
            if not as_json:
                print(f"done: {count_of(len(plan.steps), 'step')}")
    if as_json:
        _show_json(plan, place.path, bool(plan.steps) and not dry_run)
    return DAMAGED if plan.beyond else DONE


@contextmanager
def _look_on(disk: OsDisk, place: CheckTarget) -> Iterator[None]:
    """As `hold`, without keeping anybody away."""
    from logboom.storage.health.check import writer_of

    if place.root is not None and writer_of(disk, place.root)[0]:
        raise DirectoryInUse(f"{place.root} is in use by another process: stop it first")
    yield


def _show_json(plan: RepairPlan, path: str, done: bool) -> None:
    import msgspec

    said = {
        "path": path,
        "done": done,
        "steps": [step.text for step in plan.steps],
        "lost": msgspec.to_builtins(plan.lost),
        "beyond": msgspec.to_builtins(plan.beyond),
    }
    show_json(said)


def _show(plan: RepairPlan, path: str) -> None:
    for finding in plan.beyond:
        print(f"cannot be repaired: {describe(finding, path)}")
    if not plan.steps:
        print("nothing to repair")
    for number, step in enumerate(plan.steps, 1):
        print(f"{number}. {step.text.replace(f'{path}/', '')}")
    for finding in plan.lost:
        print(f"stays lost: {seqnos_of(finding)} of {os.path.relpath(finding.log or path, path)}")


def _agreed() -> bool:
    print("Do this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
