"""`logboom doctor [DIR | ADDRESS]`, `logboom doctor --spark`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Flag, Json, Quiet, Server
from logboom.cli.show.output import show_json
from logboom.cli.show.progress import bytes_read
from logboom.cli.show.wording import count_of, printable, seqnos_of
from logboom.errors import ConfigError, DirectoryUnusable

if TYPE_CHECKING:
    from logboom.broker.api import NodeStats
    from logboom.broker.monitor.checkup import Complaint
    from logboom.client.remote import RemoteBroker
    from logboom.spark.runtime.environment import Lack
    from logboom.storage.health.backlog import Unusable
    from logboom.storage.health.findings import Diagnosis, Finding

WELL, WRONG = 0, 1
DETAILS = """\
For a data directory: reads and verifies all logs, as `logboom check` does, and
checks topics, delete hooks, scrubs, free space, permissions and the file
system. With the node's configuration (--config, else $LOGBOOM_CONFIG, else
./logboom.toml) it checks that the hooks and validators of topics are in it.
For a running node: asks what the node refuses, which limits are near, how far
cursors are behind, and what upkeep could not do; if this machine can read the
node's directory, it checks that too. With --spark it checks what Spark needs
on this machine instead: pyspark, Java, the workers' Python.

Each finding says what to do. Changes nothing, and may run beside a server.

Exit code 0: no problems. 1: problems found (damage or a warning). 2: it cannot
be checked.

Examples:
  logboom doctor data
  logboom doctor --quick data
  logboom doctor --config /etc/logboom.toml /var/lib/logboom
  logboom doctor localhost:1773
  logboom doctor --spark
  logboom doctor --quick --quiet data || mail -s "logboom" ops
  logboom doctor --json data | jq '.findings[] | select(.severity == "warning")'
"""
app = App(name="doctor", help_epilogue=DETAILS)


@app.default
def doctor(
    place: str | None = None,
    /,
    *,
    config: Path | None = None,
    quick: Flag = False,
    spark: Flag = False,
    server: Server = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """What is wrong with a node or a data directory, and what to do?

    Parameters
    ----------
    place
        A data directory, or the address of a running node. Without one the node that --server names.
    config
        The TOML file of the directory's node, as for `logboom serve`.
    quick
        Read only a little of each segment, however large: names, sizes, snapshots, the ends of the logs.
    spark
        Only what Spark needs on this machine; neither a directory nor a node.
    as_json
        One JSON object on standard output instead of text.
    quiet
        No progress, and nothing that is harmless or mere information.
    """
    if spark:
        if place is not None or server is not None:
            raise ConfigError("--spark", "it is about this machine: name neither a directory nor a node with it")
        return _examine_spark(as_json, quiet)
    if place is not None and server is not None:
        raise ConfigError(place, "name a directory or a node, not both")
    if place is None or _is_address(place):
        return _examine_node(place or server, quick, as_json, quiet)
    report = _examine(place, quick, not (as_json or quiet or quick), _unusable(config))
    if as_json:
        show_json(_jsonable(report))
    else:
        _show(report, quiet)
        _mention_spark(quiet)
    return WRONG if report.wrong else WELL


def _is_address(place: str) -> bool:
    if os.path.exists(place):
        return False
    host, separator, port = place.rpartition(":")
    return place.startswith(("unix:", "logboom://", "tls://", "logbooms://", "@")) or bool(
        separator and host and port.isdecimal() and "/" not in place
    )


def _unusable(config: Path | None) -> Unusable | None:
    """What the node's configuration keeps it from; None where there is none to be found."""
    from logboom.server.sources import DEFAULT, load

    loaded = load(file=None if config is None else str(config))
    is_any = loaded.file is not None or any(source != DEFAULT for source in loaded.sources.values())
    return loaded.config.broker().allowed.unusable if is_any else None


