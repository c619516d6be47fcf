"""Spark refuses outputMode("update") for every Python sink before it asks it: the listener of a session tells more."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from logboom.spark.cursors import CursorListener


@pytest.mark.parametrize(
    ("exception", "is_told"),
    [
        ("requirement failed: logboom does not support Update mode. SQLSTATE: XXKST", True),
        ("requirement failed: other does not support Update mode. SQLSTATE: XXKST", False),
        (None, False),
    ],
)
def test_a_query_that_was_refused_for_its_output_mode_is_told_the_way_that_works(
    exception: str | None, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    event: Any = SimpleNamespace(exception=exception)
    with caplog.at_level(logging.ERROR):
        CursorListener().onQueryTerminated(event)
    assert ("foreachBatch" in caplog.text) == is_told
