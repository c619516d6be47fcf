"""A process that writes a log until it is killed, and says on standard output what is durable.

Batches depend on nothing but the seqno they begin at, so the next incarnation can send again what was not confirmed.
Lines: `opening`, `open <first> <next>`, then `durable <next>` and `floor <seqno>`, each only after its sync returned.
"""

from __future__ import annotations

import random
import sys
import uuid

from logboom.batch import Batch, Producer, build
from logboom.errors import LogboomError
from logboom.storage import DataDirectory, Log, LogConfig, log_name

NAME = log_name("killed", uuid.UUID(int=1), 0)
CONFIG = LogConfig(segment_bytes=8192, index_bytes=512)
PRODUCER_ID = 9


def value(seqno: int) -> bytes:
    return b"%d:" % seqno + b"x" * (seqno * 7919 % 97)


def batch_at(seqno: int) -> Batch:
    """The one batch that can begin at this seqno."""
    seqnos = range(seqno, seqno + 1 + seqno * 31 % 13)
    return build([value(n) for n in seqnos], timestamps=seqno, producer=Producer(PRODUCER_ID, 0, seqno))


def check(log: Log, durable: int, floor: int) -> None:
    """Everything promised is there, everything that is there is right, and nothing comes twice."""
    assert log.refusal is None, log.refusal
    assert log.next >= durable, f"{durable} was durable, the log ends at {log.next}"
    assert log.first >= floor, f"the floor was {floor}, the log begins at {log.first}"
    assert log.first <= durable, f"the log begins at {log.first}, behind {durable}"
    log.commit(log.last_index)
    expected = log.first
    for batch in log.batches():
        for seqno, found in zip(batch.seqnos(), batch.values(), strict=True):
            if seqno >= log.first:
                assert (seqno, found) == (expected, value(expected))
                expected += 1
    assert expected == log.next


def say(*words: object) -> None:
    print(*words, flush=True)


def write(path: str, durable: int, floor: int) -> None:
    say("opening")
    data = DataDirectory.open(path)
    log = data.open_log(NAME, CONFIG)
    check(log, durable, floor)
    say("open", log.first, log.next)
    now = seqno = durable
    while True:
        seqno = _append(log, seqno, now)
        now += 1000
        if random.random() < 0.1:
            _take_back(log, now)
        log.commit(log.sync())
        say("durable", log.committed)
        if random.random() < 0.1:
            _forget(log, now)


def _append(log: Log, seqno: int, now: int) -> int:
    """From `seqno` on; a part of it may be in the log since before the kill."""
    batches = []
    for _ in range(random.randint(1, 8)):
        batches.append(batch_at(seqno))
        seqno += len(batches[-1])
    for answer, batch in zip(log.append(batches, now), batches, strict=True):
        if isinstance(answer, LogboomError):
            raise answer
        assert answer.base_seqno == batch.header.producer_seq
    return seqno


def _take_back(log: Log, now: int) -> None:
    """Some batches more, cut off again before they are committed."""
    index = log.last_index
    _append(log, log.next, now)
    log.truncate(index)


def _forget(log: Log, now: int) -> None:
    log.trim(random.randint(log.first, log.committed), now)
    log.commit(log.sync())
    say("floor", log.first)
    log.drop(log.first)
    if random.random() < 0.3:
        log.roll()


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
