"""The calls of a MemoryBroker that are about users and rules: it has none, and everybody may do everything."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.broker.api import (
    CallerInfo,
    Explanation,
    NewToken,
    QuotaUsage,
    RemovedUser,
    RoleInfo,
    RuleInfo,
    TokenInfo,
    UserInfo,
)
from logboom.broker.caller import EVERYBODY, Caller
from logboom.errors import QuotaNotFound, RuleNotFound, TokenNotFound, UserNotFound


class MemoryAccess:
    async def add_user(
        self,
        name: str,
        credentials: Sequence[Credential] = (),
        groups: Sequence[str] = (),
        roles: Sequence[str] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> UserInfo:
        return UserInfo(name, [each.mechanism for each in credentials], list(groups), list(roles), 0, 0)

    async def change_user(
        self,
        name: str,
        credentials: Sequence[Credential] | None = None,
        groups: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        enabled: bool | None = None,
        *,
        caller: Caller = EVERYBODY,
    ) -> UserInfo:
        raise UserNotFound(name)

    async def remove_user(self, name: str, *, caller: Caller = EVERYBODY) -> RemovedUser:
        raise UserNotFound(name)

    async def list_users(self, *, caller: Caller = EVERYBODY) -> list[UserInfo]:
        return []

    async def create_token(
        self,
        user: str,
        lasts_ms: int | None = None,
        note: str = "",
        rights: Sequence[str] = (),
        topics: Sequence[str] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> NewToken:
        raise UserNotFound(user)

    async def revoke_token(self, token_id: str, *, caller: Caller = EVERYBODY) -> None:
        raise TokenNotFound(token_id)

    async def list_tokens(self, user: str | None = None, *, caller: Caller = EVERYBODY) -> list[TokenInfo]:
        return []

    async def add_rule(self, rule: Rule, *, caller: Caller = EVERYBODY) -> RuleInfo:
        return RuleInfo(1, rule)

    async def remove_rule(self, number: int, *, caller: Caller = EVERYBODY) -> None:
        raise RuleNotFound(number)

    async def list_rules(self, *, caller: Caller = EVERYBODY) -> list[RuleInfo]:
        return []

    async def set_role(self, role: str, members: Sequence[str], *, caller: Caller = EVERYBODY) -> None:
        return None

    async def list_roles(self, *, caller: Caller = EVERYBODY) -> list[RoleInfo]:
        return []

    async def set_quota(self, who: str, quota: Quota, *, caller: Caller = EVERYBODY) -> None:
        return None

    async def remove_quota(self, who: str, *, caller: Caller = EVERYBODY) -> None:
        raise QuotaNotFound(who)

    async def list_quotas(self, *, caller: Caller = EVERYBODY) -> list[QuotaUsage]:
        return []

    async def show_quota(self, who: str, *, caller: Caller = EVERYBODY) -> list[QuotaUsage]:
        raise QuotaNotFound(who)

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
        caller: Caller = EVERYBODY,
    ) -> Explanation:
        return Explanation(True, "there are no rules")

    async def whoami(self, *, caller: Caller = EVERYBODY) -> CallerInfo:
        return CallerInfo(caller.principal, sorted(caller.groups), [], caller.protocol, caller.address, caller.by)
