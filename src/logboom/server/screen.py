"""What a node that has started says: one screen for people, one line for scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from logboom import __version__
from logboom.protocols.endpoint import PORT
from logboom.server.front_ends import FRONT_ENDS
from logboom.server.sources import DEFAULT, LoadedConfig
from logboom.server.units import format_size

if TYPE_CHECKING:
    from logboom.broker.api import NodeStats
    from logboom.server.node import Node


EVERYWHERE: Final = ("*", "0.0.0.0", "[::]")
"""Hosts that mean every interface of the machine."""


TLS: Final = "tls://"
"""Before an address, for clients."""


class Ready(msgspec.Struct, frozen=True):
    """Where a node that has started can be found."""

    pid: int
    addresses: dict[str, list[str]]
    """By front-end."""
    unix: str | None
    node_id: str
    cluster_id: str
    directory: str
    tls: list[str] = []
    """Those of the addresses that have TLS."""

    @classmethod
    def of(cls, node: Node) -> Ready:
        return cls(
            pid=os.getpid(),
            addresses={protocol: [str(endpoint) for endpoint in some] for protocol, some in node.endpoints.items()},
            unix=None if node.unix is None else node.unix.path,
            node_id=node.broker.node.node_id,
            cluster_id=node.broker.node.cluster_id,
            directory=node.broker.directory,
            tls=[str(endpoint) for some in node.endpoints.values() for endpoint in some if endpoint.tls],
        )

    def to_json(self) -> bytes:
        """Addresses stand under the names of their front-ends."""
        facts = msgspec.structs.asdict(self)
        return msgspec.json.encode({"pid": facts.pop("pid"), **facts.pop("addresses"), **facts}) + b"\n"


def describe(ready: Ready, stats: NodeStats, loaded: LoadedConfig, connections_max: int) -> str:
    limits = loaded.config.limits
    lines = [
        f"Logboom {__version__} is ready.",
        "",
        f"  data       {ready.directory}",
        f"  node       {ready.node_id} of cluster {ready.cluster_id}",
        *_role(stats, loaded),
        *_listening(ready),
        *(f"  console    {_url(ready, address)}/" for address in ready.addresses["http"][:1]),
        f"  topics     {stats.topics:,}",
        f"  limits     {connections_max:,} connections, batches of {format_size(limits.batch_bytes)}, "
        f"{format_size(limits.unsynced_bytes)} waiting for the disk",
        f"  settings   {_settings(loaded)} (`logboom config` shows them)",
        "",
        "Try, in another terminal:",
        "",
        *(f"  {command}" for command in _commands(ready, stats.replica is not None)),
        "",
        "Ctrl-C ends it.",
    ]
    return "\n".join(lines)


def _role(stats: NodeStats, loaded: LoadedConfig) -> Iterator[str]:
    if stats.replica is not None:
        copies = (
            "it serves reads" if loaded.config.replicate_from is not None else "it serves reads, and copies nothing"
        )
        yield f"  replica    of {stats.replica.source}: {copies}; writes go there"


def _listening(ready: Ready) -> Iterator[str]:
    front = "listening"
    for kind in FRONT_ENDS:
        addresses = list(_addresses(ready)) if kind is FRONT_ENDS[0] else ready.addresses[kind.name]
        if kind.scheme:
            addresses = [_url(ready, address) for address in addresses]
        else:
            addresses = [f"{TLS if address in ready.tls else ''}{address}" for address in addresses]
        if addresses:
            yield f"  {front:<9}  {kind.title:<6}  {', '.join(addresses)}"
            front = ""


def reached_at(address: str) -> str:
    """Where a client on this machine finds what listens there: an address of every interface is no place to go to.

    >>> reached_at("0.0.0.0:2773"), reached_at("[::]:1773"), reached_at("*:1773"), reached_at("10.0.0.7:1773")
    ('localhost:2773', 'localhost:1773', 'localhost:1773', '10.0.0.7:1773')
    """
    host, _, port = address.rpartition(":")
    return f"localhost:{port}" if host in EVERYWHERE else address


def _url(ready: Ready, address: str) -> str:
    return f"{'https' if address in ready.tls else 'http'}://{reached_at(address)}"


def _addresses(ready: Ready) -> Iterator[str]:
    yield from ready.addresses["binary"]
    if ready.unix is not None:
        yield f"unix:{ready.unix}"


def _settings(loaded: LoadedConfig) -> str:
    changed = [source for source in loaded.sources.values() if source != DEFAULT]
    if not changed:
        return "all default" if loaded.file is None else f"all default, {loaded.file} changes none"
    return f"{len(changed)} changed, by {', '.join(dict.fromkeys(changed))}"


def _commands(ready: Ready, is_replica: bool) -> Iterator[str]:
    for address in list(_addresses(ready))[:1]:
        usual = reached_at(address) in (f"127.0.0.1:{PORT}", f"localhost:{PORT}")
        is_secured = address in ready.tls
        server = "" if usual and not is_secured else f" --server {TLS if is_secured else ''}{reached_at(address)}"
        if not is_replica:
            yield f"logboom topic create events{server}"
            yield f"logboom write events{server} hello world"
        yield f"logboom read events{server} --follow"
        yield f"logboom stats{server}"
        if is_replica:
            yield f"logboom promote{server}    # when its source is lost: it takes writes"
    for address in ready.addresses["http"][:1]:
        who = "--cacert ca.pem --user NAME " if address in ready.tls else ""
        yield f"curl {who}{_url(ready, address)}/topics/events/records"
