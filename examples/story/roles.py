"""What the child processes do: they write, follow and count, whatever happens to the node, and note it down."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from io import BufferedRWPair
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker import Recorder
from checker.history import Begin, Invoke, Ok, Unknown
from logboom import Reader, Writer
from logboom.client import FileReader
from story.plan import CHUNK, CURSOR, METER, PARSED, SPARK, TOPIC, Wrong, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

RETRY_S = 0.2


def write(address: str, history: str, name: str, records: int) -> None:
    """Write, and say on standard output how much was promised: durable, and in the log exactly once."""
    promised = 0
    results: list[tuple[int, Any]] = []

    def settle(number: int, result: object) -> None:
        nonlocal promised
        results.append((number, result))
        promised += 1
        if promised % CHUNK == 0 or promised == records:
            say(promised)

    with Recorder(history) as recorder:
        with Writer(TOPIC, address) as writer:
            for first in range(0, records, CHUNK):
                numbers = range(first, min(first + CHUNK, records))
                recorder.note(*(Invoke(name, number) for number in numbers))
                for number in numbers:
                    writer.write(
                        reading(name, number).encode(),
                        key=b"sensor-%d" % (number % 50),
                        channel=f"site/{number % 20}/temperature",
                        tags=("alert",) if number % 97 == 0 else (),
                        callback=partial(settle, number),
                    )
        for number, result in results:
            if isinstance(result, BaseException):
                recorder.note(Unknown(name, number))
            else:
                recorder.note(Ok(name, number, f"{TOPIC}/{result.partition}", result.seqno))


def post(address: str, history: str, name: str, records: int) -> None:
    """The same with nothing but HTTP. What got no answer is sent again; the node knows its Idempotency-Key."""
    with Recorder(history) as recorder:
        for first in range(0, records, CHUNK):
            numbers = range(first, min(first + CHUNK, records))
            recorder.note(*(Invoke(name, number) for number in numbers))
            lines = [
                json.dumps(
                    {
                        "value": reading(name, number),
                        "key": f"sensor-{number % 50}",
                        "channel": f"site/{number % 20}/temperature",
                        "tags": ["alert"] if number % 97 == 0 else [],
                    }
                )
                for number in numbers
            ]
            placed = post_until_answered(address, "\n".join(lines).encode(), f"{name}-{first}")
            for number, partition, seqno in zip(numbers, placed["partitions"], placed["seqnos"], strict=True):
                recorder.note(Ok(name, number, f"{TOPIC}/{partition}", seqno))
            say(numbers[-1] + 1)


def post_until_answered(address: str, body: bytes, key: str) -> dict[str, list[int]]:
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
    request = urllib.request.Request(f"http://{address}/topics/{TOPIC}/records", body, headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                placed: dict[str, list[int]] = json.load(answer)
                return placed
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Wrong(f"{error}: {error.read().decode()}") from None
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(RETRY_S)


def send_lines(address: str, history: str, name: str, records: int) -> None:
    """The same with nothing but a socket and lines of text, as a small device would.

    The protocol recognises no repeats. But this log has one writer, so its end says which records have arrived.
    """
    host, _, port = address.rpartition(":")
    noted = arrived = 0
    with Recorder(history) as recorder:
        while arrived < records:
            try:
                with (
                    socket.create_connection((host, int(port)), timeout=30) as connection,
                    connection.makefile("rwb") as lines,
                ):
                    before, arrived = arrived, ask_end(lines)
                    recorder.note(*(Ok(name, number, f"{METER}/0", number) for number in range(before, arrived)))
                    say(arrived)
                    while arrived < records:
                        numbers = range(arrived, min(arrived + CHUNK, records))
                        recorder.note(*(Invoke(name, number) for number in numbers if number >= noted))
                        noted = max(noted, numbers.stop)
                        send(lines, *(b"MSG %s %d\r\n%s" % message(name, number) for number in numbers))
                        for number in numbers:
                            if answer(lines) != (number, 1):
                                raise Wrong(f"record {number} of {name} has another seqno")
                            recorder.note(Ok(name, number, f"{METER}/0", number))
                            arrived = number + 1
                        say(arrived)
            except OSError:
                time.sleep(RETRY_S)


def message(name: str, number: int) -> tuple[bytes, int, bytes]:
    value = reading(name, number).encode()
    return METER.encode(), len(value), value


def ask_end(lines: BufferedRWPair) -> int:
    """How many records the log has."""
    send(lines, b"HEAD %s" % METER.encode())
    newest, count = answer(lines)
    return newest + 1 if count else 0


def send(lines: BufferedRWPair, *commands: bytes) -> None:
    lines.write(b"".join(command + b"\r\n" for command in commands))
    lines.flush()


def answer(lines: BufferedRWPair) -> tuple[int, int]:
    """The two numbers of an OK. Raises ConnectionError where the node is away, or about to be."""
    line = lines.readline()
    if not line.endswith(b"\n") or line == b"ERR unavailable\r\n":
        raise ConnectionError("the node is away")
    word, *numbers = line.split()
    if word != b"OK":
        raise Wrong(f"the node says {line.decode().strip()}")
    first, second = map(int, numbers)
    return first, second


def follow(address: str, history: str, name: str, partition: int) -> None:
    """Follow one log over the network, whatever happens to the node."""
    log = f"{TOPIC}/{partition}"
    with Recorder(history) as recorder, Reader(TOPIC, address, partition=partition) as reader:
        recorder.note(Begin(name, log, reader.seqno))
        for seqnos, values in reader.lists(("seqno", "value"), follow=True):
            recorder.poll(name, log, list(zip(seqnos, values, strict=True)))
            say(reader.seqno)


def follow_files(directory: str, history: str, name: str, partition: int) -> None:
    """Follow one log in its files, without asking the node."""
    log = f"{TOPIC}/{partition}"
    with Recorder(history) as recorder, FileReader(directory, TOPIC, partition=partition) as reader:
        recorder.note(Begin(name, log, reader.seqno))
        for table in reader.tables(["seqno", "value"], follow=True):
            recorder.poll(name, log, list(zip(*(column.to_pylist() for column in table.columns), strict=True)))
            say(reader.seqno)


def count(address: str, result: str, name: str, records: int) -> None:
    """Two live queries of Spark, whatever happens to the node; they end when they have all.

    One counts what each writer wrote to each log. The other takes the readings apart and writes them to a topic; it
    begins first, since two that begin at once may spoil what Spark keeps for both.
    """
    from pyspark.sql import functions as sql

    import logboom.spark

    spark = logboom.spark.session(name, "local[2]", config={**SPARK, "spark.local.dir": f"{result}-local"})

    def readings() -> DataFrame:
        stream = spark.readStream.format("logboom").option("topic", f"{TOPIC},{METER}").option("cursor", CURSOR)
        stream = stream.option("startingSeqno", "earliest")
        columns = "topic STRING, partition INT, seqno BIGINT, key BINARY, value BINARY, tags ARRAY<STRING>"
        return stream.schema(columns).load(f"logboom://{address}")

    fields = sql.split(sql.col("value").cast("string"), ":")
    celsius = sql.regexp_extract(fields[2], r"[0-9.]+", 0).cast("double")
    parts = (fields[0].alias("writer"), fields[1].cast("bigint").alias("number"), celsius.alias("celsius"))
    parsed = readings().select("key", sql.struct(*parts).alias("value"))
    parsing = (
        parsed.writeStream.format("logboom")
        .option("topic", PARSED)
        .option("checkpointLocation", f"{result}-parsed")
        .start(f"logboom://{address}")
    )
    await_all(parsing)
    counts = (
        readings()
        .groupBy(fields[0].alias("writer"), "topic", "partition")
        .agg(
            sql.count("*").alias("records"),
            sql.sum(fields[1].cast("bigint")).alias("numbers"),
            sql.sum("seqno").alias("seqnos"),
            sql.count_if(sql.array_contains("tags", "alert")).alias("alerts"),
        )
    )
    writer = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = logboom.spark.start(writer.option("checkpointLocation", f"{result}-checkpoint"))
    await_all(query)
    triggers: dict[str, dict[int, int]] = {query.id: {}, parsing.id: {}}
    say(0)
    while min(sum(seen.values()) for seen in triggers.values()) < records:
        for each in (query, parsing):
            if not each.isActive:
                raise Wrong(explain(each.exception()))
            triggers[each.id].update((done["batchId"], done["numInputRows"]) for done in each.recentProgress)
        say(min(sum(seen.values()) for seen in triggers.values()))
        time.sleep(0.1)
    await_all(query)
    await_all(parsing)
    rows = [row.asDict() for row in spark.table("counts").orderBy("writer", "topic", "partition").collect()]
    query.stop()
    parsing.stop()
    spark.stop()  # now the cursor is told of the last micro-batch
    counts_of = [len(triggers[each.id]) for each in (query, parsing)]
    Path(result).write_text(json.dumps({"triggers": counts_of[0], "published": counts_of[1], "rows": rows}))


def await_all(query: StreamingQuery) -> None:
    """Until it has done all that is there. Raises Wrong where it has ended instead."""
    from pyspark.errors import StreamingQueryException

    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        raise Wrong(explain(error)) from error


def explain(error: BaseException | None) -> str:
    """What Spark says of a query that has ended, and the innermost cause, which stands far below it."""
    said = "it was stopped" if error is None else str(error)
    stack = getattr(error, "_stackTrace", None) or said
    causes = [line for line in stack.splitlines() if line.startswith("Caused by: ")]
    first = next(iter(said.splitlines()), "")
    return "\n".join(["a query of Spark has ended: " + first, *causes[-1:]])


def say(number: int | None) -> None:
    """How far this process has come; one call, for several threads may say something."""
    os.write(sys.stdout.fileno(), b"%d\n" % (number or 0))


ROLES: dict[str, Callable[[str, str, str, int], None]] = {
    "write": write,
    "post": post,
    "lines": send_lines,
    "follow": follow,
    "files": follow_files,
    "count": count,
}
