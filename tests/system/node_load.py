"""Writers and readers in their own processes on a node, and what they noted down."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from checker import Recorder, Report, check, read_histories
from checker.history import Final, Unknown
from logboom import Reader, connect
from logboom.broker.api import Settings
from logboom.client.write.spill import START as SPILL_START
from logboom.storage.data.topic import SegmentSettings
from support.nodes.process import NodeProcess
from support.nodes.warm import WarmProcess
from support.waiting import wait_until

TOPICS = {"orders": 3, "alerts": 1}
LOGS = [f"{topic}/{partition}" for topic, partitions in TOPICS.items() for partition in range(partitions)]
SEGMENT_BYTES = 16 * 1024
END_S = 300.0
LINE_BYTES = 40
"""Of a history, about."""


class Load:
    """Writes and follows all topics of a node, which it creates, until `finish`."""

    def __init__(self, node: NodeProcess, root: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.node = node
        self.histories = root / "histories"
        self.histories.mkdir()
        self._root = root
        self._writers: dict[str, WarmProcess] = {}
        self._readers: dict[str, WarmProcess] = {}
        self._begun: Counter[str] = Counter()
        """How many logs each reader has begun to follow, when it is ready."""
        asyncio.run(create_topics(node.address, segment_bytes))

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._writers.values(), *self._readers.values()):
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def write(self, name: str, timeout_s: float = END_S, spill: Path | None = None) -> None:
        arguments = [",".join(TOPICS), *([str(spill)] if spill else [])]
        self._writers[name] = self._start("node_writer.py", name, arguments, str(timeout_s))

    def follow(self, name: str, way: str = "blocking") -> None:
        self._readers[name] = self._start("node_reader.py", name, [",".join(LOGS), way])
        self._begun[name] += len(LOGS)

    def _start(self, script: str, name: str, arguments: list[str], timeout_s: str = "") -> WarmProcess:
        program, history = str(Path(__file__).with_name(script)), str(self.histories / name)
        environment = os.environ | {"NODE_WRITER_TIMEOUT_S": timeout_s}
        with open(self._root / f"{name}.log", "ab") as log:
            command = [program, self.node.address, history, name, *arguments]
            return WarmProcess(command, stdin=subprocess.PIPE, stderr=log, env=environment)

    def kill(self, name: str) -> None:
        process = self._writers.pop(name, None) or self._readers.pop(name)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def wait_for_records(self, count: int) -> None:
        """Until all are at work, and the writers have noted so many more lines: there is load on any machine."""
        self._wait(self._is_at_work, "somebody has not begun")
        size = self._written() + count * LINE_BYTES
        self._wait(lambda: self._written() >= size, "the writers do not get on")

    def _is_at_work(self) -> bool:
        """One who has not connected yet would not survive the end of the node, and need not."""
        written = {path.name: path.read_bytes() for path in self.histories.iterdir()}
        return all(written.get(name) for name in self._writers) and all(
            written.get(name, b"").count(b'"begin"') >= self._begun[name] for name in self._readers
        )

    def _wait(self, is_true: Callable[[], bool], complaint: str) -> None:
        wait_until(is_true, lambda: f"an end of: {complaint}: {self._said()}", limit_s=END_S, every_s=0.02)

    def wait_for_refusal(self, error: str) -> None:
        """Until a writer was told this."""
        wanted = f'"why":"{error}"'
        self._wait(
            lambda: any(wanted in path.read_text() for path in self.histories.iterdir()), f"nobody was told {error}"
        )

    def wait_for_spill(self, spill: Path) -> None:
        self._wait(lambda: self.spilled_bytes(spill) > 0, "nothing is spilled")

    def spilled_bytes(self, spill: Path) -> int:
        """What the spill files hold beside their headers."""
        return sum(max(0, path.stat().st_size - SPILL_START) for path in spill.iterdir())

    def _written(self) -> int:
        return sum(path.stat().st_size for path in self.histories.iterdir() if path.name in self._writers)

    def stop_writers(self) -> None:
        """They wait for their answers, and end."""
        for name, process in self._writers.items():
            process.communicate(timeout=END_S)
            assert process.returncode == 0, f"{name}: {self._said()}"

    def finish(self) -> Report:
        """End everybody; read everything a last time; what the checker says of it."""
        self.stop_writers()
        ends = {}
        with Recorder(self.histories / "final") as recorder:
            for log in LOGS:
                ends[log] = read_all(self.node.address, log, recorder)
        for name, process in self._readers.items():
            process.communicate(json.dumps(ends).encode() + b"\n", timeout=END_S)
            assert process.returncode == 0, f"{name}: {self._said()}"
        return check(read_histories(sorted(self.histories.iterdir())))

    def doubts(self) -> Counter[str | None]:
        """Why writers do not know what became of records, and of how many."""
        events = read_histories(sorted(self.histories.iterdir()))
        return Counter(event.why for event in events if isinstance(event, Unknown))

    def _said(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self._root.glob("*.log")))


async def create_topics(address: str, segment_bytes: int) -> None:
    async with connect(address) as broker:
        for topic, partitions in TOPICS.items():
            await broker.create_topic(topic, partitions, Settings(segment=SegmentSettings(bytes=segment_bytes)))


def read_all(address: str, log: str, recorder: Recorder) -> int:
    """Note everything in the log as the final read; returns its end."""
    topic, _, partition = log.rpartition("/")
    with Reader(topic, address, partition=int(partition)) as reader:
        recorder.note(Final(log, [], reader.first))
        for seqnos, values in reader.lists(("seqno", "value")):
            recorder.note(
                Final(log, [(n, value.decode()) for n, value in zip(seqnos, values, strict=True)], reader.first)
            )
        return reader.seqno or 0


def pause(longest_s: float) -> None:
    time.sleep(random.random() * longest_s)
