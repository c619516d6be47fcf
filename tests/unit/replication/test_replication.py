"""A replica follows its source over the logd port, whatever becomes of either."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.allowances import Allowances
from logboom.broker.api import Part, ReadRequest, Settings, Start
from logboom.broker.append.validator_address import ValidatorRules
from logboom.broker.caller import EVERYBODY
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.monitor.checkup import examine
from logboom.errors import (
    BookmarkLost,
    ConfigError,
    ConnectionLost,
    DirectoryUnusable,
    ReadOnlyReplica,
    SeqnoOutOfRange,
    TopicDeleted,
    Unavailable,
    ValidatorNotAllowed,
)
from logboom.protocols.endpoint import Endpoint
from logboom.replication import carrier, replication, source_link
from logboom.replication.facts import SourceLog
from logboom.replication.replication import prepare
from logboom.replication.source_link import SourceLink
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.role import Role
from logboom.storage.data.topic import (
    FlushSettings,
    HookSettings,
    RecompressionSettings,
    RetentionSettings,
    SegmentSettings,
    ValidatorSettings,
)
from support.brokers.any_hook import ANY_HOOK
from support.nodes.process import free_port
from support.replicas.pair import OFTEN, Pair, tell
from support.replicas.stored import stored
from support.waiting import until

SMALL = Settings(segment=SegmentSettings(bytes=4096))


def test_a_replica_has_the_sources_topics_with_their_ids_settings_and_batches(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("one", 3, SMALL)
        await pair.source.create_topic("empty")
        for number in range(30):
            await pair.write("one", b"%d" % number * 200, partition=number % 3)
        await pair.caught_up()
        stats = await pair.stats()
        assert (stats.connected, stats.lag_records, stats.lag_logs, stats.error) == (True, 0, {}, None)
        assert stats.heard is not None
        assert pair.replica.node.cluster_id == pair.source.node.cluster_id
        assert pair.replica.node.node_id != pair.source.node.node_id

    tell(tmp_path, story)


def test_what_is_written_to_the_source_is_pushed_to_readers_of_the_replica(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.caught_up()
        subscription = await pair.replica.subscribe(ReadRequest("t"))
        for value in (b"a", b"b"):
            await pair.write("t", value)
            assert [record.value for record in (await subscription.next()).records()] == [value]

    tell(tmp_path, story)


def test_a_replica_refuses_every_change_and_says_where_to_make_it(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        replica = pair.replica
        (answer,) = await replica.append([Part("t", [build([b"x"])])])
        assert isinstance(answer, ReadOnlyReplica)
        assert pair.address in str(answer)
        bookmark = (await replica.read(ReadRequest("t"))).bookmark
        for change in (
            replica.create_topic("u"),
            replica.describe_topic("u", create=True),
            replica.configure_topic("t", SMALL),
            replica.delete_topic("t"),
            replica.trim("t", 0, 1),
            replica.commit_cursor("c", "t", 0, bookmark),
            replica.delete_cursor("c"),
        ):
            with pytest.raises(ReadOnlyReplica):
                await change
        await replica.refuse("t")
        await replica.accept("t")

    tell(tmp_path, story)


def test_a_replica_follows_settings_deletions_and_topics_that_are_made_again(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        for name in ("kept", "gone", "again"):
            await pair.source.create_topic(name)
            await pair.write(name, b"1")
        await pair.caught_up()
        subscription = await pair.replica.subscribe(ReadRequest("again", Start(at="latest")))
        await pair.source.configure_topic("kept", SMALL)
        await pair.source.delete_topic("gone")
        await pair.source.delete_topic("again")
        await pair.source.create_topic("again")
        await pair.write("again", b"2", b"3")
        await pair.caught_up()
        with pytest.raises(TopicDeleted):
            await subscription.next()
        assert [topic.name for topic in await pair.replica.list_topics()] == ["again", "kept"]

    tell(tmp_path, story)


def test_a_replica_goes_on_after_either_side_was_restarted(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 2, SMALL)
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.write("t", b"b", b"c", partition=1)
        await pair.start_replica()
        await pair.caught_up()
        await pair.stop_source()
        await pair.start_source()
        await pair.write("t", b"d")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.stop_source()
        await pair.start_source()
        await pair.start_replica()
        await pair.write("t", b"e")
        await pair.caught_up()
        assert (await pair.stats()).error is None

    tell(tmp_path, story)


def test_a_replica_that_was_one_before_starts_without_its_source_and_finds_it_later(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.hang_up()
        await pair.start_replica()
        assert [record.value for record in (await pair.replica.read(ReadRequest("t"))).records()] == [b"a"]
        assert not (await pair.stats()).connected
        while (await pair.stats()).error is None:
            await asyncio.sleep(0.01)
        assert "cannot be reached" in str((await pair.stats()).error)
        await pair.write("t", b"b")
        await pair.listen()
        await pair.caught_up()
        assert (await pair.stats()).error is None

    tell(tmp_path, story)


def test_what_retention_or_a_trim_took_at_the_source_goes_at_the_replica_too(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        kept = msgspec.structs.replace(SMALL, retention=RetentionSettings(records=10))
        await pair.source.create_topic("t", 1, kept)
        await pair.source.create_topic("trimmed", 1, SMALL)
        for number in range(60):
            await pair.write("t", b"%d" % number * 300)
            await pair.write("trimmed", b"%d" % number * 300)
        await pair.source.trim("trimmed", 0, 60)
        await pair.caught_up()
        for topic in ("t", "trimmed"):
            while True:
                there = (await pair.source.describe_topic(topic)).partitions[0]
                here = (await pair.replica.describe_topic(topic)).partitions[0]
                if there.first and here.first and here.segments <= 3:
                    break
                await asyncio.sleep(0.02)
            assert here.committed == there.committed
            assert here.first <= there.first
        assert here.first == there.first == 60

    tell(tmp_path, story)


def test_a_replica_that_retention_overtook_begins_the_log_anew_with_the_same_seqnos(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 2, SMALL)
        await pair.write("t", b"a")
        await pair.write("t", b"b", partition=1)
        await pair.caught_up()
        subscription = await pair.replica.subscribe(ReadRequest("t", Start(seqno=1), 0))
        await pair.stop_replica()
        for number in range(60):
            await pair.write("t", b"%d" % number * 300)
        kept = msgspec.structs.replace(SMALL, retention=RetentionSettings(records=10))
        await pair.source.configure_topic("t", kept)
        while (await pair.source.describe_topic("t")).partitions[0].first < 30:
            await asyncio.sleep(0.01)
        del subscription
        await pair.start_replica()
        waiting = await pair.replica.subscribe(ReadRequest("t", Start(seqno=1), 0))
        await pair.caught_up()
        with pytest.raises(SeqnoOutOfRange):
            await waiting.next()
        here = (await pair.replica.describe_topic("t")).partitions
        there = (await pair.source.describe_topic("t")).partitions
        assert here[0].first >= 30
        assert [place.committed for place in here] == [place.committed for place in there]
        await pair.write("t", b"more")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.start_replica()
        await pair.caught_up()

    tell(tmp_path, story)


def test_segments_that_the_source_recompressed_are_equal_to_what_the_replica_has(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        settings = msgspec.structs.replace(SMALL, recompression=RecompressionSettings("zstd"))
        await pair.source.create_topic("t", 1, settings)
        for _ in range(40):
            await pair.write("t", b"same" * 100)
        while {batch.header.codec for batch in (await stored(pair.source, "t")).values()} == {0}:
            await asyncio.sleep(0.02)
        await pair.caught_up()
        await pair.stop_replica()
        await pair.start_replica(name="another")
        await pair.caught_up()

    tell(tmp_path, story)


def test_a_topic_that_the_source_cannot_read_any_more_is_kept_while_others_come_and_go(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        for name in ("damaged", "gone"):
            await pair.source.create_topic(name)
            await pair.write(name, b"1")
        await pair.caught_up()
        await pair.stop_source()
        (description,) = (pair.root / "source").glob("topics/damaged~*/topic.json")
        description.write_bytes(b"{")
        await pair.start_source()
        assert (await pair.source.stats()).unreadable == [description.parent.name.partition("~")[2]]
        assert "topic.json cannot be read" in pair.source.recovered[0]
        await pair.source.delete_topic("gone")
        await pair.source.create_topic("new")
        while [topic.name for topic in await pair.replica.list_topics()] != ["damaged", "new"]:
            await asyncio.sleep(0.02)
        assert [record.value for record in (await pair.replica.read(ReadRequest("damaged"))).records()] == [b"1"]

    tell(tmp_path, story)


def test_cursors_are_copied_and_deleted_with_their_source(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a", b"b")
        chunk = await pair.source.read(ReadRequest("t"))
        await pair.source.commit_cursor("team/a:1", "t", 0, chunk.bookmark)
        await pair.caught_up()
        while await pair.replica.list_cursors() == []:
            await asyncio.sleep(0.02)
        assert await pair.replica.fetch_cursor("team/a:1", "t") == chunk.bookmark
        await pair.source.delete_cursor("team/a:1")
        while await pair.replica.list_cursors():
            await asyncio.sleep(0.02)

    tell(tmp_path, story)


def test_copying_that_is_stopped_before_it_began_lets_go_of_its_logs(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        replica = pair.replica.replica
        assert replica is not None
        link = await SourceLink.connect(Endpoint.parse(pair.address))
        one = carrier.Carrier(link, replica, carrier.Held())
        followed = carrier.FollowedLog(SourceLog("t", 0, "7f", 0, 0))
        one.add(followed)
        running = asyncio.create_task(one.run())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        one.abandon()
        assert followed.carrier is None
        assert not one.has_room
        await until(lambda: pair.connections <= 2)

    tell(tmp_path, story)


def test_a_log_that_is_another_one_at_the_source_is_left_alone_and_the_others_go_on(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("good")
        await pair.source.create_topic("bad", 1, SMALL)
        await pair.write("good", b"1")
        await pair.write("bad", b"1")
        await pair.caught_up()
        await pair.stop_replica()
        await diverge(tmp_path / "replica", "bad")
        await pair.write("bad", b"2", b"3")
        await pair.start_replica()
        await pair.write("good", b"2")
        while (await pair.stats()).error is None or (await pair.replica.describe_topic("good")).partitions[
            0
        ].committed < 2:
            await asyncio.sleep(0.01)
        stats = await pair.stats()
        assert "bad/0: batch 2 is not what the source has" in str(stats.error)
        assert stats.connected
        assert stats.lag_logs == {"bad/0": 1}
        values = [record.value for record in (await pair.replica.read(ReadRequest("bad"))).records()]
        assert values == [b"1", b"x"]

    tell(tmp_path, story)


def test_a_source_whose_log_is_shorter_than_the_copy_is_not_followed(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"1")
        await pair.caught_up()
        await pair.stop_replica()
        for _ in range(3):
            await diverge(tmp_path / "replica", "t")
        await pair.start_replica()
        while (await pair.stats()).error is None:
            await asyncio.sleep(0.01)
        assert "the log ends before it there" in str((await pair.stats()).error)

    tell(tmp_path, story)


async def diverge(directory: Path, topic: str) -> None:
    """Append something to the copy that the source never had."""
    with DataDirectory.open(str(directory)) as data:
        (log,) = data.open_topic(topic)
        log.append([build([b"x"])], log.append_time)
        data.sync()


def test_a_promoted_replica_takes_writes_under_a_new_term_and_follows_nobody(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        lost = await pair.source.read(ReadRequest("t"))
        await pair.hang_up()
        await pair.write("t", b"never copied")
        lost = await pair.source.read(ReadRequest("t"))
        await pair.replica.promote()
        assert (await pair.replica.stats()).replica is None
        await pair.replica.append([Part("t", [build([b"b"])])])
        values = [record.value for record in (await pair.replica.read(ReadRequest("t"))).records()]
        assert values == [b"a", b"b"]
        with pytest.raises(BookmarkLost):
            await pair.replica.read(ReadRequest("t", Start(bookmark=lost.bookmark)))
        await pair.listen()
        await pair.replica.create_topic("mine")
        await pair.stop_replica()
        with pytest.raises(DirectoryUnusable, match="was promoted"):
            await pair.start_replica()
        await pair.start_replica(address=None)
        await pair.replica.append([Part("mine", [build([b"c"])])])

    tell(tmp_path, story)


def test_promotion_waits_for_what_has_come_and_readers_go_on_with_their_bookmarks(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 2, SMALL)
        for number in range(200):
            await pair.write("t", b"%d" % number * 20, partition=number % 2)
        while not (await pair.replica.list_topics()):
            await asyncio.sleep(0.01)
        await pair.replica.promote()
        for partition in (0, 1):
            there, here = await stored(pair.source, "t", partition), await stored(pair.replica, "t", partition)
            last = max(here)
            assert set(here) - {last} <= set(there)
            assert here[last].header.kind == 1
            assert here[last].header.term == there[1].header.term + 1

    tell(tmp_path, story)


def test_a_replica_started_without_its_source_is_read_only_and_says_how_to_go_on(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.start_replica(address=None)
        (answer,) = await pair.replica.append([Part("t", [build([b"x"])])])
        assert isinstance(answer, ReadOnlyReplica)
        stats = await pair.stats()
        assert not stats.connected
        assert "--replicate-from" in str(stats.error)
        await pair.replica.promote()
        await pair.replica.append([Part("t", [build([b"x"])])])

    tell(tmp_path, story)


def test_a_directory_with_topics_of_its_own_never_becomes_a_copy(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.stop_replica()
        await pair.start_replica(address=None, name="own")
        cluster_id = pair.source.node.cluster_id
        await pair.replica.create_topic("mine")
        await pair.stop_replica()
        own = tmp_path / "own" / "node.json"
        node = msgspec.json.decode(own.read_bytes())
        own.write_bytes(msgspec.json.encode(node | {"cluster_id": cluster_id}))
        with pytest.raises(DirectoryUnusable, match="topics of its own"):
            await pair.start_replica(name="own")

    tell(tmp_path, story)


def test_another_node_at_the_sources_address_is_refused(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.caught_up()
        await pair.stop_source()
        await pair.start_source("impostor")
        while "is a copy of node" not in str((await pair.stats()).error):
            await asyncio.sleep(0.02)
        assert [topic.name for topic in await pair.replica.list_topics()] == ["t"]
        await pair.stop_replica()
        with pytest.raises(DirectoryUnusable, match="is a copy of node"):
            await pair.start_replica()

    tell(tmp_path, story)


def test_a_new_replica_whose_source_does_not_answer_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "FIRST_START_S", 0.2)
    with pytest.raises(Unavailable, match="for the first time"):
        asyncio.run(prepare(f"127.0.0.1:{free_port()}", str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError):
        asyncio.run(prepare("*:1774", str(tmp_path / "new")))


def test_hooks_and_retention_are_the_sources_until_the_replica_is_promoted(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        mark = tmp_path / "mark"
        settings = msgspec.structs.replace(
            SMALL, retention=RetentionSettings(records=1), hook=HookSettings(f"echo $LOGBOOM_SEGMENT >> {mark}; false")
        )
        await pair.source.create_topic("t", 1, settings)
        for number in range(40):
            await pair.write("t", b"%d" % number * 300)
        await pair.caught_up()
        await until(mark.exists)
        assert "/replica/" not in mark.read_text()
        assert (await pair.replica.describe_topic("t")).partitions[0].first == 0
        await pair.replica.promote()
        await until(lambda: "/replica/" in mark.read_text())

    tell(tmp_path, story, replace(OFTEN, allowed=ANY_HOOK))


def test_a_hook_and_a_validator_that_only_the_source_has_are_copied_and_neither_run_nor_asked(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        mark, url = tmp_path / "mark", "http://judge.test/"
        settings = msgspec.structs.replace(
            SMALL, retention=RetentionSettings(records=1), hook=HookSettings(f"echo x >> {mark}; false")
        )
        await pair.source.create_topic("t", 1, settings)
        await pair.source.create_topic("judged")
        for number in range(40):
            await pair.write("t", b"%d" % number * 300)
        await pair.write("judged", b"a")
        await pair.caught_up()
        judged = Settings(validators=ValidatorSettings((url,), on_failure="accept"))
        await pair.source.configure_topic("judged", judged)
        while (await pair.replica.describe_topic("judged")).settings != judged:
            await asyncio.sleep(0.01)
        await until(mark.exists)
        await pair.stop_replica()
        pair.config = OFTEN
        await pair.start_replica()
        assert (await pair.replica.describe_topic("t")).settings == settings
        await pair.replica.promote()
        await pair.stop_source()
        lines = mark.read_text()
        while not (await pair.replica.stats()).upkeep["hooks"]["failing"]:
            await asyncio.sleep(0.01)
        assert mark.read_text() == lines
        (answer,) = await pair.replica.append([Part("judged", [build([b"b"])])])
        assert isinstance(answer, ValidatorNotAllowed)
        found = {(complaint.kind, complaint.where) for complaint in await examine(pair.replica, EVERYBODY)}
        assert found >= {("unknown hook", "t"), ("validator not allowed", "judged")}

    allowed = Allowances(ANY_HOOK.hooks, ValidatorRules(("http://judge.test/",)))
    tell(tmp_path, story, replace(OFTEN, allowed=allowed))


def test_with_flush_os_the_copy_is_equal_and_an_unclean_end_of_the_copy_begins_no_term(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 1, Settings(flush=FlushSettings("os")))
        await pair.write("t", b"a", b"b")
        await pair.caught_up()
        await pair.stop_replica()
        lock = tmp_path / "replica" / "lock"
        lock.write_bytes(lock.read_bytes().replace(b"true", b"false"))
        await pair.start_replica()
        await pair.write("t", b"c")
        await pair.caught_up()

    tell(tmp_path, story)


def test_a_take_over_that_a_crash_cut_short_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.stop_replica()
        path = tmp_path / "replica" / "internal" / "replica.json"
        role = msgspec.json.decode(path.read_bytes(), type=Role)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(role, promoted=True)))
        for _ in range(2):
            await pair.start_replica(address=None)
            found = await stored(pair.replica, "t")
            assert [batch.header.term for batch in found.values()] == [0, 1]
            await pair.stop_replica()
        assert msgspec.json.decode(path.read_bytes(), type=Role).settled

    tell(tmp_path, story)


def test_many_logs_come_over_several_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "FEEDS_MAX", 2)

    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 5)
        for partition in range(5):
            await pair.write("t", b"x", partition=partition)
        await pair.caught_up()
        assert pair.connections == 4

    tell(tmp_path, story)


def test_a_source_that_feeds_few_logs_over_one_connection_is_asked_over_others(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 3)
        for partition in range(3):
            await pair.write("t", b"x", partition=partition)
        await pair.caught_up()
        assert pair.connections == 4

    tell(tmp_path, story, BrokerConfig(limits=Limits(subscriptions_per_connection=1)))


def test_a_replica_without_room_says_so_and_goes_on_when_there_is_some(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.start_replica(config=BrokerConfig(reserve_bytes=2**60))
        await pair.write("t", b"b")
        while "make room" not in str((await pair.stats()).error):
            await asyncio.sleep(0.01)
        assert (await pair.stats()).lag_logs == {"t/0": 1}
        await pair.stop_replica()
        await pair.start_replica()
        await pair.caught_up()

    tell(tmp_path, story)


def test_a_replica_reads_no_further_while_its_own_disk_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "HELD_BYTES_MAX", 200_000)

    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.start_replica(gated=True)
        await pair.write("t", b"first")
        await pair.caught_up()
        assert pair.disk is not None
        pair.disk.close_gate()
        held = 0
        for _ in range(60):
            await pair.write("t", *[b"x" * 10_000] * 30)
            writes = (await pair.replica.stats()).writes
            held = max(held, writes["waiting_bytes"] + writes["unsynced_bytes"])
        while (await pair.stats()).lag_records < 1500:
            await asyncio.sleep(0.01)
        assert 0 < held < 200_000 + 2 * 1024 * 1024
        pair.disk.gate.set()
        await pair.caught_up()

    tell(tmp_path, story)


def test_a_source_that_says_nothing_any_more_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_link, "PING_S", 0.01)
    monkeypatch.setattr(source_link, "DEAD_S", 0.05)

    async def story() -> None:
        pinged = asyncio.Event()

        async def listen_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                if line == b"PING\r\n":
                    pinged.set()
            writer.close()

        async with await asyncio.start_server(listen_only, "127.0.0.1", 0) as server:
            link = await SourceLink.connect(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]))
            with pytest.raises(ConnectionLost, match="has said nothing"):
                await link.ask("TOPICS")
            link.close()
        assert pinged.is_set()

    asyncio.run(asyncio.wait_for(story(), 300))


def test_a_replica_of_a_replica_is_equal_too(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 2, SMALL)
        await pair.write("t", b"a", b"b")
        await pair.caught_up()
        second = Pair(tmp_path / "second")
        second.borrow_source(pair.replica)
        await second.listen()
        await second.start_replica()
        try:
            await second.caught_up()
            await pair.write("t", b"c", partition=1)
            await pair.caught_up()
            await second.caught_up()
        finally:
            await second.stop_replica()
            await second.hang_up()

    tell(tmp_path, story)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_either_side_the_copy_becomes_equal(seed: int, tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            await happen(pair, chance)
        await pair.caught_up()
        while (await pair.stats()).error is not None:
            await asyncio.sleep(0.02)

    tell(tmp_path, story)


async def happen(pair: Pair, chance: random.Random) -> None:
    topics = await pair.source.list_topics()
    topic = chance.choice(topics).name if topics else "t0"
    what = chance.choices(
        ("create", "write", "trim", "configure", "delete", "replica", "source", "hang up", "wait"),
        (2, 12, 2, 2, 1, 2, 1, 1, 3),
    )[0]
    if what == "create" or not topics:
        name = f"t{chance.randrange(4)}"
        if name not in [known.name for known in topics]:
            await pair.source.create_topic(name, chance.choice((1, 2)), SMALL)
    elif what == "write":
        for _ in range(chance.randint(1, 20)):
            partition = chance.randrange(len((await pair.source.describe_topic(topic)).partitions))
            await pair.write(topic, b"x" * chance.randint(1, 900), partition=partition)
    elif what == "trim":
        log = (await pair.source.describe_topic(topic)).partitions[0]
        await pair.source.trim(topic, 0, chance.randint(log.first, log.committed))
    elif what == "configure":
        records = chance.choice((None, 1, 30))
        settings = msgspec.structs.replace(SMALL, retention=RetentionSettings(records=records))
        await pair.source.configure_topic(topic, settings)
    elif what == "delete":
        await pair.source.delete_topic(topic)
    elif what == "replica":
        await pair.stop_replica()
        await pair.start_replica()
    elif what == "source":
        await pair.stop_source()
        await pair.start_source()
    elif what == "hang up":
        await pair.hang_up()
        await pair.listen()
    else:
        await asyncio.sleep(chance.random() * 0.5)
