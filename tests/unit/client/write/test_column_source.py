"""What a caller gives is taken in pieces of a bounded size, each record once and in its order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from logboom.client.write.column_source import ColumnSource
from logboom.client.write.slices import BuildColumns
from logboom.errors import InvalidColumn

VALUES = [b"%0*d" % (number % 50, number) for number in range(1000)]
TEXTS = [value.decode() for value in VALUES]


def take_all(source: ColumnSource, size_bytes: int = 1000) -> list[BuildColumns]:
    return list(iter(lambda: source.take(size_bytes), None))


def values_of(piece: BuildColumns) -> list[bytes | None]:
    values = piece.plain_values()
    assert values is not None
    return values


@pytest.mark.parametrize("given", [
    VALUES, tuple(VALUES), iter(VALUES), dict.fromkeys(range(1000)) and (value for value in VALUES),
    pa.array(VALUES), pa.chunked_array([VALUES[:300], VALUES[300:]]), pa.array(TEXTS, pa.large_string()),
    pa.array(VALUES).dictionary_encode(), pa.array(VALUES).cast(pa.binary_view()),
    pd.Series(VALUES), pd.Series(VALUES, index=range(1000, 0, -1)), pd.Series(TEXTS).astype("category"),
    pd.Series(TEXTS, dtype="string[pyarrow]"), TEXTS, [bytearray(value) for value in VALUES],
    [*TEXTS[:500], *VALUES[500:]], np.array(VALUES, dtype=object), np.array(VALUES),
], ids=lambda given: type(given).__name__)  # fmt: skip
def test_all_records_come_in_their_order_in_pieces_that_are_nearly_full(given: Any) -> None:
    pieces = take_all(ColumnSource(given))
    assert [value for piece in pieces for value in values_of(piece)] == VALUES
    assert max(piece.size for piece in pieces) <= 1200
    assert min(piece.size for piece in pieces[:-1]) >= 800


def test_text_counts_by_its_bytes() -> None:
    pieces = take_all(ColumnSource(["日本語" * 10] * 1000))
    assert max(piece.size for piece in pieces) <= 1000
    assert sum(piece.count for piece in pieces) == 1000


def test_of_an_iterable_little_more_is_taken_than_is_asked_for() -> None:
    given = 0

    def entries() -> Iterator[bytes]:
        nonlocal given
        for number in range(10_000):
            given += 1
            yield bytes(10 if number < 5000 else 10_000)

    source = ColumnSource(entries())
    while (piece := source.take(10_000)) is not None:
        assert piece.size <= 10_008
        assert given - source.taken <= (1000 if source.taken < 4000 else 600)
    assert source.taken == given == 10_000


@pytest.mark.parametrize("kind", [list, tuple, pd.Series, lambda given: np.array(given, dtype=object)],
                         ids=["list", "tuple", "Series", "ndarray"])  # fmt: skip
def test_records_that_are_suddenly_large_make_no_large_piece(kind: Any) -> None:
    pieces = take_all(ColumnSource(kind([b"1"] * 2000 + [bytes(5000)] * 100 + [b"2"] * 2000)), 10_000)
    assert max(piece.size for piece in pieces) <= 10_100
    assert sum(piece.count for piece in pieces) == 4100


def test_columns_of_other_lengths_are_refused_before_anything_is_taken_where_lengths_are_known() -> None:
    def entries() -> Iterator[bytes]:
        pytest.fail("nothing is to be taken")
        yield b""

    for keys in ([b"k"] * 999, pa.array([b"k"] * 999), dict.fromkeys(range(999)), np.array([b"k"] * 1001)):
        with pytest.raises(InvalidColumn, match=r"keys: (999|1001) entries for 1000 records"):
            ColumnSource(VALUES, keys=keys, tags=entries())


@pytest.mark.parametrize(("keys", "said"), [(999, "999 entries for"), (1001, "more entries than the 1000 records")])
def test_columns_of_other_lengths_are_refused_when_it_shows(keys: int, said: str) -> None:
    source = ColumnSource(iter(VALUES), keys=[b"k"] * keys)
    with pytest.raises(InvalidColumn, match=said):
        take_all(source)
    assert source.taken > 900


def test_a_piece_with_an_entry_that_cannot_be_taken_is_not_taken() -> None:
    source = ColumnSource([*VALUES[:900], 7, *VALUES[901:]])
    with pytest.raises(InvalidColumn, match="int is neither bytes nor text"):
        take_all(source)
    assert 800 < source.taken <= 900


def test_nothing_is_no_piece() -> None:
    nothing: Any
    for nothing in ([], (), iter(()), pa.array([], pa.binary()), pd.Series([], dtype=object), np.array([])):
        assert ColumnSource(nothing).take(1000) is None


def test_columns_that_are_all_null_in_a_piece_are_columns() -> None:
    source = ColumnSource(pd.Series([None] * 500 + [b"1"] * 500), keys=pd.Series([None] * 1000))
    assert sum(piece.count for piece in take_all(source)) == 1000
