"""HTTP, and logd by way of it, on a connection to a node: a gateway that speaks for its callers, and may manage all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.broker.caller import ITSELF
from logboom.broker.limits import Limits, Rejections
from logboom.client.remote import connect
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.settings import HttpSettings
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.settings import LogdSettings
from logboom.server.node import Node
from support.callers.closed_node import profile
from support.callers.everybody import PASSWORD, TOPIC, Visitor
from support.nodes.web import plain_client

OWN = (Rule("allow", "gateway", ("manage",), "user"), Rule("allow", "gateway", ("read",), "pipeline"))


@asynccontextmanager
async def http_gateway(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    """A client of one. It knows its callers as the node does."""
    credential = Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)
    await node.broker.add_user("gateway", [credential], caller=ITSELF)
    for rule in OWN:
        await node.broker.add_rule(rule, caller=ITSELF)
    async with connect(profile(node, Visitor("gateway", "gateway")), speaks_for_callers=True) as remote:
        settings, sign_in = HttpSettings(changes_topic=TOPIC), node.broker.sign_in
        common = remote, Limits(), Rejections()
        logd = LogdFrontEnd(*common, LogdSettings(), dict, sign_in=sign_in)
        front_end = HttpFrontEnd(*common, settings, dict, logd.converse, sign_in=sign_in)
        server = await asyncio.get_running_loop().create_server(front_end.factory, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            async with plain_client(f"http://{host}:{port}") as client:
                yield client
        finally:
            server.close()
            await front_end.close(1)
            await logd.close(1)
