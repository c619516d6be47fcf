from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from logboom.storage.disk import OsDisk, write_all
from logboom.storage.mapping import map_file


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
    assert len(os.listdir("/proc/self/fd")) == before
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
