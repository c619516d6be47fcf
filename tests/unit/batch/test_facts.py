from __future__ import annotations

import random
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
import pytest
from crc32c import crc32c

from logboom.batch import HEADER_SIZE, Batch, build, facts, to_table
from logboom.batch.facts import sum_up
from logboom.batch.header import SIGNED_END, STAMP_SIZE
from support.mutants.tables import START, chain, judge

if TYPE_CHECKING:
    from logboom.batch.facts import Aside

NOISE = random.Random(3)
SIZES = (0, 1, 7, 8, 100, 5_000, 70_000)


def noisy_batch() -> memoryview:
    return build([NOISE.randbytes(NOISE.choice(SIZES)) for _ in range(NOISE.randrange(1, 9))]).data


STRETCH = chain([noisy_batch() for _ in range(42)])


def batches_of(data: bytes) -> list[bytes]:
    found = []
    while data:
        batch = Batch.parse(data)
        found.append(bytes(batch.data))
        data = data[len(batch.data) :]
    return found


def expected(batches: list[bytes], spans: list[int]) -> list[int]:
    sizes = np.array([len(batch) for batch in batches], np.uint64)
    seeds = np.array([crc32c(batch[STAMP_SIZE:SIGNED_END]) for batch in batches], np.uint64)
    crcs = np.array([Batch.parse(batch).header.batch_crc for batch in batches], np.uint64)
    return sum_up(seeds, crcs, sizes, np.cumsum(sizes), np.array(spans))


@pytest.mark.parametrize("spans", [[0], [0, 1], [0, 20], [0, 5, 6, 30, 41]])
def test_the_checksums_of_batches_add_up_to_the_one_of_all_their_bytes(spans: list[int]) -> None:
    batches = batches_of(STRETCH)
    ends = [*spans[1:], len(batches)]
    assert expected(batches, spans) == [
        crc32c(b"".join(batches[begin:end])) for begin, end in zip(spans, ends, strict=True)
    ]


def test_one_batch_that_is_as_large_as_a_batch_can_be_adds_up_as_well() -> None:
    batches = batches_of(chain([build([bytes(60 << 20)]).data, build([b"v"]).data]))
    assert expected(batches, [0]) == [crc32c(b"".join(batches))]


def on_a_thread(call: Callable[[], None]) -> Callable[[], None]:
    thread = Thread(target=call)
    thread.start()
    return thread.join


@pytest.fixture(params=[None, on_a_thread], ids=["here", "aside"])
def aside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Aside | None:
    monkeypatch.setattr(facts, "ASIDE_BYTES", 0)
    found: Aside | None = request.param
    return found


def test_a_sound_stretch_is_read_whole(aside: Aside | None) -> None:
    assert judge(STRETCH) == "sound"
    stretch = to_table(memoryview(STRETCH), *START, few=0, aside=aside)
    assert (stretch.failure, stretch.size) == (None, len(STRETCH))


@pytest.mark.parametrize("number", [0, 1, 17, 40, 41])
@pytest.mark.parametrize("place", [STAMP_SIZE + 40, HEADER_SIZE, -1])
def test_a_wrong_byte_in_any_batch_stops_the_stretch_there(number: int, place: int, aside: Aside | None) -> None:
    batches = batches_of(STRETCH)
    broken = bytearray(batches[number])
    broken[place] ^= 0x10
    data = b"".join([*batches[:number], bytes(broken), *batches[number + 1 :]])
    stretch = to_table(memoryview(data), *START, few=0, aside=aside)
    assert stretch.failure is not None
    assert stretch.next_index == START.first_index + number
    assert stretch.size == sum(map(len, batches[:number]))


def test_wrong_bytes_in_two_batches_stop_the_stretch_at_the_first(aside: Aside | None) -> None:
    batches = [bytearray(batch) for batch in batches_of(STRETCH)]
    for number in (30, 12):
        batches[number][-1] ^= 1
    stretch = to_table(memoryview(b"".join(batches)), *START, few=0, aside=aside)
    assert stretch.failure is not None
    assert stretch.next_index == START.first_index + 12
