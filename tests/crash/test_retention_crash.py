"""A kill or a power loss at every call of a retention, a hard limit, a swap and a scrub; then everything goes on.

What may not have gone is there, byte for byte; a check finds no damage; a hook whose success was recorded is not run
again; and in the end the log is what it would have been without the crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.config import UpkeepSettings
from logboom.broker.upkeep.hook import HookOutcome
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import HookSettings, RecompressionSettings, RetentionSettings, Settings
from logboom.storage.upkeep.hooks import HookQueue
from support.brokers.any_hook import ANY_HOOK
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.effort import some_of
from support.simulation.broken import checked, copy_of

NOW = 1_700_000_000_000_000
HOUR = 3_600_000_000
SEGMENTS, RECORDS = 4, 10
FAST = UpkeepSettings(recompress_bytes_per_second=None, scrub_bytes_per_second=None)
FATES = [pytest.param(range(2), id="some"), pytest.param(range(2, 6), id="more", marks=pytest.mark.soak)]
"""What may be left of what was not synced: at every call some of it in CI, and more in a soak."""
ZSTD = RecompressionSettings(codec="zstd")


@dataclass(frozen=True)
class Story:
    """Settings of a topic, how its hooks end, and the seqnos that may be gone when all is done."""

    settings: Settings
    first_at_end: int
    fails: Callable[[int, int], bool] = field(default=lambda seqno, attempt: False)


def settings(retention: RetentionSettings, hook: str | None = None, **others: Any) -> Settings:
    return Settings(retention=retention, hook=HookSettings(delete=hook), **others)


STORIES = {
    "retention": Story(settings(RetentionSettings(records=25)), 20),
    "idle": Story(settings(RetentionSettings(age_ms=HOUR // 1000)), 45),
    "hooks": Story(settings(RetentionSettings(records=25), "archive"), 20),
    "flaky hooks": Story(settings(RetentionSettings(records=25), "archive"), 20, lambda seqno, attempt: attempt == 1),
    "hard limit": Story(settings(RetentionSettings(bytes=0, hard_bytes=1500), "archive"), 30, lambda *_: True),
    "swap": Story(settings(RetentionSettings(), recompression=ZSTD), 0),
    "swap and hooks": Story(settings(RetentionSettings(records=25), "archive", recompression=ZSTD), 20),
}


class Inline(Executor):
    """Jobs run when they are started, so that a crash comes at the same call every time."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


@dataclass
class Hooks:
    """In place of real ones: which segments they were run for, by their first seqno, and how often."""

    story: Story
    runs: list[int] = field(default_factory=list)

    def __call__(self, command: str, environment: dict[str, str], *_: object) -> HookOutcome:
        seqno = int(environment["LOGBOOM_FIRST_SEQNO"])
        self.runs.append(seqno)
        error = "no" if self.story.fails(seqno, int(environment["LOGBOOM_ATTEMPT"])) else None
        return HookOutcome(0, 0.0, error, "")


def value(seqno: int) -> bytes:
    return b"%d and much more of the same and the same and the same and the same" % seqno


def open_data(disk: SimulatedDisk) -> tuple[DataDirectory, Log]:
    data = DataDirectory.open("/data", disk, reserve_bytes=0)
    (log,) = data.open_topic("events")
    return data, log


@cache
def written(name: str) -> SimulatedDisk:
    """Four sealed segments of ten records each, and five records in the one that takes appends; closed properly."""
    disk = SimulatedDisk()
    data = DataDirectory.open("/data", disk, reserve_bytes=0)
    data.create_topic("events", 1, STORIES[name].settings)
    (log,) = data.open_topic("events")
    for number in range(SEGMENTS + 1):
        count = RECORDS if number < SEGMENTS else RECORDS // 2
        log.append_one(build([value(number * RECORDS + offset) for offset in range(count)]), NOW)
        data.sync()
        if number < SEGMENTS:
            log.roll()
    data.close()
    return disk


