"""A throttle keeps to its rate, whatever the sizes, and can be stopped."""

from __future__ import annotations

import random
import threading

import pytest

from logboom.broker.upkeep.throttle import BURST_S, Stopped, Throttle


class Clock:
    """A time that passes only in sleep, or when told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, event: threading.Event, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds
        self.slept_s += seconds


def test_without_a_limit_nothing_sleeps() -> None:
    clock = Clock()
    throttle = Throttle(None, clock, clock.wait)
    for _ in range(10):
        throttle(1 << 40)
    assert clock.slept_s == 0


def test_a_burst_passes_and_what_follows_waits() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.wait)
    throttle(int(1000 * BURST_S))
    assert clock.slept_s == 0
    throttle(500)
    assert clock.slept_s == pytest.approx(0.5)


def test_idle_time_is_saved_up_only_as_far_as_the_burst() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.wait)
    throttle(1000)
    clock.now_s += 3600
    before_s = clock.slept_s
    throttle(1000)
    assert clock.slept_s - before_s == pytest.approx(1 - BURST_S)


@pytest.mark.parametrize("seed", range(20))
def test_the_rate_is_reached_and_never_exceeded(seed: int) -> None:
    choose = random.Random(seed)
    clock = Clock()
    rate = choose.choice([1, 1000, 50_000_000])
    throttle = Throttle(rate, clock, clock.wait)
    begun_s, moved = clock.now_s, 0
    for _ in range(500):
        size = choose.randrange(3 * rate)
        throttle(size)
        moved += size
        assert moved <= rate * (clock.now_s - begun_s + BURST_S) * 1.000001
    assert moved >= rate * (clock.now_s - begun_s) * 0.999999


def test_threads_share_one_rate() -> None:
    """Each reserves its own time: together they wait as long as one would."""
    waits: list[float] = []
    throttle = Throttle(1000, lambda: 0.0, lambda event, seconds: waits.append(seconds))
    for _ in range(4):
        throttle(1000)
    assert waits == pytest.approx([1 - BURST_S, 2 - BURST_S, 3 - BURST_S, 4 - BURST_S])


@pytest.mark.parametrize("rate", [None, 1])
def test_every_call_after_stop_raises(rate: int | None) -> None:
    throttle = Throttle(rate)
    throttle.stop()
    throttle.stop()
    for _ in range(2):
        with pytest.raises(Stopped):
            throttle(0)


def test_stop_wakes_those_who_sleep() -> None:
    throttle = Throttle(1)
    woken: list[BaseException] = []

    def work() -> None:
        try:
            throttle(1 << 62)
        except Stopped as stopped:
            woken.append(stopped)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    throttle.stop()
    for thread in threads:
        thread.join()
    assert len(woken) == 3


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_that_lets_nothing_through_is_refused(rate: int) -> None:
    with pytest.raises(ValueError, match="bytes_per_second"):
        Throttle(rate)
