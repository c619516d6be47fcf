"""A term that two nodes have begun, each for itself, is two terms: a bookmark of one says nothing of the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Part, ReadRequest, Settings, Start
from logboom.broker.local import LocalBroker
from logboom.client.files.file_reader import FileReader
from logboom.errors import BookmarkLost
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.topic import FlushSettings
from support.replicas.pair import Pair, tell


async def append(broker: LocalBroker, *values: bytes) -> None:
    for value in values:
        (answer,) = await broker.append([Part("t", [build([value])])])
        assert not isinstance(answer, Exception), answer


async def bookmark(broker: LocalBroker, seqno: int) -> str:
    """Behind so many records."""
    chunk = await broker.read(ReadRequest("t", Start(seqno=seqno - 1), max_bytes=1))
    assert chunk.next_seqno == seqno
    return chunk.bookmark


async def promoted(pair: Pair, name: str, *values: bytes) -> tuple[str, str, str]:
    """Of a copy that took over and was written to: bookmarks before, behind the first and behind all of it."""
    await pair.start_replica(name=name)
    await pair.caught_up()
    await pair.replica.promote()
    before = (await pair.replica.describe_topic("t")).partitions[0].committed
    await append(pair.replica, *values)
    places = [await bookmark(pair.replica, before + more) for more in (0, 1, len(values))]
    await pair.stop_replica()
    return places[0], places[1], places[2]


def test_a_bookmark_of_one_copy_is_refused_by_another_that_took_over_too(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"1", b"2")
        await pair.stop_replica()
        before, first, last = await promoted(pair, "one", b"one 3", b"one 4", b"one 5")
        await promoted(pair, "two", b"two 3", b"two 4", b"two 5", b"two 6")
        assert Bookmark.parse(last).term == 1
        await pair.stop_source()
        other = await LocalBroker.open(str(tmp_path / "two"))
        try:
            chunk = await other.read(ReadRequest("t", Start(bookmark=before)))
            assert chunk.seqno == 2
            for place in (first, last):
                with pytest.raises(BookmarkLost, match="another term 1"):
                    await other.read(ReadRequest("t", Start(bookmark=place)))
            own = await bookmark(other, 5)
            assert (await other.read(ReadRequest("t", Start(bookmark=own)))).seqno == 5
            await other.commit_cursor("c", "t", 0, own)
            assert await other.fetch_cursor("c", "t") == own
            with FileReader(tmp_path / "two", "t", bookmark=own) as reader:
                assert [record.value for record in reader.records()] == [b"two 6"]
                assert Bookmark.parse(reader.bookmark).lineage == Bookmark.parse(own).lineage != 0
            with pytest.raises(BookmarkLost):
                FileReader(tmp_path / "two", "t", bookmark=last)
        finally:
            await other.close()

    tell(tmp_path, story)


def test_a_source_that_begins_a_term_after_an_unclean_end_is_told_from_a_copy_that_took_over(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 1, Settings(flush=FlushSettings("os")))
        await pair.write("t", b"1", b"2")
        await pair.stop_replica()
        _, _, last = await promoted(pair, "one", b"one 3", b"one 4")
        await pair.stop_source()
        (tmp_path / "source" / "lock").write_bytes(b"")  # as a kill leaves it
        source = await LocalBroker.open(str(tmp_path / "source"))
        try:
            await append(source, b"3", b"4", b"5")
            with pytest.raises(BookmarkLost):
                await source.read(ReadRequest("t", Start(bookmark=last)))
            assert Bookmark.parse(await bookmark(source, 4)).term == Bookmark.parse(last).term == 1
        finally:
            await source.close()

    tell(tmp_path, story)


def test_a_bookmark_without_a_lineage_is_compared_by_its_term(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"1", b"2")
        await pair.stop_replica()
        _, _, last = await promoted(pair, "one", b"one 3", b"one 4")
        old = str(Bookmark.parse(last)._replace(lineage=0))
        assert (old[0], last[0]) == ("1", "2")
        other = await LocalBroker.open(str(tmp_path / "one"))
        try:
            assert (await other.read(ReadRequest("t", Start(bookmark=old)))).seqno == 4
        finally:
            await other.close()

    tell(tmp_path, story)


def test_lineages_outlive_the_segments_that_they_were_begun_in_and_reach_copies_of_copies(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"1")
        await pair.caught_up()
        await pair.replica.promote()
        await append(pair.replica, *(b"%d" % number for number in range(5)))
        place = await bookmark(pair.replica, 4)
        log = pair.replica._catalog.find("t").writer(0).log
        lineage = log.lineage_of(1)
        log.roll()
        await append(pair.replica, b"after the roll")
        further = Pair(tmp_path)
        further.borrow_source(pair.replica)
        await further.listen()
        await further.start_replica(name="further")
        try:
            await further.caught_up()
            assert (await further.replica.read(ReadRequest("t", Start(bookmark=place)))).seqno == 4
            copied = further.replica._catalog.find("t").writer(0).log
            assert copied.lineage_of(1) == lineage != 0
        finally:
            await further.stop_replica()
            await further.hang_up()
        await pair.stop_replica()
        shutil.copytree(tmp_path / "replica", tmp_path / "moved")
        with FileReader(tmp_path / "moved", "t", seqno=5) as reader:
            list(reader.records())
            assert Bookmark.parse(reader.bookmark).lineage == lineage
        again = await LocalBroker.open(str(tmp_path / "moved"))
        assert again._catalog.find("t").writer(0).log.lineage_of(1) == lineage
        await again.close()

    tell(tmp_path, story)
