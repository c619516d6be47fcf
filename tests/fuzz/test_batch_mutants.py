"""Mutants run in child processes: a crash in native code is a failure too."""

from __future__ import annotations

import os

import pytest

from support.mutants.batches import mutant, run, sources
from support.mutants.driver import run_child, run_in_chunks

SOAK = int(os.environ.get("LOGBOOM_SOAK_MUTANTS", "1000000"))
CHUNK = 50_000
GROWTH_MIB_MAX = 1024
"""A batch may say that it needs much, up to its limit."""


def test_mutants_are_refused_with_a_named_error_or_read_the_same_in_every_way() -> None:
    verdicts = run_child("batches", 1, 5_000, growth_mib_max=GROWTH_MIB_MAX)
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
    run_in_chunks("batches", 2026, SOAK, CHUNK, growth_mib_max=GROWTH_MIB_MAX)
