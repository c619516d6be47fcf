"""A process that writes to logs while system calls fail, and says on standard output what came of every step.

Each line is JSON, a list: `["open", logs]`, then for every round `["append", answers]` and `["sync", answer]`, at last
`["close"]`. An answer is `"ok"` or the name of an error; a sync that is `"ok"` is followed by what each log holds.
"""

from __future__ import annotations

import json
import sys
import uuid

from logboom.batch import Producer, build
from logboom.errors import LogboomError
from logboom.storage import DataDirectory, Log, LogConfig, log_name

CONFIG = LogConfig(segment_bytes=8192, index_bytes=512)
ROUNDS = 6
BATCH_RECORDS = 5


def name(number: int) -> str:
    return log_name("faulty", uuid.UUID(int=number + 1), 0)


def value(seqno: int) -> bytes:
    return b"%d:" % seqno + b"y" * 300


def say(*words: object) -> None:
    print(json.dumps(words), flush=True)


def append(log: Log, now: int) -> list[str]:
    """Two batches in one call; a segment takes four."""
    batches = [
        build([value(n) for n in range(first, first + BATCH_RECORDS)], producer=Producer(3, 0, first))
        for first in (log.next, log.next + BATCH_RECORDS)
    ]
    return [
        "ok" if not isinstance(answer, LogboomError) else type(answer).__name__ for answer in log.append(batches, now)
    ]


def main(path: str, count: int) -> None:
    data = DataDirectory.open(path)
    logs = data.open_logs([name(number) for number in range(count)], CONFIG)
    say("open", count)
    for now in range(ROUNDS):
        say("append", [append(log, now) for log in logs])
        try:
            data.sync()
        except LogboomError as error:
            say("sync", type(error).__name__)
        else:
            say("sync", "ok", [log.committed for log in logs])
    data.close()
    say("close")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
