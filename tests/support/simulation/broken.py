"""A small log in three segments, and ways to break it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from logboom.batch import Header
from logboom.storage import Log
from logboom.storage.files.disk import replace_file
from logboom.storage.health.check import check
from logboom.storage.health.findings import CheckReport, Finding
from logboom.storage.health.repair import RepairPlan, hold, plan_repair
from logboom.storage.index import BatchPlace
from logboom.storage.scan import Window, walk
from logboom.storage.segment import Segment
from support.disks.simulated import Inode, SimulatedDisk
from support.simulation.model import make_batch, open_log

Rows = dict[int, bytes | None]


def sound_disk(floor: int | None = None) -> SimulatedDisk:
    """A closed log of 34 batches of two records each; the 13th and 26th begin a segment."""
    return copy_of(_written_disk(floor))


@cache
def _written_disk(floor: int | None) -> SimulatedDisk:
    disk, batches = SimulatedDisk(), 34
    replace_file(disk, "/data/node.json", b'{"node_id": "n"}')
    log = open_log(disk)
    for number in range(batches):
        if number in (12, 25):
            log.roll()
        log.append_one(make_batch(number, 2, number), 1_000 + number, 1 + number // 10)
        log.commit(log.sync())
        if floor is not None and number == batches - 3:
            log.trim(floor, 1_000 + number, 1 + number // 10)
            log.commit(log.sync())
    log.close()
    return disk


def segments(disk: SimulatedDisk) -> tuple[Segment, ...]:
    return open_log(copy_of(disk)).segments


def places(disk: SimulatedDisk, number: int) -> list[tuple[int, Header]]:
    """Where the batches of a segment are."""
    segment = segments(disk)[number]
    file = disk.open(segment.log_path)
    return [
        item
        for item in walk(Window(file, file.size()), segment.start, BatchPlace(file.size(), 2**63, 2**63))
        if len(item) == 2
    ]


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    """The same disk, all of it synced."""
    copy = SimulatedDisk()
    copy.directories = set(disk.directories)
    for path, inode in disk.names.items():
        copy.names[path] = Inode(bytearray(inode.cached), bytearray(inode.cached))
    copy.durable_names = dict(copy.names)
    return copy


def overwrite(disk: SimulatedDisk, path: str, position: int, data: bytes) -> None:
    inode = disk.names[path]
    for content in (inode.cached, inode.durable):
        content[position : position + len(data)] = data


def resize(disk: SimulatedDisk, path: str, size: int) -> None:
    inode = disk.names[path]
    for content in (inode.cached, inode.durable):
        del content[size:]


def cut_out(disk: SimulatedDisk, path: str, position: int, size: int) -> None:
    inode = disk.names[path]
    for content in (inode.cached, inode.durable):
        del content[position : position + size]


def remove(disk: SimulatedDisk, *paths: str) -> None:
    for path in paths:
        del disk.names[path]
        del disk.durable_names[path]


def content(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: bytes(inode.cached) for path, inode in disk.names.items()}


def checked(disk: SimulatedDisk, path: str = "/data") -> CheckReport:
    return check(disk, path, is_directory=disk.is_directory)


def worrying(disk: SimulatedDisk) -> list[Finding]:
    """What a check finds beyond mere information."""
    return [finding for finding in checked(disk).findings if finding.severity != "info"]


def repaired(disk: SimulatedDisk) -> RepairPlan:
    with hold(disk, "/data"):
        plan = plan_repair(disk, "/data", is_directory=disk.is_directory)
        for step in plan.steps:
            step.run()
    disk.kill()
    return plan


def rows(log: Log) -> Rows:
    """Every record that can be read, by its seqno."""
    log.commit(log.last_index)
    return dict(_rows(log))


def _rows(log: Log) -> Iterator[tuple[int, bytes | None]]:
    for batch in log.batches(skip_damage=True):
        yield from zip(batch.seqnos(), batch.values(), strict=True)


def all_rows(disk: SimulatedDisk) -> Rows:
    return rows(open_log(copy_of(disk)))
