"""Consumers of a queue, on a node of their own: what a job is, what becomes of it, what is held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logboom import AsyncConsumer, AsyncQueueConsumer, Consumer, QueueConsumer, Writer
from logboom.errors import JobNotHeld, LocalProtocolError, TopicNotFound, ValueUnreadable
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
    with QueueConsumer(topic, address, group="once", prefetch=100) as consumer:
        seen = []
        for job in consumer.jobs(timeout_s=5):
            assert (job.topic, job.partition, job.tries) == (topic, 0, 1)
            seen.append(int(job.value))
            job.ack()
            if len(seen) == 1000:
                break
        assert seen == list(range(1000))
        assert consumer.flush() == []
    with QueueConsumer(topic, address, group="once") as consumer:
        assert consumer.poll(timeout_s=0.3) is None


def test_what_was_not_settled_is_free_when_its_member_leaves(address: str) -> None:
    topic = jobs(address, "left")
    with QueueConsumer(topic, address, group="left") as consumer:
        first = consumer.poll(10)
        assert first is not None
        first.ack()
        assert consumer.poll(10) is not None
    with QueueConsumer(topic, address, group="left") as consumer:
        again = [consumer.poll(10) for _ in range(9)]
        assert [job.seqno for job in again if job is not None] == list(range(1, 10))


def test_released_jobs_come_again_and_rejected_ones_become_dead_letters(address: str) -> None:
    topic = jobs(address, "tried", 2)
    about: Any = {"group": "tried", "tries": 2, "dead_letter": "tried-dead"}
    with QueueConsumer(topic, address, **about) as consumer:
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
    with QueueConsumer("tried-d*", address, group="undertakers") as consumer:  # it may not be there yet
        for job in consumer.jobs(timeout_s=60):
            letters.append(int(job.value))
            job.ack()
            if len(letters) == 2:
                break
    assert sorted(letters) == [0, 1]


def test_no_more_is_held_than_prefetch_says(address: str) -> None:
    topic = jobs(address, "held", 20)
    with QueueConsumer(topic, address, group="held", prefetch=4) as one:
        mine = [one.poll(10) for _ in range(4)]
        assert one.poll(0.3) is None
        with QueueConsumer(topic, address, group="held", prefetch=4) as other:
            theirs = other.poll(10)
            assert theirs is not None
            assert theirs.seqno == 4
        for job in mine:
            assert job is not None
            job.ack()
        rest = one.poll(10)
        assert rest is not None
        assert rest.seqno >= 4


def leased_to(other: QueueConsumer, one: QueueConsumer) -> object:
    """Where it comes to the one again, that one gives it back."""
    job = other.poll(0.2)
    again = one.poll(0.1) if job is None else None
    if again is not None:
        again.release()
    return job


def test_a_late_acknowledgement_that_is_waited_for_says_so(address: str) -> None:
    topic = jobs(address, "late", 1)
    about: Any = {"group": "late", "lease_s": 2.0, "tries": 100}
    with QueueConsumer(topic, address, **about) as one, QueueConsumer(topic, address, **about) as other:
        mine = one.poll(10)
        if mine is None:
            one, other = other, one
            mine = one.poll(10)
        assert mine is not None
        theirs: Any = wait_until(lambda: leased_to(other, one))
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
    with QueueConsumer(topic, address, group="waits", lease_s=0.5) as consumer:
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
    consumer = QueueConsumer(topic, address, group="stopped")
    for job in consumer:
        job.ack()
        threading.Timer(0.1, consumer.stop).start()
    consumer.close()
    consumer.close()
    with pytest.raises(LocalProtocolError):
        next(consumer_anew(consumer))


def consumer_anew(consumer: QueueConsumer) -> Iterator[object]:
    consumer._is_stopped = False
    return iter(consumer)


def test_an_async_consumer_does_the_same(address: str) -> None:
    topic = jobs(address, "async", 300)

    async def story() -> None:
        seen = []
        async with AsyncQueueConsumer(topic, address, group="async", prefetch=50) as consumer:
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
        QueueConsumer("nowhere", address, group="x")
    with pytest.raises(ValueError, match="prefetch"):
        QueueConsumer("once", address, group="x", prefetch=0)
    with pytest.raises(TypeError, match="no option 'prefetches'"):
        QueueConsumer("once", address, group="x", prefetches=1)  # type: ignore[call-arg]


def test_a_consumer_survives_a_restart_of_the_node_and_gives_nothing_twice_that_it_knows_of(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        topic = jobs(node.address, "restarted", 100)
        with QueueConsumer(topic, node.address, group="g", prefetch=30) as consumer:
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


def test_a_consumer_says_by_its_mode_which_it_is(address: str) -> None:
    topic, about = jobs(address, "modes"), {"group": "modes", "mode": "queue"}
    options: Any = about
    found: Any = Consumer(topic, address, **options)
    assert isinstance(found, QueueConsumer)
    found.close()
    assert isinstance(AsyncConsumer(topic, address, **options), AsyncQueueConsumer)
    with pytest.raises(ValueError, match="allowed are 'logs' and 'queue'"):
        Consumer(topic, address, group="x", mode="other")  # type: ignore[arg-type]


def test_the_value_of_a_job_is_decoded_when_it_is_asked_for(address: str) -> None:
    topic = "decoded"
    with Writer(topic, address) as writer:
        for value in (b'{"n": 1}', b"no json"):
            writer.write(value)
    with QueueConsumer(topic, address, group="decoders", value="json") as consumer:
        first, second = consumer.poll(60), consumer.poll(60)
        assert first is not None
        assert second is not None
        assert first.value == first.value == {"n": 1}
        first.ack(wait=True)
        for _ in range(2):
            with pytest.raises(ValueUnreadable, match=r"decoded/0: the value of seqno 1"):
                _ = second.value
        assert second.record.value == b"no json"
        second.reject(wait=True)
