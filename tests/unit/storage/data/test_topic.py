from __future__ import annotations

import random
from contextlib import suppress

import pytest

from logboom.batch import build
from logboom.errors import InvalidTopicName, TopicExists, TopicNotFound
from logboom.storage import DataDirectory
from logboom.storage.data.topic import (
    HookSettings,
    RecompressionSettings,
    RetentionSettings,
    SegmentSettings,
    Settings,
    Topic,
    find_topic,
    read_topics,
    write_topic,
)
from logboom.storage.files.disk import replace_file
from logboom.storage.health.check import check
from support.disks.simulated import PowerLoss, SimulatedDisk


def open_directory(disk: SimulatedDisk) -> DataDirectory:
    disk.kill()
    return DataDirectory.open("/data", disk, reserve_bytes=0)


def test_a_topic_is_there_after_a_restart_with_its_settings() -> None:
    disk = SimulatedDisk()
    settings = Settings(
        segment=SegmentSettings(bytes=8192),
        retention=RetentionSettings(bytes=10_000, age_ms=5, records=7, hard_bytes=99),
        hook=HookSettings(delete="true"),
        recompression=RecompressionSettings(codec="zstd"),
    )
    topic = open_directory(disk).create_topic("events", 3, settings)
    data = open_directory(disk)
    assert data.topics() == [topic]
    assert data.topic("events").settings == settings
    logs = data.open_topic("events")
    assert [log.config.segment_bytes for log in logs] == [8192] * 3
    data.configure_topic("events", Settings())
    assert [log.config.segment_bytes for log in logs] == [128 * 1024 * 1024] * 3
    assert open_directory(disk).topic("events").settings == Settings()


@pytest.mark.parametrize("name", ["", "a/b", "..", "é", "a b", "x" * 250, "a\n", "~"])
def test_a_name_that_a_topic_cannot_have_is_refused(name: str) -> None:
    if name == "..":
        assert Topic.make(name).directory.startswith("topics/..~")
        return
    with pytest.raises(InvalidTopicName):
        Topic.make(name)


def test_the_longest_names_are_cut_in_the_path_only() -> None:
    disk = SimulatedDisk()
    data = open_directory(disk)
    names = ["x" * 249, "x" * 248, "x" * 80, "x" * 81]
    ids = {name: data.create_topic(name).id for name in names}
    assert {topic.name: topic.id for topic in open_directory(disk).topics()} == ids
    assert all(len(path.split("/")[3]) <= 255 for path in disk.names if path.startswith("/data/topics/"))
    for name in names:
        found = find_topic(disk, "/data", name)
        assert found is not None
        assert found.id == ids[name]
    assert find_topic(disk, "/data", "x" * 100) is None


def test_there_is_one_topic_of_a_name() -> None:
    data = open_directory(SimulatedDisk())
    topic = data.create_topic("events")
    with pytest.raises(TopicExists) as caught:
        data.create_topic("events")
    assert caught.value.topic_id == topic.id
    for call in (data.topic, data.delete_topic, data.open_topic):
        with pytest.raises(TopicNotFound):
            call("other")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (Settings(segment=SegmentSettings(bytes=1)), "segment.bytes"),
        (Settings(retention=RetentionSettings(age_ms=-1)), "retention.age_ms"),
        (Settings(hook=HookSettings(timeout_ms=0)), "hook.timeout_ms"),
        (Settings(recompression=RecompressionSettings(level=50)), "recompression.level"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: Settings, key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Topic.make("events", 1, settings)


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_number_of_partitions_out_of_range_is_refused(partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        Topic.make("events", partitions)


def test_what_is_no_topic_is_passed_over() -> None:
    disk = SimulatedDisk()
    topic = open_directory(disk).create_topic("events")
    for path, data in (
        (f"/data/topics/x~{'0' * 32}/topic.json", b"garbage"),
        (f"/data/topics/y~{'1' * 32}/topic.json", b'{"id": "another", "name": "y"}'),
        (f"/data/topics/z~{'2' * 32}/topic.json", b'{"id": "%s", "name": "a/b"}' % (b"2" * 32)),
        ("/data/topics/foreign/topic.json", b"{}"),
    ):
        disk.make_directory(path.rpartition("/")[0])
        replace_file(disk, path, data)
    assert read_topics(disk, "/data") == [topic]


def write_and_delete(disk: SimulatedDisk) -> DataDirectory:
    data = open_directory(disk)
    data.create_topic("kept")
    data.create_topic("events", 2)
    for log in (*data.open_topic("kept"), *data.open_topic("events")):
        log.append_one(build([b"x"]), 1)
    data.sync()
    return data


def test_a_deleted_topic_is_gone_and_its_name_free() -> None:
    disk = SimulatedDisk()
    data = write_and_delete(disk)
    old = data.topic("events")
    slots = disk.names["/data/state"].cached
    size = len(slots)
    data.delete_topic("events")
    assert [topic.name for topic in data.topics()] == ["kept"]
    assert old.id_bytes not in bytes(slots)
    again = data.create_topic("events", 2)
    assert again.id != old.id
    assert [log.next for log in data.open_topic("events")] == [0, 0]
    assert len(slots) == size, "the slots of a deleted topic are used again"
    assert data.empty_trash() == 1
    assert disk.list("/data/trash") == []
    assert not [path for path in disk.names if old.id in path]
    data.close()
    report = check(disk, "/data", is_directory=disk.is_directory)
    assert not report.findings


@pytest.mark.parametrize("seed", range(60))
def test_a_power_loss_in_the_middle_leaves_a_topic_whole_or_gone(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    data = write_and_delete(disk)
    at = disk.calls + chance.randint(1, 12)

    def fail(call: object) -> None:
        if disk.calls >= at:
            raise PowerLoss

    disk.fault = fail
    gone = False
    with suppress(PowerLoss):
        data.delete_topic("events")
        gone = True
        data.empty_trash()
    left = disk.power_loss(chance)
    data = open_directory(left)
    assert data.open_topic("kept")[0].committed == 1
    names = [topic.name for topic in data.topics()]
    assert names in (["kept"], ["events", "kept"])
    assert not (gone and "events" in names)
    if "events" in names:
        assert [log.committed for log in data.open_topic("events")] == [1, 1]
    data.empty_trash()
    data.close()
    assert not check(left, "/data", is_directory=left.is_directory).damaged


@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_while_a_topic_is_made_leaves_it_whole_or_absent(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    open_directory(disk)
    at = disk.calls + 1 + seed % 5

    def fail(call: object) -> None:
        if disk.calls >= at:
            raise PowerLoss

    disk.fault = fail
    topic = Topic.make("events")
    try:
        write_topic(disk, "/data", topic)
        made = True
    except PowerLoss:
        made = False
    left = read_topics(disk.power_loss(chance), "/data")
    assert left in ([], [topic])
    assert left or not made
