from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path

import pytest

from logboom.errors import Damage
from logboom.storage.files import mapped
from logboom.storage.files.disk import File, OsDisk, write_all
from logboom.storage.files.mapped import map_file, populate, resident
from logboom.storage.run import Run


def maps_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_one_map_shows_what_is_appended_later(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = OsDisk(str(tmp_path)).create(str(path))
    write_all(file, b"first")
    assert bytes(file.map(5)) == b"first"
    write_all(file, b" second", 5)
    assert bytes(file.map(12)) == b"first second"
    assert maps_of(path) == 1


def test_a_view_ends_where_the_file_does(tmp_path: Path) -> None:
    file = OsDisk(str(tmp_path)).create(str(tmp_path / "f"))
    assert bytes(file.map(100)) == b""
    write_all(file, bytes(100_000))
    assert len(file.map(10**9)) == 100_000
    file.truncate(50)
    assert len(file.map(100_000)) == 50


def test_a_map_is_read_only_holds_no_descriptor_and_goes_with_its_last_view(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 10_000)
    fd = os.open(path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    view = map_file(fd, 10_000)[:10_000]
    part = view[5:10]
    assert len(os.listdir("/proc/self/fd")) <= before
    os.close(fd)
    with pytest.raises(TypeError):
        view[0] = 1
    del view
    assert bytes(part) == b"xxxxx"
    assert maps_of(path) == 1
    del part
    gc.collect()
    assert maps_of(path) == 0


def test_what_cannot_be_mapped_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="descriptor"):
        map_file(-1, 10)


def cold_file(path: Path, pages: int) -> File:
    """A file on the disk that is not in memory, or a test that is skipped where it cannot be kept out of it."""
    file = OsDisk(str(path)).create(str(path / "f"))
    write_all(file, bytes(pages * mmap.PAGESIZE))
    file.sync()
    file.drop_cache()
    if resident(file.map(pages * mmap.PAGESIZE)):
        pytest.skip("this file system keeps its files in memory")
    return file


def run_of(file: File) -> Run:
    return Run(file, 0, file.size(), 0, 1, 1, 2, True)


def test_what_is_not_in_memory_is_known_and_is_there_after_it_was_read(disk_path: Path) -> None:
    file = cold_file(disk_path, 300)
    run = run_of(file)
    assert not resident(run.view(ready=False))
    assert resident(run.view())
    del run
    again = OsDisk(str(disk_path)).open(file.path)
    del file
    gc.collect()
    again.drop_cache()
    again.read(1, 0)
    assert resident(again.map(100)[5:50])
    assert not resident(run_of(again).view(ready=False))


def test_bytes_that_are_no_map_are_in_memory() -> None:
    assert resident(memoryview(b""))
    assert resident(memoryview(bytes(100_000))[3:70_000])


def test_a_range_that_cannot_be_read_is_damage_before_anybody_touches_it(tmp_path: Path) -> None:
    """The file ends before its map: touching what is behind kills, as a block does that its device cannot read."""

    class Shorter:
        path = "/f"

        def __init__(self) -> None:
            (tmp_path / "f").write_bytes(bytes(300_000))
            self._file = OsDisk(str(tmp_path)).open(str(tmp_path / "f"))
            self._view = self._file.map(300_000)
            self._file.truncate(100_000)

        def size(self) -> int:
            return 300_000

        def map(self, end: int) -> memoryview:
            return self._view[:end]

        def read(self, size: int, position: int) -> bytes:
            return self._file.read(size, position)

    with pytest.raises(Damage, match=r"cannot be read|too short"):
        run_of(Shorter()).view()  # type: ignore[arg-type]


def test_where_the_system_cannot_tell_what_can_be_read_nothing_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_POPULATE_READ", 12345)
    monkeypatch.setattr(mapped, "_mincore", None)
    (tmp_path / "f").write_bytes(b"x" * 300_000)
    view = run_of(OsDisk(str(tmp_path)).open(str(tmp_path / "f"))).view()
    assert isinstance(view.obj, bytes)
    assert bytes(view) == b"x" * 300_000


def test_what_is_in_memory_is_not_brought_there_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"x" * 300_000)
    file = OsDisk(str(tmp_path)).open(str(tmp_path / "f"))
    if not getattr(file.map(300_000).obj, "is_told", False):
        pytest.skip("this system does not tell what is in memory")
    monkeypatch.setattr(mapped, "_madvise", None)
    assert populate(file.map(300_000))


def test_who_is_not_told_what_is_in_memory_has_it_brought_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To whoever does not own a file the system says that all of it is there, and what is behind its end as well."""
    monkeypatch.setattr(mapped, "resident", lambda view: True)
    (tmp_path / "f").write_bytes(b"x" * 300_000)
    view = OsDisk(str(tmp_path)).open(str(tmp_path / "f")).map(300_000)
    monkeypatch.setattr(mapped, "_madvise", None)
    assert not populate(view)
