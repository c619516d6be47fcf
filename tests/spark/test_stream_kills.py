"""Streams whose process is killed at every step, the node too, while somebody writes: each record is seen once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logboom import Writer
from logboom.client import FileReader
from support.nodes.process import NodeProcess
from support.waiting import wait_until

JOB = Path(__file__).with_name("stream_job.py")
STEP_S = 180.0
Row = tuple[str, int, int, str]


class Job:
    """A query, however often it is killed and started."""

    def __init__(self, root: Path, path: str, limit: str, **options: str) -> None:
        """`limit` is how many records a micro-batch takes as long as it is to be killed."""
        self.checkpoint, self.sink = root / "checkpoint", root / "sink"
        self.sink.mkdir()
        self.log = root / "job.log"
        self._file, self._stopped = root / "job.json", root / "stopped"
        self._options = options
        self._job = {
            "path": path,
            "checkpoint": str(self.checkpoint),
            "sink": str(self.sink),
            "local": str(root / "local"),
            "stopped": str(self._stopped),
        }
        self._limit = {"maxRecordsPerTrigger": limit}

    @contextmanager
    def _started(self, stop: Sequence[object] | None, now: bool) -> Iterator[subprocess.Popen[bytes]]:
        self._stopped.unlink(missing_ok=True)
        options = {**self._options, **({} if now else self._limit)}
        self._file.write_text(json.dumps({**self._job, "options": options, "stop": stop, "now": now}))
        with open(self.log, "ab") as log:
            command = [sys.executable, str(JOB), str(self._file)]
            alone = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=alone, start_new_session=True)
        try:
            yield process
        finally:
            kill_session(process.pid)
            process.wait()

    def kill_at(self, step: str, batch: int) -> None:
        """Start it, let it come to this step of the `batch`th micro-batch of its run, and kill all its processes."""
        commit = self.checkpoint / "commits" / str(self._next_batch() + batch)
        with self._started(None if step == "committed" else (step, batch), False) as process:
            self._wait(process, commit if step == "committed" else self._stopped)

    def finish(self) -> None:
        """Take what is there, and end."""
        with self._started(None, True) as process:
            assert process.wait(STEP_S) == 0, self.log.read_text()[-4000:]

    def _next_batch(self) -> int:
        """The one that it begins with."""
        commits = self.checkpoint / "commits"
        done = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.exists() else []
        return max(done, default=-1) + 1

    def _wait(self, process: subprocess.Popen[bytes], path: Path) -> None:
        def said() -> str:
            return f"{path.name}:\n{self.log.read_text()[-4000:]}"

        def check() -> None:
            assert process.poll() is None, said()

        wait_until(path.exists, said, limit_s=STEP_S, every_s=0.002, check=check)

    def rows(self) -> list[Row]:
        found = [json.loads(path.read_text()) for path in self.sink.glob("*.json")]
        return sorted(tuple(row) for rows in found for row in rows)

    def began(self) -> dict[int, int]:
        """Where the first micro-batch began, as the checkpoint has it."""
        offset = json.loads((self.checkpoint / "offsets" / "0").read_text().splitlines()[2])
        seqnos = offset.get("since", offset["topics"])["events"]["seqnos"]
        return {int(partition): seqno for partition, seqno in seqnos.items()}


def kill_session(leader: int) -> None:
    """Everything that a process has started: Java, and Python processes in groups of their own."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                if os.getsid(int(entry)) == leader:
                    os.kill(int(entry), signal.SIGKILL)


@contextmanager
def writing(address: str) -> Iterator[None]:
    """Somebody writes all the time, and waits where there is no node."""
    ended = threading.Event()

    def write() -> None:
        count = 0
        with Writer("events", address, linger_ms=2, delivery_timeout_s=STEP_S) as writer:
            while not ended.wait(0.05):
                for _ in range(random.randint(1, 20)):
                    writer.write(b"%d" % count, key=b"%d" % (count % 7))
                    count += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def expected(directory: Path, began: dict[int, int]) -> list[Row]:
    rows: list[Row] = []
    for partition, seqno in began.items():
        with FileReader(directory, "events", partition, seqno=seqno) as reader:
            for record in reader.records():
                assert record.seqno is not None
                assert record.value is not None
                rows.append(("events", partition, record.seqno, record.value.decode()))
    return sorted(rows)


def prepare(root: Path) -> NodeProcess:
    node = NodeProcess(root)
    node.start()
    subprocess.run(
        [sys.executable, "-m", "logboom", "topic", "create", "events", "--partitions", "2", "-s", node.address],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return node


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([("written", 1)], id="one"),
        pytest.param([("reading", 0), ("begun", 1), ("committed", 1)], id="others", marks=pytest.mark.soak),
    ],
)
def test_a_query_that_is_killed_at_any_step_gives_every_record_once(
    tmp_path: Path, kills: list[tuple[str, int]]
) -> None:
    node = prepare(tmp_path)
    options = {"topic": "events", "startingSeqno": "latest", "cursor": "job"}
    with node.ended():
        job = Job(tmp_path, f"logboom://{node.address}", "100", **options)
        with writing(node.address):
            for number, (step, batch) in enumerate(kills):
                job.kill_at(step, batch)
                if number == 0:
                    node.kill()
                    node.start()
        job.finish()
        found, wanted = job.rows(), expected(node.directory, job.began())
        assert len(wanted) > 100
        assert found == wanted
        assert stands(node.address, "job") == ends(node.directory)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("place", ["node", "files"])
def test_a_query_that_is_killed_many_times_gives_every_record_once(tmp_path: Path, place: str) -> None:
    node = prepare(tmp_path)
    chance = random.Random(place)
    options = {"topic": "events", "startingSeqno": chance.choice(["earliest", "latest"])}
    with node.ended():
        path = f"logboom://{node.address}" if place == "node" else str(node.directory)
        job = Job(tmp_path, path, "1000", **options)
        with writing(node.address):
            for _ in range(60):
                job.kill_at(chance.choice(["begun", "reading", "written", "committed"]), chance.randint(0, 2))
                if chance.random() < 0.2:
                    node.kill()
                    node.start()
        job.finish()
        assert job.rows() == expected(node.directory, job.began())


def stands(address: str, cursor: str) -> dict[int, int]:
    listed = subprocess.run(
        [sys.executable, "-m", "logboom", "cursor", "show", cursor, "-s", address, "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {entry["partition"]: entry["seqno"] for entry in json.loads(listed.stdout)}


def ends(directory: Path) -> dict[int, int]:
    found = {}
    for partition in range(2):
        with FileReader(directory, "events", partition) as reader:
            found[partition] = reader.committed
    return found
