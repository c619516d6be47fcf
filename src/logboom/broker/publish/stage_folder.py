"""The folder with the files of stages: which are there, and which are gone for good.

What was unlinked comes back with a power failure until the folder is synced. Once such a sync has failed nobody knows
which names are durable, until the next start.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import Collection, Sequence, Set
from concurrent.futures import Executor

from logboom.broker.append.sync_rounds import logger
from logboom.errors import WriteFailed
from logboom.storage.files.disk import Disk
from logboom.storage.staged.piece import PieceName
from logboom.storage.staged.stage import SUFFIX, remove_stages, stage_id


class StageFolder:
    def __init__(self, loop: AbstractEventLoop, threads: Executor, disk: Disk, path: str) -> None:
        self._loop = loop
        self._threads = threads
        self._disk = disk
        self.path = path
        self._removals: set[Future[None]] = set()
        self._unsure = False
        """Whether a sync of the directory has failed: then nobody knows which names are durable."""

    @property
    def removals(self) -> list[Future[None]]:
        """Those under way."""
        return list(self._removals)

    def file_path(self, stage: str) -> str:
        return f"{self.path}/{stage}{SUFFIX}"

    def find_all(self) -> dict[str, int]:
        """On a thread, before anybody is served: the bytes of every stage that is there from before."""
        disk = self._disk
        disk.make_directory(self.path)
        names = [name for name in disk.list(self.path) if not disk.is_directory(f"{self.path}/{name}")]
        sizes = {found: 0 for name in names if (found := stage_id(name)) is not None}
        for name in names:
            piece = PieceName.parse(name)
            stage = piece.stage if piece is not None else stage_id(name) or ""
            if stage in sizes:
                sizes[stage] += disk.open(f"{self.path}/{name}").size()
            elif piece is not None:
                disk.unlink(f"{self.path}/{name}")
        return sizes

    async def sync(self) -> None:
        """All names are durable. Raises WriteFailed where that may pass, OSError where nobody knows."""
        try:
            directory = self._disk.open_directory(self.path)
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error.strerror}") from error
        try:
            await self._loop.run_in_executor(self._threads, directory.sync)
        except OSError:  # and it is said only once
            self._unsure = True
            raise

    def remove(self, stages: Sequence[str]) -> None:
        """Their files go soon."""
        removal = self._loop.run_in_executor(self._threads, self._unlink, stages)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def find_gone(self, names: Collection[str]) -> Set[str]:
        """Those of these, all of which were removed, whose files no crash brings back."""
        if self._removals:
            await asyncio.wait(list(self._removals))
        try:
            return await self._loop.run_in_executor(self._threads, self._sync_gone, names)
        except OSError as error:
            logger.warning("whether files of stages are gone for good is not known: %s", error)
            return frozenset()

    def _sync_gone(self, names: Collection[str]) -> Set[str]:
        disk = self._disk
        if self._unsure or not names:
            return frozenset()
        directory = disk.open_directory(self.path)
        left = {name for name in names if disk.exists(f"{self.path}/{name}{SUFFIX}")}
        if left:
            self._unlink(list(left))
        left = {name for name in left if disk.exists(f"{self.path}/{name}{SUFFIX}")}
        try:
            directory.sync()
        except OSError:
            self._unsure = True  # a second sync would say that all is well
            raise
        return set(names) - left

    def _unlink(self, stages: Sequence[str]) -> None:
        try:
            remove_stages(self._disk, self.path, stages)
        except OSError as error:
            logger.warning("files of stages could not be removed: %s", error)
