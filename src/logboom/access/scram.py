"""SCRAM, both sides, without input or output: RFC 5802 and 7677.

    client  n,,n=user,r=nonce        →
            ←  r=nonce+more,s=salt,i=iterations
    client  c=biws,r=...,p=proof     →
            ←  v=signature

The password travels in neither direction, and the client learns whether the server knows it too. A name that no user
has is answered like any other, with a salt that is always the same for it, and fails at the end. There is no channel
binding: over TLS it is the certificate that says who the server is.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from typing import Final

from logboom.access.credential import (
    ITERATIONS_LEAST,
    ITERATIONS_MOST,
    Credential,
    Keys,
    Mechanism,
    digest,
    mac,
    prepare,
)
from logboom.access.saslprep import saslprep
from logboom.errors import InvalidPassword, RemoteProtocolError, SignInFailed

NONCE_BYTES: Final = 18
MESSAGE_BYTES_MOST: Final = 4096
_HEADER: Final = "n,,"
_BINDING: Final = base64.b64encode(_HEADER.encode()).decode()
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}", re.ASCII)


class ScramServer:
    """One sign-in. `find` gives the credential of a name; for a name that no user has one that no password fits."""

    def __init__(self, mechanism: Mechanism, find: Callable[[str], Credential], nonce: bytes) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = base64.b64encode(nonce).decode()
        self._header = self._talk = ""
        self._credential: Credential | None = None
        self.user = ""
        """Who it says it is; proven when `finish` has returned."""

    def begin(self, message: bytes) -> bytes:
        """The answer to the first message. Raises SignInFailed."""
        text = _decode(message)
        header, bare = _split_header(text)
        fields = _fields(bare, "nr")
        if _NONCE.fullmatch(fields["r"]) is None:
            raise SignInFailed
        self.user = _unescape(fields["n"])
        self._credential = found = self._find(self.user)
        self._header = header
        self._nonce = fields["r"] + self._nonce
        first = f"r={self._nonce},s={base64.b64encode(found.salt).decode()},i={found.iterations}"
        self._talk = f"{bare},{first}"
        return first.encode()

    def finish(self, message: bytes) -> bytes:
        """The answer to the second message, whose sender is `user`. Raises SignInFailed."""
        credential = self._credential
        if credential is None:
            raise SignInFailed
        text = _decode(message)
        without_proof, separator, proof = text.rpartition(",p=")
        fields = _fields(without_proof, "cr")
        if not separator or fields["r"] != self._nonce or _unbase(fields["c"]) != self._header.encode():
            raise SignInFailed
        talk = f"{self._talk},{without_proof}".encode()
        signature = mac(self._mechanism, credential.stored_key, talk)
        sent = _unbase(proof)
        if len(sent) != len(signature):
            raise SignInFailed
        client_key = bytes(a ^ b for a, b in zip(sent, signature, strict=True))
        if not hmac.compare_digest(digest(self._mechanism, client_key), credential.stored_key):
            raise SignInFailed
        return b"v=" + base64.b64encode(mac(self._mechanism, credential.server_key, talk))


class ScramClient:
    def __init__(self, mechanism: Mechanism, user: str, password: str, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._password = prepare(password)
        self._nonce = base64.b64encode(nonce).decode()
        try:
            name = saslprep(user).replace("=", "=3D").replace(",", "=2C")
        except ValueError as error:
            raise InvalidPassword(f"the name of the user cannot be used: {error}") from None
        self._bare = f"n={name},r={self._nonce}"
        self._expected = b""

    def begin(self) -> bytes:
        return f"{_HEADER}{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """Takes a while. Raises RemoteProtocolError where the server's answer makes no sense."""
        try:
            first = _decode(challenge)
            fields = _fields(first, "rsi")
            salt, iterations = _unbase(fields["s"]), int(fields["i"])
        except (SignInFailed, ValueError):
            raise RemoteProtocolError("the server's answer to the sign-in makes no sense") from None
        if not fields["r"].startswith(self._nonce) or len(fields["r"]) == len(self._nonce):
            raise RemoteProtocolError("the server's answer is not to this sign-in")
        if not ITERATIONS_LEAST <= iterations <= ITERATIONS_MOST:
            allowed = f"{ITERATIONS_LEAST:,} to {ITERATIONS_MOST:,}"
            raise RemoteProtocolError(f"the server asks for {iterations:,} iterations, allowed are {allowed}")
        keys = Keys.derive(self._mechanism, self._password, salt, iterations)
        final = f"c={_BINDING},r={fields['r']}"
        talk = f"{self._bare},{first},{final}".encode()
        signature = mac(self._mechanism, digest(self._mechanism, keys.client), talk)
        proof = bytes(a ^ b for a, b in zip(keys.client, signature, strict=True))
        self._expected = mac(self._mechanism, keys.server, talk)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        """The server knows the password too. Raises RemoteProtocolError where it does not."""
        sent = final.removeprefix(b"v=")
        if not self._expected or not hmac.compare_digest(base64.b64encode(self._expected), sent):
            raise RemoteProtocolError("the server does not know this user's password: it is not the one it seems to be")


def _decode(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MOST:
        raise SignInFailed
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SignInFailed from None


def _split_header(text: str) -> tuple[str, str]:
    """The header of the first message and the rest. Whoever wants a channel binding, or to be another, is refused."""
    flag, separator, rest = text.partition(",")
    other, separator_2, bare = rest.partition(",")
    if flag not in ("n", "y") or not separator or not separator_2 or other:
        raise SignInFailed
    return f"{flag},,", bare


def _fields(text: str, names: str) -> dict[str, str]:
    """Exactly these first, in this order; extensions may follow, but none that must be understood."""
    parts = text.split(",")
    if len(parts) < len(names):
        raise SignInFailed
    found: dict[str, str] = {}
    for name, part in zip(names, parts, strict=False):
        if not part.startswith(f"{name}="):
            raise SignInFailed
        found[name] = part[2:]
    return found


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name) or not name:
        raise SignInFailed
    return name.replace("=2C", ",").replace("=3D", "=")


def _unbase(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SignInFailed from None
