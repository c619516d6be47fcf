"""The log as a Spark table and stream.

import logboom.spark

spark = logboom.spark.session()
events = spark.read.format("logboom").option("topic", "events").load("logboom://localhost:1773")
events.groupBy("channel").count().show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.lazy import exports

if TYPE_CHECKING:
    from logboom.spark.cursors import start
    from logboom.spark.read.arrow import arrow_scan
    from logboom.spark.read.scan import Scan, scans
    from logboom.spark.read.values import json_schema, json_values
    from logboom.spark.runtime.sessions import session


__all__ = ["Scan", "arrow_scan", "json_schema", "json_values", "scans", "session", "start"]

_HOMES = {
    "Scan": "read.scan",
    "arrow_scan": "read.arrow",
    "json_schema": "read.values",
    "json_values": "read.values",
    "scans": "read.scan",
    "session": "runtime.sessions",
    "start": "cursors",
}

__getattr__, __dir__ = exports(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, globals())
