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

__getattr__, __dir__ = exports(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, globals())
