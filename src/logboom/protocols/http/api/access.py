"""Users, tokens, roles and rules over HTTP: who may do what to the node, for those who decide it.

A password comes as it is, over a connection that nobody else can read, and is made into what SCRAM wants before the
broker sees it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.access.credential import MECHANISMS, PASSWORD_BYTES_MOST, SALT_BYTES, Credential, check_new_password
from logboom.access.principal import ANONYMOUS, FORM, GROUP, ROLE
from logboom.access.rule import NAME_MAX, RIGHTS, Effect, ObjectKind, Right, Rule
from logboom.batch.selection import PATTERN_BYTES_MAX
from logboom.broker.api import Explanation, NewToken, RemovedUser, RoleInfo, RuleInfo, TokenInfo, UserInfo
from logboom.broker.caller import Caller
from logboom.errors import SignInRequired, UserNotFound
from logboom.protocols.http.identity.entrance import check_private
from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.schema.operation import Content, NoQuery, Operation, caller_of, parse_body, parse_query

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Access"
_encoder = msgspec.json.Encoder()

Name = Annotated[str, msgspec.Meta(max_length=140, extra_json_schema={"pattern": f"^{FORM}$"})]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)]
_WHO: Final = rf"^(\*|{ANONYMOUS}|({GROUP}|{ROLE})?{FORM})$"
Who = Annotated[str, msgspec.Meta(max_length=140, extra_json_schema={"pattern": _WHO})]
Pattern = Annotated[
    str, msgspec.Meta(max_length=NAME_MAX, extra_json_schema={"pattern": r"^[A-Za-z0-9._/:*?-]{1,260}$"})
]
Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(max_length=100)]
Named = Annotated[str, msgspec.Meta(max_length=PATTERN_BYTES_MAX)]
All = Literal["all"]
Rights = Annotated[tuple[Right | All, ...], msgspec.Meta(max_length=len(RIGHTS))]
SomeRights = Annotated[tuple[Right | All, ...], msgspec.Meta(min_length=1, max_length=len(RIGHTS))]
Password = Annotated[str, msgspec.Meta(max_length=PASSWORD_BYTES_MOST)]
Length = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    password: Password | None = None
    """Without one the user signs in by tokens and certificates only."""
    groups: Names = ()
    roles: Names = ()
    """`admin` may do everything."""

    def __repr__(self) -> str:
        return f"<NewUser {self.name}>"


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not named stays."""

    password: Password | None = None
    groups: Names | None = None
    roles: Names | None = None
    enabled: bool | None = None
    """Whoever is not enabled may do nothing, and keeps what he has."""

    def __repr__(self) -> str:
        return "<UserChange>"


class UserList(msgspec.Struct, frozen=True):
    users: list[UserInfo]


class TokensQuery(msgspec.Struct, frozen=True):
    user: str | None = None


class TokenOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: Name
    lasts_ms: Length | None = None
    """Without this it counts until it is revoked."""
    note: Annotated[str, msgspec.Meta(max_length=200)] = ""
    rights: Rights = ()
    """No more than these of its user's; none named: all of them."""
    topics: Patterns = ()
    """No topics but these, as rules name them; none named: all of its user's."""


class TokenList(msgspec.Struct, frozen=True):
    tokens: list[TokenInfo]


class NewRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effect: Effect
    """`allow` or `deny`: what denies wins."""
    who: Who
    """A user, `group:NAME`, `role:NAME`, `*` for all who have signed in, or `anonymous`."""
    rights: SomeRights
    kind: ObjectKind | All
    name: Named = "*"
    """A name, a prefix with `*` at its end, or a pattern with `*` and `?` anywhere. Of a channel a pattern as readers
    have them, with `%u` for the user and `%c` for what the client calls itself; of a tag a name or a prefix."""


class RuleList(msgspec.Struct, frozen=True):
    rules: list[RuleInfo]


class RoleMembers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    members: Annotated[tuple[Who, ...], msgspec.Meta(max_length=100)]
    """Users and `group:NAME`; without any the role has no members."""


class RoleList(msgspec.Struct, frozen=True):
    roles: list[RoleInfo]


class ExplainQuery(msgspec.Struct, frozen=True):
    user: Annotated[str, msgspec.Meta(min_length=1, max_length=140)]
    right: Right
    kind: ObjectKind = "topic"
    name: Named = ""
    group: tuple[str, ...] = ()
    channel: Named | None = None
    tag: tuple[str, ...] = ()
    client: Named = ""


