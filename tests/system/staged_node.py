"""A node with something staged that waits to be published, on a disk that can be copied; and what it must hold then."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from checker import make_value
from logboom import Client, Reader, connect
from logboom.broker.publish.publication import Publication, PublishKey, Receipt
from logboom.client.publish.publish_calls import publish
from logboom.client.publish.stage_writer import StageWriter
from logboom.errors import LogboomError
from support.nodes.process import READY_S, NodeProcess

KEY = PublishKey("scene", 7)
TOPICS = {"orders": 2, "alerts": 1}
LOGS = ["orders/0", "orders/1", "alerts/0"]
LARGE_BYTES = 256 * 1024
TIMEOUT_S = 300.0


class StagedNode(NodeProcess):
    """Two stages for three logs, each of which has a record already. The first stage is more than one slice.

    It has a piece for orders/0, so orders/1 gets its part before.
    """

    def __init__(self, root: Path, *options: str) -> None:
        super().__init__(root, *options)
        self.receipts: list[Receipt] = []
        self.before: dict[str, list[bytes]] = {}
        self.staged: dict[str, list[bytes]] = {log: [] for log in LOGS}

    def prepare(self, large_count: int = 20) -> None:
        """Ends with the node stopped."""
        self.start()
        with self.ended():
            asyncio.run(self._create_topics())
            with Client(self.address) as client, client.transaction(KEY.name, KEY.number - 1) as earlier:
                for log in LOGS:
                    topic, partition = split(log)
                    earlier.write(topic, b"before", partition=partition)
                    self.before[log] = [b"before"]
            self._stage({"orders/0": (large_count, LARGE_BYTES), "orders/1": (30, 100)})
            self._stage({"orders/0": (10, 100), "alerts/0": (10, 1000)})
            assert self.stop() == 0

    async def _create_topics(self) -> None:
        async with connect(self.address) as broker:
            for topic, partitions in TOPICS.items():
                await broker.create_topic(topic, partitions)

    def _stage(self, runs: dict[str, tuple[int, int]]) -> None:
        writer = StageWriter(self.address)
        for log, (count, size) in runs.items():
            topic, partition = split(log)
            values = [make_value(f"stage{len(self.receipts)}", number, size) for number in range(count)]
            writer.write_many(topic, values, partition=partition)
            self.staged[log] += values
        self.receipts.append(writer.finish())

    def copy(self, root: Path, *options: str) -> StagedNode:
        """Another node, that has never heard of this one."""
        other = StagedNode(root, *options)
        shutil.copytree(self.directory, other.directory)
        other.receipts, other.before, other.staged = self.receipts, self.before, self.staged
        return other

    def warm_up(self) -> None:
        """One small publish under another name, so that the calls of the next one can be counted.

        Afterwards writes to these logs are made by the node's main thread, and syncs by the one that makes them all;
        those of the start were made by others.
        """
        writer = StageWriter(self.address)
        writer.write("alerts", b"warm", partition=0)
        writer.publish(PublishKey("warm"))
        self.before = self.before | {"alerts/0": [*self.before["alerts/0"], b"warm"]}

    def path(self, what: str) -> Path:
        """Of the file of a log, of the first stage, or of the directory of stages."""
        if what == "stage":
            return self.directory / "staging" / f"{self.receipts[0].stage}.stage"
        if what == "staging":
            return self.directory / "staging"
        topic, partition = split(what)
        (found,) = self.directory.glob(f"topics/{topic}~*/{partition}/*.log")
        return found

    def publish(self, timeout_s: float = TIMEOUT_S) -> Publication:
        return publish(self.address, KEY, self.receipts, timeout_s)

    @contextmanager
    def publishing(self) -> Iterator[Future[Publication]]:
        """Meanwhile, by a client that waits for a node that is away."""
        with ThreadPoolExecutor(1) as threads:
            yield threads.submit(self.publish)

    def publish_until_death(self) -> None:
        """By a client that gives up soon, and asks again as long as the node lives: it may not have been reached."""
        assert self._process is not None
        while self._process.poll() is None:
            with suppress(LogboomError):
                self.publish(timeout_s=1)
                break
        self.wait_for_death()

    def wait_for_death(self) -> None:
        assert self._process is not None
        assert self._process.wait(READY_S) != 0

    def contents(self) -> dict[str, list[bytes]]:
        return {log: read_values(self.address, log) for log in LOGS}

    def check_published(self) -> None:
        """All of it is there, once and in its order; and whoever asks again is told so."""
        expected = {log: self.before[log] + self.staged[log] for log in LOGS}
        assert self.contents() == expected
        with Client(self.address) as client:
            assert client.stages() == []
        again = self.publish()
        assert again.repeat
        assert again.parts is not None
        assert {f"{part.topic}/{part.partition}": (part.first, part.next) for part in again.parts} == {
            log: (len(self.before[log]), len(values)) for log, values in expected.items()
        }
        assert self.contents() == expected
        with Client(self.address) as client:
            assert [(key.number, key.is_open) for key in client.keys(KEY.name)] == [(KEY.number, False)]

    def check_unpublished(self) -> None:
        assert self.contents() == self.before
        with Client(self.address) as client:
            assert [key.number for key in client.keys(KEY.name)] == [KEY.number - 1]
            assert {stage.id for stage in client.stages()} == {receipt.stage for receipt in self.receipts}


def split(log: str) -> tuple[str, int]:
    topic, _, partition = log.rpartition("/")
    return topic, int(partition)


def read_values(address: str, log: str) -> list[bytes]:
    topic, partition = split(log)
    with Reader(topic, address, partition=partition) as reader:
        return [value for (values,) in reader.lists(("value",)) for value in values]
