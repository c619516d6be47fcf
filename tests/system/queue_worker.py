"""A process that works on a queue, and notes down every record it was given and every one that it has settled.

    queue_worker.py ADDRESS NOTES SEED

A record whose value ends in 7 is rejected. Some are released, some forgotten. A line is noted when its settlement is
durable. It ends with SIGKILL, or when its standard input does.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any

from logboom import QueueConsumer
from logboom.errors import JobNotHeld

LEASE_S = 4.0
SESSION_S = 3.0


def main(address: str, path: str, seed: str) -> None:
    chance = random.Random(seed)
    about: Any = {"lease_s": LEASE_S, "session_s": SESSION_S, "tries": 50, "dead_letter": "dead", "prefetch": 40}
    with open(path, "a", buffering=1) as notes, QueueConsumer("jobs", address, group="w", **about) as consumer:
        threading.Thread(target=wait_for_end, args=(consumer,), daemon=True).start()
        for job in consumer:
            value = job.record.value.decode()
            notes.write(f"given {value} {job.tries}\n")
            time.sleep(chance.random() * 0.004)
            kind = chance.random()
            try:
                if value.endswith("7"):
                    job.reject(wait=True)
                elif kind < 0.05:
                    job.release(delay_s=chance.choice((None, 0.0, 0.2)))
                elif kind < 0.06:
                    continue
                elif kind < 0.2:
                    job.ack(wait=True)
                    notes.write(f"done {value} {job.tries}\n")
                else:
                    job.ack()
            except JobNotHeld:
                notes.write(f"late {value} {job.tries}\n")


def wait_for_end(consumer: QueueConsumer) -> None:
    sys.stdin.read()
    consumer.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
