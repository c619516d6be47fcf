"""A writer's spill file as its lanes see it: parcels go there in their order, and are read back when they are sent.

In each lane the parcels in the file come before those in memory. So a lane drains what was spilled first, and when more
has to be spilled it goes behind what is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from logboom.batch.header import Buffer, Producer
from logboom.client.lane import Lane, Parcel, State
from logboom.client.spill import Label, Spill
from logboom.errors import ConfigError

Pair = tuple[Lane, Parcel]


class Overflow:
    def __init__(self, spill: Spill, topic: str) -> None:
        self._spill = spill
        self._topic = topic
        self.topic_id: str | None = None
        """Of the topic that what was found is for."""

    @property
    def path(self) -> str:
        return self._spill.path

    def __len__(self) -> int:
        return len(self._spill)

    def recover(self) -> Iterator[tuple[int | None, Parcel]]:
        """What an earlier process has left, in order."""
        for label, place, batch in self._spill.found:
            if label.topic != self._topic:
                raise ConfigError("spill", f"{self.path} holds records for topic {label.topic!r}: write them first")
            self.topic_id = label.topic_id or self.topic_id
            header = batch.header
            producer = Producer(header.producer_id, header.producer_epoch, header.producer_seq)
            parcel = Parcel(batch.data, header.record_count, producer, 0.0)
            parcel.data, parcel.place, parcel.doubt = None, place, label.doubt
            yield label.partition, parcel
        self._spill.found.clear()

    def load(self, parcel: Parcel) -> Buffer:
        assert parcel.place is not None
        return self._spill.read(parcel.place)

    def sending(self, parcel: Parcel) -> None:
        if parcel.place is not None:
            self._spill.sending(parcel.place)

    def take(self, lanes: Iterable[Lane], topic_id: str | None) -> int:
        """Spill what is in memory, as far as there is room. Returns the bytes that are safe now.

        Raises OSError where the disk does not take them.
        """
        pairs: list[Pair] = []
        size = 0
        for lane in lanes:
            for parcel in lane.queue:
                if parcel.place is not None or parcel.state is State.SETTLED:
                    continue
                if not self._spill.has_room(size + parcel.size + 1024 * len(pairs)):
                    break
                pairs.append((lane, parcel))
                size += parcel.size
        if pairs:
            places = self._spill.append([self._entry(lane, parcel, topic_id) for lane, parcel in pairs])
            for (_, parcel), place in zip(pairs, places, strict=True):
                parcel.place, parcel.data = place, None
        return size

    def settle(self, parcel: Parcel) -> None:
        if parcel.place is not None:
            self._spill.settle(parcel.place)

    def rewrite(self, pairs: Iterable[Pair], load: Callable[[Parcel], Buffer], topic_id: str | None) -> None:
        """The file anew, with these parcels and as they are numbered now."""
        kept: list[Parcel] = []

        def entries() -> Iterator[tuple[Label, Buffer]]:
            for lane, parcel in pairs:
                kept.append(parcel)
                entry = self._entry(lane, parcel, topic_id, load)
                parcel.data = None
                yield entry

        for place, parcel in zip(self._spill.replace(entries()), kept, strict=True):
            parcel.place = place

    def close(self) -> None:
        self._spill.close()

    def _entry(
        self, lane: Lane, parcel: Parcel, topic_id: str | None, load: Callable[[Parcel], Buffer] | None = None
    ) -> tuple[Label, Buffer]:
        label = Label(self._topic, topic_id, lane.partition, parcel.doubt)
        data = parcel.data if load is None else load(parcel)
        assert data is not None
        return label, data
