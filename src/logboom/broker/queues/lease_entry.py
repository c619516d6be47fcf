"""A queue's records as they are kept: entries of the internal topic `_queues`.

For each log of a group there is a head, below which all is done, and an entry for each block of records that are not
done, or were not when it was written. Heads are written before blocks below them are removed.

Times are kept in milliseconds since 1970, and are the node's own again when they are read: a lease that was long when
the clock was set lasts no longer than a lease may.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from logboom.broker.queues.lease_table import DONE, LeaseRun

TOPIC: Final = "_queues"
FILE: Final = "queues"
"""Its snapshot, below DATA/internal."""
LIMIT: Final = "limits.queue_blocks"
_SEPARATOR: Final = b"\0"
_HEAD_BYTES: Final = 16 + 4
_NUMBER_BYTES: Final = 8


class QueueLogId(NamedTuple):
    """A log as one group works on it."""

    group: str
    topic_id: str
    partition: int


class QueueHead(msgspec.Struct, frozen=True, array_like=True):
    """Fields may be added with defaults; never moved."""

    base: int


class _Block(msgspec.Struct, frozen=True, array_like=True):
    """Fields may be added with defaults; never moved."""

    members: list[str]
    runs: list[list[int]]
    """Count, state, tries, number of the member, milliseconds: zeros at the end are left out."""


_head = msgspec.msgpack.Decoder(QueueHead)
_block = msgspec.msgpack.Decoder(_Block)


def head_key(log: QueueLogId) -> bytes:
    return b"".join((log.group.encode(), _SEPARATOR, bytes.fromhex(log.topic_id), log.partition.to_bytes(4, "big")))


def block_key(log: QueueLogId, number: int) -> bytes:
    return head_key(log) + number.to_bytes(_NUMBER_BYTES, "big")


def split_key(key: bytes) -> tuple[QueueLogId, int | None]:
    """The log, and the number of the block; None for the head."""
    group, _, rest = key.partition(_SEPARATOR)
    partition = int.from_bytes(rest[_HEAD_BYTES - 4 : _HEAD_BYTES], "big")
    number = int.from_bytes(rest[_HEAD_BYTES:], "big") if len(rest) > _HEAD_BYTES else None
    return QueueLogId(group.decode(), rest[: _HEAD_BYTES - 4].hex(), partition), number


def encode_head(base: int) -> bytes:
    return msgspec.msgpack.encode(QueueHead(base))


def decode_head(value: bytes) -> int:
    return _head.decode(value).base


def encode_block(runs: list[LeaseRun], ahead_ms: int) -> bytes:
    """`ahead_ms` is what the calendar is ahead of the node's clock."""
    members: dict[str, int] = {}
    kept = []
    for count, state, tries, member, until_ms in runs:
        if state == DONE:
            kept.append([count, state])
            continue
        run = [count, state, tries]
        if until_ms or member:
            run += [members.setdefault(member, len(members)), until_ms + ahead_ms]
        kept.append(run)
    return msgspec.msgpack.encode(_Block(list(members), kept))


def decode_block(value: bytes, ahead_ms: int, latest_ms: int) -> list[LeaseRun]:
    block = _block.decode(value)
    runs = []
    for count, state, tries, member, until_ms in ([*run, *([0] * (5 - len(run)))] for run in block.runs):
        name = block.members[member] if until_ms else ""
        runs.append(LeaseRun(count, state, tries, name, min(until_ms - ahead_ms, latest_ms) if until_ms else 0))
    return runs
