"""A node with TLS and users, and every kind of client of ours."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logboom import AsyncReader, AsyncWriter, Client, Reader, Writer
from logboom.client.link.profile import Profile
from logboom.client.remote import connect
from logboom.errors import ConnectionLost, NotAllowed, SignInFailed, SignInRequired, TopicNotFound
from support.nodes.secured import PASSWORD, SecuredNode, secured_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        asyncio.run(node.add("bob", ("read,write,create", "topic", "bob.*"), ("all", "transaction", "*")))
        yield node


def values(count: int, size: int = 100) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


@pytest.mark.parametrize(("count", "size"), [(1, 10), (50_000, 100), (64, 1 << 20)])
def test_what_is_written_over_tls_is_read_over_tls(node: SecuredNode, count: int, size: int) -> None:
    topic, profile = f"bob.{count}", node.profile("bob")
    sent = values(count, size)
    with Writer(topic, profile) as writer:
        writer.write_many(sent)
    with Reader(topic, profile) as reader:
        found = [value for (part,) in reader.lists(("value",)) for value in part]
    assert found == sent


def test_record_by_record_with_answers_and_in_a_transaction(node: SecuredNode) -> None:
    profile = node.profile("bob")
    with Writer("bob.single", profile, linger_ms=0) as writer:
        for number in range(50):
            assert writer.send(b"%d" % number).result().seqno == number
    with Client(profile) as client, client.transaction() as transaction:
        transaction.write("bob.single", b"last")
    with Reader("bob.single", profile) as reader:
        assert [record.value for record in reader][-1] == b"last"


def test_asyncio_clients(node: SecuredNode) -> None:
    async def story() -> None:
        profile = node.profile("bob")
        async with AsyncWriter("bob.async", profile) as writer:
            await writer.write_many(values(20_000))
        async with AsyncReader("bob.async", profile) as reader:
            found = 0
            async for table in reader.tables():
                found += table.num_rows
            assert found == 20_000

    asyncio.run(story())


def test_a_writer_goes_on_signed_in_after_the_node_was_killed(tmp_path: Path) -> None:
    with secured_node(tmp_path) as node:
        with Writer("events", node.profile()) as writer:
            writer.write(b"before")
            writer.flush()
            node.process.kill()
            node.process.start()
            writer.write(b"after")
            writer.flush()
        with Reader("events", node.profile()) as reader:
            assert [record.value for record in reader] == [b"before", b"after"]


def test_those_who_are_not_known_are_told_nothing(node: SecuredNode) -> None:
    profile = node.profile()
    with pytest.raises(SignInRequired), Writer("events", replace(profile, user=None, password=None)):
        pass
    with pytest.raises(SignInFailed), Reader("events", node.profile("ann", "not the one")) as reader:
        next(iter(reader))
    with pytest.raises(TopicNotFound), Reader("events-of-ann", node.profile("bob")) as reader:
        next(iter(reader))
    with Writer("bob.x", node.profile("bob")) as writer:
        writer.write(b"x")
    with pytest.raises(NotAllowed):
        asyncio.run(_delete(node.profile("bob"), "bob.x"))


def test_a_write_that_is_not_allowed_was_not_appended(node: SecuredNode) -> None:
    with Writer("shown", node.profile()) as writer:
        writer.write(b"x")
    asyncio.run(node.add("eve", ("read", "topic", "shown")))
    with Writer("shown", node.profile("eve"), linger_ms=0) as writer, pytest.raises(NotAllowed):
        writer.send(b"y").result()
    with Client(node.profile("eve")) as client, pytest.raises(NotAllowed), client.transaction() as transaction:
        transaction.write("shown", b"y")


async def _delete(profile: Profile, topic: str) -> None:
    async with connect(profile) as broker:
        await broker.delete_topic(topic)


def test_a_node_that_is_not_the_one_it_seems_to_be_is_not_spoken_to(node: SecuredNode, tmp_path: Path) -> None:
    profile = node.profile()
    for wrong, word in (
        (replace(profile, ca=None), "not trusted"),
        (replace(profile, server_name="other.example"), "another host"),
        (replace(profile, servers=node.address), "write tls://"),
    ):
        with pytest.raises(ConnectionLost, match=word):
            asyncio.run(_call(wrong))
    assert PASSWORD not in repr(profile)


async def _call(profile: Profile) -> None:
    async with connect(profile, retry=False) as broker:
        await broker.ping()


def test_old_versions_of_tls_are_refused(node: SecuredNode) -> None:
    host, _, port = node.address.rpartition(":")
    context = ssl.create_default_context(cafile=node.ca)
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as new:
        assert new.version() == "TLSv1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as new:
        assert new.cipher()[0].startswith("ECDHE")  # type: ignore[index]
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((host, int(port))) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain, server_hostname=host)
