"""Streams from topic to topic that are killed between any two of their steps: the driver, its workers, the node.

The input is written all the while, and every record of it must be in the output once, in its order by key.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from spark.sink_runs import SOURCES, Copy, following, running, stages_of, values_of, writing
from support.effort import some_of
from support.nodes.process import NodeProcess
from support.spark.queries import Topics, finish, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEPS = ("opened", "staged", "told", "sent", "answered")


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with NodeProcess(tmp_path) as node:
        made = Topics(node)
        made.create("events", SOURCES)
        yield made


@contextmanager
def copying(root: Path, topics: Topics, *copies: Copy) -> Iterator[None]:
    """While somebody writes, and somebody reads the copies. In the end they must be exact."""
    logs = [log for copy in copies for log in copy.logs]
    with following(topics, logs) as seen:
        with writing(topics, "events"):
            yield
        with running(root / "job", [copy.work() for copy in copies]) as run:
            run.finish()
    assert len(values_of(topics, "events", SOURCES)) > 100
    for copy in copies:
        report = copy.judge(seen)
        assert report.clean, (copy.topic, report)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", some_of(["staged", "sent"], "sent"))
def test_streams_that_are_killed_between_any_two_steps_write_every_record_once(
    topics: Topics, tmp_path: Path, step: str
) -> None:
    """A kill is of all that Spark runs, Java and Python; the node is killed now and then, alone or with it."""
    dealt, twice = Copy(tmp_path, topics, "dealt", tasks=3), Copy(tmp_path, topics, "twice", "each")
    works = [copy.work(150) for copy in (dealt, twice)]
    with copying(tmp_path, topics, dealt, twice):
        harmed = [dealt.at("staged", "die"), dealt.at("opened", "fail", 1), dealt.at("staged", "fail", 1)]
        alone = [dealt.at("opened", batch=2), dealt.at("staged", batch=3), dealt.at("sent", batch=4)]
        last = [dealt.at(step, batch=5), twice.at("between", batch=1)]
        with running(tmp_path / "job", works, [*harmed, *alone, *last]) as run:
            run.wait_for(*harmed)
            for fault in alone:
                run.wait_for(fault)
                topics.node.kill()
                topics.node.start()
                run.go_on(fault)
            run.wait_for(*last)
            topics.node.kill()
        topics.node.start()
    assert all(stage.state == "open" and stage.expires > stage.touched for stage in stages_of(topics))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "tasks"), [("stream", 0), ("stream", 3), ("each", 0)])
def test_a_stream_that_is_killed_many_times_writes_every_record_once(
    topics: Topics, tmp_path: Path, kind: str, tasks: int
) -> None:
    chance = random.Random(f"{kind} {tasks}")
    copy = Copy(tmp_path, topics, "copies", kind, tasks)
    steps = [*STEPS, "committed" if kind == "stream" else "between"]
    with copying(tmp_path, topics, copy):
        for _ in range(60):
            batch = chance.randint(0, 2)
            last = copy.at(chance.choice(steps), batch=batch)
            harm = {copy.at(chance.choice(STEPS[:2]), chance.choice(["die", "fail"]), batch) for batch in range(batch)}
            with running(tmp_path / "job", [copy.work(1000)], [last, *harm]) as run:
                if last.step == "committed":
                    copy.wait_for_commit(run, batch + 1)
                else:
                    run.wait_for(last)
                fate = chance.choice(["driver", "driver", "both", "node"])
                if fate != "driver":
                    topics.node.kill()
                if fate == "node":
                    topics.node.start()
                    run.go_on(last)
                    copy.wait_for_commit(run)
            if fate == "both":
                topics.node.start()


def test_a_row_that_cannot_be_written_ends_the_stream_and_nothing_of_its_batch_is_there(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("target")
    topics.write("events", [b"%d" % number for number in range(20)], 0)
    source = stream(spark, topics.path, topic="events", maxRecordsPerTrigger="5")

    def copy(frame: DataFrame) -> None:
        writer = frame.writeStream.format("logboom").option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(writer.trigger(availableNow=True).start(topics.path))

    row = "in row 2 of task 0 ("
    poisons = [
        (
            "topic: is null, and no option says where to write",
            row,
            ["value", "if(value = x'37', null, 'target') topic"],
        ),
        ("allowed are 16,777,216", row, ["if(value = x'37', repeat('x', 20000000), value) value", "'target' topic"]),
        ("-1 is not one of", row, ["value", "'target' topic", "cast(if(value = x'37', -1, 0) as int) partition"]),
        ("the 7th fails", "", ["if(value = x'37', raise_error('the 7th fails'), value) value", "'target' topic"]),
    ]
    for said, where, columns in poisons:
        with pytest.raises(StreamingQueryException) as caught:
            copy(source.selectExpr(*columns))
        assert said in str(caught.value)
        assert where in str(caught.value)
        assert len(values_of(topics, "target", 1)) == 5, "the micro-batch before it"
        assert stages_of(topics) == []
    copy(source.selectExpr("value", "'target' topic"))
    assert values_of(topics, "target", 1) == [str(number) for number in range(20)], "once the query is corrected"
