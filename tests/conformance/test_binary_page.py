"""docs/protocols/binary.md says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from logboom.broker.api import (
    ActivityRequest,
    CursorInfo,
    CursorMove,
    KeyInfo,
    PartitionInfo,
    Publication,
    PublishedPart,
    PublishKey,
    ReadRequest,
    Receipt,
    StageInfo,
    TopicInfo,
)
from logboom.errors import CODES, DumpError
from logboom.protocols.binary import messages
from logboom.protocols.binary.handler import METHODS
from logboom.protocols.binary.messages import Kind
from support.brokers.memory import MemoryBroker
from support.peers.binary import serve
from support.peers.served import run

PAGE = (Path(__file__).parents[2] / "docs" / "protocols" / "binary.md").read_text()
NEVER_SENT = {
    "connection-lost",
    "local-protocol-error",
    "buffer-full",
    "index-out-of-range",
    "replica-diverged",
    "feed-ended",
    "records-lost",
    "spark-missing",
    "value-unreadable",
    "package-missing",
    "publish-unfinished",
    "not-opened",
    "not-local",
    "directory-in-use",
    "directory-unusable",
}


def dumps() -> list[bytes]:
    """The bytes of the page's hex dumps, without what is said beside them."""
    blocks = re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    lines = [[re.match(r"(?:[0-9a-f]{2} ?)+(?:  |$)", line) for line in block.splitlines()] for block in blocks]
    return [b"".join(bytes.fromhex(line[0]) for line in found if line) for found in lines]


def test_the_exchange_on_the_page_is_what_a_node_and_a_client_say() -> None:
    hello, welcome, append, appended, *staged = dumps()

    async def story() -> None:
        broker = MemoryBroker()
        await broker.create_topic("events")
        async with serve(broker) as node:
            peer = await node.peer(hello=False)
            peer.writer.write(hello)
            assert await peer.reader.readexactly(len(welcome)) == welcome
            peer.writer.write(append)
            assert await peer.reader.readexactly(len(appended)) == appended
            ((parts, acks),) = broker.appends
            assert (parts[0].topic, parts[0].batches[0].values(), acks) == ("events", [b"hello"], "durable")
            for request, answer in zip(staged[::2], staged[1::2], strict=True):
                peer.writer.write(request)
                assert await peer.reader.readexactly(len(answer)) == answer
            assert broker.logs["events"].next == 3

    run(story())


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_in_the_table(kind: Kind) -> None:
    assert re.search(rf"^\| {kind.value} \| {kind.name} \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "code", sorted(code for code in CODES if code not in NEVER_SENT and not issubclass(CODES[code], DumpError))
)
def test_every_error_a_node_may_send_is_in_the_table(code: str) -> None:
    assert re.search(rf"^\|.*`{code}`.*\|.*\|.*\|$", PAGE, re.MULTILINE)


def carried(error: type) -> set[str]:
    """The names of what an error sets on itself: they are its data on the wire."""
    made = [
        vars(kind)["__init__"]
        for kind in error.__mro__
        if kind.__module__ == error.__module__ and "__init__" in vars(kind)
    ]
    return {name for make in made for name in re.findall(r"self\.(\w+)(?:: [^=]+)? = ", inspect.getsource(make))}


def test_every_error_has_the_data_that_the_table_says() -> None:
    table = PAGE[PAGE.index("| code | data | means |") : PAGE.index("A code that is not in the table")]
    for codes, data in re.findall(r"^\| (`.*?`) \|(.*?)\|", table, re.MULTILINE):
        for code in re.findall(r"`([a-z-]+)`", codes):
            assert set(re.findall(r"\w+", data)) == carried(CODES[code]), code


def test_no_error_is_in_the_table_that_is_none() -> None:
    table = PAGE[PAGE.index("| code | data | means |") : PAGE.index("A code that is not in the table")]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [code for row in rows for code in re.findall(r"`([a-z-]+)`", row)]
    assert len(named) > 30
    assert [code for code in named if code not in CODES] == []


def test_every_call_is_in_the_table_with_its_arguments() -> None:
    for call, name in METHODS.items():
        row = re.search(rf"^\| `{name}` \|(.*)\|.*\|$", PAGE, re.MULTILINE)
        assert row, name
        assert re.findall(r"`(\w+):", row[1]) == [field.name for field in msgspec.structs.fields(call)]


@pytest.mark.parametrize(
    "head",
    [
        messages.Hello,
        messages.Welcome,
        messages.WireLimits,
        messages.Failure,
        messages.Append,
        messages.AppendPart,
        messages.Appends,
        messages.AppendedAt,
        messages.PublishBatches,
        messages.Read,
        ReadRequest,
        messages.ChunkHead,
        messages.Credit,
        TopicInfo,
        PartitionInfo,
        CursorInfo,
        CursorMove,
        ActivityRequest,
        StageInfo,
        PublishKey,
        Receipt,
        Publication,
        PublishedPart,
        KeyInfo,
    ],
    ids=lambda head: head.__name__,
)
def test_every_field_of_a_head_is_on_the_page_in_its_order(head: type[msgspec.Struct]) -> None:
    names = [field.name for field in msgspec.structs.fields(head)]
    pattern = r"\b" + r".*?\b".join(f"{name}:" for name in names)
    assert re.search(pattern, PAGE, re.DOTALL), names
