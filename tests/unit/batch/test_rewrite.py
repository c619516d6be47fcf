"""A batch in other bytes is the same batch, and a batch that is not sound is never made to look so."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import HEADER_SIZE, KIND_LOST, Batch, Producer, Record, build, build_control, build_records, stamp
from logboom.batch import codec as codecs
from logboom.batch.header import PADDING_MASK
from logboom.batch.rewrite import equal, recompressed, without_producer
from logboom.errors import BatchError, BodyCorrupt, InvalidColumn
from logboom.storage.tail import Floor, Lost
from support.mutants.batches import mixed_records, with_body, with_fields

CODECS = sorted(codecs.CODECS)
PRODUCER = Producer(77, 5, 1234)
MAY_CHANGE = {"size", "codec", "flags", "batch_crc", "header_crc"}


def stamped(batch: Batch, synced: int = 3) -> Batch:
    """As a log stores it."""
    front = stamp(batch.data[:HEADER_SIZE], 1_000, 42, 1_700_000_000_000_000, 9, synced)
    return Batch.parse(front + batch.data[HEADER_SIZE:])


def repetitive(codec: str = "none", count: int = 100) -> Batch:
    return stamped(build([b"a" * 100] * count, keys=[b"key"] * count, codec=codec, producer=PRODUCER))


def with_flipped_byte(batch: Batch, position: int) -> Batch:
    data = bytearray(batch.data)
    data[position] ^= 1
    return Batch.parse(bytes(data))


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("count", [1, 7, 65, 500])
def test_every_header_field_but_size_codec_padding_and_checksums_stays(source: str, target: str, count: int) -> None:
    batch = stamped(build_records(mixed_records(count), codec=source, producer=PRODUCER))
    result = recompressed(batch, codecs.CODECS[target], None)
    before, after = batch.header._asdict(), result.header._asdict()
    assert {name for name in before if before[name] != after[name]} <= MAY_CHANGE
    assert before["flags"] & ~PADDING_MASK == after["flags"] & ~PADDING_MASK
    assert list(result.records()) == list(batch.records())
    assert result.body == batch.body
    assert equal(batch, result)


@pytest.mark.parametrize("codec", [codecs.LZ4, codecs.ZSTD])
def test_a_plain_batch_that_gains_gets_the_codec(codec: int) -> None:
    batch = repetitive()
    result = recompressed(batch, codec, 3)
    assert result.header.codec == codec
    assert result.header.size * 5 < batch.header.size
    Batch.parse(result.data).verify()


def test_an_lz4_batch_becomes_a_smaller_zstd_batch() -> None:
    batch = stamped(build([b"%d and so on and on" % number for number in range(2_000)], codec="lz4"))
    result = recompressed(batch, codecs.ZSTD, 9)
    assert (batch.header.codec, result.header.codec) == (codecs.LZ4, codecs.ZSTD)
    assert result.header.size < batch.header.size
    assert equal(batch, result)


def test_a_higher_level_gains_more() -> None:
    choose = Random(1)
    words = [choose.randbytes(6) for _ in range(200)]
    batch = stamped(build([b" ".join(choose.choices(words, k=20)) for _ in range(500)]))
    sizes = [recompressed(batch, codecs.ZSTD, level).header.size for level in (1, 19)]
    assert sizes[1] < sizes[0] < batch.header.size


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_batch_that_has_the_codec_already_stays_untouched(codec: str) -> None:
    batch = repetitive(codec)
    assert recompressed(batch, codecs.CODECS[codec], 19) is batch


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4, codecs.ZSTD])
@pytest.mark.parametrize(
    "batch",
    [build([b"x"]), build([None]), build([Random(2).randbytes(5_000)]), build([b"a" * 1000] * 9, codec="zstd")],
    ids=["tiny", "tombstone", "random", "packed"],
)
def test_a_batch_that_would_not_shrink_stays_untouched(batch: Batch, codec: int) -> None:
    batch = stamped(batch)
    assert recompressed(batch, codec, 3) is batch


def test_a_batch_that_compression_had_made_larger_can_be_stored_plainly() -> None:
    plain = build([Random(3).randbytes(4_000)])
    batch = Batch.parse(with_body(plain.data, bytes(plain.body), codecs.LZ4))
    result = recompressed(batch, codecs.NONE, None)
    assert result.header.codec == codecs.NONE
    assert result.data == plain.data


@pytest.mark.parametrize(
    "batch",
    [build_control(Floor(7)), build_control(Lost("gone " * 500), KIND_LOST, 12)],
    ids=["control", "lost"],
)
def test_a_batch_without_records_stays_untouched(batch: Batch) -> None:
    batch = stamped(batch)
    assert recompressed(batch, codecs.ZSTD, 3) is batch


def test_damage_is_never_given_fresh_checksums() -> None:
    batch = repetitive()
    for position in range(HEADER_SIZE, batch.header.size, 97):
        for rewritten in (lambda damaged: recompressed(damaged, codecs.ZSTD, 3), without_producer):
            with pytest.raises(BatchError):
                rewritten(with_flipped_byte(batch, position))


def test_a_codec_that_lies_is_noticed_before_anybody_gets_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, other = repetitive(), build([b"b" * 100] * 100, keys=[b"key"] * 100)
    wrong = codecs.deflate(other.body, codecs.ZSTD)
    monkeypatch.setattr(codecs, "deflate", lambda *_: wrong)
    with pytest.raises(BodyCorrupt, match="not the same"):
        recompressed(batch, codecs.ZSTD, 3)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", [Producer(), Producer(2**64 - 1, 2**16 - 1, 2**31 - 1)])
def test_another_producer_makes_a_new_batch_of_the_same_records(codec: str, producer: Producer) -> None:
    batch = stamped(build_records(mixed_records(70), codec=codec, producer=PRODUCER))
    result = without_producer(batch, producer)
    assert result.data == build_records(mixed_records(70), codec=codec, producer=producer).data
    Batch.parse(result.data).verify()
    assert not any(result.data[8:40])


@pytest.mark.parametrize("producer", [Producer(2**64), Producer(1, 2**16), Producer(1, 0, 2**31), Producer(-1)])
def test_a_producer_that_does_not_fit_is_refused(producer: Producer) -> None:
    with pytest.raises(InvalidColumn, match="producer"):
        without_producer(repetitive(), producer)


@pytest.mark.parametrize(
    "fields",
    [
        {"base_seqno": 1_001},
        {"index": 43},
        {"append_time": 5},
        {"term": 8},
        {"producer_id": 78},
        {"producer_epoch": 6},
        {"producer_seq": 1_235},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_batches_with_another_stamp_or_producer_are_not_equal(fields: dict[str, Any]) -> None:
    batch = repetitive()
    assert not equal(batch, Batch.parse(with_fields(batch.data, **fields)))


def test_when_a_batch_was_synced_makes_no_difference() -> None:
    batch = build([b"a", b"b"])
    assert equal(stamped(batch, 1), stamped(batch, 2))


def test_batches_with_other_records_are_not_equal() -> None:
    one, other = (stamped(build([value], timestamps=[5])) for value in (b"a", b"b"))
    assert not equal(one, other)
    assert not equal(one, stamped(build([b"a"], timestamps=[6])))
    assert not equal(one, stamped(build([b"a" * 9], timestamps=[5])))


def test_a_batch_that_is_not_sound_equals_nothing() -> None:
    batch = repetitive()
    with pytest.raises(BodyCorrupt):
        equal(batch, with_flipped_byte(batch, HEADER_SIZE + 9))


RECORDS = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=10),
        st.none() | st.integers(-(2**62), 2**62),
        st.none() | st.text(max_size=5),
        st.lists(st.text(max_size=3), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=90,
)


@given(RECORDS, st.sampled_from(CODECS), st.sampled_from([1, 2]), st.integers(1, 12))
def test_any_batch_is_equal_to_itself_recompressed(records: list[Record], source: str, codec: int, level: int) -> None:
    batch = stamped(build_records(records, codec=source, producer=PRODUCER))
    result = recompressed(batch, codec, level)
    assert result is batch or result.header.size < batch.header.size
    again = Batch.parse(result.data)
    assert equal(batch, again)
    assert list(again.records()) == list(batch.records())
