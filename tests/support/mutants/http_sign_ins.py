"""Broken sign-ins over HTTP: Basic, Bearer (a token of the node, a JWT), and the cookies of browsers; and a judge.

Each is a request for GET /access/whoami, whose answer says who the node takes its sender for. What is wrong follows
from (seed, number). `python -m support.mutants.http_sign_ins SEED COUNT [START]` runs a range in this process.

`judge` demands: whoever is somebody has shown what that one alone can show, as `shows` finds out by itself; others are
nobody, or are sent away; nothing is a 500, nothing is raised, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from logboom.access.bearer import BearerSettings
from logboom.access.credential import Credential
from logboom.access.saslprep import saslprep
from logboom.broker.caller import ITSELF
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.world import World
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.settings import HttpSettings
from logboom.server.security.key_sets import BearerChecker
from support.mutants.driver import drive, judging
from support.mutants.http import talk
from support.mutants.sign_ins import NoBrake, broken

USER: Final = "alice"
PASSWORD: Final = "correct horse \u00fc"
PROVEN: Final = "carol"
"""In whose name JWTs are signed."""
CALL_EVERY: Final = 50
STATUSES: Final = (200, 400, 401, 403, 431)
OWN: Final = b"sec-fetch-site: same-origin\r\n"
FOREIGN: Final = b"sec-fetch-site: cross-site\r\n"
KEY: Final = ec.generate_private_key(ec.SECP256R1())
SCHEMES: Final = (b"Basic", b"basic", b"BASIC", b"Bearer", b"bearer", b"Negotiate", b"Digest", b"", b"Basic:", b"\xff")
ISSUER: Final = "https://id.example"


class Guarded(NamedTuple):
    broker: LocalBroker
    front_end: HttpFrontEnd
    token: str
    jwt: str
    session: str
    """What its cookie holds."""
    cookie: str
    """Its name."""


def basic(user: str, password: str) -> bytes:
    return base64.b64encode(f"{user}:{password}".encode())


def show_basic(random: Random, node: Guarded) -> list[bytes]:
    user = USER if random.random() < 0.7 else random.choice(("", "bob", "a" * 300, "alice\0", "_node", "\uff41lice"))
    password = PASSWORD if random.random() < 0.7 else random.choice(("", "wrong", "a" * 2000, "\0", PASSWORD + " "))
    secret = basic(user, password)
    match random.randrange(8):
        case 0:
            secret = broken(random, secret)
        case 1:
            secret = base64.urlsafe_b64encode(f"{user}:{password}".encode("utf-16"))
        case 2:
            secret = secret.rstrip(b"=") + random.choice((b"", b"=", b"==", b"=\t="))
        case 3:
            secret = base64.b64encode(f"{user}{random.choice(('', ' ', '::', ',', chr(0)))}{password}".encode())
        case 4:
            secret = base64.b64encode(broken(random, f"{user}:{password}".encode()))
    scheme = b"Basic" if random.random() < 0.8 else random.choice(SCHEMES)
    return [scheme + random.choice((b" ", b" ", b" ", b"  ", b"\t", b"")) + secret]


def show_token(random: Random, node: Guarded) -> list[bytes]:
    text = node.token.encode()
    match random.randrange(6):
        case 0:
            text = broken(random, text)
        case 1:
            text = text[: random.randrange(len(text))]
        case 2:
            text = random.choice(
                (text.upper(), text + text, b"lbt_" + b"0" * 77, text.replace(b"_", b"-"), b'"%s"' % text)
            )
        case 3:
            at = random.randrange(len(text))
            text = text[:at] + random.choice((b"0", b"f", b"\xd9\xa0")) + text[at + 1 :]
    return [random.choice((b"Bearer ", b"bearer ", b"Basic ", b"Bearer")) + text]


def show_jwt(random: Random, node: Guarded) -> list[bytes]:
    now = int(time.time())
    claims: dict[str, Any] = {"iss": ISSUER, "aud": "logboom", "sub": USER, "exp": now + 600}
    made: tuple[Callable[[], str], ...] = (
        lambda: jwt.encode(claims, KEY, "ES256", headers={"kid": "other"}),
        lambda: jwt.encode(claims, "", "none", headers={"kid": "ec"}),
        lambda: forged({"alg": "HS256", "kid": "ec", "typ": "JWT"}, claims),
        lambda: forged({"alg": "none", "kid": "ec"}, claims),
        lambda: forged({"alg": "ES256", "kid": "ec", "jwk": {"kty": "oct", "k": "AAAA"}}, claims),
        lambda: forged({"alg": "ES256", "kid": ["ec"]}, claims),
        lambda: forged({"alg": "ES256", "kid": "ec", "crit": ["exp"]}, claims | {"sub": ["alice"]}),
        lambda: swapped(node.jwt, claims),
        lambda: broken(random, node.jwt.encode()).decode("latin-1"),
        lambda: node.jwt[: random.randrange(len(node.jwt))],
        lambda: node.jwt + random.choice((".", "=", ".AAAA", " ", "\x00")),
        lambda: "." * random.randrange(5000),
        lambda: forged({"alg": "ES256", "kid": "ec"}, {"x": "[" * 3000}),
        lambda: node.jwt,
    )
    return [b"Bearer " + random.choice(made)().encode("latin-1", "replace")]


def forged(header: Any, claims: Any) -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), b"signature" * 7]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def swapped(good: str, claims: Any) -> str:
    """A signature that is good, of other claims."""
    header, _, signature = good.split(".")
    return f"{header}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.{signature}"


def show_cookie(random: Random, node: Guarded) -> list[bytes]:
    own = f"{node.cookie}={node.session}".encode()
    other = f"{node.cookie}={'0' * 64}".encode()
    choices = (own, other, own + b"; " + other, own + b"; " + own, b"a=b; " + own, own.upper(), own[:-1], own + b"0")
    cookie = random.choice(
        (*choices, f"__Host-{node.cookie}={node.session}".encode(), b"=" + own, own.replace(b"=", b"=="))
    )
    return [broken(random, cookie) if random.random() < 0.3 else cookie]


def request(random: Random, node: Guarded) -> tuple[bytes, list[bytes], list[bytes], bool]:
    """As it is sent; the Authorization headers and cookies in it; whether a page of the node's own seems to send it."""
    shown = random.choice((show_basic, show_token, show_jwt))(random, node) if random.random() < 0.75 else []
    cookies = show_cookie(random, node) if not shown or random.random() < 0.2 else []
    if shown and random.random() < 0.1:
        shown = shown * 2
    is_own = random.random() < 0.7
    lines = [b"authorization: " + each for each in shown] + [b"cookie: " + each for each in cookies]
    random.shuffle(lines)
    head = b"".join(line + b"\r\n" for line in lines)
    return (
        b"GET /access/whoami HTTP/1.1\r\nhost: localhost\r\n%b%b\r\n" % (OWN if is_own else FOREIGN, head),
        shown,
        cookies,
        is_own,
    )


