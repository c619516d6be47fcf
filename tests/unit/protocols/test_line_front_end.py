"""The front-end of docs/howto/new-front-end.md works as it stands, on a node in this process."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from logboom.broker.api import ReadRequest
from logboom.protocols.front_end import FrontEnd
from logboom.server.node import Node
from logboom.server.sources import Setting, load
from support.peers.served import LOOPS, run

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "line_front_end.py"
PAGE = ROOT / "docs" / "howto" / "new-front-end.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = spec_from_file_location("line_front_end", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


class Lines:
    """The front-end on a node, at an address of its own."""

    def __init__(self, node: Node, front_end: FrontEnd, port: int) -> None:
        self.node = node
        self.front_end = front_end
        self.port = port

    async def say(self, data: bytes) -> bytes:
        """Everything that is answered to this, on one connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        writer.write_eof()
        answers = await reader.read()
        writer.close()
        return answers

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serve(example: Any, path: Path, **settings: str) -> AsyncIterator[Lines]:
    values = {f"listen.{name}": "127.0.0.1:0" for name in ("binary", "logd", "http")} | settings
    loaded = load(
        [Setting(name, value, "test") for name, value in {"data": str(path), **values}.items()], environment={}
    )
    node = await Node.open(loaded)
    broker = node.broker
    front_end = example.LineFrontEnd(broker, broker.limits, broker.rejections)
    server = await asyncio.get_running_loop().create_server(front_end.factory, "127.0.0.1", 0)
    try:
        yield Lines(node, front_end, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await front_end.close(10.0)
        await node.close(10.0)
    assert front_end.connections == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_lines_become_records_and_are_answered_in_their_order(example: Any, tmp_path: Path, loop: str) -> None:
    async def story() -> None:
        async with serve(example, tmp_path / "data") as lines:
            answers = await lines.say(b"news hello\nwood larch\r\nnews world\na/b nonsense\nnews \n")
            assert answers == b"OK 0\nOK 0\nOK 1\nERR invalid topic\nOK 2\n"
            chunk = await lines.node.broker.read(ReadRequest("news"))
            assert [record.value for record in chunk.records()] == [b"hello", b"world", b""]
            assert lines.front_end.meter.shown().records_in == 4

    run(story(), loop)


def test_many_lines_at_once_are_numbered_one_after_another(example: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with serve(example, tmp_path / "data", **{"limits.in_flight_bytes": "64KiB"}) as lines:
            answers = await lines.say(b"".join(b"news %d\n" % number for number in range(50_000)))
            assert answers == b"".join(b"OK %d\n" % number for number in range(50_000))

    run(story())


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"POST / HTTP/1.1\r\nHost: node\r\n\r\n", b"ERR invalid line\n"),
        (b"x" * 5000, b"ERR invalid line\n"),
        (b"news hello", b"ERR invalid line\n"),
        (b"one 1\ntwo 2\n", b"ERR unavailable\n"),
    ],
    ids=["HTTP", "too long", "no end", "too many topics"],
)
def test_what_cannot_go_on_is_told_and_ends_the_connection(
    example: Any, tmp_path: Path, said: bytes, answer: bytes
) -> None:
    async def story() -> None:
        async with serve(example, tmp_path / "data", **{"limits.topics_per_connection": "1"}) as lines:
            assert (await lines.say(said)).endswith(answer)
            await lines.until(lambda: lines.front_end.connections == 0)

    run(story())


def test_a_node_that_closes_says_goodbye(example: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with serve(example, tmp_path / "data") as lines:
            reader, writer = await asyncio.open_connection("127.0.0.1", lines.port)
            writer.write(b"news hello\n")
            assert await reader.readline() == b"OK 0\n"
            await lines.front_end.close(10.0)
            assert await reader.read() == b"ERR unavailable\n"
            writer.close()

    run(story())


def test_the_page_shows_the_example_as_it_is() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines() if line]
    assert shown == [line for line in EXAMPLE.read_text().splitlines() if line]
