"""Parcels in memory and, where there is a spill file, on disk: what is where, and how its bytes are found.

In each lane the parcels in the file come before those in memory. So a lane drains what was spilled first, and when more
has to be spilled it goes behind what is there already. A parcel keeps its bytes in one place only: those in the file
are read when they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from logboom.batch import Batch
from logboom.batch.header import Buffer, Producer
from logboom.batch.rewrite import without_producer
from logboom.client.write.gathered import Gathered
from logboom.client.write.lane import Lane, LaneState, Parcel
from logboom.client.write.ledger import WriterLedger
from logboom.client.write.router import Router
from logboom.client.write.spill import Label, Spill
from logboom.errors import ConfigError

Pair = tuple[Lane, Parcel]


class Overflow:
    def __init__(self, routing: Router, ledger: WriterLedger, spill: Spill | None) -> None:
        self._routing = routing
        self._ledger = ledger
        self._spill = spill
        self.topic_id: str | None = None
        """Of the topic everything in the file is for, once that is known."""
        for partition, parcel in self._recover(spill) if spill is not None else ():
            routing.enqueue(routing.home if partition is None else routing.lane(partition), parcel)

    @property
    def path(self) -> str | None:
        return None if self._spill is None else self._spill.path

    def __len__(self) -> int:
        """Batches in the file."""
        return 0 if self._spill is None else len(self._spill)

    def _recover(self, spill: Spill) -> Iterator[tuple[int | None, Parcel]]:
        """What an earlier process has left, in order."""
        for label, place, batch in spill.found:
            if label.topic != self._ledger.topic:
                raise ConfigError("spill", f"{spill.path} holds records for topic {label.topic!r}: write them first")
            self.topic_id = label.topic_id or self.topic_id
            header = batch.header
            producer = Producer(header.producer_id, header.producer_epoch, header.producer_seq)
            parcel = Parcel(batch.data, header.record_count, producer, 0.0)
            parcel.data, parcel.place, parcel.doubt = None, place, label.doubt
            yield label.partition, parcel
        spill.found.clear()

    def load(self, parcel: Parcel) -> Buffer:
        """The batch as it is numbered now."""
        data = parcel.data
        if data is None:
            assert self._spill is not None
            assert parcel.place is not None
            data = self._spill.read(parcel.place)
        return _numbered(data, parcel.producer)

    def sending(self, parcel: Parcel) -> None:
        if parcel.place is not None and self._spill is not None:
            self._spill.sending(parcel.place)

    def settle(self, parcel: Parcel) -> None:
        if parcel.place is not None and self._spill is not None:
            self._spill.settle(parcel.place)

    def take(self, now: float) -> bool:
        """Put on disk what is in memory, as far as there is room. Raises OSError where the disk does not take it."""
        if self._spill is None:
            return False
        pairs: list[Pair] = []
        size = 0
        for lane in list(self._routing.active.values()):
            self._routing.cut(lane, now)
            for parcel in _in_memory(lane):
                if not self._spill.has_room(size + parcel.size + 1024 * len(pairs)):
                    break
                pairs.append((lane, parcel))
                size += parcel.size
        places = self._spill.append([self._entry(pair) for pair in pairs]) if pairs else []
        for (_, parcel), place in zip(pairs, places, strict=True):
            parcel.place, parcel.data = place, None
        self._ledger.buffered -= size
        return bool(pairs)

    def renumber(self, lane: Lane) -> None:
        """Parcels of this lane have new numbers. In the file they must have them before they are sent."""
        for parcel in lane.queue:
            if parcel.data is not None:
                parcel.data = self.load(parcel)
        if any(parcel.place is not None for parcel in lane.queue):
            self._rewrite(list(self._spilled()))

    def decide(self, partitions: int) -> None:
        """It is known how many partitions there are: what was undecided finds its lane."""
        undecided = self._routing.undecided()
        if undecided is None:
            return
        if partitions == 1:
            self._routing.adopt(undecided)
            return
        gathered, undecided.gathered = undecided.gathered, Gathered()
        spilled = [parcel for parcel in undecided.queue if parcel.place is not None]
        if spilled:
            try:
                self._rewrite(self._dealt(list(self._spilled()), spilled))
            except OSError:
                undecided.gathered = gathered
                self._routing.restore(undecided)
                raise
        for parcel in undecided.queue:
            if parcel.data is not None:
                self._routing.deal(parcel, parcel.data)
        self._routing.pass_on(gathered)

    def _dealt(self, known: list[Pair], spilled: list[Parcel]) -> Iterator[Pair]:
        yield from known
        for parcel in spilled:
            for lane, made in self._routing.deal(parcel, self.load(parcel)):
                self._ledger.buffered -= made.size
                yield lane, made

    def _spilled(self) -> Iterator[Pair]:
        for lane in self._routing.active.values():
            for parcel in lane.queue:
                if parcel.place is not None and parcel.state is not LaneState.SETTLED:
                    yield lane, parcel

    def _rewrite(self, pairs: Iterable[Pair]) -> None:
        """The file anew with these parcels, as they are numbered now. No parcel stays in memory while others follow."""
        assert self._spill is not None
        kept: list[Parcel] = []

        def entries() -> Iterator[tuple[Label, Buffer]]:
            for pair in pairs:
                kept.append(pair[1])
                yield self._entry(pair)
                pair[1].data = None

        for place, parcel in zip(self._spill.replace(entries()), kept, strict=True):
            parcel.place = place

    def _entry(self, pair: Pair) -> tuple[Label, Buffer]:
        lane, parcel = pair
        doubt = parcel.doubt or parcel.state is LaneState.SENT
        return Label(self._ledger.topic, self.topic_id, lane.partition, doubt), self.load(parcel)

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()


def _in_memory(lane: Lane) -> list[Parcel]:
    """They are behind those in the file, of which there may be very many."""
    found = list(takewhile(lambda parcel: parcel.place is None, reversed(lane.queue)))
    return [parcel for parcel in reversed(found) if parcel.state is not LaneState.SETTLED]


def _numbered(data: Buffer, producer: Producer) -> Buffer:
    batch = Batch.parse(data)
    header = batch.header
    if (header.producer_id, header.producer_epoch, header.producer_seq) == producer:
        return data
    return without_producer(batch, producer).data
