"""Who is called back when the promise of an append is kept: once, in time, and at nobody else's cost."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from uuid import UUID

import pytest

from logboom.batch import build
from logboom.broker.api import Answer, Appended, Outcome, Part, Settings, call_when_done
from logboom.broker.append.promise import Entry, Promise
from logboom.broker.local import LocalBroker
from logboom.errors import OutcomeUnknown, TopicNotFound
from logboom.storage.data.state import StateReader
from logboom.storage.data.topic import FlushSettings
from logboom.storage.files.disk import OsDisk
from unit.broker.append.stepped import SteppedNode


def test_whoever_fails_with_its_answers_takes_nobody_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(answers: list[Answer]) -> None:
        raise ValueError(f"what to do with {len(answers)}?")

    node = SteppedNode(tmp_path)
    writer = node.writer()
    writer.submit(Entry(Promise(fail, 1, 1), 0, [build([b"a"])], "durable"))
    behind = node.send(writer, b"b")
    with caplog.at_level(logging.ERROR):
        node.sync()
    assert behind.done()
    assert "what to do with 1?" in caplog.text


def test_an_append_of_nothing_is_answered_at_once() -> None:
    found: list[list[Answer]] = []
    Promise(found.append, 0, 0)
    assert found == [[]]


def test_who_is_called_back_is_called_once_with_the_answers_of_all_parts(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        try:
            await broker.create_topic("synced")
            await broker.create_topic("written", settings=Settings(flush=FlushSettings("os")))
            await broker.append([Part("written", [build([b"first"])])])  # makes the file
            found: list[Outcome] = []
            parts = [Part("synced", [build([b"a"])]), Part("written", [build([b"b"]), build([b"c"])])]
            broker.append_then(parts[1:], "leader", found.append)
            assert _seqnos(found.pop()) == [1, 2]
            broker.append_then(parts, "durable", found.append)
            assert not found
            await broker.append(parts, "durable")
            assert [_seqnos(outcome) for outcome in found] == [[0, 3, 4]]
        finally:
            await broker.close()

    asyncio.run(story())


def test_readers_in_other_processes_are_told_before_a_durable_append_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        try:
            topic = UUID((await broker.create_topic("events", settings=Settings())).id).bytes
            state = StateReader(OsDisk(str(tmp_path)), f"{tmp_path}/state")
            told: list[int] = []

            def look(outcome: Outcome) -> None:
                standing = state.standing(topic, 0)
                told.append(-1 if standing is None else standing.committed)

            for _ in range(3):
                broker.append_then([Part("events", [build([b"a", b"b"])])], "durable", look)
                await broker.append([Part("events", [build([b"c"])])], "durable")
            assert told == [3, 6, 9]
        finally:
            await broker.close()

    asyncio.run(story())


def test_a_future_that_is_done_given_up_or_failed_is_told_as_an_outcome() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        found: list[Outcome] = []
        done, failed, given_up = (loop.create_future() for _ in range(3))
        done.set_result([])
        for future in (done, failed, given_up):
            call_when_done(future, found.append)
        assert found == [[]]
        failed.set_exception(TopicNotFound("a", "here"))
        given_up.cancel()
        await asyncio.sleep(0)
        assert [type(outcome) for outcome in found] == [list, TopicNotFound, OutcomeUnknown]

    asyncio.run(story())


def _seqnos(outcome: Outcome) -> list[int]:
    assert isinstance(outcome, list)
    seqnos = []
    for answer in outcome:
        assert isinstance(answer, Appended)
        seqnos.append(answer.base_seqno)
    return seqnos
