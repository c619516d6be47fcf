"""Stories: text that a group of members lives through, with what they are after each line.

    members 1 2 3              who votes at the beginning; `spare 4 5` are machines that are in no group yet
    elect 1                    member 1 loses its patience, and everybody answers
    campaign 1                 the same, and nobody hears of it yet
    cut 1 | 2 3                no message passes between the sides
    heal                       all links are whole again
    settle                     messages are delivered until nobody says anything
    pass 30                    so many ticks go by for everybody, and what is said is delivered
    ...                        and every line that a stage knows (support/raft/stage.py)

What is indented behind a line says what changed by it, one line for each member; members not named are as before. A
line that starts with # is for the reader. Where LOGBOOM_REWRITE is set the stories are written anew from what happens.
"""

from __future__ import annotations

from pathlib import Path

from logboom.raft import NodeRole, RaftSettings
from support.raft.stage import RaftStage, StageMember

SETTINGS = RaftSettings(tick_ms=10, heartbeat_ms=10, election_ms=100)
SETTLED_MAX = 10_000


class StoryStage:
    """A stage with a network that delivers in order, and disks that sync at once unless they are slow."""

    def __init__(self) -> None:
        self.voters: list[int] = []
        self.stage: RaftStage | None = None
        self.cut: set[tuple[int, int]] = set()
        self.shown: dict[int, str] = {}

    def tell(self, line: str) -> list[str]:
        """What changed by it."""
        verb, *words = line.split()
        if verb == "members":
            self.voters = [int(word) for word in words]
            self._begin([])
        elif verb == "spare":
            self._begin([int(word) for word in words])
        elif (own := getattr(self, f"_{verb}", None)) is not None:
            own(*words)
        else:
            assert self._stage.run(line), f"nothing came of: {line}"
        return self._changes()

    @property
    def _stage(self) -> RaftStage:
        assert self.stage is not None, "a story begins with its members"
        return self.stage

    def _begin(self, spare: list[int]) -> None:
        self.stage = RaftStage(self.voters, spare=spare, settings=SETTINGS, seed="story")
        self.stage.syncs_at_once = True
        for member in self.stage.members.values():
            if member.disk.pending:
                self.stage.run(f"sync {member.member}")

    def _cut(self, *words: str) -> None:
        sides = [{int(word) for word in side.split()} for side in " ".join(words).split("|")]
        self.cut |= {(one, two) for a in sides for b in sides if a is not b for one in a for two in b}

    def _heal(self) -> None:
        self.cut.clear()

    def _settle(self) -> None:
        stage = self._stage
        for _ in range(SETTLED_MAX):
            link = next((link for link, waiting in stage.wire.items() if waiting), None)
            if link is None:
                return
            verb = "drop" if link in self.cut or not stage.members[link[1]].is_up else "deliver"
            stage.run(f"{verb} {link[0]}>{link[1]}")
        raise AssertionError("they never come to an end")

    def _pass(self, count: str) -> None:
        for _ in range(int(count)):
            for member in self._stage.members:
                self._stage.run(f"tick {member}")
            self._settle()

    def _elect(self, member: str) -> None:
        self._settle()
        self._campaign(member)
        self._settle()

    def _campaign(self, member: str) -> None:
        for found in self._stage.members.values():
            core = found.node._core
            if found.is_up and found.role() is not NodeRole.LEADER:
                core.elapsed = core.patience if found.member == int(member) else SETTINGS.election_ticks
        self._stage.run(f"tick {member}")

    def _slow(self, member: str) -> None:
        """Of all members: from now on their writes wait for a line `sync`."""
        self._stage.syncs_at_once = False

    def _changes(self) -> list[str]:
        if self.stage is None:
            return []
        shown = {member.member: describe(member) for member in self.stage.members.values()}
        changed = [text for member, text in shown.items() if self.shown.get(member) != text]
        self.shown = shown
        return changed


def describe(member: StageMember) -> str:
    if not member.is_up:
        return f"{member.member} is down"
    core = member.node._core
    log = core.log
    terms = " ".join(str(log.term(index)) for index in range(max(1, log.first_index), log.last_index + 1))
    before = f"..{log.first_index - 1} " if log.first_index > 1 else ""
    words = [f"{member.member} {member.role().value} of term {core.term}", f"log [{before}{terms}]"]
    words.append(f"committed {core.commit}, applied {member.applied}")
    membership = core.membership
    words.append(f"voters {_list(membership.voters)}")
    if membership.outgoing:
        words[-1] += f" and {_list(membership.outgoing)}"
    if membership.learners or membership.learners_next:
        words.append(f"learners {_list((*membership.learners, *membership.learners_next))}")
    words += [f"{lost.outcome}: {lost.first}-{lost.last}" for lost in member.lost]
    words += [f"read {read.context} at {read.index}" for read in member.reads]
    words += [f"read {read.context} refused: {read.reason}" for read in member.refused_reads]
    if core.disowned:
        words.append("disowned")
    return ", ".join(words)


def _list(members: tuple[int, ...]) -> str:
    return "".join(str(member) for member in members)


def tell(path: Path) -> str:
    """The story as it happens: lines as they are, and what came of each."""
    stage = StoryStage()
    told: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("    "):
            continue
        told.append(line)
        if line and not line.startswith("#"):
            told += [f"    {change}" for change in stage.tell(line)]
    return "\n".join(told) + "\n"
