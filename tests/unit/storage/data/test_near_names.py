"""What is suggested to somebody who has misspelt a name."""

from __future__ import annotations

import pytest

from logboom.storage.data.near_names import COMPARED_MAX, NAMES_MAX, TOLD_MAX, near_names

NAMES = ["orders", "orders.eu", "payments", "readings", "test", "_publish", "site.00012.temperature"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("order", ["orders"]),
        ("oorders", ["orders"]),
        ("ordres", ["orders"]),
        ("Orders", ["orders"]),
        ("ORDERS.EU", ["orders.eu"]),
        ("orders-eu", ["orders.eu"]),
        ("orders_eu", ["orders.eu"]),
        ("raedings", ["readings"]),
        ("readngs", ["readings"]),
        ("tset", ["test"]),
        ("site.00x12.temperature", ["site.00012.temperature"]),
        ("publish", []),
        ("_publsh", ["_publish"]),
        ("nothing", []),
        ("x", []),
        ("temperature", []),
    ],
)
def test_a_slip_of_the_finger_is_recognised_and_nothing_else_is(written: str, meant: list[str]) -> None:
    assert near_names(written, NAMES) == meant


def test_few_names_are_told_and_the_nearest_first() -> None:
    assert near_names("event1", [f"event{number}" for number in range(100, 2, -1)])[0] == "event10"
    assert len(near_names("event", [f"event{number}" for number in range(50)])) == TOLD_MAX


def test_of_too_many_names_only_some_are_looked_at() -> None:
    looked = 0

    def names() -> object:
        nonlocal looked
        for looked in range(1, 10 * NAMES_MAX):
            yield f"sensor-{looked}"

    near_names("sensor-x", names())  # type: ignore[arg-type]
    assert looked <= COMPARED_MAX + 1
    near_names("other", names())  # type: ignore[arg-type]
    assert looked <= NAMES_MAX + 1
