"""How the leader sends to a follower: probing, pipelining within a window, pausing, and going on after a loss."""

from __future__ import annotations

from logboom.raft import ENTRY_COST, RaftEntry, RaftSettings, RaftSnapshot
from logboom.raft.messages import AppendAnswer, AppendEntries, CommitNotice, Heartbeat, HeartbeatAnswer, InstallSnapshot
from logboom.raft.progress import FollowerProgress
from support.raft.group import RaftGroup
from support.raft.lone import LoneMember, of_kind

SIZE = 1_000 - ENTRY_COST
NARROW = RaftSettings(
    tick_ms=10, heartbeat_ms=10, election_ms=100, window_bytes=4_000, message_bytes=2_000, window_messages=10
)


def lead(settings: RaftSettings = NARROW) -> LoneMember:
    lone = LoneMember(settings=settings)
    lone.lead()
    return lone


def propose(lone: LoneMember, count: int, size: int = SIZE) -> list[AppendEntries]:
    """What goes to member 2."""
    for _ in range(count):
        lone.node.propose(size)
    return of_kind(AppendEntries, lone.take(), to=2)


def test_messages_follow_each_other_without_waiting() -> None:
    lone = lead()
    sent = [append for _ in range(3) for append in propose(lone, 1)]
    assert [append.prev_index for append in sent] == [1, 2, 3]


def test_many_entries_share_a_message_up_to_its_bytes() -> None:
    assert [len(append.entries) for append in propose(lead(), 3)] == [2, 1]


def test_a_full_window_pauses_and_an_answer_resumes() -> None:
    lone = lead()
    assert sum(len(append.entries) for append in propose(lone, 9)) == 4
    assert propose(lone, 1) == []
    assert lone.node.status().followers[0].flight_bytes == 4_000
    resumed = of_kind(AppendEntries, lone.hear(AppendAnswer, 2, 1, 3), to=2)
    assert [entry.index for append in resumed for entry in append.entries] == [6, 7]


def test_the_number_of_messages_in_flight_is_bounded() -> None:
    lone = lead()
    sent = [append for _ in range(30) for append in propose(lone, 1, 1)]
    assert len(sent) == NARROW.window_messages


def test_a_refusal_begins_to_probe_with_one_message_at_a_time() -> None:
    lone = lead()
    propose(lone, 4)
    (probe,) = of_kind(AppendEntries, lone.hear(AppendAnswer, 2, 1, 3, True, 1, 1), to=2)
    assert (probe.prev_index, lone.node.status().followers[0].state) == (1, "probe")
    assert propose(lone, 1) == []
    lone.hear(AppendAnswer, 2, 1, 3)
    assert lone.node.status().followers[0].state == "replicate"


def test_a_refusal_that_came_late_changes_nothing() -> None:
    lone = lead()
    propose(lone, 2)
    lone.hear(AppendAnswer, 2, 1, 3)
    lone.hear(AppendAnswer, 2, 1, 2, True, 0, 0)
    follower = lone.node.status().followers[0]
    assert (follower.state, follower.match) == ("replicate", 3)


def test_an_acknowledgement_that_came_late_takes_nothing_back() -> None:
    lone = lead()
    propose(lone, 2)
    lone.hear(AppendAnswer, 2, 1, 3)
    lone.hear(AppendAnswer, 2, 1, 2)
    assert lone.node.status().followers[0].match == 3


def test_an_acknowledgement_of_what_was_never_there_is_ignored() -> None:
    lone = lead()
    lone.hear(AppendAnswer, 2, 1, 99)
    assert lone.node.status().followers[0].match == 1


def test_a_probe_that_was_lost_is_sent_again_after_a_heartbeat() -> None:
    lone = LoneMember(settings=NARROW)
    lone.lead(answered=False)
    lone.node.propose(1)
    assert of_kind(AppendEntries, lone.take(), to=2) == []
    (again,) = of_kind(AppendEntries, lone.hear(HeartbeatAnswer, 2, 1), to=2)
    assert again.prev_index == 0


