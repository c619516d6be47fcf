"""A data directory: one writer, one format, many logs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.errors import DirectoryInUse, DirectoryUnusable, SyncFailed
from logboom.storage import DataDirectory, Log, LogConfig, find_logs, log_name
from logboom.storage.data.directory import identity
from logboom.storage.files.disk import replace_file
from support.disks.simulated import Call, SimulatedDisk

NOW = 1_700_000_000_000_000
NAMES = [log_name("events", uuid.UUID(int=topic), partition) for topic in (1, 2) for partition in range(3)]


def test_a_second_writer_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)), pytest.raises(DirectoryInUse, match=r"in use by process \d+"):
        DataDirectory.open(str(tmp_path))
    DataDirectory.open(str(tmp_path)).close()


def test_a_directory_says_whether_it_was_closed_properly(tmp_path: Path) -> None:
    data = DataDirectory.open(str(tmp_path))
    assert data.was_clean
    data._lock = None
    data = DataDirectory.open(str(tmp_path))
    assert not data.was_clean
    data.close()
    data = DataDirectory.open(str(tmp_path))
    assert data.was_clean
    data.close()


def test_a_node_keeps_its_id_and_a_newer_or_foreign_format_is_refused(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        node_id = data.node.node_id
    with DataDirectory.open(str(tmp_path)) as data:
        assert data.node.node_id == node_id
    (tmp_path / "node.json").write_text(json.dumps({"node_id": node_id, "format": 2}))
    with pytest.raises(DirectoryUnusable, match="format 2"):
        DataDirectory.open(str(tmp_path))
    (tmp_path / "node.json").write_text("surprise")
    with pytest.raises(DirectoryUnusable, match="not ours"):
        DataDirectory.open(str(tmp_path))


def test_a_new_directory_gets_a_cluster_and_keeps_it_or_takes_the_names_it_is_given(tmp_path: Path) -> None:
    with DataDirectory.open(f"{tmp_path}/a") as data:
        node = data.node
        assert len(node.cluster_id) == len(node.node_id) == 32
    with DataDirectory.open(f"{tmp_path}/a", cluster_id=node.cluster_id, node_id=node.node_id) as data:
        assert data.node == node
    with DataDirectory.open(f"{tmp_path}/b", cluster_id="harbour", node_id="crane") as data:
        assert (data.node.cluster_id, data.node.node_id) == ("harbour", "crane")


@pytest.mark.parametrize("what", ["node", "cluster"])
def test_a_directory_of_another_node_or_cluster_is_refused_with_both_names_and_left_alone(
    what: str, tmp_path: Path
) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        owner = getattr(data.node, f"{what}_id")
    before = (tmp_path / "node.json").read_bytes(), (tmp_path / "lock").read_bytes()
    with pytest.raises(DirectoryUnusable, match=f"{what} {owner}, this is {what} other: name another directory"):
        DataDirectory.open(str(tmp_path), **{f"{what}_id": "other"})  # type: ignore[arg-type]
    assert before == ((tmp_path / "node.json").read_bytes(), (tmp_path / "lock").read_bytes())


def test_a_directory_from_before_there_were_clusters_gets_one_durably() -> None:
    disk = SimulatedDisk()
    DataDirectory.open("/data", disk).close()
    replace_file(disk, "/data/node.json", b'{"node_id": "n", "format": 1}')
    data = DataDirectory.open("/data", disk)
    assert data.node.node_id == "n"
    assert data.node.cluster_id
    for left in disk.power_losses():
        assert DataDirectory.open("/data", left).node == data.node


def test_many_logs_are_opened_at_once_and_found_again(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path), files_max=4) as data:
        logs = data.open_logs(NAMES, LogConfig(segment_bytes=4096))
        for number, log in enumerate(logs):
            for _ in range(20):
                log.append_one(build([b"%d" % number] * 50), NOW)
        data.sync()
        assert [log.committed for log in logs] == [1000] * 6
        assert len(data.files) <= 4
    with DataDirectory.open(str(tmp_path)) as data:
        assert data.log_names() == sorted(NAMES)
        for number, log in enumerate(data.open_logs(NAMES)):
            log.commit(log.last_index)
            assert {value for batch in log.batches() for value in batch.values()} == {b"%d" % number}


def test_one_sync_serves_all_dirty_logs_and_commits_them(tmp_path: Path) -> None:
    names = [log_name("t", uuid.UUID(int=5), partition) for partition in range(20)]
    with DataDirectory.open(str(tmp_path)) as data:
        logs = data.open_logs(names)
        for log in logs[:15]:
            log.append_one(build([b"x"]), NOW)
        data.sync()
        assert [log.committed for log in logs] == [1] * 15 + [0] * 5
        assert [log.synced_index for log in logs] == [1] * 15 + [0] * 5


def test_a_failed_sync_stops_the_writes_of_the_whole_node_until_it_is_reopened() -> None:
    disk = SimulatedDisk()
    data = DataDirectory.open("/data", disk)
    logs = data.open_logs(NAMES)
    for log in logs[:2]:
        log.append_one(build([b"x"]), NOW)

    def fault(call: Call) -> None:
        if call.name == "sync":
            raise OSError(5, "injected")

    disk.fault = fault
    with pytest.raises(SyncFailed):
        data.sync()
    disk.fault = None
    with pytest.raises(SyncFailed):
        data.sync()
    assert all(log.refusal is not None for log in logs)
    assert [log.committed for log in logs] == [0] * 6
    with pytest.raises(SyncFailed):
        data.close()
    data = DataDirectory.open("/data", disk)
    assert not data.was_clean
    assert all(log.refusal is None for log in data.open_logs(NAMES))


def test_a_log_has_one_owner_however_often_it_is_opened(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        log = data.open_log(NAMES[0])
        log.append_one(build([b"x"]), NOW)
        assert data.open_log(NAMES[0]) is log
        assert data.open_logs([NAMES[1], NAMES[1]])[0] is data.open_log(NAMES[1])
        log.close()
        again = data.open_log(NAMES[0])
        assert again is not log
        assert again.next == 1


def test_an_unclean_end_is_known_after_a_power_loss() -> None:
    disk = SimulatedDisk()
    DataDirectory.open("/data", disk).close()
    data = DataDirectory.open("/data", disk)
    assert data.was_clean
    for left in disk.power_losses():
        assert not DataDirectory.open("/data", left).was_clean


def test_a_name_must_carry_the_identity_of_its_log() -> None:
    assert identity(NAMES[4]) == (uuid.UUID(int=2).bytes, 1)
    for name in ("topics/x/0", "topics/x~12/0", f"../x~{'0' * 32}/0", f"x~{'0' * 32}/zero"):
        with pytest.raises(ValueError, match="TOPIC_ID"):
            identity(name)


def test_logs_are_found_wherever_one_looks(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.open_logs(NAMES)
        paths = [f"{tmp_path}/{name}" for name in sorted(NAMES)]
        disk = data.files.disk
        assert list(find_logs(disk, str(tmp_path))) == paths
        assert list(find_logs(disk, paths[0])) == paths[:1]
        assert list(find_logs(disk, f"{tmp_path}/nowhere")) == []


def test_a_log_deleted_and_begun_again_under_a_new_id_starts_at_zero(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        old: Log = data.open_log(NAMES[0])
        old.append_one(build([b"x"]), NOW)
        data.sync()
        new = data.open_log(log_name("events", uuid.UUID(int=99), 0))
        assert (new.next, new.refusal) == (0, None)
