"""The one place that says what is committed."""

from __future__ import annotations

from pathlib import Path

import pytest

import logboom.broker
from logboom.batch import build
from logboom.broker.append.commitment import STANDALONE, Due
from logboom.storage import Log
from logboom.storage.data.topic import Acks, FlushSettings
from logboom.storage.files.disk import OsDisk
from logboom.storage.files.open_files import OpenFiles


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """With one batch that is synced, and one that is not."""
    log = Log.open(OpenFiles(OsDisk(str(tmp_path)), reserve_bytes=0), str(tmp_path / "log"))
    log.append_one(build([b"a"]), 1)
    log.sync()
    log.append_one(build([b"b"]), 2)
    return log


def test_on_a_standalone_node_what_is_synced_is_durable(log: Log) -> None:
    assert STANDALONE.durable_index(log) == 1
    due = STANDALONE.due(log, 2)
    assert due == Due(2, log.term)
    assert not STANDALONE.is_kept(log, due)
    log.sync()
    assert STANDALONE.durable_index(log) == 2
    assert STANDALONE.is_kept(log, due)
    assert STANDALONE.due(log, 2) is None


@pytest.mark.parametrize("acks", ["none", "leader"])
def test_other_promises_are_kept_by_writing(log: Log, acks: Acks) -> None:
    assert STANDALONE.due(log, 2, acks) is None


def test_what_is_written_is_committed_only_where_flush_is_os() -> None:
    assert STANDALONE.commits_written(FlushSettings("os"))
    assert not STANDALONE.commits_written(FlushSettings("each"))
    assert not STANDALONE.commits_written(FlushSettings("interval"))


def test_nobody_else_in_the_broker_decides_by_what_is_synced() -> None:
    (root,) = logboom.broker.__path__
    asking = [path.name for path in Path(root).rglob("*.py") if "synced_index" in path.read_text()]
    assert asking == ["commitment.py"]
