"""The names that something was published under, and what was published last under each.

Names that last stay until an operator forgets them; their number is bounded. Those that do not are kept as long as
there is room for them; one is forgotten only when the files of its stages are gone for good, so that what was published
under it can never be published again. One that came in one call had none: its number is the time, the highest number
that was forgotten is kept in their stead, and none up to that one is taken.

A publish in one call is answered when it is in its logs. That it is done is written down with whatever is written next,
or a moment later (`settle_later`); a start that does not find it so reads in the logs that nothing is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from logboom.broker.api import KeyInfo, PublishKey
from logboom.broker.publish.intent import Intent, decode_intent
from logboom.broker.publish.stages import Stages
from logboom.broker.publish.unnamed_keys import KEPT, UnnamedKeys
from logboom.broker.slices import slices
from logboom.broker.state.internal_log import StateLog
from logboom.errors import AppendRefused, InvalidKey, LimitExceeded, LogboomError, OutcomeUnknown, StorageError

LIMIT: Final = "limits.publish_keys"
STAGES_KEPT: Final = 256
"""More are kept only until they are gone."""
SETTLE_S: Final = 0.05
"""So long after its answer a publish in one call is written down as done, where nothing else was written before."""
SETTLE_AGAIN_S: Final = 0.5
FORGOTTEN: Final = "\0forgotten"
"""Not a name that anything can be published under: its number is the highest that was forgotten."""

logger = logging.getLogger("logboom.broker")


@dataclass(slots=True, eq=False)
class _Settled:
    """A publish that is in its logs, and not yet written down as done."""

    done: Intent
    release: Callable[[], None]
    """Called when it is."""
    is_under_way: bool = False


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
        forgotten = state.get(FORGOTTEN.encode())
        self._forgotten = 0 if forgotten is None else decode_intent(forgotten).number
        self._is_mark_due = False
        """Whether that is still to be written."""
        self._settled: dict[str, _Settled] = {}
        self._settling: asyncio.Task[None] | None = None
        self._is_stuck = False
        self._evicting: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Names that last."""
        return len(self._named)

    def __contains__(self, name: str) -> bool:
        """Whether it is one of those that last."""
        return name in self._named

    def intents(self) -> dict[str, Intent]:
        return {name.decode(): decode_intent(value) for name, value in self._items()}

    def _items(self) -> list[tuple[bytes, bytes]]:
        return [item for item in self._state.items() if item[0] != FORGOTTEN.encode()]

    @property
    def settled(self) -> list[tuple[str, int]]:
        """Names and numbers of what is in its logs, and not yet written down as done."""
        return [(name, settled.done.number) for name, settled in self._settled.items()]

    def known(self, name: str) -> Intent | None:
        if name in self._settled:
            return self._settled[name].done
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

    def check_fresh(self, key: PublishKey, now: int) -> None:
        """Raises InvalidKey where a name that does not last, and is not known, may have been forgotten."""
        if not self._forgotten < key.number <= now:
            raise InvalidKey(
                key.name,
                f"it does not last, and its number {key.number} is not a time between {self._forgotten}, up to where "
                f"names were forgotten, and {now}, now: publish it through a stage",
            )

    async def forget_until(self, number: int) -> None:
        """Names that do not last may have been published elsewhere, up to this number."""
        if number > self._forgotten:
            self._forgotten, self._is_mark_due = number, True
            with suppress(AppendRefused):  # there is no room now: then it goes before the next publish
                await self._put({}, {})

    def _mark(self) -> dict[bytes, bytes | None]:
        """How far names were forgotten, as it is kept."""
        return {FORGOTTEN.encode(): msgspec.msgpack.encode(Intent(self._forgotten, 0, False, is_open=False))}

    def give_back(self, name: str, was_lasting: bool) -> None:
        """A publish under this name has come to an end: where it left nothing, it takes no room."""
        if not was_lasting and not self._is_lasting(name):
            self._named.discard(name)

    def _is_lasting(self, name: str) -> bool:
        known = self.known(name)
        return known is not None and known.lasting

    async def commit(self, name: str, intent: Intent) -> None:
        """This is what was last published under the name; with it goes what is settled."""
        before = self._settled.pop(name, None)
        try:
            await self._put({name.encode(): msgspec.msgpack.encode(intent)}, self._waiting())
        except LogboomError as error:
            if isinstance(error, OutcomeUnknown):
                raise
            if isinstance(error, StorageError) and not isinstance(error, AppendRefused):
                # A sync failed: after a restart it is there, or not.
                raise OutcomeUnknown(
                    f"key {name!r}: whether it is published, the next start of the node tells: {error}"
                ) from error
            if before is not None:
                before.is_under_way = False
                self._settled[name] = before
                self._see_to_settled(SETTLE_AGAIN_S)
            raise
        if before is not None:
            before.release()

    def settle_later(self, name: str, done: Intent, release: Callable[[], None]) -> None:
        """It is in its logs. `release` is called when that is written down."""
        self._settled[name] = _Settled(done, release)
        self._see_to_settled(SETTLE_S)

    def _see_to_settled(self, delay_s: float) -> None:
        if self._settling is None:
            self._settling = self._spawn(self._settle_after(delay_s))

    async def _settle_after(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._settling = None  # what comes from now on has another turn
        try:
            await self.settle()
            self._is_stuck = False
        except LogboomError as error:  # it is tried again
            if not self._is_stuck:
                logger.warning("publishes that are done are not written down as that yet: %s", error)
            self._is_stuck = True

    async def settle(self) -> None:
        """What is done is written down as done."""
        if self._settled:  # those on their way once more: behind the others, so none is left when it is written
            await self._put({}, dict(self._settled))

    def _waiting(self) -> dict[str, _Settled]:
        return {name: settled for name, settled in self._settled.items() if not settled.is_under_way}

    async def _put(self, changes: dict[bytes, bytes | None], done: dict[str, _Settled]) -> None:
        for name, settled in done.items():
            settled.is_under_way = True
            changes[name.encode()] = msgspec.msgpack.encode(settled.done)
        mark = self._mark() if self._is_mark_due else {}
        try:
            await self._state.put({**mark, **changes})
            self._is_mark_due = self._is_mark_due and mark != self._mark()
        except BaseException as error:
            for settled in done.values():
                settled.is_under_way = False
            if done and isinstance(error, LogboomError):
                self._see_to_settled(SETTLE_AGAIN_S)
            raise
        for name, settled in done.items():
            if self._settled.get(name) is settled:
                del self._settled[name]
                settled.release()
                self.note_done(name, settled.done)

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
        async for some in slices(self._items()):
            for name, value in some:
                if name.decode().startswith(prefix):
                    kept = self.known(name.decode()) or decode_intent(value)
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
        async for some in slices(self._items()):
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
            most = max((intents[name].number for name in forgotten if intents[name].in_one), default=0)
            # First: where it does not fit into one batch with the others, they must not be gone before it counts.
            self._forgotten = max(self._forgotten, most)
            mark = self._mark() if self._forgotten else {}
            await self._state.put({**mark, **{name.encode(): None for name in forgotten}})
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
        if self._settling is not None:
            self._settling.cancel()
        with suppress(LogboomError):
            await self.settle()
        if self._chores:
            await asyncio.wait(list(self._chores))
        await self._state.close()
