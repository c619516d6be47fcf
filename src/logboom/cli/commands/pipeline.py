"""`logboom pipeline ...`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from logboom.cli.connection import ask, find_profile
from logboom.cli.options import Flag, Json, Quiet, Server
from logboom.cli.show.output import show_json, show_pairs, show_table
from logboom.errors import ConfigError, LeaseHeld, SparkMissing, Unavailable

if TYPE_CHECKING:
    from logboom.client.remote import RemoteBroker
    from logboom.results.job_standings import JobInfo
    from logboom.spark.jobs.config import PipelineConfig
    from logboom.spark.jobs.job_run import JobWork, RunReport

DONE, FAILED = 0, 1
PROBLEMS = "problems"
"""The fact of a result that says how many a check has found."""
DETAILS = """\
Jobs run on Spark (pip install '.[spark]'): checkpoint, archive, verify,
report. A TOML file configures them: --config, else $LOGBOOM_PIPELINE, else
./pipeline.toml; a single job also runs without a file. Results are published in
the node's log _pipeline, all or nothing; a job that is started twice, here or
on another machine, runs once.

Examples:
  logboom pipeline run archive-events
  logboom pipeline run checkpoint --topic orders --by key --directory results
  logboom pipeline serve --config /etc/logboom/pipeline.toml
  logboom pipeline list
  logboom pipeline show archive/events
