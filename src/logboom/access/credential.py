"""What a node keeps of a password: salted and iterated, as SCRAM wants it. The password cannot be had from it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal, get_args

import msgspec

from logboom.access.saslprep import saslprep
from logboom.errors import InvalidPassword

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)
ITERATIONS: Final = 20_000
"""Five to ten milliseconds of whoever guesses a password, and of whoever signs in with one."""
ITERATIONS_LEAST: Final = 4096
ITERATIONS_MOST: Final = 1_000_000
"""No node makes a client work longer than this."""
SALT_BYTES: Final = 16
PASSWORD_BYTES_LEAST: Final = 8
PASSWORD_BYTES_MOST: Final = 1024
_HASHES: Final[dict[Mechanism, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Credential(msgspec.Struct, frozen=True, array_like=True):
    """Of one user and mechanism. Fields may be added with defaults; never moved."""

    mechanism: Mechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"<Credential {self.mechanism} {self.iterations}>"

    @classmethod
    def derive(
        cls, password: str, salt: bytes, mechanism: Mechanism = "SCRAM-SHA-256", iterations: int = ITERATIONS
    ) -> Credential:
        """Takes a while: not on an event loop. Raises InvalidPassword."""
        keys = Keys.derive(mechanism, prepare(password), salt, iterations)
        return cls(mechanism, salt, iterations, digest(mechanism, keys.client), keys.server)

    def is_of(self, password: str) -> bool:
        """Whether this is the password. Takes a while: not on an event loop."""
        try:
            keys = Keys.derive(self.mechanism, prepare(password), self.salt, self.iterations)
        except InvalidPassword:
            return False
        return hmac.compare_digest(digest(self.mechanism, keys.client), self.stored_key)


class Keys(msgspec.Struct, frozen=True):
    """What is made of a password, its salt and its iterations."""

    client: bytes
    server: bytes

    def __repr__(self) -> str:
        return "<Keys>"

    @classmethod
    def derive(cls, mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> Keys:
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password, salt, iterations)
        return cls(mac(mechanism, salted, b"Client Key"), mac(mechanism, salted, b"Server Key"))


def prepare(password: str) -> bytes:
    """The bytes of a password. Raises InvalidPassword."""
    try:
        prepared = saslprep(password).encode()
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidPassword(f"the password cannot be used: {error}") from None
    if not 0 < len(prepared) <= PASSWORD_BYTES_MOST:
        raise InvalidPassword(f"a password has 1 to {PASSWORD_BYTES_MOST} bytes")
    return prepared


def check_new_password(password: str) -> None:
    """Whether somebody may set this one. Raises InvalidPassword."""
    if len(prepare(password)) < PASSWORD_BYTES_LEAST:
        raise InvalidPassword(f"the password is shorter than {PASSWORD_BYTES_LEAST} bytes: choose a longer one")


def mac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _HASHES[mechanism])


def digest(mechanism: Mechanism, data: bytes) -> bytes:
    return hashlib.new(_HASHES[mechanism], data).digest()


def digest_size(mechanism: Mechanism) -> int:
    return hashlib.new(_HASHES[mechanism]).digest_size


def find_mechanism(name: str) -> Mechanism | None:
    return next((mechanism for mechanism in MECHANISMS if mechanism == name), None)
