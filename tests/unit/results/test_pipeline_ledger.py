from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from logboom.batch import build
from logboom.broker.api import PIPELINE_TOPIC, Acks, Answer, Part
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.local import LocalBroker
from logboom.errors import LeaseLost, OutcomeUnknown, TopicNotAllowed, Unavailable
from logboom.results import pipeline_ledger as ledger_module
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Beat, Ended, Event, Leased, PipelineState
from support.brokers.any_broker import AnyBroker

JOB = "count/events"


def leased(epoch: int, run: str) -> Leased:
    return Leased(JOB, "count", epoch, run, "here:1", 1000)


def ledger_of(broker: Any) -> PipelineLedger:
    async def connect() -> AnyBroker:
        found: AnyBroker = broker
        return found

    return PipelineLedger(connect, EVERYBODY)


class Forgetful:
    """A broker whose answers to appends get lost, some before and some after they were appended."""

    def __init__(self, broker: LocalBroker, lost: str) -> None:
        self._broker = broker
        self._lost = lost
        self.appends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def append(self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller) -> Any:
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

        def own(pipeline: PipelineState) -> Event:
            pipeline.check(JOB, 1, "one")
            return ended

        assert await ledger.put(own) == ended
        assert ledger.pipeline.next == 2

    story(tmp_path, tell)


def test_who_lost_its_job_meanwhile_does_not_take_the_word_of_another_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.01)

    async def tell(broker: LocalBroker) -> None:
        other = ledger_of(broker)
        await other.put(lambda _: leased(1, "one"))
        forgetful = Forgetful(broker, "before")

        def own(pipeline: PipelineState) -> Event:
            pipeline.check(JOB, 1, "one")
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

    async def away() -> AnyBroker:
        raise Unavailable("nobody is there")

    async def run() -> None:
        with pytest.raises(Unavailable):
            await PipelineLedger(away, EVERYBODY).put(lambda _: leased(1, "one"), 0.05)

    asyncio.run(run())


def test_what_must_not_be_is_raised_and_not_appended(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        ledger = ledger_of(broker)

        def forbidden(pipeline: PipelineState) -> Event:
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

                def claim(pipeline: PipelineState, run: str = run) -> Event | None:
                    job = pipeline.jobs.get(JOB)
                    if job is not None and job.lease is not None:
                        return None
                    return leased(1 if job is None else job.epoch + 1, run)

                while (taken := await ledger.put(claim)) is None:
                    await ledger.refresh(5)
                assert isinstance(taken, Leased)
                epoch = taken.epoch
                epochs.append(epoch)
                await ledger.put(lambda pipeline, epoch=epoch: Beat(JOB, epoch))  # type: ignore[misc]
                await ledger.put(lambda pipeline, epoch=epoch, run=run: Ended(JOB, epoch, run))  # type: ignore[misc]
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
        assert asleep.pipeline.next == awake.pipeline.next == 11

    story(tmp_path, tell)


def test_a_log_that_is_another_one_by_now_is_read_from_its_beginning(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        other = await LocalBroker.open(str(tmp_path / "other"))
        try:
            brokers: list[Any] = [broker, other]

            async def connect() -> AnyBroker:
                found: AnyBroker = brokers.pop(0)
                return found

            ledger = PipelineLedger(connect, EVERYBODY)
            await ledger.put(lambda _: leased(1, "one"))
            await ledger_of(other).put(lambda _: leased(7, "seven"))
            ledger._broker = None
            assert (await ledger.refresh()).jobs[JOB].epoch == 7
        finally:
            await other.close()

    story(tmp_path, tell)


class Restored:
    """A node whose directory is put back as it was at some time."""

    def __init__(self, tmp_path: Path) -> None:
        self._data, self._copy = tmp_path / "node", tmp_path / "copy"
        self.broker: LocalBroker | None = None

    async def open(self) -> AnyBroker:
        if self.broker is None:
            self.broker = await LocalBroker.open(str(self._data))
        found: Any = self.broker
        return cast(AnyBroker, found)

    async def close(self) -> None:
        assert self.broker is not None
        await self.broker.close()
        self.broker = None

    async def keep(self) -> None:
        await self.close()
        shutil.copytree(self._data, self._copy)

    async def restore(self) -> None:
        await self.close()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)


class Following:
    """A broker that is always the one that is open."""

    def __init__(self, node: Restored) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node.broker, name)


@pytest.mark.parametrize("others", [0, 1, 2, 3, 9])
def test_a_node_that_was_restored_from_an_older_copy_is_believed_and_not_what_was_known_before(
    tmp_path: Path, others: int
) -> None:
    """However many events others have appended since."""

    async def run() -> None:
        node = Restored(tmp_path)
        await node.open()
        ledger = ledger_of(Following(node))
        await ledger.put(lambda _: leased(1, "one"))
        await node.keep()
        await node.open()
        await ledger.put(lambda _: Ended(JOB, 1, "one"))
        await ledger.put(lambda _: leased(2, "two"))
        await ledger.put(lambda _: Beat(JOB, 2))
        await node.restore()
        await node.open()
        for number in range(others):
            await ledger_of(node.broker).put(lambda _, number=number: Beat(JOB, 1, number))  # type: ignore[misc]
        known = (await ledger_of(node.broker).refresh()).jobs
        assert (await ledger.refresh()).jobs == known
        assert ledger.pipeline.next == 1 + others
        with pytest.raises(LeaseLost):
            ledger.pipeline.check(JOB, 2, "two")
        assert await ledger.put(lambda _: leased(2, "another")) == leased(2, "another")
        assert ledger.pipeline.next == 2 + others
        await node.close()

    asyncio.run(run())


