"""The calls of a LocalBroker that are about users, tokens, roles, rules and quotas: who may, then what is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from logboom.access.credential import Credential
from logboom.access.principal import ANONYMOUS
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.broker.access.access_admin import EVERY, AccessAdmin, AccessQuestion, check_not_more
from logboom.broker.access.access_state import AccessState
from logboom.broker.admission import Admission
from logboom.broker.api.access import (
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
from logboom.broker.rules import ObjectKind, Right
from logboom.errors import SignInRequired

Result = TypeVar("Result")


class LocalAccess:
    """Implements broker.api.AccessCalls; see there for what the methods promise."""

    _admin: AccessAdmin
    _admission: Admission
    _access: AccessState

    def _ask(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        raise NotImplementedError

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        raise NotImplementedError

    async def _change(self, ask: Callable[[], None], work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """One change after the other, to its end, also where whoever asked has gone away. `ask` asks again when it is
        this one's turn: what came before may have taken the right away."""
        ask()

        async def change() -> Result:
            async with self._admin.changing:
                ask()
                with self._admission.counting(self._keeps_users):
                    return await work()

        return await asyncio.shield(self._spawn(change()))

    def shows_files(self, caller: Caller) -> bool:
        """Whether a caller may read every topic, and so may be sent to the files, where no rules count."""
        return self._admin.reads_all(caller)

    def check_manager(self, caller: Caller) -> None:
        """Raises where a caller may not manage the node."""
        self._ask(caller, "manage", "node")

    @property
    def _keeps_users(self) -> bool:
        """Whether those that count are this node's own, though it is a copy."""
        raise NotImplementedError

    def access(self, version: str, *, caller: Caller = EVERYBODY) -> tuple[str, dict[bytes, bytes] | None]:
        """See broker.api.Feeds."""
        if caller.principal == ANONYMOUS:
            raise SignInRequired("sign in: users and rules are given to nodes that have a name")
        self._ask(caller, "manage", "user", EVERY)
        found = self._access.version
        return found, None if version == found else self._access.entries

    async def add_user(
        self,
        name: str,
        credentials: Sequence[Credential] = (),
        groups: Sequence[str] = (),
        roles: Sequence[str] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> UserInfo:
        return await self._change(
            lambda: self._ask(caller, "manage", "user", EVERY if groups or roles else name),
            lambda: self._admin.add_user(name, credentials, groups, roles),
        )

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
        gives = groups is not None or roles is not None

        def ask() -> None:
            if gives or enabled is not None or not self._admin.is_himself(caller, name):
                self._ask(caller, "manage", "user", EVERY if gives else name)

        return await self._change(ask, lambda: self._admin.change_user(name, credentials, groups, roles, enabled))

    async def remove_user(self, name: str, *, caller: Caller = EVERYBODY) -> RemovedUser:
        ask = partial(self._ask, caller, "manage", "user", name)
        return await self._change(ask, lambda: self._admin.remove_user(name, caller))

    async def list_users(self, *, caller: Caller = EVERYBODY) -> list[UserInfo]:
        if not self._admin.is_himself(caller, caller.principal):
            self._ask(caller, "describe", "user")
        return self._admin.list_users(caller)

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
        def ask() -> None:
            if not self._admin.is_himself(caller, user):
                self._ask(caller, "manage", "user", user)
            check_not_more(caller)

        return await self._change(ask, lambda: self._admin.create_token(user, lasts_ms, note, rights, topics))

    async def revoke_token(self, token_id: str, *, caller: Caller = EVERYBODY) -> None:
        def ask() -> None:
            owner = self._admin.owner_of(token_id)
            if not (owner and self._admin.is_himself(caller, owner)):
                self._ask(caller, "manage", "user", owner or EVERY)

        await self._change(ask, lambda: self._admin.revoke_token(token_id))

    async def list_tokens(self, user: str | None = None, *, caller: Caller = EVERYBODY) -> list[TokenInfo]:
        if not self._admin.is_himself(caller, caller.principal):
            self._ask(caller, "describe", "user")
        return self._admin.list_tokens(user, caller)

    async def add_rule(self, rule: Rule, *, caller: Caller = EVERYBODY) -> RuleInfo:
        ask = partial(self._ask, caller, "manage", "user", EVERY)
        return await self._change(ask, lambda: self._admin.add_rule(rule))

    async def remove_rule(self, number: int, *, caller: Caller = EVERYBODY) -> None:
        ask = partial(self._ask, caller, "manage", "user", EVERY)
        await self._change(ask, lambda: self._admin.remove_rule(number))

    async def list_rules(self, *, caller: Caller = EVERYBODY) -> list[RuleInfo]:
        self._ask(caller, "describe", "user", EVERY)
        return self._admin.list_rules()

    async def set_role(self, role: str, members: Sequence[str], *, caller: Caller = EVERYBODY) -> None:
        ask = partial(self._ask, caller, "manage", "user", EVERY)
        await self._change(ask, lambda: self._admin.set_role(role, members))

    async def list_roles(self, *, caller: Caller = EVERYBODY) -> list[RoleInfo]:
        self._ask(caller, "describe", "user", EVERY)
        return self._admin.list_roles()

    async def set_quota(self, who: str, quota: Quota, *, caller: Caller = EVERYBODY) -> None:
        ask = partial(self._ask, caller, "manage", "user", EVERY)
        await self._change(ask, lambda: self._admin.set_quota(who, quota))

    async def remove_quota(self, who: str, *, caller: Caller = EVERYBODY) -> None:
        ask = partial(self._ask, caller, "manage", "user", EVERY)
        await self._change(ask, lambda: self._admin.remove_quota(who))

    async def list_quotas(self, *, caller: Caller = EVERYBODY) -> list[QuotaUsage]:
        self._ask(caller, "describe", "user", EVERY)
        return self._admin.list_quotas()

    async def show_quota(self, who: str, *, caller: Caller = EVERYBODY) -> list[QuotaUsage]:
        self._ask(caller, "describe", "user", EVERY)
        return self._admin.show_quota(who)

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
        self._ask(caller, "describe", "user", EVERY)
        return self._admin.explain(AccessQuestion(user, right, kind, name, groups, channel, tags, client))

    async def whoami(self, *, caller: Caller = EVERYBODY) -> CallerInfo:
        return self._admin.whoami(caller)
