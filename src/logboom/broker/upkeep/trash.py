"""What deleted topics left, removed on a thread: large files take long to go, and no log waits for that.

One run at a time, begun by a pass where there is anything. What a stop leaves is removed after the next start.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from logboom.broker.upkeep.jobs import Jobs
from logboom.broker.upkeep.stats import Tally
from logboom.broker.upkeep.throttle import Stopped
from logboom.storage.data.directory import DataDirectory


class Trash:
    def __init__(self, data: DataDirectory, tally: Tally, jobs: Jobs) -> None:
        self._data = data
        self._tally = tally
        self._jobs = jobs
        self._run: Future[int] | None = None
        self._stopped = threading.Event()

    @property
    def under_way(self) -> list[str]:
        return [] if self._run is None else ["emptying the trash"]

    def begin_pass(self) -> None:
        if self._run is not None:
            return
        with self._tally.guard("the trash"):
            names = self._data.release_trash()
            if names:
                self._run = self._jobs.start_other(lambda: self._data.remove_trash(names, self._look_up))

    def take(self) -> None:
        """Count what has gone."""
        if self._run is None or not self._run.done():
            return
        run, self._run = self._run, None
        with self._tally.guard("the trash"):
            self._tally.trash_emptied += run.result()

    def stop(self) -> None:
        self._stopped.set()

    def _look_up(self) -> None:
        """Before each file."""
        if self._stopped.is_set():
            raise Stopped
