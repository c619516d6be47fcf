"""Ongaro's dissertation ("Consensus: Bridging Theory and Practice"), beyond the paper: transfer, membership, clients,
pre-vote and check-quorum. Every test says in its first words which section it is of.
"""

from __future__ import annotations

import pytest

from logboom.raft import MemberChange, Membership, NodeRole, NotAppended, Proposal
from logboom.raft.messages import (
    AnswerRead,
    AnswerVote,
    AppendAnswer,
    AppendEntries,
    AskRead,
    AskVote,
    Heartbeat,
    HeartbeatAnswer,
    TakeOver,
)
from support.raft.group import SETTINGS, RaftGroup
from support.raft.lone import LoneMember, of_kind

VOTER, LEARNER, REMOVE = "voter", "learner", "remove"


def change(group: RaftGroup, *changes: tuple[str, int]) -> Proposal | NotAppended:
    steps = [MemberChange(action, member) for action, member in changes]  # type: ignore[arg-type]
    return group[group.leader].change_members(steps)


# 3.8: what must be on disk is in test_write_order.


# 3.10: leadership transfer.


def test_section_3_10_a_successor_that_has_everything_campaigns_at_once_and_wins_within_the_lease() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.tick(2)
    assert group[1].hand_over(3)
    group.settle()
    assert group.leader == 3
    assert group[1].status().term == 2


def test_section_3_10_a_successor_gets_what_it_lacks_before_and_nothing_is_appended_meanwhile() -> None:
    lone = LoneMember()
    lone.lead(answered=False)
    lone.hear(AppendAnswer, 3, lone.term, 1)
    assert lone.node.hand_over(2)
    assert of_kind(TakeOver, lone.take()) == []
    assert lone.node.propose(1) == NotAppended("handing over", 2)
    (told,) = of_kind(TakeOver, lone.hear(AppendAnswer, 2, lone.term, 1))
    assert told.to == 2


def test_section_3_10_a_transfer_that_does_not_happen_in_an_election_time_is_given_up() -> None:
    lone = LoneMember()
    lone.lead()
    lone.node.hand_over(2)
    for _ in range(SETTINGS.election_ticks):
        lone.tick()
        lone.hear(HeartbeatAnswer, 2, lone.term)
    assert isinstance(lone.node.propose(1), Proposal)


@pytest.mark.parametrize("member", [1, 4, 9])
def test_section_3_10_nobody_hands_over_to_himself_a_learner_or_a_stranger(member: int) -> None:
    lone = LoneMember(learners=(4,))
    lone.lead()
    assert not lone.node.hand_over(member)
    assert isinstance(lone.node.propose(1), Proposal)


def test_section_3_10_who_is_no_voter_does_not_take_over() -> None:
    lone = LoneMember((2, 3), learners=(1,))
    lone.hear(TakeOver, 2, 1)
    assert lone.role() is NodeRole.FOLLOWER


# 4.1 to 4.3: membership.


def test_section_4_1_a_membership_counts_from_when_it_is_written_and_no_more_when_it_is_cut() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.cut_off(1)
    change(group, (REMOVE, 3))
    group.settle()
    assert group[1].status().membership == Membership((1, 2), (1, 2, 3))
    group.elect(2)
    group.propose()
    group.heal()
    group.tick(5)
    assert group[1].status().membership == Membership((1, 2, 3))
    assert group.members[1].lost[-1].outcome == "unknown"


def test_section_4_1_one_change_at_a_time() -> None:
    lone = LoneMember()
    lone.lead()
    assert isinstance(lone.node.change_members([MemberChange("remove", 3)]), Proposal)
    refused = lone.node.change_members([MemberChange("remove", 2)])
    assert refused == NotAppended("a membership change is under way", 1)


def test_a_leader_changes_nothing_before_an_entry_of_its_term_is_committed() -> None:
    """The correction that was published after the dissertation."""
    lone = LoneMember()
    lone.lead(answered=False)
    refused = lone.node.change_members([MemberChange("remove", 3)])
    assert refused == NotAppended("no entry of this term is committed", 1)


def test_section_4_2_1_a_new_voter_is_a_learner_until_it_has_caught_up() -> None:
    group = RaftGroup([1, 2, 3], spare=[4])
    group.elect(1)
    for _ in range(20):
        group.propose()
    group.settle()
    refused = change(group, (VOTER, 4))
    assert isinstance(refused, NotAppended)
    assert (refused.reason, refused.detail) == ("a new voter has not caught up", "member 4")
    change(group, (LEARNER, 4))
    refused = change(group, (VOTER, 4))
    assert isinstance(refused, NotAppended)
    group.tick(3)
    assert group[1].status().followers[2].caught_up
    assert isinstance(change(group, (VOTER, 4)), Proposal)
    group.tick(3)
    assert group[4].status().membership == Membership((1, 2, 3, 4))


