"""What must be on disk before what may leave: the rules of `core.py`, one test each, and lost or failing writes."""

from __future__ import annotations

from random import Random

import pytest

from logboom.raft import LostProposals, NodeRole, NotAppended, Proposal, RaftEntry, RaftSettings
from logboom.raft.messages import (
    AnswerVote,
    AppendAnswer,
    AppendEntries,
    AskVote,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
)
from support.raft.group import RaftGroup
from support.raft.lone import LoneMember, of_kind


def entries(first: int, *terms: int) -> tuple[RaftEntry, ...]:
    return tuple(RaftEntry(index, term, 10) for index, term in enumerate(terms, first))


def test_a_vote_leaves_when_it_is_on_disk() -> None:
    lone = LoneMember()
    lone.holds_disk = True
    assert lone.hear(AskVote, 2, 1, 0, 0) == []
    lone.sync()
    assert [answer.granted for answer in of_kind(AnswerVote, lone.take())] == [True]


def test_a_vote_that_a_newer_term_overtakes_never_leaves() -> None:
    lone = LoneMember()
    lone.holds_disk = True
    lone.hear(AskVote, 2, 1, 0, 0)
    lone.hear(AskVote, 3, 2, 0, 0)
    lone.sync(1)
    assert lone.take() == []
    lone.sync()
    assert [(answer.to, answer.term) for answer in of_kind(AnswerVote, lone.take())] == [(3, 2)]


def test_a_candidate_asks_and_counts_itself_when_its_vote_is_on_disk() -> None:
    lone = LoneMember(2)
    lone.holds_disk = True
    assert of_kind(AskVote, [message for message in lone.campaign() if not message.trial]) == []  # type: ignore[attr-defined]
    lone.hear(AnswerVote, 2, 1, True)
    assert lone.role() is NodeRole.CANDIDATE
    lone.sync()
    assert lone.role() is NodeRole.LEADER


def test_nothing_leaves_in_a_new_life_before_that_is_on_disk() -> None:
    lone = LoneMember(term=1)
    lone.disk.crash(Random(0))
    lone.node = type(lone.node)(lone.disk.start(1, 5), lone.disk, lone.settings, Random(1))
    lone.holds_disk = True
    assert lone.hear(Heartbeat, 2, 1, 0) == []
    lone.sync()
    assert [type(message) for message in lone.take()] == [HeartbeatAnswer]
    assert lone.disk.hard_state.life.id == 5


def test_a_follower_acknowledges_what_is_on_disk_and_no_more() -> None:
    lone = LoneMember()
    lone.hear(AppendEntries, 2, 1, 0, 0, (), 0)
    lone.holds_disk = True
    assert lone.hear(AppendEntries, 2, 1, 0, 0, entries(1, 1), 0) == []
    assert lone.hear(AppendEntries, 2, 1, 1, 1, entries(2, 1, 1), 0) == []
    lone.sync(1)
    assert [answer.index for answer in of_kind(AppendAnswer, lone.take())] == [1]
    lone.sync()
    assert [answer.index for answer in of_kind(AppendAnswer, lone.take())] == [3]


def test_what_was_not_compared_with_the_leader_is_not_acknowledged() -> None:
    lone = LoneMember(terms=(1, 1, 1, 1, 1), term=1)
    (answer,) = of_kind(AppendAnswer, lone.hear(AppendEntries, 2, 2, 2, 1, (), 0))
    assert answer.index == 2


def test_a_sync_of_entries_that_were_replaced_meanwhile_acknowledges_nothing_of_them() -> None:
    lone = LoneMember(terms=(1,), term=1)
    lone.holds_disk = True
    lone.hear(AppendEntries, 2, 1, 1, 1, entries(2, 1, 1, 1), 0)
    lone.hear(AppendEntries, 3, 2, 1, 1, entries(2, 2), 0)
    lone.sync(1)
    assert of_kind(AppendAnswer, lone.take()) == []
    lone.sync()
    assert [answer.index for answer in of_kind(AppendAnswer, lone.take())] == [1, 2]


