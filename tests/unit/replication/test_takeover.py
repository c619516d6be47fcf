"""What clients and operators meet before, while and after a replica takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from logboom import AsyncReader, AsyncWriter
from logboom.batch import build
from logboom.broker import replica
from logboom.broker.api import Part, ReadRequest, Settings, Start
from logboom.errors import BookmarkLost, ConnectionLost, LogReadOnly, ReadOnlyReplica, StorageError, Unavailable
from logboom.protocols.endpoint import Endpoint
from logboom.replication.source_link import SourceLink
from logboom.server.node import Node
from logboom.server.screen import Ready, describe
from logboom.server.sources import LoadedConfig, Setting, load
from logboom.storage.bookmark import Bookmark
from logboom.storage.data import directory
from logboom.storage.data.role import Role
from logboom.storage.data.topic import SegmentSettings
from support.replicas.pair import Pair, tell
from support.replicas.stored import stored
from support.waiting import until


def configured(path: Path, **settings: object) -> LoadedConfig:
    nowhere = {f"listen.{protocol}": "127.0.0.1:0" for protocol in ("binary", "logd", "http")}
    values = {"data": str(path), **nowhere, **settings}
    return load([Setting(name, value, "test") for name, value in values.items()], environment={})


@asynccontextmanager
async def twins(root: Path) -> AsyncIterator[tuple[Node, Node, LoadedConfig]]:
    """A source, a replica of it, and what the latter was told."""
    source = await Node.open(configured(root / "source"))
    try:
        loaded = configured(root / "replica", replicate_from=str(source.endpoints["logd"][0]))
        copy = await Node.open(loaded)
        try:
            yield source, copy, loaded
        finally:
            await copy.close(10)
    finally:
        await source.close(10)


def address_of(node: Node) -> str:
    return str(node.endpoints["binary"][0])


def test_writers_and_cursors_find_the_source_behind_the_replica(tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(300), twins(tmp_path) as (source, copy, _):
            both = f"{address_of(copy)},{address_of(source)}"
            async with AsyncWriter("t", both) as writer:
                assert (await writer.send(b"a")).seqno == 0
            while copy.broker.replica is None or not await copy.broker.list_topics():
                await asyncio.sleep(0.01)
            async with AsyncReader("t", both, cursor="c") as reader:
                await reader.commit()
            assert await source.broker.fetch_cursor("c", "t") is not None
            with pytest.raises(ReadOnlyReplica, match=str(source.endpoints["logd"][0])):
                await AsyncWriter("t", address_of(copy)).__aenter__()
            await copy.broker.promote()
            async with AsyncWriter("u", address_of(copy)) as writer:
                assert (await writer.send(b"a")).seqno == 0

    asyncio.run(story())


def test_the_screen_of_a_replica_says_whose_it_is_and_suggests_what_it_can_do(tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(300), twins(tmp_path) as (source, copy, loaded):
            text = describe(Ready.of(copy), await copy.broker.stats(), loaded, 10)
            assert f"  replica    of {source.endpoints['logd'][0]}: it serves reads; writes go there" in text
            assert f"logboom read events --server {address_of(copy)} --follow" in text
            assert f"logboom promote --server {address_of(copy)}" in text
            assert "logboom write" not in text
            assert "topic create" not in text
            await copy.broker.promote()
            text = describe(Ready.of(copy), await copy.broker.stats(), loaded, 10)
            assert "logboom promote" not in text
            assert "logboom write" in text
            addresses = {"binary": ["0.0.0.0:2773"], "logd": [], "http": ["[::]:2775"]}
            everywhere = msgspec.structs.replace(Ready.of(copy), addresses=addresses, unix=None)
            text = describe(everywhere, await copy.broker.stats(), loaded, 10)
            assert "logboom write events --server localhost:2773 hello world" in text
            assert "console    http://localhost:2775/" in text
            assert "curl http://localhost:2775/" in text

    asyncio.run(story())


def test_a_place_that_has_not_reached_the_copy_is_worth_waiting_for_until_it_takes_over(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.hang_up()
        await pair.write("t", b"b")
        chunk = await pair.source.read(ReadRequest("t"))
        place = str(Bookmark(bytes.fromhex(chunk.topic_id), 0, chunk.next_seqno, chunk.term))
        for gaps in ("raise", "skip"):
            with pytest.raises(Unavailable, match="ends at seqno 1: 2 may come"):
                await pair.replica.read(msgspec.structs.replace(ReadRequest("t", Start(bookmark=place)), gaps=gaps))
        await pair.listen()
        await pair.caught_up()
        assert (await pair.replica.read(ReadRequest("t", Start(bookmark=place)))).next_seqno == 2
        await pair.hang_up()
        await pair.write("t", b"c")
        chunk = await pair.source.read(ReadRequest("t"))
        place = str(Bookmark(bytes.fromhex(chunk.topic_id), 0, chunk.next_seqno, chunk.term))
        await pair.replica.promote()
        with pytest.raises(BookmarkLost):
            await pair.replica.read(ReadRequest("t", Start(bookmark=place)))

    tell(tmp_path, story)


def test_a_take_over_that_cannot_be_written_down_leaves_a_replica_that_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.write("t", b"b", b"c")
        await pair.start_replica(config=replace(pair.config, reserve_bytes=2**62))
        while not (await pair.stats()).lag_records:
            await asyncio.sleep(0.01)
        with monkeypatch.context() as patch:
            patch.setattr(replica, "write_role", is_full)
            with pytest.raises(StorageError, match="try again"):
                await pair.replica.promote()
        stats = await pair.stats()
        assert (stats.connected, stats.lag_records) == (False, 2)
        assert stats.error is not None
        assert "nothing is copied" in stats.error
        await pair.replica.promote()
        assert (await pair.replica.stats()).replica is None
        await pair.stop_replica()
        await pair.start_replica(address=None)
        assert [batch.header.term for batch in (await stored(pair.replica, "t")).values()] == [0, 1], "as it has room"

    tell(tmp_path, story)


def test_a_log_that_was_about_to_begin_anew_gets_its_term_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 1, Settings(segment=SegmentSettings(bytes=4096)))
        await pair.write("t", b"a")
        await pair.caught_up()
        await pair.stop_replica()
        await pair.write("t", *(b"x" * 1000 for _ in range(20)))
        await pair.source.trim("t", 0, 15)
        log = pair.source._catalog.find("t").writer(0).log
        await until(lambda: log.first_index > 2)  # what the replica has not is gone
        with monkeypatch.context() as patch:
            patch.setattr(directory, "begin_log", is_full)
            await pair.start_replica()
            while (await pair.stats()).error is None:
                await asyncio.sleep(0.01)
            await pair.replica.promote()
        (answer,) = await pair.replica.append([Part("t", [build([b"b"])])])
        assert isinstance(answer, LogReadOnly)
        path = tmp_path / "replica" / "internal" / "replica.json"
        for settled in (False, True):
            assert msgspec.json.decode(path.read_bytes(), type=Role).settled is settled
            await pair.stop_replica()
            await pair.start_replica(address=None)
            assert {batch.header.term for batch in (await stored(pair.replica, "t")).values()} == {1}

    tell(tmp_path, story)


def test_a_host_that_can_have_no_address_is_a_source_that_cannot_be_reached() -> None:
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        asyncio.run(SourceLink.connect(Endpoint("a..b", 1774)))
