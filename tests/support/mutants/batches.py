"""Broken batches: sound ones with something wrong, and a judge of what is made of them.

Every mutant follows from (seed, number) alone. Most have their checksums fixed up, so that they get past the CRCs
and reach the checks of the structure. `python -m support.mutants.batches SEED COUNT` runs a range in this process.

`judge` holds the reader to its promise: a batch is refused with a named error, or every way to read it agrees.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random
from struct import Struct
from typing import Any, Final

import msgspec
from crc32c import crc32c

from logboom.batch import (
    HEADER_SIZE,
    KIND_DATA,
    KIND_LOST,
    Batch,
    Producer,
    Record,
    Selection,
    build,
    build_control,
    build_records,
    codec,
    columns,
    stamp,
    validation,
)
from logboom.errors import BatchError, UnsupportedBatch
from support.mutants.driver import drive, judging

FIELDS: Final = {
    "magic": (0, Struct("<4s")),
    "size": (4, Struct("<I")),
    "base_seqno": (8, Struct("<Q")),
    "index": (16, Struct("<Q")),
    "append_time": (24, Struct("<q")),
    "term": (32, Struct("<I")),
    "synced": (36, Struct("<I")),
    "version": (40, Struct("<B")),
    "kind": (41, Struct("<B")),
    "encoding": (42, Struct("<B")),
    "codec": (43, Struct("<B")),
    "record_count": (44, Struct("<I")),
    "body_size": (48, Struct("<I")),
    "columns": (52, Struct("<H")),
    "producer_epoch": (54, Struct("<H")),
    "min_timestamp": (56, Struct("<q")),
    "max_timestamp": (64, Struct("<q")),
    "producer_id": (72, Struct("<Q")),
    "producer_seq": (80, Struct("<I")),
    "flags": (84, Struct("<I")),
    "batch_crc": (88, Struct("<I")),
    "header_crc": (92, Struct("<I")),
}
_CRC = Struct("<I")
_I32 = Struct("<i")


def seal(data: bytes | bytearray | memoryview) -> bytes:
    """The same bytes with both checksums made to fit."""
    sealed = bytearray(data)
    if len(sealed) >= HEADER_SIZE:
        (size,) = _CRC.unpack_from(sealed, 4)
        end = size if HEADER_SIZE <= size <= len(sealed) else len(sealed)
        _CRC.pack_into(sealed, 88, crc32c(sealed[HEADER_SIZE:end], crc32c(sealed[40:88])))
        _CRC.pack_into(sealed, 92, crc32c(sealed[:92]))
    return bytes(sealed)


def with_fields(data: bytes | bytearray | memoryview, **fields: Any) -> bytes:
    """The batch with header fields overwritten, then sealed; a checksum given stays as given."""
    changed = bytearray(data)
    for name, value in fields.items():
        offset, pack = FIELDS[name]
        pack.pack_into(changed, offset, value)
    changed = bytearray(seal(changed))
    if "batch_crc" in fields:
        _CRC.pack_into(changed, 88, fields["batch_crc"])
        _CRC.pack_into(changed, 92, crc32c(changed[:92]))
    if "header_crc" in fields:
        _CRC.pack_into(changed, 92, fields["header_crc"])
    return bytes(changed)


def with_body(
    data: bytes | bytearray | memoryview, body: bytes | bytearray, codec_number: int = 0, **fields: Any
) -> bytes:
    """The batch with another body, stored with this codec; sizes, padding and checksums made to fit."""
    stored = codec.deflate(bytes(body), codec_number) if codec_number else bytes(body)
    padding = -len(stored) & 7
    whole = bytes(data[:HEADER_SIZE]) + stored + bytes(padding)
    sizes = {"size": len(whole), "body_size": len(body), "codec": codec_number, "flags": padding}
    return with_fields(whole, **{**sizes, **fields})


class _Note(msgspec.Struct):
    text: str


@cache
def sources() -> tuple[bytes, ...]:
    """Sound batches of every shape: few and many records, all columns and none, every codec, every kind."""
    batches = [
        build([b"value"], keys=[b"key"]),
        build([b"a", None, b"ccc"], timestamps=[1, None, 3], channels=["x/y", None, "ü"], tags=[["t"], [], ["u", "v"]]),
        build([None] * 3),
        build([b""] * 7, timestamps=5, headers=[[("k", b"v")], [], [], [("k", b""), ("k", b"w")], [], [], []]),
        build_records(mixed_records(8)),
        build_records(mixed_records(9)),
        build_records(mixed_records(17), producer=Producer(7, 1, 2)),
        build_records(mixed_records(64)),
        build_records(mixed_records(17), codec="lz4"),
        build_records(mixed_records(60), codec="zstd"),
        build_control(_Note("control")),
        build_control(_Note("lost"), KIND_LOST, 12),
    ]
    stamped = [
        stamp(b.data[:HEADER_SIZE], 1000, 7, 1_700_000_000_000_000, 3, 1) + bytes(b.data[HEADER_SIZE:]) for b in batches
    ]
    return tuple(bytes(b.data) for b in batches) + tuple(stamped)


def mixed_records(count: int) -> list[Record]:
    """Records with every column, and every kind of gap."""
    return [
        Record(
            None if i % 5 == 4 else b"v" * (i % 11),
            key=None if i % 3 == 1 else b"key%d" % (i % 4),
            timestamp=None if i % 7 == 6 else 1_700_000_000_000_000 + i,
            channel=None if i % 4 == 2 else f"site/{i % 3}/wärme",
            tags=("red", "größe")[: i % 3],
            headers=(("trace", b"\x00\xff"), ("trace", b""))[: i % 3],
        )
        for i in range(count)
    ]


def mutant(seed: int, number: int) -> bytes:
    """The mutant of this number in the sequence of this seed."""
    random = Random(seed << 40 | number)
    data = random.choice(sources())
    way = random.choices(_WAYS, _WEIGHTS)[0]
    return way(random, data)


def _raw(random: Random, data: bytes) -> bytes:
    return _scramble(random, data)


def _sealed(random: Random, data: bytes) -> bytes:
    return seal(_scramble(random, data))


def _fields(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        offset, pack = random.choice(list(FIELDS.values())[1:])
        width = 8 * pack.size
        (old,) = _unsigned(pack.size).unpack_from(changed, offset)
        new = random.choice(
            (
                0,
                1,
                2,
                8,
                old + 1,
                old - 1,
                old ^ 1 << random.randrange(width),
                1 << width - 1,
                -1,
                random.getrandbits(width),
            )
        )
        _unsigned(pack.size).pack_into(changed, offset, new & (1 << width) - 1)
    return seal(changed)


def _bodies(random: Random, data: bytes) -> bytes:
    """Something wrong inside the body, packed and checksummed as if it were right."""
    batch = Batch.parse(data)
    body = bytes(batch.body)
    for _ in range(random.choice((1, 1, 2, 4))):
        body = _scramble_body(random, body) if random.random() < 0.7 else _scramble(random, body)
    fields: dict[str, int] = {}
    if random.random() < 0.15:
        fields["record_count"] = max(0, batch.header.record_count + random.choice((-8, -1, 1, 8)))
    if random.random() < 0.15:
        fields["columns"] = batch.header.columns ^ 1 << random.randrange(7)
    if random.random() < 0.05:
        fields["body_size"] = max(0, len(body) + random.choice((-8, -1, 1, 8, 1 << 20)))
    return with_body(data, body, random.choice((0, 0, 0, batch.header.codec, 1, 2)), **fields)


def _scramble(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        if not changed:
            break
        at = random.randrange(len(changed))
        match random.randrange(6):
            case 0 | 1:
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 3:
                del changed[at:]
            case 4:
                other = random.choice(sources())
                start = random.randrange(len(other))
                part = other[start : start + random.randrange(1, 64)]
                changed[at : at + len(part)] = part
            case _:
                del changed[at : at + random.choice((1, 4, 8))]
    return bytes(changed)


def _scramble_body(random: Random, body: bytes) -> bytes:
    """Aim at what a body is made of: 32-bit offsets, bitmaps and padding at multiples of 4, and lengths."""
    changed = bytearray(body)
    if len(changed) < 8:
        return bytes(8)
    at = 4 * random.randrange(len(changed) // 4)
    (old,) = _I32.unpack_from(changed, at)
    match random.randrange(5):
        case 0 | 1:
            new = random.choice(
                (0, 1, -1, 2**31 - 1, -(2**31), old + 1, old - 1, old + 8, len(body), random.randrange(64))
            )
            _I32.pack_into(changed, at, (new + 2**31) % 2**32 - 2**31)
        case 2:
            changed[at : at + 4] = random.choice(
                (b"\x80\x80\x80\x80", b"\xff\xff\xff\xff", b"\xed\xa0\x80a", b"\xc3\xbc\xc3\xbc")
            )
        case 3:
            changed[at:at] = bytes(8)
        case _:
            del changed[-8:]
    return bytes(changed)


@cache
def _unsigned(size: int) -> Struct:
    return Struct({1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[size])


_WAYS: Final[Sequence[Callable[[Random, bytes], bytes]]] = (_raw, _sealed, _fields, _bodies)
_WEIGHTS: Final = (1, 4, 4, 8)


def judge(data: bytes) -> str:
    """ "sound", or the name of the error it was refused with. Anything else that happens is a bug and raises."""
    verdict = _verdict(data)
    for limit in (0, 10_000):
        with short_limit(limit):
            other = _verdict(data)
        assert other == verdict, f"{verdict}, but {other} where SHORT is {limit}"
    if verdict == "sound":
        _check_agreement(Batch.parse(data))
    return verdict


@contextmanager
def short_limit(limit: int) -> Iterator[None]:
    """Up to so many records a body is checked in plain Python, beyond by vectors; the verdict must not depend on it."""
    kept = [(module, vars(module)["SHORT"]) for module in (columns, validation)]
    for module, _ in kept:
        vars(module)["SHORT"] = limit
    try:
        yield
    finally:
        for module, short in kept:
            vars(module)["SHORT"] = short


def _verdict(data: bytes) -> str:
    try:
        Batch.parse(data).verify()
    except BatchError as error:
        return type(error).__name__
    return "sound"


def _check_agreement(batch: Batch) -> None:
    header = batch.header
    if header.kind != KIND_DATA:
        for read in (batch.values, batch.to_arrow, lambda: list(batch.records())):
            try:
                read()
            except UnsupportedBatch:
                continue
            raise AssertionError(f"records came out of a batch of kind {header.kind}")
        return
    records = list(batch.records())
    assert len(records) == header.record_count
    table = batch.to_arrow()
    table.validate(full=True)
    assert _rows(table) == records
    lists = (
        batch.values(),
        batch.keys(),
        batch.timestamps(),
        batch.channels(),
        batch.tags(),
        batch.headers(),
        batch.seqnos(),
    )
    assert [Record(*row) for row in zip(*lists, strict=True)] == records
    assert max(batch.timestamps()) == header.newest_timestamp(header.append_time)
    _check_selections(batch, records)


def _rows(table: Any) -> list[Record]:
    """The records of an Arrow batch, read cell by cell with Arrow's own conversion."""
    import pyarrow as pa

    moments = table.column("timestamp").cast(pa.int64()).to_pylist()
    rows = table.drop_columns(["timestamp"]).to_pylist()
    return [
        Record(
            row["value"],
            row["key"],
            moment,
            row["channel"],
            tuple(row["tags"]),
            tuple((item["key"], item["value"]) for item in row["headers"]),
            row["seqno"],
        )
        for row, moment in zip(rows, moments, strict=True)
    ]


def _check_selections(batch: Batch, records: list[Record]) -> None:
    first, after = batch.header.base_seqno, batch.header.next_seqno
    assert list(batch.records(Selection(seqno_from=first + 1, seqno_until=after - 1))) == records[1:-1]
    tagged = next((record.tags[-1] for record in records if record.tags), "none")
    assert list(batch.records(Selection(tags_any=(tagged,)))) == [r for r in records if tagged in r.tags]
    key = records[-1].key
    if key is not None:
        assert list(batch.records(Selection(key=key))) == [r for r in records if r.key == key]
    assert list(batch.records(Selection(channel="#"))) == [r for r in records if r.channel is not None]


def run(seed: int, count: int, start: int = 0) -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    for number in range(start, start + count):
        with judging(seed, number):
            verdicts[judge(mutant(seed, number))] += 1
    return verdicts


def main(arguments: Sequence[str]) -> None:
    drive(run, *map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
