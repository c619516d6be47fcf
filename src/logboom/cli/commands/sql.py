"""`logboom sql QUERY`."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from logboom.batch.ndjson import readable
from logboom.cli.connection import ask, names_of, servers_of
from logboom.cli.names import complete_topics
from logboom.cli.options import Flag, Json, Server
from logboom.cli.show.output import show_json_line, show_table
from logboom.cli.target import is_several
from logboom.errors import ConfigError, LogboomError, TopicNotFound
from logboom.storage.data.near_names import near_names

if TYPE_CHECKING:
    import duckdb

    from logboom.cli.relation import TopicRelation

DONE, REFUSED = 0, 2
_PATTERN = re.compile(r'"([A-Za-z0-9._-]*[*?][A-Za-z0-9._*?-]*)"')
ROWS = 1000
DETAILS = """\
Every topic that the query names is a table with the columns topic, partition,
seqno, timestamp, key, value, channel, tags and headers; put names with dashes or
dots in double quotes. Key and value are bytes: decode(value) is their
text, and decode(value)->>'$.name' a field of JSON in it. The query
reads all partitions one after another, up to the end of the logs when it
starts.

A pattern in double quotes, such as "orders.*", is a table of all topics whose
names fit.

The query runs in DuckDB (pip install '.[sql]'), in memory. It can read
only topics: files, the network, extensions and Python objects are switched off,
and a query cannot switch them on.

Examples:
  logboom sql "SELECT count(*), min(timestamp), max(timestamp) FROM events"
  logboom sql "SELECT decode(key) AS user, count(*) FROM events GROUP BY ALL ORDER BY 2 DESC LIMIT 10"
  logboom sql 'SELECT topic, count(*) FROM "orders.*" GROUP BY topic'
  logboom sql "SELECT decode(value)->>'$.city' AS city, count(*) FROM \\"web-logs\\" GROUP BY city" --csv
"""
app = App(name="sql", help_epilogue=DETAILS)


@app.default
def sql(
    query: str,
    /,
    *,
    topic: Annotated[list[str] | None, Parameter(negative="", completer=complete_topics)] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, Parameter(name="--csv", negative="", show_default=False)] = False,
    skip_gaps: Flag = False,
    server: Server = None,
) -> int:
    """Query topics with SQL.

    Parameters
    ----------
    query
        The query.
    topic
        Only these topics or patterns can be named; may be given more than once. Needed for internal ones.
    as_json
        One JSON object a row instead of text.
    as_csv
        CSV with a header line instead of text.
    skip_gaps
        Skip records that are dropped or damaged, instead of stopping.
    """
    try:
        import duckdb
    except ImportError:
        print("logboom: sql needs DuckDB: pip install '.[sql]' in a checkout of Logboom", file=sys.stderr)
        return REFUSED
    from logboom.cli.relation import TopicRelation

    servers = servers_of(server)
    found = ask(server, lambda broker: broker.list_topics("", internal=bool(topic)))
    partitions = {info.name: len(info.partitions) for info in found}
    for name in topic or ():
        if name not in partitions and not is_several(name):
            raise TopicNotFound(name, names_of(servers)[0], near_names(name, partitions))
    gaps: Any = "skip" if skip_gaps else "raise"
    names = topic or [*named_in(query, list(partitions)), *patterns_in(query)]
    relations = [TopicRelation(name, partitions.get(name), servers, gaps) for name in names]
    with _confined(relations) as connection:
        try:
            _show(connection.execute(query), as_json, as_csv)
        except duckdb.Error as error:
            lost = next((relation.error for relation in relations if relation.error is not None), None)
            raise (lost or LogboomError(_explain(error, partitions))) from None
    return DONE


def named_in(query: str, topics: Sequence[str]) -> list[str]:
    """The topics whose names stand in the query: maybe some too many, which costs nothing until they are read.

    SQL does not tell upper from lower case in names. Where topics differ in nothing else, the one written as in the
    query is meant.
    """
    lower = query.lower()
    found: dict[str, str] = {}
    for name in topics:
        if name.lower() not in lower:
            continue
        before = found.get(name.lower())
        if before is not None and (before in query) == (name in query):
            raise ConfigError("query", f"{before} and {name} are the same name in SQL: choose one with --topic")
        if before is None or name in query:
            found[name.lower()] = name
    return list(found.values())


def patterns_in(query: str) -> list[str]:
    """Patterns of topics that stand in double quotes; some may be mere names of columns, and are never read.

    >>> patterns_in('SELECT count(*) AS "how many?" FROM "orders.*" JOIN "orders.*" USING (key)')
    ['orders.*']
    """
    return list(dict.fromkeys(_PATTERN.findall(query)))


def _confined(relations: Sequence[TopicRelation]) -> duckdb.DuckDBPyConnection:
    """DuckDB with these tables, and with nothing else within its reach."""
    import duckdb

    closed: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "temp_directory": "",
    }
    connection = duckdb.connect(":memory:", config=closed)
    for relation in relations:
        connection.register(relation.topic, relation)
    connection.execute("SET lock_configuration = true")
    return connection


def _explain(error: Exception, topics: dict[str, int]) -> str:
    text = str(error).strip()
    if "does not exist" in text and "Table with name" in text:
        known = ", ".join(sorted(topics)[:10]) or "none yet"
        return f"{text.splitlines()[0]} There are the topics {known}{', ...' if len(topics) > 10 else ''}"
    return text


def _show(result: Any, as_json: bool, as_csv: bool) -> None:
    names = [column[0] for column in result.description or ()]
    if as_json:
        for row in _rows(result):
            show_json_line({name: _jsonable(value) for name, value in zip(names, row, strict=True)})
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(value) for value in row] for row in _rows(result))
    else:
        show_table(names, ([_cell(value) for value in row] for row in _rows(result)))


def _rows(result: Any) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(ROWS):
        yield from rows


def _jsonable(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return readable(bytes(value))
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _text(value: Any) -> str:
    """In a field of text; bytes that are none are escaped."""
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return (value.astimezone() if value.tzinfo else value).isoformat()
    if isinstance(value, (list, dict)):
        return msgspec.json.encode(_jsonable(value)).decode()
    return str(value)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float)) else _text(value)
