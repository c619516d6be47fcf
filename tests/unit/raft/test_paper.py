"""The Raft paper ("In Search of an Understandable Consensus Algorithm", extended version), by its figures and sections.

Every test says in its first words which rule it is of.
"""

from __future__ import annotations

import pytest

from logboom.raft import ContractBroken, HardState, Membership, NodeRole, Proposal, RaftEntry, RaftSnapshot
from logboom.raft.messages import (
    AnswerVote,
    AppendAnswer,
    AppendEntries,
    AskVote,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
    InstallSnapshot,
    TakeOver,
)
from logboom.raft.transitions import TRANSITIONS, Cause
from support.raft.group import SETTINGS, RaftGroup
from support.raft.lone import LoneMember, of_kind


def entries(first: int, *terms: int) -> tuple[RaftEntry, ...]:
    return tuple(RaftEntry(index, term, 10) for index, term in enumerate(terms, first))


# Figure 2: state.


def test_figure_2_term_and_vote_survive_a_restart() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    before = group[2].status()
    assert (before.term, before.vote) == (1, 1)
    group.members[2].crash()
    group.members[2].start()
    after = group[2].status()
    assert (after.term, after.vote) == (1, 1)


def test_figure_2_the_term_after_a_restart_is_the_highest_of_the_vote_file_and_the_journal() -> None:
    assert LoneMember(terms=(1, 4), term=3, vote=2).term == 4
    assert LoneMember(terms=(1, 4), term=3, vote=2).node.status().vote == 0
    assert LoneMember(terms=(1, 4), term=5, vote=2).node.status().vote == 2


def test_figure_2_the_commit_index_only_increases() -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1)
    lone.hear(AppendEntries, 2, 1, 3, 1, (), 3)
    lone.hear(AppendEntries, 2, 1, 3, 1, (), 1)
    lone.hear(CommitNotice, 2, 1, 2)
    assert lone.committed == 3
    assert lone.applied == [1, 2, 3]


def test_figure_2_next_index_begins_behind_the_leaders_last_entry_and_match_index_at_zero() -> None:
    lone = LoneMember(terms=(1, 1), term=1)
    lone.lead(answered=False)
    for follower in lone.node.status().followers:
        assert (follower.next, follower.match, follower.state) == (3, 0, "probe")


# Figure 2: RequestVote.


@pytest.mark.parametrize("trial", [False, True])
def test_figure_2_a_vote_of_an_older_term_is_refused(trial: bool) -> None:
    lone = LoneMember(term=5)
    answers = of_kind(AnswerVote, lone.hear(AskVote, 2, 4, 100, 4, trial))
    assert not any(answer.granted for answer in answers)


@pytest.mark.parametrize(
    ("last_index", "last_term", "granted"),
    [(3, 2, True), (4, 2, True), (2, 2, False), (1, 3, True), (9, 1, False), (3, 1, False)],
)
@pytest.mark.parametrize("trial", [False, True])
def test_section_5_4_1_who_has_a_less_complete_log_gets_no_vote(
    last_index: int, last_term: int, granted: bool, trial: bool
) -> None:
    lone = LoneMember(terms=(1, 1, 2), term=2)
    (answer,) = of_kind(AnswerVote, lone.hear(AskVote, 2, 4, last_index, last_term, trial))
    assert answer.granted == granted


def test_figure_2_one_vote_in_a_term_and_the_same_one_again() -> None:
    lone = LoneMember()
    assert of_kind(AnswerVote, lone.hear(AskVote, 2, 1, 0, 0))[0].granted
    assert not of_kind(AnswerVote, lone.hear(AskVote, 3, 1, 5, 0))[0].granted
    assert of_kind(AnswerVote, lone.hear(AskVote, 2, 1, 0, 0))[0].granted
    assert of_kind(AnswerVote, lone.hear(AskVote, 3, 2, 5, 0))[0].granted


def test_figure_2_a_vote_binds_after_a_restart() -> None:
    lone = LoneMember(term=3, vote=2)
    assert not of_kind(AnswerVote, lone.hear(AskVote, 3, 3, 9, 3))[0].granted
    assert of_kind(AnswerVote, lone.hear(AskVote, 2, 3, 9, 3))[0].granted


# Figure 2: AppendEntries.


