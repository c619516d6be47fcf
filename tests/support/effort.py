"""How much of a long walk is taken in CI: every so many steps of it there, every step in `make soak`.

A walk that goes to every call of a disk, or every way to fail, is the proof; CI takes an even part of it, always the
same one, and no more time than it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def strides(in_ci: int) -> list[Any]:
    """Parameters for a walk that takes every so many steps: all of them in a soak."""
    return [pytest.param(in_ci, id=f"every-{in_ci}"), pytest.param(1, id="every-one", marks=pytest.mark.soak)]


def some_of(all_of_them: Iterable[Any], *in_ci: Any) -> list[Any]:
    """Parameters of which CI has these, and a soak the others. A tuple is a parameter for each name."""
    return [
        each if each in in_ci else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.soak)
        for each in all_of_them
    ]
