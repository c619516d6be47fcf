"""Sessions of people who have signed in with a browser: kept in memory, gone when the node is.

A session is known by a random id in a cookie that no script can read. Of the id only a digest is kept. It ends when it
was not used for a while, when it is too old, when whoever has it signs out, and as soon as what he signed in with does
not count any more. Their number is bounded, for each user and for all: the one that was not used longest has to go.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from starlette.types import Scope

from logboom.broker.caller import Caller
from logboom.broker.world import World

if TYPE_CHECKING:
    from logboom.broker.access.sign_in import SignIn

ID_BYTES: Final = 32
IDLE_S: Final = 2 * 3600.0
OLDEST_S: Final = 12 * 3600.0
SESSIONS_MOST: Final = 10_000
OF_USER_MOST: Final = 16
COOKIES_BYTES_MOST: Final = 16 * 1024
"""Of a Cookie header: a longer one is not looked at."""
SECURE_PREFIX: Final = "__Host-"
"""Browsers take such a cookie over TLS only, and from nobody but this very host."""
_FORM: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(slots=True)
class PageSession:
    caller: Caller
    """As he signed in."""
    basis: object
    began_at: float
    used_at: float


class Sessions:
    """`node_id` keeps apart the cookies of nodes on one machine, which a browser sends to all its ports."""

    def __init__(self, sign_in: SignIn, world: World, node_id: str = "") -> None:
        self._sign_in = sign_in
        self._world = world
        self._cookie = f"logboom-{node_id[:8] or 'session'}"
        self._sessions: OrderedDict[bytes, PageSession] = OrderedDict()
        """By digest, those used last at the end."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, caller: Caller) -> str:
        """A new session of somebody who has just signed in. Gives its id."""
        now = self._world.monotonic_s()
        self._make_room(caller.principal, now)
        session_id = self._world.chance.randbytes(ID_BYTES).hex()
        self._sessions[_digest(session_id)] = PageSession(caller, self._sign_in.basis_of(caller), now, now)
        return session_id

    def _make_room(self, principal: str, now: float) -> None:
        for key in [key for key, session in self._sessions.items() if not self._counts(session, now)]:
            del self._sessions[key]
        own = [key for key, session in self._sessions.items() if session.caller.principal == principal]
        for key in own[: max(0, len(own) + 1 - OF_USER_MOST)]:
            del self._sessions[key]
        while len(self._sessions) >= SESSIONS_MOST:
            self._sessions.popitem(last=False)

    def find(self, session_id: str, caller: Caller) -> Caller | None:
        """The caller of a connection as whom he has signed in as; None where there is no such session any more."""
        key = _digest(session_id)
        session, now = self._sessions.get(key), self._world.monotonic_s()
        if session is None:
            return None
        if not self._counts(session, now):
            del self._sessions[key]
            return None
        session.used_at = now
        self._sessions.move_to_end(key)
        return replace(session.caller, protocol=caller.protocol, address=caller.address)

    def _counts(self, session: PageSession, now: float) -> bool:
        if now - session.used_at > IDLE_S or now - session.began_at > OLDEST_S:
            return False
        if session.caller.expires and session.caller.expires <= self._world.now_us():
            return False
        return session.basis is not None and self._sign_in.basis_of(session.caller) == session.basis

    def end(self, session_id: str) -> None:
        self._sessions.pop(_digest(session_id), None)

    def shown_in(self, scope: Scope) -> str | None:
        """The id that a request shows. None where it shows several: somebody has slipped in one of his own."""
        name, found = self._name(scope), set[str]()
        for header, value in scope["headers"]:
            if header != b"cookie" or len(value) > COOKIES_BYTES_MOST:
                continue
            for pair in value.decode("latin-1").split(";"):
                key, _, text = pair.strip().partition("=")
                if key == name:
                    found.add(text)
        return found.pop() if len(found) == 1 and all(map(_FORM.fullmatch, found)) else None

    def cookie(self, scope: Scope, session_id: str) -> str:
        """What the browser is told to keep; with an empty id, to forget."""
        ends = "" if session_id else "; Max-Age=0"
        secure = "; Secure" if scope["scheme"] == "https" else ""
        return f"{self._name(scope)}={session_id}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}"

    def _name(self, scope: Scope) -> str:
        return f"{SECURE_PREFIX}{self._cookie}" if scope["scheme"] == "https" else self._cookie


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
