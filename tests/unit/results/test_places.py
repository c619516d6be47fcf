from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from logboom.errors import ResultsUnreadable
from logboom.results.pipeline_state import ResultFile
from logboom.results.places import UNFINISHED, ResultPlace


@pytest.mark.parametrize("name", ["plain", "with space", "per%20cent", "q?x=1", "ü#"])
def test_what_was_written_is_read_back_from_any_directory(tmp_path: Path, name: str) -> None:
    place = ResultPlace(str(tmp_path / name)).below("a/b")
    stored = place.write("c/d.json", b"content")
    assert place.read(stored) == b"content"
    assert (tmp_path / name / "a/b/c/d.json").read_bytes() == b"content"
    assert ResultPlace(place.uri).read(stored) == b"content"
    with place.open("c/d.json") as file:
        file.seek(3)
        assert file.read() == b"tent"


def test_a_relative_path_and_a_file_uri_are_absolute_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ResultPlace("results/").uri == str(tmp_path / "results")
    assert ResultPlace(f"file://{tmp_path}/a%20b").uri == str(tmp_path / "a b")


def test_the_parameters_of_a_store_stay_at_the_end_of_its_names() -> None:
    below = ResultPlace("s3://key:secret@bucket/logs?region=eu-1&endpoint_override=127.0.0.1%3A9").below("archive/x")
    assert below.uri == "s3://key:secret@bucket/logs/archive/x?region=eu-1&endpoint_override=127.0.0.1%3A9"
    assert below._root == "bucket/logs/archive/x"


@pytest.mark.parametrize("uri", ["nowhere://x/y", "file://host/x"])
def test_what_is_no_place_is_named(uri: str) -> None:
    with pytest.raises(ResultsUnreadable, match="is no place for results"):
        ResultPlace(uri)


def test_a_file_is_not_there_before_it_is_whole(tmp_path: Path) -> None:
    place = ResultPlace(str(tmp_path))
    with place.writing("x/file") as stream:
        stream.write(b"half")
        stream.flush()
        assert place.size("x/file") is None
        assert [name.startswith(UNFINISHED) for name in place.list("x")] == [True]
    assert place.size("x/file") == 4
    assert place.list("x") == ["file"]


def test_a_write_that_fails_leaves_nothing_and_what_was_there_before(tmp_path: Path) -> None:
    place = ResultPlace(str(tmp_path))
    before = place.write("file", b"before")

    def write() -> None:
        with place.writing("file") as stream:
            stream.write(b"after")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert place.read(before) == b"before"
    assert place.list() == ["file"]


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    place = ResultPlace(str(tmp_path))

    def write() -> None:
        with place.writing("x/file") as stream, open("/dev/full", "wb") as full:
            (unfinished,) = (tmp_path / "x").iterdir()
            os.dup2(full.fileno(), _descriptor_of(unfinished))
            stream.write(bytes(100))

    with pytest.raises(OSError, match="No space left"):
        write()
    assert place.list("x") == []


def _descriptor_of(path: Path) -> int:
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") == str(path):
                return int(number)
        except OSError:
            continue
    raise AssertionError(f"{path} is not open")


def test_a_file_that_is_not_what_was_published_is_not_read(tmp_path: Path) -> None:
    place = ResultPlace(str(tmp_path))
    stored = place.write("file", b"content")
    with pytest.raises(ResultsUnreadable, match="its checksum differs, in 7 bytes"):
        place.read(msgspec.structs.replace(stored, crc=stored.crc ^ 1))
    (tmp_path / "file").write_bytes(b"conten")
    with pytest.raises(ResultsUnreadable, match="is not what was published"):
        place.read(stored)
    with pytest.raises(ResultsUnreadable, match="cannot be read"):
        place.read(ResultFile("gone", 1, 1))
    with pytest.raises(ResultsUnreadable, match="cannot be read"):
        place.open("gone")


def test_names_are_listed_sorted_and_directories_with_a_slash(tmp_path: Path) -> None:
    place = ResultPlace(str(tmp_path))
    for path in ("b", "a/2", "a/1", "c/d/e"):
        place.write(path, b"")
    assert place.list() == ["a/", "b", "c/"]
    assert place.list("a") == ["1", "2"]
    assert place.list(recursive=True) == ["a/", "a/1", "a/2", "b", "c/", "c/d/", "c/d/e"]
    assert place.list("none") == []


def test_a_file_or_a_directory_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    place = ResultPlace(str(tmp_path))
    for path in ("b", "a/2", "a/1"):
        place.write(path, b"")
    assert [place.remove("a/"), place.remove("b"), place.remove("a"), place.remove("none")] == [
        True,
        True,
        False,
        False,
    ]
    assert place.list() == []
