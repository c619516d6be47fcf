"""The real disk behind the seam."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logboom.storage import OpenFiles, OsDisk
from logboom.storage.disk import SYNCFS_ABOVE, read_file, replace_file, write_all


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


@pytest.mark.parametrize("count", [1, SYNCFS_ABOVE, SYNCFS_ABOVE + 1, 40])
def test_any_number_of_files_is_synced(disk: OsDisk, tmp_path: Path, count: int) -> None:
    files = [disk.create(str(tmp_path / f"{number}")) for number in range(count)]
    for file in files:
        file.write([b"x"], 0)
    disk.sync(files)


def test_a_file_is_replaced_whole(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    assert read_file(disk, path) is None
    replace_file(disk, path, b"one")
    (tmp_path / "f.tmp").write_bytes(b"left by a crash")
    replace_file(disk, path, b"two")
    assert read_file(disk, path) == b"two"
    assert os.listdir(tmp_path) == ["f"]


def test_directories_are_made_with_those_above_them(disk: OsDisk, tmp_path: Path) -> None:
    disk.make_directory(str(tmp_path / "a" / "b" / "c"))
    disk.make_directory(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()


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
