"""Bearer tokens of a provider: good ones, and every way that one has been forged."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from logboom.access.bearer import BYTES_MOST, GROUPS_MOST, BearerSettings, KeySet, key_id, verify
from logboom.errors import SignInFailed

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
OTHER = rsa.generate_private_key(65537, 2048)
SETTINGS = BearerSettings("https://id.example", "logboom", "unused")


def described(key: Any, kid: str, **more: str) -> dict[str, Any]:
    kinds = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    (kind,) = (algorithm for base, algorithm in kinds.items() if isinstance(key, base))
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "use": "sig", **more}  # type: ignore[attr-defined]


KEYS = KeySet(
    json.dumps(
        {
            "keys": [
                described(RSA, "rsa"),
                described(EC, "ec"),
                described(ED, "ed"),
                described(OTHER, "only-ps", alg="PS256"),
                {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
                {"kty": "RSA", "kid": "broken"},
                {**described(OTHER, "for-encryption"), "use": "enc"},
            ]
        }
    ).encode()
)


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    said = {"iss": "https://id.example", "aud": "logboom", "sub": "ann", "iat": now, "exp": now + 600} | changed
    return {name: value for name, value in said.items() if value is not None}


def signed(key: Any = RSA, algorithm: str = "RS256", kid: Any = "rsa", headers: Any = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm, headers={"kid": kid, **(headers or {})})


def raw(header: Any, said: Any, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(said).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA, "RS256", "rsa"),
        (RSA, "PS512", "rsa"),
        (EC, "ES256", "ec"),
        (ED, "EdDSA", "ed"),
        (OTHER, "PS256", "only-ps"),
    ],
)
def test_a_good_token_says_who_somebody_is(key: Any, algorithm: str, kid: str) -> None:
    found = verify(signed(key, algorithm, kid, groups=["ops", "bad name", 7, "_node"]), KEYS, SETTINGS)
    assert (found.principal, found.groups) == ("ann", frozenset({"ops"}))
    assert found.expires > time.time() * 1e6


def test_claims_are_chosen_and_bounded() -> None:
    settings = BearerSettings("https://id.example", "logboom", "unused", "email", "roles")
    token = signed(email="ann@example.org", roles=[f"g{number}" for number in range(1000)])
    found = verify(token, KEYS, settings)
    assert found.principal == "ann@example.org"
    assert len(found.groups) == GROUPS_MOST
    assert verify(signed(roles="one", email="x"), KEYS, settings).groups == {"one"}
    assert verify(signed(aud=["other", "logboom"]), KEYS, SETTINGS).principal == "ann"


NOW = int(time.time())
PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def confused() -> str:
    """The public key, which everybody has, as a shared secret."""
    front = raw({"alg": "HS256", "typ": "JWT", "kid": "rsa"}, claims()).rpartition(".")[0]
    signature = hmac.new(PUBLIC, front.encode(), hashlib.sha256).digest()
    return f"{front}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "..",
        "x" * (BYTES_MOST + 1),
        raw({"alg": "none", "kid": "rsa"}, claims()),
        raw({"alg": "None", "kid": "rsa"}, claims()),
        raw({"alg": "nOnE", "kid": "rsa"}, claims(), b"x"),
        raw({"kid": "rsa"}, claims()),
        raw({"alg": ["RS256"], "kid": "rsa"}, claims()),
        raw({"alg": "RS256", "kid": ["rsa"]}, claims()),
        raw({"alg": "RS256", "kid": "rsa"}, claims(), b"forged"),
        raw([], claims()),
        raw({"alg": "RS256", "kid": "rsa"}, []),
        confused(),
        jwt.encode(claims(), "secret" * 8, "HS256", headers={"kid": "shared"}),
        signed(OTHER),
        signed(OTHER, kid="unknown"),
        signed(OTHER, kid="for-encryption"),
        signed(OTHER, kid="broken"),
        signed(OTHER, "RS256", "only-ps"),
        signed(EC, "ES256", "rsa"),
        signed(OTHER, headers={"jku": "https://evil.example/keys", "x5u": "https://evil.example/c"}),
        signed(OTHER, headers={"jwk": described(OTHER, "rsa")}),
        signed(headers={"crit": ["b64"], "b64": False}),
        signed(iss="https://evil.example"),
        signed(iss=None),
        signed(aud="other"),
        signed(aud=None),
        signed(aud=["other"]),
        signed(exp=NOW - 3600),
        signed(exp=None),
        signed(exp="soon"),
        signed(nbf=NOW + 3600),
        signed(sub=None),
        signed(sub=7),
        signed(sub=""),
        signed(sub="_node"),
        signed(sub="_operator"),
        signed(sub="anonymous"),
        signed(sub="a b"),
        signed(sub="ann\n"),
        signed() + ".x",
        signed()[:-4] + "AAAA",
    ],
)
def test_a_token_that_is_not_good_is_refused(token: str) -> None:
    with pytest.raises(SignInFailed) as failed:
        verify(token, KEYS, SETTINGS)
    assert str(failed.value) == "the sign-in failed: the name or the secret is wrong"


def test_a_set_holds_only_keys_that_signatures_are_checked_with() -> None:
    assert len(KEYS) == 4
    assert KEYS.find("shared") is None
    assert KEYS.find("") is None
    alone = KeySet(json.dumps({"keys": [described(EC, "ec")]}).encode())
    assert alone.find("") is alone.find("ec")
    assert key_id(signed(kid="x")) == "x"


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1, {}]}', b"\xff", b"[" * 9999]
)
def test_what_is_no_set_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|list"):
        KeySet(text)
    with pytest.raises(ValueError, match="at most"):
        KeySet(json.dumps({"keys": [{}] * 1000}).encode())
