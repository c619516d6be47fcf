"""No descriptors, or no memory, for one open, whichever it is: that one call is refused, and everything goes on."""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from logboom.broker.api import PublishKey
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher
from logboom.errors import LogboomError, OutcomeUnknown, StorageError, SyncFailed
from logboom.storage import Appended, Log, LogConfig
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.staged import stage
from support.disks.simulated import Call, SimulatedDisk
from support.effort import strides
from support.simulation.model import DIRECTORY, make_batch, open_log
from support.simulation.staged import Machine, append, fill, killed, read_log, tell

OPENINGS = ("open", "create", "open_directory")
NOW = 1_000_000
Result = TypeVar("Result")


class Scarcity:
    """Refuses the opening with this number, once armed, and so many after it."""

    def __init__(self, at: int, many: int = 1, error: int = errno.EMFILE) -> None:
        self.armed = False
        self.met = 0
        self._numbers = range(at, at + many)
        self._first = at
        self._error = error

    def __call__(self, call: Call) -> int | None:
        if self.armed and call.name in OPENINGS:
            self.met += 1
            if self.met in self._numbers:
                raise OSError(self._error, "injected", call.path)
        return None

    @property
    def is_met(self) -> bool:
        return self.met >= self._first


def insist(log: Log, number: int) -> None:
    """Append until it is taken. Whatever is said of a refusal, it is a refusal."""
    for _ in range(9):
        (answer,) = log.append([make_batch(number, 2, None)], NOW, 1)
        if isinstance(answer, Appended):
            return
        assert not isinstance(answer, SyncFailed), answer
        assert log.refusal is None
    raise AssertionError(answer)


def written(scarcity: Scarcity) -> tuple[SimulatedDisk, list[bytes | None]]:
    """A log that is filled, rolled, dropped from and stored anew, beside another one that takes the only open file."""
    disk = SimulatedDisk()
    log = open_log(disk, files_max=1)
    other = Log.open(log._store.files, f"{DIRECTORY}x", LogConfig())
    disk.fault, scarcity.armed = scarcity, True
    for number in range(12):
        insist(log, number)
        log.commit(log.sync())
        insist(other, number)
        other.commit(other.sync())
        if number % 3 == 2:
            with suppress(StorageError, LogboomError):
                log.roll()
            assert log.refusal is None
        if number == 7:
            with suppress(StorageError):
                log.drop(4)
            assert log.refusal is None
    disk.fault = None
    assert not log.failed
    assert not other.failed
    return disk, [value for batch in log.batches() for value in batch.values()]


@pytest.mark.parametrize("many", [1, 2, 5])
def test_a_log_goes_on_after_any_open_that_was_refused(many: int) -> None:
    at, is_met = 1, True
    everything = [value for number in range(12) for value in make_batch(number, 2, None).values()]
    while is_met:
        scarcity = Scarcity(at, many)
        disk, values = written(scarcity)
        assert values == everything[-len(values) :]
        assert len(values) >= len(everything) - 12
        for left in (killed(disk), disk.power_loss(random.Random(at))):
            log = open_log(left)
            assert log.refusal is None
            log.commit(log.last_index)
            kept = [value for batch in log.batches() for value in batch.values()]
            assert kept == values
        is_met = scarcity.is_met
        at += 1
    assert at > 30


def test_a_segment_is_swapped_or_stays_where_its_directory_cannot_be_opened() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(3):
        insist(log, number)
    log.roll()
    log.commit(log.sync())
    pending = log.begin_swap(log.segments[0])
    file = disk.create(pending.new.temporary_path)
    file.write([bytes(disk.names[pending.old.log_path].cached)], 0)
    file.sync()
    scarcity = disk.fault = Scarcity(1)
    scarcity.armed = True
    summary, index = log.segments[0]._summary, log.segments[0].index
    assert summary is not None
    with pytest.raises(StorageError):
        log.end_swap(pending, summary, index)
    assert not log.failed
    assert not disk.exists(pending.new.temporary_path)
    insist(log, 3)


CONFIG = BrokerConfig(upkeep=UpkeepSettings(scrub_bytes_per_second=None, recompress_bytes_per_second=None))
SMALL = Settings(segment=SegmentSettings(bytes=4096))


async def until_it_works(call: Callable[[], Awaitable[Result]]) -> Result:
    for _ in range(12):
        try:
            return await call()
        except OutcomeUnknown as error:
            raise AssertionError(error) from error
        except LogboomError as error:
            said = error
    raise AssertionError(said)


async def everything(broker: LocalBroker) -> None:
    """What a client does: each call until it is taken, and nothing twice."""
    await until_it_works(lambda: broker.create_topic("a", 1, SMALL))
    for number in range(6):
        await until_it_works(lambda number=number: append(broker, bytes([65 + number]) * 1500))  # type: ignore[misc]
        await until_it_works(lambda number=number: append(broker, b"%d" % number, "b"))  # type: ignore[misc]
    _, receipt = await until_it_works(lambda: fill(broker, {("a", 0): [b"s" * 900] * 6, ("b", 0): [b"t"]}))
    await until_it_works(lambda: broker.publish(PublishKey("k", 1), [receipt]))
    await until_it_works(lambda: broker.create_topic("gone"))
    await until_it_works(lambda: broker.delete_topic("gone"))
    await until_it_works(lambda: broker.create_topic("gone"))


def told(values: dict[str, list[bytes]]) -> Callable[[LocalBroker], Awaitable[None]]:
    async def story(broker: LocalBroker) -> None:
        for topic in ("a", "b"):
            values[topic] = await read_log(broker, (topic, 0))
        assert [info.name for info in await broker.list_topics()] == ["a", "b", "gone"]

    return story


EXPECTED = {
    "a": [bytes([65 + number]) * 1500 for number in range(6)] + [b"s" * 900] * 6,
    "b": [b"%d" % number for number in range(6)] + [b"t"],
}


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("stride", strides(3))
def test_a_node_goes_on_after_any_open_that_was_refused(
    many: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finisher, "RETRY_S", 0.001)
    monkeypatch.setattr(stage, "LARGE_BYTES", 2000)
    at, is_met = 1, True
    while is_met:
        disk, scarcity, values = SimulatedDisk(), Scarcity(at, many), dict[str, list[bytes]]()

        async def story(
            broker: LocalBroker, scarcity: Scarcity = scarcity, values: dict[str, list[bytes]] = values
        ) -> None:
            scarcity.armed = True
            await everything(broker)
            scarcity.armed = False
            assert broker._rounds.failure is None
            await told(values)(broker)
            assert {info.state for info in await broker.list_stages()} <= {"open"}

        Machine(disk, scarcity).run(story, CONFIG)
        assert values == EXPECTED, at
        again = dict[str, list[bytes]]()
        tell(killed(disk), told(again), CONFIG)
        assert again == EXPECTED, at
        is_met = scarcity.is_met
        at += stride
    assert at > 60
