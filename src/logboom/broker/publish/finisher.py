"""From the intent into the logs: what a publish that is committed still has to append.

    large pieces become segments; of the rest one slice after the other, each into all its logs; then all of it synced
    once they are written: the cursors that are moved with it

Whoever finds a cursor where a publish has moved it appends behind the records of that publish.

From the intent on a publish does not fail. What is in the way and may pass is waited out; anything else leaves it to
the next start of the node. Appends of others come between two slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from logboom.batch import Batch
from logboom.broker.append.promise import Adoption, AwaitedPromise, Entry
from logboom.broker.publish.intent import Intent
from logboom.broker.publish.log_share import LogShare
from logboom.broker.publish.moves import size_of_moves
from logboom.broker.publish.stage import Stage
from logboom.broker.publish.stages import all_done
from logboom.broker.state.cursors import CursorChange, Cursors
from logboom.errors import LogboomError, LowSpace, OutcomeUnknown, Overloaded, SyncFailed, WriteFailed
from logboom.storage.append import Appended
from logboom.storage.config import MIB
from logboom.storage.data.topic import Acks
from logboom.storage.files.disk import SCARCE
from logboom.storage.files.open_files import Space
from logboom.storage.staged.bundle import Bundle
from logboom.storage.staged.piece import StagePiece
from logboom.storage.staged.stage import StagedBatch, StageFile, StageTarget

SLICE_BYTES: Final = 4 * MIB
"""So much of a stage is appended at a time: others write in between."""
SLICE_BATCHES: Final = 1024
"""And so many batches, however small they are."""
ADOPTED_PART: Final = 8
"""A piece becomes a segment if it has at least the eighth part of the bytes of one."""
ADOPTED_BATCHES: Final = 4096
"""And no more batches than this: others wait while they are stamped."""
ADOPTED_AT_ONCE: Final = 2
"""Pieces of one publish: a log that waits for a thread takes nothing else, and a pause waits for all of them."""
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
TRANSIENT: Final = (LowSpace, WriteFailed, Overloaded)

logger = logging.getLogger("logboom.broker")


@dataclass(slots=True)
class ReservedRoom:
    """What is promised to a publish on the volume, and not yet written by it."""

    space: Space
    left: int = 0

    def redeem(self, size: int) -> None:
        size = min(size, self.left)
        self.left -= size
        self.space.redeem(size)


@dataclass(slots=True)
class CommittedPublish:
    """A publish whose intent is durable."""

    name: str
    intent: Intent
    stages: Sequence[Stage]
    logs: dict[StageTarget, LogShare]
    room: ReservedRoom
    bundle: Bundle | None = None
    """What came in one call."""
    moves: Sequence[CursorChange] = ()
    bundled_bytes: int = 0
    """What counts of it for publishes in one call, until it is written down as done."""
    adopting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ADOPTED_AT_ONCE))
    slicing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One piece at a time is appended in slices: its batches are read on the loop."""


