"""A broker lives through hours of writing, reading, kills and power losses, on one seed each.

Run one seed again:  LOGBOOM_SEED=17 pytest tests/simulation/test_broker_life.py -k hours
"""

from __future__ import annotations

import os

import pytest

from simulation.broker_life import BrokerLife

SHORT_SEEDS = range(1, 4)
SOAK_SEEDS = range(100, 200)


def live(seed: int, seconds: float = 10_000.0) -> tuple[BrokerLife, str]:
    life = BrokerLife(seed, seconds)
    try:
        return life, life.run()
    except BaseException as error:
        error.add_note(
            f"life {life.lives} of seed {seed}; again: "
            f"LOGBOOM_SEED={seed} pytest tests/simulation/test_broker_life.py -k hours"
        )
        raise


def test_what_was_promised_survives_hours_of_crashes() -> None:
    life, _ = live(int(os.environ.get("LOGBOOM_SEED", "0")))
    assert life.lives > 10
    assert life.power_losses > 5


@pytest.mark.parametrize("seed", SHORT_SEEDS)
def test_what_was_promised_survives_every_crash(seed: int) -> None:
    live(seed, 2_000.0)


def test_the_same_seed_gives_the_same_history() -> None:
    assert live(7, 600.0)[1] == live(7, 600.0)[1] != live(8, 600.0)[1]


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_what_was_promised_survives_every_crash_on_many_seeds(seed: int) -> None:
    live(seed)
