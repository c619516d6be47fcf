"""A broker on a simulated disk, for as long as its machine lives; and what staging looks like from outside."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

from logboom.batch import Batch, Producer, build
from logboom.broker.api import Appended, Part, Publication, PublishKey, ReadRequest, Receipt, StageInfo, Start
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import LogboomError, SyncFailed
from support.brokers.any_broker import AnyBroker
from support.disks.simulated import Call, Fault, PowerLoss, SimulatedDisk

ROOT = "/data"
Log = tuple[str, int]
Values = Mapping[Log, Sequence[bytes]]
"""What goes into which partition of which topic."""
Story = Callable[[LocalBroker], Awaitable[None]]


class Machine:
    """Runs stories. Once it has died no call of its disk does anything any more."""

    def __init__(self, disk: SimulatedDisk, fault: Fault | None = None) -> None:
        self.disk = disk
        self.died = False
        self._fault = fault
        self._death = threading.Event()
        self._dead: asyncio.Future[None] | None = None

    def run(self, story: Story, config: BrokerConfig | None = None, cut: bool = False) -> list[str]:
        """From opening the broker to closing it, or to the end of the machine. What the broker said when it opened.

        `cut` leaves it without closing, as a kill does.
        """
        self.disk.fault = self._look
        try:
            with asyncio.Runner() as runner:
                runner.get_loop().set_exception_handler(lambda *_: None)  # tasks of a machine that is gone
                return runner.run(self._run(story, config, cut))
        finally:
            self.disk.fault = _gone

    def _look(self, call: Call) -> int | None:
        if self._death.is_set():
            raise PowerLoss
        try:
            return self._fault(call) if self._fault is not None else None
        except PowerLoss:
            self._die()
            raise

    def _die(self) -> None:
        self._death.set()
        self.died = True
        if self._dead is not None:
            self._dead.get_loop().call_soon_threadsafe(_settle, self._dead)

    async def _run(self, story: Story, config: BrokerConfig | None, cut: bool) -> list[str]:
        self._dead = asyncio.get_running_loop().create_future()
        if self._death.is_set():
            return []
        brokers: list[LocalBroker] = []

        async def live() -> None:
            brokers.append(await LocalBroker.open(ROOT, config, disk=self.disk))
            await story(brokers[0])

        life = asyncio.create_task(live())
        async with asyncio.timeout(300):
            await asyncio.wait((life, self._dead), return_when=asyncio.FIRST_COMPLETED)
            if not self.died and life.done() and not cut:
                try:
                    life.result()
                finally:
                    if brokers:
                        await _close(brokers[0])
        if not self.died:
            life.result()
        self._death.set()
        for broker in brokers:
            for pool in broker._pools:
                pool.shutdown(wait=True, cancel_futures=True)
        return brokers[0].recovered if brokers else []


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _gone(call: Call) -> int | None:
    raise PowerLoss


async def _close(broker: LocalBroker) -> None:
    try:
        await broker.close()
    except SyncFailed:
        return  # as the story wanted


def killed(disk: SimulatedDisk) -> SimulatedDisk:
    """The disk as the next process finds it: what was not synced still may be lost."""
    left = SimulatedDisk()
    left.directories, left.free, left.calls = set(disk.directories), disk.free, 0
    left.names, left.durable_names, left.unsynced_names = copy.deepcopy(
        (disk.names, disk.durable_names, disk.unsynced_names)
    )
    return left


def tell(disk: SimulatedDisk, story: Story, config: BrokerConfig | None = None) -> list[str]:
    return Machine(disk).run(story, config)


def staged_batches(
    stage: StageInfo, values: Values, size: int = 2, before: Mapping[Log, int] | None = None
) -> list[Part]:
    """Parts that carry these values, `size` in each batch; `before` says how many are in the stage already."""
    parts = []
    for (topic, partition), all_of_it in values.items():
        start = (before or {}).get((topic, partition), 0)
        batches = [staged_batch(stage, all_of_it[at : at + size], start + at) for at in range(0, len(all_of_it), size)]
        parts.append(Part(topic, batches, partition))
    return parts


def staged_batch(stage: StageInfo, values: Sequence[bytes], seq: int, epoch: int = 0) -> Batch:
    return Batch.parse(bytes(build(list(values), producer=Producer(stage.producer_id, epoch, seq)).data))


async def fill(broker: AnyBroker, values: Values, size: int = 2) -> tuple[StageInfo, Receipt]:
    """A stage with these values; raises what was refused."""
    stage = await broker.open_stage()
    await put(broker, stage, values, size)
    return stage, Receipt(stage.id, sum(map(len, values.values())))


async def put(
    broker: AnyBroker, stage: StageInfo, values: Values, size: int = 2, before: Mapping[Log, int] | None = None
) -> None:
    for answer in await broker.stage(stage.id, staged_batches(stage, values, size, before)):
        if isinstance(answer, LogboomError):
            raise answer


async def publish_values(broker: AnyBroker, key: PublishKey, *stages: Values, size: int = 2) -> Publication:
    return await broker.publish(key, [(await fill(broker, values, size))[1] for values in stages])


async def append(broker: AnyBroker, value: bytes, topic: str = "a", partition: int = 0) -> int:
    (answer,) = await broker.append([Part(topic, [build([value])], partition)])
    if isinstance(answer, LogboomError):
        raise answer
    assert isinstance(answer, Appended)
    return answer.base_seqno


async def read_log(broker: AnyBroker, log: Log) -> list[bytes]:
    values: list[bytes] = []
    seqno = (await broker.describe_topic(log[0])).partitions[log[1]].first
    while True:
        chunk = await broker.read(ReadRequest(log[0], Start(seqno=seqno), log[1]))
        values += [record.value or b"" for record in chunk.records()]
        seqno = chunk.next_seqno
        if chunk.at_end:
            return values


async def read_logs(broker: AnyBroker, logs: Sequence[Log]) -> dict[Log, list[bytes]]:
    return {log: await read_log(broker, log) for log in logs}


def plain_parts(values: Values, size: int = 2) -> list[Part]:
    """The same without a stage: batches that no producer has numbered."""
    return [
        Part(topic, [build(list(some[at : at + size])) for at in range(0, len(some), size)], partition)
        for (topic, partition), some in values.items()
    ]
