"""A source and its replica as real processes, killed again and again: the copy stays equal, and can take over."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from checker import Recorder, check, make_value, read_histories
from checker.history import AnyEvent, Invoke, Ok, Unknown
from logboom import AsyncWriter, Writer, connect
from logboom.batch import Batch
from logboom.batch.rewrite import equal
from logboom.broker.api import NodeStats
from logboom.client.write.writer_core import Written
from logboom.errors import LogboomError
from logboom.storage.data.directory import DataDirectory
from support.nodes.process import NodeProcess, free_port
from support.nodes.warm import run_warm
from support.waiting import until, wait_until
from system.node_load import LOGS, SEGMENT_BYTES, TOPICS, Load, create_topics, pause, read_all

CAUGHT_UP_S = 300.0


class Twins:
    """A source and a replica of it."""

    def __init__(self, root: Path) -> None:
        logd = f"127.0.0.1:{free_port()}"
        for name in ("source", "replica"):
            (root / name).mkdir()
        self.source = NodeProcess(root / "source", "--logd", logd)
        self.replica = NodeProcess(root / "replica", "--replicate-from", logd)
        self.alone = NodeProcess(root / "replica")
        """The replica's directory, started as a node of its own."""

    def __enter__(self) -> Twins:
        self.source.start()
        self.replica.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in (self.source, self.replica, self.alone):
            node.__exit__()

    def catch_up(self) -> None:
        """Until the replica has what the source has; nobody may be writing."""
        wait_until(lambda: ends_of(self.source.address) == ends_of(self.replica.address), self._said)

    def _said(self) -> str:
        return "\n".join(node.log.read_text()[-3000:] for node in (self.source, self.replica))


def ends_of(address: str) -> dict[str, int]:
    async def ask() -> dict[str, int]:
        async with connect(address) as broker:
            topics = await broker.list_topics()
            return {f"{topic.name}/{log.partition}": log.committed for topic in topics for log in topic.partitions}

    return asyncio.run(ask())


def stats_of(address: str) -> NodeStats:
    async def ask() -> NodeStats:
        async with connect(address) as broker:
            return await broker.stats()

    return asyncio.run(ask())


def batches_of(node: NodeProcess) -> dict[str, list[Batch]]:
    """Everything in every log of a node that was stopped."""
    found: dict[str, list[Batch]] = {}
    with DataDirectory.open(str(node.directory)) as data:
        for log_name in LOGS:
            topic, _, partition = log_name.partition("/")
            log = data.open_partition(topic, int(partition))
            batches = found[log_name] = []
            index = log.first_index
            while (run := log.read_index(index)) is not None:
                batches += [Batch.parse(bytes(batch.data)) for batch in run.batches()]
                index = run.next_index
    return found


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_warm(arguments, text=True)


def kill_both_sides(root: Path, kills: int) -> None:
    with Twins(root) as twins, Load(twins.source, root) as load:
        load.write("w1")
        load.write("w2")
        for _ in range(kills):
            load.wait_for_records(random.randint(50, 400))
            victims = random.choice(([twins.source], [twins.replica], [twins.source, twins.replica]))
            for node in victims:
                node.kill()
            pause(0.3)
            for node in victims:
                node.start()
        load.wait_for_records(100)
        load.stop_writers()
        twins.catch_up()
        replica = stats_of(twins.replica.address).replica
        assert replica is not None
        assert replica.error is None
        assert twins.replica.stop() == twins.source.stop() == 0
        there, here = batches_of(twins.source), batches_of(twins.replica)
        for name in LOGS:
            assert len(there[name]) == len(here[name]) > 0
            assert all(map(equal, there[name], here[name]))


