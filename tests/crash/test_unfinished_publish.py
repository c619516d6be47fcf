"""The node is killed in the middle of a publish, and something else than the node opens the directory next."""

from __future__ import annotations

import io
from contextlib import suppress
from functools import cache

import pytest

from logboom.broker.api import PublishKey, Settings
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.errors import LogboomError, PublishUnfinished
from logboom.storage import DataDirectory
from logboom.storage.data.topic import RetentionSettings
from logboom.storage.files import envelope
from logboom.storage.files.disk import replace_file
from logboom.storage.health.check import check
from logboom.storage.moving.dump import dump, plan_dump
from logboom.storage.moving.load import Loader, load
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import Request
from logboom.storage.moving.reappend import AppendLoader
from logboom.storage.moving.restore import EqualLoader
from logboom.storage.staged.unfinished import MAGIC, InternalSnapshot, hold_unfinished, unfinished_in
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.staged import ROOT, Machine, append, killed, plain_parts, publish_values, read_logs, tell

CONFIG = BrokerConfig(reserve_bytes=0)
VALUES = {("a", 0): [b"a%d" % n for n in range(8)], ("b", 0): [b"b%d" % n for n in range(8)]}
AGED = Settings(retention=RetentionSettings(age_ms=86_400_000))
LATER = 4_000_000_000_000_000
IN_ONE = [False]
"""Whether what is cut off came in one call, without a stage."""


@cache
def _cut_off(in_one: bool) -> SimulatedDisk:
    disk = SimulatedDisk()

    async def prepare(broker: LocalBroker) -> None:
        for topic in ("a", "b", "other"):
            await broker.create_topic(topic, 1, AGED)
        await append(broker, b"o", "other")

    async def story(broker: LocalBroker) -> None:
        with suppress(LogboomError):
            if in_one:
                await broker.publish_batches(PublishKey("k", 1), plain_parts(VALUES))
            else:
                await publish_values(broker, PublishKey("k", 1), VALUES)

    def die(call: Call) -> int | None:
        if call.name == "write" and "/b~" in call.path and call.path.endswith(".log"):
            raise PowerLoss
        return None

    tell(disk, prepare, CONFIG)
    disk.kill()
    machine = Machine(disk, die)
    machine.run(story, CONFIG)
    assert machine.died
    return disk


def cut_off() -> SimulatedDisk:
    """A part of the publish is in `a`, and nothing of it in `b`."""
    left = killed(_cut_off(IN_ONE[0]))
    with DataDirectory.open(ROOT, killed(left), reserve_bytes=0) as data:
        (unfinished,) = unfinished_in(data)
        assert (unfinished.name, unfinished.number) == ("k", 1)
        assert data.open_partition("a", 0).next > 0
        assert data.open_partition("b", 0).next == 0
    return left


@pytest.fixture(autouse=True, params=[False, True], ids=["stages", "one call"])
def _small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    IN_ONE[0] = request.param
    monkeypatch.setattr(finisher, "SLICE_BYTES", 300)


def finished(disk: SimulatedDisk) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}

    async def story(broker: LocalBroker) -> None:
        for topic in ("a", "b"):
            (info,) = (await broker.describe_topic(topic)).partitions
            assert (info.first, info.next) == (0, 8)
        found.update(await read_logs(broker, list(VALUES)))

    disk.kill()
    tell(disk, story, CONFIG)
    return found


def test_offline_upkeep_drops_nothing_of_a_publish_that_the_next_start_finishes() -> None:
    disk = cut_off()
    with DataDirectory.open(ROOT, disk, reserve_bytes=0) as data:
        assert len(hold_unfinished(data)) == 1
        work = Upkeep(data, UpkeepSettings())
        while work.step(LATER) is not None and (work.under_way or not work.stats.dropped):
            work.wait(0.05)
        work.close()
        assert data.open_partition("other", 0).first == 1  # others are kept up
    assert finished(disk) == VALUES


def test_a_dump_refuses_half_a_publish_unless_it_is_asked_for() -> None:
    disk = cut_off()
    with DataDirectory.open(ROOT, disk, reserve_bytes=0) as data:
        origin = DumpOrigin.of(data)
        with pytest.raises(PublishUnfinished, match=r"publish 'k', number 1, .* a/0, b/0: start the node once .*--unf"):
            plan_dump(origin, Request(), 0)
        with pytest.raises(PublishUnfinished):
            plan_dump(origin, Request(("b",)), 0)
        plan_dump(origin, Request(("other",)), 0)
        origin.takes_unfinished = True
        content = io.BytesIO()
        assert dump(origin, plan_dump(origin, Request(), 0), content).topics == 3
    assert finished(disk) == VALUES


@pytest.mark.parametrize("kind", [EqualLoader, lambda data: AppendLoader(data, LATER)])
def test_nothing_is_loaded_into_a_log_that_a_publish_is_on_its_way_into(kind: type[EqualLoader]) -> None:
    disk = cut_off()
    content = io.BytesIO()
    with DataDirectory.open(ROOT, killed(disk), reserve_bytes=0) as data:
        origin = DumpOrigin.of(data)
        origin.takes_unfinished = True
        dump(origin, plan_dump(origin, Request(("a",)), 0), content)
    with DataDirectory.open(ROOT, disk, reserve_bytes=0) as data:
        loader: Loader = kind(data)
        with pytest.raises(PublishUnfinished, match=r"finishes it$"):
            load(io.BytesIO(content.getvalue()), loader)
    assert finished(disk) == VALUES


def test_a_check_says_that_a_publish_is_unfinished_and_no_longer_when_it_is() -> None:
    disk = cut_off()

    def kinds() -> set[str]:
        return {finding.kind for finding in check(disk, ROOT, is_directory=disk.is_directory).findings}

    assert "unfinished publish" in kinds()
    finished(disk)
    disk.kill()
    assert "unfinished publish" not in kinds()


def test_a_publish_is_known_from_the_snapshot_too() -> None:
    """A snapshot of the node's own state may hold it, and the log nothing of it any more."""
    disk = cut_off()
    with DataDirectory.open(ROOT, disk, reserve_bytes=0) as data:
        (before,) = unfinished_in(data)
        log = data.open_partition("_publish", 0)
        pairs = (pair for batch in log.batches() for pair in zip(batch.keys(), batch.values(), strict=True))
        kept = {key: value for key, value in pairs if key is not None and value is not None}
        snapshot = InternalSnapshot(data.topic("_publish").id, log.next, kept)
        replace_file(disk, f"{ROOT}/internal/publish", envelope.pack(MAGIC, snapshot))
        assert unfinished_in(data) == [before]
