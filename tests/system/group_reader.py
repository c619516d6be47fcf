"""A process that is a member of a group, and notes down everything it is told and given.

    group_reader.py ADDRESS NOTES blocking|async OPTIONS

OPTIONS are JSON: what a Consumer takes. A note is a line of JSON: what happened, partition, generation, and for a
record its seqno. It ends when it is told to on its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

from logboom import AsyncConsumer, Consumer, Record


class Notes:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._generations: dict[int, int] = {}
        self.listeners: dict[str, Any] = {
            "on_assigned": self._assigned,
            "on_revoked": lambda logs: self._gone("revoked", logs),
            "on_lost": lambda logs: self._gone("lost", logs),
        }

    def _assigned(self, logs: list[Any]) -> None:
        for log in logs:
            self._generations[log.partition] = log.generation
            self._write("assigned", log.partition, log.generation)

    def _gone(self, what: str, logs: list[Any]) -> None:
        for log in logs:
            self._write(what, log.partition, self._generations.pop(log.partition))

    def record(self, record: Record) -> None:
        partition = record.partition or 0
        self._write("record", partition, self._generations[partition], record.seqno)

    def _write(self, *note: object) -> None:
        os.write(self._file, json.dumps(note).encode() + b"\n")


def stop_when_told(consumer: Consumer | AsyncConsumer) -> None:
    sys.stdin.readline()
    consumer.stop()


def read(address: str, notes: Notes, options: dict[str, Any]) -> None:
    with Consumer(servers=address, **notes.listeners, **options) as consumer:
        threading.Thread(target=stop_when_told, args=(consumer,), daemon=True).start()
        for record in consumer:
            notes.record(record)


async def read_async(address: str, notes: Notes, options: dict[str, Any]) -> None:
    async with AsyncConsumer(servers=address, **notes.listeners, **options) as consumer:
        threading.Thread(target=stop_when_told, args=(consumer,), daemon=True).start()
        async for record in consumer:
            notes.record(record)


def main(address: str, notes: str, way: str, options: str) -> None:
    if way == "async":
        asyncio.run(read_async(address, Notes(notes), json.loads(options)))
    else:
        read(address, Notes(notes), json.loads(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
