"""What users and groups may take of the node, counted once for all front-ends: who is to rest, and who is refused.

A caller is bound by every quota that speaks of him: his own, else everybody's (`*`), and those of his groups, each of
which all its members share. The one that makes him wait longest counts. The node itself and its operator are bound by
none. Where no quota is set, `is_on` says so, and nothing else need be asked.

Of rates it is said how long somebody is to rest; who waits is the broker, before it gives more, and the front-end,
before it takes more. Counts are looked at when a connection or a topic is about to be one more.

Nothing is kept but in memory: after a restart nobody owes anything. Everybody's quota has an allotment for each of
OWNERS_MOST users; those that owe nothing are forgotten first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from logboom.access.principal import ANONYMOUS, EVERYBODY, GROUP
from logboom.access.quota import INTO, RATES, Quota
from logboom.access.rule_book import UNBOUND
from logboom.broker.access.access_state import AccessState
from logboom.broker.access.allotment import Allotment
from logboom.broker.api.access import QuotaUsage
from logboom.broker.api.appends import Part
from logboom.broker.api.insight import QuotaStats
from logboom.broker.caller import Caller
from logboom.errors import QuotaExceeded

OWNERS_MOST: Final = 16_384
CHUNK_BYTES_LEAST: Final = 64 * 1024
"""A read is not cut smaller than this, whatever the quota."""
REST_S: Final = 5.0
"""After so long whoever rests asks again."""
SHOWN_MOST: Final = 20
"""Of those whom everybody's quota binds."""


class Rest(NamedTuple):
    """That somebody is to wait, and for what."""

    seconds: float
    kind: str
    allotment: Allotment


