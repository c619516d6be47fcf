"""How a front-end finds out who somebody is: by a password, by SCRAM, by a token. What he may do is not decided here.

A password is looked at on a thread, one after the other: it takes as long for a user there is as for one there is not.
Those that were right are remembered by a digest, under a key that this process alone has, until any user changes: a
client of HTTP shows its own with every request.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, TypeVar

from logboom.access.credential import ITERATIONS, MECHANISMS, Credential, Mechanism, digest_size
from logboom.access.principal import ANONYMOUS
from logboom.access.saslprep import saslprep
from logboom.access.scram import NONCE_BYTES, ScramServer
from logboom.access.token import TokenSecret
from logboom.broker.access.access_rules import TOKEN
from logboom.broker.access.access_state import AccessState
from logboom.broker.access.brake import SignInBrake
from logboom.broker.caller import Caller
from logboom.broker.world import World
from logboom.errors import SignInFailed, SignInRequired

KNOWN_MOST: Final = 1024
SEED_BYTES: Final = 32
Result = TypeVar("Result")


class SignIn:
    def __init__(self, state: AccessState, threads: Executor, world: World, is_required: bool) -> None:
        self.is_required = is_required
        """Whether nothing is done for those who have not signed in."""
        self._state = state
        self._threads = threads
        self._world = world
        self._brake = SignInBrake(world.monotonic_s)
        self._secret = world.chance.randbytes(SEED_BYTES)
        self._known: set[bytes] = set()
        self.last_used: dict[str, int] = {}
        """When tokens were used last, microseconds, by their ids."""
        self.on_failure: Callable[[Caller, str], None] = lambda caller, user: None
        """Called where somebody has not proven to be this user."""
        self.on_stranger: Callable[[Caller], None] = lambda caller: None
        """Called where somebody has not said who he is, and has to."""
        state.on_change.append(self._known.clear)

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
            await self._brake.wait(caller.address, name)
            credential = self._credential(name, None)
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._threads, credential.is_of, password)
            if not is_right or self._state.subject_of(name) is None:
                raise self._fail(caller, name)
            self._brake.note_success(caller.address, name)
            if len(self._known) >= KNOWN_MOST:
                self._known.clear()
            self._known.add(mark)
        return replace(caller, principal=name, by="password", groups=frozenset(), expires=0)

    def with_scram(self, caller: Caller, mechanism: Mechanism) -> ScramSignIn:
        nonce = self._world.chance.randbytes(NONCE_BYTES)
        return ScramSignIn(self, caller, ScramServer(mechanism, lambda user: self._credential(user, mechanism), nonce))

    async def with_token(self, caller: Caller, text: str) -> Caller:
        """Raises SignInFailed."""
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
        return Credential(mechanism, salt, ITERATIONS, nothing, nothing)

    async def finish(self, caller: Caller, user: str, step: Callable[[], bytes]) -> tuple[Caller, bytes]:
        """The last step of SCRAM."""
        name = _normal(user)
        await self._brake.wait(caller.address, name)
        try:
            last = step()
        except SignInFailed:
            raise self._fail(caller, name) from None
        if self._state.subject_of(name) is None:
            raise self._fail(caller, name)
        self._brake.note_success(caller.address, name)
        return replace(caller, principal=name, by="password", groups=frozenset(), expires=0), last

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

    def begin(self, message: bytes) -> bytes:
        """The challenge. Raises SignInFailed."""
        try:
            return self._server.begin(message)
        except SignInFailed:
            self._sign_in.on_failure(self._caller, "")
            raise

    async def finish(self, message: bytes) -> tuple[Caller, bytes]:
        """Who he is, and the last thing to say. Raises SignInFailed."""
        return await self._sign_in.finish(self._caller, self._server.user, lambda: self._server.finish(message))


def _normal(user: str) -> str:
    try:
        return saslprep(user)
    except ValueError:
        return ""
