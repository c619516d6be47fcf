"""The live queries of Spark: started before the first record, and compared with what was promised."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.table import Table

from checker import read_histories
from checker.history import Ok
from logboom import Reader
from logboom.spark.runtime.environment import examine_spark
from story.plan import LOGS, METER, PARSED, TOPIC, WRITERS, Wrong, share
from story.processes import Child, Node
from story.screen import Screen


def start_spark(node: Node, root: str, records: int, screen: Screen) -> Child | None:
    """It is there when the first record comes; None, with a word, where it cannot be had."""
    for lack in examine_spark():
        screen.done("Spark", f"is left out: {lack.reason}. To see it, {lack.advice}", "[yellow]-[/]")
        return None
    began, total = time.perf_counter(), share(records) * len(WRITERS)
    spark = Child("count", node.address, f"{root}/spark", "Spark", total, f"{root}/spark.log")
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
        (row["writer"], row["topic"], row["partition"]): [row[key] for key in ("records", "numbers", "seqnos")]
        for row in found["rows"]
    }
    if counted != promised:
        raise Wrong(f"Spark has counted {counted}, promised was {promised}")
    cursors = [each for topic in (TOPIC, METER) for each in json.loads(node.command("cursor", "list", topic, "--json"))]
    lags = [cursor["lag"] for cursor in cursors]
    if any(lags) or len(lags) != len(LOGS):
        raise Wrong(f"the cursor of Spark's query is behind: {lags}")
    records = sum(row["records"] for row in found["rows"])
    screen.done(
        "Spark",
        f"counted {records:,} records, across the restart, in {found['triggers']} micro-batches: each once; lag 0",
    )
    table = Table("writer", *(f"{topic}/{partition}" for topic, partition in LOGS), "alerts", box=None, padding=(0, 2))
    for writer in WRITERS:
        rows = {(row["topic"], row["partition"]): row for row in found["rows"] if row["writer"] == writer}
        numbers = [rows[log]["records"] if log in rows else 0 for log in LOGS]
        table.add_row(writer, *(f"{number:,}" for number in numbers), str(sum(row["alerts"] for row in rows.values())))
    screen.console.print(table)


def check_parsed(node: Node, root: str, screen: Screen) -> None:
    """What Spark has written to the other topic is what was promised in these: each record once."""
    published = json.loads(Path(f"{root}/spark").read_text())["published"]
    found: dict[str, list[int]] = {name: [] for name in WRITERS}
    for partition in range(len(node.spans(PARSED))):
        with Reader(PARSED, node.address, partition=partition) as reader:
            for record in reader:
                parsed = json.loads(record.value or b"{}")
                found[parsed["writer"]].append(parsed["number"])
    promised = {name: sum(total[0] for key, total in sum_promises(root).items() if key[0] == name) for name in WRITERS}
    for name, numbers in found.items():
        if sorted(numbers) != list(range(promised[name])):
            raise Wrong(f"of {promised[name]:,} records of {name} {len(numbers):,} are in {PARSED}")
    total = sum(map(len, found.values()))
    screen.done(
        "loop", f"Spark wrote {total:,} records to {PARSED}, in {published} publishes, each record exactly once"
    )


def sum_promises(root: str) -> dict[tuple[str, str, int], list[int]]:
    """By writer, topic and partition: how many records, and the sums of their numbers and of their seqnos."""
    sums: dict[tuple[str, str, int], list[int]] = {}
    for event in read_histories(f"{root}/history-{name}" for name in WRITERS):
        if isinstance(event, Ok):
            topic, _, partition = event.log.rpartition("/")
            total = sums.setdefault((event.writer, topic, int(partition)), [0, 0, 0])
            for place, number in enumerate((1, event.sequence, event.seqno)):
                total[place] += number
    return sums
