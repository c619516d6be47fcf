"""Users, tokens, roles, rules and quotas, as they are kept: one dictionary, fed by the internal topic `_access`.

What was decoded of it stays decoded, and is brought up to date with every change that is durable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from logboom.access.credential import Credential
from logboom.access.principal import ANONYMOUS
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.access.rule_book import RuleBook, Subject
from logboom.access.token import Token
from logboom.broker.state.internal_log import StateLog
from logboom.errors import RemoteProtocolError, ShuttingDown

TOPIC: Final = "_access"
FILE: Final = "access"
"""Its snapshot, below DATA/internal."""
LIMIT: Final = "limits.access_entries"
SEED: Final = "seed"
_DIVIDER: Final = "\0"


class User(msgspec.Struct, frozen=True, array_like=True):
    """As it is kept. Fields may be added with defaults; never moved."""

    credentials: tuple[Credential, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    created: int = 0
    changed: int = 0
    enabled: bool = True


class AccessState:
    """Empty until it is loaded."""

    def __init__(self) -> None:
        self._state: StateLog | None = None
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.rules: dict[int, Rule] = {}
        self.roles: dict[str, tuple[str, ...]] = {}
        self.quotas: dict[str, Quota] = {}
        self.seed = b""
        """What is made up for names that no user has hangs on this: it must not change, and nobody may know it."""
        self.book = RuleBook()
        self.speaks_of_anonymous = False
        """Whether any rule is about those who have not signed in."""
        self._version = ""
        self.on_change: list[Callable[[], None]] = []
        """Called after every change, and after what is here has changed by it."""

    def load(self, state: StateLog) -> None:
        """What was kept."""
        self._state = state
        for key, value in state.items():
            self._take(key.decode(), value)
        self._refresh()

    def __len__(self) -> int:
        return 0 if self._state is None else len(self._state)

    @property
    def entries(self) -> dict[bytes, bytes]:
        """Everything, as it is kept."""
        return {} if self._state is None else dict(self._state.items())

    @property
    def version(self) -> str:
        """The same for the same entries, on any node."""
        if not self._version:
            entries = sorted(self.entries.items())
            self._version = hashlib.sha256(msgspec.msgpack.encode(entries)).hexdigest()
        return self._version

    async def copy(self, found: Mapping[bytes, bytes]) -> None:
        """As another node has them; what it has not is removed. Raises RemoteProtocolError where they make no sense."""
        for key, value in found.items():
            try:
                kind, _, rest = key.decode().partition(_DIVIDER)
                msgspec.msgpack.decode(value, type=_TYPES.get(kind, Any))
                if kind == "rule":
                    int(rest)
            except (msgspec.DecodeError, ValueError):
                raise RemoteProtocolError("the source sent what is neither user nor rule") from None
        here = self.entries
        gone: dict[bytes, bytes | None] = dict.fromkeys(here.keys() - found.keys())
        await self._apply(gone | {key: value for key, value in found.items() if here.get(key) != value})

    async def put(self, changes: Mapping[str, msgspec.Struct | tuple[str, ...] | bytes | None]) -> None:
        """Set these, remove those that are None; durable, and counting, when this returns."""
        encoded = {
            name.encode(): None if value is None else msgspec.msgpack.encode(value) for name, value in changes.items()
        }
        await self._apply(encoded)

    async def _apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        state = self._state
        if state is None:
            raise ShuttingDown("the node is starting")
        if not changes:
            return
        await state.put(changes)
        for key in changes:
            self._take(key.decode(), state.get(key))
        self._refresh()

    def _take(self, name: str, value: bytes | None) -> None:
        kind, _, rest = name.partition(_DIVIDER)
        if kind == SEED:
            self.seed = b"" if value is None else msgspec.msgpack.decode(value, type=bytes)
        table: dict[Any, Any] | None = getattr(self, f"{kind}s", None) if kind in _TYPES else None
        if table is None:
            return  # of a later release
        key: str | int = int(rest) if kind == "rule" else rest
        if value is None:
            table.pop(key, None)
        else:
            table[key] = msgspec.msgpack.decode(value, type=_TYPES[kind])

    def _refresh(self) -> None:
        self._version = ""
        in_order = dict(sorted(self.rules.items()))
        self.speaks_of_anonymous = any(rule.who == ANONYMOUS for rule in in_order.values())
        self.book.change(in_order, {role: frozenset(members) for role, members in self.roles.items()})
        for call in self.on_change:
            call()

    def subject_of(self, name: str) -> Subject | None:
        """A user as rules see him; None where there is none, or he may do nothing."""
        user = self.users.get(name)
        if user is None or not user.enabled:
            return None
        return Subject(name, frozenset(user.groups), frozenset(user.roles))

    def account_of(self, name: str) -> tuple[int, int]:
        """When a user and his password were made; zeros where there is none."""
        user = self.users.get(name)
        return (0, 0) if user is None else (user.created, user.changed)

    async def close(self) -> None:
        if self._state is not None:
            await self._state.close()


_TYPES: Final[dict[str, Any]] = {
    "user": User,
    "token": Token,
    "rule": Rule,
    "role": tuple[str, ...],
    "quota": Quota,
}


def key_of(kind: str, name: str | int) -> str:
    """Under which it is kept."""
    return f"{kind}{_DIVIDER}{name}"
