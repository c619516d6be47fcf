"""Topics that hold everything records can be, and the same as rows of plain Python values, to compare."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logboom.batch import Record, build_records
from logboom.batch.codec import ZSTD
from logboom.client import FileReader
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import SegmentSettings, Settings
from logboom.storage.upkeep.recompression import recompress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = tuple[Any, ...]

NOW = 1_790_000_000_000_000
CHANNELS = [None, None, "", "a", "a/b", "a/b/c", "a+b", "a/#", "x*", "x*y", "größe/7", "a" * 60]
TAGS = ["red", "blue", "größe", ""]
KEYS = [None, None, b"", b"k1", b"k2", b"\xff\xfe", "schlüssel".encode()]
EXPRESSIONS = ["topic", "partition", "seqno", "unix_micros(timestamp)", "key", "value", "channel", "tags", "headers"]


def make_record(rng: random.Random) -> Record:
    moment = rng.choice([None, None, NOW + rng.randrange(-(10**9), 10**9), rng.randrange(-(10**6), 10**6)])
    headers = [(rng.choice(["h", "h", "trace", ""]), rng.randbytes(rng.randrange(4))) for _ in range(rng.randrange(4))]
    return Record(
        rng.choice([None, b"", b"text", b"\x80\xff", rng.randbytes(rng.randrange(200))]),
        key=rng.choice(KEYS),
        timestamp=moment,
        channel=rng.choice(CHANNELS),
        tags=tuple(rng.sample(TAGS, rng.randrange(3))),
        headers=tuple(headers) if rng.random() < 0.5 else (),
    )


def append(log: Log, batches: Iterable[Sequence[Record]], now: int = NOW, codec: str = "none") -> None:
    for number, records in enumerate(batches):
        log.append_one(build_records(records, codec=codec), now + number)
    log.commit(log.sync())


def make_batches(rng: random.Random, records: int) -> list[list[Record]]:
    """Of one record or of some, rarely of many."""
    batches: list[list[Record]] = []
    while records > 0:
        count = min(records, rng.choice([1, 1, 2, 5, 20, 120]))
        plain = rng.random() < 0.3
        batches.append([Record(b"plain %d" % n) if plain else make_record(rng) for n in range(count)])
        records -= count
    return batches


def store_anew(data: DataDirectory, log: Log) -> int:
    """Recompression of what is cold; how many segments."""
    done = 0
    for segment in log.cold_segments():
        pending = log.begin_swap(segment)
        result = recompress(data.files.disk, *pending, ZSTD, 1, 0.0, lambda size: None)
        if result is not None:
            done += log.end_swap(pending, result.summary, result.index)
    return done


def make_topic(
    data: DataDirectory, name: str, seed: int, records: int, partitions: int = 1, segment_bytes: int = 8192
) -> list[Log]:
    """Rolled, trimmed, in parts dropped and recompressed."""
    rng = random.Random(seed)
    data.create_topic(name, partitions, Settings(segment=SegmentSettings(bytes=segment_bytes)))
    logs = data.open_topic(name)
    for number, log in enumerate(logs):
        append(log, make_batches(rng, records), codec=rng.choice(["none", "lz4"]))
        if number % 3 == 1:
            store_anew(data, log)
        if number % 3 == 2:
            log.drop(records // 3)
            log.trim(records // 2, NOW)
            log.commit(log.sync())
        append(log, make_batches(rng, records // 4), NOW + 10**6)
    return logs


def read_rows(directory: str | Path, topic: str, partitions: int = 1) -> list[Row]:
    """What there is, record by record."""
    found = []
    for partition in range(partitions):
        with FileReader(directory, topic, partition) as reader:
            for record in reader.records():
                labels = record.channel, record.tags, record.headers
                found.append((topic, partition, record.seqno, record.timestamp, record.key, record.value, *labels))
    return found


def collect_rows(records: DataFrame, columns: Sequence[str] = EXPRESSIONS) -> list[Row]:
    """The same of a DataFrame, in the order of logs and seqnos where they are asked for."""
    found = [tuple(map(_plain, row)) for row in records.selectExpr(*columns).collect()]
    return sorted(found, key=lambda row: row[:3]) if list(columns[:3]) == EXPRESSIONS[:3] else found


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value
