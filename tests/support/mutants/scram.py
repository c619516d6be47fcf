"""Sign-ins by SCRAM that know its grammar and break it: what is said, and a judge of who may be let in by it.

A stranger who does not know the password is let in by nothing whatever. One who does is let in where his proof is of
the very words that were said, and these are such as RFC 5802 has them: `is_proven` finds that out by itself, by way of
none of the code it judges. What was said before, on this connection or on another, is kept and said again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from logboom.access.credential import Mechanism
from logboom.access.saslprep import saslprep
from logboom.access.scram import ScramClient
from logboom.errors import RemoteProtocolError

HEADERS: Final = (
    *("y,,", "p=tls-unique,,", "p=tls-server-end-point,,", "p=tls-exporter,,", "p=,,", "n,a=alice,", "n,a=admin,"),
    *(",,", "n,", "N,,", "nn,,", "n,,,", "", "n=,,", "y,a=,", "n,,m=x,"),
)
NAMES: Final = (
    *("", "alic", "alicee", "Alice", "ALICE", "al=2Cice", "al=ice", "=", "=3D", "=2c", "alice=00", "alice\0"),
    *("_node", "_operator", "anonymous", "*", "role:admin", "group:ops", "root"),
    *(
        "\uff41\uff4c\uff49\uff43\uff45",
        "al\u00adice",
        "alice\u200b",
        "alice\u0301",
        "\u202ealice",
        "\u0430lice",
        "alice\u0378",
        "x" * 5000,
    ),
)
NONCES: Final = ("", ",", "\0", "é", " ", "\x7f", "a" * 512, "a" * 513, "r=r=r=", "==", "\t")
EXTENSIONS: Final = ("m=x", "x=y", "n=admin", "a=admin", "r=other", "i=1", "s=AAAA", "p=AAAA", "=", "", "z")
BINDINGS: Final = ("n,,", "y,,", "p=tls-unique,,", "n,a=admin,", "", "n,,n=admin", "N,,")
PROOFS: Final = ("", "=", "====", "AAAA", "A" * 5000, "!", "biws", "\0")
COUNTS: Final = (
    *("0", "1", "-1", "4095", "1000001", "999999999999", "9" * 4000),
    *("1e9", "\uff15\uff10\uff10\uff10", " 5000 ", "+5000", "", "i"),
)
KEPT: Final = 50


class Said(NamedTuple):
    """One conversation: what was said, and what came back."""

    first: bytes
    challenge: bytes
    final: bytes


class Echoes:
    """What was said before, to be said again."""

    def __init__(self) -> None:
        self._kept: deque[Said] = deque(maxlen=KEPT)

    def keep(self, said: Said) -> None:
        self._kept.append(said)

    def pick(self, random: Random) -> Said | None:
        return random.choice(self._kept) if self._kept else None


def say_first(random: Random, user: str, nonce: bytes, echoes: Echoes) -> bytes:
    """The first message, with at most one thing wrong."""
    name, said = user.replace("=", "=3D").replace(",", "=2C"), base64.b64encode(nonce).decode()
    header, parts = "n,,", [f"n={name}", f"r={said}"]
    match random.randrange(12):
        case 0:
            header = random.choice(HEADERS)
        case 1:
            parts[0] = f"n={random.choice(NAMES)}"
        case 2:
            parts[1] = f"r={random.choice(NONCES)}"
        case 3:
            parts.insert(random.randrange(3), random.choice(EXTENSIONS))
        case 4:
            parts.reverse()
        case 5:
            parts.insert(random.randrange(3), random.choice(parts))
        case 6:
            whole = f"{header}{','.join(parts)}".encode()
            return whole[: random.randrange(len(whole))]
        case 7 if (echo := echoes.pick(random)) is not None:
            return echo.first
        case 8:
            return f"{header}{','.join(parts)}".encode(random.choice(("utf-16", "utf-32", "utf-8-sig")))
    return f"{header}{','.join(parts)}".encode("utf-8", "surrogatepass")


def say_last(
    random: Random, mechanism: Mechanism, password: str, first: bytes, challenge: bytes, echoes: Echoes
) -> bytes:
    """The last message, with at most one thing wrong: before it was signed, or after."""
    header, bare = split_header(first.decode("utf-8", "replace"))
    fields = dict(part.partition("=")[::2] for part in challenge.decode().split(","))
    binding = header.encode()
    nonce = fields["r"]
    parts = [f"c={base64.b64encode(binding).decode()}", f"r={nonce}"]
    what = random.randrange(14)
    match what:
        case 0:
            parts[0] = f"c={base64.b64encode(random.choice(BINDINGS).encode()).decode()}"
        case 1:
            parts[1] = f"r={random.choice((nonce[:-1], nonce[1:], nonce + 'a', nonce.swapcase(), '', 'a' * 600))}"
        case 2:
            parts.insert(random.randrange(3), random.choice(EXTENSIONS))
        case 3:
            parts.reverse()
        case 4:
            parts.insert(random.randrange(3), random.choice(parts))
        case 5 if (echo := echoes.pick(random)) is not None:
            return echo.final
    unsigned = ",".join(parts)
    proof = base64.b64encode(prove(mechanism, password, bare, challenge.decode(), unsigned)).decode()
    last = f"{unsigned},p={proof}"
    match what:
        case 6:
            last = f"{unsigned},p={random.choice(PROOFS)}"
        case 7:
            at = random.randrange(len(proof))
            last = f"{unsigned},p={proof[:at]}{random.choice('Aa0+/=-_ ')}{proof[at + 1 :]}"
        case 8:
            last = random.choice(
                (f"p={proof},{unsigned}", f"{unsigned},p={proof},p={proof}", f"{unsigned},p={proof},x=y")
            )
        case 9:
            last = last[: random.randrange(len(last))]
        case 10:
            last = f"{unsigned},p={proof.rstrip('=')}" if proof.endswith("=") else f"{last}="
        case 11:
            last = random.choice((f" {last}", f"{last}\n", last.upper(), f"{last}\0", f"{unsigned},P={proof}"))
    return last.encode()


def split_header(first: str) -> tuple[str, str]:
    """What is said of bindings, and the rest."""
    flag, _, rest = first.partition(",")
    other, _, bare = rest.partition(",")
    return f"{flag},{other},", bare


def prove(mechanism: Mechanism, password: str, bare: str, challenge: str, unsigned: str) -> bytes:
    """The proof, as RFC 5802 writes it."""
    hash_name = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    fields = dict(part.partition("=")[::2] for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac(
        hash_name, saslprep(password).encode(), base64.b64decode(fields["s"]), int(fields["i"])
    )
    key = hmac.digest(salted, b"Client Key", hash_name)
    talk = f"{bare},{challenge},{unsigned}".encode("utf-8", "surrogatepass")
    signature = hmac.digest(hashlib.new(hash_name, key).digest(), talk, hash_name)
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def is_proven(mechanism: Mechanism, said: Said, user: str, password: str) -> bool:
    """Whether these words, and no others, prove that whoever said them is the user."""
    try:
        first, challenge, final = (text.decode() for text in said)
    except UnicodeDecodeError:
        return False
    opening = re.fullmatch(r"([ny],,)(n=([^,]+),r=([^,]+)(?:,[^,]*)*)", first, re.DOTALL)
    ending = re.fullmatch(r"(c=([^,]+),r=([^,]+)(?:,[^,]*)*),p=([^,]+)", final, re.DOTALL)
    if opening is None or ending is None:
        return False
    name = opening[3].replace("=2C", ",").replace("=3D", "=")
    nonce = challenge.partition(",")[0].removeprefix("r=")
    try:
        is_he = saslprep(name) == user
        binding, proof = (base64.b64decode(text, validate=True) for text in (ending[2], ending[4]))
    except ValueError:
        return False
    if not is_he or binding.decode("latin-1") != opening[1] or ending[3] != nonce or not nonce.startswith(opening[4]):
        return False
    return proof == prove(mechanism, password, opening[2], challenge, ending[1])


def judge_client(random: Random) -> str:
    """A node that makes no sense makes a client neither work for long nor believe it."""
    nonce = random.randbytes(18)
    client = ScramClient("SCRAM-SHA-256", "alice", "correct horse", nonce)
    own = base64.b64encode(nonce).decode()
    parts = [f"r={own}more", f"s={base64.b64encode(b'salt' * 4).decode()}", "i=4096"]
    changes: tuple[Callable[[], None], ...] = (
        lambda: parts.__setitem__(0, f"r={random.choice((own, '', own[:-1] + 'x', 'more' + own))}"),
        lambda: parts.__setitem__(1, f"s={random.choice(PROOFS)}"),
        lambda: parts.__setitem__(2, f"i={random.choice(COUNTS)}"),
        lambda: parts.insert(random.randrange(4), random.choice(EXTENSIONS)),
        parts.reverse,
        lambda: parts.__delitem__(random.randrange(3)),
    )
    random.choice(changes)()
    try:
        client.answer(",".join(parts).encode())
    except RemoteProtocolError:
        return "refused"
    try:
        client.verify(random.choice((b"", b"v=", b"e=other", b"v=" + base64.b64encode(b"0" * 32), b"\xff")))
    except RemoteProtocolError:
        return "answered"
    raise AssertionError("a node was believed that knows no password")
