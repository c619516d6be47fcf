"""What a node tells of itself to somebody who may not know of all its topics: the same, without the names of others.

What is said in words may name any topic, also one that is gone: such a caller is told that it was said, and how often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from logboom.broker.api.insight import ReplicaStats
from logboom.broker.monitor.activity import Incident

UNSAID: Final = "said only to those who may know of all topics"


def discreet_incident(incident: Incident) -> Incident:
    return replace(incident, text=UNSAID)


def discreet_replica(stats: ReplicaStats, knows: Callable[[str], bool]) -> ReplicaStats:
    """`knows` says of which topics he may know."""
    return replace(
        stats,
        lag_logs={log: lag for log, lag in stats.lag_logs.items() if knows(log.rpartition("/")[0])},
        kept=[topic for topic in stats.kept if knows(topic)],
        error=None if stats.error is None else UNSAID,
    )
