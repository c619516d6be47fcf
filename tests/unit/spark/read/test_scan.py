from __future__ import annotations

from pathlib import Path

import pytest

from logboom.spark.read import scan
from logboom.spark.read.scan import Scan, noted, scans


def test_the_notes_of_a_process_have_an_end_and_the_last_is_always_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FILE_BYTES_MAX", 5000)
    for number in range(200):
        with noted(Scan("events", 0, number, number + 1, 100), str(tmp_path)):
            pass
        assert scans(directory=str(tmp_path))[-1].seqno_from == number
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 6000
