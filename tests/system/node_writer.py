"""A process that writes to topics of a node, and notes down every record and what became of it.

    node_writer.py ADDRESS HISTORY NAME TOPICS [SPILL]

Writes until its standard input ends; then it waits for all answers, and ends. With SPILL, a directory, each topic has a
spill file there, and a buffer so small that it is soon needed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

from checker import Recorder, make_value
from checker.history import AnyEvent, Fail, Invoke, Ok, Unknown
from logboom import Writer
from logboom.errors import AppendRefused, ConnectionLost

TIMEOUT_S = float(os.environ.get("NODE_WRITER_TIMEOUT_S", "120"))
OUTSTANDING_MAX = 300
BUFFER_BYTES, SPILLING_BYTES = 32 * 1024 * 1024, 32 * 1024
KEYS = [b"key-%d" % n for n in range(20)]


class Load:
    """One writer of one topic."""

    def __init__(self, address: str, recorder: Recorder, name: str, topic: str, spill: str | None) -> None:
        self.name = name
        self._recorder = recorder
        self._room = threading.Semaphore(OUTSTANDING_MAX if spill is None else 10**9)
        self._sequence = 0
        self._writer = Writer(
            topic,
            address,
            acks="durable",
            linger_ms=2,
            batch_bytes=4096,
            codec=random.choice(("none", "lz4")),
            delivery_timeout_s=TIMEOUT_S,
            connect_timeout_s=TIMEOUT_S,  # the node may just be being killed
            spill=spill,
            buffer_bytes=BUFFER_BYTES if spill is None else SPILLING_BYTES,
        )

    def burst(self) -> None:
        for _ in range(random.randint(1, 20)):
            self._room.acquire()
            sequence, self._sequence = self._sequence, self._sequence + 1
            self._recorder.note(Invoke(self.name, sequence))
            value, key = make_value(self.name, sequence, random.randint(0, 300)), random.choice(KEYS)
            if random.random() < 0.5:
                self._writer.write(value, key=key, callback=partial(self._settle, sequence))
            else:
                self._writer.send(value, key=key).add_done_callback(partial(self._settle_future, sequence))

    def _settle_future(self, sequence: int, future: Future[Any]) -> None:
        self._settle(sequence, future.exception() or future.result())

    def _settle(self, sequence: int, result: Any) -> None:
        self._recorder.note(self._outcome(sequence, result))
        self._room.release()

    def _outcome(self, sequence: int, result: Any) -> AnyEvent:
        if isinstance(result, AppendRefused | ConnectionLost):  # what may have been appended is an OutcomeUnknown
            return Fail(self.name, sequence, type(result).__name__)
        if isinstance(result, BaseException):
            return Unknown(self.name, sequence, repr(result))
        return Ok(self.name, sequence, f"{result.topic}/{result.partition}", result.seqno)

    def close(self) -> None:
        self._writer.close()


def main(address: str, history: str, name: str, topics: str, spill: str | None = None) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with Recorder(history) as recorder:
        loads = [
            Load(address, recorder, f"{name}.{topic}", topic, spill and f"{spill}/{topic}")
            for topic in topics.split(",")
        ]
        while not ended.wait(random.random() * 0.02):
            random.choice(loads).burst()
        for load in loads:
            load.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
