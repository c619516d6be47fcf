"""A process that follows logs of a node, and notes down everything it was given.

    node_reader.py ADDRESS HISTORY NAME LOGS blocking|async

The blocking one begins at its cursor. It reads until a line of JSON on its standard input says how far, as in
`{"events/0": 120}`, and ends when it has come so far.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading

from checker import Recorder
from checker.history import Begin
from logboom import AsyncReader, Reader

COLUMNS = ("seqno", "value")
NEWS_S = 0.2
COMMITS = 0.2
"""How often a reader commits its cursor: the next process of its name begins there."""


class Reading:
    def __init__(self, address: str, recorder: Recorder, name: str) -> None:
        self._address = address
        self._recorder = recorder
        self._name = name
        self._ends: dict[str, int] | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        self._ends = json.loads(sys.stdin.readline() or "{}")

    def _is_done(self, log: str, seqno: int | None) -> bool:
        return self._ends is not None and (seqno or 0) >= self._ends.get(log, 0)

    def follow(self, log: str) -> None:
        topic, _, partition = log.rpartition("/")
        with Reader(topic, self._address, partition=int(partition), cursor=self._name) as reader:
            self._recorder.note(Begin(self._name, log, reader.position))
            while not self._is_done(log, reader.position):
                for seqnos, values in reader.lists(COLUMNS, follow=True, timeout_s=NEWS_S):
                    self._recorder.poll(self._name, log, list(zip(seqnos, values, strict=True)))
                    if random.random() < COMMITS:
                        reader.commit()

    async def follow_async(self, log: str) -> None:
        topic, _, partition = log.rpartition("/")
        async with AsyncReader(topic, self._address, partition=int(partition)) as reader:
            self._recorder.note(Begin(self._name, log, reader.position))
            while not self._is_done(log, reader.position):
                async for record in reader.records(follow=True, timeout_s=NEWS_S):
                    assert record.seqno is not None
                    self._recorder.poll(self._name, log, [(record.seqno, record.value)])


def main(address: str, history: str, name: str, logs: str, way: str) -> None:
    with Recorder(history) as recorder:
        reading = Reading(address, recorder, name)
        if way == "async":
            asyncio.run(_gather(reading, logs.split(",")))
            return
        failures: list[BaseException] = []
        threading.excepthook = lambda failed: failures.append(failed.exc_value or Exception())
        threads = [threading.Thread(target=reading.follow, args=(log,)) for log in logs.split(",")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


async def _gather(reading: Reading, logs: list[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for log in logs:
            tasks.create_task(reading.follow_async(log))


if __name__ == "__main__":
    main(*sys.argv[1:])