def test_figure_2_an_append_of_an_older_term_is_answered_with_the_newer_one() -> None:
    lone = LoneMember(terms=(1, 5), term=5)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 4, 0, 0, entries(1, 4), 1))
    assert (answer.term, answer.index) == (5, 0)
    assert lone.terms == [1, 5]


@pytest.mark.parametrize(("prev", "prev_term"), [(4, 1), (9, 2), (3, 2), (2, 2)])
def test_figure_2_an_append_that_does_not_follow_what_is_there_is_refused(prev: int, prev_term: int) -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 2, prev, prev_term, entries(prev + 1, 2), 0))
    assert answer.rejected
    assert lone.terms == [1, 1, 1]


def test_figure_2_a_conflicting_entry_is_taken_back_with_all_behind_it() -> None:
    lone = LoneMember(terms=(1, 1, 2, 2), term=2)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 3, 2, 1, entries(3, 3), 0))
    assert (answer.rejected, answer.index) == (False, 3)
    assert lone.terms == [1, 1, 3]


def test_figure_2_entries_that_are_there_already_cut_nothing() -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 1, 0, 0, entries(1, 1), 0))
    assert answer.index == 1
    assert lone.terms == [1, 1, 1]


def test_figure_2_the_commit_index_goes_no_further_than_what_came_with_it() -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1)
    lone.hear(AppendEntries, 2, 2, 1, 1, (), 3)
    assert lone.committed == 1
    lone.hear(AppendEntries, 2, 2, 1, 1, entries(2, 2), 3)
    assert lone.committed == 2
    lone.hear(Heartbeat, 2, 2, 9)
    assert lone.committed == 2


# Figure 2: rules for servers.


def test_figure_2_all_servers_follow_a_newer_term() -> None:
    for role in ("follower", "candidate", "leader"):
        lone = LoneMember()
        if role == "candidate":
            lone.campaign()
        elif role == "leader":
            lone.lead()
        lone.hear(AppendAnswer, 2, 9, 0)
        assert (lone.role(), lone.term, lone.node.status().vote) == (NodeRole.FOLLOWER, 9, 0)


def test_figure_2_a_follower_that_hears_nobody_campaigns_and_one_that_hears_a_leader_does_not() -> None:
    lone = LoneMember()
    for _ in range(100):
        lone.tick(SETTINGS.election_ticks - 1)
        lone.hear(Heartbeat, 2, 1, 0)
        assert lone.role() is NodeRole.FOLLOWER
    lone.wait_for(NodeRole.PRE_CANDIDATE)


def test_figure_2_a_vote_makes_patient() -> None:
    lone = LoneMember()
    lone.tick(SETTINGS.election_ticks - 1)
    lone.hear(AskVote, 2, 1, 0, 0)
    lone.tick(SETTINGS.election_ticks - 1)
    assert lone.role() is NodeRole.FOLLOWER


def test_figure_2_a_candidate_raises_its_term_votes_for_itself_and_asks_all_others() -> None:
    lone = LoneMember(5, terms=(1, 2), term=2)
    asked = of_kind(AskVote, lone.campaign())
    real = [question for question in asked if not question.trial]
    assert {question.to for question in real} == {2, 3, 4, 5}
    assert {(question.term, question.last_index, question.last_term) for question in real} == {(3, 2, 2)}
    assert (lone.disk.hard_state.term, lone.disk.hard_state.vote) == (3, 1)


def test_figure_2_a_candidate_leads_with_the_votes_of_a_majority_and_not_before() -> None:
    lone = LoneMember(5)
    lone.campaign()
    lone.hear(AnswerVote, 2, 1, True)
    lone.hear(AnswerVote, 2, 1, True)
    assert lone.role() is NodeRole.CANDIDATE
    lone.hear(AnswerVote, 3, 1, True)
    assert lone.role() is NodeRole.LEADER


def test_figure_2_a_candidate_follows_a_leader_of_its_term() -> None:
    for kind, fields in ((AppendEntries, (0, 0, (), 0)), (Heartbeat, (0,))):
        lone = LoneMember()
        lone.campaign()
        lone.hear(kind, 3, lone.term, *fields)
        assert (lone.role(), lone.node.status().leader) == (NodeRole.FOLLOWER, 3)


def test_figure_2_a_candidate_that_is_refused_by_a_majority_waits() -> None:
    lone = LoneMember()
    lone.campaign()
    lone.hear(AnswerVote, 2, lone.term, False)
    lone.hear(AnswerVote, 3, lone.term, False)
    assert lone.role() is NodeRole.FOLLOWER


