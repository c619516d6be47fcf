"""`logboom write TOPIC`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from logboom.batch.codec import CodecName
from logboom.cli.connection import servers_of
from logboom.cli.options import Flag, Json, Quiet, Server, Topic
from logboom.cli.records.record_source import opened_source, parse_delimiter
from logboom.cli.records.stored_value import value_maker
from logboom.cli.show.output import show_json
from logboom.cli.show.wording import count_of
from logboom.cli.target import parse_target
from logboom.errors import ConfigError, LogboomError
from logboom.server.units import size_of
from logboom.values.serializer import ValueFormat

if TYPE_CHECKING:
    from logboom import Record, Writer
    from logboom.client.write.options import WriterArguments

DONE, FAILED = 0, 1
DETAILS = """\
Values are arguments, or lines of standard input or a file, without their
newlines; or, with --whole, whole files. -D ends records with something else
than a newline, and -K parts key and value: what has none of it has no key.
Both take the escapes \\n \\r \\t \\0 \\\\ and \\xNN, such as \\x1e.

With --ndjson a line is an object: {"value": ..., "key": ...,
"timestamp": ..., "channel": ..., "tags": [...], "headers": {...}}, of which
only value is needed. A value that is no string is stored as its JSON text,
null is a tombstone, and bytes are {"base64": "..."}: what `logboom read
--format ndjson` prints. Options fill in what a line leaves out.

--value says what values are to be, and refuses what is not: json, text; for
msgpack a value is written as JSON and stored as msgpack. Without it bytes are
stored as they come, whatever the topic's setting says.

Exit code 0: everything was written. 1: not everything: a line was wrong, or the
node refused some; the summary says what was. 2: wrong usage, no node, or an
error.

Examples:
  logboom write events hello world
  logboom write events --key user-7 --tag login --channel site/7 "signed in"
  tail -F app.log | logboom write logs
  logboom write events --ndjson --file events.ndjson
  logboom write pictures --whole cat.png --whole dog.png --tag animal
  cut -d, -f1,3 prices.csv | logboom write prices -K,
  find . -print0 | logboom write files -D '\\0'
  logboom write events --value msgpack '{"celsius": 21.5}'
  logboom read events --format ndjson | logboom write copy --ndjson
"""
app = App(name="write", help_epilogue=DETAILS)


@app.default
def write(
    log: Topic,
    /,
    *values: Annotated[str, Parameter(allow_leading_hyphen=True)],
    ndjson: Flag = False,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = None,
    whole: Annotated[list[Path] | None, Parameter(negative="", allow_leading_hyphen=True)] = None,
    delimiter: Annotated[str | None, Parameter(name=["--delimiter", "-D"], allow_leading_hyphen=True)] = None,
    key_delimiter: Annotated[str | None, Parameter(name=["--key-delimiter", "-K"], allow_leading_hyphen=True)] = None,
    value: ValueFormat | None = None,
    key: str | None = None,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    channel: str | None = None,
    acks: Literal["none", "leader", "durable"] | None = None,
    codec: CodecName = "none",
    batch_bytes: str = "128KiB",
    server: Server = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write records.

    Parameters
    ----------
    log
        A topic, or one partition of it as topic/partition. Without a partition, the key chooses it, else the channel.
    values
        One record each. Without any, lines of standard input.
    ndjson
        Every line is a JSON object that describes a record.
    file
        Lines come from this file; - is standard input.
    whole
        All of this file is one record; - is standard input. May be given more than once.
    delimiter
        What ends a record of standard input or a file. Default: a newline.
    key_delimiter
        What stands between key and value. The first one counts.
    value
        What values are: json, text, msgpack or bytes.
    key
        The key of every record that brings none.
    tag
        A tag of every record that brings none; may be given more than once.
    channel
        The channel of every record that brings none.
    acks
        What to wait for: none, leader (written), durable (synced). Default: the topic's setting.
    codec
        How batches are compressed.
    batch_bytes
        How much is gathered before it is sent.
    as_json
        The summary as one JSON object.
    quiet
        No progress and no summary.
    """
    from logboom import Record, Writer

    target, size = parse_target(log), size_of("--batch-bytes", batch_bytes)
    same = Record(None, None if key is None else os.fsencode(key), None, channel, tuple(tag or ()))
    if ndjson and (delimiter or key_delimiter or whole):
        raise ConfigError("--ndjson", "has its own lines and keys: leave out -D, -K and --whole")
    parting = None if key_delimiter is None else parse_delimiter("--key-delimiter", key_delimiter)
    make = partial(_record_of_line if ndjson else _record_of_text, same, parting)
    convert = value_maker(value)
    servers, tally = servers_of(server), _Tally()
    options: WriterArguments = {"acks": acks, "codec": codec, "batch_bytes": size, "connect_timeout_s": 0}
    options["partition"] = target.partition
    with (
        opened_source(values, file, whole, delimiter, not (as_json or quiet)) as source,
        Writer(target.topic, servers, **options) as writer,
    ):
        stopped = _write_all(writer, (convert(make(entry)) for entry in source.entries), tally)
    if isinstance(stopped, LogboomError):
        tally.stopped = stopped = LogboomError(f"{source.title} {tally.given + 1}: {stopped}")
    tally.show(str(target), as_json, quiet)
    return _exit_code(stopped, tally)


