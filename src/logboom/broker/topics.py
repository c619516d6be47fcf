"""Topics of this node: made, configured, described, deleted, and their logs trimmed.

A deletion is finished once it was begun, whoever waits for it; a trim is durable when it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from logboom.broker.admission import Admission, check_not_internal
from logboom.broker.api import PIPELINE_TOPIC, PartitionInfo, Settings, TopicInfo
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.append.validation import Validation
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog
from logboom.broker.limits import said_again
from logboom.broker.read.archives import Archives
from logboom.broker.slices import slices
from logboom.broker.state.cursors import Cursors


class Topics:
    def __init__(
        self,
        catalog: Catalog,
        rounds: SyncRounds,
        validation: Validation,
        admission: Admission,
        archives: Archives,
        cursors: Callable[[], Cursors],
        wake: asyncio.Event,
    ) -> None:
        """`wake` is set where there is work for upkeep."""
        self._catalog = catalog
        self._rounds = rounds
        self._validation = validation
        self._admission = admission
        self._archives = archives
        self._cursors = cursors
        self._wake = wake
        self.on_deleted: Callable[[str], Awaitable[None]] = _nothing
        """Called with the id of a topic that is gone."""

    async def create(
        self,
        name: str,
        partitions: int | None = None,
        settings: Settings | None = None,
        caller: Caller | None = None,
    ) -> TopicInfo:
        with self._admission.counting():
            return (await self._catalog.create(name, partitions, settings, caller=caller)).describe()

    async def configure(self, name: str, settings: Settings) -> TopicInfo:
        with self._admission.counting():
            return (await self._catalog.configure(name, settings)).describe()

    async def describe(self, name: str, create: bool = False, caller: Caller | None = None) -> TopicInfo:
        hosted = self._catalog.get(name)
        if hosted is None and create:
            with self._admission.counting():
                hosted = await self._catalog.create(name, by="write", caller=caller)
        return (hosted or self._catalog.find(name)).describe()

    async def list(
        self, prefix: str = "", internal: bool = False, sees: Callable[[str], bool] | None = None
    ) -> list[TopicInfo]:
        """Without those that `sees` leaves out."""
        return [
            hosted.describe()
            async for some in slices(self._catalog.all())
            for hosted in some
            if hosted.topic.name.startswith(prefix) and (internal or not hosted.topic.name.startswith("_"))
            if sees is None or sees(hosted.topic.name)
        ]

    async def delete(self, name: str, topic_id: str | None) -> None:
        hosted = await self._catalog.delete(name, topic_id)
        self._validation.drop(hosted)
        await self._cursors().forget_topic(hosted.topic.id)
        await self.on_deleted(hosted.topic.id)
        self._wake.set()

    async def trim(self, topic: str, partition: int | None, seqno: int) -> PartitionInfo:
        with self._admission.counting():
            check_not_internal(topic, PIPELINE_TOPIC)
            hosted = self._catalog.find(topic)
            writer = hosted.writer(partition)
            self._admission.check_accepted(hosted)
            number = hosted.writers.index(writer)
            await self.trim_log(writer, seqno, lambda: self._archives.first_of(hosted.topic.id, number, writer.log))
        self._wake.set()
        return hosted.describe_log(number)

    async def trim_log(self, writer: LogWriter, seqno: int, first: Callable[[], int] | None = None) -> None:
        async with self._rounds.pause():
            if writer.gone is not None:
                raise said_again(writer.gone)
            appended = writer.log.trim(seqno, self._rounds.world.now_us(), first=None if first is None else first())
        await writer.durable(writer.due(appended.index))

    def switch(self, topic: str | None, refused: str | None) -> None:
        """Refuse writes, of a topic or all, for this reason; or take them again. Until a restart."""
        if topic is None:
            self._admission.refused = refused
        else:
            self._catalog.find(topic).refused = refused


async def _nothing(topic_id: str) -> None:
    """Nobody else keeps anything of it."""
