"""Work queues of a broker: who is given what, what becomes of it, what survives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from logboom.access.restriction import Restriction
from logboom.batch import Record, build
from logboom.broker.api import (
    GroupJoin,
    JobRange,
    LeasedJobs,
    Part,
    QueueSettings,
    ReadRequest,
    RefusedSettlement,
    Settlement,
    Start,
    TakeJobs,
)
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.rules import OPEN, ObjectKind, OpenRules, Right
from logboom.errors import GroupMismatch, InvalidGroup, LimitExceeded, MemberUnknown
from support.brokers.any_broker import AnyBroker
from support.waiting import until

Story = Callable[[LocalBroker], Awaitable[None]]


def tell(path: Path, *stories: Story, config: BrokerConfig | None = None) -> None:
    """Each with the node begun anew on the same directory."""

    async def run(story: Story) -> None:
        async with asyncio.timeout(300):
            broker = await LocalBroker.open(str(path), config, rules=OPEN)
            try:
                await story(broker)
            finally:
                await broker.close()

    path.mkdir(exist_ok=True)
    for story in stories:
        asyncio.run(run(story))


class Worker:
    """A member of a queue, as a client is one."""

    def __init__(self, broker: AnyBroker, name: str, topics: str = "jobs", caller: Caller = EVERYBODY, **wishes: Any):
        self.broker = broker
        self.caller = caller
        wishes = {"lease_ms": 60_000, **wishes}
        self.settings = QueueSettings(**wishes)
        self.member = name.ljust(16, "-")
        self.topics = topics
        self.held: list[tuple[Record, int]] = []

    async def join(self, session_ms: int = 60_000) -> Worker:
        about: dict[str, Any] = {"mode": "queue", "session_ms": session_ms, "queue": self.settings}
        await self.broker.join_group(GroupJoin("w", self.member, self.topics, **about), caller=self.caller)
        return self

    async def take(self, count: int = 100, wait_ms: int = 0, **about: Any) -> list[int]:
        """Their seqnos; `held` has the records, each with its tries."""
        jobs = await self.broker.take_jobs(
            TakeJobs("w", self.member, count, wait_ms=wait_ms, **about), caller=self.caller
        )
        return self.keep(jobs)

    def keep(self, jobs: LeasedJobs) -> list[int]:
        self.held = []
        for chunk, tries in jobs.chunks:
            self.topic_id, self.partition = chunk.topic_id, chunk.partition
            self.held += [(record, tries) for record in chunk.records() if (record.seqno or 0) < chunk.next_seqno]
        return [record.seqno or 0 for record, _ in self.held]

    @property
    def tries(self) -> list[int]:
        return [tries for _, tries in self.held]

    async def settle(self, seqno: int, until: int, verdict: Any = "ack", **about: Any) -> list[RefusedSettlement]:
        one = Settlement(self.topic_id, self.partition, seqno, until, verdict, **about)
        return await self.broker.settle_jobs("w", self.member, [one], caller=self.caller)

    async def leave(self) -> None:
        await self.broker.leave_group("w", self.member, caller=self.caller)


async def jobs(broker: LocalBroker, count: int = 10, topic: str = "jobs", batch: int = 4) -> None:
    if topic not in {info.name for info in await broker.list_topics()}:
        await broker.create_topic(topic, 1)
    values = [b"%d" % number for number in range(count)]
    for first in range(0, count, batch):
        await broker.append([Part(topic, [build(values[first : first + batch])])])


async def letters(broker: LocalBroker, topic: str = "dead") -> list[Record]:
    chunk = await broker.read(ReadRequest(topic))
    return list(chunk.records())


def test_records_go_to_whoever_is_free_each_to_one(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann, bob = await Worker(broker, "ann").join(), await Worker(broker, "bob").join()
        assert await ann.take(3) == [0, 1, 2]
        assert [record.value for record, _ in ann.held] == [b"0", b"1", b"2"]
        assert await bob.take(4) == [3, 4, 5, 6]
        assert await ann.take() == [7, 8, 9]
        assert await bob.take() == []
        assert ann.tries == [1, 1, 1]

    tell(tmp_path, story)


def test_who_waits_is_woken_by_a_new_record_by_one_that_is_given_back_and_by_a_lease_that_ends(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker, 1)
        ann, bob = await Worker(broker, "ann", lease_ms=300).join(), await Worker(broker, "bob", lease_ms=300).join()
        assert await ann.take() == [0]
        waits = asyncio.create_task(bob.take(wait_ms=60_000))
        await asyncio.sleep(0.05)
        assert not waits.done()
        assert await ann.settle(0, 1, "release") == []
        assert await waits == [0]
        assert bob.tries == [2]
        assert await ann.take(wait_ms=60_000) == [0]  # bob was silent
        assert ann.tries == [3]
        assert await ann.settle(0, 1) == []
        waits = asyncio.create_task(bob.take(wait_ms=60_000))
        await asyncio.sleep(0.05)
        assert not waits.done()
        await jobs(broker, 1)
        assert await waits == [1]

    tell(tmp_path, story)


def test_what_was_acknowledged_never_comes_again_and_what_was_not_keeps_its_count(tmp_path: Path) -> None:
    async def before(broker: LocalBroker) -> None:
        await jobs(broker)
        ann = await Worker(broker, "ann").join()
        await ann.take(8)
        assert await ann.settle(1, 3) == []
        assert await ann.settle(5, 6, "release") == []
        assert await ann.settle(0, 1) == []

    async def after(broker: LocalBroker) -> None:
        bob = await Worker(broker, "bob").join()
        assert await bob.take() == [5, 8, 9]  # ann comes back, perhaps: the others are hers
        assert bob.tries == [2, 1, 1]
        ann = Worker(broker, "ann")
        ann.topic_id, ann.partition = bob.topic_id, 0
        assert await ann.settle(3, 5) == []
        await ann.leave()
        assert await bob.take() == [6, 7]
        assert bob.tries == [2, 2]

    tell(tmp_path, before, after)


def test_a_late_settlement_of_a_record_that_is_another_s_now_is_refused_by_name(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann, bob = await Worker(broker, "ann", lease_ms=100).join(), Worker(broker, "bob")
        await ann.take(3)
        await bob.join()
        assert await bob.take(3, wait_ms=60_000) in ([3, 4, 5], [0, 1, 2])
        while bob.tries != [2] * 3:
            await asyncio.sleep(0.05)
            await bob.take(3)
        for verdict in ("ack", "release", "reject", "extend"):
            (refused,) = await ann.settle(0, 3, verdict)
            assert (refused.seqno, refused.until, refused.code) == (0, 3, "job-not-held")
            assert "lease has run out" in refused.reason
        assert await bob.settle(0, 3) == []
        refused_of_nobody = await broker.settle_jobs("w", ann.member, [Settlement("00" * 16, 0, 0, 1)])
        assert [each.code for each in refused_of_nobody] == ["job-not-held"]

    tell(tmp_path, story)


def test_an_extended_lease_lasts_longer(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker, 1)
        ann = await Worker(broker, "ann", lease_ms=1_500).join()
        bob = await Worker(broker, "bob", lease_ms=1_500).join()
        await ann.take()
        for _ in range(5):
            await asyncio.sleep(0.5)
            assert await ann.settle(0, 1, "extend") == []
            assert await bob.take() == []
        assert await ann.settle(0, 1) == []

    tell(tmp_path, story)


def test_a_member_that_leaves_or_dies_frees_what_it_held(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann = await Worker(broker, "ann").join()
        await ann.take(2)
        await ann.leave()
        cy = await Worker(broker, "cy").join()
        assert await cy.take(1) == [0]
        bob = await Worker(broker, "bob").join(session_ms=3000)
        await bob.take(1)
        taken = await cy.take(1, wait_ms=60_000)
        assert taken == [2]
        assert await cy.take(7) == [3, 4, 5, 6, 7, 8, 9]
        assert await cy.take(wait_ms=60_000) == [1]  # bob was silent for longer than its session lasts

    tell(tmp_path, story)


def test_a_record_that_rests_is_given_to_nobody_meanwhile_and_comes_before_new_ones_then(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann = await Worker(broker, "ann", retry_delay_ms=400).join()
        await ann.take(2)
        assert await ann.settle(0, 1, "release") == []
        assert await ann.settle(1, 2, "release", delay_ms=0) == []
        assert await ann.take(1) == [1]
        (log,) = (await broker.describe_group("w")).logs
        assert (log.in_flight, log.delayed, log.seqno, log.lag) == (1, 1, 0, 10)
        await asyncio.sleep(0.5)
        assert await ann.take(2) == [0, 2]

    tell(tmp_path, story)


def test_what_was_tried_in_vain_or_rejected_becomes_a_dead_letter_that_says_where_it_is_from(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("dead", 1)
        await broker.create_topic("jobs", 1)
        record = build([b"boom"], keys=[b"k"], channels=["a/b"], tags=[["x"]], headers=[[("own", b"1")]])
        await broker.append([Part("jobs", [record, build([b"fine"])])])
        ann = await Worker(broker, "ann", tries=2, dead_letter="dead").join()
        for tries in (1, 2):
            assert await ann.take(1) == [0]
            assert ann.tries == [tries]
            await ann.settle(0, 1, "release")
        assert await ann.take() == [1]
        await ann.settle(1, 2, "reject")

        async def is_buried() -> bool:
            return (await broker.describe_group("w")).logs[0].lag == 0

        await until(is_buried)
        first, second = await letters(broker)
        assert (first.value, first.key, first.channel, first.tags) == (b"boom", b"k", "a/b", ("x",))
        about = {name.removeprefix("logboom-dead-letter-"): value for name, value in first.headers}
        assert about == {
            "own": b"1",
            "topic": b"jobs",
            "partition": b"0",
            "seqno": b"0",
            "tries": b"2",
            "group": b"w",
            "reason": b"tries",
        }
        assert dict(second.headers)["logboom-dead-letter-reason"] == b"rejected"
        assert await ann.take() == []

    tell(tmp_path, story)


def test_dead_letters_go_neither_where_the_group_reads_nor_among_the_nodes_own(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for topic in ("jobs", "dead"):
            await broker.create_topic(topic, 1)
        for topics, dead in (("jobs", "jobs"), ("j*", "jobs.dead"), ("jobs,dead/0", "dead"), ("jobs", "_cursors")):
            with pytest.raises(InvalidGroup, match="dead_letter"):
                await Worker(broker, "ann", topics, dead_letter=dead).join()
        assert await broker.list_groups() == []
        await Worker(broker, "ann", dead_letter="dead").join()
        join = GroupJoin("w", "bob".ljust(16, "-"), "dead", mode="queue")
        with pytest.raises(InvalidGroup, match="which the group reads itself"):
            await broker.join_group(join)
        assert [len(info.members) for info in [await broker.describe_group("w")]] == [1]

    tell(tmp_path, story)


def test_a_record_too_large_to_be_a_dead_letter_leaves_its_value_behind(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("jobs", 1)
        await broker.append([Part("jobs", [build([b"x" * (4096 - 180)])])])
        ann = await Worker(broker, "ann", dead_letter="dead").join()
        assert await ann.take() == [0]
        await ann.settle(0, 1, "reject")

        async def is_buried() -> bool:
            return (await broker.describe_group("w")).logs[0].lag == 0

        await until(is_buried)
        (letter,) = await letters(broker)
        assert letter.value == b""
        assert dict(letter.headers)["logboom-dead-letter-left-out"] == b"value"

    tell(tmp_path, story, config=BrokerConfig(limits=Limits(batch_bytes=4096)))


def test_dead_letters_wait_for_a_topic_that_takes_no_writes(tmp_path: Path) -> None:
    async def before(broker: LocalBroker) -> None:
        await jobs(broker, 2)
        await broker.create_topic("dead", 1)
        await broker.refuse("dead", "full")
        ann = await Worker(broker, "ann", dead_letter="dead").join()
        await ann.take()
        assert await ann.settle(0, 2, "reject") == []
        assert await ann.take(wait_ms=200) == []
        assert (await broker.describe_group("w")).logs[0].lag == 2

    async def after(broker: LocalBroker) -> None:
        bob = await Worker(broker, "bob", dead_letter="dead").join()
        assert await bob.take() == []

        async def is_buried() -> bool:
            return (await broker.describe_group("w")).logs[0].lag == 0

        await until(is_buried)
        assert [letter.value for letter in await letters(broker)] == [b"0", b"1"]

    tell(tmp_path, before, after)


def test_a_member_that_comes_again_is_given_what_it_never_heard_of(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann = await Worker(broker, "ann").join()
        await ann.take(2)
        topic_id = ann.topic_id
        await ann.take(2)  # of which the answer is lost
        assert await ann.take(3, known=[JobRange(topic_id, 0, 0, 2)]) == [2, 3, 4]
        assert ann.tries == [1, 1, 1]

    tell(tmp_path, story)


def test_records_that_retention_or_a_trim_has_dropped_are_skipped_and_counted(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann = await Worker(broker, "ann").join()
        await ann.take(2)
        await broker.trim("jobs", 0, 6)
        assert await ann.take() == [6, 7, 8, 9]
        assert await ann.settle(0, 2) == []
        assert await ann.settle(6, 10) == []
        (log,) = (await broker.describe_group("w")).logs
        assert (log.seqno, log.lag, log.in_flight) == (10, 0, 0)
        assert (await broker.stats()).queues["skipped"] == 4

    tell(tmp_path, story)


def test_a_queue_has_limits_for_a_member_for_all_and_for_its_window(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker, 40)
        ann, bob = await Worker(broker, "ann").join(), await Worker(broker, "bob").join()
        assert len(await ann.take()) == 5
        assert await ann.take() == []
        assert len(await bob.take()) == 3
        waits = asyncio.create_task(bob.take(wait_ms=60_000))
        await asyncio.sleep(0.05)
        assert await ann.settle(1, 5) == []
        assert await waits == [8, 9]
        assert await bob.settle(5, 10) == []
        assert await bob.take() == []  # the first record is not done, and the window is ten
        assert await ann.settle(0, 1) == []
        assert await bob.take() == [10, 11, 12, 13, 14]

    limits = Limits(queue_member_in_flight=5, queue_in_flight=8, queue_window=10)
    tell(tmp_path, story, config=BrokerConfig(limits=limits))


def test_who_is_no_member_or_in_a_group_of_the_other_mode_is_told(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        ann = await Worker(broker, "ann").join()
        for member in ("nobody----------", ann.member):
            caller = Caller("mallory") if member == ann.member else EVERYBODY
            with pytest.raises(MemberUnknown):
                await broker.take_jobs(TakeJobs("w", member), caller=caller)
            with pytest.raises(MemberUnknown):
                await broker.settle_jobs("w", member, [], caller=caller)
        await broker.join_group(GroupJoin("logs", ann.member, "jobs"))
        with pytest.raises(GroupMismatch):
            await broker.take_jobs(TakeJobs("logs", ann.member))
        with pytest.raises(LimitExceeded):
            await broker.settle_jobs("w", ann.member, [Settlement("00" * 16, 0, 0, 1)] * 10_001)
        with pytest.raises(InvalidGroup):
            await broker.settle_jobs("w", ann.member, [Settlement("00" * 16, 0, 0, 2**60)])

    tell(tmp_path, story)


def test_a_group_that_is_reset_or_deleted_and_a_topic_that_is_deleted_leave_nothing_behind(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await jobs(broker)
        await jobs(broker, topic="other")
        ann = await Worker(broker, "ann", "jobs,other").join()
        while await ann.take(3):
            await ann.settle(ann.held[0][0].seqno or 0, (ann.held[0][0].seqno or 0) + 1)
        assert len(kept(broker)) == 2
        await broker.delete_topic("other")
        assert {topic for _, topic in kept(broker)} == {(await broker.describe_topic("jobs")).id}
        await ann.leave()
        await broker.reset_group("w", "jobs", Start(seqno=4))
        assert not kept(broker)
        ann.topics = "jobs"
        await ann.join()
        assert await ann.take(1) == [4]
        await ann.leave()
        await broker.delete_group("w")
        assert not kept(broker)

    tell(tmp_path, story)


def kept(broker: LocalBroker) -> list[tuple[str, str]]:
    """Of which logs something is kept, by group and topic id."""
    return [(log.group, log.topic_id) for log in broker._its_queues()._state.logs]


def test_records_that_a_member_may_not_read_are_never_given_to_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("jobs", 1)
        channels = ["open" if number % 3 else "secret" for number in range(12)]
        await broker.append([Part("jobs", [build([b"%d" % number for number in range(12)], channels=channels)])])
        rules = RulesOfOne("ann", Restriction(channels=("open",)))
        broker._its_queues()._rules = rules
        ann, bob = await Worker(broker, "ann", caller=Caller("ann")).join(), await Worker(broker, "bob").join()
        assert await ann.take(5) == [1, 2, 4]  # of the five that are free first
        assert {record.channel for record, _ in ann.held} == {"open"}
        assert await ann.take() == [5, 7, 8, 10, 11]
        assert await ann.take(wait_ms=100) == []
        assert await bob.take() == [0, 3, 6, 9]
        assert bob.tries == [1] * 4

    tell(tmp_path, story)


def test_a_token_that_reaches_less_far_is_given_no_more_than_it_may_read(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        for topic in ("jobs.a", "jobs.b"):
            await broker.create_topic(topic, 1)
            await broker.append([Part(topic, [build([topic.encode()])])])
        broker._topic_reads.rules = TokenRules()
        wide = await Worker(broker, "wide", "jobs.*", Caller("ann", by="password")).join()
        assert len(await wide.take(1)) == 1
        assert [record.value for record, _ in wide.held] == [b"jobs.b"]
        await wide.settle(0, 1, "release")
        narrow = await Worker(broker, "narrow", "jobs.*", Caller("ann", by="token:1")).join()
        wide.caller = narrow.caller  # the same member, by another way
        for worker in (narrow, wide, narrow, wide):
            await worker.take()
            assert all(record.value == b"jobs.a" for record, _ in worker.held)

    tell(tmp_path, story)


class TokenRules(OpenRules):
    """Whoever has a token may read one topic."""

    def allows(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> bool:
        return not caller.by.startswith("token:") or name == "jobs.a"


class RulesOfOne(OpenRules):
    """One user is restricted."""

    def __init__(self, principal: str, restriction: Restriction) -> None:
        self._principal, self._restriction = principal, restriction

    def restriction(self, caller: Caller, right: Right) -> Restriction | None:
        return self._restriction if caller.principal == self._principal else None


def test_many_take_and_acknowledge_one_by_one_at_once_and_each_record_is_done_once(tmp_path: Path) -> None:
    done: list[int] = []

    async def work(broker: LocalBroker, name: str, count: int) -> None:
        worker = await Worker(broker, name).join()
        while len(done) < count:
            for seqno in await worker.take(7, wait_ms=50):
                assert await worker.settle(seqno, seqno + 1) == []
                done.append(seqno)

    async def story(broker: LocalBroker) -> None:
        await jobs(broker, 500, batch=37)
        await asyncio.gather(*(work(broker, f"worker{number}", 500) for number in range(5)))
        assert sorted(done) == list(range(500))

    tell(tmp_path, story)
