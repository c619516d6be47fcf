from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.api import PIPELINE_TOPIC, Acks, Answer, Broker, Part
from logboom.broker.local import LocalBroker
from logboom.errors import LeaseLost, OutcomeUnknown, TopicNotAllowed, Unavailable
from logboom.results import ledger as ledger_module
from logboom.results.catalogue import Beat, Catalogue, Ended, Event, Leased
from logboom.results.ledger import Ledger

JOB = "count/events"


def leased(epoch: int, run: str) -> Leased:
    return Leased(JOB, "count", epoch, run, "here:1", 1000)


def ledger_of(broker: Any) -> Ledger:
    async def connect() -> Broker:
        found: Broker = broker
        return found

    return Ledger(connect)


class Forgetful:
    """A broker whose answers to appends get lost, some before and some after they were appended."""

    def __init__(self, broker: LocalBroker, lost: str) -> None:
        self._broker = broker
        self._lost = lost
        self.appends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def append(self, parts: Sequence[Part], acks: Acks | None = None) -> Any:
        return self._append(parts, acks)

    async def _append(self, parts: Sequence[Part], acks: Acks | None) -> list[Answer]:
        self.appends += 1
        if self.appends > 1:
            return await self._broker.append(parts, acks)
        if self._lost == "after":
            await self._broker.append(parts, acks)
        raise OutcomeUnknown("the connection is gone")


def story(tmp_path: Path, tell: Any) -> None:
    async def run() -> None:
        broker = await LocalBroker.open(str(tmp_path / "data"))
        try:
            await tell(broker)
        finally:
            await broker.close()

    asyncio.run(run())


@pytest.mark.parametrize("lost", ["before", "after"])
def test_an_event_whose_answer_was_lost_is_in_the_log_once(
    tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.01)

    async def tell(broker: LocalBroker) -> None:
        ledger = ledger_of(Forgetful(broker, lost))
        assert await ledger.put(lambda _: leased(1, "one")) == leased(1, "one")
        ended = Ended(JOB, 1, "one")
        ledger = ledger_of(Forgetful(broker, lost))

        def own(catalogue: Catalogue) -> Event:
            catalogue.check(JOB, 1)
            return ended

        assert await ledger.put(own) == ended
        assert ledger.catalogue.next == 2

    story(tmp_path, tell)


def test_who_lost_its_job_meanwhile_does_not_take_the_word_of_another_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.01)

    async def tell(broker: LocalBroker) -> None:
        other = ledger_of(broker)
        await other.put(lambda _: leased(1, "one"))
        forgetful = Forgetful(broker, "before")

        def own(catalogue: Catalogue) -> Event:
            catalogue.check(JOB, 1)
            return Ended(JOB, 1, "one")

        ending = asyncio.create_task(ledger_of(forgetful).put(own))
        while not forgetful.appends:
            await asyncio.sleep(0)
        await other.put(lambda _: leased(2, "two"))
        with pytest.raises(LeaseLost):
            await ending

    story(tmp_path, tell)


def test_a_node_that_stays_away_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.01)

    async def away() -> Broker:
        raise Unavailable("nobody is there")

    async def run() -> None:
        with pytest.raises(Unavailable):
            await Ledger(away).put(lambda _: leased(1, "one"), 0.05)

    asyncio.run(run())


def test_what_must_not_be_is_raised_and_not_appended(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        ledger = ledger_of(broker)

        def forbidden(catalogue: Catalogue) -> Event:
            raise LeaseLost(JOB, 1, "so it is")

        with pytest.raises(LeaseLost):
            await ledger.put(forbidden)
        assert await ledger.put(lambda _: None) is None
        assert (await ledger.refresh()).next == 0

    story(tmp_path, tell)


def test_under_contention_every_event_is_there_once_and_the_log_stays_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "WHOLE_EVERY", 20)

    async def tell(broker: LocalBroker) -> None:
        epochs: list[int] = []

        async def run_often(number: int) -> None:
            ledger = ledger_of(broker)
            for turn in range(15):
                run = f"{number}-{turn}"

                def claim(catalogue: Catalogue, run: str = run) -> Event | None:
                    job = catalogue.jobs.get(JOB)
                    if job is not None and job.lease is not None:
                        return None
                    return leased(1 if job is None else job.epoch + 1, run)

                while (taken := await ledger.put(claim)) is None:
                    await ledger.refresh(5)
                assert isinstance(taken, Leased)
                epoch = taken.epoch
                epochs.append(epoch)
                await ledger.put(lambda catalogue, epoch=epoch: Beat(JOB, epoch))  # type: ignore[misc]
                await ledger.put(lambda catalogue, epoch=epoch, run=run: Ended(JOB, epoch, run))  # type: ignore[misc]
                await ledger.tidy()

        await asyncio.gather(*(run_often(number) for number in range(4)))
        assert sorted(epochs) == list(range(1, 61))
        late = ledger_of(broker)
        job = (await late.refresh()).jobs[JOB]
        assert (job.epoch, job.lease) == (60, None)
        info = await broker.describe_topic(PIPELINE_TOPIC)
        assert info.partitions[0].committed - info.partitions[0].first < 60
        assert info.partitions[0].first > 100

    story(tmp_path, tell)


def test_who_slept_through_a_trim_knows_what_the_others_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "WHOLE_EVERY", 6)

    async def tell(broker: LocalBroker) -> None:
        asleep, awake = ledger_of(broker), ledger_of(broker)
        await awake.put(lambda _: leased(1, "one"))
        await asleep.refresh()
        for number in range(8):
            await awake.put(lambda _, number=number: Beat(JOB, 1, number))  # type: ignore[misc]
        await awake.put(lambda _: Ended(JOB, 1, "one"))
        await awake.tidy()
        assert (await asleep.refresh()).jobs == (await awake.refresh()).jobs
        assert asleep.catalogue.next == awake.catalogue.next == 11

    story(tmp_path, tell)


def test_a_log_that_is_another_one_by_now_is_read_from_its_beginning(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        other = await LocalBroker.open(str(tmp_path / "other"))
        try:
            brokers: list[Any] = [broker, other]

            async def connect() -> Broker:
                found: Broker = brokers.pop(0)
                return found

            ledger = Ledger(connect)
            await ledger.put(lambda _: leased(1, "one"))
            await ledger_of(other).put(lambda _: leased(7, "seven"))
            ledger._broker = None
            assert (await ledger.refresh()).jobs[JOB].epoch == 7
        finally:
            await other.close()

    story(tmp_path, tell)


def test_others_append_to_the_log_only_at_a_seqno_that_they_name(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        (answer,) = await broker.append([Part(PIPELINE_TOPIC, [build([b"x"])], 0)])
        assert isinstance(answer, TopicNotAllowed)

    story(tmp_path, tell)
