"""Stages, and what publishes them: batches for any logs that nobody sees until all of them are appended at once.

All or nothing, also over a crash: what was published before it is finished after it. An answer that was lost is asked
for again under the same key.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from logboom.broker.api.appends import Part
from logboom.broker.api.cursors import CursorMove
from logboom.broker.caller import Caller
from logboom.broker.publish.publication import KeyInfo, Publication, PublishKey, Receipt, StageInfo
from logboom.storage.append import Answer


class StageCalls(Protocol):
    """For those who write to several logs, all or nothing."""

    async def open_stage(self, note: str = "", *, caller: Caller) -> StageInfo:
        """A place for batches that nobody sees until they are published, all at once with those of other stages."""
        ...

    def stage(self, stage: str, parts: Sequence[Part], *, caller: Caller) -> Future[list[Answer]]:
        """One answer for each batch, in order, as `append` has; seqnos are those of the stage's stream in that log.

        The batches carry the stage's producer id. A repeat is answered and not staged. Synced by `publish`.
        """
        ...

    async def publish(
        self, key: PublishKey, stages: Sequence[Receipt], moves: Sequence[CursorMove] = (), *, caller: Caller
    ) -> Publication:
        """Append all that is in these stages, in their order, and move these cursors; or, where this raises, nothing.

        A move is refused as `commit_cursor` refuses it, and all else with it. Up to MOVES_MAX; each is compared with
        what comes before it in the list. A repeat moves nothing.

        Unavailable and OutcomeUnknown alone leave it open: say it again, and the answer is true. Returns when all of it
        is synced.
        """
        ...

    async def publish_batches(
        self, key: PublishKey, parts: Sequence[Part], moves: Sequence[CursorMove] = (), *, caller: Caller
    ) -> Publication:
        """Append these batches, which no producer has numbered, and move these cursors; or, where this raises, nothing:
        a stage and its publish in one call. For no more than BUNDLE_BYTES_MAX and BUNDLE_BATCHES_MAX.

        A name that does not last has the node's time as its number. InvalidKey: it is not, or may have been forgotten;
        where this was said before, that leaves open whether it was published then.
        """
        ...

    async def discard(self, stages: Sequence[str], *, caller: Caller) -> int:
        """Throw stages away that are not being published; how many there were."""
        ...

    async def list_stages(self, *, caller: Caller) -> list[StageInfo]: ...
    async def list_keys(self, prefix: str = "", *, caller: Caller) -> list[KeyInfo]: ...

    async def forget_key(self, name: str, *, caller: Caller) -> bool:
        """From now on the name is one that was never published under. Whether it was."""
        ...
