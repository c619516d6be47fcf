"""Users, tokens, roles, rules and quotas: who may do what to the node, and how much of it, told to the node itself.

Passwords do not come here: whoever sets one sends what SCRAM makes of it (`access.credential`). What changes here
counts at once, for open connections and subscriptions too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.broker.caller import Caller


class AccessCalls(Protocol):
    """For those who decide who may do what."""

    async def add_user(
        self,
        name: str,
        credentials: Sequence[Credential] = (),
        groups: Sequence[str] = (),
        roles: Sequence[str] = (),
        *,
        caller: Caller,
    ) -> UserInfo:
        """Raises UserExists. Without credentials nobody can sign in by a password: by tokens and certificates only.

        Groups and roles are given by those alone who may manage all users.
        """
        ...

    async def change_user(
        self,
        name: str,
        credentials: Sequence[Credential] | None = None,
        groups: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        enabled: bool | None = None,
        *,
        caller: Caller,
    ) -> UserInfo:
        """What is None stays. Everybody may change his own credentials."""
        ...

    async def remove_user(self, name: str, *, caller: Caller) -> RemovedUser:
        """And all tokens of the user; the rules and roles that name him too, where the caller may manage all users."""
        ...

    async def list_users(self, *, caller: Caller) -> list[UserInfo]:
        """Whoever may not see all of them sees himself."""
        ...

    async def create_token(
        self,
        user: str,
        lasts_ms: int | None = None,
        note: str = "",
        rights: Sequence[str] = (),
        topics: Sequence[str] = (),
        *,
        caller: Caller,
    ) -> NewToken:
        """For oneself, or, with the right to manage users, for anybody. `rights` and `topics` narrow what it can do."""
        ...

    async def revoke_token(self, token_id: str, *, caller: Caller) -> None: ...
    async def list_tokens(self, user: str | None = None, *, caller: Caller) -> list[TokenInfo]: ...

    async def add_rule(self, rule: Rule, *, caller: Caller) -> RuleInfo:
        """A rule that is there already is not added again: its number is the answer."""
        ...

    async def remove_rule(self, number: int, *, caller: Caller) -> None: ...
    async def list_rules(self, *, caller: Caller) -> list[RuleInfo]: ...

    async def set_role(self, role: str, members: Sequence[str], *, caller: Caller) -> None:
        """Who has it besides those whose user says so: users and `group:NAME`. Nobody: the role has no members."""
        ...

    async def list_roles(self, *, caller: Caller) -> list[RoleInfo]: ...

    async def explain_access(
        self,
        user: str,
        right: str,
        kind: str,
        name: str = "",
        groups: Sequence[str] = (),
        channel: str | None = None,
        tags: Sequence[str] = (),
        client: str = "",
        *,
        caller: Caller,
    ) -> Explanation:
        """What would be decided for this user, and by which rule: of a topic also for a record with this channel and
        these tags, from a client that calls itself so."""
        ...

    async def set_quota(self, who: str, quota: Quota, *, caller: Caller) -> None:
        """All of it: what is not limited here is limited no more. For a user, `group:NAME`, `*` or `anonymous`."""
        ...

    async def remove_quota(self, who: str, *, caller: Caller) -> None:
        """Raises QuotaNotFound."""
        ...

    async def list_quotas(self, *, caller: Caller) -> list[QuotaUsage]:
        """One for each quota. Of everybody's nothing is in use: each user has his own."""
        ...

    async def show_quota(self, who: str, *, caller: Caller) -> list[QuotaUsage]:
        """What is taken now: by a user of every quota that binds him; of `group:NAME`, `*` or `anonymous` of that one.

        Of `*` those are shown who have waited longest for it. Raises QuotaNotFound where there is none.
        """
        ...

    async def whoami(self, *, caller: Caller) -> CallerInfo:
        """How the node knows the one who asks."""
        ...


class UserInfo(msgspec.Struct, frozen=True):
    name: str
    mechanisms: list[str]
    groups: list[str]
    roles: list[str]
    created: int
    changed: int
    """When the credentials were set, microseconds."""
    enabled: bool = True


class RemovedUser(msgspec.Struct, frozen=True):
    """What has gone with a user: how many of each."""

    tokens: int
    rules: int
    roles: int
    """That he was named a member of."""
    kept: int = 0
    """Rules and roles that still name him: who removed him may not change those."""


class TokenInfo(msgspec.Struct, frozen=True):
    id: str
    user: str
    created: int
    expires: int | None = None
    last_used: int | None = None
    """Since the node was started."""
    note: str = ""
    rights: list[str] = []
    topics: list[str] = []


class NewToken(msgspec.Struct, frozen=True):
    token: str
    """Said this once: the node does not know it afterwards."""
    info: TokenInfo

    def __repr__(self) -> str:
        return f"<NewToken {self.info.id}>"


class RuleInfo(msgspec.Struct, frozen=True):
    number: int
    rule: Rule


class RoleInfo(msgspec.Struct, frozen=True):
    name: str
    members: list[str]


class QuotaUsage(msgspec.Struct, frozen=True):
    """A quota, and what somebody takes of it."""

    who: str
    """Whom the quota names."""
    owner: str
    """Whose the numbers are: the same, but where the quota is everybody's a user."""
    quota: Quota
    used: dict[str, float]
    """Of what is limited: rates as they were in the last ten seconds, about; counts as they are now."""
    rest_s: float
    """How long its owner is to wait now, seconds."""
    throttled_s: float
    """How long he has waited for it since the node was started."""


class Explanation(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str
    number: int | None = None
    """Of the rule that decides; None where that is built in, or no rule speaks of it."""
    rule: Rule | None = None


class CallerInfo(msgspec.Struct, frozen=True):
    principal: str
    groups: list[str]
    roles: list[str]
    protocol: str
    address: str
    by: str
    """How he has signed in: password, token, certificate, system; empty where he has not."""
    quotas: list[QuotaUsage] = []
    """Those that bind him."""
