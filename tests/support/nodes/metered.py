"""A node in this process, on loopback, that asks who somebody is: with users, and quotas that tests set."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.broker.caller import ITSELF
from logboom.broker.local import LocalBroker
from logboom.client.link.profile import Profile
from logboom.client.remote import RemoteBroker, connect
from logboom.protocols.endpoint import Endpoint
from logboom.server.node import Node
from logboom.server.sources import Setting, load

PASSWORD: Final = "correct horse battery"


@dataclass(frozen=True, slots=True)
class MeteredNode:
    node: Node

    @property
    def broker(self) -> LocalBroker:
        return self.node.broker

    @property
    def throttled_s(self) -> dict[str, float]:
        """By kind; only those for which somebody has waited."""
        return {kind: waited_s for kind, waited_s in self.broker.quotas.throttled_s.items() if waited_s}

    def at(self, protocol: str) -> Endpoint:
        return self.node.endpoints[protocol][0]

    def profile(self, user: str) -> Profile:
        where = self.at("binary")
        return Profile(f"{where.host}:{where.port}", user, PASSWORD)

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncIterator[RemoteBroker]:
        async with connect(self.profile(user)) as broker:
            yield broker

    async def set(self, who: str, **limits: int) -> None:
        await self.broker.set_quota(who, Quota(**limits), caller=ITSELF)


@asynccontextmanager
async def metered_node(path: Path, **settings: str) -> AsyncIterator[MeteredNode]:
    """bob and eve, both in the group `analysts`, may do everything to topics and cursors; ann may do all."""
    listen = {f"listen.{name}": "127.0.0.1:0" for name in ("binary", "logd", "http")}
    values = {"data": str(path / "data"), "access.anonymous": "none", **listen, **settings}
    node = await Node.open(load([Setting(name, value, "test") for name, value in values.items()], environment={}))
    try:
        for user, roles in (("bob", ()), ("eve", ()), ("ann", ("admin",))):
            groups = () if roles else ("analysts",)
            secret = Credential.derive(PASSWORD, os.urandom(16), iterations=4096)
            await node.broker.add_user(user, [secret], groups, roles, caller=ITSELF)
        for kind in ("topic", "cursor", "transaction"):
            await node.broker.add_rule(Rule("allow", "group:analysts", ("all",), kind), caller=ITSELF)
        yield MeteredNode(node)
    finally:
        await node.close(10.0)
