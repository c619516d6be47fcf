"""Dumps of every format version there has been, kept as files: each one loads, for ever.

The frames are also taken apart as docs/formats/dump.md says, with a checksum of its own and no code of the library.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pytest

from logboom.storage import DataDirectory
from logboom.storage.moving.load import load
from logboom.storage.moving.restore import EqualLoader
from support.disks.simulated import SimulatedDisk
from support.simulation.dumps import NOW, fill, open_data

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("dump-v*.lgdump"))
KINDS = {1: "HEAD", 2: "TOPIC", 3: "LOG", 4: "SEGMENT", 5: "BATCHES", 6: "LOG_END", 7: "END"}


class Piece(NamedTuple):
    kind: str
    payload: bytes
    front: bytes


def checksum(data: bytes, crc: int = 0) -> int:
    """CRC-32C (Castagnoli), one bit at a time."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def pieces(content: bytes) -> Iterator[Piece]:
    assert content[:8] == b"LGDUMP\x01\x00"
    position, number = 8, 0
    while position < len(content):
        kind, codec, flags, stored, raw, counted, payload_crc, header_crc = unpack_from("<BBHIIIII", content, position)
        front = content[position : position + 24]
        payload = content[position + 24 : position + 24 + stored]
        assert (flags, counted) == (0, number)
        assert header_crc == checksum(front[:20])
        assert payload_crc == checksum(payload)
        if codec:
            payload = pa.decompress(payload, raw, codec={1: "lz4", 2: "zstd"}[codec], asbytes=True)
        assert len(payload) == raw
        yield Piece(KINDS[kind], payload, front)
        position += 24 + stored
        number += 1


def read(data: DataDirectory) -> dict[str, list[list[tuple[int | None, bytes | None, int | None]]]]:
    return {
        topic.name: [
            [
                (record.seqno, record.value, record.timestamp)
                for batch in (log.batches(skip_damage=True) if log.first < log.committed else [])
                for record in batch.records()
            ]
            for log in data.open_topic(topic.name)
        ]
        for topic in data.topics()
    }


def test_there_is_a_golden_dump_of_every_version() -> None:
    assert [path.stem for path in FILES] == ["dump-v1"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_dump_loads_as_what_was_dumped(path: Path) -> None:
    wanted, data = open_data(SimulatedDisk()), open_data(SimulatedDisk())
    fill(wanted)
    with path.open("rb", buffering=0) as source:
        loaded = load(source, EqualLoader(data))
    assert loaded.complete
    assert read(data) == read(wanted)
    assert {topic.name: (topic.partitions, topic.settings) for topic in data.topics()} == {
        topic.name: (topic.partitions, topic.settings) for topic in wanted.topics()
    }
    for name in ("late", "many"):
        for here, there in zip(wanted.open_topic(name), data.open_topic(name), strict=True):
            assert (here.first, here.floor, here.term, here.last_index) == (
                there.first,
                there.floor,
                there.term,
                there.last_index,
            )
            assert here.tail == there.tail


def test_the_page_is_enough_to_take_a_dump_apart() -> None:
    found = list(pieces((GOLDEN / "dump-v1.lgdump").read_bytes()))
    kinds = [piece.kind for piece in found]
    assert (kinds[0], kinds[-1]) == ("HEAD", "END")
    head = msgspec.msgpack.decode(found[0].payload)
    assert (head["created"], [topic["name"] for topic in head["topics"]]) == (NOW, ["empty", "late", "many"])
    assert kinds.count("LOG") == kinds.count("LOG_END") == 5
    chain, batches, records, size = 0, 0, 0, 0
    for piece in found:
        if piece.kind == "BATCHES":
            position = 0
            while position < len(piece.payload):
                assert piece.payload[position : position + 4] == b"LGBM"
                records += unpack_from("<I", piece.payload, position + 44)[0]
                batches += 1
                position += unpack_from("<I", piece.payload, position + 4)[0]
            size += position
        elif piece.kind in ("LOG_END", "END"):
            assert msgspec.msgpack.decode(piece.payload)["chain"] == chain
        chain = checksum(piece.front, chain)
    end = msgspec.msgpack.decode(found[-1].payload)
    assert (end["logs"], end["batches"], end["records"], end["size_bytes"]) == (5, batches, records, size)


def test_a_golden_dump_is_read_alike_in_pieces_of_any_size() -> None:
    content = (GOLDEN / "dump-v1.lgdump").read_bytes()

    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(7, size or 0))

    loaded = load(Trickle(content), None)
    assert (loaded.complete, loaded.totals.records) == (True, 59)
