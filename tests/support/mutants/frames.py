"""Broken conversations: sound frames with something wrong, and a judge of what a front-end makes of them.

Every mutant follows from (seed, number) alone. Most of them keep the front of every frame true, so that they get past
the cutting of the stream and reach heads and batches. `python -m support.mutants.frames SEED COUNT [START] [local]`
runs a range in this process, `local` against a broker with files.

`judge` holds the front-end to its promise: nothing is raised, every byte it sends is part of a frame, whoever is sent
away is told why, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any, Final, cast

import msgspec

from logboom.batch import build
from logboom.broker.api import Broker, Filter, PublishKey, ReadRequest, Settings, Start
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, Rejections, TopicRules
from logboom.broker.local import LocalBroker
from logboom.protocols.binary.codec import FRONT, FrameReader, encode
from logboom.protocols.binary.front_end import BinaryFrontEnd
from logboom.protocols.binary.messages import (
    Append,
    AppendPart,
    CommitCursor,
    CreateTopic,
    Credit,
    DescribeTopic,
    Failure,
    Hello,
    Kind,
    ListTopics,
    PublishBatches,
    Read,
    SpokenFor,
    Stats,
    Trim,
)
from support.brokers.memory import MemoryBroker, MemoryLog
from support.mutants.driver import drive, judging
from support.peers.binary import IDENTITY

Source = tuple[int, bytes, bytes]
"""Kind, head, payload."""

ONE: Final = bytes(build([b"a"]).data)
MANY: Final = bytes(build([b"value"] * 20, keys=[b"key"] * 20, tags=[["red"]] * 20).data)
HELLO: Final = (int(Kind.HELLO), msgspec.msgpack.encode(Hello(client="mutant", topics=["events"])), b"")
PICKY: Final = (
    int(Kind.HELLO),
    msgspec.msgpack.encode(Hello(version_min=0, version_max=2, cluster_id=IDENTITY.cluster_id)),
    b"",
)
INTERESTING: Final = (0, 1, 7, 8, 15, 16, 17, 0x7F, 0x80, 0xFF, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
LIMITS: Final = Limits(receive_bytes=1 << 20, in_flight_bytes=1 << 20, subscriptions_per_connection=3)
CALL_EVERY: Final = 50
"""After so many mutants a sound client is to be served."""


def sources() -> list[Source]:
    request = ReadRequest("events", Start(seqno=0), 0, None, 1 << 16, 10, 0, Filter(("red",), (), "a/+", b"k"), "skip")
    heads: list[tuple[int, Any, bytes]] = [
        (Kind.PING, None, b""),
        (Kind.SPEAK_FOR, SpokenFor("alice", ["ops"], "http", "192.0.2.1:9", "password", 0, (1, 2)), b""),
        (Kind.SPEAK_FOR, SpokenFor("", through=SpokenFor("anonymous")), b""),
        (Kind.APPEND, Append([AppendPart("events", len(ONE))], "leader"), ONE),
        (Kind.APPEND, Append([AppendPart("events", len(ONE) + len(MANY), 0, None, None)], "durable"), ONE + MANY),
        (Kind.APPEND, Append([AppendPart("events", len(ONE)), AppendPart("nothing", len(MANY))]), ONE + MANY),
        (Kind.APPEND, Append([AppendPart("events", len(MANY), 0, 7)], "none"), MANY),
        (Kind.PUBLISH, PublishBatches(PublishKey("k", 7), [AppendPart("events", len(ONE), 0)]), ONE),
        (Kind.PUBLISH, PublishBatches(PublishKey("u", 1, False), [AppendPart("events", len(ONE + MANY))]), ONE + MANY),
        (Kind.READ, Read(ReadRequest("events", wait_ms=20)), b""),
        (Kind.READ, Read(request), b""),
        (Kind.SUBSCRIBE, Read(ReadRequest("events", Start(at="latest")), 1 << 20), b""),
        (Kind.SUBSCRIBE, Read(request), b""),
        (Kind.CREDIT, Credit(1 << 20), b""),
        (Kind.UNSUBSCRIBE, None, b""),
        (Kind.CALL, CreateTopic("events", 1, Settings()), b""),
        (Kind.CALL, DescribeTopic("events"), b""),
        (Kind.CALL, ListTopics("e"), b""),
        (Kind.CALL, Trim("events", 0, 1), b""),
        (Kind.CALL, CommitCursor("cursor", "events", 0, "1nothing"), b""),
        (Kind.CALL, Stats(), b""),
        (Kind.ERROR, Failure("code", "message"), b""),
    ]
    packed = [(int(kind), b"" if head is None else msgspec.msgpack.encode(head), data) for kind, head, data in heads]
    deep = b"\x82\xa4type\xa5stats\xa1x" + b"\x91" * 20_000 + b"\xc0"
    return [HELLO, *packed, (int(Kind.CALL), deep, b"")]


SOURCES: Final = sources()


def mutant(seed: int, number: int) -> list[bytes]:
    """A conversation, in the pieces in which it arrives."""
    random = Random(f"{seed}/{number}")
    frames = [random.choice((HELLO, PICKY))] if random.random() < 0.95 else []
    frames += random.choices(SOURCES[1:], k=random.randint(1, 6))
    stream = bytearray()
    for position, (kind, head, payload) in enumerate(frames):
        if random.random() < (0.4 if position else 0.1):
            head = _broken(random, head)
        if random.random() < 0.3:
            payload = _broken(random, payload)
            payload += bytes(-len(payload) & 7)
        if random.random() < 0.03:
            kind = random.randrange(256)
        correlation = position + 1 if random.random() < 0.8 else random.choice((1, 2, 3, 4, 0xFFFF_FFFF, 0))
        padding = -len(head) & 7
        stream += FRONT.pack(16 + len(head) + padding + len(payload), kind, 0, 0, correlation, len(head))
        stream += head + bytes(padding) + payload
    if random.random() < 0.3:
        stream = bytearray(_broken(random, bytes(stream)))
    return _pieces(random, bytes(stream))


def _broken(random: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(found) + 1)
        what = random.randrange(6)
        if what == 0 and at < len(found):
            found[at] ^= 1 << random.randrange(8)
        elif what == 1:
            found[at : at + 1] = random.randbytes(random.randint(1, 9))
        elif what == 2:
            value = random.choice(INTERESTING)
            found[at : at + 4] = value.to_bytes(4, random.choice(("little", "big")))
        elif what == 3:
            del found[at : at + random.randint(1, 40)]
        elif what == 4:
            found[at:at] = found[: random.randint(1, 64)]
        else:
            found[at:at] = random.choice((b"\xc0", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xf0", b"\xd9"))
    return bytes(found)


def _pieces(random: Random, stream: bytes) -> list[bytes]:
    cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.choice((0, 0, 1, 3))))
    bounds = [0, *cuts, len(stream)]
    return [stream[a:b] for a, b in pairwise(bounds) if a < b]


class Wire:
    """A transport that keeps what it is given, for a connection that is nowhere."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False

    def get_extra_info(self, name: str) -> None:
        """Nobody is at the other end."""

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    close = abort = write_eof

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def frames(self) -> list[tuple[int, int, Any]]:
        reader = FrameReader(1 << 30)
        found, rest = [], memoryview(self.sent)
        while len(rest):
            room = reader.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            for frame in reader.received(count):
                head = msgspec.msgpack.decode(frame.head) if len(frame.head) else None
                found.append((frame.kind, frame.correlation, head))
        assert reader.held_bytes == 0, "the last frame is not whole"
        return found


