"""Makes spark.md from the table of options and from the functions: python docs/reference/spark.py"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

import logboom.spark
from logboom.spark.option_table import Entries
from logboom.spark.read import options
from logboom.spark.read.options import ReadOptions
from logboom.spark.write import options as write_options
from logboom.spark.write.options import WriteOptions

PAGE = Path(__file__).with_suffix(".md")
FRONT = """\
# Spark: options and functions

A tour is in [howto/spark.md](../howto/spark.md). This page is made by `python docs/reference/spark.py`.

## Options of the source

For `spark.read.format("logboom")`, `spark.readStream.format("logboom")`, SQL's `OPTIONS (…)`, `arrow_scan` and
`json_schema`. Names are taken in any case. A name that is not here is an error that says the nearest one. Where an
option has several names, give one of them. Sizes are bytes, or have a unit: `64k`, `64m`, `1g`.

| option | default | meaning | also called |
|---|---|---|---|
"""
AFTER_SOURCE = """\

Where a place in the log is meant (`startingSeqno`, `endingSeqno`, `startingTimestamp`, `endingTimestamp`), one may be
given for all logs, or JSON: `{"events": {"0": 17, "2": "latest"}, "news": 5}` has one for each partition of a topic, or
one for all partitions of it. What is not listed begins at its first record and ends at its last. A stream has no end.
In JSON -2 is `earliest` and -1 `latest`, as in Kafka.

