"""What a node knows of the pipeline: follows `_pipeline` in its own broker, and says what is archived of its logs.

The log is folded once before the node serves anybody: else a reader that stands in the archive would be told that its
records are gone. It is short, and of what it names nothing is opened. What cannot be folded is told, and tried again;
until then what was known before holds.

Who reads the archive and does not find a file may be sooner than the news of a result that has another: for those the
log is looked at once more, up to its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from logboom.broker.api import LogCalls
from logboom.broker.caller import ITSELF
from logboom.broker.read.archives import ArchivedLog
from logboom.errors import LogboomError, ShuttingDown
from logboom.results.archived import ArchivedLogReader, find_archives
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import PipelineState
from logboom.results.place_rules import PlaceRules

WAIT_MS: Final = 30_000
RETRY_S: Final = 5.0
RENEW_S: Final = 10.0
REFUSED_MAX: Final = 100

logger = logging.getLogger("logboom.pipeline")
Put = Callable[[Mapping[tuple[str, int], ArchivedLog]], None]


class PipelineFollower:
    def __init__(self, broker: LogCalls, put: Put, rules: PlaceRules) -> None:
        """`put` is told what is archived, by topic id and partition, whenever that is news."""

        async def connect() -> LogCalls:
            return broker

        self._ledger = PipelineLedger(connect, ITSELF)
        self._looking = PipelineLedger(connect, ITSELF)
        """For those who cannot wait until the other has its turn."""
        self._loop = asyncio.get_running_loop()
        self._put = put
        self._rules = rules
        self._refused: set[str] = set()
        """Places that are not read, and of which that was told."""
        self._known: dict[tuple[str, int], ArchivedLogReader] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, broker: LogCalls, put: Put, rules: PlaceRules = PlaceRules()) -> PipelineFollower:  # noqa: B008
        """Knows all that the log says by now, and goes on. What the rules do not let it read counts for none."""
        following = cls(broker, put, rules)
        await following._look()
        following._task = asyncio.create_task(following._follow())
        return following

    @property
    def pipeline(self) -> PipelineState:
        """As of the last look."""
        return self._ledger.pipeline

    async def _follow(self) -> None:
        while True:
            if not await self._look(WAIT_MS):
                await asyncio.sleep(RETRY_S)

    async def _look(self, wait_ms: int = 0) -> bool:
        """Whether the log could be read up to its end."""
        try:
            found = find_archives(await self._ledger.refresh(wait_ms), self._renew, self._reads)
        except ShuttingDown:
            return False
        except LogboomError as error:
            logger.error("what the pipeline says cannot be read, and what is archived is not known: %s", error)
            return False
        runs = {log: archived.run for log, archived in self._known.items()}
        if runs != {log: archived.run for log, archived in found.items()}:
            # What is as it was may have read its manifest.
            stays = {log for log, archived in found.items() if runs.get(log) == archived.run}
            self._known = {log: self._known[log] if log in stays else archived for log, archived in found.items()}
            self._put(self._known)
        return True

    def _reads(self, place: str) -> bool:
        refusal = self._rules.refusal(place)
        if refusal is not None and place not in self._refused and len(self._refused) < REFUSED_MAX:
            self._refused.add(place)
            logger.warning("an archive at %.200s counts for nothing: %s", place, refusal)
        return refusal is None

    def _renew(self, topic_id: str, partition: int) -> ArchivedLogReader | None:
        """For a thread of those who read."""
        looking = asyncio.run_coroutine_threadsafe(self._looking.refresh(), self._loop)
        try:
            return find_archives(looking.result(RENEW_S), reads=self._reads).get((topic_id, partition))
        except (LogboomError, TimeoutError):
            looking.cancel()
            return None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
