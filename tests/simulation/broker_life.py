"""The life of a broker on a simulated machine: it is written to, read, killed and started again, for hours.

Who writes and reads knows what was promised; after each start the logs are compared with that:

- what was acknowledged as durable is at the seqno that was said, once; records of one writer are in their order
- seqnos are dense, no record is there twice, and none that nobody sent
- what a reader has seen is still there; where flush = os only a power loss takes it back, and then the bookmark says so
- a publish is in all of its logs or in none, and its cursor stands where the last one that is there has moved it

Everything depends on the seed alone; `digest` is of all that was seen and said, and when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Final

import pytest

from logboom.batch import Batch, Producer, build
from logboom.broker.api import Acks, CursorMove, Part, PublishKey, ReadRequest, Start
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.errors import BookmarkLost, LogboomError, TopicNotFound, UnexpectedSeqno
from logboom.storage import Appended
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from logboom.storage.data.topic import FlushSettings, SegmentSettings, Settings
from simulation.machine import SimulatedMachine
from support.disks.simulated import SimulatedDisk
from support.simulation.staged import ROOT, fill, killed, plain_parts

CONFIG: Final = BrokerConfig(
    upkeep=UpkeepSettings(
        recompress_bytes_per_second=64 * 1024,
        scrub_bytes_per_second=16 * 1024,
        scrub_every_ms=60_000,
        retention_every_ms=60_000,
    ),
    reserve_bytes=0,
)
SMALL: Final = SegmentSettings(bytes=32 * 1024)
TOPICS: Final = {
    "each": Settings(flush=FlushSettings("each"), segment=SMALL),
    "interval": Settings(flush=FlushSettings("interval", 500)),
    "os": Settings(flush=FlushSettings("os"), segment=SMALL),
}
PUBLISHED_TO: Final = ("each", "interval")
CURSOR: Final = "sink"
"""Each publish moves it by one."""
LIFE_S: Final = 200.0
PAUSE_S: Final = 80.0
"""So long a writer is silent between two bursts, on average."""


@dataclass
class Known:
    """What the world outside knows of one log."""

    sent: set[bytes] = field(default_factory=set)
    durable: dict[int, bytes] = field(default_factory=dict)
    """Acknowledged as durable, by seqno."""
    seen: list[bytes] = field(default_factory=list)
    """By readers, from seqno 0 on."""
    bookmark: str | None = None
    """Behind the last of these."""
    lost: list[str] = field(default_factory=list)
    """Bookmarks behind what was taken back."""
    is_made: bool = False


@dataclass
class Stream:
    """A producer that sends what is not acknowledged again, over all lives."""

    topic: str
    producer_id: int = 0
    next: int = 0
    """Number of the first record that is not acknowledged."""

    def batch(self, number: int) -> Batch:
        producer = Producer(self.producer_id, 0, number)
        return Batch.parse(bytes(build([b"stream/%d" % number], producer=producer).data))


class BrokerLife:
    def __init__(self, seed: int, seconds: float = 10_000.0) -> None:
        self.lives = self.power_losses = self.records = self.taken_back = 0
        self._seed = seed
        self._seconds = seconds
        self._chance = Random(f"{seed}/fate")
        self._disk = SimulatedDisk()
        self._now_s, self._ahead_us = 0.0, 0
        self._end = "close"
        self._logs = {topic: Known() for topic in TOPICS}
        self._streams = [Stream(topic) for topic in TOPICS]
        self._published = 0
        self._digest = sha256()

    def run(self) -> str:
        """Raises AssertionError where something promised does not hold. The digest of the whole history."""
        while self._now_s < self._seconds:
            self._live(self._chance.choices(("power", "kill", "close"), (6, 2, 2))[0])
        self._live("close", lasts_s=0.0)
        for path, inode in sorted(self._disk.names.items()):
            if path != f"{ROOT}/lock":  # it names this process
                self._note(path, bytes(inode.cached))
        return self._digest.hexdigest()

    def _note(self, *what: object) -> None:
        self._digest.update(repr((self._now_s, *what)).encode())

    def _live(self, end: str, lasts_s: float | None = None) -> None:
        self.lives += 1
        chance = Random(f"{self._seed}/{self.lives}")
        machine = SimulatedMachine(self._disk, f"{self._seed}/{self.lives}", self._now_s, self._ahead_us)
        if lasts_s is None:
            lasts_s = chance.expovariate(1 / LIFE_S)
            if end == "power" and chance.random() < 0.15:
                machine.die_in(chance.randrange(1, 60))  # while it opens
        machine.run(_Visit(self, machine, chance).live(end, lasts_s))
        self._now_s, self._ahead_us = machine.ended_s, machine.ahead_us
        self._disk = machine.disk.power_loss(chance) if end == "power" else killed(machine.disk)
        self.power_losses += end == "power"
        self._end = end


class _Visit:
    """One life, and who is there while it lasts."""

    def __init__(self, life: BrokerLife, machine: SimulatedMachine, chance: Random) -> None:
        self._life = life
        self._machine = machine
        self._chance = chance
        self._logs = life._logs
        self._stopping = False

    def _note(self, *what: object) -> None:
        if not self._machine.died:
            self._life._now_s = self._machine.loop.time()
            self._life._note(*what)

    async def live(self, end: str, lasts_s: float) -> None:
        broker = await LocalBroker.open(ROOT, CONFIG, disk=self._machine.disk, world=self._machine.world)
        self._note("opened", broker.recovered)
        await self._make_topics(broker)
        await self._compare_publishes(broker, {topic: await self._compare(broker, topic) for topic in TOPICS})
        async with asyncio.TaskGroup() as group:
            if lasts_s:
                self._begin(broker, group)
            await asyncio.sleep(lasts_s)
            if end == "power":
                self._machine.die_in(self._chance.randrange(1, 20), f"{ROOT}/topics/")
                await asyncio.sleep(3600)
                self._machine.die()
            elif end == "kill":
                self._machine.die()
            self._stopping = True
        if not self._machine.died:
            await broker.close()
            self._note("closed")

    def _begin(self, broker: LocalBroker, group: asyncio.TaskGroup) -> None:
        number = self._life.lives
        for stream in self._life._streams:
            group.create_task(self._send_stream(broker, stream, Random(f"{self._life._seed}/{number}/{stream.topic}")))
        for topic in TOPICS:
            for acks in ("none", "leader", "durable"):
                chance = Random(f"{self._life._seed}/{number}/{topic}/{acks}")
                group.create_task(self._append(broker, topic, acks, chance))
            for rival in range(2):
                chance = Random(f"{self._life._seed}/{number}/{topic}/rival/{rival}")
                group.create_task(self._compete(broker, topic, rival, chance))
            group.create_task(self._read(broker, topic))
        group.create_task(self._publish(broker, Random(f"{self._life._seed}/{number}/publish")))
        group.create_task(self._turn_clock(Random(f"{self._life._seed}/{number}/clock")))

    async def _make_topics(self, broker: LocalBroker) -> None:
        for topic, settings in TOPICS.items():
            try:
                await broker.describe_topic(topic)
            except TopicNotFound:
                assert not self._logs[topic].is_made, f"topic {topic} is gone"
                await broker.create_topic(topic, 1, settings)
            self._logs[topic].is_made = True

    # Who writes and reads.

    async def _append(self, broker: LocalBroker, topic: str, acks: Acks, chance: Random) -> None:
        """Bursts of records that are sent once."""
        number = 0
        while not self._stopping:
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            burst = []
            for _ in range(chance.randrange(1, 6)):
                size = chance.choice((0, 0, 100, 2000))
                values = [
                    b"%s/%d/%d" % (acks.encode(), self._life.lives, number + at) + b" " * size
                    for at in range(chance.randrange(1, 4))
                ]
                number += len(values)
                self._logs[topic].sent.update(values)
                burst.append((values, broker.append([Part(topic, [build(values)])], acks)))
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.expovariate(300.0))
            for values, promise in burst:
                self._take(topic, values, (await promise)[0], acks)

    def _take(self, topic: str, values: Sequence[bytes], answer: Appended | LogboomError, acks: Acks) -> None:
        if self._machine.died:
            return
        self._note(topic, values, answer)
        assert isinstance(answer, Appended), f"{topic}: {values[0][:40]!r} was refused: {answer}"
        assert answer.record_count == len(values)
        if acks == "durable":
            self._keep(topic, values, answer.base_seqno)

    def _keep(self, topic: str, values: Sequence[bytes], seqno: int) -> None:
        durable = self._logs[topic].durable
        for at, value in enumerate(values, seqno):
            assert durable.setdefault(at, value) == value, f"{topic}: seqno {at} was given twice"

    async def _send_stream(self, broker: LocalBroker, stream: Stream, chance: Random) -> None:
        """Some at a time, again and again until they are acknowledged, at times although they were."""
        stream.producer_id = stream.producer_id or broker.issue_id()
        while not self._stopping:
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            numbers = range(stream.next, stream.next + chance.randrange(1, 5))
            again = range(max(0, stream.next - chance.randrange(3)), stream.next)
            self._logs[stream.topic].sent.update(b"stream/%d" % number for number in numbers)
            sent = [*again, *numbers]
            promises = [broker.append([Part(stream.topic, [stream.batch(number)])], "durable") for number in sent]
            for number, promise in zip(sent, promises, strict=True):
                self._take(stream.topic, [b"stream/%d" % number], (await promise)[0], "durable")
            if not self._machine.died:
                stream.next = numbers.stop

    async def _compete(self, broker: LocalBroker, topic: str, rival: int, chance: Random) -> None:
        """Appends only where nobody else was faster; the other one tries at the same moment."""
        number = 0
        while not self._stopping:
            await asyncio.sleep(PAUSE_S - self._machine.loop.time() % PAUSE_S)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.expovariate(300.0))
            value = b"rival %d/%d/%d" % (rival, self._life.lives, number)
            number += 1
            expected = (await broker.describe_topic(topic)).partitions[0].next
            self._logs[topic].sent.add(value)
            (answer,) = await broker.append([Part(topic, [build([value])], expect_seqno=expected)], "durable")
            if self._machine.died:
                return
            self._note(topic, value, answer)
            if isinstance(answer, Appended):
                assert answer.base_seqno == expected
                self._keep(topic, [value], expected)
            else:
                assert isinstance(answer, UnexpectedSeqno), str(answer)

    async def _publish(self, broker: LocalBroker, chance: Random) -> None:
        """One after the other; what a crash interrupts is published again under the same key."""
        while not self._stopping:
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            number = self._life._published
            values = {(topic, 0): published(number, topic) for topic in PUBLISHED_TO}
            for (topic, _), some in values.items():
                self._logs[topic].sent.update(some)
            key = PublishKey("sink", number)
            place, before = [await self._place(broker, at) for at in (number, number - 1)]
            moves = [CursorMove(CURSOR, PUBLISHED_TO[0], 0, place, before)]
            if number % 2:  # in one call, without a stage
                publication = await broker.publish_batches(key, plain_parts(values), moves)
            else:
                publication = await broker.publish(key, [(await fill(broker, values))[1]], moves)
            if self._machine.died:
                return
            self._note("published", number, publication)
            self._life._published += 1

    async def _place(self, broker: LocalBroker, number: int) -> str:
        """Where a publish moves the cursor: each by one, and no further than records were published before."""
        if number < 0:
            return ""
        topic_id = (await broker.describe_topic(PUBLISHED_TO[0])).id
        return str(Bookmark(bytes.fromhex(topic_id), 0, number, TERM_UNKNOWN))

    async def _read(self, broker: LocalBroker, topic: str) -> None:
        known = self._logs[topic]
        while not self._stopping:
            start = Start() if known.bookmark is None else Start(bookmark=known.bookmark)
            chunk = await broker.read(ReadRequest(topic, start, 0, wait_ms=30_000))
            if self._machine.died:
                return
            assert chunk.seqno == len(known.seen)
            known.seen += [record.value or b"" for record in chunk.records()]
            assert len(known.seen) == chunk.next_seqno
            known.bookmark = chunk.bookmark
            self._note(topic, "read", chunk.next_seqno)

    async def _turn_clock(self, chance: Random) -> None:
        while not self._stopping:
            await asyncio.sleep(chance.expovariate(1 / 500))
            self._machine.ahead_us += chance.randrange(-3_600_000_000, 3_600_000_000)

    # What must hold after a start.

    async def _compare(self, broker: LocalBroker, topic: str) -> set[bytes]:
        known = self._logs[topic]
        values: list[bytes] = []
        while True:
            chunk = await broker.read(ReadRequest(topic, Start(seqno=len(values)), 0))
            for batch in chunk.batches():
                assert batch.header.base_seqno == len(values), f"{topic}: seqnos are not dense"
                values += [value or b"" for value in batch.values()]
            assert len(values) == chunk.next_seqno
            if chunk.at_end:
                break
        self._life.records = max(self._life.records, len(values))
        self._note(topic, "holds", len(values), values[-3:])
        assert len(set(values)) == len(values), f"{topic}: a record is there twice"
        assert known.sent.issuperset(values), f"{topic}: a record is there that nobody sent"
        for seqno, value in known.durable.items():
            assert values[seqno : seqno + 1] == [value], f"{topic}: {seqno} was durable and is not there"
        _check_orders(topic, values)
        if values[: len(known.seen)] != known.seen:
            self._take_back(topic, known)
        for bookmark in known.lost:
            with pytest.raises(BookmarkLost):
                await broker.read(ReadRequest(topic, Start(bookmark=bookmark), 0))
        return set(values)

    def _take_back(self, topic: str, known: Known) -> None:
        """Readers have seen what is not there any more: their bookmarks must say so for ever."""
        assert topic == "os", f"{topic}: what was seen is gone"
        assert self._life._end == "power", f"{topic}: what was seen is gone after {self._life._end}"
        assert known.bookmark is not None
        self._life.taken_back += 1
        known.lost.append(known.bookmark)
        known.seen, known.bookmark = [], None

    async def _compare_publishes(self, broker: LocalBroker, found: dict[str, set[bytes]]) -> None:
        """Opening has finished what was begun: of a publish there is everything or nothing."""
        done, last = self._life._published, -1
        for number in range(done + 1):
            there = [value in found[topic] for topic in PUBLISHED_TO for value in published(number, topic)]
            assert all(there) or (number == done and not any(there)), f"publish {number} is there in part"
            last = number if all(there) else last
        cursor = await broker.fetch_cursor(CURSOR, PUBLISHED_TO[0], 0)
        assert (cursor or "") == await self._place(broker, last), f"the cursor is not where publish {last} moved it"


def published(number: int, topic: str) -> list[bytes]:
    return [b"publish/%d/%s" % (number * 5 + at, topic.encode()) for at in range(5)]


def _check_orders(topic: str, values: Sequence[bytes]) -> None:
    """Records of one writer are in the order in which it sent them; of those that send again none is missing."""
    last: dict[bytes, int] = {}
    for value in values:
        writer, _, number = value.strip().removesuffix(b"/" + topic.encode()).rpartition(b"/")
        before, now = last.get(writer, -1), int(number)
        assert before < now, f"{topic}: {value[:40]!r} comes after {before}"
        if writer in (b"stream", b"publish"):
            assert before + 1 == now, f"{topic}: {writer!r} has no {before + 1}"
        last[writer] = now
