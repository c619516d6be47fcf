"""Consumers of a queue, on a node of their own: what a job is, what becomes of it, what is held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom import AsyncConsumer, Consumer, Writer
from logboom.client.consume.async_queue_consumer import AsyncQueueConsumer
from logboom.client.consume.queue_consumer import QueueConsumer
from logboom.errors import JobNotHeld, LocalProtocolError, TopicNotFound
from support.nodes.process import NodeProcess
from support.waiting import wait_until


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("queues")) as node:
        yield node.address


def jobs(address: str, topic: str, count: int = 10) -> str:
    with Writer(topic, address) as writer:
        writer.write_many([b"%d" % number for number in range(count)])
    return topic


def test_jobs_come_once_and_what_is_acknowledged_never_again(address: str) -> None:
    topic = jobs(address, "once", 1000)
    with Consumer(topic, address, group="once", mode="queue", prefetch=100) as consumer:
        assert isinstance(consumer, QueueConsumer)
        seen = []
        for job in consumer.jobs(timeout_s=5):
            assert (job.topic, job.partition, job.tries) == (topic, 0, 1)
            seen.append(int(job.value))
            job.ack()
            if len(seen) == 1000:
                break
        assert seen == list(range(1000))
        assert consumer.flush() == []
    with Consumer(topic, address, group="once", mode="queue") as consumer:
        assert consumer.poll(timeout_s=0.3) is None


def test_what_was_not_settled_is_free_when_its_member_leaves(address: str) -> None:
    topic = jobs(address, "left")
    with Consumer(topic, address, group="left", mode="queue") as consumer:
        first = consumer.poll(10)
        assert first is not None
        first.ack()
        assert consumer.poll(10) is not None
    with Consumer(topic, address, group="left", mode="queue") as consumer:
        again = [consumer.poll(10) for _ in range(9)]
        assert [job.seqno for job in again if job is not None] == list(range(1, 10))


def test_released_jobs_come_again_and_rejected_ones_become_dead_letters(address: str) -> None:
    topic = jobs(address, "tried", 2)
    about = {"group": "tried", "mode": "queue", "tries": 2, "dead_letter": "tried-dead"}
    with Consumer(topic, address, **about) as consumer:
        seen = []
        for job in consumer.jobs(timeout_s=20):
            seen.append((job.seqno, job.tries))
            if job.seqno == 0:
                job.release()
            else:
                job.reject(wait=True)
            if len(seen) == 3:
                break
        assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]
        assert consumer.flush() == []
    letters = []
    with Consumer("tried-dead", address, group="undertakers", mode="queue") as consumer:
        for job in consumer.jobs(timeout_s=60):
            letters.append(int(job.value))
            job.ack()
            if len(letters) == 2:
                break
    assert sorted(letters) == [0, 1]


def test_no_more_is_held_than_prefetch_says(address: str) -> None:
    topic = jobs(address, "held", 20)
    with Consumer(topic, address, group="held", mode="queue", prefetch=4) as one:
        mine = [one.poll(10) for _ in range(4)]
        assert one.poll(0.3) is None
        with Consumer(topic, address, group="held", mode="queue", prefetch=4) as other:
            theirs = other.poll(10)
            assert theirs is not None
            assert theirs.seqno == 4
        for job in mine:
            assert job is not None
            job.ack()
        rest = one.poll(10)
        assert rest is not None
        assert rest.seqno >= 4


def test_a_late_acknowledgement_that_is_waited_for_says_so(address: str) -> None:
    topic = jobs(address, "late", 1)
    about = {"group": "late", "mode": "queue", "lease_s": 0.3}
    with Consumer(topic, address, **about) as one, Consumer(topic, address, **about) as other:
        mine = one.poll(10)
        if mine is None:
            one, other = other, one
            mine = one.poll(10)
        assert mine is not None
        theirs = wait_until(lambda: other.poll(0.2))
        assert theirs.tries > mine.tries
        theirs.extend(wait=True)
        with pytest.raises(JobNotHeld):
            mine.ack(wait=True)
        mine.ack()
        (refused,) = one.flush()
        assert (refused.seqno, refused.code, one.refused) == (0, "job-not-held", 2)
        theirs.ack(wait=True)


def test_what_waits_to_be_given_keeps_its_lease(address: str) -> None:
    topic = jobs(address, "waits", 3)
    with Consumer(topic, address, group="waits", mode="queue", lease_s=0.5) as consumer:
        seen = []
        for job in consumer.jobs(timeout_s=5):
            threading.Event().wait(0.8)
            seen.append((job.seqno, job.tries))
            if len(seen) == 3:
                break
    assert seen[0] == (0, 1)
    assert (1, 1) in seen


def test_a_loop_can_be_stopped_from_elsewhere_and_a_closed_consumer_says_so(address: str) -> None:
    topic = jobs(address, "stopped", 1)
    consumer = Consumer(topic, address, group="stopped", mode="queue")
    for job in consumer:
        job.ack()
        threading.Timer(0.1, consumer.stop).start()
    consumer.close()
    consumer.close()
    with pytest.raises(LocalProtocolError):
        next(consumer_anew(consumer))


def consumer_anew(consumer: Consumer) -> Iterator[object]:
    consumer._is_stopped = False
    return iter(consumer)


def test_an_async_consumer_does_the_same(address: str) -> None:
    topic = jobs(address, "async", 300)

    async def story() -> None:
        seen = []
        async with AsyncConsumer(topic, address, group="async", mode="queue", prefetch=50) as consumer:
            assert isinstance(consumer, AsyncQueueConsumer)
            async for job in consumer:
                seen.append(job.seqno)
                job.ack()
                if len(seen) == 300:
                    break
            assert await consumer.flush() == []
        assert seen == list(range(300))

    asyncio.run(story())


def test_what_cannot_be_is_said_at_once(address: str) -> None:
    with pytest.raises(TopicNotFound):
        Consumer("nowhere", address, group="x", mode="queue")
    with pytest.raises(ValueError, match="allowed are 'logs' and 'queue'"):
        Consumer("once", address, group="x", mode="other")
    with pytest.raises(ValueError, match="prefetch"):
        Consumer("once", address, group="x", mode="queue", prefetch=0)
    with pytest.raises(TypeError, match="no option 'prefetches'"):
        Consumer("once", address, group="x", mode="queue", prefetches=1)


def test_a_consumer_survives_a_restart_of_the_node_and_gives_nothing_twice_that_it_knows_of(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        topic = jobs(node.address, "restarted", 100)
        with Consumer(topic, node.address, group="g", mode="queue", prefetch=30) as consumer:
            seen = []
            for job in consumer.jobs(timeout_s=60):
                seen.append((job.seqno, job.tries))
                job.ack()
                if len(seen) == 20:
                    node.kill()
                    node.start()
                if len(seen) == 100:
                    break
            assert consumer.flush() == []
        assert seen == [(number, 1) for number in range(100)]
