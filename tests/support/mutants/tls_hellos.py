"""What strangers say to a port that speaks TLS: hellos with something wrong, other protocols, anything; and a judge.

What is said follows from (seed, number), but for the random bytes of a client's own hello. It goes over real sockets to
the gate of a node, with the binary protocol behind it. `python -m support.mutants.tls_hellos SEED COUNT [START]` runs a
range in this process.

`judge` demands: the connection ends as soon as nothing more can come; nothing is raised or left behind; and nobody gets
through to the protocol but who has made a handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import uvloop

from logboom.broker.limits import Limits, Rejections
from logboom.broker.local import LocalBroker
from logboom.protocols.binary.codec import encode
from logboom.protocols.binary.front_end import BinaryFrontEnd
from logboom.protocols.binary.messages import Hello, Kind
from logboom.server.gate import Gate
from support.mutants.driver import drive, judging
from support.mutants.sign_ins import broken
from support.nodes.certificates import make_certificate
from support.peers.binary import IDENTITY

CALL_EVERY: Final = 50
PATIENCE_S: Final = 60.0
"""Much less than a handshake may take is needed; more than a machine that is busy."""
TOGETHER: Final = 8
"""Strangers that come at the same time."""
HELLO: Final = b"".join(map(bytes, encode(Kind.HELLO, 1, Hello())))
ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x28"
OTHERS: Final = (
    b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"AUTH alice secret\r\n",
    b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",  # of SSL 2
    b"SSH-2.0-x\r\n",
    HELLO,
    ALERT,
    b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    b"\x16\x03\x01\x40\x00\x01\xff\xff\xff",
    b"\x17\x03\x03\x00\x01\x00",
    b"",
)


def client_hello(random: Random) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if random.random() < 0.3:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    name = random.choice(("localhost", "x" * 60, "127.0.0.1", "a.b"))
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def words(random: Random) -> bytes:
    what = random.randrange(10)
    if what == 0:
        return random.choice(OTHERS)
    if what == 1:
        return random.randbytes(random.choice((1, 5, 100, 20_000)))
    hello = client_hello(random)
    if what == 2:
        return hello[: random.randrange(len(hello))]
    if what == 3:
        return hello + random.choice((*OTHERS, hello, random.randbytes(300)))
    if what == 4:
        head, body = hello[:5], hello[5:]
        cut = random.randrange(1, len(body))
        parts = (head[:3] + len(part).to_bytes(2, "big") + part for part in (body[:cut], body[cut:]))
        return b"".join(parts) + random.choice((b"", ALERT))
    return broken(random, hello)


class TlsPort:
    """A gate with TLS, and what has got through it."""

    def __init__(self, broker: LocalBroker, made: tuple[str, str]) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*made)
        self.trusting = ssl.create_default_context(cafile=made[0])
        self.front = BinaryFrontEnd(broker, Limits(), Rejections(), None, "fuzzed", IDENTITY)
        self.gate = Gate(1000, 100_000, lambda: self.front.connections, Rejections())
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.address: tuple[str, int] = self._listening.getsockname()
        self._task = asyncio.create_task(
            self.gate.serve(self._listening, self.front.factory, b"too many", lambda: context)
        )

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self.gate.close()
        self._listening.close()
        await self.front.close(0.0)


async def judge(port: TlsPort, random: Random) -> str:
    reader, writer = await asyncio.open_connection(*port.address)
    try:
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError, OSError):
                writer.write(words(random))
                if writer.can_write_eof():
                    writer.write_eof()
                answer = await reader.read()
                kind = "nothing" if not answer else {21: "an alert", 22: "a handshake"}.get(answer[0], "something else")
                assert kind != "something else", answer
                return f"told {kind}"
            return "cut off"
    finally:
        writer.close()


async def serve_a_sound_client(port: TlsPort) -> None:
    reader, writer = await asyncio.open_connection(*port.address, ssl=port.trusting, server_hostname="localhost")
    writer.write(HELLO)
    assert (await reader.readexactly(8))[4:], "there is no welcome"
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


async def run(seed: int, count: int, start: int = 0) -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(repr(context)))
    with tempfile.TemporaryDirectory() as path:
        made = make_certificate(Path(path))
        broker = await LocalBroker.open(f"{path}/data")
        port = TlsPort(broker, (str(made.certificate), str(made.key)))
        for number in range(start, start + count, TOGETHER):
            with judging(seed, number, complaints):
                some = range(number, min(number + TOGETHER, start + count))
                verdicts.update(await asyncio.gather(*(judge(port, Random(f"{seed}/{each}")) for each in some)))
                if number % (CALL_EVERY * TOGETHER) == 0:
                    await serve_a_sound_client(port)
        async with asyncio.timeout(PATIENCE_S):
            while port.front.connections or port.gate._entering:
                await asyncio.sleep(0.01)
        await port.close()
        await broker.close()
    return verdicts


def main(arguments: Sequence[str]) -> None:
    def on_loop(make: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[int, int, int], Counter[str]]:
        def here(seed: int, count: int, start: int) -> Counter[str]:
            with asyncio.Runner(loop_factory=make) as runner:
                return runner.run(run(seed, count, start))

        return here

    drive(on_loop(uvloop.new_event_loop), *map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
