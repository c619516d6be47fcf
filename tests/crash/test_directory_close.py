"""A data directory that cannot be closed properly says so, and the next start knows."""

from __future__ import annotations

import errno

import pytest

from logboom.batch import build
from logboom.errors import SyncFailed
from logboom.storage import DataDirectory
from support.disks.simulated import Call, SimulatedDisk


@pytest.mark.parametrize("path", ["/data/state", "/data/lock"])
def test_a_last_sync_that_fails_is_told_and_the_next_start_recovers(path: str) -> None:
    disk = SimulatedDisk()
    data = DataDirectory.open("/data", disk)
    data.create_topic("events")
    (log,) = data.open_topic("events")
    log.append_one(build([b"kept"]), 1)
    log.commit(log.sync())

    def fault(call: Call) -> int | None:
        if (call.name, call.path) == ("sync", path):
            raise OSError(errno.EIO, "the disk says no")
        return None

    disk.fault = fault
    with pytest.raises(SyncFailed, match="the disk says no"):
        data.close()
    disk.fault = None
    with DataDirectory.open("/data", disk) as again:
        assert not again.was_clean or path == "/data/lock"  # which is written when everything else is on disk
        (log,) = again.open_topic("events")
        assert [batch.values() for batch in log.batches()] == [[b"kept"]]