def test_figure_2_a_candidate_whose_patience_ends_begins_anew() -> None:
    lone = LoneMember()
    lone.campaign()
    lone.wait_for(NodeRole.PRE_CANDIDATE)
    assert lone.term == 1


def test_figure_2_a_leader_says_so_at_once_and_again_while_it_rests() -> None:
    lone = LoneMember()
    first = of_kind(AppendEntries, lone.lead())
    assert {append.to for append in first} == {2, 3}
    said = lone.tick(SETTINGS.heartbeat_ticks)
    assert {heartbeat.to for heartbeat in of_kind(Heartbeat, said)} == {2, 3}


def test_figure_2_a_leader_appends_what_is_proposed_and_settles_it_when_it_is_applied() -> None:
    lone = LoneMember()
    lone.lead()
    proposal = lone.node.propose(100)
    assert isinstance(proposal, Proposal)
    (two, three) = of_kind(AppendEntries, lone.take())
    assert two.entries == three.entries == (RaftEntry(2, 1, 100),)
    assert 2 not in lone.applied
    lone.hear(AppendAnswer, 3, 1, 2)
    assert lone.applied == [1, 2]


def test_figure_2_a_leader_that_is_refused_tries_before_that_until_the_logs_meet() -> None:
    lone = LoneMember(terms=(1, 1, 1, 1), term=1)
    lone.lead(answered=False)
    prev = 4
    while prev > 1:
        (append,) = of_kind(AppendEntries, lone.hear(AppendAnswer, 2, lone.term, prev, True, prev - 1, 0))
        assert append.prev_index == prev - 1
        prev -= 1
    lone.hear(AppendAnswer, 2, lone.term, 5)
    assert lone.committed == 5


def test_figure_2_a_leader_commits_what_a_majority_has_and_is_of_its_term() -> None:
    lone = LoneMember(5, terms=(1, 1), term=1)
    lone.lead(answered=False)
    lone.hear(AppendAnswer, 2, lone.term, 2)
    lone.hear(AppendAnswer, 3, lone.term, 2)
    assert lone.committed == 0
    lone.hear(AppendAnswer, 2, lone.term, 3)
    assert lone.committed == 0
    lone.hear(AppendAnswer, 3, lone.term, 3)
    assert lone.committed == 3


# Figure 3: the properties, each where it is decided; the simulator looks at them after every step.


def test_figure_3_election_safety_a_second_leader_of_a_term_is_not_believed() -> None:
    lone = LoneMember()
    lone.hear(Heartbeat, 2, 1, 0)
    with pytest.raises(ContractBroken, match="two leaders"):
        lone.hear(Heartbeat, 3, 1, 0)


def test_figure_3_leader_append_only_a_leader_takes_nothing_back() -> None:
    lone = LoneMember(terms=(1, 1), term=1)
    lone.lead()
    for number in range(20):
        lone.node.propose(10)
        lone.hear(AppendAnswer, 2, lone.term, number, number % 2 == 0, 1, 1)
    assert lone.terms == [1, 1] + [2] * 21
    lengths = [effects.entries[0].index for effects in lone.effects if effects.entries]
    assert lengths == sorted(set(lengths))


def test_figure_3_log_matching_equal_index_and_term_means_equal_logs_up_to_there() -> None:
    group = RaftGroup([1, 2, 3])
    for leader in (1, 2, 3, 1):
        group.elect(leader) if not group.leader else group[group.leader].hand_over(leader)
        group.settle()
        for _ in range(3):
            group.propose()
        group.settle()
    logs = [[(entry.index, entry.term) for entry in member.disk.log] for member in group.members.values()]
    assert logs[0] == logs[1] == logs[2]


def test_figure_3_leader_completeness_who_lacks_what_is_committed_is_not_elected() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.cut_off(3)
    group.propose()
    group.settle()
    group.members[1].crash()
    group.heal()
    group.tick(100)
    assert group.leader == 2


def test_figure_3_state_machine_safety_everybody_applies_the_same_in_the_same_order() -> None:
    group = RaftGroup([1, 2, 3, 4, 5])
    group.elect(1)
    for number in range(10):
        group.cut_off(2 + number % 4)
        group.propose()
        group.settle()
        group.heal()
        group.tick(3)
    logs = [member.applied for member in group.members.values()]
    assert all(log == logs[0] for log in logs)
    assert len(logs[0]) == 11


