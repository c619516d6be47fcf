from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from logboom.batch import (
    KIND_LOST,
    NO_TIMESTAMP,
    Batch,
    build,
    build_control,
    build_records,
    facts,
    schema,
    to_table,
)
from logboom.errors import InvalidColumn
from support.effort import strides
from support.mutants.batches import mixed_records, seal, with_body, with_fields
from support.mutants.driver import run_child
from support.mutants.tables import START, Numbers, chain, judge, read_slowly, run


class Note(msgspec.Struct):
    text: str


CONTROL = build_control(Note("control")).data
LOST = build_control(Note("lost"), KIND_LOST, 12).data
VALUES = [b"value-%d" % n for n in range(50)]
KEYS = [b"key-%d" % n for n in range(50)]
MOMENTS = list(range(1_700_000_000_000_000, 1_700_000_000_000_050))
PLAIN = build(VALUES, keys=KEYS, timestamps=MOMENTS).data


def read(data: bytes, columns: tuple[str, ...] | None = None) -> pa.Table:
    stretch = to_table(memoryview(data), *START, columns, few=0)
    assert stretch.failure is None
    return stretch.table


def test_a_stretch_becomes_one_table_and_says_what_comes_next() -> None:
    data = chain([PLAIN, PLAIN, PLAIN], term=5)
    table, next_seqno, next_index, term, size, failure = to_table(memoryview(data), *START, few=0)
    assert table.schema == schema()
    assert table.column("value").to_pylist() == VALUES * 3
    assert table.column("key").to_pylist() == KEYS * 3
    assert table.column("seqno").to_pylist() == list(range(1000, 1150))
    assert (next_seqno, next_index, term, size, failure) == (1150, 10, 5, len(data), None)


def test_an_empty_stretch_has_no_rows_and_the_same_numbers() -> None:
    stretch = to_table(memoryview(b""), 5, 2, few=0)
    assert stretch == (schema().empty_table(), 5, 2, 0, 0, None)


def test_seqnos_and_timestamps_are_one_chunk_and_values_one_per_batch() -> None:
    table = read(chain([PLAIN] * 5))
    assert [table.column(name).num_chunks for name in ("seqno", "timestamp", "value")] == [1, 1, 5]


def test_keys_and_values_are_not_copied() -> None:
    data = chain([PLAIN] * 3)
    memory = pa.py_buffer(data)
    for chunk in read(data).column("value").chunks:
        assert memory.address <= chunk.buffers()[2].address < memory.address + len(data)


def test_the_table_keeps_the_memory_alive() -> None:
    table = read(bytes(bytearray(chain([PLAIN] * 3))))
    assert table.column("value").to_pylist() == VALUES * 3


def test_only_the_columns_asked_for_are_there_in_the_order_asked_for() -> None:
    data = chain([PLAIN, CONTROL, build_records(mixed_records(20)).data, PLAIN])
    for names in (("value",), ("value", "seqno"), ("headers", "key"), ("timestamp",), ("key", "key"), ("channel",)):
        assert read(data, names).schema == schema(names)
        assert judge(data, columns=names) == "sound"


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(InvalidColumn, match="colour"):
        to_table(memoryview(chain([PLAIN])), *START, ["colour"], few=0)


def test_control_batches_are_passed_over() -> None:
    stretch = to_table(memoryview(chain([CONTROL, PLAIN, CONTROL, CONTROL, PLAIN, CONTROL])), *START, few=0)
    assert stretch.failure is None
    assert (stretch.table.num_rows, stretch.next_seqno, stretch.next_index) == (100, 1100, 13)


def test_a_stretch_stops_at_a_lost_batch_with_the_seqnos_it_stands_for() -> None:
    stretch = to_table(memoryview(chain([PLAIN, LOST, PLAIN])), *START, few=0)
    assert stretch.failure == (len(PLAIN), 1050, 1062, "lost, says repair")
    assert (stretch.table.num_rows, stretch.next_seqno, stretch.next_index) == (50, 1050, 8)


def test_a_lost_batch_without_records_is_passed_over() -> None:
    assert judge(chain([PLAIN, build_control(Note("lost"), KIND_LOST).data, PLAIN])) == "sound"


SHAPES = {
    "values": build(VALUES),
    "values and keys": build(VALUES, keys=KEYS),
    "one record": build([b"v"]),
    "64 records": build([b"v"] * 64, keys=[b"k"] * 64),
    "values of no bytes": build([b""] * 9),
    "one timestamp for all": build(VALUES, timestamps=12),
    "a timestamp missing": build(VALUES, timestamps=[None, *MOMENTS[1:]]),
    "timestamps alone": build([None] * 50, timestamps=MOMENTS),
    "keys alone": build([None] * 50, keys=KEYS),
    "nothing": build([None] * 50),
    "a null value": build([None, *VALUES[1:]]),
    "null keys": build(VALUES, keys=[None if n % 3 else key for n, key in enumerate(KEYS)], timestamps=MOMENTS),
    "a null at the end of 64": build([*VALUES, *VALUES[:13], None]),
    "every column": build_records(mixed_records(30)),
    "lz4": build([b"v" * 50] * 50, keys=KEYS, codec="lz4"),
    "zstd": build([b"v" * 50] * 50, timestamps=MOMENTS, codec="zstd"),
    "control": Batch.trusted(CONTROL),
}


