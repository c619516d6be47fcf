"""A process that publishes records to logs of a node, again and again, and notes down what it was told.

    publish_load.py ADDRESS HISTORY NAME KEY LOGS

Publishes under rising numbers of the name KEY until its standard input ends. It begins behind the highest number that
the node knows, so the next process with the same key goes on where one was killed; two with the same key race. NAME is
its own: its records say so. Beside what it publishes it stages what nobody must ever see: attempts that it discards, or
leaves to the node, or publishes under a number that is taken.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Sequence

from checker import Recorder, make_value
from checker.history import Publish, Published, Refused, Stage
from logboom import Client
from logboom.broker.publish.publication import Publication, PublishKey, Receipt
from logboom.client.publish.publish_calls import publish
from logboom.client.publish.stage_writer import StageWriter
from logboom.errors import LogboomError, OutcomeUnknown

TIMEOUT_S = float(os.environ.get("NODE_WRITER_TIMEOUT_S") or "120")
STAGES_MAX = 3
RUNS_MAX = 6
"""Of records for one log, in each stage."""


class Attempt:
    """Some stages, filled one after the other, to be published together."""

    def __init__(self, load: PublishLoad, number: int) -> None:
        self.label = f"{load.name}.{load.next_attempt()}"
        self.number = number
        self._load = load
        self.receipts: list[Receipt] = []

    def stage(self) -> None:
        for _ in range(random.randint(1, STAGES_MAX)):
            codec, batch_bytes = random.choice(("none", "lz4")), random.choice((500, 4096, 100_000))
            writer = StageWriter(
                self._load.address, codec=codec, batch_bytes=batch_bytes, timeout_s=TIMEOUT_S, note=self.label
            )
            for _ in range(random.randint(1, RUNS_MAX)):
                self._write_run(writer)
            self.receipts.append(writer.finish())

    def _write_run(self, writer: StageWriter) -> None:
        load, log = self._load, random.choice(self._load.logs)
        topic, _, partition = log.rpartition("/")
        sequences = load.next_sequences(random.randint(1, 15))
        load.recorder.note(Stage(load.key, self.number, self.label, log, load.name, list(sequences)))
        values = [make_value(load.name, sequence, random.randint(0, 300)) for sequence in sequences]
        if random.random() < 0.5:
            writer.write_many(topic, values, partition=int(partition))
        else:
            for value in values:
                writer.write(topic, value, partition=int(partition))

    def publish(self) -> Publication:
        """Raises why it is not published, or OutcomeUnknown."""
        load, facts = self._load, (self._load.key, self.number, self.label)
        load.recorder.note(Publish(*facts))
        try:
            answer = publish(load.address, PublishKey(load.key, self.number), self.receipts, TIMEOUT_S)
        except OutcomeUnknown:
            raise
        except LogboomError as error:
            load.recorder.note(Refused(*facts, type(error).__name__))
            raise
        parts = None
        if answer.parts is not None:
            parts = [(f"{part.topic}/{part.partition}", part.first, part.next) for part in answer.parts]
        load.recorder.note(Published(*facts, answer.repeat, parts))
        return answer


class PublishLoad:
    def __init__(self, address: str, recorder: Recorder, name: str, key: str, logs: Sequence[str]) -> None:
        self.address = address
        self.recorder = recorder
        self.name = name
        self.key = key
        self.logs = logs
        self._client = Client(address, timeout_s=TIMEOUT_S)
        self._sequence = self._attempts = 0
        self._number = self.ask_number()

    def next_sequences(self, count: int) -> range:
        start, self._sequence = self._sequence, self._sequence + count
        return range(start, start + count)

    def next_attempt(self) -> int:
        self._attempts += 1
        return self._attempts

    def ask_number(self) -> int:
        """The highest that something is published under."""
        return max((info.number for info in self._client.keys(self.key) if info.name == self.key), default=0)

    def step(self) -> None:
        """One publish; now and then something beside it."""
        try:
            self._abandon()
            self._publish_late()
            attempt = self._staged(self._number + 1)
            attempt.publish()
            self._number = attempt.number
            if random.random() < 0.3:
                self._check_repeat(attempt)
        except LogboomError as error:
            print(f"{self.name}: {error!r}", file=sys.stderr, flush=True)
            self._number = self.ask_number()

    def _staged(self, number: int) -> Attempt:
        attempt = Attempt(self, number)
        attempt.stage()
        return attempt

    def _abandon(self) -> None:
        """As a task does that fails, or that was run twice."""
        if random.random() < 0.2:
            attempt = self._staged(self._number + 1)
            if random.random() < 0.5:
                self._client.discard([receipt.stage for receipt in attempt.receipts])

    def _publish_late(self) -> None:
        if self._number and random.random() < 0.2:
            self._check_repeat(self._staged(random.randint(1, self._number)))

    def _check_repeat(self, attempt: Attempt) -> None:
        answer = attempt.publish()
        if not answer.repeat:
            raise AssertionError(f"number {attempt.number} of {self.key} was published twice: {answer}")


def main(address: str, history: str, name: str, key: str, logs: str) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with Recorder(history) as recorder:
        load = PublishLoad(address, recorder, name, key, logs.split(","))
        while not ended.wait(random.random() * 0.02):
            load.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
