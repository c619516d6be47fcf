"""A rate that may go into debt, on a clock of the test's own."""

from __future__ import annotations

import pytest

from logboom.access.quota import Quota
from logboom.broker.access.allotment import DEBT_S_MOST, PACE_S, Allotment, RateDebt


def test_what_is_free_in_one_second_can_be_taken_at_once() -> None:
    debt = RateDebt(100, 0.0)
    debt.charge(100, 0.0)
    assert debt.rest_s(0.0) == 0
    debt.charge(50, 0.0)
    assert debt.rest_s(0.0) == 0.5


def test_a_debt_is_paid_off_at_the_rate_and_no_more_than_a_second_is_saved_up() -> None:
    debt = RateDebt(100, 0.0)
    debt.charge(400, 0.0)
    assert debt.rest_s(0.0) == 3
    assert debt.rest_s(2.0) == 1
    assert debt.rest_s(1000.0) == 0
    debt.charge(150, 1000.0)
    assert debt.rest_s(1000.0) == 0.5


def test_over_a_long_time_as_much_is_taken_as_the_rate_gives_whatever_the_pieces() -> None:
    debt, now, taken = RateDebt(1000, 0.0), 0.0, 0
    for piece in [1, 7000, 20, 999, 12345] * 50:
        now += debt.rest_s(now)
        debt.charge(piece, now)
        taken += piece
    now += debt.rest_s(now)
    assert taken == pytest.approx(1000 * (now + 1))


def test_another_rate_counts_for_what_is_owed_already() -> None:
    debt = RateDebt(10, 0.0)
    debt.charge(1010, 0.0)
    assert debt.rest_s(0.0) == 100
    debt.change(1000, 0.0)
    assert debt.rest_s(0.0) == 1


def test_nobody_waits_for_ever_for_what_he_took_once() -> None:
    debt = RateDebt(1, 0.0)
    debt.charge(2**40, 0.0)
    assert debt.rest_s(0.0) == DEBT_S_MOST


def test_a_clock_that_goes_back_gives_nothing() -> None:
    debt = RateDebt(10, 100.0)
    debt.charge(30, 100.0)
    assert debt.rest_s(50.0) == 2
    assert debt.rest_s(101.0) == 1


def test_the_pace_is_what_is_taken_now() -> None:
    debt = RateDebt(10**9, 0.0)
    for second in range(100):
        debt.charge(500, float(second))
    assert debt.pace(99.5) == pytest.approx(500, rel=0.1)
    assert debt.pace(99.5 + 10 * PACE_S) < 1


def test_a_changed_quota_keeps_what_is_owed_and_forgets_what_is_limited_no_more() -> None:
    allotment = Allotment("bob", "bob", Quota(requests=10, bytes_in=10), 0.0)
    allotment.debts["requests"].charge(30, 0.0)
    allotment.change(Quota(requests=20, records_in=5), 0.0)
    assert set(allotment.debts) == {"requests", "records_in"}
    assert allotment.debts["requests"].rest_s(0.0) == 1
    assert not allotment.is_fresh(0.0)
    assert allotment.is_fresh(60.0)
