"""A process that runs a streaming query, to be killed.

    stream_job.py JOB

JOB is a JSON file: `path` and `options` of the source; `checkpoint`, `sink` and `local`, directories; `now`, whether it
takes what is available and ends; and `stop`, at which step of which micro-batch of this run to make the file `stopped`
and stand still. The steps of a batch are
    begun      Spark has written down what is in it, and nothing was read
    reading    a task has read some of it
    written    the sink has all of it, and Spark does not know yet
The sink is a file for each batch, made whole or not at all. A batch that comes again must be the same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from logboom.spark import session, start

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COLUMNS = "topic STRING, partition INT, seqno BIGINT, value BINARY"


class Sink:
    def __init__(self, job: dict[str, Any]) -> None:
        self._directory = Path(job["sink"])
        self._stopped = job["stopped"]
        stop: tuple[str, int] = job["stop"] or ("", 0)
        self._step, self._batch = stop
        self._count = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        mine, self._count = self._count == self._batch, self._count + 1
        if mine and (self._step == "begun" or (self._step == "reading" and frame.isEmpty())):
            stand_still(self._stopped)
        if mine and self._step == "reading":
            frame = frame.mapInArrow(stopping(self._stopped), COLUMNS)
        rows = sorted((row.topic, row.partition, row.seqno, bytes(row.value).decode()) for row in frame.collect())
        path = self._directory / f"{batch}.json"
        text = json.dumps(rows)
        if path.exists():
            assert path.read_text() == text, f"batch {batch} came again and was another one"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(path)
        if mine and self._step == "written":
            stand_still(self._stopped)


def stand_still(stopped: str) -> None:
    Path(stopped).touch()
    time.sleep(600)


def stopping(stopped: str) -> Any:
    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            open(stopped, "w").close()
            time.sleep(600)

    return pass_on


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": job["local"],
        "spark.sql.warehouse.dir": os.path.join(job["local"], "warehouse"),
    }
    spark = session("job", "local[2]", config=settings)
    stream = spark.readStream.format("logboom").options(**job["options"]).schema(COLUMNS).load(job["path"])
    writer = stream.writeStream.foreachBatch(Sink(job)).option("checkpointLocation", job["checkpoint"])
    run(writer.trigger(availableNow=True) if job["now"] else writer)
    spark.stop()


def run(writer: DataStreamWriter) -> None:
    """Until it ends; again where the ten seconds that Spark gives the process of a source to begin were too short."""
    while True:
        try:
            start(writer).awaitTermination()
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise


if __name__ == "__main__":
    main()
