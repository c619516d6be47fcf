"""Every rule of docs/formats/batch.md has a batch here that breaks it and nothing else, under sound checksums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import pack_into, unpack_from
from typing import Any

import msgspec
import pytest

from logboom.batch import (
    BATCH_SIZE_MAX,
    HEADER_SIZE,
    KIND_LOST,
    NO_TIMESTAMP,
    Batch,
    build,
    build_control,
    build_records,
)
from logboom.errors import BatchTooLarge, BodyCorrupt, MalformedBatch, NotABatch, UnsupportedBatch
from support.mutants.batches import judge, mixed_records, short_limit, with_body, with_fields

Body = bytearray
COUNTS = [3, 4, 15, 16, 17, 18, 100, 1001]
"""Odd and even, for the padding of offsets; few and many, for both ways of checking."""


class Note(msgspec.Struct):
    text: str


CONTROL = bytes(build_control(Note("hi")).data)
LOST = bytes(build_control(Note("hi"), KIND_LOST, 3).data)
BATCH = bytes(build([b"value"] * 3, keys=[b"k", None, b""], timestamps=[1, 2, 3]).data)


def refused(data: bytes, error: type[Exception], match: str | None = None) -> None:
    """Both ways of checking must refuse it, with the same error."""
    assert judge(data) == error.__name__
    with pytest.raises(error, match=match):
        Batch.parse(data).verify()


def full(count: int) -> Batch:
    """Every column present, every buffer of it in need of padding somewhere."""
    return Batch.parse(
        build(
            [b"val"] * count,
            keys=[b"key"] * count,
            timestamps=list(range(count)),
            channels=["ch1"] * count,
            tags=[["tag"]] * count,
            headers=[[("nam", b"hdr")]] * count,
        ).data
    )


TEXTS: dict[str, Callable[[Any], Any]] = {
    "key": lambda columns: columns.key,
    "value": lambda columns: columns.value,
    "channel": lambda columns: columns.channel,
    "tags": lambda columns: columns.tags.items[0],
    "header names": lambda columns: columns.headers.items[0],
    "header values": lambda columns: columns.headers.items[1],
}


def offsets_of(text: Callable[[Any], Any], columns: Any) -> int:
    return int(text(columns).offsets)


OFFSETS: dict[str, Callable[[Any], int]] = {
    **{name: partial(offsets_of, text) for name, text in TEXTS.items()},
    "tag lists": lambda columns: columns.tags.offsets,
    "header lists": lambda columns: columns.headers.offsets,
}


def broken(batch: Batch, change: Callable[[Body], None]) -> bytes:
    body = bytearray(batch.body)
    change(body)
    return with_body(batch.data, body)


def set_offset(body: Body, position: int, value: int) -> None:
    pack_into("<i", body, position, value)


@pytest.mark.parametrize("count", COUNTS)
def test_a_full_batch_is_sound_as_long_as_nothing_is_broken(count: int) -> None:
    assert judge(broken(full(count), lambda body: None)) == "sound"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_that_do_not_start_at_0_are_malformed(name: str, count: int) -> None:
    batch = full(count)
    position = OFFSETS[name](batch.columns)
    refused(broken(batch, lambda body: set_offset(body, position, 1)), MalformedBatch, "start at 0")
    refused(broken(batch, lambda body: set_offset(body, position, -1)), MalformedBatch)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("where", ["first", "middle", "last but one"])
def test_offsets_that_go_back_are_malformed(name: str, count: int, where: str) -> None:
    batch = full(count)
    number = {"first": 1, "middle": count // 2, "last but one": count - 1}[where]
    position = OFFSETS[name](batch.columns) + 4 * number
    for wrong in (-1, -(2**31), 2**31 - 1, 3 * count + 1):
        refused(broken(batch, lambda body, wrong=wrong: set_offset(body, position, wrong)), MalformedBatch)  # type: ignore[misc]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OFFSETS)
def test_a_last_offset_that_leaves_the_body_is_malformed(name: str, count: int) -> None:
    batch = full(count)
    position = OFFSETS[name](batch.columns) + 4 * count
    (right,) = unpack_from("<i", batch.body, position)
    for wrong in (-1, -(2**31), 2**31 - 1, right + 8, right - 8, 2**20):
        refused(broken(batch, lambda body, wrong=wrong: set_offset(body, position, wrong)), MalformedBatch)  # type: ignore[misc]


@pytest.mark.parametrize("count", [4, 16, 18, 100])
@pytest.mark.parametrize("name", OFFSETS)
def test_padding_after_offsets_must_be_zero(name: str, count: int) -> None:
    batch = full(count)
    position = OFFSETS[name](batch.columns) + 4 * count + 4
    for byte in range(4):
        refused(broken(batch, lambda body, byte=byte: body.__setitem__(position + byte, 1)), MalformedBatch)  # type: ignore[misc]


@pytest.mark.parametrize("count", [3, 17, 100, 1001])
@pytest.mark.parametrize("name", TEXTS)
def test_padding_after_bytes_must_be_zero(name: str, count: int) -> None:
    batch = full(count)
    start = TEXTS[name](batch.columns).data + 3 * count
    for position in range(start, start + (-3 * count & 7)):
        refused(broken(batch, lambda body, at=position: body.__setitem__(at, 0x80)), MalformedBatch)  # type: ignore[misc]


@pytest.mark.parametrize("count", [1, 3, 4, 15, 17, 18, 100, 1001])
@pytest.mark.parametrize("name", ["key", "value"])
def test_bits_behind_the_last_record_must_be_zero(name: str, count: int) -> None:
    batch = full(count)
    bitmap = TEXTS[name](batch.columns).bitmap
    size = (count + 63) // 64 * 8
    for bit in {count, count + 1, count | 7, 8 * size - 1} & set(range(count, 8 * size)):
        change = lambda body, bit=bit: body.__setitem__(bitmap + bit // 8, body[bitmap + bit // 8] | 1 << bit % 8)  # noqa: E731
        refused(broken(batch, change), MalformedBatch)


@pytest.mark.parametrize("count", [4, 16, 17, 100])
@pytest.mark.parametrize("name", ["channel", "tags", "header names"])
@pytest.mark.parametrize(
    "text", [b"\xff12", b"\x80ab", b"\xc3ab", b"ab\xc3", b"\xed\xa0\x80", b"\xc0\x80a", b"a\xe2\x82"]
)
def test_text_that_is_not_utf8_is_malformed(name: str, count: int, text: bytes) -> None:
    batch = full(count)
    for entry in (0, count // 2, count - 1):
        start = TEXTS[name](batch.columns).data + 3 * entry
        refused(broken(batch, lambda body, at=start: body.__setitem__(slice(at, at + 3), text)), MalformedBatch)  # type: ignore[misc]


@pytest.mark.parametrize("count", [4, 16, 17, 100])
@pytest.mark.parametrize("name", ["channel", "tags", "header names"])
def test_a_character_across_two_entries_is_malformed(name: str, count: int) -> None:
    batch = full(count)
    end = TEXTS[name](batch.columns).data + 3
    refused(broken(batch, lambda body: body.__setitem__(slice(end - 1, end + 1), "ü".encode())), MalformedBatch)


@pytest.mark.parametrize("count", [4, 17])
@pytest.mark.parametrize("name", ["key", "value", "header values"])
def test_bytes_need_not_be_utf8(name: str, count: int) -> None:
    batch = full(count)
    start = TEXTS[name](batch.columns).data
    assert judge(broken(batch, lambda body: body.__setitem__(slice(start, start + 3), b"\xff\xfe\x80"))) == "sound"


@pytest.mark.parametrize("count", COUNTS)
def test_the_columns_must_end_where_the_body_ends(count: int) -> None:
    batch = full(count)
    body = bytes(batch.body)
    for wrong in (body + bytes(8), body[:-8], body + b"\x01", body[:-1], body[: 8 * count], body[:1], b""):
        refused(with_body(batch.data, wrong), MalformedBatch)


@pytest.mark.parametrize("count", COUNTS)
def test_another_record_count_than_the_body_has_is_malformed(count: int) -> None:
    batch = full(count)
    for wrong in (count - 1, count + 1, 2 * count, count + 8, 2**31, 2**32 - 1):
        refused(with_fields(batch.data, record_count=wrong), MalformedBatch)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("columns", [62, 31, 1, 0])
def test_other_columns_than_the_body_has_are_malformed(count: int, columns: int) -> None:
    refused(with_fields(full(count).data, columns=columns), MalformedBatch)


@pytest.mark.parametrize("columns", [64 | 63, 1 << 15])
def test_columns_of_a_later_release_are_unsupported(columns: int) -> None:
    refused(with_fields(full(20).data, columns=columns), UnsupportedBatch)


@pytest.mark.parametrize("count", COUNTS)
def test_the_extremes_in_the_header_must_be_those_of_the_column(count: int) -> None:
    data = full(count).data
    for fields in ({"min_timestamp": -1}, {"min_timestamp": 1}, {"max_timestamp": count}, {"max_timestamp": count - 2}):
        refused(with_fields(data, **fields), MalformedBatch, "min_timestamp")
    refused(with_fields(data, min_timestamp=NO_TIMESTAMP), MalformedBatch)


@pytest.mark.parametrize("count", COUNTS)
def test_the_extremes_are_literal_where_a_record_has_no_timestamp(count: int) -> None:
    data = build([b"v"] * count, timestamps=[None, *range(1, count)]).data
    assert Batch.parse(data).header.min_timestamp == NO_TIMESTAMP
    refused(with_fields(data, min_timestamp=1), MalformedBatch, "min_timestamp")


@pytest.mark.parametrize("count", COUNTS)
def test_without_a_column_both_extremes_are_the_one_timestamp(count: int) -> None:
    data = build([b"v"] * count, timestamps=7).data
    refused(with_fields(data, max_timestamp=8), MalformedBatch, "min_timestamp")
    refused(with_fields(data, min_timestamp=NO_TIMESTAMP), MalformedBatch, "min_timestamp")
    assert judge(with_fields(data, min_timestamp=8, max_timestamp=8)) == "sound"


def test_a_column_in_which_everything_is_missing_is_read_all_the_same() -> None:
    key = bytes(8) + bytes(4 * 4)
    data = with_body(build([None] * 3).data, key + bytes(4 * 4) + bytes(4 * 4) + bytes(8), columns=2 + 8 + 16)
    assert judge(data) == "sound"
    assert Batch.parse(data).keys() == [None] * 3
    assert Batch.parse(data).channels() == [None] * 3
    same = with_body(build([None] * 3).data, bytes(24), columns=1, min_timestamp=0, max_timestamp=0)
    assert judge(same) == "sound"


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"version": 0}, UnsupportedBatch, "version 0"),
        ({"version": 2}, UnsupportedBatch, "version 2"),
        ({"flags": 8}, UnsupportedBatch, "flags 0x8"),
        ({"flags": 1 << 31}, UnsupportedBatch, "flags"),
        ({"kind": 3}, UnsupportedBatch, "kind 3"),
        ({"codec": 3}, UnsupportedBatch, "codec 3"),
        ({"encoding": 0}, UnsupportedBatch, "encoding 0"),
        ({"encoding": 2}, UnsupportedBatch, "encoding 2"),
        ({"encoding": 3}, UnsupportedBatch, "encoding 3"),
        ({"flags": 1}, MalformedBatch, "body_size"),
        ({"flags": 7}, MalformedBatch, "body_size"),
        ({"body_size": 0}, MalformedBatch, "body_size"),
        ({"body_size": BATCH_SIZE_MAX}, MalformedBatch, "body_size"),
        ({"body_size": BATCH_SIZE_MAX + 1}, BatchTooLarge, "limit"),
        ({"body_size": 2**32 - 1}, BatchTooLarge, "limit"),
        ({"producer_seq": 2**31}, MalformedBatch, "producer_seq"),
        ({"record_count": 0}, MalformedBatch, "without records"),
        ({"base_seqno": 2**63 - 3}, MalformedBatch, "base_seqno"),
        ({"base_seqno": 2**64 - 1}, MalformedBatch, "base_seqno"),
        ({"kind": 1}, MalformedBatch, "control"),
        ({"kind": 2}, MalformedBatch, "control"),
        ({"batch_crc": 0}, BodyCorrupt, "batch_crc"),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused(fields: dict[str, int], error: type[Exception], match: str) -> None:
    refused(with_fields(BATCH, **fields), error, match)


@pytest.mark.parametrize("fields", [{"base_seqno": 2**63 - 4}, {"producer_seq": 2**31 - 1}, {"term": 2**32 - 1}])
def test_a_header_at_the_edge_of_a_rule_is_sound(fields: dict[str, int]) -> None:
    assert judge(with_fields(BATCH, **fields)) == "sound"


@pytest.mark.parametrize("data", [CONTROL, LOST])
@pytest.mark.parametrize("fields", [{"encoding": 1}, {"columns": 4}, {"codec": 1, "body_size": 9}, {"codec": 2}])
def test_a_batch_without_records_has_no_encoding_no_columns_and_no_codec(data: bytes, fields: dict[str, int]) -> None:
    refused(with_fields(data, **fields), MalformedBatch, "control")


def test_a_control_batch_takes_no_seqno_and_a_lost_one_any_number() -> None:
    refused(with_fields(CONTROL, record_count=1), MalformedBatch, "control")
    assert judge(with_fields(LOST, record_count=2**32 - 1)) == "sound"


def test_padding_of_the_batch_must_be_zero_and_minimal() -> None:
    changed = bytearray(CONTROL)
    changed[-1] = 1
    refused(with_fields(changed), MalformedBatch, "padding")
    longer = CONTROL + bytes(8)
    refused(with_fields(longer, size=len(longer)), MalformedBatch, "body_size")
    refused(with_fields(CONTROL[:HEADER_SIZE], size=HEADER_SIZE, flags=7, body_size=0), MalformedBatch, "padding")


def test_records_without_a_body_are_limited_in_number() -> None:
    empty = build([None] * 3).data
    assert judge(with_fields(empty, record_count=1000)) == "sound"
    Batch.parse(with_fields(empty, record_count=65_536)).verify()
    refused(with_fields(empty, record_count=65_537), MalformedBatch, "without a body")
    refused(with_fields(empty, record_count=2**32 - 1), MalformedBatch, "without a body")


@pytest.mark.parametrize("position", range(40, len(BATCH)))
def test_a_flipped_bit_that_header_crc_does_not_see_is_seen_by_batch_crc(position: int) -> None:
    if 88 <= position < 96:
        return
    from crc32c import crc32c

    changed = bytearray(BATCH)
    changed[position] ^= 0x10
    changed[92:96] = crc32c(bytes(changed[:92])).to_bytes(4, "little")
    with pytest.raises((BodyCorrupt, UnsupportedBatch, MalformedBatch, BatchTooLarge)):
        Batch.parse(changed).verify()


def test_a_batch_over_the_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(BatchTooLarge) as caught:
        Batch.parse(BATCH).verify(limit_bytes=len(BATCH) - 1)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (len(BATCH), len(BATCH) - 1)
    Batch.parse(BATCH).verify(limit_bytes=len(BATCH))


@pytest.mark.parametrize("short", [0, 16, 10_000])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 60])
def test_the_verdict_on_sound_batches_does_not_depend_on_how_they_are_checked(short: int, count: int) -> None:
    with short_limit(short):
        for codec in ("none", "lz4", "zstd"):
            Batch.parse(build_records(mixed_records(count), codec=codec).data).verify()


def test_no_prefix_of_a_batch_passes() -> None:
    for length in range(len(BATCH)):
        with pytest.raises(NotABatch):
            Batch.parse(BATCH[:length])
