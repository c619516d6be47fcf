"""What is made of the logs: their state, an archive, the proof that all of it is as it was written, and a report.

`logboom pipeline serve` runs all four, with one Spark. Then what is archived leaves the log, and is read all the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from logboom import Reader
from story.plan import METER, PARSED, PARTITIONS, SPARK, TOPIC, Wrong
from story.processes import LOGBOOM, Node
from story.screen import Screen
from story.writing import Tables, read_all

FILE = "pipeline.toml"
SERVE = f"pipeline serve --config {FILE}"
CONFIG = """\
directory = "results"

[spark]
master = "local[2]"
config = {%s}

[jobs.state]                     # the latest record of each key
kind = "checkpoint"
topic = "readings"
by = "key"
every = "1h"

[jobs.archive]                   # sealed segments as Parquet
kind = "archive"
topic = "readings"
every = "1h"

[jobs.proof]                     # the node, its replica and the archive are equal
kind = "verify"
directories = ["%s", "%s"]
every = "1h"

[jobs.overview]                  # one page on all topics
kind = "report"
every = "1h"
"""
STATE, ARCHIVE, PROOF, REPORT = f"checkpoint/{TOPIC}/key", f"archive/{TOPIC}", "verify/all", "report/all"
JOBS = (STATE, ARCHIVE, PROOF, REPORT)
SETTINGS = ("retention.after=archive",)
LIMIT = "retention.records=500"
RETENTION_S = 120.0
QUERY = (
    "SELECT partition, count(*), count(DISTINCT seqno), min(seqno), max(seqno) "
    "FROM '{}/*/*.parquet' GROUP BY partition ORDER BY partition"
)


def segment_bytes(records: int) -> int:
    """So small that there are some dozens of segments, most of them sealed."""
    return max(16, records // 1000) * 1024


def make_results(node: Node, root: str, replica: str, before: Tables, screen: Screen) -> Path:
    """All four, each compared with what was read before. Returns the page of the report."""
    options = ", ".join(f'"{name}" = "{value}"' for name, value in SPARK.items())
    Path(root, FILE).write_text(CONFIG % (options, node.directory, replica))
    screen.console.print()
    with serving(node, root) as log:
        jobs = await_results(node, log, screen)
    screen.shown(SERVE, "\n".join(said(log)))
    screen.console.print()
    check_state(node, before, screen)
    archived = check_archive(jobs[ARCHIVE], before, screen)
    check_proof(jobs[PROOF], jobs[ARCHIVE], screen)
    page = check_report(node, jobs[REPORT], screen)
    screen.shown(f"topic set {TOPIC} {LIMIT}", node.command("topic", "set", TOPIC, LIMIT))
    check_retention(node, before, archived, screen)
    return page


@contextlib.contextmanager
def serving(node: Node, root: str) -> Iterator[Path]:
    """`logboom pipeline serve` in the directory of its file. Gives where it writes what it does."""
    log = Path(root, "pipeline.log")
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [*LOGBOOM, *SERVE.split()], cwd=root, env=node.environment, stdout=file, stderr=file, process_group=0
        )
    try:
        yield log
        process.send_signal(signal.SIGTERM)
        if process.wait():
            raise Wrong(f"logboom pipeline serve ended with {process.returncode}:\n{log.read_text()}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # Spark's Java too
            process.wait()


def await_results(node: Node, log: Path, screen: Screen) -> dict[str, Any]:
    """By id, each job as the node lists it, with its result."""
    with screen.console.status("the pipeline is starting") as status:
        while True:
            jobs = {job["job"]: job for job in node.ask("/pipeline")["jobs"]}
            for job in jobs.values():
                if job["error"]:
                    raise Wrong(f"{job['job']} has failed: {job['error']}\n{log.read_text()}")
                if job["running"]:
                    status.update(f"{job['job']} {job['running']['doing'] or 'runs'}")
            if all(name in jobs and jobs[name]["succeeded"] for name in JOBS) and len(said(log)) == len(JOBS):
                return jobs
            time.sleep(0.2)


def said(log: Path) -> list[str]:
    """What each job has done, without the times of the lines."""
    lines = (line.split(" INFO ", 1)[-1] for line in log.read_text().splitlines())
    return [line for line in lines if ": done in " in line]


def check_state(node: Node, before: Tables, screen: Screen) -> None:
    """Read from the checkpoint, every key has its latest value."""
    states, expected = [], []
    for partition in range(PARTITIONS):
        with Reader(TOPIC, node.address, partition=partition, from_checkpoint=True) as reader:
            states.append(sorted((record.key, record.seqno, record.value) for record in reader))
        keys, seqnos, values = (before[TOPIC, partition].column(name).to_pylist() for name in ("key", "seqno", "value"))
        latest = {key: (key, seqno, value) for key, seqno, value in zip(keys, seqnos, values, strict=True)}
        expected.append(sorted(latest.values()))
    if states != expected:
        raise Wrong("the state is not the latest record of every key")
    total = sum(before[TOPIC, partition].num_rows for partition in range(PARTITIONS))
    screen.done("state", f"{sum(map(len, states))} keys, each with the latest of {total:,} records")


def check_report(node: Node, job: dict[str, Any], screen: Screen) -> Path:
    """It counts what the logs have, and the console has its page."""
    place = Path(job["result"]["place"])
    topics = json.loads(Path(place, "report.json").read_text())["topics"]
    counted = {topic["name"]: topic["account"]["records"] for topic in topics}
    expected = {topic: sum(end for _, end in node.spans(topic)) for topic in (TOPIC, METER, PARSED)}
    if counted != expected:
        raise Wrong(f"the report counts {counted}, there are {expected}")
    page = place / "report.html"
    with urllib.request.urlopen(f"http://{node.http}/pipeline/report?job={REPORT}", timeout=30) as answer:
        if answer.read() != page.read_bytes():
            raise Wrong("the node shows another report than was made")
    screen.done("report", f"{sum(counted.values()):,} records of {len(counted)} topics on one page")
    return page


def check_archive(job: dict[str, Any], before: Tables, screen: Screen) -> list[int]:
    """Its files are plain Parquet, and hold every record up to where they end. Returns where that is, by partition."""
    (root,) = Path(job["result"]["place"]).parents[1].glob("[0-9a-f]" * 32)
    counts = read_archive(str(root), screen)
    for partition in range(PARTITIONS):
        records, different, least, most = counts.get(partition, (0, 0, 0, 0))
        if (different, least, most) != (records, 0, records - 1) or records > before[TOPIC, partition].num_rows:
            raise Wrong(f"the archive of {TOPIC}/{partition} has {records:,} records, seqnos {least} to {most}")
    ends, files = [counts[partition][0] for partition in range(PARTITIONS)], len(list(root.glob("*/*.parquet")))
    if (sum(ends), files) != (job["result"]["records"], job["result"]["facts"]["files"]):
        raise Wrong(f"the archive has {sum(ends):,} records in {files} files, the job says {job['result']}")
    screen.done("archive", f"{sum(ends):,} records in {files} Parquet files, without a gap")
    return ends


def read_archive(root: str, screen: Screen) -> dict[int, tuple[int, int, int, int]]:
    """By partition: records, different ones, least and greatest seqno. With DuckDB where it is there, else pyarrow."""
    if find_spec("duckdb"):
        import duckdb

        query = QUERY.format(root)
        rows = duckdb.execute(query).fetchall()
        screen.said(f"duckdb.execute({query!r}).fetchall()", "\n".join(map(str, rows)))
    else:
        import pyarrow.dataset

        table = pyarrow.dataset.dataset(root, partitioning="hive").to_table(columns=["partition", "seqno"])
        asked = [("seqno", how) for how in ("count", "count_distinct", "min", "max")]
        found = table.group_by("partition").aggregate(asked)
        rows = list(
            zip(*(found.column(name).to_pylist() for name in ("partition", *map("_".join, asked))), strict=True)
        )
    return {partition: tuple(numbers) for partition, *numbers in rows}


def check_proof(job: dict[str, Any], archive: dict[str, Any], screen: Screen) -> None:
    found = json.loads(Path(job["result"]["place"], "problems.json").read_text())
    if found["problems"] or found["archived_files"] != archive["result"]["facts"]["files"]:
        raise Wrong(f"verification has found {found}")
    screen.done("verify", f"node, replica and the {found['archived_files']} files of the archive agree: no problems")


def check_retention(node: Node, before: Tables, archived: list[int], screen: Screen) -> None:
    """What is archived leaves the log, and nothing else; whoever reads from the beginning does not notice."""
    began = time.monotonic()
    with screen.console.status("retention waits for its turn"):
        while not all(first for first, _ in node.spans(TOPIC)):
            if time.monotonic() - began > RETENTION_S:
                raise Wrong(f"retention has dropped nothing: {node.spans(TOPIC)}")
            time.sleep(0.1)
    for log, table in read_all(node).items():
        if not table.equals(before[log]):
            raise Wrong(f"{log[0]}/{log[1]} does not read as it did before its segments were dropped")
    firsts, ends = zip(*node.spans(TOPIC), strict=True)
    if any(first > end for first, end in zip(firsts, archived, strict=True)):
        raise Wrong(f"retention has dropped what is not archived: up to {firsts}, archived is up to {archived}")
    screen.done(
        "retention",
        f"{sum(firsts):,} of {sum(ends):,} records have left the log for the archive: "
        "read from seqno 0, nothing has changed",
    )