def test_section_5_3_what_is_committed_is_never_cut_whatever_is_said() -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1, committed=2)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 2, 1, 1, entries(2, 2), 2))
    assert (answer.index, lone.terms) == (2, [1, 1, 1])
    with pytest.raises(ContractBroken, match="entry 2 is committed"):
        lone.hear(AppendEntries, 2, 2, 2, 2, entries(3, 2), 2)


# Figure 4: the states.


def test_figure_4_roles_change_as_the_figure_says() -> None:
    arrows = {(role.value, target.value) for (role, _), target in TRANSITIONS.items()}
    figure = {
        ("follower", "pre-candidate"),
        ("pre-candidate", "candidate"),
        ("candidate", "pre-candidate"),
        ("candidate", "leader"),
        ("candidate", "follower"),
        ("leader", "follower"),
    }
    assert figure <= arrows
    assert ("follower", "leader") not in arrows
    assert ("leader", "candidate") not in arrows
    assert [cause for role, cause in TRANSITIONS if TRANSITIONS[role, cause] is NodeRole.LEADER] == [Cause.WON]


# Figure 6: consistency, and 5.3's faster way back.


def test_figure_7_a_new_leader_makes_every_such_log_like_its_own() -> None:
    leader = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    logs = {
        "a": leader[:9],
        "b": leader[:4],
        "c": (*leader, 6),
        "d": (*leader, 7, 7),
        "e": (1, 1, 1, 4, 4, 4, 4),
        "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    }
    group = RaftGroup(range(1, 8))
    for member, terms in zip(group.members.values(), [leader, *logs.values()], strict=True):
        member.disk.log = list(entries(1, *terms))
        member.disk.synced = list(member.disk.log)
        member.disk.hard_state = HardState(7 if member.member != 1 else 6)
        member.start()
    group.elect(1)
    group.propose()
    group.tick(3)
    expected = [(entry.index, entry.term) for entry in group.members[1].disk.log]
    for member in group.members.values():
        assert [(entry.index, entry.term) for entry in member.disk.log] == expected
        assert member.applied[-1] == expected[-1]


def test_section_5_3_a_conflict_costs_a_question_for_a_term_and_not_one_for_an_entry() -> None:
    group = RaftGroup([1, 2])
    for member, terms in ((1, [1] * 10 + [3] * 500), (2, [1] * 10 + [2] * 400)):
        disk = group.members[member].disk
        disk.log = list(entries(1, *terms))
        disk.synced = list(disk.log)
        disk.hard_state = HardState(3)
        group.members[member].start()
    group.elect(1)
    group.tick(2)
    assert group.members[2].applied[-1] == (511, 4)
    lone = LoneMember(terms=tuple([1] * 10 + [2] * 400), term=3)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 4, 510, 3, entries(511, 4), 0))
    assert (answer.hint_index, answer.hint_term) == (410, 2)


def test_figure_8_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    lone = LoneMember(5, terms=(1, 2), term=3)
    lone.lead(answered=False)
    for member in (2, 3, 4):
        lone.hear(AppendAnswer, member, lone.term, 2)
    assert lone.committed == 0
    for member in (2, 3):
        lone.hear(AppendAnswer, member, lone.term, 3)
    assert lone.committed == 3


def test_section_5_2_patience_is_random_between_one_and_two_election_times() -> None:
    waited = set()
    group = RaftGroup([1])
    for seed in range(200):
        group.members[1].random.seed(seed)
        lone = LoneMember(3)
        lone.node = type(lone.node)(lone.disk.start(1, seed + 1), lone.disk, SETTINGS, group.members[1].random)
        lone.take()
        ticks = 0
        while lone.role() is NodeRole.FOLLOWER:
            lone.tick()
            ticks += 1
        waited.add(ticks)
    assert min(waited) >= SETTINGS.election_ticks
    assert max(waited) < 2 * SETTINGS.election_ticks
    assert len(waited) > SETTINGS.election_ticks // 2


# Section 6 and figures 10, 11: membership is in test_dissertation.


# Section 7 and figures 12, 13: snapshots.


