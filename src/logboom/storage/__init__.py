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
    from logboom.storage.appender import PendingSync
    from logboom.storage.config import LogConfig
    from logboom.storage.data.directory import DataDirectory, find_logs, log_name
    from logboom.storage.data.state import LogState, Slot, StateFile
    from logboom.storage.files.disk import Disk, File, OsDisk
    from logboom.storage.files.open_files import OpenFiles
    from logboom.storage.log import Log
    from logboom.storage.run import Run

__all__ = [
    "Answer",
    "Appended",
    "DataDirectory",
    "Disk",
    "File",
    "Log",
    "LogConfig",
    "LogState",
    "OpenFiles",
    "OsDisk",
    "PendingSync",
    "Run",
    "Slot",
    "StateFile",
    "find_logs",
    "log_name",
]

_HOMES = {
    "Answer": "append",
    "Appended": "append",
    "DataDirectory": "data.directory",
    "Disk": "files.disk",
    "File": "files.disk",
    "Log": "log",
    "LogConfig": "config",
    "OpenFiles": "files.open_files",
    "OsDisk": "files.disk",
    "PendingSync": "appender",
    "Run": "run",
    "Slot": "data.state",
    "LogState": "data.state",
    "StateFile": "data.state",
    "find_logs": "data.directory",
    "log_name": "data.directory",
}

__getattr__, __dir__ = exports(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, globals())
