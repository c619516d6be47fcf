"""The life of a consumer group on a simulated machine: members join, die, hang; topics and nodes come and go.

Members are other machines: they live on when the node dies. Each knows what it was told, and by its own clock how long
that holds: what it holds ends with its session, counted from when it sent the last beat that was answered. After each
answer, and at the end, what all of them have seen is compared:

- in one generation one member holds a log, and nobody is given a log that another one still holds by his own view
- a log is asked for before it goes, unless its member was silent, or its topic is gone: only what must move moves
- a place is never below what was acknowledged, nor above what a holder committed: nothing is lost, nothing goes back;
  who has lost a log moves nothing
- once nobody dies any more every log soon has one holder, evenly, and all of them commit

Everything depends on the seed alone; `digest` is of all that was said, and when.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Final, TypeVar

from logboom.batch import build
from logboom.broker.api import CursorMove, Grant, GroupJoin, GroupMove, GroupStanding, HeldLog, Part, PublishKey
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN
from logboom.errors import LogNotHeld, MemberUnknown, ShuttingDown, TopicBusy, TopicDeleted, TopicNotFound
from logboom.storage.bookmark import Bookmark
from simulation.machine import SimulatedMachine
from support.disks.simulated import SimulatedDisk
from support.simulation.staged import ROOT, killed

CONFIG: Final = BrokerConfig(reserve_bytes=0)
GROUP: Final = "billing"
WISHES: Final = ("t*", "t*", "t*", "t1*,t2*")
RECORDS: Final = 60
LIFE_S: Final = 15.0
SESSIONS_MS: Final = (1_000, 3_000)
GIVE_BACK_S: Final = 2.0
QUIET_S: Final = 20.0
"""After which everything has moved on: sessions that end, logs that are taken, and some beats."""
Log = tuple[str, int]
"""A topic's id, and the partition."""
Result = TypeVar("Result")


@dataclass
class Standing:
    """Where a group stands in a log, as the world outside knows."""

    acknowledged: int = 0
    generation: int = 0
    """Of the last commit that was acknowledged."""
    attempted: int = 0
    """The furthest that a holder has tried to commit."""


@dataclass
class Holding:
    grant: Grant
    position: int
    """How far it has read."""
    until_s: float
    """When it holds it no longer, by its own view: with its session, or as it was asked for it long ago."""
    asked_s: float | None = None


@dataclass(eq=False)
class SimulatedMember:
    """A process elsewhere, and what it believes."""

    id: str
    topics: str
    session_s: float
    instance: str = ""
    is_joined: bool = False
    generation: int = 0
    answered_s: float = -1.0
    """When it sent what was answered last."""
    missed: bool = False
    """Whether an answer was lost since: it may have been told what it does not know."""
    keeps: bool = False
    """Whether it holds on to what it is asked for."""
    holds: dict[Log, Holding] = field(default_factory=dict)

    def live_holds(self, now_s: float) -> dict[Log, Holding]:
        """What it holds by its own view."""
        return {log: held for log, held in self.holds.items() if now_s < min(held.until_s, self.ends_s)}

    @property
    def ends_s(self) -> float:
        return self.answered_s + self.session_s

    def forget(self) -> None:
        self.is_joined, self.generation, self.holds, self.missed = False, 0, {}, False


class GroupLife:
    def __init__(self, seed: int, seconds: float = 30.0) -> None:
        self.lives = self.commits = self.moves = 0
        self.seconds = seconds
        self.seed = seed
        self.chance = Random(f"{seed}/fate")
        self.members: list[SimulatedMember] = []
        self.made = self.published = self.topics_made = 0
        self.holders: dict[tuple[Log, int], str] = {}
        """Who was given a log in a generation."""
        self.standings: dict[Log, Standing] = {}
        self.filled: set[Log] = set()
        """Logs that have their records."""
        self.deleted: set[str] = set()
        self.now_s = 0.0
        self._disk = SimulatedDisk()
        self._digest = sha256()

    def run(self) -> str:
        """Raises AssertionError where something promised does not hold. The digest of the whole history."""
        while self.now_s < self.seconds:
            self._live(self.chance.choices(("power", "kill", "close"), (4, 3, 3))[0])
        self._live("quiet")
        return self._digest.hexdigest()

    def note(self, *what: object) -> None:
        self._digest.update(repr((self.now_s, *what)).encode())

    def _live(self, end: str) -> None:
        self.lives += 1
        seed = f"{self.seed}/{self.lives}"
        machine = SimulatedMachine(self._disk, seed, self.now_s)
        machine.run(_GroupVisit(self, machine, Random(seed)).live(end))
        away_s = self.chance.choice((0.1, 1.0, 10.0))
        self.now_s = machine.ended_s + away_s
        self._disk = machine.disk.power_loss(self.chance) if end == "power" else killed(machine.disk)


