"""How many records a second come over HTTP, as lines of JSON and as Arrow, next to the Reader and to bare json?

Values of 100 bytes of text, all there before, read from the first to the last over one connection, in pages of 10,000
and of 100,000. Lines are counted and left as they are, Arrow is read into tables. Reader.tables is the same over the
binary protocol. Bare json makes the same lines in this process, of values that are there, with the library that comes
with Python, and sends them nowhere.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pyarrow as pa

from harness import QUICK, Row, Subject, rate, report, time_prepared
from logboom import Reader, Writer
from node import Node, running_node
from produce import make_values

BATCHES = 400
"""Of 64 KiB."""
SIZE = 100
PAGES = (10_000, 100_000)
TOPIC = "http-read"
TYPES = {"NDJSON": "application/x-ndjson", "Arrow": "application/vnd.apache.arrow.stream"}
ROUNDS = 3 if QUICK else 9


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_node(f"{directory}/node", "--logd", "127.0.0.1:0", "--http", "127.0.0.1:0") as node,
    ):
        ready = json.loads(Path(directory, "node", "ready.json").read_text())
        connection = HTTPConnection(ready["http"][0])
        report("http_read", _measure(node, connection))
        connection.close()


def _measure(node: Node, connection: HTTPConnection) -> list[Row]:
    values = make_values(SIZE, BATCHES)
    node.create(TOPIC)
    with Writer(TOPIC, node.address, acks="leader") as writer:
        writer.write_many(values)
    count = len(values)
    bare, reader = "bare json", "Reader.tables"
    subjects: dict[str, Subject] = {bare: partial(_dump, values), reader: partial(_tables, node, count)}
    for page in PAGES:
        subjects[f"NDJSON, pages of {page:,}"] = partial(_lines, connection, page, count)
        subjects[f"Arrow, pages of {page:,}"] = partial(_arrow, connection, page, count)
    timings = time_prepared({name: (_nothing, call) for name, call in subjects.items()}, ROUNDS)
    return [
        rate(name, timings, count, _against(name, bare, reader), _goal(name), unit="million/s") for name in subjects
    ]


def _against(name: str, bare: str, reader: str) -> str | None:
    return {"NDJSON": bare, "Arrow": reader}.get(name.partition(",")[0])


def _goal(name: str) -> float | None:
    """Lines no slower than the library that everybody has would make them; Arrow half as fast as without HTTP."""
    return {"NDJSON": 1.0, "Arrow": 0.5}.get(name.partition(",")[0])


def _dump(values: list[bytes]) -> bytes:
    moment = "2026-01-31T12:00:00.000000Z"
    rest: dict[str, object] = {"channel": None, "tags": [], "headers": []}
    lines = [
        json.dumps({"seqno": seqno, "timestamp": moment, "key": None, "value": value.decode(), **rest})
        for seqno, value in enumerate(values)
    ]
    return "\n".join(lines).encode()


def _tables(node: Node, count: int) -> None:
    with Reader(TOPIC, node.address) as reader:
        assert sum(map(len, reader.tables())) == count


def _lines(connection: HTTPConnection, page: int, count: int) -> None:
    assert sum(answer.read().count(b"\n") for answer in _pages(connection, page, count, "NDJSON")) == count


def _arrow(connection: HTTPConnection, page: int, count: int) -> None:
    """As docs/howto/http.md does: Arrow takes the answer as a file."""
    pages = _pages(connection, page, count, "Arrow")
    assert sum(len(pa.ipc.open_stream(answer).read_all()) for answer in pages) == count


def _pages(connection: HTTPConnection, page: int, count: int, kind: str) -> Iterator[HTTPResponse]:
    """Each is read and dropped before the next is asked for, as the tables of a Reader are."""
    place, seqno = "earliest", 0
    while seqno < count:
        connection.request("GET", f"/topics/{TOPIC}/records?from={place}&limit={page}", headers={"Accept": TYPES[kind]})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        place, seqno = answer.headers["Logboom-Next"], int(answer.headers["Logboom-Next-Seqno"])
        yield answer
        answer.read()


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
