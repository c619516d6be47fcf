"""What the broker does by itself, from when it is open until it closes: upkeep, the state file, and stages that expire.

Each chore ends by itself once the broker closes. What fails is tried again; a failed sync stops the node's writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from logboom.broker.admission import Admission
from logboom.broker.append.sync_rounds import SyncRounds, logger
from logboom.broker.catalog import Catalog
from logboom.broker.config import BrokerConfig
from logboom.broker.publish.publisher import Publisher
from logboom.broker.publish.stages import Stages
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.errors import LogboomError, SyncFailed
from logboom.storage.data.directory import DataDirectory

STATE_SYNC_S: Final = 1.0
"""How long after a commit the state file is synced: until then a damaged end may be taken for a torn one."""
EXPIRE_S: Final = 60.0
"""How often names are looked for that nobody will publish under any more."""


class Chores:
    def __init__(
        self,
        data: DataDirectory,
        config: BrokerConfig,
        catalog: Catalog,
        rounds: SyncRounds,
        upkeep: Upkeep,
        stages: Stages,
        publisher: Callable[[], Publisher],
        admission: Admission,
        wake: asyncio.Event,
        ending: asyncio.Event,
    ) -> None:
        """`wake` is set when there may be work for upkeep, `ending` when the broker closes."""
        self._data = data
        self._config = config
        self._catalog = catalog
        self._rounds = rounds
        self._upkeep = upkeep
        self._stages = stages
        self._publisher = publisher
        self._admission = admission
        self._wake = wake
        self._ending = ending

    def begin(self) -> list[Coroutine[Any, Any, None]]:
        return [self._keep_up(), self._keep_stages(), self._keep_state()]

    async def _keep_up(self) -> None:
        """Retention, hooks, recompression, scrubbing; as often as they ask for it."""
        while not self._admission.closing:
            self._wake.clear()
            again_at: int | None = None
            if self._rounds.failure is None:
                try:
                    async with self._catalog.changing, self._rounds.pause():
                        again_at = self._upkeep.step(self._rounds.world.now_us())
                    if self._catalog.deletions.is_owed:
                        async with self._catalog.changing:
                            await asyncio.to_thread(self._catalog.deletions.settle)
                except Exception:
                    logger.exception("upkeep failed; it is tried again")
            every_s = self._config.upkeep.retention_every_ms / 1000
            wait_s = every_s if again_at is None else (again_at - self._rounds.world.now_us()) / 1e6
            if wait_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(min(wait_s, every_s)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _keep_stages(self) -> None:
        """Throw away what nobody wants any more, until the broker is closed."""
        async with asyncio.TaskGroup() as group:
            tending = group.create_task(self._stages.tend())
            while not self._admission.closing:
                try:
                    async with asyncio.timeout(EXPIRE_S):
                        await self._ending.wait()
                except TimeoutError:
                    with suppress(LogboomError):
                        await self._publisher().expire()
            tending.cancel()

    async def _keep_state(self) -> None:
        """The disk learns from time to time what was synced of the logs, above all of those that are idle then.

        Twice after the last round: where a thread has a log, the state file learns of the round a little later.
        """
        synced = seen = -1
        while not self._admission.closing and self._rounds.failure is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), STATE_SYNC_S)
            count = self._rounds.counts.syncs
            if count == synced or self._admission.closing:
                continue
            try:
                await asyncio.to_thread(self._data.sync_state)
            except SyncFailed as error:
                self._rounds.fail(error, error.__cause__)
            synced, seen = seen, count


async def drain(rounds: SyncRounds) -> None:
    """Until everything that was taken is synced and answered."""
    while rounds.failure is None:
        unsynced = [writer for writer in rounds.writers if writer.has_work or writer.unsynced_bytes]
        if not unsynced and rounds.is_quiet:
            return
        for writer in unsynced:
            rounds.want(writer)
        await asyncio.sleep(0.002)