@pytest.mark.parametrize("first", SHAPES)
@pytest.mark.parametrize("second", SHAPES)
def test_batches_of_any_two_shapes_make_the_table_that_they_make_one_by_one(first: str, second: str) -> None:
    one, other = SHAPES[first].data, SHAPES[second].data
    assert judge(chain([one, other, other, one, one, other])) == "sound"


def test_all_shapes_at_once_make_the_table_that_they_make_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = chain([batch.data for batch in SHAPES.values()] * 3)
    assert judge(data) == "sound"
    for window in (96, 512, 4096):
        monkeypatch.setattr(facts, "_WINDOW", window)
        assert judge(data) == "sound"


def test_many_absent_rows_share_one_block() -> None:
    batch = build([b""] * 40_000).data
    table = read(chain([batch] * 2))
    assert judge(chain([batch] * 2)) == "sound"
    assert table.column("key").null_count == 80_000
    assert table.column("tags").num_chunks == 3


def test_many_rows_with_one_timestamp_share_one_block() -> None:
    data = chain([build([b""] * 40_000, timestamps=12).data] * 2)
    assert judge(data) == "sound"
    chunks = read(data).column("timestamp").chunks
    assert [len(chunk) for chunk in chunks] == [32_768, 32_768, 14_464]
    assert len({chunk.buffers()[1].address for chunk in chunks}) == 1


def test_batches_with_many_records_are_read_over_their_own_offsets() -> None:
    data = chain([build([b"v"] * 5000, keys=[None, *[b"k"] * 4999]).data, build([b"v"] * 5000).data] * 2)
    assert judge(data) == "sound"
    memory = pa.py_buffer(data)
    for chunk in read(data).column("value").chunks:
        assert all(memory.address <= part.address < memory.address + len(data) for part in chunk.buffers())


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_offset_that_goes_back_is_noticed_in_a_batch_with_many_records_too(number: int) -> None:
    sound = build([b"v"] * 5000).data
    body = bytearray(sound[96:])
    at = 632 + 4 * 4000
    assert body[at : at + 4] == (4000).to_bytes(4, "little")
    body[at : at + 4] = (3998).to_bytes(4, "little")
    broken = with_body(sound, bytes(body))
    stretch = to_table(memoryview(chain([sound] * number + [broken] + [sound] * 2)), *START, few=0)
    assert (stretch.failure is not None, stretch.table.num_rows) == (True, 5000 * number)


@pytest.mark.parametrize("keep", [1, 8, 95, 96, 100, len(PLAIN) - 8, len(PLAIN) - 1])
def test_a_part_of_a_batch_at_the_end_is_a_failure(keep: int) -> None:
    data = chain([PLAIN, PLAIN])[: len(PLAIN) + keep]
    assert judge(data) != "sound"
    stretch = to_table(memoryview(data), *START, few=0)
    assert stretch.failure is not None
    assert (stretch.failure.offset, stretch.failure.seqno_until, stretch.table.num_rows) == (len(PLAIN), None, 50)


def test_memory_at_an_odd_address_reads_the_same() -> None:
    data = chain([PLAIN, build_records(mixed_records(20)).data, PLAIN])
    shifted = memoryview(b"x" + data)[1:]
    assert to_table(shifted, *START, few=0).table.equals(read(data))


@pytest.mark.parametrize("numbers", [Numbers(1001, 7), Numbers(1000, 8), Numbers(0, 0), Numbers(2**64, 7)])
def test_a_stretch_with_other_numbers_is_refused(numbers: Numbers) -> None:
    assert "stands where" in judge(chain([PLAIN, PLAIN]), numbers)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_batch_is_noticed(missing: int) -> None:
    batches = [chain([PLAIN], Numbers(1000 + 50 * n, 7 + n)) for n in range(4)]
    del batches[missing]
    assert "stands where" in judge(b"".join(batches))


def test_an_index_left_out_is_noticed_where_the_seqnos_go_on() -> None:
    assert "stands where" in judge(chain([PLAIN]) + chain([PLAIN], Numbers(1050, 9)))


def test_numbers_that_no_log_reaches_are_not_taken_for_0() -> None:
    assert "stands where" in judge(chain([PLAIN], Numbers(0, 0)), Numbers(2**62, 2**62))


def test_a_body_for_no_records_is_refused() -> None:
    empty = with_body(build(VALUES).data, bytes(8), record_count=0)
    assert judge(chain([PLAIN]) + chain([empty], Numbers(1050, 8))) == "a data batch without records"


def test_more_records_without_a_body_than_allowed_are_refused() -> None:
    empty = with_body(build([None]).data, b"", record_count=65_537)
    assert judge(chain([PLAIN]) + chain([empty], Numbers(1050, 8))) == "65537 records without a body"


