"""The calls of a RemoteBroker that are about users, tokens, roles, rules and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.msgpack import Decoder

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.broker import api
from logboom.broker.caller import EVERYBODY, Caller
from logboom.protocols.binary import access_messages as messages

_user = Decoder(api.UserInfo)
_users = Decoder(list[api.UserInfo])
_removed = Decoder(api.RemovedUser)
_token = Decoder(api.NewToken)
_tokens = Decoder(list[api.TokenInfo])
_rule = Decoder(api.RuleInfo)
_rules = Decoder(list[api.RuleInfo])
_roles = Decoder(list[api.RoleInfo])
_quotas = Decoder(list[api.QuotaUsage])
_explanation = Decoder(api.Explanation)
_caller = Decoder(api.CallerInfo)
_nothing = Decoder(None)


class RemoteAccess:
    async def _call(self, head: Any, result: Decoder[Any], caller: Caller) -> Any:
        raise NotImplementedError

    async def add_user(
        self,
        name: str,
        credentials: Sequence[Credential] = (),
        groups: Sequence[str] = (),
        roles: Sequence[str] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> api.UserInfo:
        head = messages.AddUser(name, list(credentials), list(groups), list(roles))
        info: api.UserInfo = await self._call(head, _user, caller)
        return info

    async def change_user(
        self,
        name: str,
        credentials: Sequence[Credential] | None = None,
        groups: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        enabled: bool | None = None,
        *,
        caller: Caller = EVERYBODY,
    ) -> api.UserInfo:
        head = messages.ChangeUser(
            name,
            None if credentials is None else list(credentials),
            None if groups is None else list(groups),
            None if roles is None else list(roles),
            enabled,
        )
        info: api.UserInfo = await self._call(head, _user, caller)
        return info

    async def remove_user(self, name: str, *, caller: Caller = EVERYBODY) -> api.RemovedUser:
        found: api.RemovedUser = await self._call(messages.RemoveUser(name), _removed, caller)
        return found

    async def list_users(self, *, caller: Caller = EVERYBODY) -> list[api.UserInfo]:
        found: list[api.UserInfo] = await self._call(messages.ListUsers(), _users, caller)
        return found

    async def create_token(
        self,
        user: str,
        lasts_ms: int | None = None,
        note: str = "",
        rights: Sequence[str] = (),
        topics: Sequence[str] = (),
        *,
        caller: Caller = EVERYBODY,
    ) -> api.NewToken:
        head = messages.CreateToken(user, lasts_ms, note, list(rights), list(topics))
        made: api.NewToken = await self._call(head, _token, caller)
        return made

    async def revoke_token(self, token_id: str, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.RevokeToken(token_id), _nothing, caller)

    async def list_tokens(self, user: str | None = None, *, caller: Caller = EVERYBODY) -> list[api.TokenInfo]:
        found: list[api.TokenInfo] = await self._call(messages.ListTokens(user), _tokens, caller)
        return found

    async def add_rule(self, rule: Rule, *, caller: Caller = EVERYBODY) -> api.RuleInfo:
        info: api.RuleInfo = await self._call(messages.AddRule(rule), _rule, caller)
        return info

    async def remove_rule(self, number: int, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.RemoveRule(number), _nothing, caller)

    async def list_rules(self, *, caller: Caller = EVERYBODY) -> list[api.RuleInfo]:
        found: list[api.RuleInfo] = await self._call(messages.ListRules(), _rules, caller)
        return found

    async def set_role(self, role: str, members: Sequence[str], *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.SetRole(role, list(members)), _nothing, caller)

    async def list_roles(self, *, caller: Caller = EVERYBODY) -> list[api.RoleInfo]:
        found: list[api.RoleInfo] = await self._call(messages.ListRoles(), _roles, caller)
        return found

    async def set_quota(self, who: str, quota: Quota, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.SetQuota(who, quota), _nothing, caller)

    async def remove_quota(self, who: str, *, caller: Caller = EVERYBODY) -> None:
        await self._call(messages.RemoveQuota(who), _nothing, caller)

    async def list_quotas(self, *, caller: Caller = EVERYBODY) -> list[api.QuotaUsage]:
        found: list[api.QuotaUsage] = await self._call(messages.ListQuotas(), _quotas, caller)
        return found

    async def show_quota(self, who: str, *, caller: Caller = EVERYBODY) -> list[api.QuotaUsage]:
        found: list[api.QuotaUsage] = await self._call(messages.ShowQuota(who), _quotas, caller)
        return found

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
    ) -> api.Explanation:
        head = messages.ExplainAccess(user, right, kind, name, list(groups), channel, list(tags), client)
        found: api.Explanation = await self._call(head, _explanation, caller)
        return found

    async def whoami(self, *, caller: Caller = EVERYBODY) -> api.CallerInfo:
        found: api.CallerInfo = await self._call(messages.WhoAmI(), _caller, caller)
        return found
