"""Times and limits are checked when they are made."""

from __future__ import annotations

import pytest

from logboom.raft import RaftSettings
from logboom.raft.settings import RANGES


@pytest.mark.parametrize("name", RANGES)
def test_a_setting_out_of_its_range_is_named_with_the_range(name: str) -> None:
    least, most = RANGES[name]
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=f"{name} is {value}: from {least} to {most}"):
            RaftSettings(**{name: value})


@pytest.mark.parametrize(
    ("tick", "heartbeat", "election", "problem"),
    [(50, 40, 500, "at least tick_ms"), (10, 100, 299, "at least 3 times heartbeat_ms, 300")],
)
def test_times_must_fit_each_other(tick: int, heartbeat: int, election: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RaftSettings(tick_ms=tick, heartbeat_ms=heartbeat, election_ms=election)


def test_every_setting_but_none_twice_has_a_range() -> None:
    assert set(RANGES) == set(RaftSettings.__struct_fields__)
