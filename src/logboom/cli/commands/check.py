"""`logboom check DIR`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from logboom.cli.options import Json, Quiet
from logboom.cli.place import locate
from logboom.cli.show.output import show_json
from logboom.cli.show.progress import bytes_read
from logboom.cli.show.wording import describe, summarise

SOUND, DAMAGED = 0, 1
DETAILS = """\
Reads and verifies every byte of every log, and continues after damage. Changes nothing, and may run beside a server.

Exit code 0: sound. 1: damage found. 2: the directory cannot be checked.

Examples:
  logboom check data
  logboom check data/topics/events~0123456789abcdef0123456789abcdef/0
  logboom check --json data | jq .findings
"""
app = App(name="check", help_epilogue=DETAILS)


@app.default
def check(
    directory: Path,
    /,
    *,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Is everything in a directory as it was written?

    Parameters
    ----------
    directory
        A data directory, a topic's directory or one log's directory.
    as_json
        One JSON object on standard output instead of text.
    quiet
        No progress, and no findings that are mere information.
    """
    from logboom.storage.health.check import check as check_directory
    from logboom.storage.health.check import total_bytes

    disk, place = locate(directory)
    with bytes_read("checking", total_bytes(disk, place), not as_json and not quiet) as progress:
        report = check_directory(disk, place.path, progress)
    if as_json:
        import msgspec

        show_json({"sound": not report.damaged, **msgspec.to_builtins(report)})
    else:
        for finding in report.findings:
            if not quiet or finding.severity != "info":
                print(describe(finding, place.path))
        print(summarise(report))
    return DAMAGED if report.damaged else SOUND
