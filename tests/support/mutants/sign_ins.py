"""Broken sign-ins: what strangers say to a node that wants to know who they are, with something wrong, and a judge.

A third of them speak the binary protocol (a hello, a challenge, its answer), a third logd (AUTH), and a third sound
binary frames with SCRAM that is not (`scram`). What is wrong follows from (seed, number); the node's own nonces, and so
answers to them, from where the range began. `python -m support.mutants.sign_ins SEED COUNT [START]` runs a range in
this process.

`judge` holds the front-ends to their promise: nothing is raised, whoever is sent away is told why, nobody becomes
anybody but who he has proven to be, nothing is done for strangers, little is kept of them, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple, cast

import msgspec

from logboom.access.credential import MECHANISMS, Credential, Mechanism
from logboom.access.rule import Rule
from logboom.access.scram import ScramClient
from logboom.broker.access.brake import SignInBrake
from logboom.broker.api import ReadRequest
from logboom.broker.caller import ITSELF
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, Rejections
from logboom.broker.local import LocalBroker
from logboom.broker.world import World
from logboom.errors import LogboomError
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, encode
from logboom.protocols.binary.front_end import BinaryFrontEnd
from logboom.protocols.binary.handler import Handler
from logboom.protocols.binary.messages import TOKEN, CreateTopic, Hello, Kind, Read, SignInStep, Stats
from logboom.protocols.logd.codec import LINE_BYTES_MAX, LOCKED_BYTES_MAX, Decoder, SharedMemory
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.requests import Auth, Request
from logboom.protocols.logd.settings import LogdSettings
from support.mutants import frames
from support.mutants.driver import drive, judging
from support.mutants.logd import read_answers
from support.mutants.scram import Echoes, Said, is_proven, judge_client, say_first, say_last
from support.peers.binary import IDENTITY
from support.peers.wire import Line

USER: Final = "alice"
PASSWORD: Final = "correct  horse ü"
LIMITS: Final = Limits(receive_bytes=1 << 20, in_flight_bytes=1 << 20)
KEPT_BYTES_MAX: Final = LOCKED_BYTES_MAX + LINE_BYTES_MAX
CALL_EVERY: Final = 50
"""After so many mutants somebody who knows his password is to be served."""
SCRAM_PIECES: Final = (
    b",",
    b"=",
    b"n,,",
    b"y,,",
    b"p=tls-unique,,",
    b"r=",
    b"n=",
    b"=2C",
    b"=3D",
    b"\0",
    b"\xff",
    b"i=1",
)
LINES: Final = (
    f"AUTH {USER} {PASSWORD}\r\n".encode(),
    b"AUTH alice wrong\r\n",
    b"AUTH lbt_0123456789ab_" + b"0" * 64 + b"\r\n",
    b"AUTH\r\n",
    b"PING\r\n",
    b"STATS\r\n",
    b"ACCESS\r\n",
    b"READ events 0 0\r\n",
    b"REPLICATE events/0 1\r\n",
    b"MSG events 5\r\nhello\r\n",
    b"BATCH 10 events 1 1\r\nMSG 3\r\nabc",
    b"CLOSE\r\n",
)


class NoBrake(SignInBrake):
    """Guesses are not slowed down: there are many to make."""

    def reserve(self, address: str, user: str) -> float:
        return 0.0


class SignedNode(NamedTuple):
    broker: LocalBroker
    binary: BinaryFrontEnd
    logd: LogdFrontEnd
    token: str
    echoes: Echoes


def broken(random: Random, data: bytes) -> bytes:
    found = bytearray(frames._broken(random, data))
    if random.random() < 0.3:
        at = random.randrange(len(found) + 1)
        found[at:at] = random.choice(SCRAM_PIECES)
    return bytes(found)


def cut(random: Random, stream: bytes) -> list[bytes]:
    cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.choice((0, 0, 1, 3))))
    return [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)]) if a < b]


def maybe(random: Random, share: float, data: bytes) -> bytes:
    return broken(random, data) if random.random() < share else data


# The binary protocol.


class Talk:
    """One connection, and everything that came over it."""

    def __init__(self, front_end: BinaryFrontEnd) -> None:
        self._front_end = front_end
        self.wire = frames.Wire()
        self.connection = front_end.factory()
        self.connection.connection_made(cast(asyncio.Transport, self.wire))
        self._kept = 0

    def send(self, data: bytes) -> None:
        while data and not self.wire.closed:
            room = memoryview(self.connection.get_buffer(-1))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]
            kept = self._front_end.receive_memory.own_bytes
            is_known = isinstance(self.connection._handler, Handler)  # type: ignore[attr-defined]
            assert is_known or kept <= FRAME_BYTES_FIRST, f"{kept} bytes are kept of a stranger"

    def challenge(self) -> bytes | None:
        with suppress(AssertionError, msgspec.DecodeError):
            for kind, _, head in self.wire.frames():
                if kind == Kind.CHALLENGE:
                    return bytes(head["data"])
        return None


def first_words(random: Random, node: SignedNode) -> tuple[bytes, ScramClient | None, bool]:
    """A hello, what goes on with it, and whether whoever says it knows a secret."""
    mechanism: Mechanism = random.choice(MECHANISMS)
    what, knows = random.random(), False
    if what < 0.15:
        knows = random.random() < 0.5
        token = node.token if knows else "lbt_0123456789ab_" + "0" * 64
        hello, scram = Hello(mechanism=TOKEN, sign_in=maybe(random, 0.5, token.encode())), None
    elif what < 0.25:
        hello, scram = Hello(mechanism=random.choice(("", "PLAIN", "x" * 300)), sign_in=random.randbytes(20)), None
    else:
        knows = random.random() < 0.8
        password = PASSWORD if knows else "wrong"
        scram = ScramClient(mechanism, USER if random.random() < 0.9 else "nobody", password, random.randbytes(18))
        hello = Hello(mechanism=mechanism, sign_in=maybe(random, 0.3, scram.begin()))
    return maybe(random, 0.2, b"".join(map(bytes, encode(Kind.HELLO, 1, hello)))), scram, knows


def second_words(random: Random, scram: ScramClient | None, challenge: bytes | None) -> bytes:
    answer = random.randbytes(30)
    if scram is not None and challenge is not None:
        with suppress(LogboomError):
            answer = scram.answer(challenge)
    step = SignInStep(maybe(random, 0.4, answer))
    said = b"".join(map(bytes, encode(Kind.SIGN_IN, 1 if random.random() < 0.95 else 2, step)))
    said = maybe(random, 0.2, said)
    if random.random() < 0.3:
        more = random.choice((Stats(), CreateTopic("stolen", 1), Read(ReadRequest("events"))))
        kind = Kind.READ if isinstance(more, Read) else Kind.CALL
        said += b"".join(map(bytes, encode(kind, 3, more)))
    return said if random.random() < 0.9 else said + said


async def judge_binary(node: SignedNode, random: Random) -> str:
    talk = Talk(node.binary)
    hello, scram, knows = first_words(random, node)
    for piece in cut(random, hello):
        talk.send(piece)
    await settled(node)
    for piece in cut(random, second_words(random, scram, talk.challenge())):
        talk.send(piece)
    await settled(node)
    verdict = said_in_binary(talk.wire)
    assert knows or verdict != "welcomed"
    talk.connection.connection_lost(None)
    await settled(node)
    assert node.binary.receive_memory.own_bytes == 0
    return verdict


async def judge_scram(node: SignedNode, random: Random) -> str:
    mechanism: Mechanism = random.choice(MECHANISMS)
    password = PASSWORD if random.random() < 0.7 else "wrong password"
    first = say_first(random, USER, random.randbytes(18), node.echoes)
    talk = Talk(node.binary)
    talk.send(b"".join(map(bytes, encode(Kind.HELLO, 1, Hello(mechanism=mechanism, sign_in=first)))))
    challenge = talk.challenge()
    if challenge is not None:
        final = say_last(random, mechanism, password, first, challenge, node.echoes)
        said = Said(first, challenge, final)
        node.echoes.keep(said)
        talk.send(b"".join(map(bytes, encode(Kind.SIGN_IN, 1, SignInStep(final)))))
    await settled(node)
    verdict = said_in_binary(talk.wire)
    if verdict == "welcomed":
        assert is_proven(mechanism, said, USER, PASSWORD), said
    else:
        assert verdict == "sign-in-failed", verdict
    talk.connection.connection_lost(None)
    await settled(node)
    assert node.binary.receive_memory.own_bytes == 0
    return verdict


def said_in_binary(wire: frames.Wire) -> str:
    if wire.sent.startswith((b"HTTP/1.1 400", b"\x15\x03\x01")):
        return "stranger"
    answers = wire.frames()
    welcomed = [head for kind, _, head in answers if kind == Kind.WELCOME]
    assert len(welcomed) <= 1
    if welcomed:
        assert welcomed[0]["principal"] == USER, welcomed
        return "welcomed"
    assert {kind for kind, _, _ in answers} <= {Kind.CHALLENGE, Kind.ERROR}, answers
    codes = [head["code"] for kind, _, head in answers if kind == Kind.ERROR]
    assert len(codes) <= 1
    assert bool(codes) == wire.closed, (codes, wire.closed)
    return codes[0] if codes else "waits"


# logd.


def lines(random: Random, node: SignedNode) -> bytes:
    chosen = random.choices((*LINES, f"AUTH {node.token}\r\n".encode()), k=random.randint(1, 6))
    stream = b"".join(maybe(random, 0.35, line) for line in chosen)
    return maybe(random, 0.1, stream)


def decoded(pieces: Sequence[bytes]) -> list[Request]:
    """What a stranger says, where every AUTH is answered at once, and none of them is right."""
    memory = SharedMemory(1 << 30)
    decoder = Decoder(LIMITS.batch_bytes, memory)
    decoder.is_locked = True
    found: list[Request] = []
    for piece in pieces:
        some = decoder.receive(piece)
        found += some
        while some and isinstance(some[-1], Auth):
            some = decoder.go_on(is_locked=True)
            found += some
        assert memory.bytes == decoder.held_bytes <= KEPT_BYTES_MAX
    decoder.close()
    assert memory.bytes == 0
    return found


async def judge_logd(node: SignedNode, random: Random) -> str:
    stream = lines(random, node)
    pieces = cut(random, stream)
    assert decoded(pieces) == decoded([stream]) == decoded([stream[at : at + 1] for at in range(len(stream))])
    line = Line(node.logd)
    for piece in pieces:
        line.send(piece)
        kept = node.logd.receive_memory.bytes
        assert kept <= KEPT_BYTES_MAX, f"{kept} bytes are kept of a stranger"
        if random.random() < 0.5:
            await asyncio.sleep(0)
    await settled(node)
    sent = bytes(line.wire.sent)
    read_answers(sent)
    assert b"correct" not in sent
    assert b"wrong" not in sent
    who = line.connection.caller.principal  # type: ignore[attr-defined]
    knows = PASSWORD.encode() in stream or node.token.encode() in stream
    assert who == "anonymous" or (who == USER and knows), (who, stream)
    verdict = "signed in" if who == USER else "sent away" if line.wire.closed else "lived"
    line.lose()
    await settled(node)
    assert node.logd.receive_memory.bytes == 0
    return verdict


async def settled(node: SignedNode) -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    while tasks := {*node.binary._tasks, *node.logd._tasks}:
        await asyncio.wait(tasks)


async def serve_a_sound_client(node: SignedNode) -> None:
    line = Line(node.logd)
    line.send(f"AUTH {USER} {PASSWORD}\r\nPING\r\nMSG events 1\r\na\r\n".encode())
    await line.expect(rb"OK 0 0\r\nPONG\r\nERR not allowed\r\n")
    line.lose()
    talk = Talk(node.binary)
    scram = ScramClient("SCRAM-SHA-256", USER, PASSWORD, b"n" * 18)
    talk.send(b"".join(map(bytes, encode(Kind.HELLO, 1, Hello(mechanism="SCRAM-SHA-256", sign_in=scram.begin())))))
    challenge = talk.challenge()
    assert challenge is not None
    talk.send(b"".join(map(bytes, encode(Kind.SIGN_IN, 1, SignInStep(scram.answer(challenge))))))
    await settled(node)
    assert said_in_binary(talk.wire) == "welcomed"
    talk.connection.connection_lost(None)
    topics = await node.broker.list_topics(caller=ITSELF)
    assert [(topic.name, topic.partitions[0].committed) for topic in topics] == [("events", 0)]
    assert list(node.broker._access.users) == [USER]


async def open_node(path: str, random: Random) -> SignedNode:
    broker = await LocalBroker.open(path, BrokerConfig(anonymous="none"), world=World(chance=random))
    broker.sign_in._brake = NoBrake(broker.world.monotonic_s)
    credentials = [Credential.derive(PASSWORD, b"salt" * 4, mechanism, 4096) for mechanism in MECHANISMS]
    await broker.add_user(USER, credentials, caller=ITSELF)
    await broker.add_rule(Rule("allow", USER, ("describe",), "topic"), caller=ITSELF)
    await broker.create_topic("events", caller=ITSELF)
    token = await broker.create_token(USER, caller=ITSELF)
    own = broker, LIMITS, Rejections()
    binary = BinaryFrontEnd(*own, None, "fuzzed", IDENTITY, sign_in=broker.sign_in)
    logd = LogdFrontEnd(*own, LogdSettings(), dict, broker, sign_in=broker.sign_in)
    return SignedNode(broker, binary, logd, token.token, Echoes())


async def run(seed: int, count: int, start: int = 0) -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(repr(context)))
    with tempfile.TemporaryDirectory() as path:
        node = await open_node(path, Random(seed))
        for number in range(start, start + count):
            random = Random(f"{seed}/{number}")
            with judging(seed, number, complaints):
                if number % 3 == 0:
                    verdicts[f"binary: {await judge_binary(node, random)}"] += 1
                elif number % 3 == 1:
                    verdicts[f"logd: {await judge_logd(node, random)}"] += 1
                else:
                    verdicts[f"scram: {await judge_scram(node, random)}"] += 1
                    verdicts[f"scram, a client: {judge_client(random)}"] += 1
                if number % CALL_EVERY == 0:
                    await serve_a_sound_client(node)
        await node.binary.close(0.0)
        await node.logd.close(0.0)
        await node.broker.close()
    return verdicts


def main(arguments: Sequence[str]) -> None:
    drive(lambda seed, count, start: asyncio.run(run(seed, count, start)), *map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
