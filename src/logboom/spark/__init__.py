"""The log as a Spark table and stream.

import logboom.spark

spark = logboom.spark.session()
events = spark.read.format("logboom").option("topic", "events").load("logboom://localhost:1773")
events.groupBy("channel").count().show()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logboom.spark.arrow import arrow_scan
    from logboom.spark.cursors import start
    from logboom.spark.scan import Scan, scans
    from logboom.spark.sessions import session
    from logboom.spark.values import json_schema, json_values


__all__ = ["Scan", "arrow_scan", "json_schema", "json_values", "scans", "session", "start"]

_HOMES = {
    "Scan": "scan",
    "arrow_scan": "arrow",
    "json_schema": "values",
    "json_values": "values",
    "scans": "scan",
    "session": "sessions",
    "start": "cursors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
