"""Groups live through everything that chance makes of one seed each; the invariants are looked at after every step.

Run one seed again:   LOGBOOM_SEED=17 pytest tests/simulation/test_raft_life.py -k this_seed
It prints the lines that are needed to fail; they are a story that support/raft/stage.py can tell.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from support.raft.planted import BUGS, PlantedBug, planted, search
from support.raft.simulator import Simulation, replay, rule_of, shrink

SHORT_SEEDS = 300
SOAK_SEEDS = 10_000
SHARES = 4
SOAK_SHARES = 20
COVERED = (
    "elections",
    "membership changes",
    "transfers",
    "crashes when written",
    "crashes when sent",
    "crashes when applied",
    "crashes when synced",
    "crashes with unsynced writes",
    "partitions both ways",
    "partitions one way",
    "partitions bridge",
    "leaders cut off",
    "messages lost",
    "messages doubled",
    "clock jumps",
    "failed writes",
    "failed disks",
    "lost disks",
    "compactions",
    "installs",
    "reads",
    "commits",
)


def live(seeds: range) -> Counter[str]:
    """What was covered. A seed that fails says how to run it again."""
    covered: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:
            error.add_note(f"again: LOGBOOM_SEED={seed} pytest tests/simulation/test_raft_life.py -k this_seed")
            raise
        covered.update(simulation.stage.counts)
        covered["commits"] += simulation.stage.invariants.commit
        covered["lines"] += len(simulation.lines)
    return covered


@pytest.mark.parametrize("share", range(SHARES))
def test_groups_keep_their_word_on_some_hundred_seeds(share: int) -> None:
    each = SHORT_SEEDS // SHARES
    covered = live(range(share * each, (share + 1) * each))
    rare = {"lost disks", "installs", "failed disks"}
    assert [what for what in COVERED if not covered[what] and what not in rare] == []


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SOAK_SHARES))
def test_groups_keep_their_word_on_ten_thousand_seeds(share: int) -> None:
    each = SOAK_SEEDS // SOAK_SHARES
    covered = live(range(share * each, (share + 1) * each))
    print("\n".join(f"{what:30} {count:10,}" for what, count in sorted(covered.items())))
    assert [what for what in COVERED if not covered[what]] == []


def test_this_seed() -> None:
    simulation = Simulation(int(os.environ.get("LOGBOOM_SEED", "0")))
    try:
        simulation.run()
    except Exception as error:
        needed = shrink(simulation.seed, simulation.count, simulation.lines)
        error.add_note("\n".join(needed))
        raise


def test_the_same_seed_gives_the_same_history() -> None:
    first, second, other = (Simulation(seed) for seed in (7, 7, 8))
    for simulation in (first, second, other):
        simulation.run()
    assert first.lines == second.lines != other.lines


def test_the_lines_of_a_history_lead_to_where_it_led() -> None:
    simulation = Simulation(7)
    simulation.run()
    assert replay(7, simulation.count, simulation.lines) is None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "_"))
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    """Near the seed that found it last; all seeds from the first on are for the long run."""
    assert search(bug, range(max(0, bug.seeds - 1), bug.seeds + 60)) is not None


@pytest.mark.soak
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "_"))
def test_a_planted_bug_is_found_within_the_seeds_that_the_page_says(bug: PlantedBug) -> None:
    assert search(bug, range(bug.seeds)) is not None


def test_a_failing_history_shrinks_to_a_few_lines_that_fail_alike() -> None:
    bug = next(bug for bug in BUGS if bug.name == "a follower acknowledges what is not synced")
    found = search(bug, range(10))
    assert found is not None
    seed, simulation, error = found
    with planted(bug):
        needed = shrink(seed, simulation.count, simulation.lines)
        assert rule_of(replay(seed, simulation.count, needed)) == rule_of(error) == "persistence"
    assert len(needed) < 80 < len(simulation.lines)
    assert replay(seed, simulation.count, needed) is None
