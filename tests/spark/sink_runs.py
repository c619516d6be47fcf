"""Runs of sink_job.py, and what must be in topics when they are over.

Records say who they are, `key:number`, and numbers of a key rise. What a stream was to copy is compared by the checker:
each record of the source is promised, somewhere; a follower has read the copies all the time, and must not have seen
anything that is not there in the end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checker import Report, check, identity, make_value
from checker.history import AnyEvent, Begin, Final, Invoke, Ok, Poll
from logboom import Writer
from logboom.broker.publish.publication import StageInfo
from logboom.client import FileReader
from support.spark.queries import Topics
from support.waiting import wait_until

PROGRAM = Path(__file__).with_name("sink_job.py")
STEP_S = 180.0
KEYS = 7
SOURCES = 2
"""Partitions of the topic that is copied, `events`."""
PARTITIONS = 3
"""Of all others."""
LOCAL = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Where something goes wrong, and what; see sink_job.py."""

    topic: str
    step: str
    action: str = "wait"
    batch: int | None = None
    task: int | None = None

    @property
    def mark(self) -> str:
        return "-".join(map(str, (self.topic, self.step, self.action, self.batch, self.task)))


class Run:
    """A process that may be killed."""

    def __init__(self, process: subprocess.Popen[bytes], marks: Path, log: Path) -> None:
        self._process = process
        self._marks = marks
        self._log = log

    def wait_for(self, *faults: Fault) -> None:
        """Until they have happened."""
        for fault in faults:
            self.wait_until((self._marks / fault.mark).exists)

    def go_on(self, fault: Fault) -> None:
        (self._marks / f"{fault.mark}.go").touch()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        def check() -> None:
            assert self._process.poll() is None, f"it has ended:\n{self._tail()}"

        wait_until(
            holds, lambda: f"the process to come to it:\n{self._tail()}", limit_s=STEP_S, every_s=0.002, check=check
        )

    def finish(self) -> None:
        try:
            status = self._process.wait(STEP_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self._tail()}") from None
        assert status == 0, self._tail()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]


@contextmanager
def running(
    root: Path,
    works: Sequence[dict[str, Any]],
    faults: Sequence[Fault] = (),
    master: str = "local[2,4]",
    settings: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[Run]:
    """All its processes are killed at the end of the block, if they still run."""
    root.mkdir(exist_ok=True)
    log, file = root / "job.log", root / "job.json"
    marks = Path(tempfile.mkdtemp(prefix="marks-", dir=root))  # executors of the run before may still leave some
    directories = {"spark.local.dir": str(root / "local"), "spark.sql.warehouse.dir": str(root / "warehouse")}
    job = {
        "master": master,
        "settings": {**LOCAL, **directories, **(settings or {})},
        "works": [{"tasks": 0, **work} for work in works],
        "faults": [[fault.mark, fault.topic, fault.step, fault.batch, fault.task, fault.action] for fault in faults],
        "marks": str(marks),
    }
    file.write_text(json.dumps(job))
    alone = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"} if environment is None else environment
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(file)],
            cwd=root,
            stdout=out,
            stderr=out,
            env=alone,
            start_new_session=True,
        )
    try:
        yield Run(process, marks, log)
    finally:
        kill_session(process.pid)
        process.wait()


