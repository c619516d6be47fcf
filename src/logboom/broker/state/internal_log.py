"""A node's own state: a dictionary fed by an internal log, with a snapshot that lets the log be cut below it.

    put → one batch for all that came meanwhile → durable → in the dictionary → answered

Invariants. What `get` shows, and what `put` returned for, is durable. The snapshot holds everything below the seqno it
names, and the log everything from there on: the log is cut only after the snapshot that replaces it is durable.

After a crash the snapshot is whole, the old one or the new one. One that is damaged, or of another log, counts as none,
which is harmless as long as the log reaches back to its first record; where it does not, opening is refused. So it is
where the log is damaged; changes that repair has given up are passed over, loudly: each key is as it was before them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, ItemsView, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from logboom.batch import Batch, build
from logboom.batch.tables import LOST
from logboom.errors import Damage, DirectoryUnusable, LimitExceeded, LogboomError, ShuttingDown
from logboom.storage.append import Appended
from logboom.storage.config import MIB
from logboom.storage.files import envelope
from logboom.storage.files.disk import Disk, read_file, replace_file
from logboom.storage.staged.unfinished import MAGIC, SNAPSHOT, InternalSnapshot

logger = logging.getLogger("logboom.broker")

BATCH_BYTES: Final = MIB
"""What one append carries at most, unless a single change is larger."""
SNAPSHOT_BYTES: Final = 4 * MIB
"""The log grows by so much, and by as much as the last snapshot holds, before there is another one."""
_CHANGE_BYTES: Final = 32  # what a change costs in the log beside its key and value, about


@dataclass(frozen=True, slots=True)
class InternalLog:
    """The log behind a state, as its broker gives it."""

    topic_id: str
    first: int
    committed: int
    """Nothing from here on counts: it may be taken back."""
    batches: Callable[[int], Iterator[Batch]]
    """Every data batch from a seqno on; the first may begin before it."""
    append: Callable[[Batch], Awaitable[Appended]]
    """Returns when it is durable."""
    trim: Callable[[int], Awaitable[None]]
    """Nothing below this seqno is needed any more: raise the floor, roll, drop."""


@dataclass(slots=True)
class _Group:
    """Changes that go into one batch, the latest of each key; None removes it."""

    done: asyncio.Future[None]
    changes: dict[bytes, bytes | None] = field(default_factory=dict)
    size_bytes: int = 0


class StateLog:
    def __init__(
        self,
        disk: Disk,
        path: str,
        log: InternalLog,
        body: InternalSnapshot,
        limit: tuple[str, int],
        snapshot_bytes: int,
    ) -> None:
        self._disk = disk
        self._path = path
        self._log = log
        self._entries = dict(body.entries)
        self.changes = 0
        """Rises whenever a key comes or goes."""
        self._seqno = body.seqno
        self._limit_name, self._limit = limit
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_size = self._grown_bytes = 0
        self._groups: deque[_Group] = deque()
        self._promised: set[bytes] = set()
        """Keys that are on their way and not in the dictionary yet: they count for the limit."""
        self._reserved: Counter[bytes] = Counter()
        """And so do those that somebody will put, and that are not in the dictionary either."""
        self._writing: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    def open(
        cls, disk: Disk, path: str, log: InternalLog, limit: tuple[str, int], snapshot_bytes: int = SNAPSHOT_BYTES
    ) -> StateLog:
        """What the snapshot in this file and the log behind it say. `limit` is a name and how many keys there may be.

        Reads only, and waits for the disk: on a thread, or before anybody is served.
        """
        body = _load(disk, path, log)
        state = cls(disk, path, log, body, limit, snapshot_bytes)
        state._snapshot_size = sum(_cost(key, value) for key, value in body.entries.items())
        for batch in _replay(log, body.seqno):
            state._grown_bytes += batch.header.size
            for seqno, key, value in zip(batch.seqnos(), batch.keys(), batch.values(), strict=True):
                if seqno >= body.seqno and key is not None:
                    state._apply(key, value)
        state._seqno = log.committed
        return state

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def items(self) -> ItemsView[bytes, bytes]:
        return self._entries.items()

    def reserve(self, key: bytes) -> bool:
        """Somebody is going to put this key, and must not be refused then: until `release` it counts for the limit.

        False where it is here, so that nothing is to be released. Raises LimitExceeded.
        """
        if key in self._entries:
            return False
        if key not in self._reserved and key not in self._promised:
            self._check_room(1)
        self._reserved[key] += 1
        return True

    def release(self, key: bytes) -> None:
        if self._reserved[key] > 1:
            self._reserved[key] -= 1
        else:
            self._reserved.pop(key, None)

    def _check_room(self, fresh: int) -> None:
        if len(self._entries) + len(self._promised) + len(self._reserved) + fresh > self._limit:
            raise LimitExceeded(self._limit_name, self._limit, "delete some, or raise it")

    async def put(self, changes: Mapping[bytes, bytes | None], is_reserved: bool = False) -> None:
        """Set these keys, remove those that are None; durable when this returns.

        All that is asked for while an append is under way goes into the next one. Changes of one call that fit into
        one batch come true together. A caller who goes away takes nothing back. What is reserved is within the limit.
        """
        if self._closed:
            raise ShuttingDown
        if not is_reserved:
            fresh = {key for key, value in changes.items() if value is not None and self._is_fresh(key)}
            fresh -= self._promised
            if fresh:
                self._check_room(len(fresh))
            self._promised |= fresh
        groups = {id(group): group for group in map(self._stage, changes.keys(), changes.values())}
        if groups and self._writing is None:
            self._writing = asyncio.create_task(self._write(), name=f"logboom-state-{os.path.basename(self._path)}")
        for group in groups.values():
            await asyncio.shield(group.done)

    def _stage(self, key: bytes, value: bytes | None) -> _Group:
        cost = _cost(key, value)
        if not self._groups or (self._groups[-1].changes and self._groups[-1].size_bytes + cost > BATCH_BYTES):
            self._groups.append(_Group(asyncio.get_running_loop().create_future()))
        group = self._groups[-1]
        group.changes[key] = value
        group.size_bytes += cost
        return group

    async def _write(self) -> None:
        """One append after the other, until nothing waits."""
        try:
            while self._groups:
                group = self._groups.popleft()
                try:
                    await self._append(group)
                except Exception as error:
                    group.done.set_exception(error)
                    group.done.exception()  # callers who have gone away leave it unread
                else:
                    group.done.set_result(None)
                waiting = ((key, value) for later in self._groups for key, value in later.changes.items())
                self._promised = {key for key, value in waiting if value is not None and self._is_fresh(key)}
        finally:
            self._writing = None

    async def _append(self, group: _Group) -> None:
        batch = build(list(group.changes.values()), keys=list(group.changes))
        appended = await self._log.append(batch)
        for key, value in group.changes.items():
            self._apply(key, value)
        self._seqno = appended.next_seqno
        self._grown_bytes += len(batch.data)
        if self._saving is None and self._grown_bytes > max(self._snapshot_bytes, self._snapshot_size):
            self._saving = asyncio.create_task(self._save(), name=f"logboom-snapshot-{os.path.basename(self._path)}")

    def _is_fresh(self, key: bytes) -> bool:
        """Whether nobody has counted it yet."""
        return key not in self._entries and key not in self._reserved

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self.changes += (value is None) == (key in self._entries)
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = value
            self._reserved.pop(key, None)

    async def _save(self) -> None:
        """Replace the snapshot, then cut the log below it. Where that fails the log simply goes on growing."""
        self._grown_bytes = 0
        body = InternalSnapshot(self._log.topic_id, self._seqno, dict(self._entries))
        try:
            self._snapshot_size = await asyncio.to_thread(_write_snapshot, self._disk, self._path, body)
            await self._log.trim(body.seqno)
        except (OSError, LogboomError) as error:
            logger.warning("%s: no snapshot, so its log goes on growing: %s", self._path, error)
        finally:
            self._saving = None

    async def close(self) -> None:
        """Take nothing more, and wait for what is under way."""
        self._closed = True
        if self._writing is not None:
            await asyncio.wait([self._writing])  # which a caller who waits no longer does not cancel
        if self._saving is not None:
            await asyncio.wait([self._saving])


def _load(disk: Disk, path: str, log: InternalLog) -> InternalSnapshot:
    """The snapshot; an empty one where there is none to believe and the log has everything itself."""
    try:
        data = read_file(disk, path)
        body = None if data is None else envelope.unpack(MAGIC, data, SNAPSHOT)
        reason = "is not there" if body is None else f"is of another log, with id {body.topic_id}"
    except (OSError, ValueError) as error:
        body, reason = None, f"cannot be believed ({error})"
    if body is not None and body.topic_id == log.topic_id:
        if log.first <= body.seqno <= log.committed:
            return body
        reason = f"goes on at seqno {body.seqno}"
    elif log.first == 0:
        return InternalSnapshot(log.topic_id, 0, {})
    raise DirectoryUnusable(
        f"{path} {reason}, and its log, the topic with id {log.topic_id}, has only seqnos {log.first} to "
        f"{log.committed}: restore it from a backup; or, to begin again without its content, move it and the topic's "
        "directory away"
    )


def _replay(log: InternalLog, seqno: int) -> Iterator[Batch]:
    """Every batch from a seqno on that there is."""
    while seqno < log.committed:
        try:
            for batch in log.batches(seqno):
                yield batch
                seqno = batch.header.next_seqno
            return
        except Damage as damage:
            if damage.reason != LOST or damage.seqno_until is None:
                raise DirectoryUnusable(f"{damage}: the node keeps its own state there; repair it first") from damage
            logger.warning("changes of the node's own state are lost: %s", damage)
            seqno = damage.seqno_until


def _write_snapshot(disk: Disk, path: str, body: InternalSnapshot) -> int:
    data = envelope.pack(MAGIC, body)
    disk.make_directory(os.path.dirname(path))
    replace_file(disk, path, data)
    return len(data)


def _cost(key: bytes, value: bytes | None) -> int:
    return _CHANGE_BYTES + len(key) + len(value or b"")
