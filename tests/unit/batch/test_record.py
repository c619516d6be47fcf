from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from logboom.batch import Record, microseconds


def test_a_record_is_immutable() -> None:
    record = Record(b"v")
    with pytest.raises(AttributeError):
        record.value = b"w"  # type: ignore[misc]


def test_a_record_needs_only_a_value() -> None:
    assert Record(b"v") == Record(b"v", None, None, None, (), (), None)


def test_the_time_of_a_record_is_its_timestamp_in_utc() -> None:
    assert Record(b"v", timestamp=1_500_000).time == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert Record(b"v", timestamp=-1).time == datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    assert Record(b"v").time is None


@pytest.mark.parametrize(
    "moment", [datetime(2024, 2, 29, 12, 30, 15, 123456), datetime(1, 1, 1), datetime(9999, 12, 31)]
)
def test_microseconds_and_time_are_each_others_inverse(moment: datetime) -> None:
    assert Record(b"v", timestamp=microseconds(moment)).time == moment.replace(tzinfo=UTC)


def test_a_datetime_without_a_zone_is_taken_as_utc() -> None:
    assert microseconds(datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert microseconds(datetime(1970, 1, 1, 3, tzinfo=timezone(timedelta(hours=3)))) == 0
