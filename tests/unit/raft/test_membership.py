"""Memberships as values: what a change makes of them."""

from __future__ import annotations

from itertools import product

import pytest

from logboom.raft import InvalidMembership, MemberChange, Membership

THREE = Membership((1, 2, 3))


def changes(text: str) -> list[MemberChange]:
    """v4 l5 r1: a voter, a learner, a removal."""
    names = {"v": "voter", "l": "learner", "r": "remove"}
    return [MemberChange(names[word[0]], int(word[1:])) for word in text.split()]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "begun", "left"),
    [
        ("l4", Membership((1, 2, 3), learners=(4,)), None),
        ("v4", Membership((1, 2, 3, 4), (1, 2, 3)), Membership((1, 2, 3, 4))),
        ("r1", Membership((2, 3), (1, 2, 3)), Membership((2, 3))),
        ("r1 v4", Membership((2, 3, 4), (1, 2, 3)), Membership((2, 3, 4))),
        ("r1 r2 r3 v4 v5 v6", Membership((4, 5, 6), (1, 2, 3)), Membership((4, 5, 6))),
        ("l3", Membership((1, 2), (1, 2, 3), learners_next=(3,)), Membership((1, 2), learners=(3,))),
        ("l3 l4", Membership((1, 2), (1, 2, 3), (4,), (3,)), Membership((1, 2), learners=(3, 4))),
        ("r9", Membership((1, 2, 3)), None),
        ("v2", Membership((1, 2, 3)), None),
    ],
)
def test_a_change_of_voters_is_joint_and_one_of_learners_is_not(
    text: str, begun: Membership, left: Membership | None
) -> None:
    membership = THREE.begin(changes(text))
    assert membership == begun
    assert membership.is_joint == (left is not None)
    if left is not None:
        assert membership.leave() == left


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("r1 r2 r3", "no voter would be left"),
        ("v4 r4", "member 4 is changed twice"),
        ("v0", "member ids are positive"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidMembership, match=problem):
        THREE.begin(changes(text))


def test_there_is_no_change_within_a_change_and_no_end_without_one() -> None:
    joint = THREE.begin(changes("v4"))
    with pytest.raises(InvalidMembership):
        joint.begin(changes("v5"))
    with pytest.raises(InvalidMembership):
        THREE.leave()


def test_nobody_is_a_voter_and_a_learner_whatever_is_changed() -> None:
    start = Membership((1, 2), learners=(3,))
    for actions in product(("voter", "learner", "remove", None), repeat=4):
        steps = [MemberChange(action, member) for member, action in enumerate(actions, 1) if action is not None]  # type: ignore[arg-type]
        try:
            begun = start.begin(steps)
        except InvalidMembership:
            continue
        final = begun.leave() if begun.is_joint else begun
        assert not set(begun.voters) & {*begun.learners, *begun.learners_next}
        assert set(begun.learners_next) <= set(begun.outgoing)
        assert not set(final.voters) & set(final.learners)
        assert final.voters
        expected = {member: "voter" if member in (1, 2) else "learner" for member in (1, 2, 3)}
        for step in steps:
            expected[step.member] = step.action
        assert {member for member, kind in expected.items() if kind == "voter"} == set(final.voters)
        assert {member for member, kind in expected.items() if kind == "learner"} == set(final.learners)
