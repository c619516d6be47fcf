"""The batch format against bytes written out by hand from docs/formats/batch.md.

The files in golden/ hold one batch each as commented hex. Their checksums were made by `checksum` below, bit by
bit from the polynomial, and not by the library. Compressed bodies were made by other libraries; they are only read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from logboom.batch import HEADER_SIZE, KIND_LOST, Batch, Producer, Record, build, build_control, build_records, stamp
from logboom.errors import UnsupportedBatch
from logboom.storage.tail import Floor

GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "batch.md"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.hex"))

ONE = Record(b"on", key=b"lamp", timestamp=1_700_000_000_000_000)
EVERY = [
    Record(b"one", b"a", 1000, "s/1", ("red", "big"), (("h", b"\x01"),)),
    Record(b"", None, None, None, (), ()),
    Record(None, b"", 3000, "s/ü", ("red",), (("h", b""), ("i", b"\x02\x03"))),
]
PRODUCER = Producer(0x0102030405060708, 0x0A0B, 2**31 - 1)


class Note(msgspec.Struct):
    text: str


def golden(name: str) -> bytes:
    lines = (GOLDEN / f"{name}.hex").read_text(encoding="utf-8").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def checksum(data: bytes) -> int:
    """CRC-32C (Castagnoli), one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def seen(record: Record, seqno: int, append_time: int = 0) -> Record:
    """The record as a reader sees it at this seqno."""
    moment = append_time if record.timestamp is None else record.timestamp
    return msgspec.structs.replace(record, seqno=seqno, timestamp=moment)


def test_the_checksum_of_these_tests_gives_the_published_check_value() -> None:
    assert checksum(b"123456789") == 0xE3069283


@pytest.mark.parametrize("name", NAMES)
def test_both_checksums_of_a_golden_batch_are_crc32c_over_the_bytes_the_page_names(name: str) -> None:
    data = golden(name)
    assert int.from_bytes(data[88:92], "little") == checksum(data[40:88] + data[96:])
    assert int.from_bytes(data[92:96], "little") == checksum(data[:92])


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_batch_is_sound(name: str) -> None:
    batch = Batch.parse(golden(name))
    batch.verify()
    assert batch.header.size == len(golden(name))


BUILDERS: dict[str, Callable[[], Batch]] = {
    "one": lambda: build_records([ONE]),
    "every": lambda: build_records(EVERY),
    "bare": lambda: build([b"x", b"yz"], producer=PRODUCER),
    "empty": lambda: build([None] * 3),
    "control": lambda: build_control(Note("hi")),
    "lost": lambda: build_control(Note("hi"), KIND_LOST, 12),
    "term": lambda: build_control(Floor(5, 0x0102030405060708)),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_the_builder_writes_exactly_the_golden_bytes(name: str) -> None:
    assert bytes(BUILDERS[name]().data).hex(" ", 8) == golden(name).hex(" ", 8)


def test_stamping_rewrites_exactly_the_golden_bytes() -> None:
    one = golden("one")
    stamped = stamp(one[:HEADER_SIZE], 41, 7, 1_700_000_001_000_000, 3, 2) + one[HEADER_SIZE:]
    assert stamped.hex(" ", 8) == golden("stamped").hex(" ", 8)
    assert [i for i in range(len(one)) if one[i] != stamped[i] and not (8 <= i < 40 or 92 <= i < 96)] == []


RECORDS: dict[str, list[Record]] = {
    "one": [seen(ONE, 0)],
    "stamped": [seen(ONE, 41)],
    "every": [seen(record, seqno) for seqno, record in enumerate(EVERY)],
    "bare": [Record(b"x", timestamp=0, seqno=0), Record(b"yz", timestamp=0, seqno=1)],
    "empty": [Record(None, timestamp=0, seqno=seqno) for seqno in range(3)],
    "lz4": [Record(b"a" * 64, timestamp=0, seqno=0)],
    "zstd": [Record(b"a" * 64, timestamp=0, seqno=0)],
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_reader_reads_exactly_the_golden_records(name: str) -> None:
    assert list(Batch.parse(golden(name)).records()) == RECORDS[name]


def test_a_record_without_a_timestamp_shows_the_append_time_of_its_batch() -> None:
    every = golden("every")
    stamped = stamp(every[:HEADER_SIZE], 10, 1, 777, 1, 1) + every[HEADER_SIZE:]
    assert list(Batch.parse(stamped).records()) == [seen(record, 10 + i, 777) for i, record in enumerate(EVERY)]


def test_header_fields_are_read_from_where_the_page_draws_them() -> None:
    header = Batch.parse(golden("stamped")).header
    assert (header.base_seqno, header.index, header.append_time, header.term, header.synced) == (
        41,
        7,
        1_700_000_001_000_000,
        3,
        2,
    )
    bare = Batch.parse(golden("bare")).header
    assert Producer(bare.producer_id, bare.producer_epoch, bare.producer_seq) == PRODUCER
    assert (bare.record_count, bare.body_size, bare.columns, bare.padding) == (2, 32, 4, 0)


@pytest.mark.parametrize(("name", "seqnos"), [("control", 0), ("lost", 12)])
def test_a_batch_without_records_gives_its_message_and_refuses_to_be_read_as_records(name: str, seqnos: int) -> None:
    batch = Batch.parse(golden(name))
    assert msgspec.msgpack.decode(batch.body, type=Note) == Note("hi")
    assert len(batch.seqnos()) == seqnos
    with pytest.raises(UnsupportedBatch):
        list(batch.records())


def test_the_dump_on_the_page_is_the_golden_batch_with_every_column() -> None:
    dump = re.search(r"```hexdump\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert dump
    lines = [line.partition("|")[0].split()[1:] for line in dump[1].splitlines()]
    assert bytes.fromhex("".join("".join(line) for line in lines)) == golden("every")
