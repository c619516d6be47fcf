"""The node's own topics, and the states they feed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from logboom.batch import Batch
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import AwaitedPromise, Entry
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.state.internal_log import InternalLog, StateLog
from logboom.errors import LogboomError
from logboom.storage.append import Appended
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import FlushSettings, Settings


class StateHome(NamedTuple):
    """Where a state is kept."""

    topic: str
    file: str
    """Its snapshot, below DATA/internal."""
    limit: tuple[str, int]
    """A name, and how many keys there may be."""


async def append_to(rounds: SyncRounds, hosted: Hosted, batch: Batch) -> Appended:
    """Returns when it is durable."""
    promise = AwaitedPromise(rounds.loop, 1, 1)
    hosted.writer(None).submit(Entry(promise, 0, [batch], "durable", meter=hosted.meter))
    (answer,) = await promise.future
    if isinstance(answer, LogboomError):
        raise answer
    return answer


async def open_state(
    data: DataDirectory,
    catalog: Catalog,
    rounds: SyncRounds,
    trim: Callable[[LogWriter, int], Awaitable[None]],
    place: StateHome,
) -> StateLog:
    """What the topic holds, which is made where there is none."""
    hosted = await catalog.create(place.topic, 1, Settings(flush=FlushSettings("each")), "node")
    writer = hosted.writer(None)
    log = writer.log
    append = partial(append_to, rounds, hosted)

    async def cut(seqno: int) -> None:
        await trim(writer, seqno)
        async with catalog.changing, rounds.pause():
            log.roll()
            log.drop(seqno)

    internal = InternalLog(hosted.topic.id, log.first, log.committed, log.batches, append, cut)
    path = f"{data.path}/internal/{place.file}"
    return await asyncio.to_thread(StateLog.open, data.files.disk, path, internal, place.limit)
