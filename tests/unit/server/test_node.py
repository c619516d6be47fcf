"""A node in this process: listeners, broker and front-end together, on either event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from logboom import connect
from logboom.batch import build
from logboom.broker.api import Part, ReadRequest
from logboom.errors import ConfigError, DirectoryUnusable, LogboomError
from logboom.server.node import Node
from logboom.server.sources import LoadedConfig, Setting, load
from logboom.storage import DataDirectory

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def configured(path: Path, **settings: object) -> LoadedConfig:
    values = {"data": f"{path}/data", "listen.binary": "127.0.0.1:0", **settings}
    return load([Setting(name, value, "test") for name, value in values.items()], environment={})


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_written_over_tcp_is_read_over_the_unix_socket(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def story() -> None:
        node = await Node.open(configured(tmp_path, **{"listen.unix": f"{tmp_path}/node.sock"}))
        async with connect(str(node.endpoints["binary"][0])) as broker:
            await broker.append([Part("events", [build([b"a", b"b"])])])
        async with connect(f"unix:{tmp_path}/node.sock") as broker:
            chunk = await broker.read(ReadRequest("events"))
            assert [record.value for record in chunk.records()] == [b"a", b"b"]
            assert (await broker.stats()).connections == {"binary": 1, "logd": 0, "http": 0}
        await node.close(10)
        with pytest.raises(LogboomError):
            await asyncio.wait_for(stats(str(node.endpoints["binary"][0])), 300)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())
    with DataDirectory.open(f"{tmp_path}/data") as data:
        assert data.was_clean


async def stats(address: str) -> None:
    async with connect(address) as broker:
        await broker.stats()


def test_a_node_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(f"{tmp_path}/taken.sock")
            other.listen()
            with pytest.raises(ConfigError, match="taken"):
                await Node.open(configured(tmp_path, **{"listen.unix": f"{tmp_path}/taken.sock"}))
        with pytest.raises(DirectoryUnusable, match="cluster"):
            await Node.open(configured(tmp_path, cluster_id="another"))
        node = await Node.open(configured(tmp_path))
        await node.close(10)

    asyncio.run(story())
    with DataDirectory.open(f"{tmp_path}/data") as data:
        assert data.was_clean


def test_clients_that_are_connected_are_told_that_the_node_ends(tmp_path: Path) -> None:
    async def story() -> None:
        node = await Node.open(configured(tmp_path))
        async with connect(str(node.endpoints["binary"][0])) as broker:
            await broker.stats()
            await node.close(10)
            with pytest.raises(LogboomError):
                await broker.stats()

    asyncio.run(story())


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "passwd").write_text("root")
    with pytest.raises(DirectoryUnusable, match=r"is not empty \(passwd is there\) and no data directory"):
        asyncio.run(Node.open(configured(tmp_path)))
    assert [path.name for path in data.iterdir()] == ["passwd"]
    (data / "passwd").unlink()
    data.rmdir()
    data.write_text("")
    with pytest.raises(DirectoryUnusable, match="is no directory"):
        asyncio.run(Node.open(configured(tmp_path)))
