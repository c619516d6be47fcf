"""What queues keep: the blocks of records that have changed are written together, one append after the other.

    a lease or a settlement changes a table → its log is due → the blocks as they are then → one append → answered

Invariant. What `save` returned for is durable as it was then, or later. Where an append fails all that waited for it is
told, and what it was to write is due again.

After a crash each log is as the last append has it: its head, and the blocks from there on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from logboom.broker.queues.lease_entry import (
    LIMIT,
    QueueLogId,
    block_key,
    decode_block,
    decode_head,
    encode_block,
    encode_head,
    head_key,
    split_key,
)
from logboom.broker.queues.lease_table import BLOCK, LeaseRun, LeaseTable
from logboom.broker.state.internal_log import StateLog
from logboom.broker.world import World
from logboom.errors import LimitExceeded


@dataclass(slots=True)
class KeptLog:
    """What is in the state of one log."""

    head: int | None = None
    blocks: set[int] = field(default_factory=set)


class QueueState:
    def __init__(self, state: StateLog, blocks_max: int, world: World) -> None:
        self._state = state
        self._blocks_max = blocks_max
        self._world = world
        self._kept: dict[QueueLogId, KeptLog] = {}
        self._tables: dict[QueueLogId, LeaseTable] = {}
        self._due: dict[QueueLogId, None] = {}
        self._next: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self.on_saved: Callable[[QueueLogId, int], None] = lambda log, base: None
        """Called when it is durable that all below a seqno is done."""
        for key in state.items():
            log, number = split_key(key[0])
            kept = self._kept.setdefault(log, KeptLog())
            if number is None:
                kept.head = decode_head(key[1])
            else:
                kept.blocks.add(number)

    @property
    def logs(self) -> Collection[QueueLogId]:
        """All of which something is kept."""
        return self._kept.keys()

    def open(self, log: QueueLogId, window: int, tries_max: int, start: int, end: int, longest_ms: int) -> LeaseTable:
        """As it was kept; else one that begins at `start`. The log ends at `end`: nothing of the queue lies behind."""
        kept = self._kept.get(log)
        blocks: dict[int, list[LeaseRun]] = {}
        base = start if kept is None or kept.head is None else kept.head
        if kept is not None:
            latest_ms = self.now_ms() + longest_ms
            for number in sorted(kept.blocks):
                value = self._state.get(block_key(log, number))
                if value is not None and (number + 1) * BLOCK > base:
                    blocks[number] = decode_block(value, self._ahead_ms(), latest_ms)
        table = LeaseTable.restored(min(base, end), window, tries_max, blocks, end)
        self._tables[log] = table
        return table

    def now_ms(self) -> int:
        return int(self._world.monotonic_s() * 1000)

    def _ahead_ms(self) -> int:
        return self._world.now_us() // 1000 - self.now_ms()

    def check_room(self, table: LeaseTable, count: int) -> None:
        """Raises LimitExceeded where there is none for so many records more."""
        if len(self._state) + len(table.dirty) + count // BLOCK + 2 > self._blocks_max:
            raise LimitExceeded(LIMIT, self._blocks_max, "settle some records, delete some groups, or raise it")

    def save(self, log: QueueLogId) -> asyncio.Future[None]:
        """Done when it is durable, with all that is due."""
        self._due[log] = None
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(_look_at)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="logboom-queues")
        return self._next

    async def _write(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                done, self._next = self._next, None
                assert done is not None
                tables = {log: self._tables[log] for log in due if log in self._tables}
                changed = {log: table.dirty for log, table in tables.items()}
                changes: dict[bytes, bytes | None] = {}
                for log, table in tables.items():
                    table.dirty = set()
                    changes |= self._changes(log, table, changed[log])
                bases = {log: table.base for log, table in tables.items()}
                try:
                    await self._state.put(changes)
                except Exception as error:
                    for log, table in tables.items():
                        table.dirty |= changed[log]
                    done.set_exception(error)
                else:
                    self._note(changes)
                    done.set_result(None)
                    for log, base in bases.items():
                        self.on_saved(log, base)
        finally:
            self._writer = None

    def _changes(self, log: QueueLogId, table: LeaseTable, changed: set[int]) -> dict[bytes, bytes | None]:
        """Heads first: without one, blocks that are gone would be free again."""
        kept, first = self._kept.get(log, KeptLog()), table.base // BLOCK
        changes: dict[bytes, bytes | None] = {}
        if kept.head is None or kept.head // BLOCK < first:
            changes[head_key(log)] = encode_head(table.base)
        for number in {number for number in kept.blocks if number < first} | changed:
            runs = table.block(number)
            if runs is not None:
                changes[block_key(log, number)] = encode_block(runs, self._ahead_ms())
            elif number in kept.blocks:
                changes[block_key(log, number)] = None
        return changes

    def _note(self, changes: dict[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            log, number = split_key(key)
            kept = self._kept.setdefault(log, KeptLog())
            if number is None:
                kept.head = None if value is None else decode_head(value)
            elif value is None:
                kept.blocks.discard(number)
            else:
                kept.blocks.add(number)

    def close_table(self, log: QueueLogId) -> None:
        """It is used no more."""
        self._tables.pop(log, None)
        self._due.pop(log, None)

    async def forget(self, logs: Collection[QueueLogId]) -> None:
        """Nothing is kept of these; durable when this returns."""
        for log in logs:
            self.close_table(log)
        while self._writer is not None:  # it may be about to write of them
            await asyncio.wait([self._writer])
        changes: dict[bytes, bytes | None] = {}
        for log in logs:
            kept = self._kept.get(log)
            if kept is not None:
                changes |= {block_key(log, number): None for number in kept.blocks}
                changes[head_key(log)] = None
        if changes:
            await self._state.put(changes)
        for log in logs:
            self._kept.pop(log, None)

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self._state.close()


def _look_at(done: asyncio.Future[None]) -> None:
    """Whoever waits is told of an error; where nobody waits it is left unread."""
    if not done.cancelled():
        done.exception()
