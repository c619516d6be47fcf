"""Calls about users, tokens, roles, rules and quotas, as heads of CALL. Each is named for the broker's method."""

from __future__ import annotations

import msgspec

from logboom.access.credential import Credential
from logboom.access.quota import Quota
from logboom.access.rule import Rule


class AddUser(msgspec.Struct, tag="add_user", omit_defaults=True):
    name: str
    credentials: list[Credential] = []
    groups: list[str] = []
    roles: list[str] = []


class ChangeUser(msgspec.Struct, tag="change_user", omit_defaults=True):
    name: str
    credentials: list[Credential] | None = None
    groups: list[str] | None = None
    roles: list[str] | None = None
    enabled: bool | None = None


class RemoveUser(msgspec.Struct, tag="remove_user"):
    name: str


class ListUsers(msgspec.Struct, tag="list_users"):
    pass


class CreateToken(msgspec.Struct, tag="create_token", omit_defaults=True):
    user: str
    lasts_ms: int | None = None
    note: str = ""
    rights: list[str] = []
    topics: list[str] = []


class RevokeToken(msgspec.Struct, tag="revoke_token"):
    token_id: str


class ListTokens(msgspec.Struct, tag="list_tokens", omit_defaults=True):
    user: str | None = None


class AddRule(msgspec.Struct, tag="add_rule"):
    rule: Rule


class RemoveRule(msgspec.Struct, tag="remove_rule"):
    number: int


class ListRules(msgspec.Struct, tag="list_rules"):
    pass


class SetRole(msgspec.Struct, tag="set_role"):
    role: str
    members: list[str]


class ListRoles(msgspec.Struct, tag="list_roles"):
    pass


class SetQuota(msgspec.Struct, tag="set_quota"):
    who: str
    quota: Quota


class RemoveQuota(msgspec.Struct, tag="remove_quota"):
    who: str


class ListQuotas(msgspec.Struct, tag="list_quotas"):
    pass


class ShowQuota(msgspec.Struct, tag="show_quota"):
    who: str


class ExplainAccess(msgspec.Struct, tag="explain_access", omit_defaults=True):
    user: str
    right: str
    kind: str
    name: str = ""
    groups: list[str] = []
    channel: str | None = None
    tags: list[str] = []
    client: str = ""


class WhoAmI(msgspec.Struct, tag="whoami"):
    pass


AccessCall = (
    AddUser
    | ChangeUser
    | RemoveUser
    | ListUsers
    | CreateToken
    | RevokeToken
    | ListTokens
    | AddRule
    | RemoveRule
    | ListRules
    | SetRole
    | ListRoles
    | SetQuota
    | RemoveQuota
    | ListQuotas
    | ShowQuota
    | ExplainAccess
    | WhoAmI
)