def shows(node: Guarded, shown: list[bytes], cookies: list[bytes], is_own: bool) -> set[str]:
    """As whom such a request may be taken, besides nobody."""
    if shown:
        return {who for who in (_shown_by(node, each) for each in shown) if who} if len(shown) == 1 else set()
    own = f"{node.cookie}={node.session}"
    pairs = {pair.strip(" \t") for cookie in cookies for pair in cookie.decode("latin-1").split(";")}
    return {USER} if own in pairs and is_own else set()


def _shown_by(node: Guarded, authorization: bytes) -> str:
    scheme, _, secret = authorization.strip(b" \t").partition(b" ")
    secret = secret.strip()
    if scheme.lower() == b"bearer":
        found = {node.token.encode(): USER, node.jwt.encode(): PROVEN}
        return found.get(secret, "")
    try:
        user, _, password = base64.b64decode(secret, validate=True).decode().partition(":")
        is_he = saslprep(user) == USER and saslprep(password) == saslprep(PASSWORD)
    except ValueError:
        return ""
    return USER if scheme.lower() == b"basic" and is_he else ""


async def judge(node: Guarded, random: Random) -> str:
    sent, shown, cookies, is_own = request(random, node)
    is_more = b"\r" in b"".join((*shown, *cookies)) or b"\n" in b"".join((*shown, *cookies))
    wire = await talk(node.front_end, [sent], patience_s=20)
    assert node.front_end.held_bytes == 0, "something is held for nobody"
    assert node.front_end.connections == 0
    answer = bytes(wire.sent)
    if is_more:
        assert b"HTTP/1.1 500" not in answer
        return "more than one line"
    status = int(answer.split()[1])
    assert status in STATUSES, answer
    if status != 200:
        return str(status)
    who = json.loads(answer.partition(b"\r\n\r\n")[2])["caller"]["principal"]
    assert who == "anonymous" or who in shows(node, shown, cookies, is_own), (who, sent)
    return f"200 {who}"


async def serve_a_sound_client(node: Guarded) -> None:
    for shown, who in ((b"Basic " + basic(USER, PASSWORD), USER), (b"Bearer " + node.jwt.encode(), PROVEN)):
        sent = b"GET /access/whoami HTTP/1.1\r\nhost: localhost\r\nauthorization: %b\r\n\r\n" % shown
        answer = bytes((await talk(node.front_end, [sent], patience_s=20)).sent)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["caller"]["principal"] == who, answer
    assert list(node.broker._access.users) == [USER]


async def open_node(path: str, random: Random) -> Guarded:
    broker = await LocalBroker.open(path, BrokerConfig(anonymous="none"), world=World(chance=random))
    broker.sign_in._brake = NoBrake(broker.world.monotonic_s)
    await broker.add_user(USER, [Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)], caller=ITSELF)
    token = await broker.create_token(USER, caller=ITSELF)
    keys = Path(path) / "keys.json"
    described = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    keys.write_text(json.dumps({"keys": [{**described, "kid": "ec", "use": "sig"}]}))
    broker.sign_in.bearers = BearerChecker(BearerSettings(ISSUER, "logboom", str(keys)), time.monotonic)
    front_end = HttpFrontEnd(
        *(broker, Limits(), broker.rejections, HttpSettings(head_bytes=16_384), dict), sign_in=broker.sign_in
    )
    sessions = front_end.sessions
    assert sessions is not None
    claims = {"iss": ISSUER, "aud": "logboom", "sub": PROVEN, "exp": int(time.time()) + 86_400}
    signed = jwt.encode(claims, KEY, "ES256", headers={"kid": "ec"})
    known = await broker.sign_in.with_password(ITSELF, USER, PASSWORD)
    return Guarded(broker, front_end, token.token, signed, sessions.begin(known), sessions._cookie)


async def run(seed: int, count: int, start: int = 0) -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(repr(context)))
    with tempfile.TemporaryDirectory() as path:
        node = await open_node(path, Random(seed))
        for number in range(start, start + count):
            with judging(seed, number, complaints):
                verdicts[await judge(node, Random(f"{seed}/{number}"))] += 1
                if number % CALL_EVERY == 0:
                    await serve_a_sound_client(node)
        await node.front_end.close(0.0)
        await node.broker.close()
    return verdicts


def main(arguments: Sequence[str]) -> None:
    drive(lambda seed, count, start: asyncio.run(run(seed, count, start)), *map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