What Kafka's source knows besides is ignored with a warning or refused:
[moving from Kafka](../howto/spark-from-kafka.md#options) has the whole list.

## Options of the sink

For `df.write.format("logboom")`, `df.writeStream.format("logboom")`, and SQL's `INSERT INTO` a table of a node.

| option | default | meaning | also called |
|---|---|---|---|
"""
AFTER_SINK = """\

Columns that are written; any other one is an error, but for those in `orderBy`:

| column | type | without it, or null |
|---|---|---|
| `value` | `binary`, `string`; a struct, map or array becomes JSON, without null fields | needed; null is a tombstone |
| `key` | `binary` or `string` | no key |
| `timestamp` | `timestamp` | no timestamp |
| `channel` | `string` | no channel |
| `tags` | `array<string>` | no tags |
| `headers` | `array<struct<key:string,value:binary>>` | no headers |
| `topic` | `string` | the option `topic`, which goes before the column |
| `partition` | `int` | by the key, else the channel, else any |
| `seqno` | any | is ignored: the log gives a new one |

## Functions

All of `logboom.spark`; each is imported when it is used first.
"""


class Entry(NamedTuple):
    meaning: str
    default: str | None = None
    """Where the table of options does not have it as a plain value."""


PROFILE = {
    "profile": Entry("A profile of the driver's machine: servers, user, password or token, certificates", "none"),
    "user": Entry("Who signs in; the password comes from the profile or the environment", "none"),
    "ca": Entry("A file with the certificates that are trusted", "those of the system"),
    "certificate": Entry("A file with the client's own certificate", "none"),
    "certificateKey": Entry("A file with its key", "none"),
    "serverName": Entry("What the node's certificate must be for", "the host that is called"),
}

SOURCE = {
    **PROFILE,
    "path": Entry("What `load` is given: a data directory of this machine, or `logboom://host:port`", "none"),
    "servers": Entry(
        "The node's address, or several with commas; a directory as path then is where its files are here",
        "none",
    ),
    "topic": Entry("The topic; several with commas", "this or `topicPattern` or `partitions`"),
    "topicPattern": Entry("All topics whose whole name matches this regular expression", "none"),
    "partitions": Entry('Only these: `{"events": [0, 2]}`', "all"),
    "startingSeqno": Entry(
        "The first record: `earliest`, `latest`, a seqno, or JSON", "`earliest`; in a stream `latest`"
    ),
    "endingSeqno": Entry("Up to and not including this one: `latest`, a seqno, or JSON; tables only", "`latest`"),
    "startingTimestamp": Entry(
        "The first record at or after `2026-01-31T12:00:00Z`, or milliseconds since 1970, or JSON", "none"
    ),
    "endingTimestamp": Entry("Up to and not including the first record at or after this time; tables only", "none"),
    "startingTimestampStrategy": Entry("Where no record is so new: `latest` begins with the next one, `error` stops"),
    "maxRecordsPerTrigger": Entry(
        "About how many records a micro-batch has, shared by what waits in each log", "no limit"
    ),
    "maxBytesPerTrigger": Entry("About how many stored bytes a micro-batch has", "no limit"),
    "minPartitions": Entry("At least so many splits, where there is enough to cut"),
    "splitBytes": Entry("About how many stored bytes a split has", "`128m`"),
    "maxRecordsPerPartition": Entry("At most so many records in a split", "no limit"),
    "failOnDataLoss": Entry("`true`: records that are gone stop the query; `false`: it goes on behind them"),
    "onDamage": Entry("Damaged records: `fail` with topic, seqno and place, or `skip` and count them", "`fail`"),
    "tag": Entry("Only records with one of these tags; several with commas", "none"),
    "tagsAll": Entry("Only records with all of these tags", "none"),
    "channel": Entry("Only this channel; `+` is one level, `#` at the end the rest, `*` at the end anything", "none"),
    "key": Entry("Only this key, as text", "none"),
    "keyBase64": Entry("Only this key, as base64", "none"),
    "cursor": Entry("A name under which the node keeps how far the stream has come; needs a node", "none"),
    "access": Entry("`files`, `server`, or `auto`: the node's files where they can be read, else the node"),
    "timeout": Entry("How long a node that does not answer is waited for: `60s`, `5m`", "`60s`"),
    "text": Entry("`true`: the schema has `key` and `value` as `STRING`; a table of SQL takes strings for them then"),
    "pushdown": Entry("Whether the source takes over filters: see [Filters](../howto/spark.md#filters)"),
}


SINK = {
    **PROFILE,
    "path": Entry("What `save` or `start` is given: `logboom://host:port`", "this or `servers`"),
    "servers": Entry("The node's address, or several with commas", "none"),
    "topic": Entry("The topic of all rows", "the column `topic`"),
    "codec": Entry("How batches are compressed: `none`, `lz4`, `zstd`"),
    "batchBytes": Entry("About how large a batch is, before compression", "`1m`"),
    "txnAppId": Entry(
        "With `txnVersion`: a name under which versions rise; one at or below the last writes nothing", "none"
    ),
    "txnVersion": Entry("The version of this write; not for streams, which have their own", "none"),
    "orderBy": Entry(
        "Columns by which each task sorts its rows before it writes them: `room, at desc`", "as they come"
    ),
    "timeout": Entry("How long a node that does not answer, or has no room, is waited for: `60s`, `5m`", "`60s`"),
    "createTopic": Entry(
        "A topic that is not there: `first` makes it, but for a stream or `txnAppId` that has written to it before; "
        "`always` (`true`) makes it, `never` (`false`) is an error",
        "`first`",
    ),
    "checkpointLocation": Entry(
        "Spark's own, of a stream. In `foreachBatch`, with `txnAppId` and the number as `txnVersion`: that of the "
        "stream, to tell [a copy of it](../howto/spark-write.md#a-checkpoint-that-is-copied) from a repeat",
        "none",
    ),
    "queryName": Entry("Spark's own: what `queryName` is given", "none"),
}


def page() -> str:
    lines = [FRONT.rstrip(), *_rows(options._TABLE, SOURCE, ReadOptions)]
    lines += [AFTER_SOURCE.rstrip(), *_rows(write_options._TABLE, SINK, WriteOptions), AFTER_SINK]
    for name in logboom.spark.__all__:
        lines += [f"### {name}", "", "```python", _declare(getattr(logboom.spark, name)), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _rows(table: Entries, entries: Mapping[str, Entry], options: type[Any]) -> Iterator[str]:
    missing = entries.keys() ^ table.keys()
    assert not missing, f"say in this script, or take from it: {missing}"
    for name, (attribute, _, others) in table.items():
        also = ", ".join(f"`{other}`" for other in others)
        default = entries[name].default or _default(options, attribute)
        yield f"| `{name}` | {default} | {entries[name].meaning} | {also} |"


def _default(options: type[Any], attribute: str) -> str:
    (field,) = (field for field in fields(options) if field.name == attribute)
    assert field.default is not MISSING
    value: Any = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _declare(thing: Any) -> str:
    """A class as it stands; of a function its head and what it says of itself."""
    source = inspect.getsource(thing)
    if isinstance(thing, type):
        return source.rstrip()
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return "\n".join(source.splitlines()[: function.body[0].end_lineno])


if __name__ == "__main__":
    PAGE.write_text(page())