"""
Config = Annotated[
    Path | None,
    Parameter(help="A TOML file with jobs. Default: $LOGBOOM_PIPELINE, else ./pipeline.toml."),
]
Directory = Annotated[
    str | None, Parameter(help="Where results go, a path or a URI such as s3://bucket/logs; overrides the file.")
]
Verbose = Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)]
JOBS = ("job", "state", "lag", "succeeded", "records", "bytes", "note")
RUNS = ("run", "runner", "began", "seconds", "outcome")
app = App(name="pipeline", help="Run checkpoints, archives, checks and reports on Spark.", help_epilogue=DETAILS)


@app.command
def run(
    name: str,
    /,
    *,
    config: Config = None,
    directory: Directory = None,
    no_wait: Flag = False,
    server: Server = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    **options: Annotated[list[str], Parameter(negative="")],
) -> int:
    """Run a job once.

    Exit code 0: done, or there was nothing new. 1: it failed, or a check has found problems. 2: wrong usage, no node,
    or another process runs it.

    Parameters
    ----------
    name
        A job of the configuration; or a kind of job, with its options: checkpoint, archive, verify, report.
    no_wait
        If another process runs the job, fail instead of waiting.
    quiet
        No progress.
    verbose
        Show what Spark says.
    options
        Any option of the job, as the configuration has it; a list is given as --topics a --topics b.
    """
    from logboom.cli.signals import ending_as_interrupted

    found = _load(config, directory, server, only=name)
    work = _work_of(found, name, options)
    with ending_as_interrupted() as code:
        try:
            report = _run(found, work, not no_wait, not quiet and not as_json, verbose)
        except (ConfigError, LeaseHeld, SparkMissing, Unavailable):
            raise
        except Exception as error:
            print(f"logboom: {work.id}: {error if verbose else _first_line(error)}", file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            if code() is None:
                raise
            return code() or FAILED
    if as_json:
        show_json(report)
    else:
        _show(report)
    return FAILED if report.result is not None and report.result.facts.get(PROBLEMS) else DONE


@app.command
def serve(
    *,
    config: Config = None,
    directory: Directory = None,
    only: Annotated[list[str] | None, Parameter(negative="")] = None,
    server: Server = None,
    verbose: Verbose = False,
) -> int:
    """Run all jobs that have an interval, each when it is due, until it is stopped.

    One job at a time. Several may run, on any machines: they share the jobs, and no job runs twice.
    Ctrl-C or SIGTERM stops it: a running job is given back, and its unfinished results are discarded.

    Parameters
    ----------
    only
        Only the job of this name; may be given several times.
    verbose
        Show what Spark says.
    """
    from logboom.cli.signals import ending_as_interrupted
    from logboom.spark.jobs.engine import Engine
    from logboom.spark.jobs.job_server import Server as Serving

    found = _chosen(_load(config, directory, server), only)
    scheduled = [job.name for job in found.jobs.values() if job.every_ms is not None]
    if not scheduled:
        raise ConfigError("jobs", 'there is none with an interval: give one of them every = "5m"')
    _log_to_stderr()
    logging.getLogger("logboom.pipeline").info("serving %s", ", ".join(scheduled))
    engine = Engine(found.spark, verbose)
    serving = Serving(found, engine)
    with ending_as_interrupted():
        try:
            serving.run()
        except KeyboardInterrupt:
            logging.getLogger("logboom.pipeline").info("ended")
        finally:
            serving.close()
            engine.stop()
    return DONE


@app.command(name="list")
def list_jobs(*, config: Config = None, server: Server = None, as_json: Json = False) -> None:
    """List jobs: those that have run, and those of the configuration."""
    found = _stand(config, server)
    if as_json:
        show_json(found)
    else:
        show_table(JOBS, map(_job_row, found))


@app.command
def show(job: str, /, *, config: Config = None, server: Server = None, as_json: Json = False) -> None:
    """Show a job, its result and its last runs.

    Parameters
    ----------
    job
        What it makes, as `logboom pipeline list` shows it, or its name in the configuration.
    """
    found = next((info for info in _stand(config, server) if job in (info.job, info.name)), None)
    if found is None:
        raise ConfigError(job, "there is no such job; `logboom pipeline list` shows all there are")
    if as_json:
        show_json(found)
        return
    show_pairs(_facts(found))
    if found.runs:
        print()
        show_table(RUNS, map(_run_row, found.runs))


def _load(config: Path | None, directory: str | None, server: str | None, only: str | None = None) -> PipelineConfig:
    from logboom.cli.pipeline_file import find_file, load

    find_profile(server)  # nobody is asked for a password: Spark's workers could not be told
    return load(find_file(None if config is None else str(config)), directory, server, only)


def _chosen(config: PipelineConfig, names: list[str] | None) -> PipelineConfig:
    for name in names or ():
        if name not in config.jobs:
            raise ConfigError("--only", f"there is no job {name!r}; there are {', '.join(config.jobs) or 'none'}")
    jobs = {name: job for name, job in config.jobs.items() if names is None or name in names}
    return msgspec.structs.replace(config, jobs=jobs)


def _work_of(config: PipelineConfig, name: str, options: dict[str, list[str]]) -> JobWork:
    """The job of this name with these options, else one of this kind."""
    from logboom.spark.jobs.kinds import lists_of, make_work

    configured = config.jobs.get(name)
    if configured is not None and not options:
        return configured.work
    kind = name if configured is None else configured.work.kind
    given: dict[str, Any] = {} if configured is None else msgspec.to_builtins(configured.work)
    many = lists_of(kind)
    for option, values in options.items():
        field = option.replace("-", "_")
        if field not in many and len(values) > 1:
            raise ConfigError(f"--{option}", "is given twice")
        given[field] = values if field in many else values[0]
    return make_work(kind, given, "--", strict=False)


def _run(config: PipelineConfig, work: JobWork, wait: bool, progress: bool, verbose: bool) -> RunReport:
    from logboom.cli.pipeline_progress import shown_progress
    from logboom.spark.jobs.engine import Engine
    from logboom.spark.jobs.job_run import run_job

    engine = Engine(config.spark, verbose)
    try:
        with shown_progress(work.id, progress) as screen:
            return run_job(
                work,
                config.server,
                engine,
                config.directory,
                wait=wait,
                lease_s=config.lease_ms / 1000,
                on_wait=screen.wait,
                on_begin=screen.begin,
            )
    finally:
        engine.stop()


def _show(report: RunReport) -> None:
    result = report.result
    place = None if result is None else result.place
    facts = [("job", report.job), ("run", report.run), ("seconds", round(report.seconds, 1)), *report.summary.items()]
    show_pairs([*facts, ("place", place)] if place else [*facts, ("result", "nothing new")])


def _stand(config: Path | None, server: str | None) -> list[JobInfo]:
    from logboom.broker.caller import EVERYBODY
    from logboom.cli.pipeline_file import find_file, load
    from logboom.results.job_standings import JobInfo, known_jobs, stand
    from logboom.results.pipeline_ledger import PipelineLedger

    async def look(broker: RemoteBroker) -> list[JobInfo]:
        async def connected() -> RemoteBroker:
            return broker

        pipeline = await PipelineLedger(connected, EVERYBODY).refresh()
        now = (await broker.stats()).now
        return await known_jobs(broker, stand(pipeline, await broker.list_topics(), now), now, EVERYBODY)

    path = find_file(None if config is None else str(config))
    loaded = None if path is None else load(path, server=server)
    configured = {} if loaded is None else {job.work.id: job for job in loaded.jobs.values()}
    found = {info.job: info for info in ask(server if loaded is None else loaded.server, look)}
    for name, job in configured.items():
        known = found.get(name) or JobInfo(name, job.work.kind, job.work.topics, "new")
        found[name] = msgspec.structs.replace(known, name=job.name)
    return [found[name] for name in sorted(found)]


def _job_row(info: JobInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    succeeded = None if info.succeeded is None else show_moment(info.succeeded)
    result = info.result
    size = (None, None) if result is None else (result.records, result.bytes)
    return info.job, info.state, info.lag, succeeded, *size, _note(info)


def _note(info: JobInfo) -> str | None:
    """What is to be known first."""
    if info.running is not None:
        running = info.running
        so_far = f" {running.done:,} of {running.total:,}" if running.total else ""
        return f"{running.doing or 'runs'}{so_far} on {running.runner}"
    if info.error is not None:
        return info.error.splitlines()[0]
    return None if info.result is None else info.result.place


def _facts(info: JobInfo) -> list[tuple[str, Any]]:
    from logboom.cli.show.moment import show_moment

    facts: list[tuple[str, Any]] = [("job", info.job), ("kind", info.kind), ("topics", ", ".join(info.topics))]
    facts += [("name", info.name)] if info.name else []
    facts += [("state", info.state), ("lag", info.lag)]
    facts += [("succeeded", show_moment(info.succeeded))] if info.succeeded is not None else []
    if info.running is not None or info.error is not None:
        facts.append(("note", _note(info)))
    if info.result is not None:
        result = info.result
        facts += [("place", result.place), ("records", result.records), ("bytes", result.bytes)]
        facts += [(name, value) for name, value in result.facts.items() if isinstance(value, str | int | float)]
    return facts


def _run_row(run: Any) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    outcome = run.error.splitlines()[0] if run.error else "a result" if run.has_result else "nothing new"
    return run.run, run.runner, show_moment(run.began), round((run.ended - run.began) / 1e6, 1), outcome


def _first_line(error: Exception) -> str:
    from logboom.spark.jobs.job_server import describe

    return describe(error)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("logboom.pipeline")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
