"""`logboom read TOPIC`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.connection import servers_of
from logboom.cli.options import Cursor, Flag, Group, Quiet, Server, Topic
from logboom.cli.show.output_format import OutputFormat
from logboom.cli.show.progress import records_read
from logboom.cli.show.shown_values import ShownValues, settings_of
from logboom.cli.show.sink import BINARY, FORMATS, LineSink, TableSink
from logboom.cli.target import LogTarget, parse_names
from logboom.errors import ConfigError, InvalidBookmark, LogboomError, PartitionNotFound
from logboom.values.serializer import ValueFormat

if TYPE_CHECKING:
    from logboom import Reader
    from logboom.broker.api import Start
    from logboom.cli.records.group_pump import MemberReader
    from logboom.cli.records.record_pump import RecordPump
    from logboom.client.link.profile import Servers

DONE, REFUSED = 0, 2
DETAILS = """\
Places: earliest, latest, a seqno, a time (2026-01-31T12:00:00Z, 2026-01-31, or
-10m for ten minutes ago; local where there is no zone), a bookmark,
cursor:NAME, or checkpoint. A time means the first record at or after it.

From checkpoint: first the latest record of each key from the pipeline's
checkpoint, in no order, then the records written since. checkpoint:key and
checkpoint:channel choose if there are both. With --cursor this happens once:
the next run continues at the cursor.

Of a topic with several partitions, or of several topics, records come in order
inside each partition, and -n and all formats but plain values say which it is.

Without --follow it stops where the log ended at the start. With --cursor it
begins at the cursor and moves it after the records it printed: the next run
continues there. After a crash some records may be printed twice, none is
missed. Only --from moves the cursor back; if another reader has moved the same
cursor further, it stays there, with a message on standard error.

With --group it reads as a member of a group: each log is read by one of them.
It commits what it has printed, and leaves the group at the end and on Ctrl-C;
others go on where it was. --from is for logs in which the group has no place
yet. Without --follow it stops at the end of the logs that it was given.

Values are printed unchanged, each with a newline; NDJSON can be written again
with `logboom write --ndjson`. On a terminal, control characters are printed as
escapes, such as \\x1b, and values of a topic whose setting is value=msgpack as
JSON. --value does the latter anywhere; --value bytes nowhere.

--format may also say what is printed of each record, and nothing is added:
  %s value    %S its size in bytes, -1 for a tombstone    %c channel
  %k key      %K its size, -1 where there is none         %g tags, with commas
  %t topic    %p partition    %o seqno    %h headers, name=value, with commas
  %T %U %I    timestamp: ms, us, ISO 8601                 %% a percent sign
  \\n \\r \\t \\0 \\\\ and \\xNN are the bytes they stand for

Exit code 0: done. 2: an error, such as dropped records; the records before it
are printed. 130: interrupted.

Examples:
  logboom read events
  logboom read events --from -10m --follow
  logboom read orders/2 --from 1000 --until 2000 --format ndjson
  logboom read 'orders.*' --follow -n
  logboom read orders --format '%t/%p %o %I %k=%s\\n'
  logboom read files -f '%s\\0' | xargs -0 ls -l
  logboom read events --tag login --channel "site/+/temp" -n
  logboom read events --cursor billing --format ndjson | ./bill
  logboom read 'orders.*' --group billing --follow
  logboom read events --format parquet --output events.parquet
  logboom read prices --from checkpoint --follow
"""
app = App(name="read", help_epilogue=DETAILS)


@app.default
def read(
    log: Topic,
    /,
    *,
    start: Annotated[str | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    until: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-F"], negative="", show_default=False)] = False,
    limit: int | None = None,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    all_tags: Flag = False,
    channel: str | None = None,
    key: str | None = None,
    form: Annotated[str, Parameter(name=["--format", "-f"], allow_leading_hyphen=True)] = "values",
    value: ValueFormat | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: Flag = False,
    numbers: Annotated[bool, Parameter(name="-n", negative="", show_default=False)] = False,
    cursor: Cursor | None = None,
    group: Group | None = None,
    skip_gaps: Flag = False,
    server: Server = None,
    quiet: Quiet = False,
) -> int:
    """Read records.

    Parameters
    ----------
    log
        A topic, topic/partition, a pattern as 'orders.*', or several of these with commas.
    start
        Where to begin. Default: earliest, or where --cursor stands.
    until
        Where to end: before this seqno, or before the first record at or after this time.
    follow
        Wait for new records at the end, until Ctrl-C.
    limit
        Stop after this many records.
    tag
        Only records with this tag, or one of several.
    all_tags
        Only records with all of the tags.
    channel
        Only records of this channel; + stands for one level, # at the end for the rest, * at the end for anything.
    key
        Only records with this key.
    form
        values; whole records as ndjson, arrow (a stream) or parquet; or what to print of each, such as '%k %s\\n'.
    value
        What values are, to be shown: msgpack as JSON, the others as they are. Default: the topic's setting on a
        terminal, elsewhere bytes.
    output
        Write to this file instead of standard output.
    force
        Overwrite an existing file.
    numbers
        Print the seqno and a tab in front of each line.
    cursor
        A name under which the node stores how far this reader has read.
    group
        Read as a member of this group of consumers.
    skip_gaps
        Skip records that are dropped or damaged, instead of stopping.
    quiet
        No progress, and no messages about gaps.
    """
    from logboom.cli.records.bounds import Bounds
    from logboom.cli.records.group_pump import GroupPump, MemberReader
    from logboom.cli.records.record_pump import RecordPump
    from logboom.cli.records.topics_pump import TopicsPump
    from logboom.cli.start import parse_checkpoint, parse_end, parse_start

    by = parse_checkpoint(start)
    layout = None if form in FORMATS else parse_layout(form)
    problem = _problem_with_bounds(by, until, limit) or _problem_with_output(form, output, force, numbers)
    if group is not None:
        problem = problem or _problem_with_group(start, until, cursor)
    if problem:
        return _refuse(problem)
    place = start if start is not None and by is None else "earliest" if cursor is None else f"cursor:{cursor}"
    begin, bounds = parse_start(place), Bounds(parse_end(until), limit)
    which = _which(tag, all_tags, channel, key) | {"gaps": "skip" if skip_gaps else "raise"}
    checkpoint = {"from_checkpoint": by is not None, "checkpoint": by or None}
    target, servers = parse_names(log), servers_of(server)
    reader: Reader | MemberReader
    several = True
    if group is not None:
        reader = MemberReader(str(target), servers, group, begin, **which)
    else:
        reader = _open_reader(target, servers, begin, **which, **checkpoint)
        reader.cursor, several = cursor, reader.reads_several
        if several and bounds.has_seqno:
            reader.close()
            return _refuse(f"--until {until} is a place in one log, {log} has several: name one, as TOPIC/0, or a time")
    shown = _choose_values(value, form not in BINARY and output is None and sys.stdout.isatty(), target, servers)
    with _gaps_told(reader, shown, quiet), reader, _destination(output) as file:
        sink: TableSink | LineSink = (
            TableSink(file, form, several)
            if form in BINARY
            else LineSink(file, form == "ndjson", numbers, several, layout, shown)
        )
        pump: Callable[..., RecordPump] = GroupPump if group else TopicsPump if several else RecordPump
        with records_read("reading", output is not None and not quiet) as advance:
            pump(reader, bounds, sink, follow, advance, may_go_back=start is not None).run()
    return DONE


def _which(tag: list[str] | None, all_tags: bool, channel: str | None, key: str | None) -> dict[str, Any]:
    """The records that are wanted, in the reader's words."""
    tags = tuple(tag or ())
    return {
        "tags_any": () if all_tags else tags,
        "tags_all": tags if all_tags else (),
        "channel": channel,
        "key": None if key is None else os.fsencode(key),
    }


