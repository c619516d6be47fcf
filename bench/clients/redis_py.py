"""Redis Streams with redis-py, whose parser is hiredis: XADD in pipelines, XRANGE in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hiredis
from redis import Redis

PIPELINED = 1000
PAGE = 10_000
PAGE_BYTES = 2 * 1024 * 1024
STREAM = "redis-py"

assert hiredis, "redis-py takes it where it is installed"


class RedisPy:
    name = "Redis Streams, redis-py"
    package = "redis"
    durability = "append-only file, appendfsync no"

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._value_bytes = 0
        self.calls = {"pipelined": self._produce}

    def reset(self) -> None:
        self._redis.delete(STREAM)

    def consume(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        start = "-"
        page = max(1, min(PAGE, PAGE_BYTES // max(1, self._value_bytes)))
        while len(values) < count:
            entries = self._redis.xrange(STREAM, start, count=page)
            values += [fields[b"v"] for _, fields in entries]
            start = f"({entries[-1][0].decode()}"
        return values

    def send(self, value: bytes) -> None:
        self._redis.xadd(STREAM, {"v": value})

    def _produce(self, values: Sequence[bytes]) -> None:
        self._value_bytes = len(values[0])
        pipeline = self._redis.pipeline(transaction=False)
        for start in range(0, len(values), PIPELINED):
            for value in values[start : start + PIPELINED]:
                pipeline.xadd(STREAM, {"v": value})
            pipeline.execute()


@contextmanager
def open_client(port: int) -> Iterator[RedisPy]:
    with Redis(host="127.0.0.1", port=port) as redis:
        yield RedisPy(redis)
