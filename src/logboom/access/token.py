"""Tokens: secrets that machines show instead of a name and a password.

    lbt_<id>_<secret>

The id tells which one it is, in lists and in the audit trail; of the secret only a digest is kept. It has as many
random bits as the digest, so it needs neither salt nor iterations.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

PREFIX: Final = "lbt_"
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
_FORM: Final = re.compile(r"lbt_(?P<id>[0-9a-f]{12})_(?P<secret>[0-9a-f]{64})", re.ASCII)


class TokenSecret(NamedTuple):
    """A token as its owner has it, shown once."""

    id: str
    secret: str

    @classmethod
    def make(cls, chance: Callable[[int], bytes]) -> TokenSecret:
        return cls(chance(ID_BYTES).hex(), chance(SECRET_BYTES).hex())

    @classmethod
    def parse(cls, text: str) -> TokenSecret | None:
        form = _FORM.fullmatch(text)
        return None if form is None else cls(form["id"], form["secret"])

    def digest(self) -> bytes:
        return hashlib.sha256(self.secret.encode()).digest()

    def fits(self, digest: bytes) -> bool:
        return hmac.compare_digest(self.digest(), digest)

    def __str__(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"

    def __repr__(self) -> str:
        return f"<TokenSecret {self.id}>"


class Token(msgspec.Struct, frozen=True, array_like=True):
    """What a node keeps of one. Fields may be added with defaults; never moved."""

    user: str
    digest: bytes
    created: int
    expires: int = 0
    """Microseconds; 0 for never."""
    note: str = ""
    rights: tuple[str, ...] = ()
    """No more than these of its user's; none named: all of them."""
    topics: tuple[str, ...] = ()
    """No topics but these, as rules name them; none named: all of its user's."""

    def __repr__(self) -> str:
        return f"<Token of {self.user}>"