def parse_layout(form: str) -> OutputFormat:
    if "%" not in form:
        raise ConfigError("--format", f"is {form!r}: allowed are {', '.join(FORMATS)}, or a format such as '%k %s\\n'")
    return OutputFormat(form)


def _choose_values(value: ValueFormat | None, is_terminal: bool, target: LogTarget, servers: Servers) -> ShownValues:
    """As it was said; on a terminal as the topics' settings say, as far as the node tells them."""
    settings: dict[str, str] = {}
    if value is None and is_terminal:
        with suppress(LogboomError):
            settings = settings_of(target, servers)
    return ShownValues(value, settings)


@contextmanager
def _gaps_told(reader: Reader | MemberReader, shown: ShownValues, quiet: bool) -> Iterator[None]:
    """Whatever ends the reading, somebody hears of what was not printed."""
    try:
        yield
    finally:
        if reader.skipped and not quiet:
            print(f"logboom: {reader.skipped:,} records were skipped: {reader.last_gap}", file=sys.stderr)
        if shown.odd and not quiet:
            print(f"logboom: {shown.odd:,} values are not msgpack: they were printed as they are", file=sys.stderr)


def _open_reader(target: LogTarget, servers: Servers, begin: Start, **which: Any) -> Reader:
    from logboom import Reader

    try:
        return Reader(
            target.topic,
            servers,
            target.partition,
            seqno=begin.seqno,
            timestamp=begin.time,
            bookmark=begin.bookmark,
            cursor=begin.cursor,
            at=begin.at if begin.at == "latest" else None,
            connect_timeout_s=0,
            **which,
        )
    except (PartitionNotFound, InvalidBookmark) as error:
        if target.partition is None and (begin.seqno is not None or which["from_checkpoint"]):
            raise ConfigError(str(target), f"{error}; name one log, as {target.topic}/0") from None
        raise


def _refuse(problem: str) -> int:
    print(f"logboom: {problem}", file=sys.stderr)
    return REFUSED


def _problem_with_bounds(by: str | None, until: str | None, limit: int | None) -> str | None:
    if limit is not None and limit < 0:
        return f"--limit is {limit}, allowed is 0 or more"
    if by is not None and until is not None:
        return "--until is for records in their order: a checkpoint has none"
    return None


def _problem_with_group(start: str | None, until: str | None, cursor: str | None) -> str | None:
    from logboom.cli.start import parse_end, parse_start

    if cursor is not None:
        return "--group has a place of its own: leave out --cursor"
    begin = parse_start(start or "earliest")
    if begin.seqno is not None or begin.bookmark is not None or begin.cursor is not None:
        return "--from is earliest, latest or a time for a group: `logboom group reset` puts it elsewhere"
    if parse_end(until).seqno is not None:
        return f"--until {until} is a place in one log, and a member has those it is given: name a time"
    return None


def _problem_with_output(form: str, output: Path | None, force: bool, numbers: bool) -> str | None:
    if form in BINARY and output is None and sys.stdout.isatty():
        return f"{form} is binary: name a file with --output, or pipe it"
    if form not in FORMATS and numbers:
        return "-n is for lines; in a format %o is the seqno"
    if form in BINARY and numbers:
        return f"-n is for lines; {form} has a column of seqnos"
    if output is not None and output.exists() and not force and not output.is_char_device() and not output.is_fifo():
        return f"{output} already exists: overwrite it (--force), or name another file"
    return None


@contextmanager
def _destination(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        return
    with open(output, "wb") as file:
        yield file
