from __future__ import annotations

import pytest

from logboom.batch import (
    BATCH_SIZE_MAX,
    HEADER_SIZE,
    NO_TIMESTAMP,
    SYNCED_UNKNOWN,
    Batch,
    Header,
    Producer,
    build,
    build_control,
    read_header,
    stamp,
)
from logboom.errors import HeaderCorrupt, NotABatch
from support.mutants.batches import FIELDS, seal, with_fields

BATCH = bytes(build([b"value"], keys=[b"key"], timestamps=5, producer=Producer(9, 2, 7)).data)
DISTINCT = {
    "base_seqno": 0x0102030405060708,
    "index": 0x1112131415161718,
    "append_time": -2,
    "term": 0x21222324,
    "synced": 0x31323334,
    "version": 200,
    "kind": 201,
    "encoding": 202,
    "codec": 203,
    "record_count": 0x41424344,
    "body_size": 0x51525354,
    "columns": 0x6162,
    "producer_epoch": 0x7172,
    "min_timestamp": -3,
    "max_timestamp": 0x7172737475767778,
    "producer_id": 0x8182838485868788,
    "producer_seq": 0x91929394,
    "flags": 0xA1A2A3A4,
}


def test_every_field_is_read_back_as_it_was_written_even_what_this_release_does_not_know() -> None:
    header = read_header(with_fields(BATCH, **DISTINCT))
    assert {name: getattr(header, name) for name in DISTINCT} == DISTINCT


def test_the_fields_of_a_header_are_those_of_the_page_in_their_order() -> None:
    assert Header._fields == tuple(FIELDS)


def test_a_header_may_lie_anywhere_in_the_data() -> None:
    assert read_header(b"12345" + BATCH, 5) == read_header(BATCH)
    assert read_header(memoryview(BATCH + BATCH), len(BATCH)) == read_header(bytearray(BATCH))


def test_a_fresh_batch_has_an_empty_stamp_and_what_its_producer_said() -> None:
    header = read_header(BATCH)
    assert header[2:7] == (0, 0, 0, 0, 0)
    assert (header.producer_id, header.producer_epoch, header.producer_seq) == (9, 2, 7)
    assert (header.record_count, header.next_seqno) == (1, 1)


def test_stamping_changes_the_stamp_and_header_crc_and_nothing_else() -> None:
    before = read_header(BATCH)
    after = read_header(stamp(BATCH[:HEADER_SIZE], 41, 7, -1, 3, 2))
    assert (after.base_seqno, after.index, after.append_time, after.term, after.synced) == (41, 7, -1, 3, 2)
    assert after.next_seqno == 42
    assert after[:2] == before[:2]
    assert after[7:-1] == before[7:-1]


def test_a_stamped_batch_can_be_stamped_again() -> None:
    once = stamp(BATCH[:HEADER_SIZE], 41, 7, 100, 3, 2)
    twice = stamp(once, 41, 7, 100, 3, 1)
    assert read_header(twice).synced == 1
    assert stamp(twice, 0, 0, 0, 0, 0) == BATCH[:HEADER_SIZE]


def test_a_synced_distance_that_does_not_fit_is_stamped_as_unknown() -> None:
    assert read_header(stamp(BATCH[:HEADER_SIZE], 0, 2**40, 0, 1, 2**40)).synced == SYNCED_UNKNOWN


@pytest.mark.parametrize(
    ("timestamps", "append_time", "newest"),
    [(5, 100, 5), ([1, 9], 100, 9), (None, 100, 100), ([None, 9], 100, 100), ([None, 200], 100, 200)],
)
def test_the_newest_timestamp_counts_the_append_time_only_where_a_record_has_none(
    timestamps: object, append_time: int, newest: int
) -> None:
    data = build([b"a", b"b"], timestamps=timestamps).data
    assert read_header(stamp(data[:HEADER_SIZE], 0, 1, append_time, 1, 1)).newest_timestamp(append_time) == newest


@pytest.mark.parametrize("length", range(17))
def test_padding_fills_up_to_the_next_multiple_of_8(length: int) -> None:
    from msgspec import defstruct

    body = defstruct("Body", [("x", bytes)])(bytes(length))
    header = build_control(body).header
    assert header.stored_size == header.body_size
    assert header.stored_size + header.padding == header.size - HEADER_SIZE
    assert header.size % 8 == 0
    assert header.padding < 8


@pytest.mark.parametrize("length", [0, 1, 4, 95])
def test_fewer_bytes_than_a_header_are_not_a_batch(length: int) -> None:
    with pytest.raises(NotABatch):
        read_header(BATCH[:length])


@pytest.mark.parametrize("position", [len(BATCH) - 95, len(BATCH), len(BATCH) + 1])
def test_a_position_too_near_to_the_end_is_not_a_batch(position: int) -> None:
    with pytest.raises(NotABatch):
        read_header(BATCH, position)


def test_another_magic_is_not_a_batch() -> None:
    with pytest.raises(NotABatch, match="magic"):
        read_header(with_fields(BATCH, magic=b"LGBN"))


@pytest.mark.parametrize("size", [0, 88, 95, 97, 100, BATCH_SIZE_MAX + 8, 2**32 - 8])
def test_a_size_no_batch_can_have_is_not_a_batch(size: int) -> None:
    with pytest.raises(NotABatch, match="cannot have"):
        read_header(with_fields(BATCH, size=size))


@pytest.mark.parametrize("position", range(4, HEADER_SIZE))
def test_a_flipped_bit_anywhere_in_the_header_is_noticed(position: int) -> None:
    broken = bytearray(BATCH)
    broken[position] ^= 1
    with pytest.raises(HeaderCorrupt):
        read_header(broken)


def test_a_batch_that_is_cut_off_is_not_a_batch() -> None:
    with pytest.raises(NotABatch, match="part"):
        Batch.parse(BATCH[:-1])


def test_sealing_a_sound_batch_changes_nothing() -> None:
    assert seal(BATCH) == BATCH


def test_no_timestamp_is_the_least_64_bit_number() -> None:
    assert NO_TIMESTAMP == -(2**63)
    assert read_header(build([b"a"]).data).min_timestamp == NO_TIMESTAMP