def kill_session(leader: int) -> None:
    """Everything that a process has started: Java, and Python processes in groups of their own."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                if os.getsid(int(entry)) == leader:
                    os.kill(int(entry), signal.SIGKILL)


@contextmanager
def writing(topics: Topics, topic: str) -> Iterator[None]:
    """Somebody writes all the time, and waits where there is no node."""
    ended = threading.Event()

    def write() -> None:
        count = 0
        with Writer(topic, topics.address, linger_ms=2, delivery_timeout_s=STEP_S) as writer:
            while not ended.wait(0.05):
                count = write_some(writer, count, random.randint(1, 20))

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(write)
        try:
            yield
        finally:
            ended.set()
        done.result()


def write_some(writer: Writer, start: int, count: int) -> int:
    for number in range(start, start + count):
        key = f"k{number % KEYS}"
        writer.write(make_value(key, number), key=key.encode())
    return start + count


Log = tuple[str, int]


class Copy:
    """A query that copies `events`, however often it is killed and started; one for `each`, to two topics."""

    def __init__(self, root: Path, topics: Topics, topic: str, kind: str = "stream", tasks: int = 0) -> None:
        self.topic = topic
        names = [topic, f"{topic}-odd"] if kind == "each" else [topic]
        for name in names:
            topics.create(name, PARTITIONS)
        self.logs: list[Log] = [(name, partition) for name in names for partition in range(PARTITIONS)]
        self._topics = topics
        self._checkpoint = root / f"{topic}-checkpoint"
        self._is_in_order = tasks == 0
        self._work: dict[str, Any] = {"kind": kind, "path": topics.path, "topic": topic, "tasks": tasks}

    def work(self, limit: int | None = None) -> dict[str, Any]:
        """With a limit for its micro-batches it goes on for ever; without, it takes what is there."""
        source = {"topic": "events", "startingSeqno": "earliest"}
        if limit is not None:
            source["maxRecordsPerTrigger"] = str(limit)
        return {**self._work, "source": source, "checkpoint": str(self._checkpoint), "now": limit is None}

    @property
    def next_batch(self) -> int:
        """The micro-batch that it begins with, or is about."""
        commits = self._checkpoint / "commits"
        done = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.exists() else []
        return max(done, default=-1) + 1

    def at(self, step: str, action: str = "wait", batch: int = 0) -> Fault:
        """In this micro-batch of its next run."""
        return Fault(self.topic, step, action, self.next_batch + batch)

    def wait_for_commit(self, run: Run, batches: int = 1) -> None:
        """Of the micro-batch that it is about, or a later one."""
        run.wait_until((self._checkpoint / "commits" / str(self.next_batch + batches - 1)).exists)

    def judge(self, seen: Iterable[AnyEvent] = ()) -> Report:
        wanted = values_of(self._topics, "events", SOURCES)
        mine = [event for event in seen if isinstance(event, Begin | Poll) and event.log in map(name_of, self.logs)]
        return compare(self._topics, wanted, self.logs, mine, in_order=self._is_in_order)


@contextmanager
def following(topics: Topics, logs: Sequence[Log]) -> Iterator[list[AnyEvent]]:
    """Somebody reads all the time what is there, whether there is a node or not; what he saw."""
    ended = threading.Event()
    seen: list[AnyEvent] = [Begin("follower", name_of(log), 0) for log in logs]

    def follow() -> None:
        places = dict.fromkeys(logs, 0)
        while not ended.wait(0.25):
            for log, seqno in places.items():
                records = list(read_log(topics, log, seqno))
                places[log] += len(records)
                seen.append(Poll("follower", name_of(log), records))

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(follow)
        try:
            yield seen
        finally:
            ended.set()
        done.result()


def name_of(log: Log) -> str:
    return f"{log[0]}/{log[1]}"


def read_log(topics: Topics, log: Log, seqno: int = 0) -> Iterator[tuple[int, str]]:
    with FileReader(topics.node.directory, *log, seqno=seqno) as reader:
        for record in reader.records():
            assert record.seqno is not None
            assert record.value is not None
            yield record.seqno, record.value.decode()


def compare(
    topics: Topics, wanted: Iterable[str], logs: Sequence[Log], seen: Iterable[AnyEvent] = (), *, in_order: bool
) -> Report:
    """What the checker says of these logs, which must hold each wanted value once; `in_order`, as they come by key."""
    finals = [Final(name_of(log), list(read_log(topics, log))) for log in logs]
    places = {value: (final.log, seqno) for final in finals for seqno, value in final.records}
    events: list[AnyEvent] = []
    for value in wanted:
        writer, sequence = who(value, in_order)
        events += [Invoke(writer, sequence), Ok(writer, sequence, *places.get(value, ("nowhere", 0)))]
    for event in (*seen, *finals):
        if isinstance(event, Poll):
            event = Poll(event.reader, event.log, rename(event.records, in_order))
        elif isinstance(event, Final):
            event = Final(event.log, rename(event.records, in_order))
        events.append(event)
    return check(events)


def who(value: str, in_order: bool) -> tuple[str, int]:
    """The checker keeps the order of each writer; where there is none, every record has a writer of its own."""
    known = identity(value)
    assert known is not None, value
    return known if in_order else (f"{known[0]}.{known[1]}", 0)


def rename(records: list[tuple[int, str]], in_order: bool) -> list[tuple[int, str]]:
    found = ((seqno, who(value, in_order)) for seqno, value in records)
    return [(seqno, f"{writer}:{sequence}") for seqno, (writer, sequence) in found]


def values_of(topics: Topics, topic: str, partitions: int) -> list[str]:
    return [value for partition in range(partitions) for _, value in read_log(topics, (topic, partition))]


def stages_of(topics: Topics) -> list[StageInfo]:
    return topics.ask(lambda broker: broker.list_stages())
