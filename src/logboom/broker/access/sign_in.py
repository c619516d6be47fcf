"""How a front-end finds out who somebody is: by a password, by SCRAM, by a token. What he may do is not decided here.

A password is looked at on a thread, one after the other: it takes as long for a user there is as for one there is not.
Those that were right are remembered by a digest, under a key that this process alone has, until any user changes: a
client of HTTP shows its own with every request.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from logboom.access.bearer import Bearer
from logboom.access.credential import ITERATIONS, MECHANISMS, Credential, Mechanism, digest_size
from logboom.access.principal import ANONYMOUS
from logboom.access.saslprep import saslprep
from logboom.access.scram import NONCE_BYTES, ScramServer
from logboom.access.token import PREFIX, TokenSecret
from logboom.broker.access.access_rules import PASSWORD, TOKEN, VOUCHED
from logboom.broker.access.access_state import AccessState
from logboom.broker.access.brake import SignInBrake
from logboom.broker.caller import Caller
from logboom.broker.world import World
from logboom.errors import SignInFailed, SignInRequired

KNOWN_MOST: Final = 1024
VOUCHED_BY: Final = "bearer"
SEED_BYTES: Final = 32
NAME_MOST: Final = 256
"""Characters of a name that are looked at: more than any user's has."""


class Bearers(Protocol):
    """Who checks tokens that somebody else has signed."""

    async def check(self, text: str) -> Bearer:
        """Raises SignInFailed."""
        ...


