"""Runs a function for each of many pieces of work, wherever Spark has room.

No rows are made of anything: a piece of work and its answer are bytes, and what the function reads and writes it reads
and writes itself. On `local[*]`, on a cluster and over Spark Connect alike; only how far it has come is not told over
Connect.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from logboom.errors import PipelineError
from logboom.spark.runtime.tidiness import begin_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA: Final = "number INT, answer BINARY"
LOOK_S: Final = 0.5
_RAISED: Final = re.compile(
    r"^(?:logboom\.errors\.)?((?:(?<=errors\.)\w+|OSError|FileNotFoundError|PermissionError|NotADirectoryError): .+)$",
    re.MULTILINE,
)
"""The last line of a trace of Python, where a user can do something about it."""


class Stoppable:
    """The Spark of one run of a job: what it does for whoever asked for it here is stopped once that is over.

    For one thread. To be closed by it.
    """

    def __init__(self, spark: Callable[[], SparkSession], is_over: Callable[[], bool]) -> None:
        self._spark = spark
        self._is_over = is_over
        self._tag = f"logboom-{uuid.uuid4().hex}"
        self._given: SparkSession | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="logboom-stop", daemon=True)
        self._thread.start()

    def __call__(self) -> SparkSession:
        """A session; made when it is first asked for."""
        spark = self._spark()
        if spark is not self._given:
            context = _context(spark)
            if context is None:
                spark.addTag(self._tag)
            else:
                context.addJobTag(self._tag)
            self._given = spark
        return spark

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            spark = self._given
            if spark is not None and self._is_over():
                context = _context(spark)
                with suppress(Exception):  # a Spark that is gone has stopped
                    spark.interruptTag(self._tag) if context is None else context.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        if self._given is not None:
            context = _context(self._given)
            with suppress(Exception):
                self._given.removeTag(self._tag) if context is None else context.removeJobTag(self._tag)


def _context(spark: SparkSession) -> Any:
    """None over Connect. What a tag of a session stands for only the thread knows that has set it, unlike here."""
    return getattr(spark, "_sc", None)


def run_tasks(
    spark: SparkSession,
    function: Callable[[bytes], bytes],
    pieces: Sequence[bytes],
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[bytes]:
    """What the function made of each piece, in their order. `on_progress` is told how many are done, now and then.

    A function that raises is tried again as Spark's settings say, and then ends all. It may run twice for one piece.
    """
    if not pieces:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        begin_task()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = function(pieces[number])
                columns: list[Any] = [pa.array([number], pa.int32()), pa.array([answer], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["number", "answer"])

    frame = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(work, SCHEMA)
    with watching(spark, on_progress):
        answers = {row.number: bytes(row.answer) for row in frame.collect()}
    return [answers[number] for number in range(len(pieces))]


@contextmanager
def watching(spark: SparkSession, on_progress: Callable[[int], None]) -> Iterator[None]:
    """While the block runs, `on_progress` is told how many tasks of what Spark runs for it are done.

    Where a task raises an error of ours or of the operating system, a PipelineError says so, without Spark's traces.
    """
    with explaining(), _told(spark, on_progress):
        yield


@contextmanager
def explaining() -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raised = _RAISED.findall(str(error))
        if not raised:
            raise
        raise PipelineError(raised[-1]) from error


@contextmanager
def _told(spark: SparkSession, on_progress: Callable[[int], None]) -> Iterator[None]:
    context = _context(spark)
    if context is None:
        yield
        return
    group, ended = f"logboom-{uuid.uuid4().hex}", threading.Event()
    tracker = context.statusTracker()

    def look() -> None:
        while not ended.wait(LOOK_S):
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                stages = [] if info is None else [tracker.getStageInfo(stage) for stage in info.stageIds]
                done += sum(stage.numCompletedTasks for stage in stages if stage is not None)
            on_progress(done)

    context.setJobGroup(group, "a job of the pipeline", True)
    thread = threading.Thread(target=look, name="logboom-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", None)
