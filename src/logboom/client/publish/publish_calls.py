"""The calls that end stages: publish them, or throw them away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from msgspec.msgpack import Decoder

from logboom.batch.header import Buffer
from logboom.broker.api import CursorMove, check_moves
from logboom.broker.publish.publication import Publication, PublishKey, Receipt
from logboom.client.link.address import Servers
from logboom.client.link.calls import PASSING, Calls
from logboom.errors import InvalidKey, OutcomeUnknown, RemoteProtocolError
from logboom.protocols.binary import messages
from logboom.protocols.binary.messages import AppendPart, Kind, WireLimits

PUBLISH_TIMEOUT_S: Final = 600.0
DISCARD_TIMEOUT_S: Final = 10.0

_publication = Decoder(Publication)
_count = Decoder(int)


def check_movable(limits: WireLimits, moves: Sequence[CursorMove]) -> None:
    """Raises where the node does not move cursors with a publish, or not so many."""
    if moves and not limits.publish_moves:
        raise RemoteProtocolError("the node moves no cursors with a publish: it is too old")
    check_moves(moves)


def publish(
    servers: Servers,
    key: PublishKey,
    stages: Sequence[Receipt],
    timeout_s: float = PUBLISH_TIMEOUT_S,
    moves: Sequence[CursorMove] = (),
) -> Publication:
    """Append what is in these stages, in their order, and move these cursors; where this raises anything but
    OutcomeUnknown, nothing.

    Said again until the node has answered. OutcomeUnknown: it has not, in all that time. Say it once more then.
    """
    calls = Calls(servers)
    try:
        return publish_over(calls, key, stages, timeout_s, moves)
    finally:
        calls.close()


def publish_over(
    calls: Calls, key: PublishKey, stages: Sequence[Receipt], timeout_s: float, moves: Sequence[CursorMove] = ()
) -> Publication:
    if moves:
        check_movable(calls.link(time.monotonic() + timeout_s).welcome.limits, moves)
    head = messages.Publish(key, list(stages), list(moves))
    return calls.ask(head, _publication, timeout_s, (*PASSING, OutcomeUnknown), is_doubtful=True)


def publish_in_one_over(
    calls: Calls,
    key: PublishKey,
    parts: Sequence[AppendPart],
    payload: Sequence[Buffer],
    timeout_s: float,
    moves: Sequence[CursorMove] = (),
) -> Publication:
    """Stage and publish in one call. Raises InvalidKey where a name that does not last needs a stage."""
    head = messages.PublishBatches(key, list(parts), list(moves))
    return calls.ask(
        *(head, _publication, timeout_s, (*PASSING, OutcomeUnknown), True),
        *(Kind.PUBLISH, payload, (InvalidKey, RemoteProtocolError)),
    )


def discard(servers: Servers, stages: Sequence[str], timeout_s: float = DISCARD_TIMEOUT_S) -> int:
    """Throw stages away that are not being published. How many there were, as far as the last answer says."""
    calls = Calls(servers)
    try:
        return calls.ask(messages.Discard(list(stages)), _count, timeout_s)
    finally:
        calls.close()
