"""Runs ranges of mutants: in this process, or in a child of it, where a crash in native code is a failure too.

A module of mutants has `run(seed, count, start)`, and its `main` hands that to `drive`. A failure names its mutant, and
a child that dies has said which thousand it was at.
"""

from __future__ import annotations

import faulthandler
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
MEMORY_BYTES: Final = 4 << 30
WARM: Final = 500
"""After so many mutants everything that is kept for good is there."""
GROWTH_MIB_MAX: Final = 64

Run = Callable[[int, int, int], Counter[str]]
"""The verdicts on so many mutants of a seed, from a number on."""


@contextmanager
def judging(seed: int, number: int, complaints: Sequence[str] = (), what: str = "mutant") -> Iterator[None]:
    """Around the judgement of one mutant. What an event loop has complained of is a failure of it."""
    if number % 1000 == 0:
        print(f"at {what} {number} of seed {seed}", file=sys.stderr, flush=True)
    try:
        yield
        assert not complaints, complaints[0]
    except Exception as error:
        reason = f"{type(error).__name__}: {error} {' '.join(complaints)}".rstrip()
        raise AssertionError(f"{what}({seed}, {number}): {reason}") from error


def drive(run: Run, seed: int, count: int, start: int = 0) -> None:
    """The whole of a child: prints the verdicts, and by how much it has grown."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warm = run(seed, min(count, WARM), start)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verdicts = warm + run(seed, count - warm.total(), start + warm.total())
    for verdict, times in verdicts.most_common():
        print(f"{times:9,} {verdict}")
    print(f"grown by {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024} MiB")


def run_child(
    mutants: str, seed: int, count: int, start: int = 0, *more: str, growth_mib_max: int = GROWTH_MIB_MAX
) -> str:
    """What a child that ran these has printed."""
    command = [sys.executable, "-m", f"support.mutants.{mutants}", str(seed), str(count), str(start), *more]
    child = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-4000:]
    grown = re.search(r"grown by (\d+) MiB", child.stdout)
    assert grown is not None, child.stdout
    assert int(grown[1]) < growth_mib_max, child.stdout
    return child.stdout


def run_in_chunks(mutants: str, seed: int, count: int, chunk: int, growth_mib_max: int = GROWTH_MIB_MAX) -> None:
    """A child for each chunk."""
    for start in range(0, count, chunk):
        run_child(mutants, seed, min(chunk, count - start), start, growth_mib_max=growth_mib_max)
