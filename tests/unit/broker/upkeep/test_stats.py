"""What the tally remembers of errors is bounded."""

from __future__ import annotations

import pytest

from logboom.broker.upkeep.stats import TOLD_MAX, Tally
from logboom.errors import StorageError


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_errors_of_one_log_that_take_turns_are_each_told_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    for _ in range(5):
        for number in range(2):
            with tally.guard("events/0", f"scrubbing segment {number}"):
                raise StorageError("no")
    assert (tally.errors, tally.last_error) == (10, "scrubbing segment 1: no")
    assert len(said(caplog)) == 6
    assert said(caplog)[-1] == "scrubbing segment 1: no (4 times by now)"


def test_only_so_many_errors_of_a_place_are_remembered_the_last_ones(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    for number in (*range(TOLD_MAX + 1), TOLD_MAX, 0):
        tally.note_error("events/0", f"error {number}")
    assert said(caplog)[-2:] == [f"events/0: error {TOLD_MAX} (2 times by now)", "events/0: error 0"]
    assert tally.errors == TOLD_MAX + 3


def test_errors_of_logs_that_are_gone_are_forgotten_and_those_of_other_places_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally = Tally()
    for _ in range(2):
        for where in ("gone/0", "events/0", "the trash"):
            tally.note_error(where, "no")
        tally.forget_others({"events/0"})
    assert said(caplog)[3:] == ["gone/0: no", "events/0: no (2 times by now)", "the trash: no (2 times by now)"]
