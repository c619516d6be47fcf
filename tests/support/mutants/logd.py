"""Broken conversations in text: sound commands with something wrong, and a judge of what a front-end makes of them.

Every mutant follows from (seed, number) alone. `python -m support.mutants.logd SEED COUNT [START] [local]` runs a range
in this process, `local` against a broker with files.

`judge` holds the front-end to its promise: nothing is raised, what it takes a stream for does not depend on where that
was cut, every byte it sends is part of an answer, whoever is sent away is told why, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any, Final
from zlib import crc32

from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, Rejections, TopicRules
from logboom.broker.local import LocalBroker
from logboom.protocols.logd import errors
from logboom.protocols.logd.codec import Decoder, SharedMemory
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.requests import Messages, Mixed, Request
from logboom.protocols.logd.settings import LogdSettings
from support.brokers.memory import MemoryBroker, MemoryLog
from support.mutants.driver import drive, judging
from support.peers.wire import Line

REASONS: Final = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, bytes)}
LIMITS: Final = Limits(
    receive_bytes=1 << 20, in_flight_bytes=1 << 20, subscriptions_per_connection=3, batch_bytes=1 << 16
)
CALL_EVERY: Final = 50
"""After so many mutants a sound client is to be served."""


def batch(topic: bytes, *bodies: bytes) -> bytes:
    data = b"".join(b"MSG %d\r\n%b\r\n" % (len(body), body) for body in bodies)
    return b"BATCH %d %b %d %d\r\n%b" % (len(data), topic, crc32(data), len(bodies), data)


SOURCES: Final = [
    b"PING\r\n",
    b"MSG events 5\r\nhello\r\n",
    b"MSG events/0 3\nabc\n",
    b"MSG events 0\r\n\r\n" * 5,
    b"MSG events 1\r\na\r\nMSG events 2\r\nbc\r\nMSG other 1\r\nd\r\n",
    b"MSG events 300\r\n" + b"x\r\n" * 100 + b"\r\n",
    batch(b"events", b"a", b"", b"MSG 1\r\n"),
    batch(b"events/0", *[b"value"] * 20),
    b"READ events 0 10\r\n",
    b"READ events/0 1 0\r\n",
    b"TAIL events 3\r\n",
    b"HEAD events\r\n",
    b"STATS\r\n",
    b"CONFIG\r\n",
    b"TOPICS\r\n",
    b"CURSORS\r\n",
    b"REFUSE events\r\n",
    b"ACCEPT\r\n",
    b"ACCEPT events\r\n",
    b"REPLICATE events/0 1\r\n",
    b"SHUTDOWN\r\n",
    b"CLOSE\r\n",
]
PIECES: Final = (
    *(b" ", b"  ", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"/", b"-", b"+", b"0", b"9" * 20, b"65536", b"65537"),
    *(b"MSG ", b"BATCH ", b"MSG events 5\r\n", b"x" * 5000, b"18446744073709551616", b"\xc2\xb2"),
)


def mutant(seed: int, number: int) -> list[bytes]:
    """A conversation, in the pieces in which it arrives."""
    random = Random(f"{seed}/{number}")
    commands = random.choices(SOURCES, k=random.randint(1, 6))
    stream = b"".join(_broken(random, command) if random.random() < 0.4 else command for command in commands)
    if random.random() < 0.2:
        stream = _broken(random, stream)
    cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.choice((0, 0, 1, 3, 9))))
    return [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)]) if start < end]


def _broken(random: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(found) + 1)
        what = random.randrange(5)
        if what == 0 and at < len(found):
            found[at] ^= 1 << random.randrange(8)
        elif what == 1:
            found[at : at + 1] = random.randbytes(random.randint(1, 9))
        elif what == 2:
            del found[at : at + random.randint(1, 40)]
        elif what == 3:
            found[at:at] = found[: random.randint(1, 64)]
        else:
            found[at : at + random.randint(0, 2)] = random.choice(PIECES)
    return bytes(found)


def one_by_one(requests: Sequence[Request]) -> Iterator[Any]:
    """Requests, as if every MSG had been one."""
    for request in requests:
        if isinstance(request, Messages) and not request.is_batch:
            yield from ((request.log, value) for value in request.values)
        elif isinstance(request, Mixed):
            values = [iter(messages.values) for messages in request.messages]
            yield from ((request.messages[turn].log, next(values[turn])) for turn in request.turns)
            assert not any(map(list, values))
        else:
            yield request


def decode(pieces: Sequence[bytes]) -> tuple[list[Any], bool]:
    memory = SharedMemory(1 << 30)
    decoder = Decoder(LIMITS.batch_bytes, memory)
    requests = [request for piece in pieces for request in decoder.receive(piece)]
    assert memory.bytes == decoder.held_bytes
    decoder.close()
    assert memory.bytes == 0
    return list(one_by_one(requests)), decoder.is_broken


def read_answers(sent: bytes) -> list[bytes]:
    """The first words of the answers. Raises where something is none."""
    found, at = [], 0
    while at < len(sent):
        end = sent.index(b"\r\n", at)
        line, at = sent[at:end], end + 2
        word, *arguments = line.split(b" ")
        size = 0
        if word == b"ERR":
            assert line[4:] in REASONS, line
        elif word in (b"MOK", b"BATCH"):
            size = int(arguments[0])
        elif word == b"STORED":
            size = int(arguments[1])
        else:
            assert word in (b"OK", b"PONG", b"GONE"), line
        assert at + size <= len(sent), line
        if word == b"BATCH":
            assert crc32(sent[at : at + size]) == int(arguments[2])
        at += size
        found.append(word)
    return found


async def judge(front_end: LogdFrontEnd, pieces: Sequence[bytes]) -> str:
    requests, is_broken = decode(pieces)
    assert (requests, is_broken) == decode([b"".join(pieces)])
    line = Line(front_end)
    for piece in pieces:
        line.send(piece)
    for _ in range(40):
        await asyncio.sleep(0)
    if line.wire.closed:
        assert read_answers(bytes(line.wire.sent))[-1] in (b"ERR", b"OK")
        verdict = "sent away" if line.wire.sent.endswith(tuple(b"ERR %b\r\n" % r for r in REASONS)) else "left"
    else:
        verdict = "waits" if is_broken else "lived"
        read_answers(bytes(line.wire.sent))
    line.lose()
    return verdict


async def serve_a_sound_client(front_end: LogdFrontEnd) -> None:
    line = Line(front_end)
    line.send(b"ACCEPT\r\nACCEPT events\r\nMSG events 5\r\nhello\r\nPING\r\n")
    await line.expect(rb"OK 0 0\r\nOK 0 0\r\nOK \d+ 1\r\nPONG\r\n")
    line.lose()
    while front_end._tasks:
        await asyncio.sleep(0)
    assert front_end.receive_memory.bytes == 0
    assert front_end.connections == 0


@asynccontextmanager
async def front_end_of(kind: str) -> AsyncIterator[LogdFrontEnd]:
    if kind == "memory":
        memory = MemoryBroker()
        await memory.create_topic("events")
        yield LogdFrontEnd(memory, LIMITS, Rejections(), LogdSettings(), lambda: {"a": 1})
        return
    with tempfile.TemporaryDirectory() as path:
        rules = TopicRules(auto_create=False)
        local = await LocalBroker.open(path, BrokerConfig(topics=rules, limits=Limits(topics=50)))
        await local.create_topic("events")
        yield LogdFrontEnd(local, LIMITS, Rejections(), LogdSettings(), lambda: {"a": 1}, local)
        await local.close()


async def run(seed: int, count: int, start: int = 0, kind: str = "memory") -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(repr(context)))
    async with front_end_of(kind) as front_end:
        for number in range(start, start + count):
            if isinstance(front_end.broker, MemoryBroker):
                front_end.broker.appends.clear()
                front_end.broker.logs = {"events": MemoryLog()}
            with judging(seed, number, complaints):
                verdicts[await judge(front_end, mutant(seed, number))] += 1
                if number % CALL_EVERY == 0:
                    await serve_a_sound_client(front_end)
        await front_end.close(0.0)
    if kind == "memory":
        assert not verdicts["waits"], "somebody who broke the protocol was told nothing"
    return verdicts


def main(arguments: Sequence[str]) -> None:
    kind = "local" if "local" in arguments else "memory"
    numbers = [int(word) for word in arguments if word != "local"]
    drive(lambda seed, count, start: asyncio.run(run(seed, count, start, kind)), *numbers)


if __name__ == "__main__":
    main(sys.argv[1:])
