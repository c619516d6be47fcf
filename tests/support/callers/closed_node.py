"""A whole node in this process, with all its front-ends on sockets, that does nothing for strangers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from logboom.client.link.profile import Profile
from logboom.server.node import Node
from logboom.server.sources import Setting, load
from support.callers.everybody import PASSWORD, TOPIC, Visitor

SETTINGS = {
    "listen.binary": "127.0.0.1:0",
    "listen.http": "127.0.0.1:0",
    "listen.logd": "127.0.0.1:0",
    "access.anonymous": "none",
    "http.changes_topic": TOPIC,
    "logd.shutdown": True,
}


@asynccontextmanager
async def closed_node(path: Path) -> AsyncIterator[Node]:
    values = {"data": f"{path}/data", **SETTINGS}
    node = await Node.open(load([Setting(name, value, "test") for name, value in values.items()], environment={}))
    try:
        yield node
    finally:
        await node.close(10)


def address(node: Node, protocol: str) -> str:
    return str(node.endpoints[protocol][0])


def profile(node: Node, visitor: Visitor) -> Profile:
    where = address(node, "binary")
    return Profile(where, token=visitor.token) if visitor.token else Profile(where, visitor.user, PASSWORD)
