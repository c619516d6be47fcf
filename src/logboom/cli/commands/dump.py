"""`logboom dump DIR`."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import App, Parameter

from logboom.batch.codec import CodecName
from logboom.cli.options import Flag, Json, Quiet
from logboom.cli.show.output import show_json
from logboom.cli.show.progress import bytes_read
from logboom.cli.show.wording import count_of
from logboom.errors import Damage, DumpMismatch

if TYPE_CHECKING:
    import io

    from logboom.storage.moving.contents import Contents
    from logboom.storage.moving.dump import Dumped, DumpPlan
    from logboom.storage.moving.origin import DumpOrigin
    from logboom.storage.moving.outline import Request

DONE, DAMAGED, REFUSED = 0, 1, 2
DETAILS = """\
Exports all committed records, some topics, or a range of one log as one portable, compressed stream. Checksums are
verified while it is written and again by `logboom load`. May run beside a server. --resume continues a dump to a file
that was interrupted. Internal topics, whose names begin with _, are dumped only if --topic names them.

Exit code 0: done. 1: damage found; the dump is not complete. 2: refused, or an error. 130: interrupted.

Examples:
  logboom dump data --output data.lgdump
  logboom dump data --output data.lgdump --resume
  logboom dump data --topic events --from 1000 --to 2000 --output part.lgdump
  logboom dump data | ssh other logboom load /var/lib/logboom -
"""
app = App(name="dump", help_epilogue=DETAILS)


@app.default
def dump(
    directory: Path,
    /,
    *,
    topic: Annotated[list[str] | None, Parameter(negative="")] = None,
    partition: int | None = None,
    seqno_from: Annotated[int | None, Parameter(name="--from")] = None,
    seqno_until: Annotated[int | None, Parameter(name="--to")] = None,
    output: Annotated[str, Parameter(name=["--output", "-o"], allow_leading_hyphen=True)] = "-",
    compress: CodecName = "lz4",
    resume: Flag = False,
    force: Flag = False,
    unfinished: Flag = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write logs as one portable stream.

    Parameters
    ----------
    directory
        A data directory.
    topic
        Only this topic; may be given more than once.
    partition
        Only this partition of each topic.
    seqno_from
        From the batch that holds this record on; the loaded log begins exactly here.
    seqno_until
        Up to the batch that holds the record before this one.
    output
        A file, or - for standard output.
    compress
        How frames are compressed that shrink by it: lz4 costs little, zstd is for slow networks.
    resume
        Go on with a file that was cut off, with the same options.
    force
        Write over a file that is there.
    unfinished
        Dump also logs that a publish was cut off on its way into, with what they have of it. Without this, start the
        node once: it finishes the publish.
    as_json
        The summary as one JSON object.
    quiet
        No progress and no summary.
    """
    from logboom.storage.moving.origin import DumpOrigin
    from logboom.storage.moving.outline import Request

    to_pipe = output == "-"
    problem = _problem_with(output, to_pipe, resume, force)
    if problem:
        print(f"logboom: {problem}", file=sys.stderr)
        return REFUSED
    names = None if not topic else tuple(sorted(set(topic)))
    request = Request(names, partition, seqno_from, seqno_until, compress)
    with DumpOrigin.open(str(directory)) as origin:
        origin.takes_unfinished = unfinished
        try:
            done = _to_pipe(origin, request, quiet) if to_pipe else _to_file(origin, request, output, resume, quiet)
        except (Damage, ValueError, KeyboardInterrupt, OSError) as error:
            return _tell_why(error, origin, output, force)
    _summarise(done, as_json, quiet, sys.stderr if to_pipe else sys.stdout)
    return DONE


def _tell_why(error: BaseException, origin: DumpOrigin, output: str, force: bool) -> int:
    """Why a dump is not complete; the exit code. Raises the error again where it is for others to tell."""
    told = [str(error)]
    if isinstance(error, Damage):
        told.append(_advice(error, origin))
    elif not isinstance(error, ValueError):
        unfinished = isinstance(error, KeyboardInterrupt)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full and output == "-":
            error.filename = "standard output"  # type: ignore[attr-defined]
        if output == "-" or not (unfinished or full):
            raise error
        reason = f", {error.strerror}" if isinstance(error, OSError) else ""
        told = [f"{output} is not complete{reason}: {_how_to_go_on(force)}"]
    for line in told:
        print(f"logboom: {line}", file=sys.stderr)
    if isinstance(error, KeyboardInterrupt):
        raise error
    return DAMAGED if isinstance(error, Damage) else REFUSED


def _how_to_go_on(force: bool) -> str:
    return f"the same command with --resume{' in place of --force' if force else ''} continues"


