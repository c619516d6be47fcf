"""A process that follows logs of a node, and notes down everything it was given.

    node_reader.py ADDRESS HISTORY NAME LOGS blocking|async

A line of JSON on its standard input says how far, as in `{"events/0": 120}`: it ends when it has come so far. The
blocking one has a cursor: the next process of its name begins there.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
import traceback
from contextlib import suppress

from checker import Recorder
from checker.history import Begin
from logboom import AsyncReader, Reader
from logboom.errors import AppendRefused, SyncFailed, Unavailable

COLUMNS = ("seqno", "value")
COMMITS = 0.2
"""How often the cursor is committed after a poll."""


class Reading:
    def __init__(self, address: str, recorder: Recorder, name: str) -> None:
        self._address = address
        self._recorder = recorder
        self._name = name
        self._reached: dict[str, int] = {}

    def is_done(self, ends: dict[str, int]) -> bool:
        return all(self._reached.get(log, 0) >= end for log, end in ends.items())

    def follow(self, log: str) -> None:
        topic, _, partition = log.rpartition("/")
        with Reader(topic, self._address, partition=int(partition), cursor=self._name) as reader:
            self._recorder.note(Begin(self._name, log, reader.seqno))
            self._reached[log] = reader.seqno or 0
            for seqnos, values in reader.lists(COLUMNS, follow=True):
                self._recorder.poll(self._name, log, list(zip(seqnos, values, strict=True)))
                if random.random() < COMMITS:
                    with suppress(AppendRefused, SyncFailed, Unavailable):  # then the cursor stays where it is
                        reader.commit()
                self._reached[log] = reader.seqno or 0

    async def follow_async(self, log: str) -> None:
        topic, _, partition = log.rpartition("/")
        async with AsyncReader(topic, self._address, partition=int(partition)) as reader:
            self._recorder.note(Begin(self._name, log, reader.seqno))
            async for record in reader.records(follow=True):
                assert record.seqno is not None
                self._recorder.poll(self._name, log, [(record.seqno, record.value)])
                self._reached[log] = record.seqno + 1


def follow_in_threads(reading: Reading, logs: list[str]) -> None:
    def run(log: str) -> None:
        try:
            reading.follow(log)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    for log in logs:
        threading.Thread(target=run, args=(log,), daemon=True).start()
    ends = json.loads(sys.stdin.readline())
    while not reading.is_done(ends):
        time.sleep(0.02)


async def follow_in_tasks(reading: Reading, logs: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reading.follow_async(log)) for log in logs]
        ends = json.loads(await asyncio.to_thread(sys.stdin.readline))
        while not reading.is_done(ends):
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()


def main(address: str, history: str, name: str, logs: str, way: str) -> None:
    reading = Reading(address, Recorder(history), name)
    if way == "async":
        asyncio.run(follow_in_tasks(reading, logs.split(",")))
    else:
        follow_in_threads(reading, logs.split(","))


if __name__ == "__main__":
    main(*sys.argv[1:])