async def append_raw(broker: LocalBroker, value: bytes, key: bytes) -> None:
    (log,) = (await broker.describe_topic(PIPELINE_TOPIC)).partitions
    (answer,) = await broker.append([Part(PIPELINE_TOPIC, [build([value], keys=[key])], 0, log.committed)], "durable")
    assert not isinstance(answer, Exception), answer


def test_a_record_that_cannot_be_read_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def tell(broker: LocalBroker) -> None:
        ledger = ledger_of(broker)
        await ledger.put(lambda _: leased(1, "one"))
        await append_raw(broker, b"garbage", b"")
        await ledger.put(lambda _: Ended(JOB, 1, "one"))
        assert "_pipeline, partition 0, seqno 1 cannot be read" in caplog.text
        assert (await ledger_of(broker).refresh()).jobs == ledger.pipeline.jobs
        assert ledger.pipeline.jobs[JOB].lease is None
        await append_raw(broker, b"garbage", b"")
        await ledger.put(lambda _: leased(2, "two"))
        assert ledger.pipeline.next == 5

    story(tmp_path, tell)


@pytest.mark.parametrize("lost", [1, 3], ids=["between", "the last"])
def test_events_that_a_repair_could_not_save_stop_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: int
) -> None:
    async def write(broker: LocalBroker) -> None:
        for event in (leased(1, "one"), Beat(JOB, 1, 7), Ended(JOB, 1, "one"), Beat("other", 1, 7)):
            await ledger_of(broker).put(lambda _, event=event: event)  # type: ignore[misc]

    async def go_on(broker: LocalBroker) -> None:
        ledger = ledger_of(broker)
        for _ in range(2):
            await ledger.refresh()
        assert caplog.text.count(f"seqnos {lost} to {lost} are lost") == 1
        assert ledger.pipeline.may_have_more(JOB)
        assert ledger.pipeline.jobs[JOB].lease is None
        await ledger.put(lambda _: leased(2, "two"))
        assert ledger.pipeline.next == 5

    story(tmp_path, write)
    (path,) = [file for file in (tmp_path / "data" / "topics").rglob("*.log") if b"leased" in file.read_bytes()]
    data = path.read_bytes()
    mark = [at for at in range(len(data)) if data.startswith(b'{"event":', at)][lost]
    path.write_bytes(data[: mark + 2] + b"EVENT" + data[mark + 7 :])
    command = [sys.executable, "-m", "logboom", "repair", "--yes", str(tmp_path / "data")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    story(tmp_path, go_on)


def test_a_log_that_was_trimmed_to_its_end_has_lost_nothing(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        asleep = ledger_of(broker)
        await asleep.put(lambda _: leased(1, "one"))
        await broker.trim(PIPELINE_TOPIC, 0, 1)
        for ledger in (asleep, ledger_of(broker)):
            await ledger.refresh()
            assert (ledger.pipeline.next, ledger.pipeline.jobs, ledger.pipeline.unread) == (1, {}, {})
        await asleep.put(lambda _: leased(1, "anew"))

    story(tmp_path, tell)


def test_a_record_that_cannot_be_read_is_not_trimmed_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "WHOLE_EVERY", 6)

    async def tell(broker: LocalBroker) -> None:
        ledger = ledger_of(broker)
        await ledger.put(lambda _: leased(1, "one"))
        for number in range(4):
            await ledger.put(lambda _, number=number: Beat(JOB, 1, number))  # type: ignore[misc]
        await append_raw(broker, b"garbage", b"")
        for number in range(5):
            await ledger.put(lambda _, number=number: Beat(JOB, 1, number))  # type: ignore[misc]
            await ledger.tidy()
            assert (await broker.describe_topic(PIPELINE_TOPIC)).partitions[0].first == 0
            assert ledger.pipeline.may_have_more(JOB)
        await ledger.put(lambda _: Beat(JOB, 1))
        await ledger.tidy()
        assert not ledger.pipeline.may_have_more(JOB)
        assert (await ledger_of(broker).refresh()).jobs == ledger.pipeline.jobs

    story(tmp_path, tell)


def test_others_append_to_the_log_only_at_a_seqno_that_they_name(tmp_path: Path) -> None:
    async def tell(broker: LocalBroker) -> None:
        (answer,) = await broker.append([Part(PIPELINE_TOPIC, [build([b"x"])], 0)])
        assert isinstance(answer, TopicNotAllowed)

    story(tmp_path, tell)