def test_section_4_2_1_who_needs_longer_than_an_election_time_has_not_caught_up() -> None:
    lone = LoneMember(learners=(4,))
    lone.lead(answered=False)
    for member in (2, 3):
        lone.hear(AppendAnswer, member, lone.term, 1)
    lone.node.propose(1)
    for _ in range(2 * SETTINGS.election_ticks):
        for member in (2, 3):
            lone.hear(HeartbeatAnswer, member, lone.term)
        lone.tick()
    lone.hear(AppendAnswer, 4, lone.term, 1)
    assert not lone.node.status().followers[2].caught_up
    lone.hear(AppendAnswer, 4, lone.term, 2)
    assert lone.node.status().followers[2].caught_up


def test_a_learner_counts_in_no_election_and_for_no_commit() -> None:
    lone = LoneMember(2, learners=(3, 4))
    lone.campaign()
    for member in (3, 4):
        lone.hear(AnswerVote, member, lone.term, True)
    assert lone.role() is NodeRole.CANDIDATE
    lone.hear(AnswerVote, 2, lone.term, True)
    for member in (3, 4):
        lone.hear(AppendAnswer, member, lone.term, 1)
    assert lone.committed == 0
    lone.hear(AppendAnswer, 2, lone.term, 1)
    assert lone.committed == 1


def test_a_learner_never_campaigns() -> None:
    lone = LoneMember((2, 3), learners=(1,))
    assert lone.tick(100 * SETTINGS.election_ticks) == []
    assert lone.role() is NodeRole.FOLLOWER


def test_who_does_not_know_yet_that_it_was_promoted_answers_who_knows() -> None:
    lone = LoneMember((2, 3), learners=(1,))
    assert of_kind(AnswerVote, lone.hear(AskVote, 2, 1, 5, 1))[0].granted


def test_section_4_2_2_a_removed_leader_leads_until_its_removal_is_committed() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    change(group, (REMOVE, 1))
    group.deliver()
    assert group.leader == 1
    group.settle()
    assert group.leader == 0
    assert group.members[1].role() is NodeRole.FOLLOWER
    group.tick(3 * SETTINGS.election_ticks)
    assert group.leader in (2, 3)
    assert group[group.leader].status().membership == Membership((2, 3))
    assert group.members[1].role() is NodeRole.FOLLOWER


def test_section_4_2_2_a_leader_that_is_being_removed_does_not_count_itself() -> None:
    lone = LoneMember()
    lone.lead()
    lone.node.change_members([MemberChange("remove", 1)])
    lone.take()
    lone.hear(AppendAnswer, 2, 1, 2)
    assert lone.committed == 1
    lone.hear(AppendAnswer, 3, 1, 2)
    assert lone.committed == 2
    lone.hear(AppendAnswer, 2, 1, 3)
    assert lone.role() is NodeRole.LEADER
    lone.hear(AppendAnswer, 3, 1, 3)
    assert lone.role() is NodeRole.FOLLOWER


def test_section_4_2_2_who_is_being_removed_still_campaigns_while_only_he_has_the_entry() -> None:
    """Otherwise nobody could be elected: 1 does not campaign, and 2 needs the vote of 1, whose log is longer."""
    group = RaftGroup([1, 2])
    group.elect(1)
    change(group, (REMOVE, 1))
    group.deliver()
    group.deliver(lambda message: message.sender == 2)
    assert group[1].status().membership == Membership((2,))
    assert group[2].status().membership == Membership((2,), (1, 2))
    group.members[1].crash()
    group.wire.clear()
    group.members[1].start()
    group.tick(10 * SETTINGS.election_ticks)
    assert group.leader == 2
    assert group[2].status().membership == group[1].status().membership == Membership((2,))
    assert group.members[1].role() is NodeRole.FOLLOWER


def test_section_4_2_3_who_was_removed_and_does_not_know_disturbs_nobody() -> None:
    group = RaftGroup([1, 2, 3, 4])
    group.elect(1)
    group.cut_off(4)
    change(group, (REMOVE, 4))
    group.settle()
    group.heal()
    group.cut_links.update({(member, 4) for member in (1, 2, 3)})
    term = group[1].status().term
    group.tick(20 * SETTINGS.election_ticks)
    assert group.members[4].role() is NodeRole.PRE_CANDIDATE
    assert (group.leader, group[1].status().term) == (1, term)


def test_section_4_2_3_who_hears_a_leader_votes_for_nobody_else_unless_the_leader_wants_it() -> None:
    lone = LoneMember()
    lone.hear(Heartbeat, 2, 1, 0)
    assert lone.hear(AskVote, 3, 5, 100, 1, True) == []
    assert lone.hear(AskVote, 3, 5, 100, 1) == []
    assert lone.term == 1
    lone.tick(SETTINGS.election_ticks - 1)
    assert lone.hear(AskVote, 3, 5, 100, 1) == []
    assert of_kind(AnswerVote, lone.hear(AskVote, 3, 5, 100, 1, called=True))[0].granted