class _GroupVisit:
    """One life of the node, and what its members do meanwhile."""

    def __init__(self, life: GroupLife, machine: SimulatedMachine, chance: Random) -> None:
        self._life = life
        self._machine = machine
        self._chance = chance
        self._broker: LocalBroker
        self._is_quiet = False
        self._ending = False

    @property
    def _now_s(self) -> float:
        return self._machine.loop.time()

    async def live(self, end: str) -> None:
        self._broker = await LocalBroker.open(
            ROOT, CONFIG, disk=self._machine.disk, world=self._machine.world, rules=OPEN
        )
        await self._make_out()
        self._is_quiet = end == "quiet"
        for topic in await self._broker.list_topics():  # those whose making nobody was told of
            await self._fill(topic.name, topic.id, len(topic.partitions))
        async with asyncio.TaskGroup() as tasks:
            for member in self._life.members:
                tasks.create_task(self._be(member))
            if self._is_quiet:
                await self._wait_for_quiet()
            else:
                tasks.create_task(self._turn_members_over(tasks))
                tasks.create_task(self._turn_topics_over())
                await asyncio.sleep(self._chance.expovariate(1 / LIFE_S))
            if end == "power":
                self._machine.die_in(self._chance.randrange(1, 20))
                await asyncio.sleep(60)
            if end in ("power", "kill"):
                self._machine.die()
                await asyncio.sleep(0)
            self._ending = True
        await self._broker.close()

    async def _make_out(self) -> None:
        if "out" not in [topic.name for topic in await self._broker.list_topics()]:
            await self._broker.create_topic("out", 1)

    # What comes and goes.

    async def _turn_members_over(self, tasks: asyncio.TaskGroup) -> None:
        while not self._ending:
            living = self._life.members
            if len(living) < 2 or (len(living) < 6 and self._chance.random() < 0.5):
                member = self._make_member()
                tasks.create_task(self._be(member))
            else:
                await self._end_member(self._chance.choice(living))
            await asyncio.sleep(self._chance.expovariate(0.5))

    def _make_member(self, instance: str = "") -> SimulatedMember:
        life = self._life
        life.made += 1
        if not instance and self._chance.random() < 0.3:
            instance = f"instance-{life.made}"
        about = self._chance.choice(WISHES), self._chance.randrange(*SESSIONS_MS) / 1000, instance
        member = SimulatedMember(f"member-{life.made:012}", *about)
        life.members.append(member)
        return member

    async def _end_member(self, member: SimulatedMember) -> None:
        """It dies, or leaves; where it is an instance, perhaps another process goes on in its place."""
        self._life.members.remove(member)
        member.holds = {}
        if self._chance.random() < 0.4:
            with suppress(MemberUnknown, ShuttingDown):
                await self._broker.leave_group(GROUP, member.id)
        elif member.instance and self._chance.random() < 0.8:
            successor = self._make_member(member.instance)
            successor.topics = member.topics
            asyncio.get_running_loop().create_task(self._be(successor))

    async def _turn_topics_over(self) -> None:
        life = self._life
        while not self._ending:
            topics = [topic for topic in await self._broker.list_topics() if topic.name != "out"]
            if self._machine.died:
                return
            if len(topics) < 2 or (len(topics) < 4 and self._chance.random() < 0.6):
                life.topics_made += 1
                name = f"t{self._chance.randrange(4)}"
                if name not in [topic.name for topic in topics]:
                    made = await self._broker.create_topic(name, self._chance.randrange(1, 5))
                    await self._fill(name, made.id, len(made.partitions))
            else:
                topic = self._chance.choice(topics)
                life.deleted.add(topic.id)
                try:
                    await self._broker.delete_topic(topic.name)
                except TopicBusy:
                    life.deleted.discard(topic.id)
            await asyncio.sleep(self._chance.expovariate(1 / 8))

    async def _fill(self, name: str, topic_id: str, partitions: int) -> None:
        for partition in range(partitions if name != "out" else 0):
            if (await self._broker.describe_topic(name)).partitions[partition].next == 0:
                await self._broker.append([Part(name, [build([b"x"] * RECORDS)], partition)], "durable")
            self._life.standings.setdefault((topic_id, partition), Standing())
            self._life.filled.add((topic_id, partition))

    # What a member does.

    async def _be(self, member: SimulatedMember) -> None:
        while not self._ending and member in self._life.members:
            try:
                await self._beat(member) if member.is_joined else await self._join(member)
                if member.is_joined:
                    await self._work(member)
            except MemberUnknown:
                member.forget()
            except ShuttingDown:
                return
            rest_s = self._chance.expovariate(8 / member.session_s)
            if not self._is_quiet and self._chance.random() < 0.04:
                rest_s += self._chance.uniform(0.5, 2.0) * member.session_s
            await asyncio.sleep(min(rest_s, member.session_s / 3) if self._is_quiet else rest_s)
            member.keeps = not self._is_quiet and self._chance.random() < (0.9 if member.keeps else 0.03)

    async def _ask(self, member: SimulatedMember, call: Awaitable[Result]) -> Result | None:
        """None where its answer is lost, or comes to nobody."""
        is_lost = not self._is_quiet and self._chance.random() < 0.03
        found = await call
        if is_lost:
            member.missed = True
        if self._machine.died or member not in self._life.members:
            return None
        return None if is_lost else found

    async def _join(self, member: SimulatedMember) -> None:
        sent_s = self._now_s
        times_ms = round(member.session_s * 1000), int(GIVE_BACK_S * 1000)
        wish = GroupJoin(GROUP, member.id, member.topics, "logs", member.instance, "", *times_ms)
        standing = await self._ask(member, self._broker.join_group(wish))
        if standing is not None:
            member.is_joined = True
            self._take(member, standing, sent_s)

    async def _beat(self, member: SimulatedMember) -> None:
        sent_s = self._now_s
        for log, held in list(member.holds.items()):
            if held.asked_s is not None and not member.keeps:
                del member.holds[log]
        held_logs = [HeldLog(*log) for log in member.holds]
        wait_ms = self._chance.choice((0, int(member.session_s * 300)))
        call = self._broker.beat_group(GROUP, member.id, member.generation, held_logs, wait_ms)
        standing = await self._ask(member, call)
        if standing is not None:
            self._take(member, standing, sent_s)

    def _take(self, member: SimulatedMember, standing: GroupStanding, sent_s: float) -> None:
        """What it was told, compared with what everybody knows."""
        was, was_until_s, now_s = member.holds, member.ends_s, self._now_s
        told = {(grant.topic_id, grant.partition): grant for grant in standing.grants}
        self._life.now_s = now_s
        self._life.note(member.id, standing)
        assert standing.generation >= member.generation, f"{member.id}: the generation went back"
        if now_s < was_until_s and not member.missed:
            for log, held in was.items():
                if log not in told or told[log].generation != held.grant.generation:
                    is_explained = held.asked_s is not None or log[0] in self._life.deleted
                    assert is_explained, f"{member.id}: {log} was taken and never asked for"
        member.generation, member.answered_s = standing.generation, sent_s
        has_missed, member.missed = member.missed, False
        member.holds = {}
        for log, grant in told.items():
            before = was.get(log)
            if before is not None and before.grant.generation == grant.generation:
                before.grant = grant
                member.holds[log] = before
            elif not grant.is_asked_back or member.keeps:
                member.holds[log] = self._begin(member, log, grant)
            held_now = member.holds.get(log)
            if grant.is_asked_back and held_now is not None and held_now.asked_s is None:
                held_now.asked_s = sent_s
                held_now.until_s = now_s if has_missed else sent_s + GIVE_BACK_S  # it may be asked for since long ago

    def _begin(self, member: SimulatedMember, log: Log, grant: Grant) -> Holding:
        """It is given a log: nobody else may have it now."""
        life, now_s = self._life, self._now_s
        holder = life.holders.setdefault((log, grant.generation), member.id)
        assert holder == member.id, f"{log}: {holder} and {member.id} have it in generation {grant.generation}"
        newest = max(generation for (other, generation) in life.holders if other == log)
        if newest == grant.generation and log[0] not in life.deleted:
            for other in life.members:
                is_same = other is member or (member.instance and other.instance == member.instance)
                if not is_same and not other.missed and log in other.live_holds(now_s):
                    raise AssertionError(f"{log}: {other.id} still holds what {member.id} is given")
        life.moves += 1
        standing = life.standings.setdefault(log, Standing())
        place = 0
        if grant.bookmark is not None:
            bookmark = Bookmark.parse(grant.bookmark)
            assert bookmark.topic_id.hex() == log[0], f"{log}: told a place in another topic"
            place = bookmark.seqno
        assert place <= standing.attempted, f"{log}: {place} was committed by nobody"
        if newest == grant.generation and log[0] not in life.deleted:
            assert place >= standing.acknowledged, f"{log}: {standing.acknowledged} was acknowledged, told {place}"
        return Holding(grant, place, now_s + 3600)

    async def _work(self, member: SimulatedMember) -> None:
        """Read some of what it holds, and commit: by itself, or with records of its own."""
        logs = [log for log, held in member.holds.items() if held.position < RECORDS and log in self._life.filled]
        if not logs or self._chance.random() < 0.4:
            return
        some = self._chance.sample(logs, min(len(logs), 2))
        for log in some:
            held, standing = member.holds[log], self._life.standings[log]
            held.position = min(RECORDS, held.position + self._chance.randrange(1, 4))
            standing.attempted = max(standing.attempted, held.position)
        if self._chance.random() < 0.25:
            await self._publish(member, some)
        else:
            await self._commit(member, some)

    async def _commit(self, member: SimulatedMember, logs: list[Log]) -> None:
        held = [member.holds[log] for log in logs]
        moves = [
            GroupMove(each.grant.topic, log[1], _mark(each, log), each.grant.generation)
            for log, each in zip(logs, held, strict=True)
        ]
        before = [self._life.standings[log].generation for log in logs]
        positions = [each.position for each in held]
        refused = await self._ask(member, self._broker.commit_group(GROUP, member.id, moves))
        if refused is None:
            return
        no = {(each.topic, each.partition): each.code for each in refused}
        for log, each, position, generation in zip(logs, held, positions, before, strict=True):
            code = no.get((each.grant.topic, log[1]))
            if code is None:
                self._acknowledge(log, each, position, generation)
            else:
                assert code in ("log-not-held", "topic-not-found", "topic-recreated", "topic-deleted"), code
                self._check_refusal(member, log, each)

    async def _publish(self, member: SimulatedMember, logs: list[Log]) -> None:
        held = [member.holds[log] for log in logs]
        moves = [
            CursorMove(GROUP, each.grant.topic, log[1], _mark(each, log), None, False, member.id, each.grant.generation)
            for log, each in zip(logs, held, strict=True)
        ]
        before = [self._life.standings[log].generation for log in logs]
        positions = [each.position for each in held]
        self._life.published += 1
        key = PublishKey(f"{member.id}/{self._life.published}", 0)
        try:
            parts = [Part("out", [build([b"made"])], 0)]
            done = await self._ask(member, self._broker.publish_batches(key, parts, moves))
        except (LogNotHeld, TopicNotFound, TopicDeleted):
            return
        if done is not None:
            for about in zip(logs, held, positions, before, strict=True):
                self._acknowledge(*about)

    def _acknowledge(self, log: Log, held: Holding, position: int, before: int) -> None:
        """`before` is the generation that had moved the place when this was asked for."""
        standing = self._life.standings[log]
        generation = held.grant.generation
        self._life.commits += 1
        self._life.note("commit", log, generation, position)
        assert generation >= before, f"{log}: generation {generation} moved a place after a later one"
        standing.acknowledged = max(standing.acknowledged, position)
        standing.generation = max(standing.generation, generation)

    def _check_refusal(self, member: SimulatedMember, log: Log, held: Holding) -> None:
        """Who holds a log by his own view is not refused."""
        is_live = member.holds.get(log) is held and self._now_s < min(held.until_s, member.ends_s)
        is_told = held.asked_s is None and not member.missed
        assert not (is_live and is_told) or log[0] in self._life.deleted, f"{member.id}: a commit of {log} was refused"

    # What must hold in the end.

    async def _wait_for_quiet(self) -> None:
        end_s = self._now_s + QUIET_S
        topics = [topic.id for topic in await self._broker.list_topics() if topic.name != "out"]
        while True:
            try:
                return self._check_quiet(topics)
            except AssertionError:
                if self._now_s > end_s:
                    raise
            await asyncio.sleep(0.2)

    def _check_quiet(self, topic_ids: list[str]) -> None:
        held: Counter[Log] = Counter()
        wanted = {log for log in self._life.filled if log[0] in topic_ids}
        for member in self._life.members:
            assert member.is_joined, f"{member.id} has not come back"
            for log, each in member.live_holds(self._now_s).items():
                assert each.asked_s is None, f"{log} is asked for, and never given"
                held[log] += 1
        assert set(held.values()) <= {1}, "a log has two holders"
        if any(member.topics == "t*" for member in self._life.members):
            assert held.keys() == wanted, f"{len(wanted - held.keys())} logs of {len(wanted)} are nobody's"
        loads = [len(member.holds) for member in self._life.members if member.topics == "t*"]
        if all(member.topics == "t*" for member in self._life.members):
            assert max(loads, default=0) - min(loads, default=0) <= 1, f"not even: {loads}"


def _mark(held: Holding, log: Log) -> str:
    return str(Bookmark(bytes.fromhex(log[0]), log[1], held.position, 0))
