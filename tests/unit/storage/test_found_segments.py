from __future__ import annotations

import os
from pathlib import Path

import pytest

from logboom.storage.files.disk import OsDisk
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.recovery import find_segments


def log(number: int, generation: int = 0) -> str:
    return f"{number * 10:020}-{number + 1:020}-{generation:010}.log"


def index(number: int, generation: int = 0) -> str:
    return f"{log(number, generation)[:-4]}.idx"


def snap(number: int) -> str:
    return f"{number * 10:020}-{number + 1:020}.snap"


CASES = {
    "nothing": ([], [], []),
    "one that was begun": ([snap(0)], [log(0)], []),
    "three": ([snap(0), log(0), index(0), snap(1), log(1), index(1), snap(2)], [log(0), log(1), log(2)], []),
    "two generations": (
        [snap(0), log(0, 2), index(0, 2), log(0, 9), index(0, 9)],
        [log(0, 9)],
        [log(0, 2), index(0, 2)],
    ),
    "dropped up to its snapshot": ([snap(0), snap(1), snap(2), log(2)], [log(2)], [snap(0), snap(1)]),
    "dropped up to the last": ([snap(0), snap(1), snap(2)], [log(2)], [snap(0), snap(1)]),
    "a file that is missing": ([snap(0), log(0, 3), snap(1), snap(2), log(2)], [log(0, 3), log(1), log(2)], []),
    "a snapshot that is missing": ([snap(0), log(0), log(1)], [log(0), log(1)], []),
    "all snapshots are missing": ([log(0), log(1)], [log(0), log(1)], []),
    "an index of nothing": ([snap(0), log(0), snap(1), index(1), index(7)], [log(0), log(1)], [index(1), index(7)]),
    "half written": ([snap(0), log(0), f"{log(0, 1)}.tmp", "x.tmp"], [log(0)], [f"{log(0, 1)}.tmp", "x.tmp"]),
    "files of others": (["notes.log", f"{log(0)}x", snap(0), log(0), index(0)], [log(0)], []),
}


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_segments_are_found_by_their_names_and_litter_goes(tmp_path: Path, case: str, clean: bool) -> None:
    names, found, litter = CASES[case]
    for name in names:
        (tmp_path / name).touch()
    segments = find_segments(OpenFiles(OsDisk(str(tmp_path))), str(tmp_path), clean)
    assert [os.path.basename(segment.log_path) for segment in segments] == found
    starts = [(segment.first_seqno, segment.first_index) for segment in segments]
    assert [segment.after for segment in segments] == [*starts[1:], *[None] * bool(starts)]
    assert set(names) - set(os.listdir(tmp_path)) == (set(litter) if clean else set())