def test_section_4_2_3_a_leader_is_disturbed_by_nobody_who_only_asks() -> None:
    lone = LoneMember()
    lone.lead()
    assert lone.hear(AskVote, 3, 9, 100, 1) == []
    assert lone.role() is NodeRole.LEADER


def test_section_4_3_a_joint_membership_needs_both_majorities() -> None:
    lone = LoneMember(3, learners=(4, 5, 6))
    lone.lead()
    swap = [MemberChange("voter", member) for member in (4, 5, 6)]
    swap += [MemberChange("remove", member) for member in (1, 2, 3)]
    assert isinstance(lone.node.change_members(swap), Proposal)
    lone.take()
    for member in (4, 5, 6):
        lone.hear(AppendAnswer, member, 1, 2)
    assert lone.committed == 1
    lone.hear(AppendAnswer, 3, 1, 2)
    assert lone.committed == 2


def test_section_4_3_the_final_membership_follows_a_committed_joint_one_and_no_other() -> None:
    lone = LoneMember()
    lone.lead()
    lone.node.change_members([MemberChange("remove", 3)])
    lone.take()
    assert lone.node.status().membership.is_joint
    assert lone.node.status().last == 2
    lone.hear(AppendAnswer, 2, 1, 2)
    assert lone.node.status().membership == Membership((1, 2))
    assert lone.node.status().last == 3


def test_section_4_3_a_new_leader_finishes_the_change_of_the_one_before() -> None:
    group = RaftGroup([1, 2, 3, 4])
    group.elect(1)
    change(group, (REMOVE, 4))
    group.deliver()
    group.members[1].crash()
    group.elect(2)
    group.members[1].start()
    group.tick(5)
    assert group[2].status().membership == Membership((1, 2, 3))
    assert group[1].status().membership == Membership((1, 2, 3))


def test_section_4_3_several_members_change_at_once() -> None:
    group = RaftGroup([1, 2, 3], spare=[4, 5, 6])
    group.elect(1)
    change(group, (LEARNER, 4), (LEARNER, 5), (LEARNER, 6))
    group.tick(3)
    change(group, *((VOTER, member) for member in (4, 5, 6)), *((REMOVE, member) for member in (1, 2, 3)))
    group.settle()
    group.tick(3 * SETTINGS.election_ticks)
    assert group.leader in (4, 5, 6)
    assert {group[member].status().membership for member in (4, 5, 6)} == {Membership((4, 5, 6))}


def test_a_change_that_makes_no_sense_is_not_appended() -> None:
    lone = LoneMember()
    lone.lead()
    refused = lone.node.change_members([MemberChange("remove", member) for member in (1, 2, 3)])
    assert refused == NotAppended("invalid membership", 1, "no voter would be left")


# 6.2: a leader that is alone; 6.4: reads.


def test_section_6_2_a_leader_that_hears_from_no_majority_steps_down() -> None:
    lone = LoneMember(5)
    lone.lead()
    for _ in range(3 * SETTINGS.election_ticks):
        lone.tick()
        lone.hear(HeartbeatAnswer, 2, 1)
        lone.hear(HeartbeatAnswer, 3, 1)
    assert lone.role() is NodeRole.LEADER
    for _ in range(2 * SETTINGS.election_ticks):
        lone.tick()
        lone.hear(HeartbeatAnswer, 2, 1)
        if lone.role() is not NodeRole.LEADER:
            break
    assert lone.role() is NodeRole.FOLLOWER


def test_section_6_4_a_read_is_confirmed_by_a_round_that_began_after_it_came() -> None:
    lone = LoneMember()
    lone.lead()
    (before,) = of_kind(Heartbeat, lone.tick(SETTINGS.heartbeat_ticks), to=2)
    lone.node.read(7)
    (after,) = of_kind(Heartbeat, lone.take(), to=2)
    lone.hear(HeartbeatAnswer, 2, 1, before.read_round)
    assert lone.reads == []
    lone.hear(HeartbeatAnswer, 2, 1, after.read_round)
    assert [(read.context, read.index) for read in lone.reads] == [(7, 1)]


def test_section_6_4_reads_that_come_together_share_a_round() -> None:
    lone = LoneMember()
    lone.lead()
    for context in range(10):
        lone.node.read(context)
    (heartbeat,) = of_kind(Heartbeat, lone.take(), to=3)
    lone.hear(HeartbeatAnswer, 3, 1, heartbeat.read_round)
    assert [read.context for read in lone.reads] == list(range(10))


