"""Every call of the broker, by every kind of caller, in the process and over the wire: what the table of rights says.

The table is made from the API: a call that is new and asks for nothing fails here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import Part
from logboom.broker.caller import EVERYBODY, ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.client.link.profile import Profile
from logboom.client.remote import RemoteBroker, connect
from logboom.errors import LogboomError, NotAllowed, SignInFailed, SignInRequired, TopicNotFound
from logboom.protocols.binary.front_end import BinaryFrontEnd, Identity
from support.brokers.every_call import ASKED, ask

PASSWORD = "pencil-box"
USERS = ("nothing", "enough", "admin")
OPEN_TO_ALL = ("whoami",)
LISTS = ("list_users", "list_tokens")
"""Whoever asks sees himself."""
ONLY_HERE = ("feed", "deleted", "access", "append_then")
"""Not over the wire of clients, or there the same as another."""
REFUSALS = (NotAllowed, SignInRequired, SignInFailed)


async def prepare(broker: LocalBroker, call: str) -> None:
    await broker.create_topic("events", caller=ITSELF)
    await broker.append([Part("events", [build([b"a", b"b"])])], caller=ITSELF)
    credential = Credential.derive(PASSWORD, os.urandom(16), iterations=4096)
    for name in (*USERS, *(f"lacks-{number}" for number in range(len(ASKED[call])))):
        await broker.add_user(name, [credential], roles=["admin"] if name == "admin" else [], caller=ITSELF)
    for number, (right, kind, name) in enumerate(ASKED[call]):
        for who in ("enough", *(f"lacks-{other}" for other in range(len(ASKED[call])) if other != number)):
            await broker.add_rule(Rule("allow", who, (right,), kind, name or "*"), caller=ITSELF)


@asynccontextmanager
async def served(broker: LocalBroker) -> AsyncIterator[str]:
    """The address of the binary protocol on this broker."""
    front = BinaryFrontEnd(
        *(broker, broker.limits, broker.rejections, None, "logboom/test"),
        Identity(broker.node.node_id, broker.node.cluster_id),
        sign_in=broker.sign_in,
    )
    server = await asyncio.get_running_loop().create_server(front.factory, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname())
        await front.close(1.0)


async def callers(broker: LocalBroker, call: str) -> dict[str, Caller]:
    names = [*USERS, *(f"lacks-{number}" for number in range(len(ASKED[call])))]
    elsewhere = Caller(address="192.0.2.1:1")
    return {name: await broker.sign_in.with_password(elsewhere, name, PASSWORD) for name in names}


def check(call: str, name: str, errors: list[LogboomError]) -> None:
    if name in ("enough", "admin") or call in OPEN_TO_ALL or call in LISTS:
        assert not [error for error in errors if isinstance(error, REFUSALS)], (call, name, errors)
    else:
        assert errors, (call, name)
        assert all(isinstance(error, (*REFUSALS, TopicNotFound)) for error in errors), (call, name, errors)


@pytest.mark.parametrize("call", sorted(ASKED))
def test_in_the_process(call: str, tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        try:
            await prepare(broker, call)
            errors = await ask(broker, call, EVERYBODY)
            assert [type(error) for error in errors] == ([] if call in OPEN_TO_ALL else [SignInRequired])
            for name, caller in (await callers(broker, call)).items():
                if name != "admin":
                    check(call, name, await ask(broker, call, caller))
            check(call, "admin", await ask(broker, call, (await callers(broker, call))["admin"]))
        finally:
            await broker.close()

    asyncio.run(story())


@pytest.mark.parametrize("call", sorted(set(ASKED) - set(ONLY_HERE)))
def test_over_the_wire(call: str, tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        try:
            await prepare(broker, call)
            async with served(broker) as address:
                with pytest.raises(SignInRequired):
                    await RemoteBroker.connect(address, retry=False)
                names = [*USERS, *(f"lacks-{number}" for number in range(len(ASKED[call])))]
                for name in sorted(names, key=lambda name: name == "admin"):
                    async with connect(Profile(address, name, PASSWORD)) as remote:
                        check(call, name, await ask(remote, call, EVERYBODY))
        finally:
            await broker.close()

    asyncio.run(story())
