"""Calls of a node, for one thread: a blocking link that is made when it is needed, and made again where it is lost.

Servers are tried in turn: the one that was lost first, for it may just have restarted. A replica is none to call. A
call that is not answered is said again on the next link, so it must mean the same when it is heard twice.

Answers to what others have sent on the link are kept for `next_event`; they go where the link goes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import MsgspecError
from msgspec.msgpack import Decoder

from logboom.batch.header import Buffer
from logboom.client.link.address import Servers, parse_servers
from logboom.client.link.async_link import CONNECT_TIMEOUT_S
from logboom.client.link.backoff import Backoff
from logboom.client.link.blocking_link import BlockingLink
from logboom.client.link.session import Event
from logboom.errors import (
    ConnectionLost,
    LimitExceeded,
    LogboomError,
    OutcomeUnknown,
    Overloaded,
    ReadOnlyReplica,
    RemoteProtocolError,
    Unavailable,
)
from logboom.protocols.binary.messages import Kind

PASSING: Final = (Unavailable, Overloaded, ReadOnlyReplica)
"""What a call is said again after."""
_NO_ROOM: Final = (Unavailable, Overloaded, LimitExceeded)

Result = TypeVar("Result")


class Calls:
    def __init__(self, servers: Servers = None) -> None:
        self._servers = parse_servers(servers)
        self._server = 0
        self._link: BlockingLink | None = None
        self._events: deque[Event] = deque()
        self._backoff = Backoff(len(self._servers))
        self._was_connected = False

    def __str__(self) -> str:
        return ", ".join(map(str, self._servers))

    def connect(self, timeout_s: float) -> None:
        """Now, not with the first call. Raises why no server can be called."""
        self.link(time.monotonic() + timeout_s)

    def link(self, give_up: float) -> BlockingLink:
        """The link, or a new one. Raises why there is none, when it is `give_up`.

        Where no server has ever been of use, and that is no matter of time, it raises at once.
        """
        refusals = 0
        while self._link is None:
            try:
                self._link = self._connect(give_up)
            except LogboomError as error:
                self._turn()
                refusals = 0 if isinstance(error, _NO_ROOM) else refusals + 1
                if refusals >= len(self._servers) and not self._was_connected:
                    raise
                self.pause(error, give_up)
        return self._link

    def _connect(self, give_up: float) -> BlockingLink:
        rest_s = give_up - time.monotonic()
        link = BlockingLink.connect(self._servers[self._server], min(CONNECT_TIMEOUT_S, max(rest_s, 0.001)))
        if link.welcome.replica_of is not None:
            link.close()
            raise ReadOnlyReplica(link.welcome.replica_of)
        self._was_connected = True
        return link

    def pause(self, error: LogboomError, give_up: float) -> None:
        """Before the next try. Raises this error where there is no time for one."""
        wait_s = self._backoff.next_s()
        if time.monotonic() + wait_s >= give_up:
            raise error
        time.sleep(wait_s)

    def look(self) -> None:
        """Before it is used again: a link that was lost meanwhile is none."""
        link = self._link
        if link is not None:
            with suppress(LogboomError):
                while link.next_event(0.0) is not None:
                    pass
            self.drop_lost()

    def proved(self) -> None:
        """The link is of use."""
        self._backoff.reset()

    def next_event(self, timeout_s: float) -> Event | None:
        """What has come next on the link; None where nothing has in time. Only while there is a link."""
        assert self._link is not None
        return self._events.popleft() if self._events else self._link.next_event(timeout_s)

    def ask(
        self,
        head: Any,
        result: Decoder[Result],
        timeout_s: float,
        passing: tuple[type[LogboomError], ...] = PASSING,
        is_doubtful: bool = False,
        kind: int = Kind.CALL,
        payload: Sequence[Buffer] = (),
        unsure: tuple[type[LogboomError], ...] = (),
    ) -> Result:
        """The answer to a CALL, which is said as often as it takes. Raises the node's error.

        With `is_doubtful` it raises OutcomeUnknown where it was said and never answered; and where it may have been
        heard before, for errors that are `unsure`.
        """
        give_up = time.monotonic() + timeout_s
        in_doubt = False
        while True:
            said = False
            try:
                link = self.link(give_up)
                said = True
                answer = self._answer(link, link.send(kind, head, payload), give_up)
                self.proved()
                return result.decode(answer)
            except MsgspecError as error:
                raise RemoteProtocolError(f"the answer to {type(head).__name__} makes no sense: {error}") from None
            except LogboomError as error:
                lost = self.drop_lost()
                if said and not lost and not isinstance(error, passing):
                    if in_doubt and isinstance(error, unsure):
                        raise OutcomeUnknown(f"it was sent and not answered, and then: {error}") from None
                    raise
                in_doubt = in_doubt or (said and (lost or isinstance(error, OutcomeUnknown)))
                failure = error
                if in_doubt and is_doubtful:
                    failure = OutcomeUnknown(f"it was sent and not answered, and then: {error}")
                if not said:
                    raise failure from None
                if isinstance(error, ReadOnlyReplica):
                    self._turn()
                self.pause(failure, give_up)

    def _answer(self, link: BlockingLink, correlation: int, give_up: float) -> bytes:
        while True:
            event = link.next_event(max(0.0, give_up - time.monotonic()))
            if event is None:
                link.close()  # the answer may come yet, and nobody will wait for it
                raise ConnectionLost(f"{link.address} did not answer in time")
            if event.correlation != correlation:
                self._events.append(event)
            elif isinstance(event.what, LogboomError):
                raise event.what
            elif isinstance(event.what, bytes):
                return event.what
            else:
                raise RemoteProtocolError("a call was answered with something else")

    def _turn(self) -> None:
        """The next server's turn."""
        self.close()
        self._server = (self._server + 1) % len(self._servers)

    def drop_lost(self) -> bool:
        """Forget the link where it is lost. Whether it is."""
        if self._link is None or self._link.lost is None:
            return False
        self.close()
        return True

    def close(self) -> None:
        """End the link there is. Another call makes another."""
        if self._link is not None:
            self._link.close()
        self._link = None
        self._events.clear()
