"""Mutants run in child processes: a crash in native code is a failure too."""

from __future__ import annotations

import asyncio
import os

import pytest

from support.mutants.driver import run_child, run_in_chunks
from support.mutants.frames import SOURCES, mutant, run

SOAK = int(os.environ.get("LOGBOOM_SOAK_FRAMES", "1000000"))
CHUNK = 50_000


def test_broken_frames_are_answered_or_refused_and_leave_nothing_behind() -> None:
    verdicts = run_child("frames", 1, 10_000)
    for verdict in ("lived", "remote-protocol-error", "refused hello", "limit-exceeded"):
        assert verdict in verdicts


def test_broken_frames_do_no_harm_to_a_broker_with_files() -> None:
    assert "lived" in run_child("frames", 2, 2_000, 0, "local")


def test_a_conversation_follows_from_its_seed_and_number() -> None:
    assert [mutant(3, number) for number in range(50)] == [mutant(3, number) for number in range(50)]
    assert mutant(3, 1) != mutant(4, 1)
    assert len(SOURCES) > 15


def test_a_failing_conversation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> str:
        raise IndexError("out of range")

    monkeypatch.setattr("support.mutants.frames.judge", fail)
    with pytest.raises(AssertionError, match=r"mutant\(7, 2\): IndexError: out of range"):
        asyncio.run(run(7, 1, start=2))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_broken_frames_are_answered_or_refused_and_leave_nothing_behind() -> None:
    run_in_chunks("frames", 2026, SOAK, CHUNK)
