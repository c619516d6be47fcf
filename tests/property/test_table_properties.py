from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import NO_TIMESTAMP, Record, build_control, build_records, schema
from support.mutants.tables import Numbers, chain, judge


class Note(msgspec.Struct):
    text: str


names = st.text(max_size=5)
moments = st.none() | st.integers(NO_TIMESTAMP + 1, 2**63 - 1)
plain = st.builds(Record, st.binary(max_size=20), key=st.binary(max_size=5))
timed = st.builds(Record, st.binary(max_size=20), timestamp=st.integers(0, 2**50))
gaps = st.builds(Record, st.none() | st.binary(max_size=9), key=st.none() | st.just(b"k"), timestamp=moments)
full = st.builds(
    Record,
    st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    timestamp=moments,
    channel=st.none() | st.text(min_size=1, max_size=8),
    tags=st.lists(names, max_size=3).map(tuple),
    headers=st.lists(st.tuples(names, st.binary(max_size=4)), max_size=3).map(tuple),
)
mixes = st.one_of(*(st.lists(kind, min_size=1, max_size=6) for kind in (plain, plain, timed, gaps, full)))
counts = st.integers(1, 100) | st.sampled_from([63, 64, 65, 128, 2000])
codecs = st.sampled_from(["none", "none", "none", "lz4", "zstd"])


def built(rows: list[Record], count: int, codec: str) -> bytes:
    return bytes(build_records((rows * count)[:count], codec=codec).data)


data_batches = st.builds(built, mixes, counts, codecs)
controls = st.builds(lambda text: bytes(build_control(Note(text)).data), names)
stretches = st.lists(data_batches | data_batches | data_batches | controls, max_size=8)
numbers = st.builds(Numbers, st.integers(0, 2**62 + 2**20), st.integers(1, 2**62 + 2**20))
columns = st.none() | st.lists(st.sampled_from(schema().names), min_size=1, max_size=4)


@given(stretches, numbers, columns)
def test_any_stretch_is_the_table_that_its_batches_make_one_by_one(
    batches: list[bytes], place: Numbers, names: Sequence[str] | None
) -> None:
    assert judge(chain(batches, place), place, names) == "sound"


@given(stretches.filter(bool), st.data())
def test_a_stretch_with_any_byte_changed_is_read_up_to_the_batch_it_is_in(
    batches: list[bytes], draw: st.DataObject
) -> None:
    data = bytearray(chain(batches))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    assert judge(bytes(data)) != "sound"


@given(st.binary(max_size=300))
def test_bytes_from_anywhere_are_a_failure_at_the_first(data: bytes) -> None:
    assert (judge(data) == "sound") == (not data)
    assert judge(b"LGBM" + data) != "sound"
