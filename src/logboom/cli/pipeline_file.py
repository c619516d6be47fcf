"""The pipeline of one or several machines as a TOML file says: where the node is, where results go, and which jobs.

    server = "localhost:1773"
    directory = "results"

    [jobs.archive-events]
    kind = "archive"
    topic = "events"
    every = "5m"

All that is wrong is told with the name of its key. Relative paths are relative to the file.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from logboom.client.link.address import parse_servers
from logboom.errors import ConfigError
from logboom.server.units import parse_duration
from logboom.spark.jobs.config import JobConfig, PipelineConfig, SparkConfig
from logboom.spark.jobs.kinds import KINDS, make_work
from logboom.spark.jobs.lease import LEASE_S

FILE_VARIABLE: Final = "LOGBOOM_PIPELINE"
FILE_NAME: Final = "pipeline.toml"
LEASE_MS: Final = 1_000, 3_600_000
EVERY_MS: Final = 1_000, 366 * 86_400_000


def find_file(named: str | None) -> str | None:
    """The file that is named, else that of the environment, else the one that lies here."""
    path = named or os.environ.get(FILE_VARIABLE)
    if path:
        return os.path.abspath(os.path.expanduser(path))
    return os.path.abspath(FILE_NAME) if os.path.isfile(FILE_NAME) else None


def read_file(path: str) -> dict[str, Any]:
    """What stands in the file. Raises ConfigError, OSError."""
    with open(path, "rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(path, f"is not TOML: {error}") from None


def load(
    path: str | None, directory: str | None = None, server: str | None = None, only: str | None = None
) -> PipelineConfig:
    """`directory` and `server` go before what the file says; `only` is the one job, or kind, that is looked at.

    Raises ConfigError for the first thing that is wrong, OSError for a file that cannot be read.
    """
    tree = {} if path is None else read_file(path)
    _check_known(tree, PipelineConfig.__struct_fields__, "")
    jobs = _table(tree, "jobs")
    if only is not None and only not in jobs and only not in KINDS:
        there_are = f"jobs: {', '.join(jobs) or 'none'}; kinds: {', '.join(KINDS)}"
        raise ConfigError(only, f"there is no such job in the configuration, and no such kind; {there_are}")
    if directory is None:
        found = _text(tree, "directory")
        if found is None:
            raise ConfigError("directory", "is missing: say where results go, in the file or with --directory")
        directory = found if "://" in found else os.path.join(os.path.dirname(path or ""), os.path.expanduser(found))
    server = server or _text(tree, "server")
    try:
        parse_servers(server)
    except ValueError as error:
        raise ConfigError("server", str(error)) from None
    wanted = jobs if only is None else {name: jobs[name] for name in jobs if name == only}
    return PipelineConfig(
        directory=directory if "://" in directory else os.path.abspath(os.path.expanduser(directory)),
        server=server,
        lease_ms=_duration(tree, "lease_ms", "", LEASE_MS) or int(1000 * LEASE_S),
        spark=_read_spark(_table(tree, "spark")),
        jobs=_read_jobs(wanted),
    )


def _read_spark(table: Mapping[str, Any]) -> SparkConfig:
    _check_known(table, SparkConfig.__struct_fields__, "spark.")
    master, remote = _text(table, "master", "spark."), _text(table, "remote", "spark.")
    if master is not None and remote is not None:
        raise ConfigError("spark.remote", "is given, and spark.master too: a session is at one of them")
    settings = _table(table, "config", "spark.")
    for name, value in settings.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(f"spark.config.{name}", 'is no value: write the whole name in quotes, "spark.x.y" = "z"')
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return SparkConfig(master=master, remote=remote, config=texts)


def _read_jobs(tables: Mapping[str, Any]) -> dict[str, JobConfig]:
    jobs: dict[str, JobConfig] = {}
    made: dict[str, str] = {}
    for name in tables:
        job = jobs[name] = _read_job(name, _table(tables, name, "jobs."))
        if job.work.id in made:
            raise ConfigError(f"jobs.{name}", f"makes the same as jobs.{made[job.work.id]}: {job.work.id}")
        made[job.work.id] = name
    return jobs


def _read_job(name: str, table: Mapping[str, Any]) -> JobConfig:
    where = f"jobs.{name}."
    kind = _text(table, "kind", where)
    if kind is None:
        raise ConfigError(f"{where}kind", "is missing: say what kind of job it is")
    options = {key: value for key, value in table.items() if key not in ("kind", "every")}
    return JobConfig(name, make_work(kind, options, where), _duration(table, "every", where, EVERY_MS))


def _check_known(table: Mapping[str, Any], known: tuple[str, ...], front: str) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = (
                f"the nearest is {front}{near[0]}" if near else f"there are {', '.join(front + key for key in known)}"
            )
            raise ConfigError(f"{front}{name}", f"there is no such key; {hint}")


def _table(tree: Mapping[str, Any], name: str, front: str = "") -> dict[str, Any]:
    found = tree.get(name, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{front}{name}", f"is a section, not a value: write [{front}{name}] and its keys below it")
    return found


def _text(tree: Mapping[str, Any], name: str, front: str = "") -> str | None:
    found = tree.get(name)
    if found is not None and (not isinstance(found, str) or not found.strip()):
        raise ConfigError(f"{front}{name}", f"is {found!r}, allowed is text that is not empty")
    return found


def _duration(tree: Mapping[str, Any], name: str, front: str, span: tuple[int, int]) -> int | None:
    found = tree.get(name)
    if found is None:
        return None
    try:
        if isinstance(found, bool):
            raise ValueError
        duration_ms = found if isinstance(found, int) else parse_duration(str(found))
        if not span[0] <= duration_ms <= span[1]:
            raise ValueError
    except ValueError:
        least, most = span[0] // 1000, span[1] // 3_600_000
        allowed = f"a duration such as 30s, 5m or 1d, {least}s to {f'{most}h' if most < 48 else f'{most // 24}d'}"
        raise ConfigError(f"{front}{name}", f"is {found!r}, allowed is {allowed}") from None
    return duration_ms
