"""What was deleted is remembered for those who copy the node, and nothing else is called deleted."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from logboom.broker.local import LocalBroker
from logboom.errors import StorageError
from logboom.storage.data import deletions
from logboom.storage.data.deletions import Deletion, Deletions
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Topic
from logboom.storage.files.disk import OsDisk, OsFile

ONE, TWO, THREE = (Topic.make(name) for name in ("one", "two", "three"))
IDS = [topic.id for topic in (ONE, TWO, THREE)]


def opened(path: Path) -> Deletions:
    return Deletions.open(OsDisk(str(path)), str(path))


def test_a_deletion_is_there_after_a_restart(tmp_path: Path) -> None:
    opened(tmp_path).add(ONE, 7)
    assert opened(tmp_path).find(IDS) == [Deletion(ONE.id, "one", 7)]


def test_there_are_only_so_many_and_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "DELETIONS_MAX", 2)
    found = opened(tmp_path)
    for time, topic in enumerate((ONE, TWO, ONE, THREE)):
        found.add(topic, time)
    assert [(deletion.name, deletion.time) for deletion in opened(tmp_path).find(IDS)] == [("one", 2), ("three", 3)]
    assert len(found) == 2


def test_one_that_is_taken_back_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    found = opened(tmp_path)
    found.add(ONE, 1)
    found.add(TWO, 2)
    found.take_back(ONE.id, THREE.id)
    assert found.find(IDS) == opened(tmp_path).find(IDS) == [Deletion(TWO.id, "two", 2)]


class FullDisk(OsDisk):
    full = True

    def create(self, path: str) -> OsFile:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().create(path)


def test_a_full_volume_holds_up_no_deletion_and_it_is_written_when_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk(str(tmp_path))
    found = Deletions.open(disk, str(tmp_path))
    found.add(ONE, 1)
    found.settle()
    assert (found.find(IDS), len(opened(tmp_path)), found.is_owed) == ([Deletion(ONE.id, "one", 1)], 0, True)
    disk.full = False
    found.settle()
    assert (opened(tmp_path).find(IDS), found.is_owed) == ([Deletion(ONE.id, "one", 1)], False)


def test_a_file_that_cannot_be_read_tells_of_nothing(tmp_path: Path) -> None:
    opened(tmp_path).add(ONE, 1)
    path = tmp_path / "internal" / deletions.FILE
    path.write_bytes(path.read_bytes()[:-1])
    assert len(opened(tmp_path)) == 0


def test_a_topic_that_a_kill_left_there_was_not_deleted(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        topic = data.create_topic("t")
    opened(tmp_path).add(topic, 1)  # as a deletion that got no further

    async def start() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        assert broker.deleted([topic.id]) == []
        await broker.close()

    asyncio.run(start())
    assert len(opened(tmp_path)) == 0


def test_a_deletion_that_fails_leaves_the_topic_and_nobody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        topic = await broker.create_topic("t")
        with monkeypatch.context() as patched:
            patched.setattr(OsDisk, "rename", _refuse_trash(OsDisk.rename))
            with pytest.raises(StorageError, match="could not be deleted"):
                await broker.delete_topic("t")
        assert broker.deleted([topic.id]) == []
        assert (await broker.describe_topic("t")).id == topic.id
        await broker.delete_topic("t")
        assert [deletion.name for deletion in broker.deleted([topic.id])] == ["t"]
        assert (await broker.stats()).deletions == 1
        await broker.close()

    asyncio.run(start())


def test_a_topic_whose_deletion_cannot_be_written_down_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async def start() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        topic = await broker.create_topic("t")
        with monkeypatch.context() as patched:
            patched.setattr(deletions, "replace_file", fail)
            with pytest.raises(StorageError, match="Input/output"):
                await broker.delete_topic("t")
        assert (await broker.describe_topic("t")).id == topic.id
        await broker.close()

    asyncio.run(start())


def _refuse_trash(rename: object) -> object:
    def renamed(disk: OsDisk, old: str, new: str) -> None:
        if "/trash/" in new:
            raise OSError(5, "Input/output error")
        rename(disk, old, new)  # type: ignore[operator]

    return renamed
