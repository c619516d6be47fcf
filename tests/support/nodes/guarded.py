"""A node over HTTP that does nothing for strangers, and people whom it knows."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.broker.caller import ITSELF
from logboom.broker.config import BrokerConfig
from support.nodes.web import Story, WebNode, plain_client, tell

PASSWORD: Final = "correct horse battery"
OWN: Final = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
"""What a browser says of a request that a page of the node's own has made."""


def closed(path: Path, story: Story, **more: Any) -> list[dict[str, Any]]:
    """Run a story as `tell` does. alice may read and write orders, root may do everything."""

    async def prepared(node: WebNode) -> None:
        for name, roles in (("alice", ()), ("root", ("admin",))):
            await node.broker.add_user(name, [Credential.derive(PASSWORD, b"salt" * 4)], roles=roles, caller=ITSELF)
        rule = Rule("allow", "alice", ("read", "write", "create"), "topic", "orders*")
        await node.broker.add_rule(rule, caller=ITSELF)
        await node.broker.create_topic("orders", caller=ITSELF)
        await node.broker.create_topic("secret", caller=ITSELF)
        await story(node)

    return tell(path, prepared, config=BrokerConfig(anonymous="none"), **more)


def basic(user: str = "alice", password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@asynccontextmanager
async def signed_in(node: WebNode, user: str = "alice") -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has signed in, with a jar for cookies of its own."""
    async with plain_client(str(node.client.base_url)) as client:
        client.headers.update(OWN)
        answer = await client.post("/access/session", json={"user": user, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        yield client
