"""What does the consensus core cost: per committed entry, per tick of a group that rests, and in memory?

All members are in one process, and nothing is written or sent anywhere: a message is a call, a journal remembers where
it ends. An entry counts when every member has been given it to apply. With 64 in flight the leader gets that many
proposals before anybody does anything.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from statistics import median

from harness import QUICK, Row, Timing, report, time_interleaved
from logboom.raft import Membership, NodeRole, Proposal, RaftEntry, RaftNode, RaftSettings, RaftSnapshot, RaftStart

SIZE = 1_000
ROUNDS = 20 if QUICK else 200
GROUPS = 200
GOAL_ALONE_US = 60.0
GOAL_TOGETHER_US = 10.0
GOAL_TICK_US = 3.0
GOAL_BYTES = 8_192


class EndOnly:
    """Implements KeptEntries for members of whom none is ever behind: it knows its end."""

    def __init__(self, membership: Membership) -> None:
        self.last_index = self.last_term = 0
        self.first_index = 1
        self._membership = membership

    def term(self, index: int) -> int:
        return self.last_term

    def entries(self, first: int, last: int, bytes_max: int) -> Sequence[RaftEntry]:
        raise AssertionError("nobody is behind")

    def membership(self, index: int) -> tuple[int, Membership]:
        return 0, self._membership

    def snapshot(self) -> RaftSnapshot | None:
        return None


class BenchGroup:
    def __init__(self, count: int, settings: RaftSettings | None = None) -> None:
        members = tuple(range(1, count + 1))
        self.journals = [EndOnly(Membership(members)) for _ in members]
        random = Random(1)
        settings = settings or RaftSettings()
        self.nodes = [
            RaftNode(RaftStart(member, member), journal, settings, random)
            for member, journal in zip(members, self.journals, strict=True)
        ]
        self.applied = [0] * count
        self.leader = self.nodes[0]
        while self.leader.status().role is not NodeRole.LEADER:
            self.leader.tick()
            self.run()

    def run(self) -> None:
        """Until nobody has anything to do."""
        nodes, journals, applied = self.nodes, self.journals, self.applied
        is_busy = True
        while is_busy:
            is_busy = False
            for place, node in enumerate(nodes):
                while node.has_ready:
                    is_busy = True
                    effects = node.ready()
                    if effects.entries:
                        journals[place].last_index = effects.entries[-1].index
                        journals[place].last_term = effects.entries[-1].term
                    for message in effects.messages:
                        nodes[message.to - 1].step(message)
                    if effects.committed is not None:
                        applied[place] = effects.committed[1]
                        node.applied(effects.committed[1])
                    if effects.number:
                        node.persisted(effects.number)

    def commit(self, count: int) -> None:
        for _ in range(count):
            proposal = self.leader.propose(SIZE)
        assert isinstance(proposal, Proposal)
        self.run()
        assert min(self.applied) == proposal.index

    def tick(self) -> None:
        for node in self.nodes:
            node.tick()
        self.run()


def main() -> None:
    report("raft", [*_entries(), *_ticks(), *_memory()])


def _entries() -> list[Row]:
    groups = {count: BenchGroup(count) for count in (3, 5)}
    subjects: dict[str, Callable[[], object]] = {}
    shares: dict[str, tuple[int, float | None]] = {}
    for count, group in groups.items():
        for flight, goal in ((1, GOAL_ALONE_US), (64, GOAL_TOGETHER_US)):
            name = f"{count} members, {'one at a time' if flight == 1 else f'{flight} in flight'}"
            subjects[name] = partial(group.commit, flight)
            shares[name] = flight, goal if count == 3 else None
    timings = time_interleaved(subjects, ROUNDS)
    return [_row(f"entry, {name}", timing, *shares[name]) for name, timing in timings.items()]


def _ticks() -> list[Row]:
    """Of one member, heartbeats and their answers with it: a tick of all is shared out."""
    groups = {f"{count} members": BenchGroup(count) for count in (3, 5)}
    timings = time_interleaved({name: group.tick for name, group in groups.items()}, ROUNDS)
    return [
        _row(f"tick of a member that rests, {name}", timings[name], len(group.nodes), GOAL_TICK_US)
        for name, group in groups.items()
    ]


def _memory() -> list[Row]:
    """Of a member of a group of five that rests; the leader has the most."""
    group = BenchGroup(5)
    group.commit(100)
    sizes = []
    for _ in range(3):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        groups = [BenchGroup(5) for _ in range(GROUPS)]
        for made in groups:
            made.commit(1)
        sizes.append((tracemalloc.get_traced_memory()[0] - before) / GROUPS / 5)
        tracemalloc.stop()
        del groups, made
    return [
        Row("memory of a member, 5 members", median(sizes), "bytes", goal=GOAL_BYTES, met=median(sizes) < GOAL_BYTES)
    ]


def _row(name: str, timing: Timing, share: int, goal: float | None) -> Row:
    value = timing.median_us / share
    spread = (timing.low_us / share, timing.high_us / share)
    return Row(name, value, "us", spread, goal=goal, met=None if goal is None else value <= goal)


if __name__ == "__main__":
    main()
