"""A second broker, in memory: logs are lists of batches, and a test decides when a promise is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from logboom.batch.header import STAGED_IDS
from logboom.broker.api import (
    Acks,
    Activity,
    ActivityRequest,
    Answer,
    Appended,
    Chunk,
    CursorInfo,
    CursorMove,
    History,
    Incident,
    KeyInfo,
    LogPlace,
    Measures,
    NodeStats,
    Outcome,
    Part,
    PartitionInfo,
    Publication,
    PublishedPart,
    PublishKey,
    ReadRequest,
    Receipt,
    SegmentInfo,
    Settings,
    StageInfo,
    TopicHistory,
    TopicInfo,
    call_when_done,
)
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.monitor.activity import Percentiles
from logboom.broker.monitor.measures import Histogram
from logboom.errors import BatchError, StageNotFound, TopicNotFound
from support.brokers.memory_access import MemoryAccess
from support.brokers.memory_groups import MemoryGroups

TOPIC_ID = "00112233445566778899aabbccddeeff"


class MemoryLog:
    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.next = 0
        self.news = asyncio.Event()

    def append(self, data: bytes, count: int) -> Appended:
        self.batches.append((self.next, data))
        self.next += count
        self.news.set()
        return Appended(self.next - count, count, len(self.batches), 1_000_000 * len(self.batches))

    def read(self, seqno: int, max_bytes: int) -> tuple[bytes, int]:
        """At least one batch, if there is one."""
        found, following = b"", seqno
        for number, (first, data) in enumerate(self.batches):
            if first >= seqno and (not found or len(found) + len(data) <= max_bytes):
                found += data
                following = self.batches[number + 1][0] if number + 1 < len(self.batches) else self.next
        return found, following


class MemoryBroker(MemoryAccess, MemoryGroups):
    def __init__(self, hold: bool = False) -> None:
        self.logs: dict[str, MemoryLog] = {}
        self.hold = hold
        self.held: list[tuple[asyncio.Future[list[Answer]], list[Answer]]] = []
        self.appends: list[tuple[Sequence[Part], Acks | None]] = []
        self.callers: list[Caller] = []
        """Of the appends."""
        self.stages: dict[str, dict[str, MemoryLog]] = {}
        """By id; what each has for which topic."""
        self.keys: dict[str, Publication] = {}
        self.reads = 0
        self.open_subscriptions = 0
        self.greatest_ask = 0
        self.refusal = ""

    def log(self, topic: str) -> MemoryLog:
        if topic not in self.logs:
            raise TopicNotFound(topic, "memory")
        return self.logs[topic]

    def append(
        self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller = EVERYBODY
    ) -> asyncio.Future[list[Answer]]:
        self.appends.append((parts, acks))
        self.callers.append(caller)
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        answers: list[Answer] = []
        for part in parts:
            for batch in part.batches:
                try:
                    batch.verify()
                    answers.append(self.log(part.topic).append(bytes(batch.data), len(batch)))
                except (BatchError, TopicNotFound) as error:
                    answers.append(error)
        if self.hold:
            self.held.append((future, answers))
        else:
            future.set_result(answers)
        return future

    def append_then(
        self, parts: Sequence[Part], acks: Acks | None, then: Callable[[Outcome], None], *, caller: Caller = EVERYBODY
    ) -> None:
        call_when_done(self.append(parts, acks, caller=caller), then)

    def release(self, number: int = 0) -> None:
        """Keep one of the promises."""
        future, answers = self.held.pop(number)
        future.set_result(answers)

    async def read(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> Chunk:
        self.reads += 1
        log = self.log(request.topic)
        seqno = request.start.seqno or 0
        if log.next <= seqno and request.wait_ms:
            log.news.clear()
            try:
                async with asyncio.timeout(request.wait_ms / 1000):
                    await log.news.wait()
            except TimeoutError:
                pass
        return self._chunk(log, seqno, request.max_bytes)

    def _chunk(self, log: MemoryLog, seqno: int, max_bytes: int) -> Chunk:
        data, following = log.read(seqno, max_bytes)
        return Chunk(TOPIC_ID, 0, seqno, following, 0, log.next, 0, memoryview(data))

    async def subscribe(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> MemorySubscription:
        return MemorySubscription(self, self.log(request.topic), request.start.seqno or 0)

    async def locate(self, request: ReadRequest, *, caller: Caller = EVERYBODY) -> list[LogPlace]:
        log = self.log(request.topic)
        return [LogPlace(request.topic, TOPIC_ID, 0, request.start.seqno or 0, 0, log.next, 1)]

    def _info(self, name: str) -> TopicInfo:
        log = self.log(name)
        return TopicInfo(name, TOPIC_ID, [PartitionInfo(0, 0, log.next, log.next)], Settings())

    async def create_topic(
        self, name: str, partitions: int | None = None, settings: Settings | None = None, *, caller: Caller = EVERYBODY
    ) -> TopicInfo:
        self.logs[name] = MemoryLog()
        return self._info(name)

    async def configure_topic(self, name: str, settings: Settings, *, caller: Caller = EVERYBODY) -> TopicInfo:
        return self._info(name)

    async def describe_topic(self, name: str, create: bool = False, *, caller: Caller = EVERYBODY) -> TopicInfo:
        return self._info(name)

    async def list_topics(
        self, prefix: str = "", internal: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[TopicInfo]:
        return [self._info(name) for name in self.logs if name.startswith(prefix)]

    async def delete_topic(self, name: str, topic_id: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        del self.logs[name]  # a KeyError where there is none: what a bug looks like

    async def trim(self, topic: str, partition: int | None, seqno: int, *, caller: Caller = EVERYBODY) -> PartitionInfo:
        return self._info(topic).partitions[0]

    async def commit_cursor(
        self,
        cursor: str,
        topic: str,
        partition: int | None,
        bookmark: str,
        force: bool = False,
        expect: str | None = None,
        *,
        caller: Caller = EVERYBODY,
    ) -> None:
        pass

    async def fetch_cursor(
        self, cursor: str, topic: str, partition: int | None = None, *, caller: Caller = EVERYBODY
    ) -> str | None:
        return None

    async def list_cursors(
        self, topic: str | None = None, prefix: str = "", *, caller: Caller = EVERYBODY
    ) -> list[CursorInfo]:
        return []

    async def delete_cursor(self, cursor: str, topic: str | None = None, *, caller: Caller = EVERYBODY) -> int:
        return 0

    async def refuse(self, topic: str | None = None, reason: str = "", *, caller: Caller = EVERYBODY) -> None:
        self.refusal = reason

    async def accept(self, topic: str | None = None, *, caller: Caller = EVERYBODY) -> None:
        self.refusal = ""

    async def stats(self, *, caller: Caller = EVERYBODY) -> NodeStats:
        return NodeStats("n", "c", "0", 0, 0, len(self.logs), len(self.logs), {}, {}, {}, {})

    async def measures(self, *, caller: Caller = EVERYBODY) -> Measures:
        return Measures({}, {}, Histogram().shown())

    async def history(self, since: int = 0, *, caller: Caller = EVERYBODY) -> History:
        nothing = Percentiles([], [])
        return History(2000, [], [], [], [], [], nothing, nothing, nothing, [], [], [], [], [], [])

    async def activity(self, request: ActivityRequest, *, caller: Caller = EVERYBODY) -> Activity:
        return Activity(2000, len(self.logs), 0, [])

    async def topic_history(self, topic: str, *, caller: Caller = EVERYBODY) -> TopicHistory:
        return TopicHistory(2000, [], [], [], [])

    async def segments(
        self, topic: str, partition: int | None = None, limit: int = 1000, *, caller: Caller = EVERYBODY
    ) -> list[SegmentInfo]:
        return []

    async def incidents(self, *, caller: Caller = EVERYBODY) -> list[Incident]:
        return []

    async def promote(self, *, caller: Caller = EVERYBODY) -> None:
        self.refusal = ""

    async def open_stage(self, note: str = "", *, caller: Caller = EVERYBODY) -> StageInfo:
        number = len(self.stages) + 1
        stage = f"{number:032x}"
        self.stages[stage] = {}
        return StageInfo(stage, STAGED_IDS + number, 1_000_000, 1_000_000, 2_000_000, note=note)

    def stage(self, stage: str, parts: Sequence[Part], *, caller: Caller = EVERYBODY) -> asyncio.Future[list[Answer]]:
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        answers: list[Answer] = []
        for part in parts:
            for batch in part.batches:
                if stage in self.stages:
                    log = self.stages[stage].setdefault(part.topic, MemoryLog())
                    answers.append(log.append(bytes(batch.data), len(batch)))
                else:
                    answers.append(StageNotFound(stage))
        future.set_result(answers)
        return future

    async def publish(
        self,
        key: PublishKey,
        stages: Sequence[Receipt],
        moves: Sequence[CursorMove] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> Publication:
        parts = []
        for receipt in stages:
            if receipt.stage not in self.stages:
                raise StageNotFound(receipt.stage)
            for topic, staged in self.stages.pop(receipt.stage).items():
                log = self.log(topic)
                first = log.next
                ends = [number for number, _ in staged.batches[1:]] + [staged.next]
                for (number, data), end in zip(staged.batches, ends, strict=True):
                    log.append(data, end - number)
                parts.append(PublishedPart(topic, TOPIC_ID, 0, first, log.next, staged.next))
        self.keys[key.name] = Publication(key.name, key.number, False, parts)
        return self.keys[key.name]

    async def publish_batches(
        self,
        key: PublishKey,
        parts: Sequence[Part],
        moves: Sequence[CursorMove] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> Publication:
        logs = [self.log(part.topic) for part in parts]
        published = []
        for part, log in zip(parts, logs, strict=True):
            first = log.next
            for batch in part.batches:
                log.append(bytes(batch.data), len(batch))
            published.append(PublishedPart(part.topic, TOPIC_ID, 0, first, log.next, log.next - first))
        self.keys[key.name] = Publication(key.name, key.number, False, published)
        return self.keys[key.name]

    async def discard(self, stages: Sequence[str], *, caller: Caller = EVERYBODY) -> int:
        return sum(self.stages.pop(stage, None) is not None for stage in stages)

    async def list_stages(self, *, caller: Caller = EVERYBODY) -> list[StageInfo]:
        return [StageInfo(stage, STAGED_IDS, 0, 0, 0) for stage in self.stages]

    async def list_keys(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[KeyInfo]:
        return [KeyInfo(name, kept.number, 0, 0) for name, kept in self.keys.items() if name.startswith(prefix)]

    async def forget_key(self, name: str, *, caller: Caller = EVERYBODY) -> bool:
        return self.keys.pop(name, None) is not None


class MemorySubscription:
    def __init__(self, broker: MemoryBroker, log: MemoryLog, seqno: int) -> None:
        self._broker = broker
        self._log = log
        self._seqno = seqno
        broker.open_subscriptions += 1

    async def next(self, max_bytes: int = 0) -> Chunk:
        self._broker.greatest_ask = max(self._broker.greatest_ask, max_bytes)
        while self._log.next <= self._seqno:
            self._log.news.clear()
            await self._log.news.wait()
        chunk = self._broker._chunk(self._log, self._seqno, max_bytes)
        self._seqno = chunk.next_seqno
        return chunk

    async def close(self) -> None:
        self._broker.open_subscriptions -= 1
