"""Topics and cursors by plain calls of a Client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from logboom import Client, Reader, RetentionSettings, Settings, Writer
from logboom.errors import TopicExists, TopicNotFound
from support.brokers.places import served


def test_topics_are_made_changed_listed_and_deleted(tmp_path: Path) -> None:
    def administer(address: str) -> None:
        with Client(address) as client:
            made = client.create_topic("rooms", 3, Settings(retention=RetentionSettings(records=1000)))
            assert (made.name, len(made.partitions), made.settings.retention.records) == ("rooms", 3, 1000)
            with pytest.raises(TopicExists):
                client.create_topic("rooms")
            changed = msgspec.structs.replace(made.settings, retention=RetentionSettings(records=5))
            assert client.configure_topic("rooms", changed).settings.retention.records == 5
            assert client.describe_topic("rooms").id == made.id
            client.create_topic("events")
            assert [topic.name for topic in client.list_topics()] == ["events", "rooms"]
            assert [topic.name for topic in client.list_topics("roo")] == ["rooms"]
            client.delete_topic("rooms", made.id)
            with pytest.raises(TopicNotFound, match="rooms"):
                client.describe_topic("rooms")

    _with_node(tmp_path, administer)


def test_cursors_are_listed_and_deleted_and_logs_trimmed(tmp_path: Path) -> None:
    def administer(address: str) -> None:
        with Writer("events", address) as writer:
            writer.write_many([b"%d" % number for number in range(10)])
        with Reader("events", address, cursor="billing") as reader:
            assert len(list(reader)) == 10
            reader.commit()
        with Client(address) as client:
            assert [(cursor.cursor, cursor.topic) for cursor in client.list_cursors()] == [("billing", "events")]
            assert client.delete_cursor("billing", "events") == 1
            assert client.list_cursors("events") == []
            client.trim("events", 7)
        with Reader("events", address) as reader:
            assert [record.seqno for record in reader] == [7, 8, 9]

    _with_node(tmp_path, administer)


def _with_node(tmp_path: Path, administer: Callable[[str], None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), served(tmp_path, "tcp") as (_, address):
            await asyncio.to_thread(administer, address)

    asyncio.run(run())