def _problem_with(output: str, to_pipe: bool, resume: bool, force: bool) -> str | None:
    if resume and (to_pipe or force):
        return "--resume continues a file: name it with --output, without --force"
    if to_pipe and sys.stdout.isatty():
        return "a dump is nothing to look at: name a file with --output, or pipe it somewhere"
    if not to_pipe and not (resume or force) and os.path.exists(output):
        return f"{output} already exists: continue it (--resume), overwrite it (--force), or name another file"
    return None


def _to_pipe(origin: DumpOrigin, request: Request, quiet: bool) -> Dumped:
    plan = _plan(origin, request)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0) as sink:
        return _run(origin, plan, sink, None, quiet)


def _to_file(origin: DumpOrigin, request: Request, output: str, resume: bool, quiet: bool) -> Dumped:
    from logboom.storage.moving.dump import plan_rest

    begun: Contents | None = None
    plan = None if resume else _plan(origin, request)
    with _opened(output, resume) as file:
        if resume:
            begun = _read_begun(file, origin, request, quiet)
        if plan is None:
            plan = _plan(origin, request) if begun is None else plan_rest(origin, begun)
        done = _run(origin, plan, file, begun, quiet)
        if os.path.isfile(output):
            os.fsync(file.fileno())
            _sync_name(output)
    return done


def _sync_name(output: str) -> None:
    parent = os.open(os.path.dirname(os.path.abspath(output)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _plan(origin: DumpOrigin, request: Request) -> DumpPlan:
    from logboom.storage.moving.dump import plan_dump

    return plan_dump(origin, request, time.time_ns() // 1000)


def _read_begun(file: io.FileIO, origin: DumpOrigin, request: Request, quiet: bool) -> Contents | None:
    """What the file holds already; the torn rest is cut off."""
    from logboom.storage.moving.dump import resume

    size = os.fstat(file.fileno()).st_size
    with bytes_read("reading what is there", size, not quiet) as progress:
        begun = resume(_Counted(file, progress), origin, request)
    end = 0 if begun is None else begun.end
    if not quiet:
        print(f"logboom: {end:,} bytes are sound, {size - end:,} are cut off", file=sys.stderr)
    file.truncate(end)
    file.seek(end)
    return begun


@contextmanager
def _opened(output: str, resume: bool) -> Iterator[io.FileIO]:
    flags = os.O_CREAT | os.O_CLOEXEC | (os.O_RDWR if resume else os.O_WRONLY)
    with os.fdopen(os.open(output, flags, 0o644), "r+b" if resume else "wb", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DumpMismatch(
                f"{output} is being written by another dump: wait for it, or name another file"
            ) from None
        if not resume and os.path.isfile(output):
            file.truncate(0)
        yield file


class _Counted:
    """A source that tells how much was read of it."""

    def __init__(self, file: io.FileIO, progress: Callable[[int], None] | None) -> None:
        self._file = file
        self._progress = progress

    def read(self, size: int, /) -> bytes | None:
        data = self._file.read(size)
        if self._progress is not None:
            self._progress(len(data or b""))
        return data


def _run(origin: DumpOrigin, plan: DumpPlan, sink: io.FileIO, begun: Contents | None, quiet: bool) -> Dumped:
    from logboom.storage.moving.dump import dump as write_dump

    with bytes_read("dumping", plan.size_bytes, not quiet) as progress:
        try:
            return write_dump(origin, plan, sink, begun, progress)
        except RuntimeError as error:
            if isinstance(
                error.__context__, KeyboardInterrupt
            ):  # just when a lock was taken: of which Python complains
                raise error.__context__ from None
            raise


def _advice(damage: Damage, origin: DumpOrigin) -> str:
    directory, log = shlex.quote(origin.path), os.path.relpath(damage.path, origin.path).split("/")
    mend = f"the dump is not complete: run `logboom repair {directory}` and dump again"
    topic = next((topic for topic in origin.topics() if topic.directory == "/".join(log[:2])), None)
    if topic is None:
        return mend
    part = f"`logboom dump {directory} --topic {topic.name} --partition {log[2]}"
    if damage.seqno_until is None:
        return f"{mend}, or dump what is before it with {part} --to {damage.seqno_from}`"
    return f"{mend}, or dump what is behind it with {part} --from {damage.seqno_until}`"


def _summarise(done: Dumped, as_json: bool, quiet: bool, to: TextIO) -> None:
    if as_json:
        show_json(done._asdict(), to)
        return
    if quiet:
        return
    counts = (
        count_of(number, noun)
        for number, noun in (
            (done.topics, "topic"),
            (done.logs, "log"),
            (done.batches, "batch"),
            (done.records, "record"),
            (done.size_bytes, "byte"),
        )
    )
    lost = f" ({count_of(done.lost, 'record')} lost before)" if done.lost else ""
    print(f"{', '.join(counts)}{lost}: dumped, {done.written_bytes:,} bytes written", file=to)
