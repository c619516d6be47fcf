"""Bearer tokens that an identity provider has signed (JWT, OIDC): who it says somebody is, until when.

A key says which algorithms it is for, never the token: `none`, and a public key taken for a shared secret, are refused.
Issuer, audience and expiry must be there and right. What else a token holds is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from logboom.access.principal import check_principal
from logboom.errors import InvalidPrincipal, PackageMissing, SignInFailed

if TYPE_CHECKING:
    from jwt import PyJWK

BYTES_MOST: Final = 16 * 1024
KEYS_MOST: Final = 100
GROUPS_MOST: Final = 200
LEEWAY_S: Final = 60
"""So far clocks may be apart."""
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the type of a key. Shared secrets (`oct`) are not taken: whoever can check a token could make one."""


class Bearer(NamedTuple):
    """What a token says that is good."""

    principal: str
    groups: frozenset[str]
    expires: int
    """Microseconds."""


class BearerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    issuer: str | None = None
    audience: str | None = None
    jwks: str | None = None
    principal_claim: str = "sub"
    groups_claim: str = "groups"


class _SigningKey(NamedTuple):
    key: PyJWK
    algorithms: tuple[str, ...]


def check_jwt_installed() -> None:
    """Raises PackageMissing."""
    try:
        import jwt  # noqa: F401
        from jwt.algorithms import has_crypto
    except ImportError:
        raise PackageMissing("logboom[oidc]", "checking bearer tokens") from None
    if not has_crypto:
        raise PackageMissing("logboom[oidc]", "checking bearer tokens")


class KeySet:
    """The keys of a provider, by their ids. Raises ValueError where the text is no set of keys."""

    def __init__(self, text: bytes) -> None:
        from jwt import PyJWK, PyJWTError

        try:
            listed = msgspec.json.decode(text)["keys"]
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError, RecursionError):
            raise ValueError("is no JSON Web Key Set: it has no list of keys") from None
        if not isinstance(listed, list) or len(listed) > KEYS_MOST:
            raise ValueError(f"is no list of at most {KEYS_MOST} keys")
        self._keys: dict[str, _SigningKey] = {}
        for described in listed:
            if not isinstance(described, dict) or described.get("use", "sig") != "sig":
                continue
            allowed = _ALGORITHMS.get(str(described.get("kty")), ())
            named = described.get("alg")
            algorithms = allowed if named is None else tuple(each for each in allowed if each == named)
            if not algorithms:
                continue
            try:
                key = PyJWK(described, algorithms[0])
            except (PyJWTError, ValueError, TypeError, KeyError):
                continue  # of a curve that we do not know, say
            self._keys[str(described.get("kid", ""))] = _SigningKey(key, algorithms)
        if not self._keys:
            raise ValueError("has no key that signatures can be checked with")

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str) -> _SigningKey | None:
        """Where a token names no key and there is only one, that one."""
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)


def key_id(text: str) -> str | None:
    """Which key a token wants to be checked with; None where it is no token."""
    import jwt

    if len(text) > BYTES_MOST or text.count(".") != 2:
        return None
    try:
        kid = jwt.get_unverified_header(text).get("kid", "")
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return kid if isinstance(kid, str) else None


def verify(text: str, keys: KeySet, settings: BearerSettings) -> Bearer:
    """Raises SignInFailed."""
    import jwt

    kid = key_id(text)
    found = None if kid is None else keys.find(kid)
    if found is None:
        raise SignInFailed
    required = ["exp", "iss", "aud", settings.principal_claim]
    try:
        claims = jwt.decode(
            text,
            found.key.key,
            algorithms=list(found.algorithms),
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=LEEWAY_S,
            options={"require": required, "verify_sub": False, "verify_jti": False},
        )
        return _read(claims, settings)
    except (jwt.PyJWTError, InvalidPrincipal, ValueError, TypeError, OverflowError, RecursionError):
        raise SignInFailed from None


def _read(claims: Mapping[str, Any], settings: BearerSettings) -> Bearer:
    principal = claims[settings.principal_claim]
    if not isinstance(principal, str):
        raise InvalidPrincipal(str(principal))
    groups = claims.get(settings.groups_claim, ())
    named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    sound = frozenset(name for name in named[:GROUPS_MOST] if isinstance(name, str) and _is_name(name))
    return Bearer(check_principal(principal), sound, int(claims["exp"]) * 1_000_000)


def _is_name(name: str) -> bool:
    try:
        check_principal(name)
    except InvalidPrincipal:
        return False
    return True
