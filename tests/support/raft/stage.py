"""A group that does what lines of text say, one after the other: what a story, the simulator and a replay drive.

    tick 2 5            five ticks of member 2's clock
    deliver 1>2 [0]     hand over the first message that waits between two, or another one; `again` leaves it there too
    drop 1>2 [0]
    sync 2 [1]          all writes that wait, or the first ones, are on disk
    propose 2 100       an entry of 100 bytes           read 2 7          a linearizable read, number 7
    change 2 +4 ~5 -1   4 a voter, 5 a learner, 1 gone   transfer 2 3
    crash 2 17          all that is not synced is lost, or some of it, as chance 17 decides
    trap 2 sent         crash it when it next has written, sent, applied or synced something
    start 2             slow 2: it may keep its writes    compact 2 9     forget entries up to 9
    fail 2              what waits could not be written   stop 2          its disk failed
    install 2           the snapshot it was told of is there
    wipe 2              its disk is lost, with all that it had

A line that makes no sense any more is passed over, so that lines can be left out. The invariants are looked at after
every line, and between its effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from logboom.raft import (
    ConfirmedRead,
    Effects,
    LostProposals,
    MemberChange,
    Membership,
    Message,
    NodeRole,
    Proposal,
    RaftNode,
    RaftSettings,
    RefusedRead,
)
from support.raft.disk import RaftDisk
from support.raft.invariants import Invariants, broken, follow

ROUNDS_MAX = 1_000


class Crashed(Exception):
    """A member ended in the middle of its work."""


class StageMember:
    def __init__(self, member: int, membership: Membership, settings: RaftSettings, seed: str) -> None:
        self.member = member
        self.settings = settings
        self.random = Random(f"{seed}/{member}")
        self.disk = RaftDisk(membership)
        self.is_up = False
        self.trap = ""
        self.chain = [0]
        """Hashes of the log, from the base on."""
        self.applied = 0
        self.term_seen = self.commit_seen = self.led_term = 0
        self.floors: dict[int, int] = {}
        """Reads that wait: what was committed when they came."""
        self.reads: list[ConfirmedRead] = []
        self.refused_reads: list[RefusedRead] = []
        self.lost: list[LostProposals] = []
        self.lives = 0

    def role(self) -> NodeRole:
        return self.node._role.role

    def term(self) -> int:
        return self.node._core.term

    def chain_at(self, index: int) -> int | None:
        place = index - self.disk.base.index
        return self.chain[place] if 0 <= place < len(self.chain) else None

    def synced_chain_at(self, index: int) -> int | None:
        """None where a crash may take it."""
        place = index - self.disk.base.index
        synced, log = self.disk.synced, self.disk.log
        if not 0 <= place <= min(len(synced), len(log)) or (place and synced[place - 1] is not log[place - 1]):
            return None
        return self.chain[place]

    def start(self) -> None:
        self.lives += 1
        self.disk.log = list(self.disk.synced)
        self.node = RaftNode(
            self.disk.start(self.member, self.random.getrandbits(60) + 1), self.disk, self.settings, self.random
        )
        self.is_up = True
        self.applied = self.disk.applied
        self.commit_seen = 0
        self.term_seen = self.disk.hard_state.term
        self.rechain(self.chain[0])

    def rechain(self, base: int) -> None:
        self.chain = [base]
        for entry in self.disk.log:
            self.chain.append(follow(self.chain[-1], entry))

    def note_written(self, effects: Effects) -> None:
        if effects.entries:
            del self.chain[effects.entries[0].index - self.disk.base.index :]
            for entry in effects.entries:
                self.chain.append(follow(self.chain[-1], entry))


class RaftStage:
    def __init__(
        self,
        voters: Iterable[int],
        learners: Iterable[int] = (),
        spare: Iterable[int] = (),
        settings: RaftSettings | None = None,
        seed: str = "",
    ) -> None:
        self.settings = settings or RaftSettings(tick_ms=10, heartbeat_ms=10, election_ms=100)
        membership = Membership(tuple(voters), learners=tuple(learners))
        self.members = {
            member: StageMember(member, membership, self.settings, seed) for member in (*membership.members, *spare)
        }
        self.invariants = Invariants()
        self.wire: dict[tuple[int, int], list[Message]] = {}
        self.sent: Callable[[Message], None] = lambda message: None
        """Told of every message that goes on the wire."""
        self.wrote: Callable[[int], None] = lambda member: None
        """Told of every member that has something to sync."""
        self.installs: Callable[[int], None] = lambda member: None
        self.counts: dict[str, int] = {}
        self.syncs_at_once = False
        for member in self.members.values():
            member.start()
        for number in self.members:
            self._pump(self.members[number])

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self, line: str) -> bool:
        """Do what it says. Whether it made sense."""
        verb, *words = line.split()
        is_done: bool = getattr(self, f"_{verb}")(*words)
        return is_done

    def up(self, member: str) -> StageMember | None:
        found = self.members.get(int(member))
        return found if found is not None and found.is_up else None

    # Lines.

    def _tick(self, member: str, count: str = "1") -> bool:
        found = self.up(member)
        for _ in range(int(count)):
            if found is None or not found.is_up:
                return False
            found.node.tick()
            self._pump(found)
        return True

    def _deliver(self, link: str, place: str = "0", again: str = "") -> bool:
        sender, to = (int(word) for word in link.split(">"))
        waiting = self.wire.get((sender, to), [])
        if int(place) >= len(waiting):
            return False
        message = waiting[int(place)] if again else waiting.pop(int(place))
        found = self.up(str(to))
        if found is None:
            return False
        found.node.step(message)
        self._pump(found)
        return True

    def _drop(self, link: str, place: str = "0") -> bool:
        sender, to = (int(word) for word in link.split(">"))
        waiting = self.wire.get((sender, to), [])
        if int(place) >= len(waiting):
            return False
        del waiting[int(place)]
        return True

    def _sync(self, member: str, count: str = "") -> bool:
        found = self.up(member)
        if found is None:
            return False
        number = found.disk.sync(int(count) if count else None)
        if not number:
            return False
        try:
            self._spring(found, "synced")
        except Crashed:
            return True
        found.node.persisted(number)
        self._pump(found)
        return True

    def _propose(self, member: str, size: str) -> bool:
        found = self.up(member)
        if found is None:
            return False
        proposal = found.node.propose(int(size))
        if isinstance(proposal, Proposal):
            self.count("proposals")
            self.invariants.sees_proposal(found, proposal)
        else:
            self.count(f"refused: {proposal.reason}")
        self._pump(found)
        return isinstance(proposal, Proposal)

    def _read(self, member: str, context: str) -> bool:
        found = self.up(member)
        if found is None:
            return False
        found.floors[int(context)] = self.invariants.commit
        found.node.read(int(context))
        self._pump(found)
        return True

    def _change(self, member: str, *words: str) -> bool:
        found = self.up(member)
        if found is None:
            return False
        names = {"+": "voter", "~": "learner", "-": "remove"}
        changes = [MemberChange(names[word[0]], int(word[1:])) for word in words]  # type: ignore[arg-type]
        proposal = found.node.change_members(changes)
        if isinstance(proposal, Proposal):
            self.count("membership changes")
        self._pump(found)
        return isinstance(proposal, Proposal)

    def _transfer(self, member: str, to: str) -> bool:
        found = self.up(member)
        if found is None or not found.node.hand_over(int(to)):
            return False
        self.count("transfers")
        self._pump(found)
        return True

    def _crash(self, member: str, chance: str = "") -> bool:
        found = self.up(member)
        if found is None:
            return False
        self._end(found, Random(chance) if chance else None)
        return True

    def _trap(self, member: str, point: str) -> bool:
        found = self.up(member)
        if found is not None:
            found.trap = point
        return found is not None

    def _start(self, member: str) -> bool:
        found = self.members[int(member)]
        if found.is_up:
            return False
        found.start()
        self.count("starts")
        self._pump(found)
        return True

    def _compact(self, member: str, index: str) -> bool:
        found = self.up(member)
        if found is None or found.role() is NodeRole.INSTALLER:
            return False
        until = min(int(index), found.applied, found.disk.synced_index)
        count = until - found.disk.base.index
        if count <= 0:
            return False
        found.disk.compact(until)
        del found.chain[:count]
        self.count("compactions")
        return True

    def _install(self, member: str) -> bool:
        found = self.up(member)
        snapshot = found.disk.installs if found else None
        if found is None or snapshot is None or found.role() is not NodeRole.INSTALLER:
            return False
        if snapshot.index > self.invariants.commit or self.invariants.committed_terms[snapshot.index] != snapshot.term:
            raise broken("snapshots", f"{member} is to install what is not committed")
        found.disk.install(snapshot)
        found.chain = [self.invariants.committed[snapshot.index]]
        found.applied = snapshot.index
        found.commit_seen = 0
        found.node.installed(snapshot)
        self.count("installs")
        self._pump(found)
        return True

    def _fail(self, member: str) -> bool:
        found = self.up(member)
        if found is None or found.role() is NodeRole.INSTALLER:
            return False
        found.disk.fail()
        found.rechain(found.chain[0])
        found.node.write_failed()
        found.commit_seen = 0
        self.count("failed writes")
        self._pump(found)
        return True

    def _stop(self, member: str) -> bool:
        found = self.up(member)
        if found is None:
            return False
        found.node.stop()
        self.count("failed disks")
        self._pump(found)
        return True

    def _wipe(self, member: str) -> bool:
        """Only where all others remember it, and are asked: what nobody knows nobody can detect."""
        found = self.members[int(member)]
        known = [each for other in self.members.values() for _, each in other.node._core.memberships]
        halves = [half for each in known for half in (each.voters, each.outgoing)]
        asked = {self.members[voter] for half in halves for voter in half} - {found}
        if (int(member),) in halves or not all(int(member) in other.disk.remembered for other in asked):
            return False
        if found.is_up:
            self._end(found, None)
        self.invariants.sees_loss(found)
        membership = self.members[min(self.members)].disk.base.membership
        found.disk = RaftDisk(membership)
        found.chain = [0]
        found.term_seen = found.commit_seen = found.led_term = 0
        self.count("lost disks")
        return True

    # What follows from a line.

    def _pump(self, member: StageMember) -> None:
        """Do what a member says, until it has nothing more to say or crashes."""
        try:
            self._observe(member)
            for _ in range(ROUNDS_MAX):
                if not member.node.has_ready:
                    return
                self._carry_out(member, member.node.ready())
                self._observe(member)
            raise broken("progress", f"{member.member} never comes to an end")
        except Crashed:
            return

    def _observe(self, member: StageMember) -> None:
        if member.node._core.log.handed == member.node._core.log.last_index:
            self.invariants.sees_state(member, self.members.values())

    def _carry_out(self, member: StageMember, effects: Effects) -> None:
        invariants = self.invariants
        for lost in effects.lost:
            member.lost.append(lost)
            invariants.sees_lost(member, lost)
        invariants.sees_entries(member, effects.entries)
        member.disk.write(effects)
        member.note_written(effects)
        self._observe(member)
        if effects.number:
            self._spring(member, "written")
        for message in effects.messages:
            invariants.sees_message(member, message)
            if message.to in self.members:
                self.wire.setdefault((message.sender, message.to), []).append(message)
                self.sent(message)
        if effects.messages:
            self._spring(member, "sent")
        self._apply(member, effects)
        if effects.install is not None:
            member.disk.installs = effects.install
            self.installs(member.member)
        if effects.standing is not None and effects.standing.role is NodeRole.LEADER:
            self.count("elections")
        if effects.number:
            if self.syncs_at_once:
                member.node.persisted(member.disk.sync())
            else:
                self.wrote(member.member)

    def _apply(self, member: StageMember, effects: Effects) -> None:
        if effects.committed is not None:
            self.invariants.sees_applied(member, effects)
            self._spring(member, "applied")
            member.applied = effects.committed[1]
            member.node.applied(member.applied)
        for read in effects.reads:
            floor = member.floors.pop(read.context, None)
            if floor is not None:
                self.count("reads")
                self.invariants.sees_read(member, read, floor)
            member.reads.append(read)
        for refused in effects.refused_reads:
            member.floors.pop(refused.context, None)
            member.refused_reads.append(refused)

    def _spring(self, member: StageMember, point: str) -> None:
        if member.trap == point:
            self.count(f"crashes when {point}")
            self._end(member, member.random)
            raise Crashed

    def _end(self, member: StageMember, random: Random | None) -> None:
        self.count("crashes")
        if member.disk.pending:
            self.count("crashes with unsynced writes")
        member.is_up = False
        member.trap = ""
        member.floors.clear()
        self.invariants.sees_crash(member)
        if random is None:
            member.disk.fail()
        else:
            member.disk.crash(random)
        member.rechain(member.chain[0])
