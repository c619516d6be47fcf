"""`logboom doctor DIR`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from logboom.cli.options import Flag, Json, Quiet
from logboom.cli.progress import bytes_read
from logboom.cli.wording import count_of, seqnos_of
from logboom.errors import DirectoryUnusable

if TYPE_CHECKING:
    from logboom.storage.health.findings import Diagnosis, Finding

WELL, WRONG = 0, 1
DETAILS = """\
Reads and verifies everything, as `logboom check` does, and looks at all else that a server needs: topics, delete hooks,
scrubs, space, permissions, the file system. Each finding says what to do. Changes nothing, and may run beside a server.

Exit code 0: nothing is wrong. 1: something is (damage or a warning). 2: the directory cannot be examined.

Examples:
  logboom doctor data
  logboom doctor --quick data
  logboom doctor --quick --quiet data || mail -s "logboom" ops
  logboom doctor --json data | jq '.findings[] | select(.severity == "warning")'
"""
app = App(name="doctor", help_epilogue=DETAILS)


@app.default
def doctor(
    directory: Path,
    /,
    *,
    quick: Flag = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """What is wrong in a data directory, and what to do?

    Parameters
    ----------
    directory
        A data directory.
    quick
        Read only a little of each segment, however large: names, sizes, snapshots, the ends of the logs.
    as_json
        One JSON object on standard output instead of text.
    quiet
        No progress, and nothing that is harmless or mere information.
    """
    from logboom.storage.health.check import total_bytes
    from logboom.storage.health.doctor import examine, find_directory
    from logboom.storage.health.plain import PlainDisk
    from logboom.storage.health.surroundings import look_around

    path = os.path.abspath(directory)
    if not os.path.isdir(path):
        raise DirectoryUnusable(f"{path} is not a directory: name a data directory")
    disk = PlainDisk(path, read_only=True)
    total = 0 if quick else total_bytes(disk, find_directory(disk, path))
    with bytes_read("examining", total, not (as_json or quiet or quick)) as progress:
        report = examine(disk, path, time.time_ns() // 1000, quick, progress, look_around(disk, path))
    if as_json:
        import msgspec

        found = {"wrong": report.wrong, **msgspec.to_builtins(report)}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        _show(report, quiet)
    return WRONG if report.wrong else WELL


def _show(report: Diagnosis, quiet: bool) -> None:
    from logboom.storage.health.findings import SEVERITIES

    for severity in SEVERITIES[:2] if quiet else SEVERITIES:
        found = [finding for finding in report.findings if finding.severity == severity]
        if found:
            print(f"{severity.upper()}")
            print("\n".join(_describe(finding, report.path) for finding in found))
            print()
    counts = {word: sum(finding.severity == word for finding in report.findings) for word in ("damage", "warning")}
    words = [f"{counts['damage']} damage"] if counts["damage"] else []
    words += [count_of(counts["warning"], "warning")] if counts["warning"] else []
    print(f"something is wrong: {', '.join(words)}" if words else "nothing is wrong")
    print(_summarise(report))


def _describe(finding: Finding, root: str) -> str:
    """What and where, why, what to do."""
    where = root if finding.file == root else os.path.relpath(finding.file, root)
    if finding.position:
        where += f" at byte {finding.position:,}"
    seqnos = seqnos_of(finding)
    lines = (
        f"  {finding.kind}: {where}{f' ({seqnos})' if seqnos else ''}",
        f"    {finding.reason}",
        f"    to do: {finding.advice}",
    )
    return "\n".join(lines)


def _summarise(report: Diagnosis) -> str:
    counted = [(report.topics, "topic"), (report.logs, "log"), (report.segments, "segment")]
    if not report.quick:
        counted += [(report.batches, "batch"), (report.records, "record")]
    counts = ", ".join(count_of(number, noun) for number, noun in (*counted, (report.bytes, "byte")))
    read = f", of which {report.bytes_read:,} were read" if report.quick else ", all of them read"
    return f"{counts}{read}; {count_of(report.free_bytes, 'byte')} free"