async def list_users(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _json(UserList(await front_end.broker.list_users(caller=caller_of(request))))


async def show_user(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    name = request.path_params["user"]
    for info in await front_end.broker.list_users(caller=caller_of(request)):
        if info.name == name:
            return _json(info)
    raise UserNotFound(name[:200])


async def add_user(front_end: HttpFrontEnd, request: Request) -> Response:
    caller, new = caller_of(request), await parse_body(request, NewUser)
    credentials = await _derive(front_end, request, new.password)
    info = await front_end.broker.add_user(new.name, credentials or (), new.groups, new.roles, caller=caller)
    return _json(info, 201, {"location": f"/access/users/{info.name}"})


async def change_user(front_end: HttpFrontEnd, request: Request) -> Response:
    if not await request.body():
        raise RequestError("there is no body", 400, "no-body", "send what is to be changed, as JSON")
    caller, change = caller_of(request), await parse_body(request, UserChange)
    credentials = await _derive(front_end, request, change.password)
    name = request.path_params["user"]
    return _json(
        await front_end.broker.change_user(
            name, credentials, change.groups, change.roles, change.enabled, caller=caller
        )
    )


async def _derive(front_end: HttpFrontEnd, request: Request, password: str | None) -> list[Credential] | None:
    """What is kept of a password. It takes a while, so strangers are sent away before."""
    if password is None:
        return None
    _check_known(front_end, caller_of(request))
    check_private(request.scope)
    check_new_password(password)
    salt, loop = front_end.world.chance.randbytes, asyncio.get_running_loop()
    async with front_end.deriving:
        return [
            await loop.run_in_executor(front_end.threads, Credential.derive, password, salt(SALT_BYTES), mechanism)
            for mechanism in MECHANISMS
        ]


def _check_known(front_end: HttpFrontEnd, caller: Caller) -> None:
    sign_in = front_end.sign_in
    if caller.principal == ANONYMOUS and sign_in is not None and sign_in.is_required:
        raise SignInRequired


async def remove_user(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _json(await front_end.broker.remove_user(request.path_params["user"], caller=caller_of(request)))


async def list_tokens(front_end: HttpFrontEnd, request: Request) -> Response:
    user = parse_query(request, TokensQuery).user
    return _json(TokenList(await front_end.broker.list_tokens(user, caller=caller_of(request))))


async def create_token(front_end: HttpFrontEnd, request: Request) -> Response:
    wanted = await parse_body(request, TokenOrder)
    check_private(request.scope)
    made = await front_end.broker.create_token(
        *(wanted.user, wanted.lasts_ms, wanted.note, wanted.rights, wanted.topics), caller=caller_of(request)
    )
    return _json(made, 201)


async def revoke_token(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    await front_end.broker.revoke_token(request.path_params["token"], caller=caller_of(request))
    return Response(status_code=204)


async def list_rules(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _json(RuleList(await front_end.broker.list_rules(caller=caller_of(request))))


async def add_rule(front_end: HttpFrontEnd, request: Request) -> Response:
    new = await parse_body(request, NewRule)
    rule = Rule(new.effect, new.who, tuple(dict.fromkeys(new.rights)), new.kind, new.name)
    return _json(await front_end.broker.add_rule(rule.check(), caller=caller_of(request)), 201)


async def remove_rule(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    await front_end.broker.remove_rule(request.path_params["rule"], caller=caller_of(request))
    return Response(status_code=204)


async def list_roles(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _json(RoleList(await front_end.broker.list_roles(caller=caller_of(request))))


async def set_role(front_end: HttpFrontEnd, request: Request) -> Response:
    members = (await parse_body(request, RoleMembers)).members
    await front_end.broker.set_role(request.path_params["role"], members, caller=caller_of(request))
    return Response(status_code=204)


async def explain_access(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, ExplainQuery)
    record = query.channel, query.tag, query.client
    asked = query.user, query.right, query.kind, query.name, query.group, *record
    return _json(await front_end.broker.explain_access(*asked, caller=caller_of(request)))


def _json(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encoder.encode(answer), status, {"Cache-Control": "no-store", **(headers or {})}, JSON)


_AT: Final = 1769860800000000
_USER: Final = UserInfo("alice", list(MECHANISMS), ["accounting"], [], _AT, _AT)
_TOKEN: Final = TokenInfo("0a1b2c3d4e5f", "alice", _AT, None, _AT, "nightly import", ["write"], ["orders*"])
_RULE: Final = RuleInfo(7, Rule("allow", "alice", ("read", "write"), "topic", "orders*"))
_ROLE: Final = RoleInfo("audit", ["alice", "group:accounting"])
_EXPLANATION: Final = Explanation(True, f"rule 7: {_RULE.rule}", 7, _RULE.rule)
_MADE: Final = NewToken(f"lbt_{_TOKEN.id}_{'0' * 64}", _TOKEN)
_USER_PATH: Final = "/access/users/{user:path}"
_ITSELF: Final = " Everybody sees himself; the right to describe users shows all of them."


def _content(type_: Any, example: Any) -> dict[str, Content]:
    return {JSON: Content(type_, msgspec.to_builtins(example))}


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/access/users",
        list_users,
        "List users",
        TAG,
        f"Without their secrets, which nobody can see.{_ITSELF}",
        query=NoQuery,
        answers={200: _content(UserList, UserList([_USER]))},
    ),
    Operation(
        "POST",
        "/access/users",
        add_user,
        "Add a user",
        TAG,
        "With a password only over TLS, or from the node's own machine.",
        body={JSON: Content(NewUser, {"name": "alice", "password": "long and hard to guess"})},
        answers={201: _content(UserInfo, _USER)},
        problems=(409,),
        answer_headers={"Location": "Where the user is."},
    ),
    Operation(
        "GET",
        _USER_PATH,
        show_user,
        "Show a user",
        TAG,
        query=NoQuery,
        answers={200: _content(UserInfo, _USER)},
    ),
    Operation(
        "PATCH",
        _USER_PATH,
        change_user,
        "Change a user",
        TAG,
        "Everybody may change his own password; sessions that were begun with the old one end.",
        body={JSON: Content(UserChange, {"enabled": False})},
        answers={200: _content(UserInfo, _USER)},
    ),
    Operation(
        "DELETE",
        _USER_PATH,
        remove_user,
        "Remove a user",
        TAG,
        "And all tokens of the user, and the rules and roles that name the user: those stay where whoever asks may not "
        "manage all users, and `kept` says how many. It counts at once, for open connections too.",
        query=NoQuery,
        answers={200: _content(RemovedUser, RemovedUser(2, 1, 0))},
    ),
    Operation(
        "GET",
        "/access/tokens",
        list_tokens,
        "List tokens",
        TAG,
        f"Without their secrets.{_ITSELF}",
        query=TokensQuery,
        meanings={"user": "Only those of this user."},
        answers={200: _content(TokenList, TokenList([_TOKEN]))},
    ),
    Operation(
        "POST",
        "/access/tokens",
        create_token,
        "Make a token",
        TAG,
        "For oneself, or, with the right to manage users, for anybody. The answer has it, this once.",
        body={JSON: Content(TokenOrder, {"user": "alice", "note": "nightly import", "topics": ["orders*"]})},
        answers={201: _content(NewToken, _MADE)},
        problems=(404,),
    ),
    Operation(
        "DELETE",
        "/access/tokens/{token}",
        revoke_token,
        "Revoke a token",
        TAG,
        query=NoQuery,
        answers={204: {}},
    ),
    Operation(
        "GET",
        "/access/rules",
        list_rules,
        "List rules",
        TAG,
        "What denies wins over what allows; what no rule speaks of is not allowed.",
        query=NoQuery,
        answers={200: _content(RuleList, RuleList([_RULE]))},
    ),
    Operation(
        "POST",
        "/access/rules",
        add_rule,
        "Add a rule",
        TAG,
        "A rule that is there already is not added again: its number is the answer.",
        body=_content(NewRule, _RULE.rule),
        answers={201: _content(RuleInfo, _RULE)},
    ),
    Operation(
        "DELETE",
        "/access/rules/{rule:int}",
        remove_rule,
        "Remove a rule",
        TAG,
        query=NoQuery,
        answers={204: {}},
    ),
    Operation(
        "GET",
        "/access/roles",
        list_roles,
        "List roles",
        TAG,
        "And who has them, besides those whose user says so.",
        query=NoQuery,
        answers={200: _content(RoleList, RoleList([_ROLE]))},
    ),
    Operation(
        "PUT",
        "/access/roles/{role:path}",
        set_role,
        "Say who has a role",
        TAG,
        body={JSON: Content(RoleMembers, {"members": _ROLE.members})},
        answers={204: {}},
    ),
    Operation(
        "GET",
        "/access/explain",
        explain_access,
        "What would be decided, and by which rule",
        TAG,
        query=ExplainQuery,
        meanings={
            "user": "Who would ask; `anonymous` for whoever does not sign in.",
            "right": "To do what.",
            "kind": "To what.",
            "name": "Its name; without one, to any of the kind at all.",
            "group": "Besides those that the user has, such as those of a certificate.",
            "channel": "Of a record of the topic, where rules speak of channels.",
            "tag": "Of that record; may be given more than once.",
            "client": "What the client calls itself: `%c` in rules on channels.",
        },
        answers={200: _content(Explanation, _EXPLANATION)},
    ),
)
