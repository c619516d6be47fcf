"""Majorities and joint majorities, against brute force over all small cases."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from logboom.raft.quorum import UNLIMITED, agreed, count_joint_votes, count_votes, majority

SIZES = range(1, 8)


@pytest.mark.parametrize("size", SIZES)
def test_any_two_majorities_have_a_member_in_common_and_no_smaller_number_has(size: int) -> None:
    members = range(size)
    needed = majority(size)
    assert all(
        set(one) & set(other) for one in combinations(members, needed) for other in combinations(members, needed)
    )
    fewer = needed - 1
    assert 2 * fewer <= size


@pytest.mark.parametrize("size", range(1, 6))
def test_what_is_agreed_is_the_highest_that_some_majority_has_reached(size: int) -> None:
    for reached in product(range(5), repeat=size):
        majorities = combinations(reached, majority(size))
        assert agreed(list(reached)) == max(min(some) for some in majorities)


def test_nobody_holds_nobody_back() -> None:
    assert agreed([]) == UNLIMITED
    assert count_votes((), {}) == "won"


@pytest.mark.parametrize("size", range(1, 6))
def test_votes_are_won_lost_or_pending_as_what_may_still_come_decides(size: int) -> None:
    voters = tuple(range(size))
    for cast in product((True, False, None), repeat=size):
        votes = {voter: vote for voter, vote in enumerate(cast) if vote is not None}
        ends = [
            sum(vote is True or (vote is None and may) for vote, may in zip(cast, later, strict=True)) >= majority(size)
            for later in product((True, False), repeat=size)
        ]
        expected = "won" if all(ends) else "pending" if any(ends) else "lost"
        assert count_votes(voters, votes) == expected


HALVES = [half for size in range(4) for half in combinations(range(1, 5), size)]


@pytest.mark.parametrize("voters", HALVES)
@pytest.mark.parametrize("outgoing", HALVES)
def test_a_joint_vote_needs_both_halves_whatever_may_still_come(
    voters: tuple[int, ...], outgoing: tuple[int, ...]
) -> None:
    everybody = sorted({*voters, *outgoing})

    def is_won(votes: dict[int, bool]) -> bool:
        return all(
            not half or sum(votes[voter] for voter in half) >= majority(len(half)) for half in (voters, outgoing)
        )

    for cast in product((True, False, None), repeat=len(everybody)):
        votes = {voter: vote for voter, vote in zip(everybody, cast, strict=True) if vote is not None}
        silent = [voter for voter in everybody if voter not in votes]
        ends = [
            is_won({**votes, **dict(zip(silent, later, strict=True))})
            for later in product((True, False), repeat=len(silent))
        ]
        result = count_joint_votes(voters, outgoing, votes)
        assert (result == "won") == all(ends)
        if any(ends):
            assert result != "lost"


@pytest.mark.parametrize("voters", HALVES)
@pytest.mark.parametrize("outgoing", HALVES)
def test_a_joint_agreement_is_the_highest_that_both_halves_have_reached(
    voters: tuple[int, ...], outgoing: tuple[int, ...]
) -> None:
    everybody = sorted({*voters, *outgoing})
    for values in product(range(3), repeat=len(everybody)):
        reached = dict(zip(everybody, values, strict=True))
        found = min(agreed([reached[voter] for voter in half]) for half in (voters, outgoing))
        best = max(
            (
                index
                for index in (*range(3), UNLIMITED)
                if all(
                    not half or sum(reached[voter] >= index for voter in half) >= majority(len(half))
                    for half in (voters, outgoing)
                )
            ),
        )
        assert found == best
