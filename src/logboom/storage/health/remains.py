"""Logs that the state file knows, and that are not there: lost, or what a deleted topic left.

A slot is only a hint, so one without a topic is no damage; one of a topic that is there is.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator

from logboom.storage.health.check import StateSlots
from logboom.storage.health.findings import Finding, counted
from logboom.storage.health.layout import DirectoryLayout


def judge_slots(root: str, slots: StateSlots, layout: DirectoryLayout) -> Iterator[Finding]:
    if not layout.whole:
        return
    topics = {topic.id: topic for topic in layout.topics}
    orphans: dict[str, int] = defaultdict(int)
    for (topic_bytes, partition), standing in sorted(slots.standings.items()):
        topic_id = topic_bytes.hex()
        if partition in layout.directories.get(topic_id, ()) or topic_id in layout.trashed:
            continue
        topic = topics.get(topic_id)
        if topic is not None and partition < topic.partitions:
            if standing.synced_index:
                directory = topic.log_name(partition)
                again = f"mkdir {shlex.quote(f'{root}/{directory}')} && logboom repair {shlex.quote(root)}"
                yield Finding(
                    kind="missing log",
                    severity="damage",
                    log=f"{root}/{directory}",
                    file=f"{root}/{directory}",
                    reason=f"it is missing; the state file says that batches up to {standing.synced_index} were synced",
                    advice=f"restore it from a backup; or stop the server and make an empty one: {again}",
                    seqno_from=standing.first,
                    seqno_until=standing.committed,
                )
        elif topic_id not in layout.directories:
            orphans[topic_id] += 1
    for topic_id, count in orphans.items():
        yield Finding(
            kind="slot without a topic",
            severity="info",
            file=f"{root}/state",
            reason=f"{counted(count, 'slot')} of topic {topic_id}, which has no directory here",
            advice="nothing, if that topic was deleted; else restore its directory from a backup",
        )
