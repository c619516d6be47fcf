"""SPEAK_FOR: a connection that speaks for others, as a gateway's does; who they are, there and back.

What follows it on the connection is asked by the one it names, until the next. It has no answer: whether the connection
may speak for him is decided with each thing he asks for, as everything is (`broker/access/access_rules.py`). One that
makes no sense, or names the node or its operator, ends the connection: what follows must not be done in another name.
"""

from __future__ import annotations

from typing import Final

from logboom.access.principal import ANONYMOUS, check_principal
from logboom.access.rule_book import UNBOUND
from logboom.broker.caller import Caller
from logboom.errors import InvalidPrincipal, RemoteProtocolError
from logboom.protocols.binary.messages import SpokenFor

GATEWAYS_MOST: Final = 4
"""One behind the other."""
GROUPS_MOST: Final = 100
TEXT_MOST: Final = 200
"""Characters of an address, a protocol, a way to sign in."""


def spoken_for(connection: Caller, head: SpokenFor) -> Caller:
    """The caller that is spoken for. Raises RemoteProtocolError."""
    if not head.principal:
        return connection
    depth, caller = 0, connection
    chain = [head]
    while chain[-1].through is not None:
        chain.append(chain[-1].through)
        depth += 1
        if depth > GATEWAYS_MOST:
            raise RemoteProtocolError(f"more than {GATEWAYS_MOST} gateways stand one behind the other")
    for link in reversed(chain):
        caller = _behind(caller, link)
    return caller


def _behind(through: Caller, head: SpokenFor) -> Caller:
    texts = head.protocol, head.address, head.by
    if len(head.groups) > GROUPS_MOST or max(map(len, (*texts, head.client))) > TEXT_MOST:
        raise RemoteProtocolError("a connection speaks for somebody of whom it says too much")
    try:
        for name in (*head.groups, *(() if head.principal == ANONYMOUS else (head.principal,))):
            check_principal(name)
    except InvalidPrincipal as error:
        raise RemoteProtocolError(f"nobody is spoken for who cannot be: {error}") from None
    return Caller(head.principal, frozenset(head.groups), *texts, head.expires, head.account, head.client, through)


def head_of(caller: Caller) -> SpokenFor:
    """What says that this one asks. Whoever runs the gateway, or is it, has the connection's own name."""
    if caller.principal in UNBOUND:
        return SpokenFor("")
    through = None if caller.through is None else head_of(caller.through)
    where = caller.protocol, caller.address, caller.by
    return SpokenFor(
        caller.principal, sorted(caller.groups), *where, caller.expires, caller.account, through, caller.client
    )
