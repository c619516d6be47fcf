"""Long lists are gone through and sorted a slice at a time, and come out as if they had been at once."""

from __future__ import annotations

import asyncio
import random

import pytest

from logboom.broker.slices import RUN, in_order, slices


@pytest.mark.parametrize("count", [0, 1, RUN, RUN + 1, 5 * RUN + 7])
def test_a_list_is_sorted_as_at_once_and_equal_things_stay_as_they_are(count: int) -> None:
    chance = random.Random(count)
    things = [(chance.randrange(50), number) for number in range(count)]
    assert asyncio.run(in_order(things, lambda thing: thing[0])) == sorted(things, key=lambda thing: thing[0])


def test_slices_are_the_whole_list() -> None:
    async def gather() -> list[int]:
        return [thing async for some in slices(range(1000), 64) for thing in some]

    assert asyncio.run(gather()) == list(range(1000))


def test_others_have_their_turn_while_a_long_list_is_sorted() -> None:
    async def story() -> int:
        turns = 0
        sorting = asyncio.create_task(in_order(range(10 * RUN), lambda number: -number))
        while not sorting.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(story()) > 20
