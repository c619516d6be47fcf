"""A group of consumers lives through deaths, hangs and power losses, on one seed each.

Run one seed again:  LOGBOOM_SEED=17 pytest tests/simulation/test_group_life.py -k seed
"""

from __future__ import annotations

import os

import pytest

from simulation.group_life import GroupLife

SHORT_SEEDS = range(30)
SOAK_SEEDS = range(1_000, 4_000, 100)


def live(seed: int, seconds: float) -> tuple[GroupLife, str]:
    life = GroupLife(seed, seconds)
    try:
        return life, life.run()
    except BaseException as error:
        error.add_note(
            f"life {life.lives} of seed {seed}; again: "
            f"LOGBOOM_SEED={seed} pytest tests/simulation/test_group_life.py -k seed"
        )
        raise


def test_nobody_reads_what_another_holds_and_no_place_goes_back() -> None:
    lives = [live(seed, 15.0)[0] for seed in SHORT_SEEDS]
    assert sum(life.commits for life in lives) > 500
    assert sum(life.moves for life in lives) > 200


def test_one_seed_is_lived_again() -> None:
    live(int(os.environ.get("LOGBOOM_SEED", "100")), 30.0)


def test_the_same_seed_gives_the_same_history_of_a_group() -> None:
    assert live(7, 10.0)[1] == live(7, 10.0)[1] != live(8, 10.0)[1]


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_nobody_reads_what_another_holds_on_many_seeds(seed: int) -> None:
    for each in range(seed, seed + 100):
        live(each, 30.0)
