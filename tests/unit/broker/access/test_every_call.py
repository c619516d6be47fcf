"""Every call of the broker, by every kind of caller, in the process and over the wire: what the table of rights says.

The table is held against the API (`tests/unit/broker/test_rules.py`): a call that is new and not in it fails there.
Whoever may not know of a topic is told the same, to the letter, while it is there and when it is gone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.broker.caller import EVERYBODY, ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.client.remote import RemoteBroker, connect
from logboom.errors import LogboomError, SignInRequired
from support.brokers.every_call import ASKED, ask
from support.callers.closed_node import address, closed_node, profile
from support.callers.everybody import HIDING, PASSWORD, REFUSALS, TOPIC, Visitor, invite, refusal

LISTS = ("list_users", "list_tokens")
"""Whoever asks sees himself."""
ONLY_HERE = ("feed", "deleted", "access", "groups", "append_then")
"""Not over the wire of clients, or there the same as another."""
ELSEWHERE = Caller(address="192.0.2.1:1")
CREDENTIAL = Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)


def check(call: str, visitor: Visitor, errors: list[LogboomError]) -> None:
    expected = refusal(visitor, ASKED[call])
    if call in LISTS and not visitor.token and visitor.kind not in ("anonymous", "removed"):
        expected = None
    if isinstance(expected, SignInRequired):
        assert [type(error) for error in errors] == [SignInRequired], (call, errors)
    elif expected is None:
        assert not [error for error in errors if isinstance(error, REFUSALS)], (call, visitor.kind, errors)
    else:
        assert [known(error) for error in errors] == [known(expected)], (call, visitor.kind)


def known(error: LogboomError) -> tuple[Any, ...]:
    """All that somebody can learn from an error."""
    carried = {name: list(value) if name == "near" else value for name, value in vars(error).items()}
    return type(error), str(error), carried


async def sign_in(broker: LocalBroker, visitor: Visitor) -> Caller:
    if visitor.token:
        return await broker.sign_in.with_token(ELSEWHERE, visitor.token)
    return await broker.sign_in.with_password(ELSEWHERE, visitor.user, PASSWORD)


@pytest.mark.parametrize("call", sorted(ASKED))
def test_in_the_process(call: str, tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(anonymous="none"))
        try:
            visitors = await invite(broker, ASKED[call])
            check(call, visitors.pop("anonymous"), await ask(broker, call, EVERYBODY))
            callers = {kind: await sign_in(broker, visitor) for kind, visitor in visitors.items()}
            await broker.remove_user("removed", caller=ITSELF)
            told: dict[str, list[tuple[Any, ...]]] = {}
            for kind, visitor in visitors.items():
                errors = await ask(broker, call, callers[kind])
                check(call, visitor, errors)
                told[kind] = [known(error) for error in errors]
            await broker.create_topic("rests", caller=ITSELF)
            if TOPIC in [info.name for info in await broker.list_topics(caller=ITSELF)]:
                await broker.delete_topic(TOPIC, caller=ITSELF)
            for kind in HIDING:
                if refusal(visitors[kind], ASKED[call]) is not None:
                    assert [known(error) for error in await ask(broker, call, callers[kind])] == told[kind]
        finally:
            await broker.close()

    asyncio.run(story())


@pytest.mark.parametrize("call", sorted(set(ASKED) - set(ONLY_HERE)))
def test_through_a_gateway_that_speaks_for_its_callers(call: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node:
            visitors = await invite(node.broker, ASKED[call])
            await node.broker.add_user("gateway", [CREDENTIAL], caller=ITSELF)
            await node.broker.add_rule(Rule("allow", "gateway", ("manage",), "user"), caller=ITSELF)
            callers = {kind: await sign_in(node.broker, each) for kind, each in visitors.items() if each.user}
            await node.broker.remove_user("removed", caller=ITSELF)
            async with connect(profile(node, Visitor("gateway", "gateway")), speaks_for_callers=True) as gateway:
                for kind, visitor in visitors.items():
                    check(call, visitor, await ask(gateway, call, callers.get(kind, EVERYBODY)))

    asyncio.run(story())


@pytest.mark.parametrize("call", sorted(set(ASKED) - set(ONLY_HERE)))
def test_over_the_wire(call: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node:
            visitors = await invite(node.broker, ASKED[call])
            del visitors["anonymous"]
            with pytest.raises(SignInRequired):
                await RemoteBroker.connect(address(node, "binary"), retry=False)
            async with connect(profile(node, visitors["removed"])) as removed:
                await node.broker.remove_user("removed", caller=ITSELF)
                check(call, visitors.pop("removed"), await ask(removed, call, EVERYBODY))
            for visitor in visitors.values():
                async with connect(profile(node, visitor)) as remote:
                    check(call, visitor, await ask(remote, call, EVERYBODY))

    asyncio.run(story())
