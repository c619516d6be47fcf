"""A disk whose syncs wait for the test, and fail when it says so."""

from __future__ import annotations

import errno
import threading
from collections.abc import Collection

from logboom.storage.files.disk import File, OsDisk


class GatedDisk(OsDisk):
    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.failing = False
        self.rounds: list[int] = []
        """How many files each sync had."""

    def sync(self, files: Collection[File]) -> None:
        self.entered.set()
        if not self.gate.wait(300):
            raise TimeoutError("the test never opened the gate")
        if self.failing:
            raise OSError(errno.EIO, "the disk says no")
        self.rounds.append(len(files))
        super().sync(files)

    def close_gate(self) -> None:
        self.entered.clear()
        self.gate.clear()
