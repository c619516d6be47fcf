"""What a node counts of itself at one moment: NodeStats, and what the system says of the process.

Only looks, and never waits for a disk. Where the system has nothing to say the number is 0.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from logboom import __version__
from logboom.broker.api import DiskStats, NodeStats, ReplicaStats
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.catalog import Catalog
from logboom.broker.limits import Limits, Rejections
from logboom.broker.monitor.measures import Measured, Measures, Meter
from logboom.broker.publish.publisher import Publisher
from logboom.broker.publish.stages import Stages
from logboom.broker.read.log_reader import LogReader
from logboom.broker.slices import slices
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.storage.data.directory import NodeIdentity


def memory_limit_bytes(system: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """What the process may use: all memory of the machine, or less where its control group says so."""
    found = []
    with suppress(OSError, ValueError, IndexError), open(f"{system}/meminfo") as meminfo:
        found.append(int(meminfo.readline().split()[1]) * 1024)
    for path in _limit_files(system, groups):
        with suppress(OSError, ValueError), open(path) as file:
            found.append(int(file.read()))
    return min(found, default=0)


def _limit_files(system: str, groups: str) -> Iterator[str]:
    """Of the group of this process and of all above it; in a container the last may be the only one that shows."""
    lines: list[str] = []
    with suppress(OSError), open(f"{system}/self/cgroup") as file:
        lines = file.read().splitlines()
    for line in lines:
        _, kinds, group = (*line.split(":", 2), "", "")[:3]
        if not kinds:
            root, name = groups, "memory.max"
        elif "memory" in kinds.split(","):
            root, name = f"{groups}/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield "/".join([root, *parts[:depth], name])


def memory_bytes() -> int:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def open_files() -> int:
    """Newer kernels say so in the size of the directory; of others its entries are counted."""
    try:
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def open_files_limit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if limit == resource.RLIM_INFINITY else limit


@dataclass(frozen=True, slots=True)
class Counters:
    """The parts of a broker that count something."""

    node: NodeIdentity
    started: int
    limits: Limits
    catalog: Catalog
    rounds: SyncRounds
    reading: LogReader
    upkeep: Upkeep
    stages: Stages
    publishing: Callable[[], Publisher | None]
    """None until the node has started."""
    access: Callable[[], int]
    """How many users, tokens, roles, rules and quotas there are."""
    groups: Callable[[], dict[str, int]]
    queues: Callable[[], dict[str, int]]
    """As NodeStats has them."""
    connections: dict[str, Callable[[], int]] = field(default_factory=dict)
    """How many there are now, by protocol; front-ends say so."""
    meters: dict[str, Meter] = field(default_factory=dict)
    """What came and went, by protocol; front-ends count it."""
    memory_limit: int = field(default_factory=memory_limit_bytes)

    @property
    def rejections(self) -> Rejections:
        return self.rounds.rejections

    async def measures(self, sees: Callable[[str], bool] | None = None) -> Measures:
        """Of each topic and each protocol, since the start; without the topics that `sees` leaves out."""
        topics: dict[str, Measured] = {}
        async for some in slices(self.catalog.all()):
            shown = some if sees is None else [hosted for hosted in some if sees(hosted.topic.name)]
            topics.update((hosted.topic.name, hosted.meter.shown()) for hosted in shown)
        protocols = {protocol: meter.shown() for protocol, meter in self.meters.items()}
        return Measures(topics, protocols, self.rounds.counts.sync.shown())

    def stats(
        self, refused: str | None, replica: ReplicaStats | None, unreadable: list[str], disk: DiskStats | None
    ) -> NodeStats:
        rounds = self.rounds
        counts = rounds.counts
        failure = None if rounds.failure is None else str(rounds.failure)
        return NodeStats(
            node_id=self.node.node_id,
            cluster_id=self.node.cluster_id,
            version=__version__,
            started=self.started,
            now=rounds.world.now_us(),
            topics=len(self.catalog),
            logs=len(rounds.writers),
            writes=self._writes(),
            reads=self._reads(),
            syncs={
                "count": counts.syncs,
                "logs": counts.synced_logs,
                "seconds": counts.sync_s,
                "longest_s": counts.longest_sync_s,
            },
            rejections=dict(self.rejections),
            connections={protocol: count() for protocol, count in self.connections.items()},
            refused=refused or failure,
            failure=failure,
            upkeep=msgspec.to_builtins(self.upkeep.stats),
            memory_bytes=memory_bytes(),
            open_files=open_files(),
            limits=msgspec.to_builtins(self.limits),
            replica=replica,
            memory_limit_bytes=self.memory_limit,
            open_files_limit=open_files_limit(),
            disk=disk,
            unreadable=unreadable,
            staging=self._staging(),
            deletions=len(self.catalog.deletions),
            access_entries=self.access(),
            groups=self.groups(),
            queues=self.queues(),
        )

    def _writes(self) -> dict[str, int]:
        rounds, counts = self.rounds, self.rounds.counts
        return {
            "batches": counts.batches,
            "records": counts.records,
            "bytes": counts.bytes,
            "repeats": counts.repeats,
            "refused": counts.refused,
            "waiting_bytes": rounds.queued_bytes,
            "unsynced_bytes": rounds.unsynced_bytes,
        }

    def _reads(self) -> dict[str, int]:
        counts = self.reading.counts
        return {
            "chunks": counts.chunks,
            "bytes": counts.bytes,
            "filtered": counts.filtered,
            "skips": counts.skips,
            "warmed": counts.warmed,
            "archived": counts.archived,
            "subscriptions": counts.subscriptions,
            "waiting": sum(writer.readers_waiting for writer in self.rounds.writers),
        }

    def _staging(self) -> dict[str, int]:
        stages, publishing = self.stages, self.publishing()
        return {
            "stages": len(stages),
            "staged_bytes": stages.staged_bytes,
            "publishing": 0 if publishing is None else publishing.under_way,
            "published": 0 if publishing is None else publishing.published,
            "published_records": 0 if publishing is None else publishing.records,
            "repeats": 0 if publishing is None else publishing.repeats,
            "opened": stages.opened,
            "discarded": stages.discarded,
            "expired": stages.expired,
            "keys": 0 if publishing is None else len(publishing.keys),
        }
