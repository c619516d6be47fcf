"""The real disk behind the seam."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from logboom.storage import OpenFiles, OsDisk
from logboom.storage.files import disk as disk_module
from logboom.storage.files.disk import SYNCFS_ABOVE, read_file, replace_file, write_all


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(str(tmp_path))


def test_reads_are_short_only_at_the_end_of_the_file(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "f"))
    assert file.write([b"abc", memoryview(b"defg")], 2) == 7
    assert file.read(100, 0) == b"\0\0abcdefg"
    assert file.read(3, 2) == b"abc"
    assert file.read(3, 100) == b""
    assert bytes(file.map(99)) == b"\0\0abcdefg"


def test_creating_what_is_there_is_an_error(disk: OsDisk, tmp_path: Path) -> None:
    disk.create(str(tmp_path / "f"))
    with pytest.raises(FileExistsError):
        disk.create(str(tmp_path / "f"))


def test_a_file_is_closed_with_its_last_reference(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "f"))
    descriptor = file.fileno()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_view_of_a_map_outlives_its_file(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "f"))
    write_all(file, b"still here")
    view = file.map(5)
    del file
    os.unlink(tmp_path / "f")
    assert bytes(view) == b"still"


class Syncs:
    """What was synced, file by file and as a whole volume."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has_syncfs: bool) -> None:
        self.files: list[int] = []
        self.volumes: list[int] = []
        self.answer = 0
        monkeypatch.setattr(os, "fdatasync", self.files.append)
        monkeypatch.setattr(disk_module, "_find_syncfs", lambda _: self._syncfs if has_syncfs else None)

    def _syncfs(self, fd: int) -> int:
        self.volumes.append(os.fstat(fd).st_dev)
        return self.answer


@pytest.mark.parametrize("has_syncfs", [False, True], ids=["fdatasync", "syncfs"])
@pytest.mark.parametrize("count", [1, SYNCFS_ABOVE, SYNCFS_ABOVE + 1, 40])
def test_any_number_of_files_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, has_syncfs: bool
) -> None:
    syncs = Syncs(monkeypatch, has_syncfs)
    disk = OsDisk(str(tmp_path))
    files = [disk.create(str(tmp_path / f"{number}")) for number in range(count)]
    disk.sync(files)
    if has_syncfs and count > SYNCFS_ABOVE:
        assert (syncs.files, syncs.volumes) == ([], [os.stat(tmp_path).st_dev])
    else:
        assert (syncs.files, syncs.volumes) == ([file.fileno() for file in files], [])


def test_files_of_another_volume_are_synced_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch, has_syncfs=True)
    disk = OsDisk(str(tmp_path))
    files = [disk.create(str(tmp_path / f"{number}")) for number in range(2 * SYNCFS_ABOVE)]
    for file in files[:3]:
        file.device += 1
    disk.sync(files)
    assert (syncs.files, len(syncs.volumes)) == ([file.fileno() for file in files[:3]], 1)


def test_a_volume_that_cannot_be_synced_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch, has_syncfs=True)
    disk = OsDisk(str(tmp_path))
    files = [disk.create(str(tmp_path / f"{number}")) for number in range(SYNCFS_ABOVE + 1)]
    syncs.answer = -1
    ctypes.set_errno(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.sync(files)


def test_a_file_is_replaced_whole(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    assert read_file(disk, path) is None
    replace_file(disk, path, b"one")
    (tmp_path / "f.tmp").write_bytes(b"left by a crash")
    replace_file(disk, path, b"two")
    assert read_file(disk, path) == b"two"
    assert os.listdir(tmp_path) == ["f"]


def test_directories_are_made_durably_with_those_above_them(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    for _ in range(2):
        disk.make_directory(str(tmp_path / "a" / "b" / "c"))
        assert (tmp_path / "a" / "b" / "c").is_dir()
        assert set(synced) == {tmp_path / "a" / "b", tmp_path / "a", tmp_path}
        synced.clear()


def test_descriptors_stay_within_the_limit(disk: OsDisk, tmp_path: Path) -> None:
    for number in range(30):
        disk.create(str(tmp_path / f"{number}"))
    files = OpenFiles(disk, limit=5)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(30):
        files.get(str(tmp_path / f"{number}"))
    assert len(os.listdir("/proc/self/fd")) - before <= 5


def test_free_space_is_that_of_the_volume(disk: OsDisk, tmp_path: Path) -> None:
    assert 0 < disk.free_bytes() <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
