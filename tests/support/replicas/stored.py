"""What a broker has stored of a log, and whether a copy of it is equal."""

from __future__ import annotations

from logboom.batch import Batch
from logboom.batch.rewrite import equal
from logboom.broker.local import LocalBroker


async def stored(broker: LocalBroker, topic: str, partition: int | None = None) -> dict[int, Batch]:
    """Every batch there is, control batches too, by its index."""
    feed = await broker.feed(topic, partition, 0)
    found: dict[int, Batch] = {}
    while True:
        piece = await feed.next(wait_ms=0)
        for batch in split(bytes(piece.data)):
            found[batch.header.index] = batch
        if piece.next_index > piece.committed_index:
            return found


def split(data: bytes) -> list[Batch]:
    found, offset = [], 0
    while offset < len(data):
        found.append(Batch.parse(memoryview(data)[offset:]))
        offset += found[-1].header.size
    return found


def are_equal(one: dict[int, Batch], other: dict[int, Batch]) -> bool:
    """Whether both end with the same batch, and are equal where both have something."""
    both = one.keys() & other.keys()
    if max(one, default=0) != max(other, default=0) or (one and other and not both):
        return False
    return all(equal(one[index], other[index]) for index in both)
