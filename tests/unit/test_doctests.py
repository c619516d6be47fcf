"""The examples in docstrings are right."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import logboom.batch

MODULES = [
    "logboom.batch",
    *(f"logboom.batch.{module.name}" for module in pkgutil.iter_modules(logboom.batch.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert not failed


def test_there_are_examples_to_run() -> None:
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) >= 4