def test_figure_13_who_needs_what_is_gone_installs_a_snapshot_and_goes_on() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.cut_off(3)
    for _ in range(10):
        group.propose()
        group.settle()
    group.members[1].disk.compact(8)
    group.heal()
    group.tick(5)
    three = group.members[3]
    assert three.role() is NodeRole.INSTALLER
    assert three.disk.installs == RaftSnapshot(8, 1, Membership((1, 2, 3)))
    three.finish_install()
    group.tick(5)
    assert three.applied == [(1, 1), (9, 1), (10, 1), (11, 1)]
    assert group[1].status().followers[1].state == "replicate"


def test_figure_13_a_snapshot_at_or_below_what_is_committed_is_ignored() -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1, committed=3)
    (answer,) = lone.hear(InstallSnapshot, 2, 1, RaftSnapshot(2, 1, Membership((1, 2, 3))))
    assert isinstance(answer, AppendAnswer)
    assert (lone.role(), answer.index) == (NodeRole.FOLLOWER, 3)


def test_figure_13_a_snapshot_of_what_is_in_the_log_commits_it_and_replaces_nothing() -> None:
    lone = LoneMember(terms=(1, 1, 1), term=1)
    lone.hear(InstallSnapshot, 2, 1, RaftSnapshot(2, 1, Membership((1, 2, 3))))
    assert (lone.role(), lone.committed, lone.terms) == (NodeRole.FOLLOWER, 2, [1, 1, 1])


def test_section_7_who_installs_neither_votes_nor_acknowledges_nor_campaigns_and_says_that_it_is_there() -> None:
    lone = LoneMember(terms=(1,), term=1)
    snapshot = RaftSnapshot(9, 1, Membership((1, 2, 3)))
    lone.hear(InstallSnapshot, 2, 1, snapshot)
    assert lone.role() is NodeRole.INSTALLER
    assert lone.hear(AskVote, 3, 2, 100, 1, called=True) == []
    assert lone.hear(AppendEntries, 2, 2, 1, 1, entries(2, 1), 2) == []
    assert lone.tick(10 * SETTINGS.election_ticks) == []
    (answer,) = lone.hear(Heartbeat, 2, 2, 0, 4)
    assert answer == HeartbeatAnswer(1, 2, 2, answer.life, 0, 9)
    newer = RaftSnapshot(12, 1, Membership((1, 2, 3)))
    lone.hear(InstallSnapshot, 2, 2, newer)
    lone.hear(InstallSnapshot, 2, 2, snapshot)
    assert [effects.install for effects in lone.effects if effects.install] == [snapshot, newer]
    lone.disk.install(newer)
    lone.node.installed(newer)
    (accepted,) = of_kind(AppendAnswer, lone.take())
    assert (accepted.index, lone.role(), lone.committed) == (12, NodeRole.FOLLOWER, 12)


def test_section_7_an_installation_goes_on_after_a_restart() -> None:
    lone = LoneMember(terms=(1,), term=1)
    snapshot = RaftSnapshot(9, 1, Membership((1, 2, 3)))
    lone.disk.installs = snapshot
    lone.node = type(lone.node)(lone.disk.start(1, 5), lone.disk, SETTINGS, lone.node._core.random)
    lone.take()
    assert lone.role() is NodeRole.INSTALLER
    assert lone.effects[-1].install == snapshot


# Section 8: clients.


def test_section_8_a_leader_begins_its_term_with_an_empty_entry() -> None:
    lone = LoneMember(terms=(1, 1), term=1)
    lone.lead(answered=False)
    assert lone.disk.log[-1] == RaftEntry(3, 2, 0, "empty")


def test_section_8_a_read_waits_for_the_first_entry_of_the_term_and_for_a_majority() -> None:
    lone = LoneMember(terms=(1, 1), term=1)
    lone.lead(answered=False)
    lone.node.read(7)
    (heartbeat,) = of_kind(Heartbeat, lone.take(), to=2)
    lone.hear(HeartbeatAnswer, 2, lone.term, heartbeat.read_round)
    assert lone.reads == []
    lone.hear(AppendAnswer, 3, lone.term, 3)
    assert [(read.context, read.index) for read in lone.reads] == [(7, 3)]


def test_a_leader_is_asked_to_take_over_in_no_other_state_than_follower() -> None:
    lone = LoneMember()
    lone.hear(TakeOver, 2, 1)
    assert lone.role() is NodeRole.CANDIDATE
