"""One seed, one history: chance decides what line comes next on a stage, and everything else follows.

The network delays, reorders, doubles and drops; links are cut both ways, one way, or so that one member sees two sides
that do not see each other; clocks run at different rates and jump; members crash at every point of their work; disks
are slow, fail, or are lost; members and leaders change; clients propose and read. Then everything heals, and within a
bounded time everybody must have the same and take more.

A failing history is a list of lines. Run again they fail again, and `shrink` leaves out what the failure does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random

from logboom.raft import Message, NodeRole, RaftSettings
from support.raft.invariants import InvariantBroken, broken
from support.raft.stage import RaftStage, StageMember

SETTINGS = RaftSettings(
    tick_ms=10,
    heartbeat_ms=30,
    election_ms=100,
    message_bytes=1_024,
    window_bytes=3_000,
    window_messages=8,
    uncommitted_bytes=12_000,
    unpersisted_bytes=6_000,
    reads=50,
)
TROUBLED_MS = 1_200.0
HEALED_MS = 6_000.0
"""Within which everybody has to be where the others are."""
POINTS = ("written", "sent", "applied", "synced")
SPARE = 2
TROUBLES = (
    *("behead", "behead", "behead", "behead", "crash", "trap", "trap", "start", "start", "start", "cut", "cut"),
    *("mend", "mend", "jump", "change", "change", "change", "transfer", "compact", "compact", "fail", "stop"),
    *("rate", "wipe"),
)
"""As often as each stands here."""


class Simulation:
    def __init__(self, seed: int, troubled_ms: float = TROUBLED_MS) -> None:
        self.seed = seed
        self.random = Random(f"raft/{seed}")
        self.troubled_ms = troubled_ms
        self.count = self.random.choice((1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7))
        self.lines: list[str] = []
        self.now = 0.0
        self._queue: list[tuple[float, int, str, object]] = []
        self._order = 0
        self._cut: set[tuple[int, int]] = set()
        self._contexts = 0
        self._is_healed = False
        self._syncing: set[int] = set()
        random = self.random
        self._loss = random.choice((0.0, 0.01, 0.1))
        self._doubling = random.choice((0.0, 0.02, 0.1))
        self._delay_ms = random.choice((1.0, 3.0, 15.0))
        self._sync_ms = random.choice((0.5, 3.0, 20.0))
        self._trouble_ms = random.choice((15.0, 40.0, 120.0))
        self._load_ms = random.choice((4.0, 10.0, 30.0))
        self.stage = make_stage(seed, self.count)
        self._rates = {member: random.uniform(0.7, 1.4) for member in self.stage.members}
        self.stage.sent = self._sent
        self.stage.wrote = self._wrote
        self.stage.installs = self._installs
        for number in self.stage.members:
            self._wrote(number)
            self._at(random.uniform(0, 10), "tick", number)
        self._at(1.0, "client", None)
        self._at(self._trouble_ms, "trouble", None)

    def run(self) -> None:
        """Raises InvariantBroken, with the seed and the lines."""
        try:
            self._run_until(self.troubled_ms)
            self._heal()
            self._await_agreement()
        except Exception as error:
            error.add_note(f"seed {self.seed}, {len(self.lines)} lines")
            raise

    def _run_until(self, end_ms: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            self.now, _, kind, what = heappop(queue)
            getattr(self, f"_on_{kind}")(what)
        self.now = end_ms

    def _at(self, delay_ms: float, kind: str, what: object) -> None:
        self._order += 1
        heappush(self._queue, (self.now + delay_ms, self._order, kind, what))

    def do(self, line: str) -> bool:
        self.lines.append(line)
        return self.stage.run(line)

    # What the stage says.

    def _sent(self, message: Message) -> None:
        random = self.random
        delay_ms = random.expovariate(1 / self._delay_ms)
        if not self._is_healed:
            if random.random() < 0.02:
                delay_ms += random.uniform(0, 200)
            if random.random() < self._doubling:
                self._at(delay_ms * random.random(), "again", message)
        self._at(delay_ms, "message", message)

    def _wrote(self, member: int) -> None:
        if member not in self._syncing:
            self._syncing.add(member)
            slow = 30.0 if not self._is_healed and self.random.random() < 0.02 else 1.0
            self._at(self.random.expovariate(1 / self._sync_ms) * slow, "sync", member)

    def _installs(self, member: int) -> None:
        self._at(self.random.uniform(5, 80), "install", member)

    # What happens.

    def _on_message(self, message: Message, again: str = "") -> None:
        link = (message.sender, message.to)
        waiting = self.stage.wire.get(link, [])
        place = next((place for place, other in enumerate(waiting) if other is message), None)
        if place is None:
            return
        is_lost = link in self._cut or (not self._is_healed and self.random.random() < self._loss)
        if is_lost and not again:
            self.do(f"drop {link[0]}>{link[1]} {place}")
            self.stage.count("messages lost")
        elif not is_lost:
            self.do(f"deliver {link[0]}>{link[1]} {place} {again}".rstrip())

    def _on_again(self, message: Message) -> None:
        self.stage.count("messages doubled")
        self._on_message(message, "again")

    def _on_tick(self, member: int) -> None:
        self.do(f"tick {member}")
        self._at(SETTINGS.tick_ms * (1.0 if self._is_healed else self._rates[member]), "tick", member)

    def _on_sync(self, member: int) -> None:
        self._syncing.discard(member)
        found = self.stage.members[member]
        if not found.is_up or not found.disk.pending:
            return
        many = len(found.disk.pending)
        if many > 1 and self.random.random() < 0.3:
            self.do(f"sync {member} {self.random.randrange(1, many)}")
        else:
            self.do(f"sync {member}")
        if found.disk.pending:
            self._wrote(member)

    def _on_install(self, member: int) -> None:
        self.do(f"install {member}")

    def _on_client(self, _: object) -> None:
        random = self.random
        up = [member for member in self.stage.members.values() if member.is_up]
        if up:
            leaders = [member for member in up if member.role() is NodeRole.LEADER]
            asked = random.choice(leaders or up) if random.random() < 0.9 else random.choice(up)
            if random.random() < 0.3:
                self._contexts += 1
                self.do(f"read {random.choice(up).member} {self._contexts}")
            else:
                for _ in range(random.choice((1, 1, 1, 4))):
                    if asked.is_up:
                        self.do(f"propose {asked.member} {random.randrange(1, 600)}")
        self._at(random.expovariate(1 / self._load_ms), "client", None)

    def _on_trouble(self, _: object) -> None:
        if self._is_healed:
            return
        random = self.random
        member = random.choice(list(self.stage.members.values()))
        name = random.choice(TROUBLES)
        getattr(self, f"_make_{name}")(member)
        self._at(random.expovariate(1 / self._trouble_ms), "trouble", None)

    def _make_crash(self, member: StageMember) -> None:
        self.do(f"crash {member.member} {self.random.randrange(1_000)}")

    def _make_trap(self, member: StageMember) -> None:
        self.do(f"trap {member.member} {self.random.choice(POINTS)}")

    def _make_start(self, member: StageMember) -> None:
        for other in self.stage.members.values():
            if not other.is_up and (other is member or self.random.random() < 0.5):
                self.do(f"start {other.member}")

    def _make_cut(self, member: StageMember) -> None:
        random = self.random
        names = list(self.stage.members)
        kind = random.choice(("both ways", "one way", "bridge"))
        self.stage.count(f"partitions {kind}")
        if kind == "one way":
            self._cut |= {
                (one, other) if random.random() < 0.5 else (other, one)
                for one in (member.member,)
                for other in names
                if other != one
            }
            return
        random.shuffle(names)
        bridge = {names.pop()} if kind == "bridge" else set[int]()
        side = set(names[: random.randint(1, max(1, len(names) - 1))])
        self._cut |= {
            (one, other)
            for one in names
            for other in names
            if (one in side) != (other in side) and not bridge & {one, other}
        }

    def _make_behead(self, _: StageMember) -> None:
        """The leader goes on alone, or with too few, and appends what will be taken back."""
        leader = self._leader()
        if leader is not None:
            self.stage.count("leaders cut off")
            others = [member for member in self.stage.members if member != leader.member]
            followers = {member for member in others if self.random.random() < 0.3}
            self._cut = {
                link
                for other in others
                if other not in followers
                for one in (leader.member, *followers)
                for link in ((one, other), (other, one))
            }
            if self.random.random() < 0.3:
                self._make_change(leader)
            for _time in range(self.random.randrange(6)):
                self.do(f"propose {leader.member} {self.random.randrange(1, 600)}")

    def _make_mend(self, _: StageMember) -> None:
        self._cut.clear()

    def _make_jump(self, member: StageMember) -> None:
        self.stage.count("clock jumps")
        self.do(f"tick {member.member} {self.random.randrange(5, 40)}")

    def _make_rate(self, member: StageMember) -> None:
        self._rates[member.member] = self.random.choice((0.3, 0.7, 1.0, 1.5, 3.0))

    def _make_change(self, _: StageMember) -> None:
        leader = self._leader()
        if leader is None:
            return
        random = self.random
        membership = leader.node._core.membership
        words = []
        for other in random.sample(list(self.stage.members), random.choice((1, 1, 2, 3))):
            if other in membership.voters:
                words.append(random.choice(("-", "-", "~")) + str(other))
            elif other in membership.learners:
                words.append(random.choice(("+", "+", "+", "-")) + str(other))
            else:
                words.append(random.choice(("~", "~", "+")) + str(other))
        self.do(f"change {leader.member} {' '.join(words)}")

    def _make_transfer(self, member: StageMember) -> None:
        leader = self._leader()
        if leader is not None:
            self.do(f"transfer {leader.member} {member.member}")

    def _make_compact(self, member: StageMember) -> None:
        keep = self.random.randrange(6)
        self.do(f"compact {member.member} {max(0, member.applied - keep)}")

    def _make_fail(self, member: StageMember) -> None:
        self.do(f"fail {member.member}")

    def _make_stop(self, member: StageMember) -> None:
        if self.random.random() < 0.3:
            self.do(f"stop {member.member}")

    def _make_wipe(self, member: StageMember) -> None:
        if self.random.random() < 0.3 and not self.stage.counts.get("lost disks"):
            self.do(f"wipe {member.member}")

    def _leader(self) -> StageMember | None:
        leaders = [m for m in self.stage.members.values() if m.is_up and m.role() is NodeRole.LEADER]
        return max(leaders, key=lambda member: member.term(), default=None)

    # After the trouble.

    def _heal(self) -> None:
        self._is_healed = True
        self._cut.clear()
        for member in self.stage.members.values():
            member.trap = ""
            if member.is_up and member.role() is NodeRole.STOPPED and not member.node._core.disowned:
                self.do(f"crash {member.member}")
            if not member.is_up:
                self.do(f"start {member.member}")

    def _can_agree(self) -> bool:
        """Whether enough voters are left: one whose disk was lost is none any more."""
        return not self.stage.counts.get("lost disks")

    def _await_agreement(self) -> None:
        end_ms = self.now + HEALED_MS
        while self.now < end_ms:
            self._run_until(self.now + 100.0)
            if self._agree():
                self.stage.invariants.sees_rest(self.stage.members.values())
                return
        if self._can_agree():
            raise broken("progress", f"{HEALED_MS:.0f} ms after all healed they do not agree:\n{describe(self.stage)}")

    def _agree(self) -> bool:
        """A leader of its own time, whose membership has what was committed when the last trouble was over."""
        leader = self._leader()
        if leader is None:
            return False
        core = leader.node._core
        if core.membership.is_joint or core.commit < core.memberships[-1][0]:
            return False
        goal = self.__dict__.setdefault("_goal", self.stage.invariants.commit + 10)
        members = [self.stage.members[member] for member in core.membership.members]
        return all(member.applied >= goal and member.role() is not NodeRole.STOPPED for member in members)


def make_stage(seed: int, count: int) -> RaftStage:
    spare = range(count + 1, count + 1 + SPARE)
    return RaftStage(range(1, count + 1), spare=spare, settings=SETTINGS, seed=f"raft/{seed}")


def replay(seed: int, count: int, lines: Sequence[str]) -> Exception | None:
    """What lines lead to; None where nothing breaks."""
    try:
        stage = make_stage(seed, count)
        for line in lines:
            stage.run(line)
    except Exception as error:
        return error
    return None


def rule_of(error: Exception | None) -> str:
    """What broke, without the details that differ from run to run."""
    if isinstance(error, InvariantBroken):
        return str(error).partition(":")[0]
    return type(error).__name__


def shrink(seed: int, count: int, lines: Sequence[str]) -> list[str]:
    """The lines without which the same rule does not break: halves, quarters and so on are left out as it goes."""
    rule = rule_of(replay(seed, count, lines))
    kept = list(lines)
    size = len(kept) // 2
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if rule_of(replay(seed, count, fewer)) == rule:
                kept = fewer
            else:
                start += size
        size //= 2
    return kept


def describe(stage: RaftStage) -> str:
    """A line for each member that is up."""
    return "\n".join(_describe(member) for member in stage.members.values())


def _describe(member: StageMember) -> str:
    if not member.is_up:
        return f"{member.member} down"
    core = member.node._core
    membership = core.membership
    voters = f"{membership.voters}{membership.outgoing or ''}{membership.learners or ''}"
    return (
        f"{member.member} {member.role().value} term {core.term} leader {core.leader} log {core.log.first_index}"
        f"-{core.log.last_index} committed {core.commit} applied {member.applied} members {voters} {core.disowned}"
    )
