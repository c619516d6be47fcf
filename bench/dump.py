"""How fast do logs become a dump, and a dump logs again?

512 MiB in batches of 64 KiB. Next to it the same bytes are copied: read in pieces of 1 MiB, a CRC-32C over each,
written, and synced at the end. A dump is synced at the end too; a load syncs every 64 MiB, at every segment and at the
end. What is read is in the page cache; what is written goes to the disk of the temporary directory.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import uuid
from functools import partial

from crc32c import crc32c

from append import make_batches
from harness import Row, Subject, rate, report, time_prepared
from logboom.batch import Batch, build
from logboom.storage import DataDirectory
from logboom.storage.moving.dump import dump, plan_dump
from logboom.storage.moving.load import load
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import Request
from logboom.storage.moving.restore import EqualLoader
from unsynced import UnsyncedDisk

SIZE_BYTES = 512 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
ROUNDS = 7
CODECS = ("none", "lz4", "zstd")


def make_text(count: int) -> list[bytes]:
    """Batches of JSON lines, which shrink to about a fifth."""
    chance = random.Random(5)
    lines = 64 * 1024 // 130
    return [
        bytes(
            build(
                [
                    b'{"device":"sensor-%04d","site":"north-%d","temperature":%.2f,"humidity":%.1f,"id":"%s"}'
                    % (
                        chance.randrange(2000),
                        chance.randrange(9),
                        chance.gauss(20, 5),
                        chance.gauss(50, 9),
                        uuid.UUID(int=chance.getrandbits(48)).hex.encode(),
                    )
                    for _ in range(lines)
                ]
            ).data
        )
        for _ in range(count)
    ]


def fill(path: str, batches: list[bytes]) -> int:
    os.mkdir(path)
    with DataDirectory.open(path, UnsyncedDisk(path)) as data:
        data.create_topic("bench")
        (log,) = data.open_topic("bench")
        parsed = [Batch.parse(batch) for batch in batches]
        while log.size_bytes < SIZE_BYTES:
            log.append(parsed, 1)
        return log.size_bytes


def copy(sources: list[str], target: str) -> None:
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    for source in sources:
        fd = os.open(source, os.O_RDONLY)
        while piece := os.read(fd, PIECE_BYTES):
            crc32c(piece)
            os.write(out, piece)
        os.close(fd)
    os.fdatasync(out)
    os.close(out)


def write_dump(path: str, target: str, codec: str) -> None:
    with DumpOrigin.open(path) as origin, open(target, "xb", buffering=0) as sink:
        dump(origin, plan_dump(origin, Request(compress=codec), 1), sink)
        os.fdatasync(sink.fileno())


def load_dump(source: str, target: str) -> None:
    with DataDirectory.open(target) as data, open(source, "rb", buffering=0) as file:
        load(file, EqualLoader(data))


def remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def measure(place: str, words: str, batches: list[bytes]) -> list[Row]:
    data, target = f"{place}/data", f"{place}/target"
    size = fill(data, batches)
    logs = sorted(os.path.join(folder, name) for folder, _, names in os.walk(data) for name in names if ".log" in name)
    copied = f"copy of {words}"
    subjects: dict[str, tuple[Subject, Subject]] = {copied: (partial(remove, target), partial(copy, logs, target))}
    for codec in CODECS:
        kept = f"{place}/{codec}.lgdump"
        write_dump(data, kept, codec)
        subjects[f"dump of {words}, {codec}"] = partial(remove, target), partial(write_dump, data, target, codec)
        subjects[f"load of {words}, {codec}"] = partial(remove, target), partial(load_dump, kept, target)
    os.sync()
    timings = time_prepared(subjects, ROUNDS)
    return [rate(copied, timings, size)] + [
        rate(name, timings, size, copied, 0.5) for name in timings if name != copied
    ]


def main() -> None:
    rows: list[Row] = []
    for words, batches in (("random bytes", make_batches(64)), ("JSON lines", make_text(64))):
        with tempfile.TemporaryDirectory(prefix="logboom-bench-") as place:
            rows += measure(place, words, batches)
    report("dump", rows)


if __name__ == "__main__":
    main()
