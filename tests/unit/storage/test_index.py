"""The sparse index finds a place at or before what is asked for, and trusts no file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logboom.storage.index import SparseIndex, Summary

STEPS = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 5), st.integers(-50, 50)), min_size=1, max_size=200)
SUMMARY = Summary(1, 2, 3, 4, 5)


def build_index(steps: list[tuple[int, int, int]]) -> tuple[SparseIndex, list[tuple[int, int, int, int]]]:
    """An index, and every batch as (position, seqno, index, maximum timestamp up to and with it)."""
    index = SparseIndex(1000)
    position, seqno, newest = 0, 10, -(2**63)
    batches = []
    for number, (size, count, timestamp) in enumerate(steps, start=7):
        index.add(seqno, number, position, newest)
        newest = max(newest, timestamp)
        batches.append((position, seqno, number, newest))
        position += size
        seqno += count
    return index, batches


@given(STEPS)
def test_every_lookup_is_at_or_before_its_batch_and_not_far(steps: list[tuple[int, int, int]]) -> None:
    index, batches = build_index(steps)
    for (position, seqno, number, _), (_, count, _) in zip(batches, steps, strict=True):
        for place in (index.by_index(number), index.by_position(position), index.by_seqno(seqno) if count else None):
            if place is not None:
                assert place in [batch[:3] for batch in batches]
                assert position - 1900 < place.position <= position
    for timestamp in range(-60, 60):
        place = index.by_time(timestamp)
        start = place.position if place else 0
        assert all(newest < timestamp for position, _, _, newest in batches if position < start)


@given(STEPS)
def test_an_index_survives_its_file(steps: list[tuple[int, int, int]]) -> None:
    index, _ = build_index(steps)
    decoded = SparseIndex.decode(index.encode(SUMMARY))
    assert decoded is not None
    assert decoded[0].encode(SUMMARY) == index.encode(SUMMARY)
    assert decoded[1] == SUMMARY


def test_a_file_with_any_bit_flipped_or_cut_is_not_an_index() -> None:
    data = build_index([(400, 1, 5)] * 20)[0].encode(SUMMARY)
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        assert SparseIndex.decode(bytes(broken)) is None
        assert SparseIndex.decode(data[:position]) is None