def test_a_leader_sends_before_it_syncs_and_counts_itself_after() -> None:
    lone = LoneMember()
    lone.lead()
    lone.holds_disk = True
    lone.node.propose(10)
    assert len(of_kind(AppendEntries, lone.take())) == 2
    lone.hear(AppendAnswer, 2, 1, 1)
    assert lone.committed == 1
    lone.sync()
    lone.take()
    assert lone.committed == 1
    lone.hear(AppendAnswer, 2, 1, 2)
    assert lone.committed == 2


def test_entries_leave_together_with_or_after_being_handed_out_to_be_written() -> None:
    lone = LoneMember()
    lone.lead()
    for _ in range(5):
        lone.node.propose(10)
        handed = {entry.index for effects in lone.effects for entry in effects.entries}
        effects = lone.node.ready()
        handed |= {entry.index for entry in effects.entries}
        sent = {entry.index for append in of_kind(AppendEntries, list(effects.messages)) for entry in append.entries}
        assert sent <= handed
        lone.effects.append(effects)
        lone.disk.write(effects)


def test_others_may_commit_what_the_leader_has_not_synced_and_it_applies_that_later() -> None:
    lone = LoneMember()
    lone.lead()
    lone.holds_disk = True
    lone.node.propose(10)
    lone.take()
    lone.hear(AppendAnswer, 2, 1, 2)
    lone.hear(AppendAnswer, 3, 1, 2)
    assert (lone.committed, lone.applied) == (2, [1])
    lone.sync()
    lone.take()
    assert lone.applied == [1, 2]


def test_a_commit_index_above_what_is_synced_is_kept_for_later() -> None:
    lone = LoneMember()
    lone.hear(AppendEntries, 2, 1, 0, 0, (), 0)
    lone.holds_disk = True
    lone.hear(AppendEntries, 2, 1, 0, 0, entries(1, 1, 1), 2)
    assert (lone.committed, lone.applied) == (2, [])
    lone.sync()
    lone.take()
    assert lone.applied == [1, 2]


def test_a_crash_takes_what_is_not_synced_and_the_others_give_it_again() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.members[2].disk_is_held = True
    group.propose()
    group.settle()
    assert group[2].status().last == 2
    group.members[2].crash()
    group.members[2].disk_is_held = False
    group.members[2].start()
    assert group[2].status().last == 1
    group.tick(3)
    assert group.members[2].applied[-1] == (2, 1)


def test_a_failed_write_ends_leading_and_says_what_is_known_of_each_proposal() -> None:
    lone = LoneMember()
    lone.lead()
    lone.holds_disk = True
    for _ in range(3):
        lone.node.propose(10)
    lone.take()
    lone.node.propose(10)
    lone.disk.fail()
    lone.node.write_failed()
    lone.take()
    assert lone.lost == [LostProposals("unknown", 1, 2, 4), LostProposals("not appended", 1, 5, 5)]
    assert (lone.role(), lone.node.status().last) == (NodeRole.FOLLOWER, 1)


def test_a_follower_whose_write_failed_gets_it_again() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.members[2].disk_is_held = True
    for _ in range(3):
        group.propose()
        group.settle()
    group.members[2].disk.fail()
    group[2].write_failed()
    group.members[2].disk_is_held = False
    assert group[2].status().last == 1
    group.tick(3)
    assert group.members[2].applied[-1] == (4, 1)


def test_a_vote_that_could_not_be_written_stops_the_node() -> None:
    lone = LoneMember()
    lone.holds_disk = True
    lone.hear(AskVote, 2, 1, 0, 0)
    lone.node.write_failed()
    assert lone.role() is NodeRole.STOPPED
    assert lone.take() == []


