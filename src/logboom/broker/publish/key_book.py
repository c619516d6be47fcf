"""The names that something was published under, and what was published last under each.

Names that last stay until an operator forgets them; their number is bounded. Those that do not are kept as long as
there is room for them; one is forgotten only when the files of its stages are gone for good, so that what was published
under it can never be published again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from logboom.broker.api import KeyInfo
from logboom.broker.publish.intent import Intent, decode_intent
from logboom.broker.publish.stages import Stages
from logboom.broker.publish.unnamed_keys import KEPT, UnnamedKeys
from logboom.broker.slices import slices
from logboom.broker.state.internal_log import StateLog
from logboom.errors import AppendRefused, LimitExceeded, LogboomError, OutcomeUnknown, StorageError

LIMIT: Final = "limits.publish_keys"
STAGES_KEPT: Final = 256
"""More are kept only until they are gone."""

logger = logging.getLogger("logboom.broker")


class KeyBook:
    def __init__(self, state: StateLog, stages: Stages, keys_max: int, busy: Container[str]) -> None:
        """`busy` has the names under which something is being published now."""
        self._state = state
        self._stages = stages
        self._keys_max = keys_max
        self._busy = busy
        kept = self.intents()
        self._named = {name for name, intent in kept.items() if intent.lasting}
        done = [name for name, intent in kept.items() if not intent.lasting and not intent.is_open]
        self._unnamed = UnnamedKeys(min(keys_max, KEPT), sorted(done, key=lambda name: kept[name].at))
        self._evicting: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Names that last."""
        return len(self._named)

    def __contains__(self, name: str) -> bool:
        """Whether it is one of those that last."""
        return name in self._named

    def intents(self) -> dict[str, Intent]:
        return {name.decode(): decode_intent(value) for name, value in self._state.items()}

    def known(self, name: str) -> Intent | None:
        value = self._state.get(name.encode())
        return None if value is None else decode_intent(value)

    async def make_room_for(self, name: str, lasting: bool) -> None:
        """Raises LimitExceeded. Names that last and others do not take the room of each other."""
        if lasting and name not in self._named:
            if len(self._named) >= self._keys_max:
                raise LimitExceeded(LIMIT, self._keys_max, "delete some, or raise it")
            self._named.add(name)
        if not lasting and self._unnamed.is_full:
            await self._evict()
            if self._unnamed.is_full:
                raise LimitExceeded(LIMIT, self._keys_max, "stages that were published could not be removed: see why")

    def settle(self, name: str, was_lasting: bool) -> None:
        """A publish under this name has come to an end: where it left nothing, it takes no room."""
        if not was_lasting and not self._is_lasting(name):
            self._named.discard(name)

    def _is_lasting(self, name: str) -> bool:
        known = self.known(name)
        return known is not None and known.lasting

    async def commit(self, name: str, intent: Intent) -> None:
        try:
            await self._state.put({name.encode(): msgspec.msgpack.encode(intent)})
        except (AppendRefused, OutcomeUnknown):
            raise
        except StorageError as error:  # a sync failed: after a restart it is there, or not
            raise OutcomeUnknown(
                f"key {name!r}: whether it is published, the next start of the node tells: {error}"
            ) from error

    def note_open(self, name: str) -> None:
        """Something is being published under it: it is not forgotten meanwhile."""
        self._unnamed.drop(name)

    def note_done(self, name: str, done: Intent) -> None:
        """What was published under it is in its logs."""
        if not done.lasting:
            self._unnamed.note(name)
        if self._unnamed.is_crowded and self._evicting is None:
            self._evicting = self._spawn(self._evict())
        if len(done.stages) > STAGES_KEPT:
            self._spawn(self._shorten(name, done))

    async def list_keys(self, prefix: str) -> list[KeyInfo]:
        found = []
        async for some in slices(list(self._state.items())):
            for name, value in some:
                if name.decode().startswith(prefix):
                    kept = decode_intent(value)
                    facts = kept.number, kept.records, kept.at, kept.expires, kept.is_open, kept.digest
                    found.append(KeyInfo(name.decode(), *facts, kept.known_topics))
        return sorted(found, key=lambda info: info.name)

    async def remove(self, name: str) -> None:
        await self._state.put({name.encode(): None})
        self._named.discard(name)
        self._unnamed.drop(name)

    async def expire(self, now: int) -> None:
        """Forget names nobody will say again."""
        old: list[str] = []
        async for some in slices(list(self._state.items())):
            old += [name.decode() for name, value in some if decode_intent(value).has_expired(now)]
        await self._forget_done(old)

    async def _evict(self) -> None:
        """Forget the oldest names that do not last, where there are too many."""
        try:
            while self._unnamed.is_crowded and await self._forget_done(self._unnamed.surplus()):
                pass  # others were published meanwhile
        except LogboomError as error:
            logger.warning("names that do not last could not be forgotten: %s", error)
        finally:
            self._evicting = None

    async def _forget_done(self, names: Sequence[str]) -> int:
        """Those whose stages are gone for good: one that a crash brings back could be published again. How many."""
        values = {name: value for name in names if (value := self._state.get(name.encode())) is not None}
        intents = {name: decode_intent(value) for name, value in values.items()}
        gone = await self._stages.folder.find_gone({stage for intent in intents.values() for stage in intent.stages})
        # Meanwhile somebody may have published under one of them once more.
        forgotten = [
            name
            for name, intent in intents.items()
            if not intent.lasting
            and not intent.is_open
            and gone >= set(intent.stages)
            and name not in self._busy
            and self._state.get(name.encode()) == values[name]
        ]
        if forgotten:
            await self._state.put({name.encode(): None for name in forgotten})
        for name in forgotten:
            self._unnamed.drop(name)
        return len(forgotten)

    async def _shorten(self, name: str, done: Intent) -> None:
        """Many stages are not to be kept for ever: when they are gone, nobody needs to know which they were."""
        gone = await self._stages.folder.find_gone(done.stages)
        if gone >= set(done.stages) and self.known(name) == done and name not in self._busy:
            with suppress(LogboomError):
                await self.commit(name, msgspec.structs.replace(done, stages=[]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="logboom-publish-chore")
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    async def close(self) -> None:
        if self._chores:
            await asyncio.wait(list(self._chores))
        await self._state.close()
