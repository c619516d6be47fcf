"""Streams from topic to topic that are killed between any two of their steps: the driver, its workers, the node.

The input is written all the while, and every record of it must be in the output once, in its order by key.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from spark.queries import Topics, finish, stream
from spark.sink_runs import (
    Fault,
    Log,
    Run,
    compare,
    following,
    next_batch,
    running,
    stages_of,
    values_of,
    writing,
)
from system.node import NodeProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from checker import Report
    from checker.history import AnyEvent

STEPS = ("opened", "staged", "told", "sent", "answered")
PARTITIONS = 3


class Copy:
    """A query that copies a topic, however often it is killed and started."""

    def __init__(self, root: Path, topics: Topics, kind: str = "stream", tasks: int = 0, limit: int = 150) -> None:
        self.topics = topics
        self.logs: list[Log] = [("copies", partition) for partition in range(PARTITIONS)]
        self._root = root / "job"
        self._checkpoint = root / "checkpoint"
        self._limit = {"maxRecordsPerTrigger": str(limit)}
        self._work: dict[str, Any] = {
            "kind": kind,
            "path": topics.path,
            "topic": "copies",
            "tasks": tasks,
            "checkpoint": str(self._checkpoint),
        }
        topics.create("events", 2)
        topics.create("copies", PARTITIONS)
        if kind == "each":
            topics.create("copies-odd", PARTITIONS)
            self.logs += [("copies-odd", partition) for partition in range(PARTITIONS)]
        self._is_in_order = tasks == 0

    @contextmanager
    def run(self, *faults: Fault, now: bool = False) -> Iterator[Run]:
        """The micro-batches of faults count from the first of this run."""
        first = next_batch(self._checkpoint)
        placed = [Fault(fault.step, fault.action, first + (fault.batch or 0), fault.task) for fault in faults]
        options = {"topic": "events", "startingSeqno": "earliest", **({} if now else self._limit)}
        with running(self._root, ({**self._work, "source": options, "now": now}, placed)) as run:
            yield run

    def wait_for_commit(self, run: Run, batches: int = 1) -> None:
        commit = self._checkpoint / "commits" / str(next_batch(self._checkpoint) + batches - 1)
        run.wait_until(commit.exists)

    def finish(self) -> None:
        with self.run(now=True) as run:
            run.finish()

    def judge(self, seen: Sequence[AnyEvent]) -> Report:
        wanted = values_of(self.topics, "events", 2)
        assert len(wanted) > 100
        return compare(self.topics, wanted, self.logs, seen, in_order=self._is_in_order)


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with NodeProcess(tmp_path) as node:
        yield Topics(node)


def restart(node: NodeProcess) -> None:
    node.kill()
    node.start()


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_between_its_steps_writes_every_record_once_in_its_order(
    topics: Topics, tmp_path: Path
) -> None:
    copy = Copy(tmp_path, topics)
    with writing(topics, "events"), following(topics, copy.logs) as seen:
        faults = [
            Fault("staged", "die", 0),
            Fault("opened", "fail", 1),
            Fault("staged", "fail", 1),
            Fault("opened", "wait", 2),
            Fault("staged", "wait", 3),
            Fault("sent", "wait", 4),
            Fault("staged", "wait", 5),
        ]
        with copy.run(*faults) as run:
            for number, fault in enumerate(faults[:-1]):
                run.wait_for(number)
                if fault.action == "wait":
                    restart(topics.node)
                    run.go_on(number)
            run.wait_for(len(faults) - 1)
        with copy.run(Fault("sent")) as run:
            run.wait_for(0)
            topics.node.kill()
        topics.node.start()
        with copy.run() as run:
            copy.wait_for_commit(run)
    copy.finish()
    report = copy.judge(seen)
    assert report.clean, report
    assert all(stage.state == "open" and stage.expires > stage.touched for stage in stages_of(topics))


@pytest.mark.timeout(900)
def test_a_micro_batch_that_is_dealt_out_otherwise_when_it_is_repeated_is_there_once(
    topics: Topics, tmp_path: Path
) -> None:
    copy = Copy(tmp_path, topics, tasks=3)
    with writing(topics, "events"), following(topics, copy.logs) as seen:
        for fault in (Fault("told", batch=1), Fault("answered", batch=1)):
            with copy.run(fault) as run:
                run.wait_for(0)
    copy.finish()
    report = copy.judge(seen)
    assert report.clean, report


@pytest.mark.timeout(900)
def test_two_writes_of_each_micro_batch_happen_once_where_the_driver_is_killed_between_them(
    topics: Topics, tmp_path: Path
) -> None:
    copy = Copy(tmp_path, topics, kind="each", tasks=3)
    with writing(topics, "events"), following(topics, copy.logs) as seen, copy.run(Fault("between", batch=1)) as run:
        run.wait_for(0)
    copy.finish()
    report = copy.judge(seen)
    assert report.clean, report


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "tasks"), [("stream", 0), ("stream", 3), ("each", 0)])
def test_a_stream_that_is_killed_many_times_writes_every_record_once(
    topics: Topics, tmp_path: Path, kind: str, tasks: int
) -> None:
    chance = random.Random(f"{kind} {tasks}")
    copy = Copy(tmp_path, topics, kind, tasks, limit=1000)
    steps = [*STEPS, "committed"] if kind == "stream" else [*STEPS, "between"]
    with writing(topics, "events"), following(topics, copy.logs) as seen:
        for _ in range(60):
            step, batch = chance.choice(steps), chance.randint(0, 2)
            harm = [
                Fault(chance.choice(STEPS[:2]), chance.choice(["die", "fail"]), chance.randint(0, batch))
                for _ in range(chance.randint(0, 2))
            ]
            with copy.run(Fault(step, "wait", batch), *harm) as run:
                if step == "committed":
                    copy.wait_for_commit(run, batch + 1)
                else:
                    run.wait_for(0)
                fate = chance.choice(["driver", "driver", "both", "node"])
                if fate != "driver":
                    topics.node.kill()
                if fate == "node":
                    topics.node.start()
                    run.go_on(0)
                    copy.wait_for_commit(run)
            if fate == "both":
                topics.node.start()
    copy.finish()
    report = copy.judge(seen)
    assert report.clean, report


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["value", "if(value = x'37', null, 'target') topic"], "topic: is null, and no option says where to write;"),
        (["if(value = x'37', repeat('x', 20000000), 'y') value", "'target' topic"], "allowed are 16,777,216;"),
        (["value", "'target' topic", "cast(if(value = x'37', -1, 0) as int) partition"], "-1 is not one of them;"),
        (["if(value = x'37', raise_error('the 7th fails'), value) value", "'target' topic"], "the 7th fails"),
    ],
)
def test_a_row_that_cannot_be_written_ends_the_stream_and_nothing_of_its_batch_is_there(
    spark: SparkSession, topics: Topics, tmp_path: Path, columns: list[str], said: str
) -> None:
    topics.create("source")
    topics.create("target")

    def copy(frame: DataFrame) -> None:
        writer = frame.writeStream.format("logboom").option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(writer.trigger(availableNow=True).start(topics.path))

    topics.write("source", [b"%d" % number for number in range(20)])
    source = stream(spark, topics.path, topic="source", maxRecordsPerTrigger="5")
    with pytest.raises(StreamingQueryException) as caught:
        copy(source.selectExpr(*columns))
    found = str(caught.value)
    assert said in found
    if not said.endswith("fails"):
        assert "in row 2 of task 0 (" in found
    assert len(values_of(topics, "target", 1)) == 5, "the micro-batch before it"
    assert stages_of(topics) == []
    copy(source.selectExpr("value", "'target' topic"))
    if columns[0] == "value":
        assert values_of(topics, "target", 1) == [str(number) for number in range(20)], "once the query is corrected"
    assert len(values_of(topics, "target", 1)) == 20