def test_a_stopped_node_says_nothing_and_refuses() -> None:
    lone = LoneMember()
    lone.lead()
    lone.node.propose(10)
    lone.node.stop()
    assert lone.take() == []
    assert lone.lost == [LostProposals("not appended", 1, 2, 2)]
    assert lone.node.propose(10) == NotAppended("not the leader")
    assert lone.tick(1_000) == []
    assert lone.hear(AskVote, 2, 9, 100, 9) == []


# What becomes of proposals.


def test_who_does_not_lead_says_who_does() -> None:
    lone = LoneMember()
    lone.hear(Heartbeat, 3, 1, 0)
    assert lone.node.propose(10) == NotAppended("not the leader", 3)
    assert lone.node.change_members([]) == NotAppended("not the leader", 3)


def test_stepping_down_settles_every_proposal() -> None:
    lone = LoneMember(5)
    lone.lead(answered=False)
    for _ in range(4):
        lone.node.propose(10)
    lone.take()
    for member in (2, 3):
        lone.hear(AppendAnswer, member, 1, 2)
    lone.node.propose(10)
    lone.hear(AppendAnswer, 4, 2, 0)
    assert lone.committed == 2
    assert lone.lost == [LostProposals("unknown", 1, 3, 5), LostProposals("not appended", 1, 6, 6)]
    assert lone.node.status().last == 5


def test_an_index_of_a_proposal_that_was_not_appended_is_never_used_in_that_term_again() -> None:
    lone = LoneMember()
    lone.lead()
    lone.node.propose(10)
    lone.hear(AppendAnswer, 2, 2, 0)
    lone.hear(AppendEntries, 3, 2, 1, 1, entries(2, 2), 1)
    assert lone.terms == [1, 2]


def test_what_is_not_committed_is_bounded() -> None:
    lone = LoneMember(settings=RaftSettings(tick_ms=10, heartbeat_ms=10, election_ms=100, uncommitted_bytes=2_000))
    lone.lead()
    accepted = 0
    while isinstance(lone.node.propose(500), Proposal):
        accepted += 1
    assert accepted == 3
    assert lone.node.propose(1) != NotAppended("too much is not committed", 1)
    assert lone.node.propose(500) == NotAppended("too much is not committed", 1)
    lone.take()
    lone.hear(AppendAnswer, 2, 1, 5)
    assert isinstance(lone.node.propose(500), Proposal)


def test_one_entry_that_is_larger_than_all_bounds_goes_alone() -> None:
    settings = RaftSettings(
        tick_ms=10,
        heartbeat_ms=10,
        election_ms=100,
        uncommitted_bytes=2_000,
        window_bytes=2_000,
        message_bytes=1_024,
        unpersisted_bytes=2_000,
    )
    group = RaftGroup([1, 2, 3], settings=settings)
    group.elect(1)
    for _ in range(3):
        group.propose(1 << 20)
        group.settle()
    assert group.members[3].applied[-1] == (4, 1)


def test_what_waits_for_a_followers_disk_is_bounded_and_goes_on_later() -> None:
    settings = RaftSettings(tick_ms=10, heartbeat_ms=10, election_ms=100, unpersisted_bytes=2_000)
    group = RaftGroup([1, 2, 3], settings=settings)
    group.elect(1)
    group.members[3].disk_is_held = True
    for _ in range(50):
        group.propose(500)
        group.settle()
    assert group[3].status().last < 10
    assert group[1].status().committed == 51
    group.members[3].disk_is_held = False
    group.members[3].sync()
    group.tick(5)
    for _ in range(20):
        group.tick(1)
    assert group.members[3].applied[-1] == (51, 1)


@pytest.mark.parametrize("sender", [2, 3])
def test_a_notice_of_what_is_committed_is_not_answered(sender: int) -> None:
    lone = LoneMember(terms=(1,), term=1)
    lone.hear(AppendEntries, sender, 1, 1, 1, (), 0)
    assert lone.hear(CommitNotice, sender, 1, 1) == []
    assert lone.committed == 1
