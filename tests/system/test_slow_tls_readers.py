"""Readers over TLS that ask for much and read little of it, or slowly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from logboom import Writer
from logboom.broker.api import Chunk, ReadRequest, Start
from logboom.client.link.address import parse_servers
from logboom.client.link.blocking_link import BlockingLink
from logboom.client.remote import connect
from logboom.protocols.binary.messages import Kind, Read
from support.nodes.secured import SecuredNode, secured_node
from support.waiting import wait_until

MIB = 1024 * 1024
READERS = 10
HELD_BYTES_MAX = 4 * MIB
"""By each of them; a chunk is 32 MiB."""
VALUES = [bytes([number]) * MIB for number in range(48)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    async def create(found: SecuredNode) -> None:
        async with connect(found.profile()) as broker:
            await broker.create_topic("events", 1)

    with secured_node(tmp_path_factory.mktemp("node")) as found:
        asyncio.run(create(found))
        with Writer("events", found.profile()) as writer:
            writer.write_many(VALUES)
        yield found


def link(node: SecuredNode) -> BlockingLink:
    return BlockingLink.connect(parse_servers(node.profile())[0], 300.0)


def subscribe(to: BlockingLink) -> int:
    return to.send(Kind.SUBSCRIBE, Read(ReadRequest("events", Start(), max_bytes=64 * MIB), 64 * MIB))


def memory_bytes(node: SecuredNode) -> int:
    """Of the process alone, without pages of files."""
    status = Path(f"/proc/{node.process._pid}/status").read_text()
    return 1024 * int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0])


def test_who_does_not_read_costs_no_copy_of_what_he_asked_for(node: SecuredNode) -> None:
    before = memory_bytes(node)
    with ExitStack() as stack:
        for _ in range(READERS):
            subscribe(stack.enter_context(closing(link(node))))
        with closing(link(node)) as other:  # when it has been answered so often, the others have been sent to
            for _ in range(20):
                other.ask(Kind.PING)
        assert memory_bytes(node) - before < READERS * HELD_BYTES_MAX
    wait_until(lambda: memory_bytes(node) - before < READERS * HELD_BYTES_MAX)


def test_answers_do_not_come_into_the_middle_of_a_chunk(node: SecuredNode) -> None:
    with closing(link(node)) as slow:
        correlation, received = subscribe(slow), 0
        pings = [slow.send(Kind.PING) for _ in range(50)]
        while received < len(VALUES) or pings:
            event = slow.next_event(300.0)
            assert event is not None
            if event.correlation != correlation:
                pings.remove(event.correlation)
                continue
            assert isinstance(event.what, Chunk)
            received += event.what.next_seqno - event.what.seqno
            pings += [slow.send(Kind.PING) for _ in range(5) if received < len(VALUES)]
    assert received == len(VALUES)