def test_a_replica_is_equal_however_often_either_side_is_killed_under_load(tmp_path: Path) -> None:
    kill_both_sides(tmp_path, 4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_replica_is_equal_after_fifty_kills_under_load(tmp_path: Path) -> None:
    kill_both_sides(tmp_path, 50)


def test_a_replica_takes_over_from_a_source_that_was_killed_and_has_an_equal_prefix_of_it(tmp_path: Path) -> None:
    with Twins(tmp_path) as twins, Load(twins.source, tmp_path) as load:
        load.write("w1")
        load.write("w2")
        wait_until(lambda: all(ends_of(twins.replica.address).get(name) for name in LOGS), "the topics to be copied")
        load.wait_for_records(500)
        twins.source.kill()
        load.kill("w1")
        load.kill("w2")
        done = command("promote", "--server", twins.replica.address)
        assert done.returncode == 0, done.stderr
        assert "takes writes" in done.stdout
        again = command("promote", "--server", twins.replica.address)
        assert (again.returncode, "is not a replica" in again.stderr) == (1, True)
        before = ends_of(twins.replica.address)
        for topic in TOPICS:
            with Writer(topic, twins.replica.address) as writer:
                for number in range(200):
                    writer.write(b"after %d" % number, key=b"%d" % number)
        assert sum(ends_of(twins.replica.address).values()) == sum(before.values()) + 200 * len(TOPICS)
        twins.replica.kill()
        data = ("--data", str(twins.replica.directory))
        refused = command("serve", *data, "--listen", "127.0.0.1:0", "--replicate-from", "127.0.0.1:1")
        assert (refused.returncode, "was promoted" in refused.stderr) == (2, True)
        twins.alone.start()
        assert ends_of(twins.alone.address).keys() == set(LOGS)
        assert twins.alone.stop() == 0
        twins.source.start()
        assert twins.source.stop() == 0
        check_prefix(batches_of(twins.source), batches_of(twins.alone), before)


def check_prefix(there: dict[str, list[Batch]], here: dict[str, list[Batch]], ends: dict[str, int]) -> None:
    """Up to the take-over the copy has what the source has; behind it there is a new term, and no gap."""
    for name, batches in here.items():
        copied = [batch for batch in batches if batch.header.term == 0]
        assert len(copied) <= len(there[name])
        assert all(map(equal, copied, there[name]))
        assert [batch.header.index for batch in batches] == list(range(1, len(batches) + 1))
        own = batches[len(copied) :]
        assert {batch.header.term for batch in own} == {1}
        assert own[0].header.base_seqno == ends[name]
        assert all(one.header.next_seqno == two.header.base_seqno for one, two in pairwise(batches))


def test_writers_that_know_both_move_over_and_nothing_acknowledged_is_lost_when_it_is_planned(tmp_path: Path) -> None:
    """Refuse at the source, wait for the copy, promote it, stop the source."""
    with Twins(tmp_path) as twins:
        both = SimpleNamespace(address=f"{twins.source.address},{twins.replica.address}")
        with Load(cast(NodeProcess, both), tmp_path) as load:
            load.write("w1")
            load.write("w2")
            for _ in range(2):
                load.wait_for_records(200)
                twins.replica.kill()
                twins.replica.start()
            load.wait_for_records(200)
            assert command("refuse", "--server", twins.source.address).returncode == 0
            load.wait_for_refusal("WritesRefused")
            twins.catch_up()
            assert command("promote", "--server", twins.replica.address).returncode == 0
            assert twins.source.stop() == 0
            moved = sum(ends_of(twins.replica.address).values())
            wait_until(lambda: sum(ends_of(twins.replica.address).values()) > moved + 100, "writers that move over")
            report = load.finish()
    assert report.clean, report
    assert report.acknowledged > 300


class Movers:
    """A writer of either kind, both with both addresses, and what they were told."""

    def __init__(self, both: str, topic: str) -> None:
        self.events: list[AnyEvent] = []
        self._writers = Writer(topic, both, batch_bytes=512), AsyncWriter(topic, both, batch_bytes=512)
        self._ended = asyncio.Event()

    @property
    def acknowledged(self) -> int:
        return sum(isinstance(event, Ok) for event in self.events)

    @property
    def are_cut_off(self) -> bool:
        return all("not connected" in repr(writer) for writer in self._writers)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """When this ends they have an answer for everything."""
        blocking, other = self._writers
        async with other:
            task = asyncio.create_task(self._write())
            try:
                yield
            finally:
                self._ended.set()
                await task
                await asyncio.to_thread(blocking.close)

    async def _write(self) -> None:
        blocking, other = self._writers
        for sequence in count():
            if self._ended.is_set():
                return
            self.events += Invoke("blocking", sequence), Invoke("async", sequence)
            told = partial(self._told, "blocking", sequence)
            blocking.write(make_value("blocking", sequence), key=b"%d" % (sequence % 7), callback=told)
            told = partial(self._told, "async", sequence)
            await other.write(make_value("async", sequence), key=b"%d" % (sequence % 7), callback=told)
            await asyncio.sleep(0.002)

    def _told(self, writer: str, sequence: int, outcome: Written | LogboomError) -> None:
        if isinstance(outcome, LogboomError):
            self.events.append(Unknown(writer, sequence, repr(outcome)))
        else:
            self.events.append(Ok(writer, sequence, f"{outcome.topic}/{outcome.partition}", outcome.seqno))

    async def until(self, is_true: Callable[[], bool]) -> None:
        await until(is_true, "writers that get on", limit_s=CAUGHT_UP_S)


def test_running_writers_that_know_both_go_on_at_the_copy_when_it_is_promoted(tmp_path: Path) -> None:
    """The copy misses what the source acknowledged last: that is gone, and everything else is there once, in order."""
    with Twins(tmp_path) as twins:
        asyncio.run(create_topics(twins.source.address, SEGMENT_BYTES))
        wait_until(lambda: ends_of(twins.replica.address).keys() == set(LOGS), "the topics to be copied")
        events, missing = asyncio.run(move_over(twins))
        histories = tmp_path / "final"
        with Recorder(histories) as recorder:
            for log in LOGS:
                read_all(twins.replica.address, log, recorder)
        report = check([*events, *read_histories([histories])])
    assert report.clean, report
    assert report.unknown == missing > 0, "nobody was told of anything but success"


async def move_over(twins: Twins) -> tuple[list[AnyEvent], int]:
    """What two writers saw; of what is known to be missing, and how much that is, nobody claims that it is there."""
    movers = Movers(f"{twins.source.address},{twins.replica.address}", "orders")
    async with movers.at_work():
        await movers.until(lambda: movers.acknowledged > 200)
        await asyncio.to_thread(twins.replica.kill)
        acknowledged = movers.acknowledged
        await movers.until(lambda: movers.acknowledged > acknowledged + 200)
        await asyncio.to_thread(twins.source.kill)
        await movers.until(lambda: movers.are_cut_off)
        await asyncio.to_thread(twins.replica.start)
        ends = await asyncio.to_thread(ends_of, twins.replica.address)
        before = len(movers.events)
        done = await asyncio.to_thread(command, "promote", "--server", twins.replica.address)
        assert done.returncode == 0, done.stderr
        acknowledged = movers.acknowledged
        await movers.until(lambda: movers.acknowledged > acknowledged + 200)
    told = [event for event in movers.events[:before] if not isinstance(event, Ok) or event.seqno < ends[event.log]]
    return [*told, *movers.events[before:]], before - len(told)


def test_a_new_replica_needs_its_source_and_says_so(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "new"))
    done = command("serve", *data, "--listen", "127.0.0.1:0", "--replicate-from", f"127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert "a replica needs its source when it is started for the first time" in done.stderr


def test_a_source_that_comes_back_from_a_backup_takes_nothing_from_its_replica(tmp_path: Path) -> None:
    with Twins(tmp_path) as twins:
        with Writer("orders", twins.source.address) as writer:
            for number in range(100):
                writer.write(b"%d" % number)
        twins.catch_up()
        shutil.copytree(twins.source.directory, tmp_path / "backup")
        for topic in ("orders", "invoices"):
            with Writer(topic, twins.source.address) as writer:
                for number in range(1000):
                    writer.write(b"%d" % number)
        twins.catch_up()
        before = ends_of(twins.replica.address)
        assert before == {"invoices/0": 1000, "orders/0": 1100}
        twins.source.kill()
        shutil.rmtree(twins.source.directory)
        shutil.copytree(tmp_path / "backup", twins.source.directory)
        twins.source.start()
        assert command("topic", "create", "later", "--server", twins.source.address).returncode == 0
        wait_until(lambda: "later/0" in ends_of(twins.replica.address), twins._said)
        assert ends_of(twins.replica.address) == before | {"later/0": 0}
        doctor = command("doctor", "--server", twins.replica.address)
        assert "replica keeps topics" in doctor.stdout, doctor
        assert "invoices" in command("stats", "--server", twins.replica.address).stdout
        assert command("topic", "delete", "invoices", "--yes", "--server", twins.replica.address).returncode == 0
        assert ends_of(twins.replica.address) == {"later/0": 0, "orders/0": 1100}