async def talk(front_end: BinaryFrontEnd, pieces: Sequence[bytes], turns: int) -> Wire:
    wire = Wire()
    connection = front_end.factory()
    connection.connection_made(cast(asyncio.Transport, wire))
    for piece in pieces:
        while piece and not wire.closed:
            room = memoryview(connection.get_buffer(-1))
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            connection.buffer_updated(count)
            piece = piece[count:]
    for _ in range(turns):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return wire


async def judge(front_end: BinaryFrontEnd, pieces: Sequence[bytes]) -> str:
    wire = await talk(front_end, pieces, turns=3)
    if wire.sent.startswith((b"HTTP/1.1 400", b"\x15\x03\x01")):
        return "stranger"
    answers = wire.frames()
    about_all = [head["code"] for kind, correlation, head in answers if kind == Kind.ERROR and not correlation]
    assert len(about_all) <= 1
    if about_all:
        assert wire.closed, "an error about the connection does not end it"
        return str(about_all[0])
    return "refused hello" if wire.closed else "lived"


async def serve_a_sound_client(front_end: BinaryFrontEnd) -> None:
    appended = Append([AppendPart("events", len(ONE))], "none")
    frames = [encode(Kind.HELLO, 1, Hello()), encode(Kind.PING, 2), encode(Kind.APPEND, 3, appended, [ONE])]
    pieces = [b"".join(frame) for frame in frames]
    kinds = {kind for kind, _, _ in (await talk(front_end, pieces, turns=20)).frames()}
    assert kinds == {Kind.WELCOME, Kind.PONG}
    while front_end._tasks:
        await asyncio.sleep(0)
    assert front_end.receive_memory.own_bytes == 0
    assert front_end.connections == 0


@asynccontextmanager
async def broker_of(kind: str) -> AsyncIterator[Broker]:
    if kind == "memory":
        memory = MemoryBroker()
        await memory.create_topic("events")
        yield memory
        return
    with tempfile.TemporaryDirectory() as path:
        local = await LocalBroker.open(
            path, BrokerConfig(topics=TopicRules(auto_create=False), limits=Limits(topics=50))
        )
        await local.create_topic("events")
        yield local
        await local.close()


async def run(seed: int, count: int, start: int = 0, kind: str = "memory") -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(repr(context)))
    async with broker_of(kind) as broker:
        front_end = BinaryFrontEnd(broker, LIMITS, Rejections(), None, "fuzzed", IDENTITY)
        for number in range(start, start + count):
            if isinstance(broker, MemoryBroker):
                broker.appends.clear()
                broker.logs = {"events": MemoryLog()}
            with judging(seed, number, complaints):
                verdicts[await judge(front_end, mutant(seed, number))] += 1
                if number % CALL_EVERY == 0:
                    await serve_a_sound_client(front_end)
        await front_end.close(0.0)
    return verdicts


def main(arguments: Sequence[str]) -> None:
    kind = "local" if "local" in arguments else "memory"
    numbers = [int(word) for word in arguments if word != "local"]
    drive(lambda seed, count, start: asyncio.run(run(seed, count, start, kind)), *numbers)


if __name__ == "__main__":
    main(sys.argv[1:])
