"""What Spark sends to its workers arrives there, whatever it holds."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from pyspark.cloudpickle import dumps

from logboom.spark.runtime.worker_parcel import WorkerParcel


class Reader(WorkerParcel):
    def __init__(self, accepts: Callable[[int], bool]) -> None:
        self.accepts = accepts


def test_a_reader_with_a_filter_made_in_a_function_arrives() -> None:
    limit = 3
    arrived = pickle.loads(dumps(Reader(lambda number: number < limit)))  # type: ignore[no-untyped-call]
    assert [arrived.accepts(number) for number in (2, 3)] == [True, False]
