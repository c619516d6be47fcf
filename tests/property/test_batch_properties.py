from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    Batch,
    Producer,
    Record,
    build,
    build_records,
    build_table,
    encode,
    stamp,
)
from support.mutants.batches import judge

timestamps = st.none() | st.integers(NO_TIMESTAMP + 1, 2**63 - 1)
names = st.text(max_size=5)
records = st.builds(
    Record,
    st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    timestamp=timestamps,
    channel=st.none() | st.text(min_size=1, max_size=8),
    tags=st.lists(names, max_size=3).map(tuple),
    headers=st.lists(st.tuples(names, st.binary(max_size=4)), max_size=3).map(tuple),
)
sparse = st.builds(Record, st.none() | st.just(b"v"), key=st.none() | st.just(b"k"), timestamp=st.none() | st.just(5))
few = st.lists(records, min_size=1, max_size=8)
many = st.tuples(st.lists(records, min_size=1, max_size=5), st.sampled_from([7, 9, 16, 17, 48, 49, 100]))
mixes = few | st.lists(sparse, min_size=1, max_size=40) | many.map(lambda parts: (parts[0] * parts[1])[: parts[1]])
codecs = st.sampled_from(["none", "lz4", "zstd"])


def seen(rows: list[Record], base: int, append_time: int) -> list[Record]:
    return [
        msgspec.structs.replace(row, seqno=seqno, timestamp=append_time if row.timestamp is None else row.timestamp)
        for seqno, row in enumerate(rows, base)
    ]


@given(mixes, codecs, st.integers(0, 2**62), st.integers(-(2**63) + 1, 2**63 - 1))
def test_any_mix_of_records_is_read_back_as_it_was_written(
    rows: list[Record], codec: str, base: int, append_time: int
) -> None:
    data = build_records(rows, codec=codec).data
    batch = Batch.parse(stamp(data[:HEADER_SIZE], base, 1, append_time, 1, 1) + bytes(data[HEADER_SIZE:]))
    batch.verify()
    assert list(batch.records()) == seen(rows, base, append_time)


@given(mixes)
def test_whatever_the_builder_makes_is_sound_to_every_check_and_every_reader(rows: list[Record]) -> None:
    assert judge(bytes(build_records(rows).data)) == "sound"


@given(mixes)
def test_the_same_records_give_the_same_bytes_by_every_way_in(rows: list[Record]) -> None:
    batch = build_records(rows)
    columns: dict[str, Any] = {
        "keys": [row.key for row in rows],
        "timestamps": [row.timestamp for row in rows],
        "channels": [row.channel for row in rows],
        "tags": [list(row.tags) for row in rows],
        "headers": [list(row.headers) for row in rows],
    }
    assert build([row.value for row in rows], **columns).data == batch.data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "SHORT", 0)
        assert build_records(rows).data == batch.data
    if all(row.timestamp is not None for row in rows):
        assert build_table(batch.to_arrow()).data == batch.data


@given(mixes, codecs)
def test_compression_changes_how_a_body_is_stored_and_nothing_else(rows: list[Record], codec: str) -> None:
    plain, packed = build_records(rows), Batch.parse(build_records(rows, codec=codec).data)
    assert packed.body == plain.body
    assert packed.header.size <= plain.header.size
    keep = ("kind", "encoding", "record_count", "body_size", "columns", "min_timestamp", "max_timestamp")
    assert [getattr(packed.header, name) for name in keep] == [getattr(plain.header, name) for name in keep]


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**31 - 1),
    st.tuples(
        st.integers(0, 2**62), st.integers(1, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1)
    ),
    st.integers(0, 2**40),
)
def test_what_producer_and_leader_write_into_the_header_is_read_back(
    number: int, epoch: int, seq: int, place: tuple[int, int, int, int], synced: int
) -> None:
    data = build([b"v"], producer=Producer(number, epoch, seq)).data
    batch = Batch.parse(stamp(data[:HEADER_SIZE], *place, synced) + bytes(data[HEADER_SIZE:]))
    batch.verify()
    header = batch.header
    assert (header.producer_id, header.producer_epoch, header.producer_seq) == (number, epoch, seq)
    assert (header.base_seqno, header.index, header.append_time, header.term) == place
    assert header.synced == min(synced, 2**32 - 1)


@given(st.binary(max_size=300))
def test_bytes_from_anywhere_are_refused_with_a_named_error(data: bytes) -> None:
    assert judge(data) == "NotABatch"
    assert judge(b"LGBM" + data) in ("NotABatch", "HeaderCorrupt")


@given(few | mixes, st.integers(0, 10), st.integers(-3, 110), st.data())
def test_the_first_record_at_a_time_is_the_one_a_scan_finds(
    rows: list[Record], append_time: int, skip: int, data: st.DataObject
) -> None:
    wire = build_records(rows).data
    batch = Batch.parse(stamp(wire[:HEADER_SIZE], 100, 1, append_time, 1, 1) + bytes(wire[HEADER_SIZE:]))
    moments = batch.timestamps()
    moment = data.draw(st.sampled_from(moments)) + data.draw(st.sampled_from([0, 1, -1]))
    found = [seqno for seqno, at in zip(batch.seqnos(), moments, strict=True) if at >= moment and seqno >= 100 + skip]
    assert batch.first_at(moment, 100 + skip) == (found[0] if found else None)