class Quotas:
    def __init__(self, state: AccessState, monotonic_s: Callable[[], float]) -> None:
        self.is_on = False
        """Whether there is any quota."""
        self.makers: Mapping[str, int] = {}
        """How many topics each principal has made."""
        self.throttled: dict[str, int] = dict.fromkeys(RATES, 0)
        """How often somebody began to wait, by what for."""
        self.throttled_s: dict[str, float] = dict.fromkeys(RATES, 0.0)
        self.resting = 0
        """How many wait now."""
        self.on_change: list[Callable[[], None]] = []
        """Called where those who rest are to ask again."""
        self._state = state
        self._now = monotonic_s
        self._known: dict[str, Quota] = {}
        self._allotments: dict[tuple[str, str], Allotment] = {}
        """By whom the quota names, and by the owner."""
        self._of_callers: dict[tuple[str, frozenset[str]], tuple[Allotment, ...]] = {}
        self._present: Counter[str] = Counter()
        """Open connections, by user and by group."""
        self._changed = asyncio.Event()
        self._is_closed = False
        state.on_change.append(self._refresh)

    def close(self) -> None:
        """Nobody rests any longer."""
        self._is_closed, self.is_on = True, False
        self._wake()

    def _refresh(self) -> None:
        """Users or quotas are others now."""
        self._of_callers.clear()
        quotas, now = self._state.quotas, self._now()
        if quotas == self._known:
            return
        self._known = dict(quotas)
        self.is_on = bool(quotas) and not self._is_closed
        for (who, owner), allotment in list(self._allotments.items()):
            quota = quotas.get(who)
            if quota is None:
                del self._allotments[who, owner]
            else:
                allotment.change(quota, now)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        for call in self.on_change:
            call()

    # Who is bound by what.

    def _groups_of(self, principal: str) -> Collection[str]:
        user = self._state.users.get(principal)
        return () if user is None else user.groups

    def _names_of(self, caller: Caller) -> list[str]:
        """By which he is counted."""
        groups = caller.groups.union(self._groups_of(caller.principal))
        return [caller.principal, *(f"{GROUP}{group}" for group in groups)]

    def _of(self, caller: Caller) -> tuple[Allotment, ...]:
        key = caller.principal, caller.groups
        found = self._of_callers.get(key)
        if found is None:
            if len(self._of_callers) >= OWNERS_MOST:
                self._of_callers.clear()
            found = self._of_callers[key] = tuple(self._find(caller))
        return found

    def _find(self, caller: Caller) -> Iterator[Allotment]:
        quotas, principal = self._state.quotas, caller.principal
        if principal in UNBOUND:
            return
        for name in self._names_of(caller):
            if name in quotas:
                yield self._allotment(name, name, quotas[name])
        if principal not in quotas and principal != ANONYMOUS and EVERYBODY in quotas:
            yield self._allotment(EVERYBODY, principal, quotas[EVERYBODY])

    def _allotment(self, who: str, owner: str, quota: Quota) -> Allotment:
        found = self._allotments.get((who, owner))
        if found is None:
            if len(self._allotments) >= OWNERS_MOST + len(self._known):
                self._forget()
            found = self._allotments[who, owner] = Allotment(who, owner, quota, self._now())
        return found

    def _forget(self) -> None:
        """Those of everybody's quota that owe nothing; where most owe something, the oldest too."""
        now = self._now()
        several = [key for key in self._allotments if key[0] == EVERYBODY]
        fresh = [key for key in several if self._allotments[key].is_fresh(now)]
        for key in (*fresh, *several)[: max(len(fresh), len(several) // 4)]:
            self._allotments.pop(key, None)
        self._of_callers.clear()

    # Rates.

    def charge(self, caller: Caller, **taken: int) -> None:
        """So much was taken, by the names of rates."""
        now = self._now()
        for allotment in self._of(caller):
            for kind, debt in allotment.debts.items():
                amount = taken.get(kind, 0)
                if amount:
                    debt.charge(amount, now)

    def charge_parts(self, caller: Caller, parts: Collection[Part]) -> None:
        """These were given to the broker."""
        if not self._of(caller):
            return
        headers = [batch.header for part in parts for batch in part.batches]
        size, records = sum(header.size for header in headers), sum(header.record_count for header in headers)
        self.charge(caller, bytes_in=size, records_in=records)

    def rest_of(self, caller: Caller, kinds: Collection[str] = INTO) -> Rest | None:
        """How long he is to wait before he takes more of these; None where he need not."""
        if self._is_closed:
            return None
        now, longest = self._now(), None
        for allotment in self._of(caller):
            for kind, debt in allotment.debts.items():
                if kind in kinds:
                    rest_s = debt.rest_s(now)
                    if rest_s > (0.0 if longest is None else longest.seconds):
                        longest = Rest(rest_s, kind, allotment)
        return longest

    async def rest(self, caller: Caller, kinds: Collection[str]) -> None:
        """Returns when he may take more of these."""
        rest = self.rest_of(caller, kinds)
        if rest is None:
            return
        self.begin(rest)
        try:
            while rest is not None:
                await self._wait(rest)
                rest = self.rest_of(caller, kinds)
        finally:
            self.resting -= 1

    async def _wait(self, rest: Rest) -> None:
        began = self._now()
        try:
            async with asyncio.timeout(min(rest.seconds, REST_S)):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self.note(rest, self._now() - began)

    def begin(self, rest: Rest) -> None:
        """Somebody begins to wait; whoever says so takes one from `resting` in the end."""
        self.throttled[rest.kind] += 1
        self.resting += 1

    def note(self, rest: Rest, waited_s: float) -> None:
        """He has waited so long."""
        self.throttled_s[rest.kind] += waited_s
        rest.allotment.throttled_s += waited_s

    def read_bytes(self, caller: Caller, wanted: int) -> int:
        """What he may be given at once: what is much more than a second's worth would only make the next wait long."""
        rates = (allotment.quota.bytes_out for allotment in self._of(caller))
        return min([wanted, *(max(CHUNK_BYTES_LEAST, rate) for rate in rates if rate is not None)])

    # Counts.

    def enter(self, caller: Caller) -> list[str]:
        """He has one more connection; by what names he is counted, for `leave`. Raises QuotaExceeded."""
        if caller.principal in UNBOUND:
            return []
        if self.is_on:
            self._check(caller, "connections", self._present.__getitem__)
        names = self._names_of(caller)
        self._present.update(names)
        return names

    def leave(self, names: Collection[str]) -> None:
        for name in names:
            self._present[name] -= 1
            if self._present[name] <= 0:
                del self._present[name]

    def check_topics(self, caller: Caller) -> None:
        """Whether he may make one more. Raises QuotaExceeded."""
        if self.is_on:
            self._check(caller, "topics", self._made_by)

    def _check(self, caller: Caller, kind: str, count_of: Callable[[str], int]) -> None:
        for allotment in self._of(caller):
            most = getattr(allotment.quota, kind)
            if most is not None and count_of(allotment.owner) >= most:
                raise QuotaExceeded(allotment.who, kind, most)

    def _made_by(self, owner: str) -> int:
        if not owner.startswith(GROUP):
            return self.makers.get(owner, 0)
        group = owner.removeprefix(GROUP)
        return sum(count for maker, count in self.makers.items() if group in self._groups_of(maker))

    # What there is to see.

    def stats(self) -> QuotaStats:
        waited_s = {kind: round(seconds, 6) for kind, seconds in self.throttled_s.items()}
        return QuotaStats(len(self._state.quotas), self.resting, dict(self.throttled), waited_s)

    def usage_of(self, caller: Caller) -> list[QuotaUsage]:
        """Of every quota that binds him."""
        return [self._usage(allotment) for allotment in self._of(caller)]

    def usage_as_set(self, who: str) -> QuotaUsage:
        """Of one quota: of everybody's, only how long all of them have waited."""
        quota = self._state.quotas[who]
        if who != EVERYBODY:
            return self._usage(self._allotment(who, who, quota))
        waited_s = sum(allotment.throttled_s for allotment in self._everybodys())
        return QuotaUsage(who, who, quota, {}, 0.0, round(waited_s, 3))

    def _everybodys(self) -> list[Allotment]:
        return [allotment for allotment in self._allotments.values() if allotment.who == EVERYBODY]

    def usage_under(self, who: str) -> list[QuotaUsage]:
        """Of one quota: of everybody's, those who have waited longest for it."""
        if who != EVERYBODY:
            return [self.usage_as_set(who)]
        found = self._everybodys()
        found.sort(key=lambda allotment: (-allotment.throttled_s, allotment.owner))
        return [self._usage(allotment) for allotment in found[:SHOWN_MOST]]

    def _usage(self, allotment: Allotment) -> QuotaUsage:
        now, owner = self._now(), allotment.owner
        used = {kind: round(debt.pace(now), 3) for kind, debt in allotment.debts.items()}
        if allotment.quota.connections is not None:
            used["connections"] = self._present.get(owner, 0)
        if allotment.quota.topics is not None:
            used["topics"] = self._made_by(owner)
        rest_s = max((debt.rest_s(now) for debt in allotment.debts.values()), default=0.0)
        return QuotaUsage(
            allotment.who, owner, allotment.quota, used, round(rest_s, 3), round(allotment.throttled_s, 3)
        )


def no_quotas() -> Quotas:
    """Of those who have none: nobody rests."""
    return Quotas(AccessState(), lambda: 0.0)
