"""Topics searched and sorted by what they are and do, a page at a time, however many there are.

An order of names is made once for each way to sort, and lasts until the next sample, or until topics come or go; a
search filters it. Only the topics of a page are described.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.monitor.activity import Activity, ActivityRequest, ActivitySort, TopicActivity
from logboom.broker.monitor.lags import Lags
from logboom.broker.monitor.pulses import Pulses, size_of
from logboom.broker.slices import SLICE, slices

LIMIT_MAX: Final = 500
"""Topics on a page."""
SEARCH_MAX: Final = 256
"""Characters; no name is longer, and what is behind them is not looked for."""
DESCRIBED: Final = 16
"""Topics that are described in one go."""
COUNTED: Final = 16
"""Topics whose cursors are counted in one go: each may have hundreds."""
NAMES: Final = 2048
"""Names that are searched in one go."""
Order = tuple[ActivitySort, bool, bool]
"""By what, descending, with internal topics."""
Sees = Callable[[str], bool] | None
"""Which topics somebody may know of; None where that is all."""


class Ranking:
    def __init__(self, catalog: Catalog, pulses: Pulses, lags: Lags) -> None:
        self._catalog = catalog
        self._pulses = pulses
        self._lags = lags
        self._orders: dict[Order, list[str]] = {}
        self._made_for = -1
        """The sample."""
        self._unsorted: list[Hosted] = []
        self._sorted: list[Hosted] = []
        self._making = asyncio.Lock()

    async def page(self, request: ActivityRequest, number: int, interval_ms: int, sees: Sees = None) -> Activity:
        """As of the sample before this one, without those that `sees` leaves out."""
        names = await self._order((request.sort, request.descending, request.internal), number)
        if sees is not None:
            names = [name async for some in slices(names, NAMES) for name in some if sees(name)]
        matched = await _search(names, request.search)
        offset, limit = max(0, request.offset), min(max(0, request.limit), LIMIT_MAX)
        shown: list[TopicActivity] = []
        async for some in slices(matched[offset : offset + limit], DESCRIBED):
            for name in some:
                hosted = self._catalog.get(name)
                if hosted is not None:
                    shown.append(self._describe(hosted, number, *await self._lags.of_topic(hosted)))
        return Activity(interval_ms, len(names), len(matched), shown)

    async def _order(self, order: Order, number: int) -> list[str]:
        async with self._making:
            unsorted = self._catalog.unsorted()
            if unsorted != self._unsorted:
                self._unsorted, self._sorted, self._orders = unsorted, self._catalog.all(), {}
            if number != self._made_for:
                self._orders, self._made_for = {}, number
            found = self._orders.get(order)
            if found is None:
                found = self._orders[order] = await self._make(*order, number)
            return found

    async def _make(self, sort: ActivitySort, descending: bool, internal: bool, number: int) -> list[str]:
        """Those that are equal stay in the order of their names, either way."""
        names: list[str] = []
        keys: list[float] = []
        async for some in slices(self._sorted, COUNTED if sort == "lag" else SLICE):
            wanted = [hosted for hosted in some if internal or not hosted.topic.name.startswith("_")]
            names += [hosted.topic.name for hosted in wanted]
            if sort == "lag":
                keys += [await self._furthest(hosted) for hosted in wanted]
            elif sort != "name":
                keys += map(self._key(sort, number), wanted)
        if sort == "name":
            return names[::-1] if descending else names
        await asyncio.sleep(0)
        places = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
        return [names[place] for place in places]

    def _key(self, sort: ActivitySort, number: int) -> Callable[[Hosted], float]:
        if sort == "size":
            return size_of
        if sort == "records":
            return _records
        if sort == "newest":
            return lambda hosted: _newest(hosted) or 0
        rates, rate = self._pulses.rates, attrgetter(sort)
        return lambda hosted: float(rate(rates(hosted, number)))

    async def _furthest(self, hosted: Hosted) -> float:
        _, lag = await self._lags.of_topic(hosted)
        return -1 if lag is None else lag

    def _describe(self, hosted: Hosted, number: int, cursors: int, lag: int | None) -> TopicActivity:
        rates, topic = self._pulses.rates(hosted, number), hosted.topic
        came, went = self._pulses.recent(hosted, number)
        refusals = [writer.log.refusal for writer in hosted.open_writers]
        refusals += [str(writer) for writer in hosted.writers if isinstance(writer, Exception)]
        damaged = [refusal for refusal in refusals if refusal is not None]
        return TopicActivity(
            name=topic.name,
            id=topic.id,
            partitions=len(hosted.writers),
            records=_records(hosted),
            size_bytes=size_of(hosted),
            newest=_newest(hosted),
            retention=topic.settings.retention,
            refused=hosted.refused or next(iter(damaged), None),
            damaged=len(damaged),
            records_in=rates.records_in,
            bytes_in=rates.bytes_in,
            records_out=rates.records_out,
            bytes_out=rates.bytes_out,
            recent_in=came if any(came) else [],
            recent_out=went if any(went) else [],
            cursors=cursors,
            lag=lag,
        )


async def _search(names: Sequence[str], search: str) -> Sequence[str]:
    words = list(dict.fromkeys(search[:SEARCH_MAX].lower().split()))
    if not words:
        return names
    found: list[str] = []
    async for some in slices(names, NAMES):
        found += [name for name in some if all(word in name.lower() for word in words)]
    return found


def _records(hosted: Hosted) -> int:
    return sum([writer.log.committed - writer.log.first for writer in hosted.open_writers])


def _newest(hosted: Hosted) -> int | None:
    return max((writer.log.append_time for writer in hosted.open_writers if writer.log.next), default=None)
