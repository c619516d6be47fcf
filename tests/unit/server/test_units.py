"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest

from logboom.server.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("64MiB", 64 << 20), ("64 mib", 64 << 20), ("1.5kB", 1500), ("2TB", 2 * 10**12)],
)
def test_sizes_have_units_and_a_plain_number_is_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250", 250), ("10s", 10_000), ("0.5s", 500), ("5m", 300_000), ("1h30m", 5_400_000), ("1w", 604_800_000)],
)
def test_durations_have_units_and_a_plain_number_is_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "MiB", "-1", "64MX", "1e3", "1.2.3s", "0.3B", "9" * 50, "10 m 5", "٣s", "1d-2h"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_size(text)
    with pytest.raises(ValueError, match=r".*"):
        parse_duration(text)


@pytest.mark.parametrize("amount", [0, 1, 999, 1000, 1024, 90_000, 3_600_000, 604_800_000, 16 << 20, 2**40, 2**40 + 1])
def test_what_is_written_reads_as_the_same(amount: int) -> None:
    assert parse_size(format_size(amount)) == amount
    assert parse_duration(format_duration(amount)) == amount
