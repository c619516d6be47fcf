"""Apache Kafka with confluent-kafka: librdkafka, which is C, under Python.

Two ways to write: `produce`, called for each record, and `produce_batch`, which gets lists of dictionaries. Both gather
as much as the broker takes in one request. The consumer takes ten thousand messages in a call. A topic has one
partition. The broker has one node, so acks=all waits for no other; it never syncs, whatever acks says.

kafka-python is not here: it can be had, and 3.0 speaks to Kafka 4, but it is Python throughout, and far slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ANSWER_S = 60.0
PAGE = 10_000
GATHERED = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
FETCHED = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 5,
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 1,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
}

"""Else it stops fetching for a second whenever a hundred thousand messages wait for the program."""


class ConfluentKafka:
    name = "Kafka, confluent-kafka"
    package = "confluent-kafka"
    durability = "page cache"

    def __init__(self, port: int) -> None:
        where = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 2}
        self._admin = AdminClient(where)
        one = Producer({**where, **GATHERED, "acks": 1})
        every = Producer({**where, **GATHERED, "acks": "all"})
        self._alone = Producer({**where, "acks": 1, "linger.ms": 0})
        self._consumer = Consumer({**where, **FETCHED})
        self._names = (f"bench-{number}" for number in count())
        self._topic = self._create()
        self.calls = {
            "acks=1": partial(self._produce, one),
            "acks=1, produce_batch": partial(self._produce_batch, one),
            "acks=all": partial(self._produce, every),
        }

    def reset(self) -> None:
        """Kafka deletes when it comes to it, so each topic is another one."""
        before, self._topic = self._topic, self._create()
        self._admin.delete_topics([before])[before].result()

    def consume(self, count: int) -> list[bytes]:
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < count:
            messages = self._consumer.consume(min(PAGE, count - len(values)), ANSWER_S)
            values += [message.value() for message in messages]
        self._consumer.unassign()
        return values

    def send(self, value: bytes) -> None:
        self._alone.produce(self._topic, value)
        assert not self._alone.flush(ANSWER_S)

    def close(self) -> None:
        self._consumer.close()

    def _create(self) -> str:
        topic = next(self._names)
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        return topic

    def _produce(self, producer: Any, values: Sequence[bytes]) -> None:
        produce, topic = producer.produce, self._topic
        for value in values:
            produce(topic, value)
        assert not producer.flush(ANSWER_S)

    def _produce_batch(self, producer: Any, values: Sequence[bytes]) -> None:
        for start in range(0, len(values), PAGE):
            messages = [{"value": value} for value in values[start : start + PAGE]]
            assert producer.produce_batch(self._topic, messages, partition=0) == len(messages)
        assert not producer.flush(ANSWER_S)


@contextmanager
def open_client(port: int) -> Iterator[ConfluentKafka]:
    client = ConfluentKafka(port)
    try:
        yield client
    finally:
        client.close()