def _examine(directory: str, quick: bool, progress: bool, unusable: Unusable | None = None) -> Diagnosis:
    from logboom.storage.health.check import total_bytes
    from logboom.storage.health.doctor import examine, find_directory
    from logboom.storage.health.plain import PlainDisk
    from logboom.storage.health.surroundings import look_around

    path = os.path.abspath(directory)
    if not os.path.isdir(path):
        raise DirectoryUnusable(f"{path} is not a directory: name a data directory, or a node with --server")
    disk = PlainDisk(path, read_only=True)
    total = 0 if quick else total_bytes(disk, find_directory(disk, path))
    with bytes_read("examining", total, progress) as advance:
        return examine(disk, path, time.time_ns() // 1000, quick, advance, look_around(disk, path), unusable=unusable)


class Checkup(NamedTuple):
    """What a running node says of itself."""

    node_id: str
    directory: str | None
    """As the node said, on its own machine."""
    stats: NodeStats
    findings: list[Complaint]

    @property
    def wrong(self) -> bool:
        return any(complaint.severity in ("damage", "warning") for complaint in self.findings)


async def _ask_node(broker: RemoteBroker) -> Checkup:
    from logboom.broker.caller import EVERYBODY
    from logboom.broker.monitor.checkup import examine

    stats = await broker.stats()
    return Checkup(stats.node_id, broker.welcome.directory, stats, await examine(broker, EVERYBODY))


def _examine_node(server: str | None, quick: bool, as_json: bool, quiet: bool) -> int:
    found = ask(server, _ask_node)
    files = None
    if found.directory is not None and _is_ours(found.directory, found.node_id):
        files = _examine(found.directory, quick, not (as_json or quiet or quick))
    wrong = found.wrong or (files is not None and files.wrong)
    if as_json:
        show_json({"wrong": wrong, "node": found._asdict(), "files": None if files is None else _jsonable(files)})
        return WRONG if wrong else WELL
    print(f"the node {found.node_id}")
    _show_node(found, quiet)
    if files is not None:
        print(f"\nits files in {files.path}")
        _show(files, quiet)
    elif not quiet:
        print(f"\nits files were not checked: {found.directory or 'the directory'} cannot be read from here")
    _mention_spark(quiet)
    return WRONG if wrong else WELL


def _examine_spark(as_json: bool, quiet: bool) -> int:
    from logboom.spark.runtime.environment import describe_spark, examine_spark

    findings, found = examine_spark(), describe_spark()
    if as_json:
        show_json({"wrong": bool(findings), "findings": findings, "found": found})
    else:
        _list(findings, quiet, _describe_complaint)
        print(", ".join(f"{name}: {value or 'none'}" for name, value in found.items()))
    return WRONG if findings else WELL


def _mention_spark(quiet: bool) -> None:
    """One line, where somebody who wants Spark would have to install something."""
    from logboom.spark.runtime.environment import examine_spark

    if not quiet and (findings := examine_spark()):
        print(f"not ready for Spark, {count_of(len(findings), 'finding')}: `logboom doctor --spark` says what to do")


def _is_ours(directory: str, node_id: str) -> bool:
    """Whether the node's directory is the one that has that name here."""
    from logboom.storage.data.directory import read_node
    from logboom.storage.health.plain import PlainDisk

    try:
        node = read_node(PlainDisk(directory, read_only=True), directory) if os.path.isdir(directory) else None
    except (OSError, DirectoryUnusable):
        return False
    return node is not None and node.node_id == node_id


def _jsonable(report: Diagnosis) -> dict[str, Any]:
    import msgspec

    return {"wrong": report.wrong, **msgspec.to_builtins(report)}


def _show(report: Diagnosis, quiet: bool) -> None:
    _list(report.findings, quiet, lambda finding: _describe(finding, report.path))
    print(_summarise(report))


def _show_node(found: Checkup, quiet: bool) -> None:
    _list(found.findings, quiet, _describe_complaint)
    stats = found.stats
    counts = [(stats.topics, "topic"), (stats.logs, "log"), (sum(stats.connections.values()), "connection")]
    print(", ".join(count_of(number, noun) for number, noun in counts))


def _list(findings: Sequence[Any], quiet: bool, describe: Callable[[Any], str]) -> None:
    from logboom.storage.health.findings import SEVERITIES

    for severity in SEVERITIES[:2] if quiet else SEVERITIES:
        found = [finding for finding in findings if finding.severity == severity]
        if found:
            print(f"{severity.upper()}")
            print("\n".join(map(describe, found)))
            print()
    counts = {word: sum(finding.severity == word for finding in findings) for word in ("damage", "warning")}
    words = [f"{counts['damage']} damage"] if counts["damage"] else []
    words += [count_of(counts["warning"], "warning")] if counts["warning"] else []
    print(f"something is wrong: {', '.join(words)}" if words else "nothing is wrong")


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


def _describe_complaint(complaint: Complaint | Lack) -> str:
    where, reason = printable(complaint.where), printable(complaint.reason)
    return f"  {complaint.kind}: {where}\n    {reason}\n    to do: {printable(complaint.advice)}"


def _summarise(report: Diagnosis) -> str:
    counted = [(report.topics, "topic"), (report.logs, "log"), (report.segments, "segment")]
    if not report.quick:
        counted += [(report.batches, "batch"), (report.records, "record")]
    counts = ", ".join(count_of(number, noun) for number, noun in (*counted, (report.bytes, "byte")))
    read = f", of which {report.bytes_read:,} were read" if report.quick else ", all of them read"
    return f"{counts}{read}; {count_of(report.free_bytes, 'byte')} free"
