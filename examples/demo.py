"""A node, three processes that write to it, two that follow it, and a kill -9 in the middle: nothing is lost.

Two of the writers use the Python client, the third has nothing but HTTP. Where Spark can be had, two live queries of it
work on it meanwhile: one counts, one writes what it has made of each record to another topic, exactly once. In the end
a second node copies the first.

    python examples/demo.py [--records N] [--keep DIR]

Every process notes down what it was promised and what it saw; the checker of the test suite compares the notes. On a
terminal the node then stays up until Ctrl-C. Exits with 1, and says what, if anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from checker import Recorder, Report, check, read_histories
from checker.history import Begin, Final, Invoke, Ok, Unknown
from logboom import Reader, Writer
from logboom.client import FileReader
from logboom.errors import LogboomError
from logboom.spark.environment import examine_spark

TOPIC, PARTITIONS = "readings", 3
PARSED = "parsed"
"""What a query of Spark makes of the readings."""
WRITERS = {"anna": "write", "bert": "write", "cleo": "post"}
CHUNK = 1000
RETRY_S = 0.2
CURSOR = "spark"
SPARK = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
LOGBOOM = [sys.executable, "-m", "logboom"]


class Wrong(Exception):
    """Something is not as it must be."""


# What the child processes do.


def write(address: str, history: str, name: str, records: int) -> None:
    """Write, and say on standard output how much was promised: durable, and in the log exactly once."""
    promised, results = 0, []

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
                        f"{name}:{number}:{number * 7919 % 4000 / 100} C".encode(),
                        key=b"sensor-%d" % (number % 50),
                        channel=f"site/{number % 20}/temperature",
                        tags=("alert",) if number % 97 == 0 else (),
                        callback=lambda result, number=number: settle(number, result),
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
                        "value": f"{name}:{number}:{number * 7919 % 4000 / 100} C",
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


def follow(address: str, history: str, name: str, partition: int) -> None:
    """Follow one log over the network, whatever happens to the node."""
    log = f"{TOPIC}/{partition}"
    with Recorder(history) as recorder, Reader(TOPIC, address, partition=partition) as reader:
        recorder.note(Begin(name, log, reader.position))
        for seqnos, values in reader.lists(("seqno", "value"), follow=True):
            recorder.poll(name, log, list(zip(seqnos, values, strict=True)))
            say(reader.position)


def follow_files(directory: str, history: str, name: str, partition: int) -> None:
    """Follow one log in its files, without asking the node."""
    log = f"{TOPIC}/{partition}"
    with Recorder(history) as recorder, FileReader(directory, TOPIC, partition=partition) as reader:
        recorder.note(Begin(name, log, reader.position))
        for table in reader.tables(["seqno", "value"], follow=True):
            recorder.poll(name, log, list(zip(*(column.to_pylist() for column in table.columns), strict=True)))
            say(reader.position)


def count(address: str, result: str, name: str, records: int) -> None:
    """Two live queries of Spark, whatever happens to the node; they end when they have all.

    One counts what each writer wrote to each log. The other takes the readings apart and writes them to a topic.
    """
    from pyspark.sql import functions as sql

    import logboom.spark

    spark = logboom.spark.session(name, "local[2]", config={**SPARK, "spark.local.dir": f"{result}-local"})
    readings = (
        spark.readStream.format("logboom")
        .option("topic", TOPIC)
        .option("startingSeqno", "earliest")
        .option("cursor", CURSOR)
        .schema("partition INT, seqno BIGINT, key BINARY, value BINARY, tags ARRAY<STRING>")
        .load(f"logboom://{address}")
    )
    fields = sql.split(readings["value"].cast("string"), ":")
    celsius = sql.regexp_extract(fields[2], r"[0-9.]+", 0).cast("double")
    parts = (fields[0].alias("writer"), fields[1].cast("bigint").alias("number"), celsius.alias("celsius"))
    parsed = readings.select("key", sql.struct(*parts).alias("value"))
    parsing = (
        parsed.writeStream.format("logboom")
        .option("topic", PARSED)
        .option("checkpointLocation", f"{result}-parsed")
        .start(f"logboom://{address}")
    )
    counts = readings.groupBy(fields[0].alias("writer"), "partition").agg(
        sql.count("*").alias("records"),
        sql.sum(fields[1].cast("bigint")).alias("numbers"),
        sql.sum("seqno").alias("seqnos"),
        sql.count_if(sql.array_contains("tags", "alert")).alias("alerts"),
    )
    writer = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = logboom.spark.start(writer.option("checkpointLocation", f"{result}-checkpoint"))
    query.processAllAvailable()
    parsing.processAllAvailable()
    triggers: dict[str, dict[int, int]] = {query.id: {}, parsing.id: {}}
    say(0)
    while min(sum(seen.values()) for seen in triggers.values()) < records:
        for each in (query, parsing):
            if not each.isActive:
                raise Wrong(f"a query has ended: {each.exception()}")
            triggers[each.id].update((done["batchId"], done["numInputRows"]) for done in each.recentProgress)
        say(min(sum(seen.values()) for seen in triggers.values()))
        time.sleep(0.1)
    query.processAllAvailable()
    parsing.processAllAvailable()
    rows = [row.asDict() for row in spark.table("counts").orderBy("writer", "partition").collect()]
    query.stop()
    parsing.stop()
    spark.stop()  # now the cursor is told of the last micro-batch
    counts_of = [len(triggers[each.id]) for each in (query, parsing)]
    Path(result).write_text(json.dumps({"triggers": counts_of[0], "published": counts_of[1], "rows": rows}))


def say(number: int | None) -> None:
    """How far this process has come; one call, for several threads may say something."""
    os.write(sys.stdout.fileno(), b"%d\n" % (number or 0))


ROLES: dict[str, Callable[[str, str, str, int], None]] = {
    "write": write,
    "post": post,
    "follow": follow,
    "files": follow_files,
    "count": count,
}


# What the parent does.


class Child:
    def __init__(self, role: str, where: str, notes: str, name: str, number: int, log: str | None = None) -> None:
        arguments = [sys.executable, __file__, "--role", role, where, notes, name, str(number)]
        self.name, self.notes, self.reached, self._log = name, notes, 0, log
        """How far it has come, it says."""
        with contextlib.nullcontext() if log is None else open(log, "wb") as errors:
            self._process = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0
            )
        self._spoke = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdecimal():  # Java may have something to say too
                self.reached = int(line)
                self._spoke.set()

    def check(self) -> None:
        if self._process.poll():
            said = "" if self._log is None else f":\n{Path(self._log).read_text()[-2000:]}"
            raise Wrong(f"{self.name} ended with status {self._process.returncode}{said}")

    def wait_for_word(self) -> None:
        while not self._spoke.wait(0.1):
            self.check()

    def wait_until(self, reached: int) -> None:
        while self.reached < reached:
            self.check()
            time.sleep(0.01)

    def wait(self) -> None:
        self._process.wait()
        self.check()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # Spark's Java too
        self._process.wait()
        self._listener.join()


def free_addresses(count: int) -> list[str]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Node:
    """`logboom serve` in its own process, on one directory and always the same ports."""

    def __init__(self, root: str, *options: str) -> None:
        self.address, self.logd, self.http = free_addresses(3)
        self.directory, self._ready, self._log = f"{root}/data", Path(root, "ready"), f"{root}/node.log"
        self._options = options

    def start(self) -> float:
        """Seconds until it listened."""
        began = time.perf_counter()
        self._ready.unlink(missing_ok=True)
        where = ["--data", self.directory, "--listen", self.address, "--logd", self.logd, "--http", self.http]
        command = [*LOGBOOM, "serve", *where, "--ready-file", str(self._ready), *self._options]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, process_group=0)
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise Wrong(f"the node did not start:\n{self.said}")
            time.sleep(0.005)
        return time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return Path(self._log).read_text()

    def end(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)
        self._process.wait()

    def command(self, *arguments: str) -> str:
        """What a command of ours prints, asked of this node."""
        environment = os.environ | {"LOGBOOM_SERVERS": self.address, "COLUMNS": "100"}
        done = subprocess.run([*LOGBOOM, *arguments], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise Wrong(f"logboom {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout.rstrip()


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False)

    def done(self, what: str, text: str, mark: str = "[green]✓[/]") -> None:
        self.console.print(f"{mark} [bold]{what:<9}[/]{text}", soft_wrap=True)

    def shown(self, command: str, output: str) -> None:
        self.console.print(f"\n[bold cyan]$ logboom {command}[/]", soft_wrap=True)
        self.console.print(output, style="dim", markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def bar(self, total: int) -> Iterator[Callable[[int], None]]:
        columns = TextColumn("  [cyan]promised"), BarColumn(bar_width=50), TaskProgressColumn()
        disabled = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=disabled) as progress:
            task = progress.add_task("", total=total)
            yield lambda done: progress.update(task, completed=done)


def write_and_kill(node: Node, root: str, records: int, screen: Screen) -> None:
    """Three writers and two followers; the node is killed when half of it was promised."""
    began, each = time.perf_counter(), records // len(WRITERS)
    writers = [
        Child(role, node.http if role == "post" else node.address, f"{root}/history-{name}", name, each)
        for name, role in WRITERS.items()
    ]
    followers = [
        Child("follow", node.address, f"{root}/history-dora", "dora", 0),
        Child("files", node.directory, f"{root}/history-emil", "emil", 1),
    ]
    try:
        with screen.bar(each * len(WRITERS)) as show:
            promised = await_promises(writers, records // 2, show)
            node.end(signal.SIGKILL)
            screen.done("kill -9", f"the node, process {node.pid}, after {promised:,} promises", "[yellow]![/]")
            seconds = node.start()
            screen.done("restart", f"recovered and listening after {seconds:.1f} s, process {node.pid}")
            promised = await_promises(writers, each * len(WRITERS), show)
        for writer in writers:
            writer.wait()
        seconds = time.perf_counter() - began
        screen.done(
            "write", f"{len(WRITERS)} processes, {promised:,} records, all durable, in {seconds:.1f} s: HTTP too"
        )
        ends = final_read(node, root)
        for partition, follower in enumerate(followers):
            follower.wait_until(ends[partition])
        screen.done("follow", "two processes saw it live and across the restart: over the network, and in the files")
    finally:
        for child in (*writers, *followers):
            child.kill()


def await_promises(writers: list[Child], count: int, show: Callable[[int], None]) -> int:
    while (promised := sum(writer.reached for writer in writers)) < count:
        for writer in writers:
            writer.check()
        show(promised)
        time.sleep(0.01)
    return promised


def final_read(node: Node, root: str) -> list[int]:
    """Read everything and note it; returns where the logs end."""
    ends = []
    with Recorder(f"{root}/history-final") as recorder:
        for partition in range(PARTITIONS):
            log = f"{TOPIC}/{partition}"
            with Reader(TOPIC, node.address, partition=partition) as reader:
                for seqnos, values in reader.lists(("seqno", "value")):
                    recorder.note(Final(log, [(n, v.decode()) for n, v in zip(seqnos, values, strict=True)]))
                ends.append(reader.position or 0)
    return ends


def read_some(node: Node, records: int, screen: Screen) -> None:
    """As Arrow, and by tag: the node looks at the columns and sends only what was asked for."""
    began, rows, alerts = time.perf_counter(), 0, 0
    for partition in range(PARTITIONS):
        with Reader(TOPIC, node.address, partition=partition) as reader:
            rows += reader.table(["value"]).num_rows
    seconds = time.perf_counter() - began
    screen.done("Arrow", f"{rows:,} rows read in {seconds:.2f} s")
    for partition in range(PARTITIONS):
        with Reader(TOPIC, node.address, partition=partition, tags_any=("alert",)) as reader:
            alerts += reader.table(["value"]).num_rows
    each = records // len(WRITERS)
    expected = len(WRITERS) * len(range(0, each, 97))
    if alerts != expected:
        raise Wrong(f"{alerts} records have the tag alert, {expected} were written")
    screen.done("by tag", f"{alerts:,} records have the tag alert")


def copy(node: Node, root: str, screen: Screen) -> None:
    """A second node copies the first, and every column of every record is compared."""
    began, replica = time.perf_counter(), Node(root, "--replicate-from", node.logd)
    replica.start()
    try:
        ends = read_ends(node)
        while read_ends(replica) != ends:
            time.sleep(0.05)
        seconds = time.perf_counter() - began
    finally:
        replica.end(signal.SIGTERM)
    for partition in range(len(ends)):
        directories = node.directory, replica.directory
        ours, theirs = (FileReader(directory, TOPIC, partition=partition).table() for directory in directories)
        if not ours.equals(theirs):
            raise Wrong(f"partition {partition} of the replica is not what the node has")
    screen.done("replica", f"a second node has all {sum(ends):,} records, equal, {seconds:.1f} s after its start")


def start_spark(node: Node, root: str, records: int, screen: Screen) -> Child | None:
    """It is there when the first record comes; None, with a word, where it cannot be had."""
    for lack in examine_spark():
        screen.done("Spark", f"is left out: {lack.reason}. To see it, {lack.advice}", "[yellow]-[/]")
        return None
    began, spark = (
        time.perf_counter(),
        Child("count", node.address, f"{root}/spark", "Spark", records, f"{root}/spark.log"),
    )
    try:
        with screen.console.status("Spark is starting"):
            spark.wait_for_word()
    except BaseException:
        spark.kill()
        raise
    seconds = time.perf_counter() - began
    screen.done("Spark", f"counts what is written, and writes it to {PARSED}: ready {seconds:.1f} s after its start")
    return spark


def show_counts(spark: Child, node: Node, root: str, screen: Screen) -> None:
    """What Spark has counted is what was promised, to the record; and the node knows how far it has come."""
    spark.wait()
    found = json.loads(Path(spark.notes).read_text())
    promised = sum_promises(root)
    counted = {
        (row["writer"], row["partition"]): [row[key] for key in ("records", "numbers", "seqnos")]
        for row in found["rows"]
    }
    if counted != promised:
        raise Wrong(f"Spark has counted {counted}, promised was {promised}")
    lags = [cursor["lag"] for cursor in json.loads(node.command("cursor", "list", TOPIC, "--json"))]
    if any(lags) or len(lags) != PARTITIONS:
        raise Wrong(f"the cursor of Spark's query is behind: {lags}")
    records = sum(row["records"] for row in found["rows"])
    screen.done(
        "Spark",
        f"counted {records:,} records, across the restart, in {found['triggers']} micro-batches: each once; lag 0",
    )
    table = Table(
        "writer", *(f"{TOPIC}/{partition}" for partition in range(PARTITIONS)), "alerts", box=None, padding=(0, 3)
    )
    for writer in WRITERS:
        rows = {row["partition"]: row for row in found["rows"] if row["writer"] == writer}
        numbers = [rows[partition]["records"] if partition in rows else 0 for partition in range(PARTITIONS)]
        table.add_row(writer, *(f"{number:,}" for number in numbers), str(sum(row["alerts"] for row in rows.values())))
    screen.console.print(table)


def check_parsed(node: Node, root: str, screen: Screen) -> None:
    """What Spark has written to the other topic is what was promised in this one: each record once."""
    published = json.loads(Path(f"{root}/spark").read_text())["published"]
    found: dict[str, list[int]] = {name: [] for name in WRITERS}
    for partition in range(len(read_ends(node, PARSED))):
        with Reader(PARSED, node.address, partition=partition) as reader:
            for record in reader:
                reading = json.loads(record.value or b"{}")
                found[reading["writer"]].append(reading["number"])
    promised = {name: sum(total[0] for key, total in sum_promises(root).items() if key[0] == name) for name in WRITERS}
    for name, numbers in found.items():
        if sorted(numbers) != list(range(promised[name])):
            raise Wrong(f"of {promised[name]:,} records of {name} {len(numbers):,} are in {PARSED}")
    total = sum(map(len, found.values()))
    screen.done(
        "loop", f"Spark wrote {total:,} records to {PARSED}, in {published} publishes, each record exactly once"
    )


def sum_promises(root: str) -> dict[tuple[str, int], list[int]]:
    """By writer and partition: how many records, and the sums of their numbers and of their seqnos."""
    sums: dict[tuple[str, int], list[int]] = {}
    for event in read_histories(f"{root}/history-{name}" for name in WRITERS):
        if isinstance(event, Ok):
            total = sums.setdefault((event.writer, int(event.log.rpartition("/")[2])), [0, 0, 0])
            for place, number in enumerate((1, event.sequence, event.seqno)):
                total[place] += number
    return sums


def read_ends(node: Node, topic: str = TOPIC) -> list[int]:
    """How many records each partition has; none where there is no topic yet."""
    try:
        with urllib.request.urlopen(f"http://{node.http}/topics/{topic}", timeout=30) as answer:
            return [partition["committed"] for partition in json.load(answer)["partitions"]]
    except urllib.error.HTTPError:
        return []


def run(root: str, records: int, screen: Screen) -> None:
    screen.console.print("\n[bold]Logboom[/]: a node, three writers, two followers, Spark, one kill -9, and a copy\n")
    node, spark = Node(root), None
    seconds = node.start()
    try:
        screen.done("serve", f"listening on {node.address} after {seconds:.1f} s, process {node.pid}")
        for topic in (TOPIC, PARSED):
            node.command("topic", "create", topic, "--partitions", str(PARTITIONS))
        spark = start_spark(node, root, records // len(WRITERS) * len(WRITERS), screen)
        write_and_kill(node, root, records, screen)
        read_some(node, records, screen)
        os.mkdir(f"{root}/copy")
        copy(node, f"{root}/copy", screen)
        if spark is not None:
            show_counts(spark, node, root, screen)
            check_parsed(node, root, screen)
        report = check(read_histories(sorted(Path(root).glob("history-*"))))
        tell(report, records, screen)
        for command in ("topic list", f"read {TOPIC}/0 --tag alert --limit 3 -n", "head " + TOPIC, "cursor list"):
            screen.shown(command, node.command(*command.split()))
        if screen.console.is_terminal:
            stay(node, screen)
    finally:
        if spark is not None:
            spark.kill()
        node.end(signal.SIGTERM)


def tell(report: Report, records: int, screen: Screen) -> None:
    if not report.clean or report.acknowledged != records // len(WRITERS) * len(WRITERS):
        raise Wrong(f"the checker says:\n{report}")
    seen, verdict = str(report).splitlines()
    screen.done("check", seen)
    screen.console.print(f"\n[bold green]{verdict}[/]", soft_wrap=True)


def stay(node: Node, screen: Screen) -> None:
    """Until Ctrl-C, with something to look at: a reading each second."""
    screen.console.print(
        f"\nThe node stays up. In another terminal:\n\n"
        f"  [bold]export LOGBOOM_SERVERS={node.address} PATH={os.path.dirname(sys.executable)}:$PATH[/]\n"
        f"  logboom read {TOPIC}/0 --from latest --follow\n"
        f"  logboom write {TOPIC} 'hello' --key sensor-1\n"
        f"  logboom stats\n"
        f"  logboom topic list\n"
        f"  curl -N 'http://{node.http}/topics/{TOPIC}/tail?partition=0'\n"
        f"  python -i -c 'import logboom.spark; spark = logboom.spark.session()'\n"
        f"  >>> spark.read.format('logboom').option('topic', '{TOPIC}').load('logboom://{node.address}').show()\n\n"
        f"Every call of the API: http://{node.http}/docs\n\nCtrl-C ends it.",
        soft_wrap=True,
    )
    with Writer(TOPIC, node.address, partition=0) as writer:
        while True:
            writer.write(f"it is {time.strftime('%H:%M:%S')}".encode())
            time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write to a node, kill it, start it again, and lose nothing.")
    parser.add_argument("--records", type=int, default=150_000, metavar="N", help="how many, at least 10,000")
    parser.add_argument("--keep", metavar="DIR", help="use this new directory and leave it there")
    parser.add_argument("--role", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        role, where, history, name, number = arguments.role
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            ROLES[role](where, history, name, int(number))
        return 0
    if arguments.records < 10_000:
        parser.error("--records must be 10,000 or more")
    if arguments.keep and os.path.exists(arguments.keep):
        parser.error(f"{arguments.keep} is there already: name a new directory")
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    screen = Screen()
    place = contextlib.nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory(prefix="logboom-")
    try:
        with place as root:
            os.makedirs(root, exist_ok=True)
            run(root, arguments.records, screen)
    except KeyboardInterrupt:
        screen.console.print("\nstopped")
        return 0
    except (Wrong, LogboomError) as error:
        screen.console.print(f"\n[bold red]Wrong:[/] {error}", soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
