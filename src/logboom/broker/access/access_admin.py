"""What those who decide who may do what can do: users, tokens, roles, rules and quotas are changed here alone.

Whoever asks has the right to, as the broker has made sure; everybody may see and change his own password and tokens.
The last one who may manage users cannot be taken away by a slip: over the Unix socket, and with the node stopped, the
one who runs the node may always do everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from logboom.access.credential import ITERATIONS_LEAST, Credential, digest_size
from logboom.access.principal import ANONYMOUS, EVERYBODY, GROUP, check_principal
from logboom.access.quota import Quota, check_bound
from logboom.access.rule import CHANNEL, KINDS, RECORD_KINDS, RECORD_RIGHTS, RIGHTS, TAG, Right, Rule, check_who
from logboom.access.rule_book import UNBOUND, Decision, Subject
from logboom.access.token import Token, TokenSecret
from logboom.broker.access.access_rules import TOKEN, AccessRules
from logboom.broker.access.access_state import SEED, AccessState, User, key_of
from logboom.broker.access.quotas import Quotas
from logboom.broker.access.sign_in import SEED_BYTES, SignIn
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
from logboom.broker.caller import Caller
from logboom.broker.rules import Rules
from logboom.broker.world import World
from logboom.errors import (
    InvalidPassword,
    InvalidRule,
    NotAllowed,
    QuotaNotFound,
    RuleNotFound,
    TokenNotFound,
    UserExists,
    UserNotFound,
)

EVERY: Final = "*"
"""In the place of a name: only a rule that speaks of all gives this."""
NAMES_MOST: Final = 100
"""Groups, roles or members in one entry; topics of a token."""
NOTE_MOST: Final = 200
ITERATIONS_KEPT_MOST: Final = 100_000
"""All passwords that come in the clear are looked at by one thread: nobody may make his own a burden to others."""
LASTS_MS_MOST: Final = 10 * 366 * 86_400_000
NO_RECORD_RULE: Final = "no rule for channels or tags forbids it"


class AccessQuestion(NamedTuple):
    """Might this user do this, with a record of this channel and these tags?"""

    user: str
    right: Any
    kind: Any
    name: str = ""
    groups: Sequence[str] = ()
    channel: str | None = None
    tags: Sequence[str] = ()
    client: str = ""


class AccessAdmin:
    def __init__(
        self, state: AccessState, rules: Rules, decides: AccessRules, sign_in: SignIn, quotas: Quotas, world: World
    ) -> None:
        self._state = state
        self._rules = rules
        """Those that the broker asks, which may be others where it is open to all."""
        self._decides = decides
        self._sign_in = sign_in
        self._quotas = quotas
        self._world = world
        self.changing = asyncio.Lock()
        """Whoever changes something looks at what there is, and then waits for the disk: one after the other."""

    def is_himself(self, caller: Caller, name: str) -> bool:
        return self._decides.is_himself(caller, name)

    def reads_all(self, caller: Caller) -> bool:
        return self._rules.gives_all(caller, "read", "topic") and self._rules.restriction(caller, "read") is None

    async def add_user(
        self, name: str, credentials: Sequence[Credential], groups: Sequence[str], roles: Sequence[str]
    ) -> UserInfo:
        check_principal(name)
        if name in self._state.users:
            raise UserExists(name)
        now = self._world.now_us()
        user = User(_checked(credentials), _names(groups), _names(roles), now, now)
        changes: dict[str, User | bytes] = {key_of("user", name): user}
        if not self._state.seed:
            changes[key_of(SEED, "")] = self._world.chance.randbytes(SEED_BYTES)
        await self._state.put(changes)
        return _info(name, user)

    async def change_user(
        self,
        name: str,
        credentials: Sequence[Credential] | None,
        groups: Sequence[str] | None,
        roles: Sequence[str] | None,
        enabled: bool | None,
    ) -> UserInfo:
        old = self._find(name)
        user = User(
            old.credentials if credentials is None else _checked(credentials),
            old.groups if groups is None else _names(groups),
            old.roles if roles is None else _names(roles),
            old.created,
            old.changed if credentials is None else self._world.now_us(),
            old.enabled if enabled is None else enabled,
        )
        await self._state.put({key_of("user", name): user})
        return _info(name, user)

    async def remove_user(self, name: str, caller: Caller) -> RemovedUser:
        """What names him goes along, so that the next user of this name begins with nothing: but who may not change
        rules does not change them by this either."""
        self._find(name)
        tokens = [token_id for token_id, token in self._state.tokens.items() if token.user == name]
        rules = [number for number, rule in self._state.rules.items() if rule.who == name]
        roles = {role: members for role, members in self._state.roles.items() if name in members}
        changes: dict[str, tuple[str, ...] | None] = {key_of("user", name): None}
        changes |= dict.fromkeys(key_of("token", token_id) for token_id in tokens)
        if not self._rules.allows(caller, "manage", "user", EVERY):
            await self._state.put(changes)
            return RemovedUser(len(tokens), 0, 0, len(rules) + len(roles))
        changes |= dict.fromkeys(key_of("rule", number) for number in rules)
        for role, members in roles.items():
            changes[key_of("role", role)] = tuple(member for member in members if member != name) or None
        await self._state.put(changes)
        return RemovedUser(len(tokens), len(rules), len(roles))

    def list_users(self, caller: Caller) -> list[UserInfo]:
        return [_info(name, user) for name, user in sorted(self._state.users.items()) if self._sees(caller, name)]

    def _sees(self, caller: Caller, user: str) -> bool:
        return caller.principal == user or self._rules.allows(caller, "describe", "user", user)

    def _find(self, name: str) -> User:
        user = self._state.users.get(name)
        if user is None:
            raise UserNotFound(name)
        return user

    async def create_token(
        self, user: str, lasts_ms: int | None, note: str, rights: Sequence[str], topics: Sequence[str]
    ) -> NewToken:
        self._find(user)
        if lasts_ms is not None and not 0 < lasts_ms <= LASTS_MS_MOST:
            raise InvalidRule(f"a token lasts up to {LASTS_MS_MOST // 86_400_000} days")
        if rights:
            Rule("allow", user, tuple(rights), "topic").check()
        for topic in topics[: NAMES_MOST + 1]:
            Rule("allow", user, ("read",), "topic", topic).check()
        if len(topics) > NAMES_MOST or len(note) > NOTE_MOST:
            raise InvalidRule(f"a token has at most {NAMES_MOST} topics and {NOTE_MOST} characters of note")
        made = TokenSecret.make(self._world.chance.randbytes)
        now = self._world.now_us()
        expires = 0 if lasts_ms is None else now + lasts_ms * 1000
        token = Token(user, made.digest(), now, expires, note, tuple(rights), tuple(topics))
        await self._state.put({key_of("token", made.id): token})
        return NewToken(str(made), self._token_info(made.id, token))

    def owner_of(self, token_id: str) -> str:
        token = self._state.tokens.get(token_id)
        return "" if token is None else token.user

    async def revoke_token(self, token_id: str) -> None:
        if token_id not in self._state.tokens:
            raise TokenNotFound(token_id[:100])
        await self._state.put({key_of("token", token_id): None})

    def list_tokens(self, user: str | None, caller: Caller) -> list[TokenInfo]:
        return [
            self._token_info(token_id, token)
            for token_id, token in sorted(self._state.tokens.items(), key=lambda each: each[1].created)
            if user in (None, token.user) and self._sees(caller, token.user)
        ]

    def _token_info(self, token_id: str, token: Token) -> TokenInfo:
        used = self._sign_in.last_used.get(token_id)
        scope = list(token.rights), list(token.topics)
        return TokenInfo(token_id, token.user, token.created, token.expires or None, used, token.note, *scope)

    async def add_rule(self, rule: Rule) -> RuleInfo:
        rule.check()
        for number, other in self._state.rules.items():
            if other == rule:
                return RuleInfo(number, other)
        number = max(self._state.rules, default=0) + 1
        await self._state.put({key_of("rule", number): rule})
        return RuleInfo(number, rule)

    async def remove_rule(self, number: int) -> None:
        if number not in self._state.rules:
            raise RuleNotFound(number)
        await self._state.put({key_of("rule", number): None})

    def list_rules(self) -> list[RuleInfo]:
        return [RuleInfo(number, rule) for number, rule in sorted(self._state.rules.items())]

    async def set_role(self, role: str, members: Sequence[str]) -> None:
        check_principal(role)
        if len(members) > NAMES_MOST:
            raise InvalidRule(f"a role has at most {NAMES_MOST} members: use a group")
        for member in members:
            check_who(member)
        await self._state.put({key_of("role", role): tuple(dict.fromkeys(members)) or None})

    def list_roles(self) -> list[RoleInfo]:
        return [RoleInfo(name, list(members)) for name, members in sorted(self._state.roles.items())]

    async def set_quota(self, who: str, quota: Quota) -> None:
        check_bound(who)
        await self._state.put({key_of("quota", who): quota.check()})

    async def remove_quota(self, who: str) -> None:
        self._check_quota(who)
        await self._state.put({key_of("quota", who): None})

    def list_quotas(self) -> list[QuotaUsage]:
        return [self._quotas.usage_as_set(who) for who in sorted(self._state.quotas)]

    def show_quota(self, who: str) -> list[QuotaUsage]:
        check_bound(who)
        if who in (EVERYBODY, ANONYMOUS) or who.startswith(GROUP):
            self._check_quota(who)
            return self._quotas.usage_under(who)
        found = self._quotas.usage_of(Caller(who))
        if not found:
            self._check_quota(who)
        return found

    def _check_quota(self, who: str) -> None:
        if who not in self._state.quotas:
            raise QuotaNotFound(who[:200])

    def explain(self, asked: AccessQuestion) -> Explanation:
        right, kind = asked.right, asked.kind
        if right not in RIGHTS or kind not in KINDS:
            raise InvalidRule(f"there are the rights {', '.join(RIGHTS)} and the kinds {', '.join(KINDS)}")
        caller = Caller(asked.user, frozenset(asked.groups), by="certificate" if asked.groups else "")
        subject = self._decides.subject_of(caller)
        if subject is None:
            return Explanation(False, f"there is no user {asked.user}, or he is disabled")
        is_free = right not in RECORD_RIGHTS or self._decides.sees_all(caller, "topic")
        rules = [] if is_free else self._state.book.record_rules(subject, right)
        if kind in RECORD_KINDS:
            return self._explain_record(subject, right, asked) if rules else Explanation(True, NO_RECORD_RULE)
        found = self._explanation(self._decides.decide(caller, right, kind, asked.name))
        if not found.allowed or kind != "topic" or not rules:
            return found
        if not asked.channel and not asked.tags:
            numbers = ", ".join(str(self._number_of(rule)) for rule in rules)
            return msgspec.structs.replace(found, reason=f"{found.reason}; which records, rules {numbers} decide")
        about = self._explain_record(subject, right, asked)
        return msgspec.structs.replace(about, reason=f"{found.reason}; {about.reason}") if about.allowed else about

    def _explain_record(self, subject: Subject, right: Right, asked: AccessQuestion) -> Explanation:
        """As if he might read, or write, the topic."""
        channel = asked.name if asked.kind == CHANNEL else asked.channel
        tags = (*asked.tags, asked.name) if asked.kind == TAG else asked.tags
        decision = self._state.book.decide_record(subject, right, channel or None, tags, asked.client)
        if decision.rule is not None:
            return self._explanation(decision)
        if decision.allowed:
            return Explanation(True, NO_RECORD_RULE)
        named = " with ".join((f"channel {channel}" if channel else "no channel", *(f"tag {tag}" for tag in tags)))
        return Explanation(False, f"rules allow some channels or tags, and not {named}")

    def _explanation(self, decision: Decision) -> Explanation:
        rule = decision.rule
        if rule is None:
            reason = "no rule speaks of it" if not decision.allowed else "anonymous callers may do everything here"
            return Explanation(decision.allowed, reason)
        number = self._number_of(rule)
        which = "the built-in rule" if number is None else f"rule {number}"
        return Explanation(decision.allowed, f"{which}: {rule}", number, rule)

    def _number_of(self, rule: Rule) -> int | None:
        return next((number for number, other in self._state.rules.items() if other == rule), None)

    def whoami(self, caller: Caller) -> CallerInfo:
        subject = self._decides.subject_of(caller) or Subject(caller.principal)
        groups, roles = sorted(subject.groups), sorted(subject.roles)
        by = TOKEN.removesuffix(":") if caller.by.startswith(TOKEN) else caller.by
        quotas = self._quotas.usage_of(caller)
        return CallerInfo(caller.principal, groups, roles, caller.protocol, caller.address, by, quotas)


def check_not_more(caller: Caller) -> None:
    """A token makes no token, for it could give itself more than it has; nor does who speaks with one for others.
    Raises NotAllowed."""
    if caller.by.startswith(TOKEN) and caller.principal not in UNBOUND:
        raise NotAllowed(caller.principal, "manage", "user", caller.principal)
    if caller.through is not None:
        check_not_more(caller.through)


def _checked(credentials: Sequence[Credential]) -> tuple[Credential, ...]:
    for credential in credentials:
        sizes = {len(credential.stored_key), len(credential.server_key)}
        if sizes != {digest_size(credential.mechanism)} or not 8 <= len(credential.salt) <= 64:
            raise InvalidPassword("this is not what SCRAM makes of a password")
        if not ITERATIONS_LEAST <= credential.iterations <= ITERATIONS_KEPT_MOST:
            raise InvalidPassword(f"{ITERATIONS_LEAST:,} to {ITERATIONS_KEPT_MOST:,} iterations are allowed")
    if len({credential.mechanism for credential in credentials}) != len(credentials):
        raise InvalidPassword("there is one credential for each mechanism")
    return tuple(credentials)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > NAMES_MOST:
        raise InvalidRule(f"a user has at most {NAMES_MOST} groups and roles")
    return tuple(check_principal(name.removeprefix(GROUP)) for name in dict.fromkeys(names))


def _info(name: str, user: User) -> UserInfo:
    mechanisms = [credential.mechanism for credential in user.credentials]
    return UserInfo(
        name, list(mechanisms), list(user.groups), list(user.roles), user.created, user.changed, user.enabled
    )