def live(disk: SimulatedDisk, hooks: Hooks, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    """Open, do everything that is due at a few times, close."""
    monkeypatch.setattr("logboom.broker.upkeep.upkeep.run_hook", hooks)
    data, _ = open_data(disk)
    upkeep = Upkeep(data, FAST, threads=Inline(), allowed=ANY_HOOK)
    for hour in range(1, 5):
        now = start + hour * HOUR
        while (again_at := upkeep.step(now)) is not None and (again_at <= now or upkeep.under_way):
            pass
    stats = upkeep.stats
    assert (stats.errors, stats.last_error, stats.scrub.findings) == (0, None, [])
    upkeep.close()
    data.close()


@cache
def calls(name: str) -> int:
    disk = copy_of(written(name))
    with pytest.MonkeyPatch.context() as patch:
        live(disk, Hooks(STORIES[name]), patch, NOW)
    return disk.calls


def broken_off(name: str, at: int, hooks: Hooks, patch: pytest.MonkeyPatch) -> SimulatedDisk:
    """The disk whose user was gone at this call."""
    disk = copy_of(written(name))

    def fault(call: Call) -> None:
        if call.number == at:
            raise PowerLoss(call.size // 2)

    disk.fault = fault
    with pytest.raises(PowerLoss):
        live(disk, hooks, patch, NOW)
    disk.kill()
    return disk


def verify_sound(disk: SimulatedDisk) -> None:
    assert [finding for finding in checked(copy_of(disk)).findings if finding.severity == "damage"] == []


def verify_records(disk: SimulatedDisk, first_at_most: int) -> int:
    """Everything from the first seqno on is there and right; returns that seqno."""
    data, log = open_data(disk)
    assert (log.refusal, log.recovered.damage, log.recovered.missing) == (None, None, None)
    assert log.first <= first_at_most
    assert log.committed == SEGMENTS * RECORDS + RECORDS // 2
    rows = [
        (seqno, found)
        for batch in log.batches()
        for seqno, found in zip(batch.seqnos(), batch.values(), strict=True)
        if seqno >= log.first
    ]
    assert rows == [(seqno, value(seqno)) for seqno in range(log.first, log.committed)]
    data.close()
    return log.first


def may_be_gone(story: Story, ran: Hooks) -> int:
    """Up to where segments may have been dropped, given the hooks that have run."""
    if story.settings.hook.delete is None or story.settings.retention.hard_bytes is not None:
        return story.first_at_end
    return next((seqno for seqno in range(0, story.first_at_end, RECORDS) if seqno not in ran.runs), story.first_at_end)


def verify(disk: SimulatedDisk, story: Story, before: Hooks, patch: pytest.MonkeyPatch) -> None:
    verify_sound(disk)
    first = verify_records(copy_of(disk), may_be_gone(story, before))
    queue = HookQueue.open(disk, "/data/internal/hooks")
    assert queue.damaged is None
    recorded = {entry.first_seqno for entry in queue.entries if entry.done}
    again = Hooks(story)
    live(disk, again, patch, NOW + 10 * HOUR)
    assert not recorded & set(again.runs)
    assert not [seqno for seqno in again.runs if seqno < first]
    verify_sound(disk)
    assert verify_records(disk, story.first_at_end) == story.first_at_end
    if story.settings.hook.delete is not None and story.settings.retention.hard_bytes is None:
        assert {*range(0, story.first_at_end, RECORDS)} <= {*before.runs, *again.runs}
    left = [name for name in disk.names if name.endswith(".tmp")]
    assert left == []


CASES = [(name, at) for name in STORIES for at in range(1, calls(name) + 1)]


@pytest.mark.parametrize("name", STORIES)
def test_undisturbed_the_story_ends_as_it_should(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story, hooks = STORIES[name], Hooks(STORIES[name])
    disk = copy_of(written(name))
    live(disk, hooks, monkeypatch, NOW)
    assert verify_records(disk, story.first_at_end) == story.first_at_end
    verify_sound(disk)


@pytest.mark.parametrize(("name", "at"), CASES)
def test_a_kill_at_any_call_loses_nothing_that_was_to_stay(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks(STORIES[name])
    verify(broken_off(name, at, hooks, monkeypatch), STORIES[name], hooks, monkeypatch)


@pytest.mark.parametrize("fates", FATES)
@pytest.mark.parametrize(("name", "at"), CASES)
def test_a_power_loss_at_any_call_loses_nothing_that_was_to_stay(
    name: str, at: int, fates: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = Hooks(STORIES[name])
    disk = broken_off(name, at, hooks, monkeypatch)
    for fate in fates:
        verify(disk.power_loss(random.Random(f"{at}/{fate}")), STORIES[name], hooks, monkeypatch)


def test_the_success_of_a_hook_is_on_the_platter_before_its_segment_is_unlinked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story, disk = STORIES["hooks"], copy_of(written("hooks"))
    unlinked: list[int] = []

    def watch(call: Call) -> None:
        if call.name != "unlink" or not call.path.endswith(".log"):
            return
        platter = disk.power_loss(random.Random(0))
        done = [entry.first_seqno for entry in HookQueue.open(platter, "/data/internal/hooks").entries if entry.done]
        unlinked.append(int(call.path.rpartition("/")[2][:20]))
        assert unlinked[-1] in done

    disk.fault = watch
    live(disk, Hooks(story), monkeypatch, NOW)
    assert unlinked == [0, 10]


class Life:
    """A log with hooks, swaps, trims and holds in any order, and crashes at any call; what it must hold is a number."""

    def __init__(self, seed: int, trims: bool) -> None:
        self.chance = random.Random(seed)
        self.acts = ["append", "append", "append", "roll", "hold", "release", "step", "step", *["trim"] * trims]
        self.disk = SimulatedDisk()
        self.now = NOW
        self.next = 0
        self.known: set[int] = set()
        """Segments that were ever seen sealed, by their first index."""
        self.succeeded: set[int] = set()
        self.is_well = False
        data = DataDirectory.open("/data", self.disk, reserve_bytes=0)
        data.create_topic("events", 1, settings(RetentionSettings(records=20), "archive", recompression=ZSTD))
        data.close()
        self.open()

    def open(self) -> None:
        self.data, self.log = open_data(self.disk)
        self.upkeep = Upkeep(self.data, FAST, threads=Inline(), allowed=ANY_HOOK)

    def hook(self, command: str, environment: dict[str, str], *_: object) -> HookOutcome:
        if not self.is_well and self.chance.random() < 0.3:
            return HookOutcome(1, 0.0, "no", "")
        self.succeeded.add(int(environment["LOGBOOM_FIRST_INDEX"]))
        return HookOutcome(0, 0.0, None, "")

    def act(self) -> None:
        match self.chance.choice(self.acts):
            case "append":
                count = self.chance.randint(1, 8)
                self.log.append_one(build([value(self.next + offset) for offset in range(count)]), self.now)
                self.data.sync()
            case "roll":
                self.log.roll()
            case "trim":
                self.log.trim(self.chance.randint(self.log.first, self.log.committed), self.now)
                self.data.sync()
            case "hold":
                self.log.hold("reader", self.chance.randint(self.log.first, self.log.committed))
            case "release":
                self.log.release("reader")
            case "step":
                self.now += self.chance.choice((0, HOUR))
                for _ in range(self.chance.randint(1, 12)):
                    self.upkeep.step(self.now)

    def act_or_crash(self) -> None:
        at = self.disk.calls + self.chance.randint(1, 30) if self.chance.random() < 0.2 else 0

        def fault(call: Call) -> None:
            if call.number == at:
                raise PowerLoss(call.size // 2)

        self.disk.fault = fault
        self.known |= {segment.first_index for segment in self.log.segments[:-1]}
        try:
            self.act()
        except PowerLoss:
            self.disk.kill()
            if self.chance.random() < 0.6:
                self.disk = self.disk.power_loss(self.chance)
            verify_sound(self.disk)
            self.open()
            assert self.next <= self.log.committed <= self.next + 8
        self.disk.fault = None
        self.next = self.log.committed
        self.check()

    def check(self) -> None:
        log = self.log
        assert (log.refusal, log.recovered.damage, log.recovered.missing) == (None, None, None)
        found = [row for batch in log.batches() for row in zip(batch.seqnos(), batch.values(), strict=True)]
        assert [row for row in found if row[0] >= log.first] == [(n, value(n)) for n in range(log.first, self.next)]
        gone = self.known - {segment.first_index for segment in log.segments}
        assert gone <= self.succeeded
        assert log.first <= max(self.next - 20, 0) or log.first <= log.floor

    def end(self) -> None:
        """Nobody holds anything and hooks are well: everything settles."""
        self.is_well = True
        self.log.release("reader")
        for _ in range(3):
            self.now += HOUR
            while (again_at := self.upkeep.step(self.now)) is not None and (
                again_at <= self.now or self.upkeep.under_way
            ):
                pass
        self.check()
        stats = self.upkeep.stats
        assert (stats.errors, stats.hooks.pending, stats.hooks.failing, stats.scrub.findings) == (0, 0, [], [])
        assert (
            sum(segment.after is not None and segment.after[0] <= self.next - 20 for segment in self.log.segments) == 0
        )
        verify_sound(self.disk)


def live_on(seed: int, trims: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(seed, trims)
    monkeypatch.setattr("logboom.broker.upkeep.upkeep.run_hook", life.hook)
    for _ in range(80):
        life.act_or_crash()
    life.end()


@pytest.mark.parametrize("seed", some_of(range(40), *range(15)))
def test_any_life_with_crashes_drops_nothing_without_its_hook_and_keeps_what_is_promised(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_on(seed, False, monkeypatch)


@pytest.mark.parametrize("seed", some_of(range(40), *range(15)))
def test_any_life_with_crashes_and_trims_drops_nothing_without_its_hook(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_on(seed, True, monkeypatch)
