"""Four writers, two followers, and a kill -9 between them; then everything is read, and copied by a second node."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from checker import Recorder
from checker.history import Final
from logboom import Reader
from logboom.client import FileReader
from story.plan import LOGS, TOPIC, WRITERS, Wrong, share
from story.processes import Child, Node
from story.screen import Screen

Tables = dict[tuple[str, int], Any]
"""By topic and partition: all that was read, as Arrow."""


def write_and_kill(node: Node, root: str, records: int, screen: Screen) -> Tables:
    """The node is killed when half of it was promised. Returns what is there in the end."""
    began, total = time.perf_counter(), share(records) * len(WRITERS)
    where = {"write": node.address, "post": node.http, "lines": node.logd}
    writers = [
        Child(role, where[role], f"{root}/history-{name}", name, share(records)) for name, role in WRITERS.items()
    ]
    followers = [
        Child("follow", node.address, f"{root}/history-emil", "emil", 0),
        Child("files", node.directory, f"{root}/history-fina", "fina", 1),
    ]
    try:
        with screen.bar(total) as show:
            promised = await_promises(writers, total // 2, show)
            node.end(signal.SIGKILL)
            screen.done("kill -9", f"the node, process {node.pid}, after {promised:,} promises", "[yellow]![/]")
            seconds = node.start()
            screen.done("restart", f"recovered and listening after {seconds:.1f} s, process {node.pid}")
            promised = await_promises(writers, total, show)
        for writer in writers:
            writer.wait()
        seconds = time.perf_counter() - began
        screen.done(
            "write",
            f"{len(writers)} processes, {promised:,} records, all durable, in {seconds:.1f} s: "
            "two with the client, one over HTTP, one in lines of text",
        )
        tables = read_all(node)
        note_all(tables, root)
        for partition, follower in enumerate(followers):
            follower.wait_until(tables[TOPIC, partition].num_rows)
        screen.done("follow", "two processes saw it live and across the restart: over the network, and in the files")
    finally:
        for child in (*writers, *followers):
            child.kill()
    return tables


def await_promises(writers: list[Child], count: int, show: Callable[[int], None]) -> int:
    while (promised := sum(writer.reached for writer in writers)) < count:
        for writer in writers:
            writer.check()
        show(promised)
        time.sleep(0.01)
    return promised


def read_all(node: Node) -> Tables:
    """Every log from its first record on, wherever that is kept by now."""
    tables = {}
    for topic, partition in LOGS:
        with Reader(topic, node.address, partition=partition, seqno=0) as reader:
            tables[topic, partition] = reader.table(["seqno", "key", "value"])
    return tables


def note_all(tables: Tables, root: str) -> None:
    with Recorder(f"{root}/history-final") as recorder:
        for (topic, partition), table in tables.items():
            seqnos, values = (table.column(name).to_pylist() for name in ("seqno", "value"))
            records = [(seqno, value.decode()) for seqno, value in zip(seqnos, values, strict=True)]
            recorder.note(Final(f"{topic}/{partition}", records))


def read_by_tag(node: Node, records: int, screen: Screen) -> None:
    """The node looks at the columns and sends only what was asked for."""
    alerts = 0
    for topic, partition in LOGS:
        with Reader(topic, node.address, partition=partition, tags_any=("alert",)) as reader:
            alerts += reader.table(["value"]).num_rows
    tagging = sum(role != "lines" for role in WRITERS.values())
    expected = tagging * len(range(0, share(records), 97))
    if alerts != expected:
        raise Wrong(f"{alerts} records have the tag alert, {expected} were written")
    screen.done("by tag", f"{alerts:,} records have the tag alert")


def copy(node: Node, root: str, screen: Screen) -> str:
    """A second node copies the first, and every column of every record is compared. Returns where the copy is."""
    began, replica = time.perf_counter(), Node(root, "--replicate-from", node.logd)
    replica.start()
    try:
        ends = node.ends()
        while replica.ends() != ends:
            time.sleep(0.05)
        seconds = time.perf_counter() - began
    finally:
        replica.end(signal.SIGTERM)
    for topic, partition in LOGS:
        directories = node.directory, replica.directory
        ours, theirs = (FileReader(directory, topic, partition=partition).table() for directory in directories)
        if not ours.equals(theirs):
            raise Wrong(f"{topic}/{partition} of the replica is not what the node has")
    screen.done("replica", f"a second node has all {sum(ends):,} records, equal, {seconds:.1f} s after its start")
    return replica.directory