def test_entries_that_were_lost_are_noticed_after_a_heartbeat() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.cut_links = {(1, 2)}
    for _ in range(5):
        group.propose()
        group.settle()
    group.heal()
    assert group[2].status().last == 1
    group.tick(2)
    assert group.members[2].applied[-1] == (6, 1)


def test_who_is_unreachable_is_probed() -> None:
    lone = lead()
    lone.node.unreachable(2)
    assert lone.node.status().followers[0].state == "probe"


def test_the_commit_index_goes_alone_when_there_is_nothing_else_to_send() -> None:
    lone = lead()
    propose(lone, 1)
    said = lone.hear(AppendAnswer, 2, 1, 2)
    assert [(notice.to, notice.commit) for notice in of_kind(CommitNotice, said)] == [(2, 2)]
    said = lone.hear(AppendAnswer, 3, 1, 2)
    assert [(notice.to, notice.commit) for notice in of_kind(CommitNotice, said)] == [(3, 2)]


def test_a_heartbeat_says_no_more_committed_than_the_follower_has() -> None:
    lone = LoneMember()
    lone.lead(answered=False)
    lone.hear(AppendAnswer, 3, 1, 1)
    heartbeats = of_kind(Heartbeat, lone.tick(lone.settings.heartbeat_ticks))
    assert {heartbeat.to: heartbeat.commit for heartbeat in heartbeats} == {2: 0, 3: 1}


def test_who_needs_what_is_gone_gets_a_snapshot_and_nothing_else_until_it_answers() -> None:
    lone = lead()
    propose(lone, 5)
    lone.hear(AppendAnswer, 3, 1, 6)
    lone.disk.compact(5)
    (install,) = of_kind(InstallSnapshot, lone.hear(AppendAnswer, 2, 1, 4, True, 0, 0), to=2)
    assert install.snapshot == RaftSnapshot(5, 1, lone.node.status().membership)
    assert propose(lone, 1) == []
    lone.hear(HeartbeatAnswer, 2, 1, 0, 5)
    assert lone.node.status().followers[0].state == "snapshot"
    (append,) = of_kind(AppendEntries, lone.hear(AppendAnswer, 2, 1, 5), to=2)
    assert append.prev_index == 5


def test_a_full_window_that_was_lost_and_is_gone_from_the_journal_leads_to_a_snapshot() -> None:
    group = RaftGroup([1, 2, 3], settings=NARROW)
    group.elect(1)
    group.cut_links = {(1, 2)}
    for _ in range(12):
        group.propose(SIZE)
        group.settle()
    assert group[1].status().followers[0].flight_bytes >= NARROW.window_bytes
    group.members[1].disk.compact(12)
    group.heal()
    group.tick(2)
    group.members[2].finish_install()
    group.tick(2)
    assert group.members[2].applied[-1] == (13, 1)


def test_an_install_that_was_lost_is_said_again() -> None:
    group = RaftGroup([1, 2, 3])
    group.elect(1)
    group.cut_off(3)
    for _ in range(5):
        group.propose()
        group.settle()
    group.members[1].disk.compact(4)
    group.heal()
    group.tick(1)
    group.deliver(lambda message: not isinstance(message, InstallSnapshot))
    group.wire.clear()
    group.tick(5)
    assert group.members[3].disk.installs is not None


def test_next_is_always_above_match() -> None:
    follower = FollowerProgress(2, 10, NARROW)
    for index, hint in ((10, 20), (10, 5), (5, 0), (0, 0)):
        follower.rejected(index, hint)
        assert follower.next > follower.match
    follower.accepted(3, 1)
    follower.rejected(9, 1)
    assert follower.next == 4


def test_an_append_whose_entries_do_not_follow_each_other_is_ignored() -> None:
    lone = LoneMember()
    for indexes in ((2,), (1, 3), (1, 1)):
        entries = tuple(RaftEntry(index, 1) for index in indexes)
        assert lone.hear(AppendEntries, 2, 1, 0, 0, entries, 0) == []
    assert lone.terms == []
