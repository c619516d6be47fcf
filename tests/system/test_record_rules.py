"""Rules on channels and tags, with real nodes and real clients: what is read, written, copied and told of files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logboom import FileReader, Reader, Writer, connect
from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import Part, PublishKey
from logboom.cli import run
from logboom.client.link.profile import Profile
from logboom.client.node_catalog import NodeCatalog
from logboom.client.remote import RemoteBroker
from logboom.errors import RecordNotAllowed
from support.nodes.certificates import make_certificate
from support.nodes.secured import SecuredNode, secured_node
from support.waiting import wait_until
from system.test_signed_replica import PASSWORD, Guarded, furnish, has_copied

CHANNELS = ["dev/bob/t", "dev/eve/t", "dev/bob/h", None, "dev/eve/h", "dev/bob/t"]
TAGS = [(), (), ("secret",), (), (), ("red",)]
MINE = [0, 5]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("node")) as node:
        asyncio.run(
            node.add("bob", ("all", "topic", "*"), ("all", "transaction", "*"), ("read,write", "channel", "dev/%u/#"))
        )
        asyncio.run(node.add("sue", ("read", "topic", "*")))
        asyncio.run(node.add("tom", ("read,write", "topic", "*"), ("write", "channel", "in/%c")))
        asyncio.run(deny(node, "bob", "read,write", "tag", "secret"))
        with Writer("events", node.profile("ann")) as writer:
            for number, (channel, tags) in enumerate(zip(CHANNELS, TAGS, strict=True)):
                writer.write(b"%d" % number, channel=channel, tags=tags)
        yield node


async def deny(node: SecuredNode, who: str, rights: str, kind: str, name: str) -> int:
    async with connect(f"unix:{node.unix}") as broker:
        return (await broker.add_rule(Rule("deny", who, tuple(rights.split(",")), kind, name))).number


def ask(profile: Profile, question: Any) -> Any:
    async def story() -> Any:
        async with connect(profile) as broker:
            return await question(broker)

    return asyncio.run(story())


def test_a_reader_gets_what_its_user_may_read_in_every_form(node: SecuredNode) -> None:
    bob = node.profile("bob")
    with Reader("events", bob) as reader:
        assert [record.seqno for record in reader] == MINE
        assert reader.seqno == len(CHANNELS)
        bookmark = reader.bookmark
    with Reader("events", bob) as reader:
        assert [seqno for (seqnos,) in reader.lists(["seqno"]) for seqno in seqnos] == MINE
    with Reader("events", bob) as reader:
        assert [seqno for table in reader.tables() for seqno in table.column("seqno").to_pylist()] == MINE
    with Reader("events", bob, tags_any=("red",)) as reader:
        assert [record.seqno for record in reader] == [5]
    with Reader("events", bob, channel="dev/eve/#") as reader:
        assert list(reader) == []
    with Reader("events", bob, bookmark=bookmark) as reader:
        assert list(reader) == []
    with Reader("events", bob) as reader, pytest.raises(ValueError, match="rules of the node"):
        list(reader.batches())
    with Reader("events", node.profile("sue")) as reader:
        assert len(list(reader)) == len(CHANNELS)


def test_a_writer_is_refused_the_batch_and_goes_on(node: SecuredNode) -> None:
    with Writer("bobs", node.profile("bob")) as writer:
        writer.write(b"1", channel="dev/bob/x")
        writer.flush()
        writer.write(b"2", channel="dev/eve/x")
        with pytest.raises(RecordNotAllowed, match="channel 'dev/eve/x'"):
            writer.flush()
    with Writer("bobs", node.profile("bob")) as writer:
        writer.write(b"3", channel="dev/bob")
    with Reader("bobs", node.profile("ann")) as reader:
        assert [record.value for record in reader] == [b"1", b"3"]

    async def publish(broker: RemoteBroker) -> None:
        batch = build([b"4"], channels=["dev/eve"])
        await broker.publish_batches(PublishKey("bobs", 1), [Part("bobs", [batch])])

    with pytest.raises(RecordNotAllowed):
        ask(node.profile("bob"), publish)


@pytest.mark.parametrize(
    ("client", "channel", "allowed"),
    [("d7", "in/d7", True), ("d8", "in/d7", False), ("a/#", "in/a/x", False), (None, "in/d7", False)],
)
def test_a_client_says_what_it_is_called(node: SecuredNode, client: str | None, channel: str, allowed: bool) -> None:
    async def write(broker: RemoteBroker) -> Any:
        return (await broker.append([Part("events", [build([b""], channels=[channel])])]))[0]

    answer = ask(replace(node.profile("tom"), client=client), write)
    assert isinstance(answer, RecordNotAllowed) != allowed


def test_who_may_read_some_records_only_is_not_told_where_the_files_are(node: SecuredNode) -> None:
    async def directory(broker: RemoteBroker) -> str | None:
        return broker.welcome.directory

    assert ask(node.profile("sue"), directory) == str(node.process.directory)
    assert ask(node.profile("bob"), directory) is None
    for name, known in (("sue", str(node.process.directory)), ("bob", None)):
        catalog = NodeCatalog(node.profile(name))
        try:
            (events,) = catalog.find(["events"])
            assert catalog.directory == known
            assert catalog.archived(events, 0) is None  # where archives are is not for them: the node reads those
        finally:
            catalog.close()
    with FileReader(str(node.process.directory), "events") as files:  # file modes decide, and no rule
        assert len(list(files.records())) >= len(CHANNELS)


def test_an_open_reader_follows_the_rules(node: SecuredNode) -> None:
    asyncio.run(node.add("ida", ("read", "topic", "*")))
    with Writer("news", node.profile("ann")) as writer, Reader("news", node.profile("ida"), at="earliest") as reader:

        def next_values(*channels: str) -> list[str | None]:
            for channel in channels:
                writer.write(b"", channel=channel)
            writer.flush()
            return [record.channel for record in reader]

        assert next_values("a", "b") == ["a", "b"]
        number = asyncio.run(deny(node, "ida", "read", "channel", "b"))
        assert next_values("a", "b") == ["a"]

        async def allow(broker: RemoteBroker) -> None:
            await broker.remove_rule(number)

        ask(Profile(f"unix:{node.unix}"), allow)
        assert next_values("a", "b") == ["a", "b"]


def test_the_command_line_shows_the_same(
    node: SecuredNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = node.profile("bob")
    for name, value in (("SERVERS", profile.servers), ("USER", "bob"), ("PASSWORD", profile.password), ("CA", node.ca)):
        monkeypatch.setenv(f"LOGBOOM_{name}", str(value))
    for command in (["read", "events", "--format", "ndjson"], ["head", "events"]):
        assert run(command) == 0
        out = capsys.readouterr().out
        assert "dev/eve" not in out
        assert "secret" not in out


def test_a_replica_goes_by_the_same_rules_and_is_not_made_by_who_may_read_some(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    source = Guarded(tmp_path / "source", made)
    token = tmp_path / "token"
    copied = ["--replicate-from", f"tls://{source.logd}", "--set", f"replicate.token_file={token}"]
    replica = Guarded(tmp_path / "replica", made, *copied, "--set", f"replicate.ca={made.certificate}")

    async def fill(broker: RemoteBroker) -> None:
        await broker.add_rule(Rule("deny", "alice", ("read",), "channel", "b"))
        await broker.append([Part("orders", [build([b"one", b"two"], channels=["a", "b"])])])

    with source.node:
        token.write_text(source.ask(furnish))
        token.chmod(0o600)
        source.ask(fill)
        line = f"AUTH alice {PASSWORD}\n"
        said = source.say(f"{line}READ orders 0 9\n")
        assert "one" in said
        assert "two" not in said
        assert "ERR not allowed" in source.say(f"{line}REPLICATE orders/0 1\n")
        with replica.node:
            wait_until(lambda: has_copied(replica, 2), replica.node._said)
            said = replica.say(f"{line}READ orders 0 9\n")
            assert "one" in said
            assert "two" not in said
