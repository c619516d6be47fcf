"""Who did what, and what was refused: records in JSON, in the internal topic `_audit`.

Acts that change how the node is, or who may do what, are all there, with how they ended. Refusals and failed sign-ins
are sampled: the same one from the same host is recorded once a minute, with how often it was; a host that is refused
ever new things is recorded as one that is.

Noting something is never waited for, and never fails. What is noted waits in a bounded queue until it is written;
what does not fit, or cannot be written, is counted, and the count is recorded. A crash takes what was in the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from logboom.batch import Batch, build
from logboom.batch.moment import rfc3339
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.world import World
from logboom.errors import AccessError, ConfigError, LogboomError, SignInFailed, SignInRequired, code_of
from logboom.storage.config import MIB
from logboom.storage.data.topic import RetentionSettings, SegmentSettings, Settings

TOPIC: Final = "_audit"
DONE: Final = "done"
LOST: Final = "lost"
UNKNOWN: Final = "unknown"
SIGN_IN: Final = "sign in"
NOT_ALLOWED: Final = "not-allowed"
"""Also where the caller was told that there is no such topic: he may not know of it."""
QUEUED_MOST: Final = 10_000
WRITTEN_MOST: Final = 1000
"""In one batch."""
RETRY_S: Final = 5.0
SAMPLE_S: Final = 60.0
KEYS_MOST: Final = 4096
"""Different refusals that are remembered."""
KINDS_MOST: Final = 50
"""Different refusals of one principal at one host, in a minute."""
NAME_MOST: Final = 260
DETAIL_BYTES_MOST: Final = 4096
MANY: Final = "*"
DAY_MS: Final = 86_400_000
logger = logging.getLogger("logboom.audit")


class AuditSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool | None = None
    bytes: int = 64 * MIB
    days: int = 90

    def check(self) -> None:
        """Raises ConfigError."""
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"audit.{name}", f"is {value:,}, allowed are {low:,} to {high:,}")

    @property
    def topic_settings(self) -> Settings:
        """Whole segments go: there are several, so that about as much is kept as was said."""
        segment = SegmentSettings(bytes=max(MIB, self.bytes // 8), age_ms=max(1, self.days // 8) * DAY_MS)
        return Settings(segment=segment, retention=RetentionSettings(bytes=self.bytes, age_ms=self.days * DAY_MS))


RANGES: Final = {"bytes": (MIB, 2**40), "days": (1, 36_500)}


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the trail, as JSON."""

    time: str
    who: str
    act: str
    outcome: str
    """`done`; the code of the error it ended with; or `unknown`, where whoever asked did not wait for the end."""
    object: str = ""
    by: str = ""
    address: str = ""
    protocol: str = ""
    detail: dict[str, Any] = {}
    count: int = 1
    through: str = ""
    """Who spoke for him."""


class _Refused(NamedTuple):
    who: str
    host: str
    act: str
    object: str

    @property
    def source(self) -> tuple[str, str]:
        return self.who, self.host


@dataclass(slots=True)
class _Repeats:
    caller: Caller
    outcome: str
    since: float
    count: int = 0
    """Since the last one was recorded."""


