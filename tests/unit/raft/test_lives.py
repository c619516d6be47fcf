"""A member that lost its memory counts for nothing with those who remember it."""

from __future__ import annotations

import pytest

from logboom.raft import Acknowledgement, Life, NodeRole
from logboom.raft.lives import LIVES_KEPT, judge
from logboom.raft.messages import AnswerVote, AppendAnswer, AppendEntries, AskVote, Disown, Heartbeat
from support.raft.group import RaftGroup
from support.raft.lone import LoneMember, life_of, of_kind

FIRST = Life(10)
SECOND = FIRST.next(20, end=5)
THIRD = SECOND.next(30, end=9)


@pytest.mark.parametrize(
    ("known", "acknowledged", "life", "judgement"),
    [
        (None, None, SECOND, "next"),
        (FIRST, None, FIRST, "same"),
        (FIRST, None, SECOND, "next"),
        (FIRST, None, THIRD, "next"),
        (THIRD, None, FIRST, "past"),
        (SECOND, None, FIRST.next(21, 5), "forgetful"),
        (SECOND, None, Life(99), "forgetful"),
        (FIRST, Acknowledgement(2, 10, 5), SECOND, "next"),
        (FIRST, Acknowledgement(2, 10, 6), SECOND, "short"),
        (FIRST, Acknowledgement(2, 20, 8), SECOND, "next"),
        (None, Acknowledgement(2, 30, 9), SECOND.next(31, 9), "forgetful"),
    ],
)
def test_a_life_is_judged_by_what_it_descends_from_and_what_it_began_with(
    known: Life | None, acknowledged: Acknowledgement | None, life: Life, judgement: str
) -> None:
    assert judge(known, acknowledged, life) == judgement


def test_a_life_names_a_bounded_number_of_those_before_it() -> None:
    life = Life(1)
    for number in range(2, 3 * LIVES_KEPT):
        life = life.next(number, 0)
    assert life.before == tuple(range(3 * LIVES_KEPT - 2, 2 * LIVES_KEPT - 2, -1))


def test_the_vote_of_a_broken_chain_is_not_counted_and_it_is_told() -> None:
    lone = LoneMember()
    lone.campaign()
    lone.node.step(AnswerVote(2, 1, lone.term, Life(5), True))
    (told,) = lone.take()
    assert isinstance(told, Disown)
    assert (told.to, told.disowned) == (2, 5)
    assert lone.role() is NodeRole.CANDIDATE
    lone.hear(AnswerVote, 2, lone.term, True)
    assert lone.role() is NodeRole.LEADER


def test_a_vote_of_a_new_life_counts_only_when_that_life_is_on_disk() -> None:
    lone = LoneMember()
    lone.campaign()
    lone.holds_disk = True
    vote = AnswerVote(2, 1, lone.term, life_of(2).next(5, 0), True)
    lone.node.step(vote)
    lone.take()
    lone.node.step(vote)
    assert lone.role() is NodeRole.CANDIDATE
    lone.sync()
    assert lone.role() is NodeRole.LEADER


def test_a_candidate_of_a_broken_chain_gets_no_vote() -> None:
    lone = LoneMember()
    lone.node.step(AskVote(2, 1, 5, Life(5), 0, 0))
    assert [type(message) for message in lone.take()] == [Disown]
    assert lone.term == 0


def test_a_shorter_end_than_acknowledged_is_refused_whoever_leads() -> None:
    lone = LoneMember()
    lone.hear(Heartbeat, 3, 1, 0, 0, (Acknowledgement(2, life_of(2).id, 7),))
    lone.node.step(AskVote(2, 1, 5, life_of(2).next(5, end=6), 100, 4))
    (told,) = lone.take()
    assert isinstance(told, Disown)
    assert "lost what it had synced" in told.reason
    lone.node.step(AskVote(2, 1, 1, life_of(2).next(6, end=7), 100, 4, True))
    assert of_kind(Disown, lone.take()) == []


def test_a_message_of_a_life_that_is_over_is_ignored() -> None:
    lone = LoneMember()
    lone.hear(AppendEntries, 2, 1, 0, 0, (), 0)
    lone.node.step(Heartbeat(2, 1, 1, life_of(2).next(5, 0), 0))
    lone.take()
    lone.node.step(AskVote(2, 1, 9, life_of(2), 100, 4))
    assert lone.take() == []
    assert lone.term == 1


def test_who_is_disowned_by_a_member_says_nothing_any_more() -> None:
    lone = LoneMember()
    own = lone.disk.hard_state.life
    lone.hear(Disown, 3, 0, own.id + 1, "another life")
    assert lone.role() is NodeRole.FOLLOWER
    lone.hear(Disown, 3, 0, own.id, "lost")
    assert lone.role() is NodeRole.STOPPED
    assert lone.effects[-1].disowned == "lost"
    assert lone.tick(1_000) == []
    assert lone.hear(AskVote, 2, 9, 100, 4) == []


def test_a_restored_backup_does_not_vote_a_hole_into_the_log() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    backup = group.members[3].disk.hard_state
    group.members[3].crash()
    group.members[3].start()
    group.tick(3)
    group.cut_off(2)
    group.propose()
    group.settle()
    restored = group.members[3]
    restored.crash()
    restored.disk.hard_state = backup
    restored.disk.log, restored.disk.synced = [], []
    restored.disk.remembered.clear()
    group.members[1].crash()
    group.heal()
    restored.start()
    group.tick(100)
    assert restored.role() is NodeRole.STOPPED
    assert group.leader == 0


def test_the_leader_looks_anew_where_the_log_of_a_new_life_ends() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.propose()
    group.settle()
    group.members[2].crash()
    group.members[2].start()
    group.tick(3)
    group.propose()
    group.settle()
    assert group[2].status().committed == group[1].status().committed == 3


def test_an_answer_of_a_stranger_is_not_counted() -> None:
    lone = LoneMember(2)
    lone.lead(answered=False)
    lone.hear(AppendAnswer, 9, lone.term, 1)
    assert lone.committed == 0
