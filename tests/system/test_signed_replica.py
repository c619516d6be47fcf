"""A guarded source and its replica as real processes, over TLS: by hand with openssl, copied with users, taken over."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from logboom import connect
from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.broker.api import NodeStats, ReadRequest
from logboom.client.remote import RemoteBroker
from support.nodes.certificates import MadeCertificate, make_certificate
from support.nodes.process import NodeProcess, free_port
from support.packages import need
from support.waiting import wait_until

PASSWORD = "staple  horse ü"
Result = TypeVar("Result")


class Guarded:
    """A node with TLS on all ports, where nobody does anything without a name; its operator comes over the socket."""

    def __init__(self, root: Path, made: MadeCertificate, *options: str) -> None:
        root.mkdir()
        self.logd = f"127.0.0.1:{free_port()}"
        self._unix = root / "node.sock"
        options = ("--logd", f"tls://{self.logd}", "--unix", str(self._unix), *options, *made.options)
        self.node = NodeProcess(root, *options, "--set", "access.anonymous=none")
        self._made = made

    def ask(self, question: Callable[[RemoteBroker], Coroutine[Any, Any, Result]]) -> Result:
        async def story() -> Result:
            async with connect(f"unix:{self._unix}") as broker:
                return await question(broker)

        return asyncio.run(story())

    def say(self, commands: str) -> str:
        """By hand: the answers to these lines, over TLS."""
        command = ["openssl", "s_client", "-quiet", "-ign_eof", "-connect", self.logd, "-verify_return_error"]
        command += ["-CAfile", str(self._made.certificate)]
        said = subprocess.run(command, input=f"{commands}CLOSE\n".encode(), capture_output=True, timeout=300)
        return said.stdout.decode().replace("\r\n", "\n")

    def stats(self) -> NodeStats:
        return self.ask(lambda broker: broker.stats())


async def furnish(broker: RemoteBroker) -> str:
    """Users, rules and a topic; the token of the replica."""
    credential = Credential.derive(PASSWORD, b"salt" * 4)
    await broker.add_user("alice", [credential])
    await broker.add_user("replica", roles=["replica"])
    await broker.add_rule(Rule("allow", "alice", ("read", "write"), "topic", "orders"))
    await broker.add_rule(Rule("allow", "alice", ("describe",), "node"))
    await broker.add_rule(Rule("allow", "replica", ("manage",), "user"))
    await broker.create_topic("orders")
    return (await broker.create_token("replica")).token


async def audit(broker: RemoteBroker) -> list[tuple[str, str, str]]:
    chunk = await broker.read(ReadRequest("_audit"))
    values = [msgspec.json.decode(value) for batch in chunk.batches() for value in batch.values() if value is not None]
    return [(each["who"], each["act"], each["outcome"]) for each in values]


def test_a_guarded_node_is_spoken_to_by_hand_copied_and_taken_over(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    source = Guarded(tmp_path / "source", made)
    token = tmp_path / "token"
    copied = ["--replicate-from", f"tls://{source.logd}", "--set", f"replicate.token_file={token}"]
    replica = Guarded(tmp_path / "replica", made, *copied, "--set", f"replicate.ca={made.certificate}")
    with source.node:
        secret = source.ask(furnish)
        token.write_text(f"{secret}\n")
        token.chmod(0o600)
        line = f"AUTH alice {PASSWORD}\n"
        assert source.say("HEAD orders\nPING\n") == "ERR sign-in required\nPONG\nOK 0 0\n"
        assert source.say(f"{line}x\n") == "OK 0 0\nERR invalid protocol\n"
        assert source.say("AUTH alice wrong\nHEAD orders\n") == "ERR sign-in failed\n"
        assert source.say(f"{line}MSG orders 5\nhello\nREFUSE\n") == "OK 0 0\nOK 0 1\nERR not allowed\nOK 0 0\n"
        assert (
            source.say(f"AUTH {secret}\nHEAD orders\nMSG orders 1\na\n") == "OK 0 0\nOK 0 1\nERR not allowed\nOK 0 0\n"
        )
        need("nc", "netcat-openbsd")
        plain = subprocess.run(
            ["nc", *source.logd.split(":")], input=b"PING\nCLOSE\n", capture_output=True, timeout=300
        )
        assert b"PONG" not in plain.stdout
        with replica.node:
            wait_until(lambda: has_copied(replica), replica.node._said)
            assert replica.say(f"{line}HEAD orders\nMSG orders 1\na\n") == "OK 0 0\nOK 0 1\nERR read only\nOK 0 0\n"
            shown = replica.say(f"{line}CONFIG\n")
            assert f"\nreplicate.token_file: {token}\n" in shown
            assert secret not in shown
            source.node.kill()
            replica.ask(lambda broker: broker.promote())
            assert replica.say(f"{line}MSG orders 5\nthere\n") == "OK 0 0\nOK 1 1\nOK 0 0\n"
            acts = replica.ask(audit)
            assert ("_operator", "promote node", "done") in acts
            assert replica.node.stop() == 0
        for node in (source.node, replica.node):
            said = node.log.read_text()
            assert PASSWORD not in said
            assert secret not in said
            assert "Traceback" not in said


def has_copied(replica: Guarded, count: int = 1) -> bool:
    stats = replica.stats().replica
    return stats is not None and stats.access == "copied" and stats.connected and orders(replica) == count


def orders(node: Guarded) -> int:
    async def ask(broker: RemoteBroker) -> int:
        found = [topic for topic in await broker.list_topics() if topic.name == "orders"]
        return found[0].partitions[0].committed if found else 0

    return node.ask(ask)


def test_acts_and_refusals_of_a_real_node_are_in_its_trail(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    guarded = Guarded(tmp_path / "node", made)
    with guarded.node:
        guarded.ask(furnish)
        guarded.say("AUTH alice wrong\n")
        guarded.say("STATS\n")
        guarded.say(f"AUTH alice {PASSWORD}\nREFUSE\n")
        wanted = {
            ("_operator", "create topic", "done"),
            ("_operator", "create token", "done"),
            ("anonymous", "sign in", "sign-in-failed"),
            ("anonymous", "sign in", "sign-in-required"),
            ("alice", "manage node", "not-allowed"),
        }
        wait_until(lambda: wanted <= set(guarded.ask(audit)), lambda: str(guarded.ask(audit)))
        assert guarded.node.stop() == 0
