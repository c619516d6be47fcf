"""Who writes what, and where."""

from __future__ import annotations

TOPIC, PARTITIONS = "readings", 3
METER = "meter"
"""The log of one device, which speaks lines of text; nobody else writes to it."""
PARSED = "parsed"
"""What a query of Spark makes of both."""
LOGS = [*((TOPIC, partition) for partition in range(PARTITIONS)), (METER, 0)]
WRITERS = {"anna": "write", "bert": "write", "cleo": "post", "dora": "lines"}
CHUNK = 1000
CURSOR = "spark"
SPARK = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


class Wrong(Exception):
    """Something is not as it must be."""


def reading(name: str, number: int) -> str:
    """What a writer writes as its record of this number."""
    return f"{name}:{number}:{number * 7919 % 4000 / 100} C"


def share(records: int) -> int:
    """How many each writer writes."""
    return records // len(WRITERS)
