"""Reading a dump to its end, for somebody who makes logs of it again, or for nobody, to verify it.

Invariant: a loader gets only what is verified, and of a log only what follows without a gap. Reading and inflating run
a few frames ahead on a thread.

Crash rule: what was handed over stays; the same dump is loaded again, and the loader skips what it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from logboom.batch.batch import Batch
from logboom.errors import DumpMismatch, LowSpace
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Topic
from logboom.storage.moving.contents import Batches, Contents, Item
from logboom.storage.moving.outline import DumpHead, DumpTotals, LogBegin, LogEnd, TopicBegin
from logboom.storage.moving.stream import DumpSource, ahead
from logboom.storage.tail import Snapshot

Progress = Callable[[int], None]


class TopicLoaded(msgspec.Struct):
    """What became of a topic of the dump."""

    name: str
    id: str
    logs: int = 0
    batches: int = 0
    records: int = 0
    """Written now."""
    present: int = 0
    """Batches that were here already."""
    skipped_controls: int = 0
    skipped_lost: int = 0
    """Records that a repair had given up, and that are not appended."""
    complete: bool = False
    next: dict[int, int] = {}
    """The seqno that follows each loaded partition: a later dump goes on with it."""
    hook: str | None = None
    """The delete hook that it has in the dump, and gets where this load makes it. Only a node whose configuration
    has a hook of this name runs it."""


@dataclass(slots=True)
class LoadResult:
    """What a load did, as far as it came."""

    head: DumpHead | None = None
    topics: list[TopicLoaded] = field(default_factory=list)
    totals: DumpTotals = field(default_factory=DumpTotals)
    """What the dump holds."""
    complete: bool = False


class Loader(Protocol):
    """Takes the items of a dump, in their order, those of topics that are wanted."""

    def begin(self, head: DumpHead) -> None: ...
    def begin_topic(self, begun: TopicBegin) -> TopicLoaded: ...
    def begin_log(self, span: LogBegin) -> None: ...
    def begin_segment(self, snapshot: Snapshot) -> None: ...
    def take(self, batches: list[Batch]) -> None: ...
    def end_log(self) -> None: ...
    def end_topic(self) -> None: ...
    def stop(self) -> None: ...


def load(
    source: DumpSource,
    loader: Loader | None,
    names: set[str] | None = None,
    progress: Progress | None = None,
    loaded: LoadResult | None = None,
) -> LoadResult:
    """Read a whole dump and hand it to a loader; without one, it is only verified. `names` are the topics wanted.

    `loaded` is filled as the load goes on, so that the caller knows how far it came when this raises.
    """
    loaded = LoadResult() if loaded is None else loaded
    contents = Contents(source)
    loaded.totals = contents.totals
    reading = _Reading(loader, names, loaded)
    try:
        for item in contents.items(ahead):
            reading.take(item)
            if progress is not None:
                progress(contents.end)
        loaded.complete = True
    finally:
        if loader is not None:
            loader.stop()
    return loaded


class _Reading:
    def __init__(self, loader: Loader | None, names: set[str] | None, loaded: LoadResult) -> None:
        self._loader = loader
        self._names = names
        self._loaded = loaded
        self._wanted = False
        self._left = 0
        """Logs of this topic that are still to come."""

    def take(self, item: Item) -> None:
        loader = self._loader
        if isinstance(item, DumpHead):
            self._begin(item)
        elif isinstance(item, TopicBegin):
            self._begin_topic(item)
        elif not self._wanted:
            pass
        elif isinstance(item, LogEnd):
            if loader is not None:
                loader.end_log()
            self._loaded.topics[-1].logs += 1
            self._left -= 1
            self._end_topic()
        elif loader is None:
            pass
        elif isinstance(item, LogBegin):
            loader.begin_log(item)
        elif isinstance(item, Snapshot):
            loader.begin_segment(item)
        elif isinstance(item, Batches):
            loader.take(item.batches)

    def _begin(self, head: DumpHead) -> None:
        self._loaded.head = head
        absent = sorted((self._names or set()) - {listed.name for listed in head.topics})
        if absent:
            there = ", ".join(listed.name for listed in head.topics) or "none"
            raise DumpMismatch(f"the dump holds no topic {absent[0]!r}; its topics are: {there}")
        if self._loader is not None:
            wanted = tuple(listed for listed in head.topics if self._wants(listed.name))
            self._loader.begin(msgspec.structs.replace(head, topics=wanted))

    def _wants(self, name: str) -> bool:
        """What a node keeps for itself is nothing for another one, unless somebody wants to look at it."""
        if self._names is not None:
            return name in self._names
        return self._loader is None or not name.startswith("_")

    def _begin_topic(self, begun: TopicBegin) -> None:
        topic = begun.topic
        self._wanted = self._wants(topic.name)
        if not self._wanted:
            return
        loader = self._loader
        self._loaded.topics.append(_only_read(topic) if loader is None else loader.begin_topic(begun))
        self._left = len(begun.logs)
        self._end_topic()

    def _end_topic(self) -> None:
        if self._left:
            return
        if self._loader is not None:
            self._loader.end_topic()
        self._loaded.topics[-1].complete = True


def _only_read(topic: Topic) -> TopicLoaded:
    return TopicLoaded(topic.name, topic.id, hook=topic.settings.hook.delete)


def check_name(name: str) -> str:
    """What a topic may be loaded as. Raises DumpMismatch."""
    if name.startswith("_"):
        raise DumpMismatch(f"a node makes its topic {name!r} itself: load this one under another name with --as NAME")
    return name


def need_space(data: DataDirectory, size_bytes: int) -> None:
    """Raises LowSpace where so much does not fit."""
    free, reserve = data.files.disk.free_bytes(), data.files.space.reserve_bytes
    if size_bytes and free - size_bytes < reserve:
        raise LowSpace(free, reserve + size_bytes)
