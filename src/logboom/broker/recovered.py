"""What opening a data directory has found, in words."""

from __future__ import annotations

from logboom.broker.allowances import Allowances
from logboom.errors import LogboomError
from logboom.storage.data.directory import DataDirectory
from logboom.storage.log import Log


def describe_topics(data: DataDirectory, unreadable: list[str], allowed: Allowances) -> list[str]:
    """Topics that cannot be served, and settings that the node's configuration does not allow."""
    lost = [f"the topic with id {topic} cannot be served: its topic.json cannot be read" for topic in unreadable]
    return lost + [
        f"topic {topic.name}: {key}: {reason}"
        for topic in data.topics()
        for key, reason in allowed.unusable(topic.settings).items()
    ]


def describe_recovery(data: DataDirectory, logs: dict[str, Log | LogboomError], took_s: float) -> list[str]:
    lines = []
    if not data.was_clean:
        lines.append("the last shut-down was not clean: every log was recovered")
    for name, log in logs.items():
        if isinstance(log, LogboomError):
            lines.append(f"{name} cannot be opened: {log}")
            continue
        found = log.recovered
        if found.cut_bytes:
            lines.append(f"{name}: {found.cut_bytes:,} bytes of a torn tail were cut off; nothing promised was lost")
        lines += [f"{name}: {trouble}" for trouble in (found.missing, found.damage) if trouble is not None]
    records = sum(log.next - log.first for log in logs.values() if isinstance(log, Log))
    lines.append(f"{len(logs):,} logs with {records:,} records opened in {took_s:.1f} s")
    return lines
