"""What one quota gives to one of those it binds: a user, a group, or all strangers; how much of it was taken.

A rate may go into debt: what was taken is charged when it is known, and whoever owes something waits until it is paid
off, at the rate of the quota. What is free in one second can be taken at once. Another rate counts from now on, for
what is owed already too. Nothing here looks at a clock.
"""

from __future__ import annotations

from math import exp
from typing import Final

from logboom.access.quota import RATES, Quota

BURST_S: Final = 1.0
"""What is not taken can be taken later, for so long."""
DEBT_S_MOST: Final = 3600.0
"""Nobody waits longer for what he has taken once."""
PACE_S: Final = 10.0
"""Over so long what is taken now is averaged."""


class RateDebt:
    """One rate of an allotment."""

    __slots__ = ("_at", "_owed", "_pace", "rate")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._at = now
        self._owed = -rate * BURST_S
        """Below 0 it is free."""
        self._pace = 0.0

    def charge(self, amount: int, now: float) -> None:
        self._settle(now)
        self._owed = min(self._owed + amount, self.rate * DEBT_S_MOST)
        self._pace += amount / PACE_S

    def rest_s(self, now: float) -> float:
        """How long until nothing is owed."""
        self._settle(now)
        return max(0.0, self._owed / self.rate)

    def pace(self, now: float) -> float:
        """What is taken each second, about."""
        self._settle(now)
        return self._pace

    def change(self, rate: int, now: float) -> None:
        self._settle(now)
        self.rate = rate

    def is_fresh(self, now: float) -> bool:
        """Whether forgetting it would change nothing."""
        self._settle(now)
        return self._owed <= -self.rate * BURST_S

    def _settle(self, now: float) -> None:
        passed_s = now - self._at
        if passed_s > 0:
            self._at = now
            self._owed = max(self._owed - passed_s * self.rate, -self.rate * BURST_S)
            self._pace *= exp(-passed_s / PACE_S)


class Allotment:
    __slots__ = ("debts", "owner", "quota", "throttled_s", "who")

    def __init__(self, who: str, owner: str, quota: Quota, now: float) -> None:
        self.who = who
        """Whom the quota names."""
        self.owner = owner
        """Whose this is: the same, but where the quota is everybody's a user."""
        self.quota = Quota()
        self.debts: dict[str, RateDebt] = {}
        self.throttled_s = 0.0
        """How long its owner has waited for it."""
        self.change(quota, now)

    def change(self, quota: Quota, now: float) -> None:
        self.quota, old = quota, self.debts
        self.debts = {}
        for kind in RATES:
            rate = getattr(quota, kind)
            if rate is None:
                continue
            rate = max(1, rate)  # another node, or a hand, may have written less
            debt = old.get(kind)
            if debt is None:
                debt = RateDebt(rate, now)
            else:
                debt.change(rate, now)
            self.debts[kind] = debt

    def is_fresh(self, now: float) -> bool:
        return all(debt.is_fresh(now) for debt in self.debts.values())
