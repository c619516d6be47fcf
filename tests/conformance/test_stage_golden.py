"""The file of a stage, kept as it was once written: it is written the same, and read, for ever.

It is also taken apart as docs/formats/stage.md says, with a checksum of its own and no code of the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import Any, NamedTuple

import msgspec
import pytest

from logboom.batch import Batch, Producer, build
from logboom.storage.config import MIB
from logboom.storage.files.disk import Disk
from logboom.storage.files.open_files import Space
from logboom.storage.staged.stage import Opened, StageFile, StageTarget
from support.disks.simulated import SimulatedDisk

GOLDEN = Path(__file__).parent / "golden" / "stage-v1.stage"
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "stage.md"
NOW = 1_700_000_000_000_000
STAGE = Opened("9b2e7c40d5a1468f8e13f0a7c6d4b259", 2**63 + 77, NOW, "import")
EVENTS = StageTarget("events", "00112233445566778899aabbccddeeff", 0)
AUDIT = StageTarget("audit", "ffeeddccbbaa99887766554433221100", 3)
STAGED = [(EVENTS, [b"one", b"two"], 0), (AUDIT, [b"x"], 0), (EVENTS, [b"three"], 2)]


def batches() -> list[tuple[StageTarget, Batch]]:
    return [
        (target, build(values, producer=Producer(STAGE.producer_id, 0, sequence)))
        for target, values, sequence in STAGED
    ]


def write() -> bytes:
    disk: Disk = SimulatedDisk()
    disk.make_directory("staging")
    stage = StageFile.create(disk, Space(disk, 0), "staging", STAGE)
    for number, entry in enumerate(batches(), 1):
        (answer,) = stage.write([entry], NOW + number, MIB)
        assert not isinstance(answer, Exception)
    return bytes(disk.open(stage.path).map(stage.size_bytes))


def load(content: bytes) -> StageFile:
    disk: Disk = SimulatedDisk()
    disk.make_directory("staging")
    path = f"staging/{STAGE.id}.stage"
    disk.create(path).write([content], 0)
    return StageFile.load(disk, Space(disk, 0), path)


def checksum(data: bytes) -> int:
    """CRC-32C (Castagnoli), one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


class Piece(NamedTuple):
    seqno: int
    place: int
    term: int
    kind: int
    records: int
    producer: tuple[int, int, int]
    body: bytes


def pieces(content: bytes) -> Iterator[Piece]:
    position = 0
    while position < len(content):
        magic, size, seqno, index, _, term, synced = unpack_from("<4sIQQqII", content, position)
        batch = content[position : position + size]
        version, kind, _, codec, records, _, _, epoch = unpack_from("<BBBBIIHH", batch, 40)
        producer_id, sequence, flags, batch_crc, header_crc = unpack_from("<QIIII", batch, 72)
        assert (magic, version, codec, synced) == (b"LGBM", 1, 0, 2**32 - 1)
        assert header_crc == checksum(batch[:92])
        assert batch_crc == checksum(batch[40:88] + batch[96:])
        yield Piece(seqno, index, term, kind, records, (producer_id, epoch, sequence), batch[96 : size - (flags & 7)])
        position += size


def test_a_stage_is_written_as_it_always_was() -> None:
    assert write() == GOLDEN.read_bytes()


def test_a_golden_stage_is_loaded_as_what_was_staged() -> None:
    stage = load(GOLDEN.read_bytes())
    assert stage.opened == STAGE
    assert (stage.targets, stage.counts) == ({EVENTS: 0, AUDIT: 1}, [3, 1])
    stage.verify(MIB)
    assert [(staged.number, staged.batch.values()) for staged in stage.batches()] == [
        (0, [b"one", b"two"]),
        (1, [b"x"]),
        (0, [b"three"]),
    ]


def test_the_page_is_enough_to_take_a_stage_apart() -> None:
    first, *others = pieces(GOLDEN.read_bytes())
    assert [piece.place for piece in (first, *others)] == [1, 2, 3, 4, 5, 6]
    assert first.kind == 1
    assert msgspec.msgpack.decode(first.body) == {"type": "stage", **msgspec.to_builtins(STAGE)}
    targets: list[dict[str, Any]] = []
    counts: list[int] = []
    for piece in others:
        if piece.kind == 1:
            assert piece.term == len(targets)
            targets.append(msgspec.msgpack.decode(piece.body))
            counts.append(0)
        else:
            assert piece.producer == (STAGE.producer_id, 0, piece.seqno)
            assert piece.seqno == counts[piece.term]
            counts[piece.term] += piece.records
    assert [target.pop("type") for target in targets] == ["target", "target"]
    assert [StageTarget(**target) for target in targets] == [EVENTS, AUDIT]
    assert counts == [3, 1]


@pytest.mark.parametrize("left", [0, 1, 95])
def test_what_is_not_whole_at_the_end_is_cut_off(left: int) -> None:
    content = GOLDEN.read_bytes()
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + int.from_bytes(content[ends[-1] + 4 : ends[-1] + 8], "little"))
    stage = load(content[: ends[-2] + left])
    assert (stage.size_bytes, stage.counts) == (ends[-2], [2, 1])


def test_the_dump_on_the_page_is_the_golden_stage() -> None:
    (block,) = re.findall(r"```hexdump\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line[6:].partition("  |")[0] for line in block.splitlines()]
    assert bytes.fromhex("".join(lines)) == GOLDEN.read_bytes()