def _exit_code(stopped: BaseException | None, tally: _Tally) -> int:
    """Raises what stopped it, unless that is an error with words of its own."""
    if isinstance(stopped, LogboomError):
        print(f"logboom: {stopped}", file=sys.stderr)
        return FAILED
    if stopped is not None:
        raise stopped
    return DONE if tally.error is None else FAILED


def _write_all(writer: Writer, records: Iterator[Record], tally: _Tally) -> BaseException | None:
    """What stopped it. What was given before that is still written, and told; a second Ctrl-C ends that too."""
    try:
        _give(writer, records, tally)
        _finish(writer, tally)
    except BaseException as error:
        _finish(writer, tally)
        return error
    return None


def _give(writer: Writer, records: Iterator[Record], tally: _Tally) -> None:
    """Until there are no more, or one has failed."""
    for record in records:
        writer.write(
            record.value,
            key=record.key,
            timestamp=record.timestamp,
            channel=record.channel,
            tags=record.tags,
            headers=record.headers,
            callback=tally.note,
        )
        tally.given += 1
        if tally.error is not None:
            return


def _finish(writer: Writer, tally: _Tally) -> None:
    """Wait for what was given. Errors have come to the tally already."""
    try:
        writer.flush()
    except LogboomError as error:
        tally.error = tally.error or error


class _Tally:
    """What became of the records: told by the writer, one by one."""

    def __init__(self) -> None:
        self.given = self.written = self.failed = 0
        self.error: Exception | None = None
        """Why the node has not taken one."""
        self.stopped: Exception | None = None
        """Why there were no more."""
        self.ranges: dict[int, list[int]] = {}
        """First seqno, last seqno, records; by partition."""
        self._began = time.perf_counter()

    def note(self, result: Any) -> None:
        if isinstance(result, Exception):
            self.failed += 1
            self.error = self.error or result
            return
        self.written += 1
        found = self.ranges.get(result.partition)
        if found is None:
            self.ranges[result.partition] = [result.seqno, result.seqno, 1]
        else:
            found[0], found[1] = min(found[0], result.seqno), max(found[1], result.seqno)
            found[2] += 1

    def show(self, target: str, as_json: bool, quiet: bool) -> None:
        if as_json:
            show_json(self._summary(target))
        elif not quiet:
            print(f"wrote {count_of(self.written, 'record')} to {target}")
            for partition, (first, last, count) in sorted(self.ranges.items()):
                where = "" if first < 0 else f", seqnos {first} to {last}" if first != last else f", seqno {first}"
                print(f"  partition {partition}: {count_of(count, 'record')}{where}")
        if self.error is not None:
            print(
                f"logboom: {count_of(self.given - self.written, 'record')} not written: {self.error}", file=sys.stderr
            )

    def _summary(self, target: str) -> dict[str, Any]:
        partitions = [
            {
                "partition": number,
                "records": count,
                "first": first if first >= 0 else None,
                "last": last if last >= 0 else None,
            }
            for number, (first, last, count) in sorted(self.ranges.items())
        ]
        told = self.error or self.stopped
        return {
            "target": target,
            "records": self.written,
            "failed": self.given - self.written,
            "error": None if told is None else str(told),
            "seconds": round(time.perf_counter() - self._began, 6),
            "partitions": partitions,
        }


def _record_of_text(same: Record, parting: bytes | None, line: bytes) -> Record:
    from logboom import Record

    key, value = same.key, line
    if parting is not None and parting in line:
        key, _, value = line.partition(parting)
    return Record(value, key, None, same.channel, same.tags)


def _record_of_line(same: Record, parting: bytes | None, line: bytes) -> Record:
    from logboom import Record
    from logboom.batch.ndjson import decode_record

    found = decode_record(line)
    key = same.key if found.key is None else found.key
    return Record(
        found.value, key, found.timestamp, found.channel or same.channel, found.tags or same.tags, found.headers
    )
