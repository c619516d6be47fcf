"""Guessing is slow: each failure makes the next try from there, or for that user, wait longer."""

from __future__ import annotations

import asyncio
import doctest
from collections.abc import Awaitable
from pathlib import Path

import pytest

from logboom.access.credential import Credential
from logboom.access.scram import ScramClient
from logboom.broker.access import brake
from logboom.broker.access.brake import FORGOTTEN_AFTER_S, KEYS_MOST, LONGEST_S, SignInBrake
from logboom.broker.access.sign_in import SignIn
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import SignInFailed


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def waited(found: SignInBrake, clock: Clock, address: str, user: str, monkeypatch: pytest.MonkeyPatch) -> float:
    began = clock.now

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await found.wait(address, user)
    return clock.now - began


def test_each_failure_makes_the_next_wait_longer_up_to_a_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        assert await waited(found, clock, "192.0.2.1:1", "ann", monkeypatch) == 0
        waits = []
        for _ in range(12):
            found.note_failure("192.0.2.1:1", "ann")
            waits.append(round(await waited(found, clock, "192.0.2.1:99", "ann", monkeypatch), 3))
        assert waits == sorted(waits)
        assert waits[0] == pytest.approx(0.1)
        assert waits[-1] == pytest.approx(LONGEST_S)
        assert await waited(found, clock, "192.0.2.2:1", "bob", monkeypatch) == 0
        assert await waited(found, clock, "192.0.2.2:1", "ann", monkeypatch) > 0
        found.note_failure("192.0.2.1:1", "ann")
        assert await waited(found, clock, "192.0.2.1:1", "bob", monkeypatch) > 0

    asyncio.run(story())


def test_a_crowd_that_guesses_at_once_stands_in_line_and_the_rest_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        for _ in range(7):
            found.note_failure("192.0.2.1:1", "ann")
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        refused = 0
        for _ in range(100):
            try:
                await found.wait("192.0.2.1:1", "ann")
            except SignInFailed:
                refused += 1
        assert len(slept) < 5
        assert refused == 100 - len(slept)

    asyncio.run(story())


def test_failures_are_forgotten_and_success_clears_what_was_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        found.note_failure("192.0.2.1:1", "ann")
        found.note_success("192.0.2.1:1", "ann")
        found.note_failure("192.0.2.1:1", "ann")
        assert await waited(found, clock, "192.0.2.1:1", "ann", monkeypatch) > 0
        found.note_success("192.0.2.1:1", "ann")
        assert await waited(found, clock, "192.0.2.1:1", "ann", monkeypatch) == 0
        clock.now += FORGOTTEN_AFTER_S + 1
        assert await waited(found, clock, "192.0.2.2:1", "ann", monkeypatch) == 0

    asyncio.run(story())


def test_who_has_a_user_of_his_own_cannot_make_his_guesses_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        for number in range(12):
            found.note_failure("192.0.2.1:1", f"user{number}")
            found.note_success("192.0.2.1:1", "mallory")
        assert await waited(found, clock, "192.0.2.1:1", "ann", monkeypatch) == LONGEST_S
        assert await waited(found, clock, "192.0.2.1:1", "mallory", monkeypatch) == 0

    asyncio.run(story())


@pytest.mark.parametrize("way", ["password", "SCRAM"])
def test_guesses_that_come_at_once_are_not_all_the_first(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def guess(sign_in: SignIn, caller: Caller, password: str) -> Awaitable[object]:
        if way == "password":
            return sign_in.with_password(caller, "ann", password)
        scram = sign_in.with_scram(caller, "SCRAM-SHA-256")
        client = ScramClient("SCRAM-SHA-256", "ann", password, b"nonce")
        return scram.finish(client.answer(scram.begin(client.begin())))

    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        try:
            credential = Credential.derive("correct horse", b"salt" * 4, iterations=4096)
            await broker.add_user("ann", [credential], caller=ITSELF)
            elsewhere = Caller(address="192.0.2.1:1")
            with monkeypatch.context() as patched:
                patched.setattr("logboom.broker.access.sign_in.asyncio.sleep", sleep)
                guesses = (guess(broker.sign_in, elsewhere, f"guess {number}") for number in range(10))
                answers = await asyncio.gather(*guesses, return_exceptions=True)
            assert {type(answer) for answer in answers} == {SignInFailed}
            sent_away = [answer for answer in answers if "too many" in str(answer)]
            assert len([seconds for seconds in slept if seconds > 0]) + len(sent_away) == 9
        finally:
            await broker.close()

    asyncio.run(story())


def test_strangers_keep_nobody_out_where_he_has_been_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        found.note_success("192.0.2.1:1", "ann")
        for _ in range(20):
            found.note_failure("198.51.100.1:1", "ann")
        assert await waited(found, clock, "192.0.2.1:2", "ann", monkeypatch) == 0
        assert await waited(found, clock, "192.0.2.2:2", "ann", monkeypatch) == LONGEST_S
        found.note_failure("192.0.2.1:1", "ann")
        found.note_success("192.0.2.1:1", "bob")  # who guesses has a user of his own
        assert await waited(found, clock, "192.0.2.1:2", "ann", monkeypatch) > 0

    asyncio.run(story())


def test_who_is_sent_away_makes_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        for _ in range(7):
            found.note_failure("192.0.2.1:1", "ann")
        monkeypatch.setattr(asyncio, "sleep", lambda _: asyncio.Event().wait())
        line = [asyncio.create_task(found.wait("192.0.2.1:1", "ann")) for _ in range(1000)]
        await asyncio.wait(line, return_when=asyncio.FIRST_EXCEPTION)
        for waiting in line:
            waiting.cancel()
        await asyncio.gather(*line, return_exceptions=True)
        clock.now += 4 * LONGEST_S
        assert await waited(found, clock, "192.0.2.1:1", "ann", monkeypatch) == 0

    asyncio.run(story())


def test_all_addresses_of_a_network_of_ipv6_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = Clock()
        found = SignInBrake(clock)
        for number in range(100):
            found.note_failure(f"[2001:db8::{number:x}]:1", f"user{number}")
        assert await waited(found, clock, "[2001:db8::ffff:1]:1", "ann", monkeypatch) == LONGEST_S
        assert await waited(found, clock, "[2001:db8:0:1::1]:1", "ann", monkeypatch) == 0

    asyncio.run(story())


def test_what_is_remembered_is_bounded() -> None:
    found = SignInBrake(Clock())
    for number in range(KEYS_MOST):
        found.note_failure(f"192.0.2.1:{number}", f"user{number}")
        found.note_success(f"192.0.2.1:{number}", f"user{number}")
    found.note_success("192.0.2.1:1", "one-more")
    assert len(found._failures) <= KEYS_MOST
    assert len(found._homes) <= KEYS_MOST
    assert doctest.testmod(brake).failed == 0
