"""Where records go: to the lane of their partition, there into columns, and from columns into numbered batches.

Records with a key or a channel go where it says; the others stay with one partition until its batch is cut, then move
on. As long as nobody knows how many partitions there are everything is in one lane without a number; when it is known
that lane becomes the only partition's, or is dealt out again, batch by batch and in order.
"""

from __future__ import annotations

import random
import secrets
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from logboom.batch import BATCH_SIZE_DEFAULT, NO_TIMESTAMP, Batch, Producer
from logboom.batch.header import Buffer, own_id
from logboom.batch.partitioner import partition_of
from logboom.client.write.gathered import (
    RECORD_BYTES,
    SMALL_BYTES,
    Gathered,
    Inbox,
    Rows,
    Waiter,
    as_bytes,
    check_fields,
    check_moment,
)
from logboom.client.write.lane import Lane, Parcel
from logboom.client.write.ledger import WriterLedger
from logboom.client.write.options import WriterOptions
from logboom.errors import BatchTooLarge, LogboomError, PartitionNotFound


class Router:
    def __init__(self, options: WriterOptions, ledger: WriterLedger) -> None:
        self._options = options
        self._ledger = ledger
        self.limit_bytes = BATCH_SIZE_DEFAULT
        """No record may be larger, nor may a batch."""
        self.full_bytes = options.batch_bytes
        """A batch that has so much goes."""
        self.issued_id = 0
        """What the node has given: no other writer has it. 0 where there is none, or not yet."""
        self._partitions: int | None = None
        self._lanes: dict[int | None, Lane] = {}
        self.active: dict[int | None, Lane] = {}
        """The lanes with anything to do."""
        self._sticky = self.lane(options.partition)
        self.inbox = Inbox()

    def new_id(self) -> int:
        """A producer id nobody else has; 0 where nobody is to be recognised."""
        if not self._options.is_numbered:
            return 0
        return self.issued_id or own_id(secrets.randbits(64))

    def another_id(self) -> int:
        """One that no lane has had."""
        return own_id(secrets.randbits(64)) if self._options.is_numbered else 0

    def issue(self, producer_id: int) -> list[Lane]:
        """The node gives this id: for lanes that have sent nothing yet. Returns those that have parcels with it now."""
        self.issued_id = producer_id
        lanes = list(self._lanes.values()) if producer_id and self._options.is_numbered else []
        return [lane for lane in lanes if lane.issue(producer_id)]

    def lane(self, partition: int | None) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition, self.new_id())
        return lane

    @property
    def home(self) -> Lane:
        """Of what is for no partition yet: the writer's own, where it has one."""
        return self.lane(self._options.partition)

    def add(
        self, value: Any, key: Any, timestamp: Any, channel: Any, tags: Any, headers: Any, waiter: Waiter | None
    ) -> bool:
        """Take a record. Whether there is something to do about it now."""
        is_due = False
        if self.inbox.entries:
            is_due = self.collect()
            self.open_inbox(self.inbox.since)
        return self._add(value, key, timestamp, channel, tags, headers, waiter) or is_due

    def _add(
        self, value: Any, key: Any, timestamp: Any, channel: Any, tags: Any, headers: Any, waiter: Waiter | None
    ) -> bool:
        """As `add`, before what is in the inbox."""
        if type(value) is not bytes:
            value = as_bytes("value", value)
        size = RECORD_BYTES if value is None else len(value) + RECORD_BYTES
        lane = self._sticky
        if tags or headers or channel is not None:
            fields = check_fields(key, timestamp, channel, tags, headers)
            size += fields.size
            if size > self.limit_bytes:
                raise BatchTooLarge(size, self.limit_bytes)
            if key is not None or channel is not None:
                lane = self._choose(fields.key, channel)
            gathered = self._with_room(lane, size)
            gathered.add(value, fields, waiter)
        else:
            if key is not None:
                if type(key) is not bytes:
                    key = as_bytes("key", key)
                size += len(key) + RECORD_BYTES
            if timestamp is not None:
                timestamp = check_moment(timestamp)
                size += 8
            if size > self.limit_bytes:
                raise BatchTooLarge(size, self.limit_bytes)
            if key is not None:
                lane = self._choose(key, None)
            gathered = self._with_room(lane, size)
            if key is None and timestamp is None and gathered.plain:
                if waiter is not None:
                    gathered.wait(waiter)
                gathered.values.append(value)
            else:
                gathered.put(value, key, timestamp, waiter)
        gathered.size += size
        self._ledger.buffered += size
        if gathered.since is None:
            self.active[lane.partition] = lane
            return True
        return gathered.size >= self.full_bytes or self._ledger.buffered >= self._options.buffer_bytes

    def _with_room(self, lane: Lane, size: int) -> Gathered:
        """What a record of this size may join: not what is full, nor what would be more than a node takes with it."""
        gathered = lane.gathered
        is_much = gathered.size >= self.full_bytes or gathered.size + size > self.limit_bytes
        if is_much and gathered.since is not None:
            self.cut(lane, gathered.since)
        return lane.gathered

    def limit(self, limit_bytes: int) -> None:
        """The node takes batches of so many bytes."""
        self.limit_bytes = limit_bytes
        self.full_bytes = min(self._options.batch_bytes, limit_bytes)

    def collect(self) -> bool:
        """Gather what lies in the inbox, behind what is gathered. Whether there is something to do about it now."""
        entries = self.inbox.take()
        if not entries:
            return False
        if not self.inbox.has_rows or self.partitions == 1:
            return self._gather(None, self.inbox.rows(entries))
        dealt: dict[int | None, list[Any]] = {}
        for entry in entries:
            key = entry[1] if type(entry) is tuple else None
            dealt.setdefault(self.partition_of(key, None), []).append(entry)
        is_due = False
        for partition, some in dealt.items():
            is_due = self._gather(partition, self.inbox.rows(some)) or is_due
        return is_due

    def _gather(self, partition: int | None, rows: Rows) -> bool:
        full_bytes = self.full_bytes
        is_due = False
        while True:
            lane = self._sticky if partition is None else self.lane(partition)
            gathered = self._with_room(lane, 0)
            some, size = rows, rows.size
            if gathered.size + size > full_bytes:
                # As many as fill the batch, and the first may always join it.
                ends = list(accumulate(rows.sizes(), initial=gathered.size))
                some = rows.part(0, bisect_left(ends, full_bytes, 1))
                size = ends[len(some.values)] - gathered.size
            gathered.extend(some)
            gathered.size += size
            self._ledger.buffered += size
            self.active[lane.partition] = lane
            is_due = is_due or gathered.since is None or gathered.size >= full_bytes
            if gathered.since is None:
                gathered.since = self.inbox.since
            if len(some.values) == len(rows.values):
                return is_due or self._ledger.buffered >= self._options.buffer_bytes
            rows = rows.part(len(some.values))
            self.cut(lane, gathered.since)

    def open_inbox(self, now: float) -> None:
        """Let records come in without the lock: as many as a batch and the buffer may still take."""
        inbox = self.inbox
        some = [lane.gathered for lane in self.active.values() if lane.gathered.since is not None]
        if not some:
            inbox.shut()
            return
        count, size = sum(len(gathered.values) for gathered in some), sum(gathered.size for gathered in some)
        inbox.since = now
        inbox.size_max = min(SMALL_BYTES, self.limit_bytes - 4 * RECORD_BYTES)
        rest = (self.full_bytes - max(gathered.size for gathered in some)) * count // size
        free_bytes = self._options.buffer_bytes - self._ledger.buffered
        inbox.room = max(0, min(rest, free_bytes // (SMALL_BYTES + 4 * RECORD_BYTES)))

    def add_batch(self, partition: int | None, make: Callable[[Producer], Batch], count: int, now: float) -> None:
        """A batch by itself, behind what is gathered. `make` builds it once its numbers are known."""
        self.collect()
        lane = self._sticky if partition is None else self.lane(partition)
        self.cut(lane, now)
        self._build(lane, make, count, now, None)
        if partition is None:
            self._unstick()

    def add_values(self, values: list[bytes | None], size: int) -> None:
        """Values alone, less than a batch of them, in the partition of the last batch."""
        self.collect()
        lane = self._sticky
        gathered = lane.gathered
        gathered.extend(Rows(values))
        gathered.size += size
        self._ledger.buffered += size
        self.active[lane.partition] = lane

    def partition_of(self, key: bytes | None, channel: str | None) -> int | None:
        """None where it does not matter, or nobody knows yet."""
        if self.partitions == 1:
            return None
        named = key if key is not None else channel.encode() if channel else None
        if named is None or self._partitions is None:
            return None
        return partition_of(named, self._partitions)

    @property
    def partitions(self) -> int:
        """Among how many to choose; 1 where there is no choice, or not yet."""
        return 1 if self._options.partition is not None else self._partitions or 1

    def _choose(self, key: bytes | None, channel: str | None) -> Lane:
        partition = self.partition_of(key, channel)
        return self._sticky if partition is None else self.lane(partition)

    def _unstick(self) -> None:
        if self.partitions > 1:
            self._sticky = self.lane(random.randrange(self.partitions))

    def cut(self, lane: Lane, now: float) -> None:
        """What the lane has gathered becomes a batch."""
        gathered = lane.gathered
        lane.urgent = False
        if not gathered.values:
            return
        lane.gathered = Gathered()
        self._ledger.buffered -= gathered.size
        since = now if gathered.since is None else gathered.since
        codec = self._options.codec
        try:
            count, waiters = len(gathered.values), gathered.waiters
            self._build(lane, lambda producer: gathered.build(codec, producer), count, since, waiters)
        except LogboomError as error:
            self._ledger.buffered += gathered.size
            self._ledger.fail(gathered, error)
        if lane is self._sticky:
            self._unstick()

    def _build(
        self,
        lane: Lane,
        make: Callable[[Producer], Batch],
        count: int,
        since: float,
        waiters: list[tuple[int, Waiter]] | None,
    ) -> None:
        producer = lane.producer
        batch = make(producer)
        lane.advance(count)
        self.enqueue(lane, Parcel(batch.data, count, producer, since, waiters))
        self._ledger.buffered += len(batch.data)

    def enqueue(self, lane: Lane, parcel: Parcel) -> None:
        lane.queue.append(parcel)
        self.active[lane.partition] = lane

    def know(self, name: str, partitions: int) -> None:
        """So many there are. Raises PartitionNotFound where the writer's own is none of them."""
        if self._partitions is not None:
            return
        self._partitions = partitions
        fixed = self._options.partition
        if fixed is not None:
            if fixed >= partitions:
                raise PartitionNotFound(name, fixed, partitions)
            return
        self._sticky = self.lane(random.randrange(partitions))

    def undecided(self) -> Lane | None:
        """The lane without a number, now that there are numbers; it is forgotten here."""
        if self._partitions is None:
            return None
        self.active.pop(None, None)
        return self._lanes.pop(None, None)

    def restore(self, undecided: Lane) -> None:
        """It could not be dealt out: whoever waits there is to be told."""
        self._lanes[None] = self.active[None] = undecided

    def adopt(self, undecided: Lane) -> None:
        """There is one partition: what was undecided is its."""
        self._sticky.adopt(undecided)
        if not self._sticky.is_idle:
            self.active[self._sticky.partition] = self._sticky

    def deal(self, parcel: Parcel, data: Buffer) -> list[tuple[Lane, Parcel]]:
        """The records of an undecided parcel, as parcels in the lanes they belong to."""
        batch = Batch.parse(data)
        waiters, parcel.waiters = dict(parcel.waiters or ()), None
        timeless = batch.header.min_timestamp == NO_TIMESTAMP
        if parcel.place is None:
            self._ledger.buffered -= parcel.size
        for number, record in enumerate(batch.records()):
            moment = None if timeless and not record.timestamp else record.timestamp
            fields = (record.key, moment, record.channel, record.tags, record.headers)
            try:
                self._add(record.value, *fields, waiters.get(number))
            except LogboomError as error:  # the node takes less than we thought
                self._ledger.refuse(waiters.get(number), error)
        made = []
        for lane in [lane for lane in self.active.values() if lane.gathered.values]:
            self.cut(lane, parcel.since)
            made.append((lane, lane.queue[-1]))
        parcel.parts = [part for _, part in made]
        return made

    def pass_on(self, gathered: Gathered) -> None:
        """Undecided records that are no parcel yet."""
        if gathered.values:
            self._ledger.buffered -= gathered.size
            batch = gathered.build("none", Producer())
            parcel = Parcel(batch.data, len(gathered.values), Producer(), gathered.since or 0.0, gathered.waiters)
            self._ledger.buffered += parcel.size
            self.deal(parcel, batch.data)
