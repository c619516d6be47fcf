"""A log on disk: append, sync, commit, read, recover. Knows no topics, no network, no event loop, no clock.

with DataDirectory.open("data") as data:
    log = data.open_log(log_name("events", topic_id, 0))
    log.append_one(build([b"hello"]), now)
    log.commit(log.sync())
    for batch in log.batches():
        print(batch.values())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.lazy import exports

if TYPE_CHECKING:
    from logboom.storage.append import Answer, Appended
    from logboom.storage.config import LogConfig
    from logboom.storage.directory import DataDirectory, find_logs, log_name
    from logboom.storage.disk import Disk, File, OsDisk
    from logboom.storage.files import OpenFiles
    from logboom.storage.growing import PendingSync
    from logboom.storage.log import Log
    from logboom.storage.run import Run
    from logboom.storage.state import Slot, Standing, State

__all__ = [
    "Answer",
    "Appended",
    "DataDirectory",
    "Disk",
    "File",
    "Log",
    "LogConfig",
    "OpenFiles",
    "OsDisk",
    "PendingSync",
    "Run",
    "Slot",
    "Standing",
    "State",
    "find_logs",
    "log_name",
]

_HOMES = {
    "Answer": "append",
    "Appended": "append",
    "DataDirectory": "directory",
    "Disk": "disk",
    "File": "disk",
    "Log": "log",
    "LogConfig": "config",
    "OpenFiles": "files",
    "OsDisk": "disk",
    "PendingSync": "growing",
    "Run": "run",
    "Slot": "state",
    "Standing": "state",
    "State": "state",
    "find_logs": "directory",
    "log_name": "directory",
}

__getattr__, __dir__ = exports(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, globals())