def test_section_6_4_a_read_waits_until_what_it_must_see_is_applied() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.propose()
    group.settle()
    group[2].read(5)
    group.members[2].disk_is_held = True
    group.propose()
    group.settle()
    assert [read.index for read in group.members[2].reads] == [2]


def test_section_6_4_a_follower_asks_its_leader() -> None:
    lone = LoneMember()
    lone.hear(AppendEntries, 2, 1, 0, 0, (), 0)
    lone.node.read(7)
    (asked,) = of_kind(AskRead, lone.take())
    assert (asked.to, asked.context) == (2, 7)
    lone.hear(AnswerRead, 2, 1, 7, 0)
    assert [read.context for read in lone.reads] == [7]


def test_section_6_4_no_read_waits_for_ever() -> None:
    lone = LoneMember()
    lone.node.read(1)
    lone.hear(Heartbeat, 2, 1, 0)
    lone.node.read(2)
    for _ in range(2 * SETTINGS.election_ticks):
        lone.tick()
        lone.hear(Heartbeat, 2, 1, 0)
    lone.node.read(3)
    lone.hear(Heartbeat, 3, 2, 0)
    assert [(read.context, read.reason) for read in lone.refused_reads] == [
        (1, "no leader"),
        (2, "no answer"),
        (3, "leader changed"),
    ]


def test_section_6_4_a_leader_that_steps_down_refuses_the_reads_that_wait() -> None:
    lone = LoneMember()
    lone.lead()
    lone.node.read(7)
    lone.hear(AppendAnswer, 2, 5, 0)
    assert [(read.context, read.reason) for read in lone.refused_reads] == [(7, "leader changed")]


# 9.6: pre-vote.


def test_section_9_6_who_comes_back_from_a_partition_raises_no_term() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.cut_off(3)
    group.tick(20 * SETTINGS.election_ticks)
    assert group.members[3].role() is NodeRole.PRE_CANDIDATE
    group.heal()
    group.tick(5)
    assert (group.leader, group[1].status().term, group[3].status().term) == (1, 1, 1)


def test_section_9_6_a_trial_changes_nothing_on_either_side() -> None:
    lone = LoneMember(term=1)
    lone.hear(AskVote, 2, 7, 100, 5, True)
    assert (lone.term, lone.node.status().vote, lone.disk.hard_state.term) == (1, 0, 1)
    lone.wait_for(NodeRole.PRE_CANDIDATE)
    assert (lone.term, lone.node.status().vote) == (1, 0)


def test_section_9_6_a_trial_is_granted_to_several() -> None:
    lone = LoneMember(term=1)
    for member in (2, 3):
        assert of_kind(AnswerVote, lone.hear(AskVote, member, 2, 100, 5, True))[0].granted


def test_section_9_6_a_trial_that_a_majority_refuses_ends() -> None:
    lone = LoneMember()
    lone.wait_for(NodeRole.PRE_CANDIDATE)
    lone.hear(AnswerVote, 2, 0, False, True)
    lone.hear(AnswerVote, 3, 0, False, True)
    assert lone.role() is NodeRole.FOLLOWER


def test_section_9_6_who_asks_with_an_older_term_learns_of_the_newer_one() -> None:
    lone = LoneMember(term=9)
    (answer,) = of_kind(AnswerVote, lone.hear(AskVote, 2, 3, 100, 5, True))
    assert (answer.granted, answer.term) == (False, 9)


def test_section_9_6_a_late_trial_answer_elects_nobody() -> None:
    lone = LoneMember()
    lone.campaign()
    lone.hear(AnswerVote, 3, 1, True, True)
    lone.hear(AnswerVote, 2, 1, True, True)
    assert lone.role() is NodeRole.CANDIDATE


def test_one_member_alone_elects_itself_and_commits() -> None:
    group = RaftGroup([1])
    group.elect(1)
    group.propose()
    group.settle()
    group[1].read(3)
    group.settle()
    assert group.members[1].applied == [(1, 1), (2, 1)]
    assert [read.index for read in group.members[1].reads] == [2]


def test_section_4_3_a_joint_election_needs_both_majorities() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    change(group, (REMOVE, 2), (REMOVE, 3))
    group.deliver()
    group.members[1].crash()
    group.members[1].start()
    assert group[1].status().membership == Membership((1,), (1, 2, 3))
    group.cut_off(1)
    group.tick(10 * SETTINGS.election_ticks)
    assert group.members[1].role() is NodeRole.PRE_CANDIDATE
    group.heal()
    group.elect(1)


def test_an_acknowledgement_of_an_older_term_counts_for_nothing() -> None:
    lone = LoneMember(terms=(1, 1), term=3)
    lone.lead(answered=False)
    lone.hear(AppendAnswer, 2, 3, 3)
    lone.hear(AppendAnswer, 3, 3, 3)
    assert lone.committed == 0
