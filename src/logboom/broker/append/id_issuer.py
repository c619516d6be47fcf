"""Gives producer ids to writers that ask for one; the file of those that were given is kept ahead, in the background.

A copy gives none: its source does. Where the file cannot be written there are no more ids, and writers make their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from logboom.broker.admission import Admission
from logboom.broker.append.producer_ids import ProducerIds
from logboom.broker.append.sync_rounds import SyncRounds, logger
from logboom.storage.data.directory import DataDirectory

Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class IdIssuer:
    def __init__(self, rounds: SyncRounds, admission: Admission, spawn: Spawn) -> None:
        self._rounds = rounds
        self._admission = admission
        self._spawn = spawn
        self._ids: ProducerIds | None = None
        self._reserving: asyncio.Task[None] | None = None

    async def open(self, data: DataDirectory, now_ms: int) -> None:
        """Above all that the logs know."""
        self._ids = await asyncio.to_thread(ProducerIds.open, data.files.disk, data.path, now_ms, self._seen_id())
        await self._reserve()

    def _seen_id(self) -> int:
        return max((writer.log.highest_issued for writer in self._rounds.writers), default=0)

    async def _reserve(self) -> None:
        assert self._ids is not None
        try:
            await asyncio.to_thread(self._ids.reserve)
        except (OSError, RuntimeError) as error:
            logger.warning("no producer ids can be given out: %s; writers make their own", error)
        finally:
            self._reserving = None

    def issue(self) -> int:
        """A producer id that no writer has had; 0 where there is none."""
        if self._ids is None or self._admission.source is not None:
            return 0
        if self._ids.is_low and self._reserving is None and not self._admission.closing:
            self._reserving = self._spawn(self._reserve())
        return self._ids.next()

    def is_foreign(self, producer_id: int) -> bool:
        """Whether another node has given it out."""
        return self._ids is not None and producer_id > self._ids.highest

    def outrun(self) -> None:
        """The logs may know higher ones by now."""
        if self._ids is not None:
            self._ids.outrun(self._seen_id())
