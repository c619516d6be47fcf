"""Mutants run in child processes: a crash in native code is a failure too."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.mutants.http import SOURCES, mutant, run

TESTS = Path(__file__).parents[1]
SOAK = int(os.environ.get("LOGBOOM_SOAK_REQUESTS", "200000"))
CHUNK = 10_000
GROWTH_MIB_MAX = 64


def run_child(seed: int, count: int, start: int = 0) -> str:
    command = [sys.executable, "-m", "support.mutants.http", str(seed), str(count), str(start)]
    child = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-4000:]
    grown = re.search(r"grown by (\d+) MiB", child.stdout)
    assert grown is not None
    assert int(grown[1]) < GROWTH_MIB_MAX
    return child.stdout


def test_broken_requests_are_answered_or_refused_and_leave_nothing_behind() -> None:
    verdicts = run_child(1, 4_000)
    for status in ("200", "400", "404", "405", "409", "431"):
        assert status in verdicts


def test_a_conversation_follows_from_its_seed_and_number() -> None:
    assert [mutant(3, number) for number in range(50)] == [mutant(3, number) for number in range(50)]
    assert mutant(3, 1) != mutant(4, 1)
    assert len(SOURCES) > 25


def test_a_failing_conversation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> str:
        raise IndexError("out of range")

    monkeypatch.setattr("support.mutants.http.judge", fail)
    with pytest.raises(AssertionError, match=r"mutant\(7, 2\): IndexError: out of range"):
        asyncio.run(run(7, 1, start=2))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_broken_requests_are_answered_or_refused_and_leave_nothing_behind() -> None:
    for start in range(0, SOAK, CHUNK):
        run_child(2026, min(CHUNK, SOAK - start), start)