class Finisher:
    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._ending = asyncio.Event()

    def end(self) -> None:
        """What is under way stops behind its slice; the next start of the node goes on."""
        self._ending.set()

    async def finish(self, work: CommittedPublish) -> None:
        """Until everything is in its logs, and synced, and the cursors stand where they are to."""
        if not work.moves:
            await self._pour_all(work, "durable")
            await self._keep_all(work)
            return
        try:
            await self._pour_all(work, "leader")
        except Exception:
            with suppress(LogboomError):
                await self.move(work.name, work.moves, work.room)
            raise
        await all_done((self.move(work.name, work.moves, work.room), self._keep_all(work)))

    async def move(self, name: str, moves: Sequence[CursorChange], room: ReservedRoom) -> None:
        """Also where the records cannot be finished."""
        wait_s = 0.0
        room.redeem(size_of_moves(moves))
        while True:
            try:
                return await self._cursors.write(moves)
            except TRANSIENT as refusal:
                wait_s = await self.wait(f"the cursors of key {name!r}", refusal, wait_s)
            except Exception as error:
                self._cursors.doubt(moves, error)
                raise

    async def _pour_all(self, work: CommittedPublish, acks: Acks) -> None:
        """Written. What came in one call is synced too, in one round, where that is what comes next."""
        for stage in work.stages:
            await self._pour(stage, work)
        if work.bundle is not None:
            await self._pour_bundle(work.bundle, work, acks)

    async def _keep_all(self, work: CommittedPublish) -> None:
        """Synced."""
        for log in work.logs.values():
            refusal = log.writer.log.refusal
            if not log.writer.is_kept(log.due):
                if refusal is not None:
                    raise SyncFailed(refusal)
                await log.writer.durable(log.due)

    async def _pour_bundle(self, bundle: Bundle, work: CommittedPublish, acks: Acks) -> None:
        """Into all logs at once."""
        logs = [work.logs[target] for target in bundle.targets]
        await self._pour_batches(bundle.batches(), [0] * len(logs), bundle.producer_id, logs, work, acks)

    async def _pour(self, stage: Stage, work: CommittedPublish) -> None:
        """What is large becomes segments, of two logs at once; of the rest one slice after the other, each into all."""
        file = stage.loaded
        logs = [work.logs[target] for target in file.targets]
        producer_id = file.opened.producer_id
        await self._open(file, f"key {work.name!r}")
        await self._pour_batches(file.batches(), [0] * len(logs), producer_id, logs, work)
        file.let_go()
        pieces: dict[int, list[StagePiece]] = {}
        for piece in file.pieces:
            pieces.setdefault(piece.number, []).append(piece)
        await all_done(self._pour_pieces(some, producer_id, logs, work) for some in pieces.values())

    async def _pour_pieces(
        self, pieces: Sequence[StagePiece], producer_id: int, logs: Sequence[LogShare], work: CommittedPublish
    ) -> None:
        """Of one log, in their order."""
        for piece in pieces:
            self._check_not_ending(work)
            log = logs[piece.number]
            if log.done.get(producer_id, 0) <= piece.first and await self._adopt(piece, log, work):
                work.room.redeem(piece.size_bytes)
                continue
            async with work.slicing:
                await self._pour_piece(piece, producer_id, logs, work)

    async def _pour_piece(
        self, piece: StagePiece, producer_id: int, logs: Sequence[LogShare], work: CommittedPublish
    ) -> None:
        """In slices."""
        self._check_not_ending(work)
        await self._open(piece, logs[piece.number].writer.name)
        counts = [0] * len(logs)
        counts[piece.number] = piece.first
        batches = (StagedBatch(piece.number, batch) for batch in piece.batches())
        await self._pour_batches(batches, counts, producer_id, logs, work)
        piece.let_go()

    async def _open(self, file: StagePiece | StageFile, where: str) -> None:
        """Where there are no more files, or no memory for maps, that may pass."""
        wait_s = 0.0
        while True:
            try:
                await asyncio.to_thread(file.data)
                return
            except OSError as error:
                if error.errno not in SCARCE:
                    raise
                wait_s = await self.wait(where, WriteFailed(f"{file.path}: {error.strerror}"), wait_s)

    async def _adopt(self, piece: StagePiece, log: LogShare, work: CommittedPublish) -> bool:
        """Make a piece a segment of its log. Whether that was worth it, and done."""
        small = piece.size_bytes < log.writer.log.config.segment_bytes // ADOPTED_PART
        if small or piece.is_torn or piece.batch_count > ADOPTED_BATCHES:
            return False
        promise = AwaitedPromise(asyncio.get_running_loop(), 0, 1)
        async with work.adopting:
            self._check_not_ending(work)
            log.writer.submit(Adoption(promise, piece, log.hosted.meter))
            appended = [answer for answer in await promise.future if isinstance(answer, Appended)]
        for answer in appended:
            log.note(answer)
        return bool(appended)

    async def _pour_batches(
        self,
        batches: Iterable[StagedBatch],
        counts: list[int],
        producer_id: int,
        logs: Sequence[LogShare],
        work: CommittedPublish,
        acks: Acks = "leader",
    ) -> None:
        """`counts` says how many records of the stage each log has got or is to get before these."""
        slice_: dict[int, list[Batch]] = {}
        size = count = 0
        for number, batch in batches:
            header = batch.header
            size += header.size
            count += 1
            counts[number] += header.record_count
            if counts[number] > logs[number].done.get(producer_id, 0):
                slice_.setdefault(number, []).append(batch)
            if size >= SLICE_BYTES or count >= SLICE_BATCHES:
                work.room.redeem(size)
                await self._append(slice_, logs, acks)
                slice_, size, count = {}, 0, 0
                self._check_not_ending(work)
        work.room.redeem(size)
        await self._append(slice_, logs, acks)

    def _check_not_ending(self, work: CommittedPublish) -> None:
        if self._ending.is_set():
            raise OutcomeUnknown(f"key {work.name!r} is published; the next start of the node finishes it")

    async def _append(self, slice_: dict[int, list[Batch]], logs: Sequence[LogShare], acks: Acks) -> None:
        await all_done(self._append_to(logs[number], batches, acks) for number, batches in slice_.items())

    async def _append_to(self, log: LogShare, batches: Sequence[Batch], acks: Acks) -> None:
        """Until all are written; each only after the one before it."""
        loop, wait_s, most = asyncio.get_running_loop(), 0.0, log.writer.log.config.batch_bytes_max
        if any(max(batch.header.size, batch.header.body_size) > most for batch in batches):
            raise OutcomeUnknown(f"{log.writer.name}: a batch is over limits.batch_bytes = {most:,}: raise it, restart")
        while batches:
            promise = AwaitedPromise(loop, len(batches), 1)
            log.writer.submit(Entry(promise, 0, batches, acks, meter=log.hosted.meter))
            refusal: LogboomError | None = None
            taken = 0
            for answer in await promise.future:
                if isinstance(answer, LogboomError):
                    refusal = answer
                    break
                log.note(answer)
                taken += 1
            batches = batches[taken:]
            if refusal is None:
                return
            if not isinstance(refusal, TRANSIENT):
                raise OutcomeUnknown(f"{log.writer.name} has not all that is published: {refusal}") from refusal
            wait_s = await self.wait(log.writer.name, refusal, wait_s)

    async def wait(self, where: str, refusal: LogboomError, waited_s: float) -> float:
        """Something is in the way that may pass. Returns how long that was."""
        if self._ending.is_set():
            raise OutcomeUnknown(f"{where}: a publish is left to the next start of the node: {refusal}") from refusal
        if not waited_s:
            logger.warning("%s: a publish waits: %s", where, refusal)
        wait_s = min(RETRY_MAX_S, 2 * waited_s or RETRY_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), wait_s)
        return wait_s
