"""What `logboom top` asks a node: one look at a time, and another connection where one is lost.

A look is a frozen value: everything that one picture is made of. No look asks for more topics than the picture has rows
for. Nothing is kept between looks but the samples of the last minutes, the last findings and one connection, which
`close` ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from logboom.broker.api import CursorInfo, NodeStats, TopicInfo
from logboom.broker.caller import EVERYBODY
from logboom.broker.monitor.activity import Activity, ActivityRequest, ActivitySort, History, Incident, TopicHistory
from logboom.broker.monitor.checkup import Complaint, examine
from logboom.client.link.address import Servers, parse_servers
from logboom.client.remote import RemoteBroker
from logboom.errors import ConnectionLost, ProtocolError, RemoteProtocolError, TopicError, Unavailable

HISTORY_MAX: Final = 300
ANSWER_S: Final = 10.0
"""A node that takes longer for one look counts as gone."""
CHECKUP_S: Final = 15.0
"""How often the node is examined, at the most: that walks through all of its topics and cursors."""
CHECKUP_SHARE: Final = 50
"""And it rests so many times as long as that took."""


class View(msgspec.Struct, frozen=True):
    """What somebody wants to see."""

    search: str = ""
    sort: ActivitySort = "records_in"
    descending: bool = True
    offset: int = 0
    rows: int = 20
    topic: str | None = None
    """The one whose details are shown."""

    def request(self, offset: int | None = None) -> ActivityRequest:
        start = self.offset if offset is None else offset
        return ActivityRequest(self.search, self.sort, self.descending, start, min(500, max(1, self.rows)))


class Detail(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    info: TopicInfo | None
    """None where there is no such topic any more."""
    history: TopicHistory | None = None
    cursors: Sequence[CursorInfo] = ()
    """Those that lag most come first."""


class NodeLook(msgspec.Struct, frozen=True):
    address: str
    view: View
    """That it answers; with the offset there really is."""
    stats: NodeStats
    history: History
    activity: Activity
    incidents: list[Incident]
    findings: list[Complaint] | None = None
    """None where nobody has examined the node yet."""
    detail: Detail | None = None


class Looker:
    """Asks one of the servers, whichever answers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = parse_servers(servers)
        self._broker: RemoteBroker | None = None
        self._address = ""
        self._history: History | None = None
        self._since = 0
        self._findings: list[Complaint] | None = None
        self._examine_at = 0.0

    async def look(self, view: View) -> NodeLook:
        """Raises LogboomError; the next look connects again."""
        try:
            async with asyncio.timeout(ANSWER_S):
                broker = self._broker or await self._connect()
                return await self._ask(broker, view)
        except BaseException as error:
            was_connected = self._broker is not None
            await self.close()
            if isinstance(error, TimeoutError):
                where = self._address or ", ".join(map(str, self._servers))
                raise ConnectionLost(f"{where} did not answer within {ANSWER_S:g} s") from None
            if was_connected and isinstance(error, ProtocolError):
                reason = f"the node at {self._address} may be of another release than this command: {error}"
                raise RemoteProtocolError(reason) from None
            raise

    @property
    def checkup_due(self) -> bool:
        return self._broker is not None and time.monotonic() >= self._examine_at

    async def check_up(self) -> list[Complaint]:
        """What is wrong with the node. Raises LogboomError."""
        began, broker = time.monotonic(), self._broker
        if broker is None:
            raise ConnectionLost("there is no connection to the node")
        try:
            async with asyncio.timeout(3 * ANSWER_S):
                self._findings = await examine(broker, EVERYBODY)
        except TimeoutError:
            self._findings = None
            await self.close()
            raise ConnectionLost(f"{self._address} did not answer within {3 * ANSWER_S:g} s") from None
        finally:
            now = time.monotonic()
            self._examine_at = now + max(CHECKUP_S, CHECKUP_SHARE * (now - began))
        return self._findings

    async def close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()

    async def _connect(self) -> RemoteBroker:
        failure: Unavailable | None = None
        for server in self._servers:
            try:
                self._broker = await RemoteBroker.connect(replace(server.profile, servers=str(server)), retry=False)
            except Unavailable as error:
                failure = failure or error
            else:
                # Another one, or the same that has forgotten what it counted: its own account is asked for anew.
                self._address, self._since, self._findings, self._examine_at = str(server), 0, None, 0.0
                return self._broker
        assert failure is not None
        raise failure

    async def _ask(self, broker: RemoteBroker, view: View) -> NodeLook:
        stats, news, activity, incidents = await asyncio.gather(
            broker.stats(), broker.history(self._since), broker.activity(view.request()), broker.incidents()
        )
        if view.offset and view.offset >= activity.matched:
            # There are fewer than there were: the last page there is.
            view = msgspec.structs.replace(view, offset=max(0, activity.matched - view.rows))
            activity = await broker.activity(view.request())
        detail = None if view.topic is None else await _describe(broker, view.topic)
        self._history = history = join_histories(self._history, news)
        self._since = history.at[-1] if history.at and history.at[-1] <= stats.now else 0
        return NodeLook(self._address, view, stats, history, activity, incidents, self._findings, detail)


async def _describe(broker: RemoteBroker, topic: str) -> Detail:
    try:
        info, history, cursors = await asyncio.gather(
            broker.describe_topic(topic), broker.topic_history(topic), broker.list_cursors(topic)
        )
    except TopicError:
        return Detail(topic, None)
    ordered = sorted(cursors, key=lambda cursor: (-(cursor.lag or 0), cursor.cursor, cursor.partition))
    return Detail(topic, info, history, ordered)


def join_histories(before: History | None, news: History) -> History:
    """The samples of both, in the order of time, as many as a node would have kept."""
    if before is None or before.interval_ms != news.interval_ms:
        return news
    kept = len(before.at)
    if news.at:
        kept = sum(moment < news.at[0] for moment in before.at)
    return _joined(before, news, kept)


def _joined(before: History, news: History, kept: int) -> History:
    """Column by column."""
    columns: dict[str, Any] = {}
    for name in History.__struct_fields__[1:]:
        old, new = getattr(before, name), getattr(news, name)
        if isinstance(old, list):
            columns[name] = [*old[:kept], *new][-HISTORY_MAX:]
        else:
            lists = [[*getattr(old, part)[:kept], *getattr(new, part)][-HISTORY_MAX:] for part in old.__struct_fields__]
            columns[name] = type(old)(*lists)
    return History(news.interval_ms, **columns)