class AuditTrail:
    """`is_on` says whether anything is recorded at all."""

    def __init__(self, world: World, is_on: bool) -> None:
        self.is_on = is_on
        self.lost = 0
        """How many records did not fit in the queue, or could not be written, since the start."""
        self._world = world
        self._queue: deque[AuditRecord] = deque()
        self._owed = 0
        """Of the lost ones, those that the trail does not say yet."""
        self._repeats: OrderedDict[_Refused, _Repeats] = OrderedDict()
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._news = asyncio.Event()
        self._ending = asyncio.Event()

    @property
    def _is_closing(self) -> bool:
        return self._ending.is_set()

    def note_act(
        self, caller: Caller, act: str, name: str, error: BaseException | None = None, detail: Mapping[str, Any] = {}
    ) -> None:
        """Something was done, or failed. What was refused by rules is noted already."""
        if self.is_on and not getattr(error, "audited", False):
            self._put(caller, act, name, _outcome(error), _bounded(detail))

    def note_refusal(self, caller: Caller, act: str, name: str, error: LogboomError) -> None:
        if not self.is_on:
            return
        error.audited = True
        name, now = name[:NAME_MOST], self._world.monotonic_s()
        key = _Refused(caller.principal, caller.address.rpartition(":")[0], act, name)
        if key not in self._repeats and self._kinds[key.source] >= KINDS_MOST:
            key = key._replace(act=MANY, object=MANY)
        found = self._repeats.get(key)
        if found is not None and now - found.since < SAMPLE_S:
            found.count += 1
            return
        count = 1 if found is None else found.count + 1
        self._forget(key)
        if len(self._repeats) >= KEYS_MOST:
            self._settle(next(iter(self._repeats)))
        outcome = code_of(error) if isinstance(error, AccessError) else NOT_ALLOWED
        self._repeats[key] = _Repeats(caller, outcome, now)
        self._kinds[key.source] += 1
        self._put(caller, key.act, key.object, outcome, count=count)

    def note_failure(self, caller: Caller, user: str) -> None:
        """A sign-in as this user has failed."""
        self.note_refusal(caller, SIGN_IN, user, SignInFailed())

    def note_stranger(self, caller: Caller) -> None:
        """Somebody has not said who he is, and has to."""
        self.note_refusal(caller, SIGN_IN, "", SignInRequired())

    def _put(
        self, caller: Caller, act: str, name: str, outcome: str, detail: dict[str, Any] | None = None, count: int = 1
    ) -> None:
        if len(self._queue) >= QUEUED_MOST:
            self._lose(count)
            return
        time = str(rfc3339(self._world.now_us()))
        where, through = (caller.by, caller.address, caller.protocol), caller.through
        what = act, outcome, name[:NAME_MOST], *where, detail or {}, count
        self._queue.append(AuditRecord(time, caller.principal, *what, "" if through is None else through.principal))
        self._news.set()

    def _lose(self, count: int) -> None:
        self.lost += count
        self._owed += count

    def _settle(self, key: _Refused) -> None:
        """Record what was counted of a refusal, and forget it."""
        found = self._repeats[key]
        self._forget(key)
        if found.count:
            self._put(found.caller, key.act, key.object, found.outcome, count=found.count)

    def _forget(self, key: _Refused) -> None:
        if self._repeats.pop(key, None) is not None:
            self._kinds[key.source] -= 1
            if not self._kinds[key.source]:
                del self._kinds[key.source]

    def _settle_old(self, least_s: float) -> None:
        now = self._world.monotonic_s()
        for key in [key for key, found in self._repeats.items() if now - found.since >= least_s]:
            self._settle(key)

    async def run(self, append: Callable[[Batch], Awaitable[object]]) -> None:
        """Write what is noted, until it is closed and everything is written."""
        while True:
            if not self._queue and not self._owed and not self._is_closing:
                self._news.clear()
                try:
                    async with asyncio.timeout(SAMPLE_S):
                        await self._news.wait()
                except TimeoutError:
                    self._settle_old(SAMPLE_S)
            if self._is_closing:
                self._settle_old(0.0)
            if self._owed and len(self._queue) < QUEUED_MOST:
                owed, self._owed = self._owed, 0
                self._put(ITSELF, "write audit trail", TOPIC, LOST, count=owed)
            if self._queue:
                await self._write(append)
            elif self._is_closing:
                return

    async def _write(self, append: Callable[[Batch], Awaitable[object]]) -> None:
        records = [self._queue.popleft() for _ in range(min(WRITTEN_MOST, len(self._queue)))]
        try:
            await append(build([msgspec.json.encode(record) for record in records]))
        except LogboomError as error:
            logger.warning("%d records of the audit trail could not be written: %s", len(records), error)
            for record in records:
                self._owed += record.count
                self.lost += 0 if record.outcome == LOST else record.count
            if self._is_closing:
                self._queue.clear()
                self._owed = 0
            else:
                await self._rest()

    async def _rest(self) -> None:
        """A disk that is full is full for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await self._ending.wait()

    def close(self) -> None:
        """`run` returns when what is noted is written, as far as it can be."""
        self._ending.set()
        self._news.set()


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return DONE
    if isinstance(error, asyncio.CancelledError):
        return UNKNOWN  # what was begun goes on
    return code_of(error) if isinstance(error, LogboomError) else "failed"


def _bounded(detail: Mapping[str, Any]) -> dict[str, Any]:
    """What was said about an act, as JSON has it; where that is too much only how much it was."""
    if not detail:
        return {}
    found = msgspec.to_builtins(detail, enc_hook=str, str_keys=True)
    size = len(msgspec.json.encode(found))
    return {"bytes": size} if size > DETAIL_BYTES_MOST else dict(found)