@pytest.mark.parametrize("seqno", [2**62 - 60, 2**62 - 50, 2**62, 2**63 - 101, 2**63 - 100, 2**63 - 60, 2**64 - 1])
def test_numbers_near_the_end_of_what_a_log_can_count_give_the_verdict_of_batch(seqno: int) -> None:
    first = chain([PLAIN], Numbers(seqno, 2**62 - 1))
    second = chain([PLAIN], Numbers((seqno + 50) % 2**64, 2**62))
    verdict = judge(first + second, Numbers(seqno, 2**62 - 1))
    assert (verdict == "sound") == (seqno + 100 < 2**63)


@pytest.mark.parametrize("stride", strides(3))
def test_every_flipped_byte_gives_the_verdict_of_batch(stride: int) -> None:
    data = chain([build(VALUES[:3], keys=KEYS[:3], timestamps=MOMENTS[:3]).data, CONTROL, build(VALUES[:20]).data] * 2)
    for place in range(0, len(data), stride):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[place] ^= flip
            assert judge(bytes(broken)) != "sound"


def test_every_flipped_bit_under_mended_checksums_gives_the_verdict_of_batch() -> None:
    numbers, front, end = Numbers(1050, 8), chain([PLAIN]), chain([PLAIN], Numbers(1053, 9))
    batch = chain([build([b"a", b"bcd", None], keys=[b"k", b"", b"l"], timestamps=[7, 8, 9]).data], numbers)
    verdicts = set()
    for place in range(40, len(batch)):
        for bit in range(8):
            broken = bytearray(batch)
            broken[place] ^= 1 << bit
            verdicts.add(judge(front + seal(broken) + end))
    assert verdicts > {
        "sound",
        "offsets go backwards",
        "offsets do not start at 0",
        "padding after a column is not zero",
        "trailing bits or padding of a bitmap are not zero",
        "min_timestamp and max_timestamp do not match the records",
    }


@pytest.mark.parametrize("value", [-1, 2**31 - 1, -(2**31), 2**31 - 300, 2, 4, 5])
@pytest.mark.parametrize("place", range(5))
def test_an_offset_that_leads_elsewhere_gives_the_verdict_of_batch(place: int, value: int) -> None:
    batch = build([b"a", b"bcd", b"e", b""])
    body = bytearray(batch.body)
    body[8 + 4 * place : 12 + 4 * place] = value.to_bytes(4, "little", signed=True)
    numbers = Numbers(1050, 8)
    broken = chain([with_body(batch.data, body)], numbers)
    judge(chain([PLAIN]) + broken + chain([PLAIN], Numbers(1054, 9)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("record_count", 0),
        ("record_count", 49),
        ("record_count", 51),
        ("record_count", 2**32 - 1),
        ("columns", 0),
        ("columns", 3),
        ("columns", 6),
        ("columns", 8),
        ("columns", 71),
        ("body_size", 0),
        ("version", 2),
        ("kind", 3),
        ("encoding", 2),
        ("codec", 1),
        ("flags", 1),
        ("flags", 8),
        ("producer_seq", 2**31),
        ("min_timestamp", MOMENTS[0] + 1),
        ("max_timestamp", MOMENTS[-1] + 1),
        ("min_timestamp", NO_TIMESTAMP),
        ("size", 96),
        ("size", 0),
        ("size", 2**32 - 8),
        ("magic", b"LGBN"),
        ("batch_crc", 1),
        ("header_crc", 1),
    ],
)
def test_a_wrong_header_field_is_refused_as_batch_refuses_it(field: str, value: object) -> None:
    wrong = with_fields(chain([PLAIN], Numbers(1050, 8)), **{field: value})
    data = chain([PLAIN]) + wrong + chain([PLAIN], Numbers(1100, 9))
    assert judge(data) != "sound"
    stretch = to_table(memoryview(data), *START, few=0)
    assert stretch.failure is not None
    assert (stretch.failure.offset, stretch.table.num_rows) == (len(PLAIN), 50)


def test_a_failure_among_batches_of_every_shape_leaves_what_lies_before_it() -> None:
    shapes = [batch.data for batch in SHAPES.values()]
    data = bytearray(chain(shapes * 2))
    whole = read_slowly(memoryview(bytes(data)), START)
    assert whole.failure is None
    offset = 0
    for shape in shapes * 2:
        broken = bytearray(data)
        broken[offset + len(shape) - 1] ^= 1
        judge(bytes(broken))
        offset += len(shape)


@pytest.mark.parametrize("count", [700, pytest.param(10_000, marks=pytest.mark.soak)])
def test_broken_stretches_in_a_child_process_give_the_verdict_of_batch(count: int) -> None:
    verdicts = run_child("tables", 1, count)
    assert "sound" in verdicts
    assert "refused" in verdicts


def test_a_failing_stretch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes) -> str:
        raise IndexError("out of range")

    monkeypatch.setattr("support.mutants.tables.judge", fail)
    with pytest.raises(AssertionError, match=r"stretch\(7, 2\): IndexError: out of range"):
        run(7, 1, start=2)
