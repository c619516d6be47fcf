"""A writer that lives through everything that can happen to a log, until it is killed.

    life_writer.py DIRECTORY JOURNAL [END]

Each record says when it was made, so that one written, taken back and written again differs. What is about to be
committed goes to the journal first: that is the list which readers are compared with. With END it finishes the log and
closes it.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TextIO

from logboom.batch import build
from logboom.batch.codec import LZ4, ZSTD
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.upkeep.recompression import recompress

TOPIC = "life"
SETTINGS = Settings(segment=SegmentSettings(bytes=16384))
KEEP = 20_000
END = b"the end"


def main(path: str, journal_path: str, ends: bool) -> None:
    data = DataDirectory.open(path)
    if not data.topics():
        data.create_topic(TOPIC, settings=SETTINGS)
    known = journaled(journal_path)
    with open(journal_path, "a") as journal:
        log = data.open_topic(TOPIC)[0]
        note(journal, log, max(known, log.first))
        print("open", flush=True)
        while not ends:
            live(log, journal)
        log.append_one(build([END]), 0)
        show(log, journal)
    data.close()


def journaled(path: str) -> int:
    """The seqno behind the last whole line."""
    if not os.path.exists(path):
        return 0
    text = Path(path).read_text()
    whole = text[: text.rfind("\n") + 1]
    Path(path).write_text(whole)
    return int(whole.splitlines()[-1].split()[0]) + 1 if whole else 0


def note(journal: TextIO, log: Log, start: int) -> None:
    """What was written and not journaled by the one who was killed is committed now."""
    for batch in log.batches(start) if start < log.committed else ():
        for seqno, value in zip(batch.seqnos(), batch.values(), strict=True):
            if seqno >= start:
                assert value is not None
                journal.write(f"{seqno} {value.decode()}\n")
    journal.flush()


def append(log: Log) -> list[str]:
    lines = []
    for _ in range(random.randint(1, 6)):
        count = random.choice((1, 1, 3, 20, 100))
        values = [f"{random.getrandbits(64):x}{'x' * random.randint(0, 60)}" for _ in range(count)]
        answer = log.append_one(build(values, tags=[["t"]] * count), 0)
        lines += [f"{seqno} {value}\n" for seqno, value in enumerate(values, answer.base_seqno)]
    return lines


def live(log: Log, journal: TextIO) -> None:
    chance = random.random()
    if chance < 0.1:
        index = log.last_index
        append(log)
        if random.random() < 0.5:
            log.roll()
        log.truncate(index)
    elif chance < 0.13:
        log.roll()
    elif chance < 0.16:
        log.drop(log.committed - KEEP)
    elif chance < 0.2 and (cold := log.cold_segments()):
        pending = log.begin_swap(random.choice(cold))
        done = recompress(log._store.files.disk, *pending, random.choice((LZ4, ZSTD)), 1, 0.0, lambda size: None)
        if done is not None:
            log.end_swap(pending, done.summary, done.index)
    lines = append(log)
    journal.writelines(lines)
    journal.flush()
    log.commit(log.sync())


def show(log: Log, journal: TextIO) -> None:
    journal.write(f"{log.next - 1} {END.decode()}\n")
    journal.flush()
    log.commit(log.sync())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], len(sys.argv) > 3)
