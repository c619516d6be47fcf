"""Mutants run in child processes: a crash in native code is a failure too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.mutants.batches import mutant, run, sources

TESTS = Path(__file__).parents[1]
SOAK = int(os.environ.get("LOGBOOM_SOAK_MUTANTS", "1000000"))
CHUNK = 50_000


def run_child(seed: int, count: int, start: int = 0) -> str:
    command = [sys.executable, "-m", "support.mutants.batches", str(seed), str(count), str(start)]
    child = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-4000:]
    return child.stdout


def test_mutants_are_refused_with_a_named_error_or_read_the_same_in_every_way() -> None:
    verdicts = run_child(seed=1, count=5_000)
    for verdict in (
        "sound",
        "NotABatch",
        "HeaderCorrupt",
        "BodyCorrupt",
        "UnsupportedBatch",
        "MalformedBatch",
        "BatchTooLarge",
    ):
        assert verdict in verdicts


def test_a_mutant_follows_from_its_seed_and_number() -> None:
    assert [mutant(3, number) for number in range(50)] == [mutant(3, number) for number in range(50)]
    assert mutant(3, 1) != mutant(4, 1)


def test_every_source_of_mutants_is_sound() -> None:
    from support.mutants.batches import judge

    assert {judge(source) for source in sources()} == {"sound"}


def test_a_failure_names_the_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes) -> str:
        raise IndexError("out of range")

    monkeypatch.setattr("support.mutants.batches.judge", fail)
    with pytest.raises(AssertionError, match=r"mutant\(7, 2\): IndexError: out of range"):
        run(7, 1, start=2)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_mutants_are_refused_with_a_named_error_or_read_the_same_in_every_way() -> None:
    for start in range(0, SOAK, CHUNK):
        run_child(seed=2026, count=min(CHUNK, SOAK - start), start=start)
