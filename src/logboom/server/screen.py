"""What a node that has started says: one screen for people, one line for scripts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from logboom import __version__
from logboom.broker.monitor.checkup import EXPIRES_S, exposure
from logboom.broker.wording import age_of
from logboom.protocols.endpoint import PORT
from logboom.server.front_ends import FRONT_ENDS
from logboom.server.sources import DEFAULT, LoadedConfig
from logboom.server.units import format_size

if TYPE_CHECKING:
    from logboom.broker.api import NodeStats
    from logboom.server.node import Node


EVERYWHERE: Final = ("*", "0.0.0.0", "[::]")
"""Hosts that mean every interface of the machine."""


class Ready(msgspec.Struct, frozen=True):
    """Where a node that has started can be found."""

    pid: int
    addresses: dict[str, list[str]]
    """By front-end."""
    tls: list[str]
    """Those of the addresses that speak TLS."""
    unix: str | None
    node_id: str
    cluster_id: str
    directory: str

    @classmethod
    def of(cls, node: Node) -> Ready:
        return cls(
            pid=os.getpid(),
            addresses={protocol: [str(endpoint) for endpoint in some] for protocol, some in node.endpoints.items()},
            tls=node.secured,
            unix=None if node.unix is None else node.unix.path,
            node_id=node.broker.node.node_id,
            cluster_id=node.broker.node.cluster_id,
            directory=node.broker.directory,
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
        *(f"  console    {_url(address, ready)}/" for address in ready.addresses["http"][:1]),
        *_access(stats),
        f"  topics     {stats.topics:,}",
        f"  limits     {connections_max:,} connections, batches of {format_size(limits.batch_bytes)}, "
        f"{format_size(limits.unsynced_bytes)} waiting for the disk",
        f"  settings   {_settings(loaded)} (`logboom config` shows them)",
        "",
        "Try, in another terminal:",
        "",
        *(f"  {command}" for command in _commands(ready, stats)),
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


def _access(stats: NodeStats) -> Iterator[str]:
    access = stats.access
    if access is None:
        return
    words = "callers sign in" if access.anonymous == "none" else "everybody on this machine may do everything"
    if access.insecure:
        words = f"INSECURE: {exposure(access.anonymous)}"
    yield f"  access     {words}"
    expires = access.certificate_expires
    if expires is not None and expires - stats.now < EXPIRES_S * 1e6:
        until = f"expires in {age_of(expires - stats.now)}" if expires > stats.now else "HAS EXPIRED"
        yield f"  TLS        the certificate {until}: make a new one with `logboom cert server --force`"


def _listening(ready: Ready) -> Iterator[str]:
    front = "listening"
    for kind in FRONT_ENDS:
        addresses = list(_addresses(ready)) if kind is FRONT_ENDS[0] else ready.addresses[kind.name]
        if kind.scheme:
            addresses = [_url(address, ready, kind.scheme) for address in addresses]
        elif kind is not FRONT_ENDS[0]:
            addresses = [f"tls://{address}" if address in ready.tls else address for address in addresses]
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


def _url(address: str, ready: Ready, scheme: str = "http://") -> str:
    secured = scheme.replace("http:", "https:") if address in ready.tls else scheme
    return f"{secured}{reached_at(address)}"


def _addresses(ready: Ready) -> Iterator[str]:
    yield from (f"tls://{address}" if address in ready.tls else address for address in ready.addresses["binary"])
    if ready.unix is not None:
        yield f"unix:{ready.unix}"


def _settings(loaded: LoadedConfig) -> str:
    changed = [source for source in loaded.sources.values() if source != DEFAULT]
    if not changed:
        return "all default" if loaded.file is None else f"all default, {loaded.file} changes none"
    return f"{len(changed)} changed, by {', '.join(dict.fromkeys(changed))}"


def _commands(ready: Ready, stats: NodeStats) -> Iterator[str]:
    is_replica, addresses = stats.replica is not None, list(_addresses(ready))
    must_sign_in = stats.access is not None and stats.access.anonymous == "none"
    if must_sign_in:
        yield f"logboom user add NAME --role admin --data {shlex.quote(ready.directory)}"
        addresses.reverse()  # over the Unix socket whoever runs the node needs no name
    for address in addresses[:1]:
        usual = reached_at(address) in (f"127.0.0.1:{PORT}", f"localhost:{PORT}")
        server = "" if usual else f" --server {reached_at(address)}"
        if not is_replica:
            yield f"logboom topic create events{server}"
            yield f"logboom write events{server} hello world"
        yield f"logboom read events{server} --follow"
        yield f"logboom stats{server}"
        if is_replica:
            yield f"logboom promote{server}    # when its source is lost: it takes writes"
    for address in [] if must_sign_in else ready.addresses["http"][:1]:
        yield f"curl {_url(address, ready)}/topics/events/records"
