"""A real node that asks who somebody is: with TLS, a certificate of its own CA, and users."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.cli.certificate import make_ca, make_server
from logboom.client.link.profile import Profile
from logboom.client.remote import RemoteBroker, connect
from support.nodes.process import NodeProcess

PASSWORD = "pencil-box 0815"


@dataclass(frozen=True, slots=True)
class SecuredNode:
    process: NodeProcess
    ca: str
    unix: str
    address: str

    def profile(self, user: str = "ann", password: str = PASSWORD) -> Profile:
        return Profile(f"tls://{self.address}", user, password, ca=self.ca)

    async def add(self, user: str, *rules: tuple[str, str, str], roles: Sequence[str] = ()) -> None:
        """A user who may do this: rights with commas, a kind, a name."""
        async with connect(f"unix:{self.unix}") as broker:
            await add(broker, user, *rules, roles=roles)


async def add(broker: RemoteBroker, user: str, *rules: tuple[str, str, str], roles: Sequence[str] = ()) -> None:
    await broker.add_user(user, [Credential.derive(PASSWORD, os.urandom(16), iterations=4096)], roles=list(roles))
    for rights, kind, name in rules:
        await broker.add_rule(Rule("allow", user, tuple(rights.split(",")), kind, name))


@contextmanager
def secured_node(root: Path, *options: str) -> Iterator[SecuredNode]:
    """With an administrator `ann`."""
    root.mkdir(parents=True, exist_ok=True)
    ca = make_ca(str(root), "tests", 30, False).certificate
    made = make_server(str(root), ["localhost", "127.0.0.1"], 30, False)
    unix = str(root / "node.sock")
    process = NodeProcess(
        root,
        *("--unix", unix, "--set", f"tls.certificate={made.certificate}", "--set", f"tls.key={made.key}"),
        *("--set", "access.anonymous=none"),
        *options,
    )
    plain = process.address
    process.address = f"tls://{plain}"
    with process:
        node = SecuredNode(process, ca, unix, plain)
        asyncio.run(node.add("ann", roles=["admin"]))
        yield node