class SignIn:
    def __init__(self, state: AccessState, threads: Executor, world: World, is_required: bool) -> None:
        self.is_required = is_required
        """Whether nothing is done for those who have not signed in."""
        self._state = state
        self._threads = threads
        self._world = world
        self._brake = SignInBrake(world.monotonic_s)
        self._checking = asyncio.Lock()
        """For whoever has a password looked at."""
        self._secret = world.chance.randbytes(SEED_BYTES)
        self._known: set[bytes] = set()
        self._usual: dict[Mechanism, int] = {}
        self.last_used: dict[str, int] = {}
        """When tokens were used last, microseconds, by their ids."""
        self.bearers: Bearers | None = None
        """None where no provider is configured."""
        self.on_failure: Callable[[Caller, str], None] = lambda caller, user: None
        """Called where somebody has not proven to be this user."""
        self.on_stranger: Callable[[Caller], None] = lambda caller: None
        """Called where somebody has not said who he is, and has to."""
        state.on_change += (self._known.clear, self._usual.clear)

    def demands(self, caller: Caller) -> bool:
        """Whether nothing is done for this one before he has signed in: rules may give him something all the same."""
        return self.is_required and caller.principal == ANONYMOUS and not self._state.speaks_of_anonymous

    def refuse(self, caller: Caller) -> SignInRequired:
        """What this one is told."""
        self.on_stranger(caller)
        return SignInRequired()

    async def with_password(self, caller: Caller, user: str, password: str) -> Caller:
        """Raises SignInFailed."""
        name = _normal(user)
        mark = hmac.digest(self._secret, f"{name}\0{password}".encode("utf-8", "surrogatepass"), "sha256")
        if mark not in self._known:
            await self._check(caller, name, password)
            if len(self._known) >= KNOWN_MOST:
                self._known.clear()
            self._known.add(mark)
        return self._proven(caller, name)

    async def _check(self, caller: Caller, name: str, password: str) -> None:
        """Raises SignInFailed. There is one thread for it, so who waits for the one before him loses nothing: and knows
        whether that one has failed, before it is his turn."""
        async with self._checking:
            wait_s = self._brake.reserve(caller.address, name)
            if wait_s <= 0:
                await self._look_at(caller, name, password)
                return
        await asyncio.sleep(wait_s)
        async with self._checking:
            await self._look_at(caller, name, password)

    async def _look_at(self, caller: Caller, name: str, password: str) -> None:
        credential = self._credential(name, None)
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(self._threads, credential.is_of, password)
        if not is_right or not self._has(name, credential):
            raise self._fail(caller, name)
        self._brake.note_success(caller.address, name)

    def _proven(self, caller: Caller, name: str) -> Caller:
        account = self._state.account_of(name)
        return replace(caller, principal=name, by=PASSWORD, groups=frozenset(), expires=0, account=account)

    def with_scram(self, caller: Caller, mechanism: Mechanism) -> ScramSignIn:
        nonce = self._world.chance.randbytes(NONCE_BYTES)
        return ScramSignIn(self, caller, ScramServer(mechanism, lambda user: self._credential(user, mechanism), nonce))

    async def with_token(self, caller: Caller, text: str) -> Caller:
        """Of ours, or one that a provider has signed. Raises SignInFailed."""
        if self.bearers is not None and not text.startswith(PREFIX):
            return await self._with_bearer(caller, text, self.bearers)
        shown = TokenSecret.parse(text)
        token = None if shown is None else self._state.tokens.get(shown.id)
        name = "" if shown is None else f"{TOKEN}{shown.id}"
        if shown is None or token is None or not shown.fits(token.digest):  # nobody guesses one: others need not wait
            await self._brake.wait(caller.address, name)
            raise self._fail(caller, name)
        now = self._world.now_us()
        if (token.expires and token.expires <= now) or self._state.subject_of(token.user) is None:
            raise self._fail(caller, name)
        self.last_used[shown.id] = now
        return replace(caller, principal=token.user, by=name, groups=frozenset(), expires=token.expires)

    async def _with_bearer(self, caller: Caller, text: str, bearers: Bearers) -> Caller:
        """Nobody guesses a signature, so nobody has to wait."""
        try:
            principal, groups, expires = await bearers.check(text)
            user = self._state.users.get(principal)
            if user is not None and not user.enabled:
                raise SignInFailed
        except SignInFailed:
            self.on_failure(caller, VOUCHED_BY)
            raise
        return replace(caller, principal=principal, groups=groups, by=VOUCHED_BY, expires=expires)

    def basis_of(self, caller: Caller) -> object:
        """What his sign-in rests on, to be compared: another one where the password was changed, the token revoked or
        the user made anew; None where he may do nothing any more. Whom somebody else vouches for needs no user."""
        account = self._state.users.get(caller.principal)
        if caller.by in VOUCHED and (account is None or account.enabled):
            return caller.by
        if account is None or not account.enabled:
            return None
        if not caller.by.startswith(TOKEN):
            return account.created, account.credentials
        token = self._state.tokens.get(caller.by.removeprefix(TOKEN))
        return None if token is None else (account.created, token)

    def _has(self, user: str, credential: Credential) -> bool:
        """Whether it still counts: it may have been changed while it was looked at."""
        account = self._state.users.get(user)
        return account is not None and account.enabled and credential in account.credentials

    def _credential(self, user: str, mechanism: Mechanism | None) -> Credential:
        """The user's; for a name that no user has one that nothing fits, the same each time."""
        name = _normal(user)
        account = self._state.users.get(name)
        for credential in () if account is None else account.credentials:
            if mechanism in (None, credential.mechanism):
                return credential
        mechanism = mechanism or MECHANISMS[0]
        salt = hmac.digest(self._state.seed or self._secret, f"{mechanism}\0{name}".encode(), "sha256")[:16]
        nothing = self._world.chance.randbytes(digest_size(mechanism))
        return Credential(mechanism, salt, self._usual_iterations(mechanism), nothing, nothing)

    def _usual_iterations(self, mechanism: Mechanism) -> int:
        """What most users have, for those that are none: a number of its own would say so."""
        if mechanism not in self._usual:
            known = (each for user in self._state.users.values() for each in user.credentials)
            counts = Counter(each.iterations for each in known if each.mechanism == mechanism)
            self._usual[mechanism] = max(counts, key=lambda each: (counts[each], each), default=ITERATIONS)
        return self._usual[mechanism]

    def account_of(self, user: str) -> tuple[int, int]:
        return self._state.account_of(_normal(user))

    async def finish(
        self, caller: Caller, user: str, account: tuple[int, int], step: Callable[[], bytes]
    ) -> tuple[Caller, bytes]:
        """The last step of SCRAM. `account` is the user's as it was at the first: what was changed since is no good."""
        name = _normal(user)
        await self._brake.wait(caller.address, name)
        try:
            last = step()
        except SignInFailed:
            raise self._fail(caller, name) from None
        if self._state.subject_of(name) is None or self._state.account_of(name) != account:
            raise self._fail(caller, name)
        self._brake.note_success(caller.address, name)
        return self._proven(caller, name), last

    def _fail(self, caller: Caller, user: str) -> SignInFailed:
        self._brake.note_failure(caller.address, user)
        self.on_failure(caller, user)
        return SignInFailed()


class ScramSignIn:
    """One conversation: a challenge, then the end."""

    def __init__(self, sign_in: SignIn, caller: Caller, server: ScramServer) -> None:
        self._sign_in = sign_in
        self._caller = caller
        self._server = server
        self._account = (0, 0)

    def begin(self, message: bytes) -> bytes:
        """The challenge. Raises SignInFailed."""
        try:
            challenge = self._server.begin(message)
        except SignInFailed:
            self._sign_in.on_failure(self._caller, "")
            raise
        self._account = self._sign_in.account_of(self._server.user)
        return challenge

    async def finish(self, message: bytes) -> tuple[Caller, bytes]:
        """Who he is, and the last thing to say. Raises SignInFailed."""
        step = partial(self._server.finish, message)
        return await self._sign_in.finish(self._caller, self._server.user, self._account, step)


def _normal(user: str) -> str:
    """As names of users are compared; empty where it can be none, however long."""
    if len(user) > NAME_MOST:
        return ""
    try:
        return saslprep(user)
    except ValueError:
        return ""
