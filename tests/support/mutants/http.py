"""Broken requests: sound HTTP with something wrong, and a judge of what the front-end makes of it.

Every mutant follows from (seed, number) alone. `python -m support.mutants.http SEED COUNT [START]` runs a range in this
process, against a broker with files.

`judge` holds the front-end to its promise: nothing is raised, what it sends can be read as responses, none of them is
a 500, and nothing is left behind. Of streams with a HEAD in them it judges only what is raised and left behind.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final, cast

import httptools

from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, TopicRules
from logboom.broker.local import LocalBroker
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.settings import HttpSettings
from logboom.storage.data.topic import AcksSettings, FlushSettings, Settings
from support.mutants.driver import drive, judging

SETTINGS: Final = HttpSettings(body_bytes=64 * 1024, head_bytes=4096, cors_origins=("http://good.example",))
LIMITS: Final = Limits(receive_bytes=1 << 20, read_wait_ms=20, topics=50)
QUICKLY: Final = Settings(flush=FlushSettings("os"), acks=AcksSettings("leader"))
CALL_EVERY: Final = 50
"""After so many mutants a sound client is to be served."""
TURNS: Final = 30


def _request(line: str, body: bytes = b"", *headers: str) -> bytes:
    length = (f"content-length: {len(body)}",) if body else ()
    return "\r\n".join((f"{line} HTTP/1.1", "host: localhost", *length, *headers, "", "")).encode() + body


def _chunked(line: str, body: bytes, *headers: str) -> bytes:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:7], body[7:]) if piece)
    return _request(line, b"", "transfer-encoding: chunked", *headers) + chunks + b"0\r\n\r\n"


RECORD: Final = (
    b'{"value": {"t": 21.5}, "key": "k", "tags": ["red"], "timestamp": "2026-01-31T12:00:00Z", "channel": "a/b"}'
)
WRITE: Final = "POST /topics/events/records"
READ: Final = "GET /topics/events/records"
SOURCES: Final = (
    _request(WRITE, b"21.5"),
    _request(WRITE, RECORD, "content-type: application/json"),
    _request(WRITE, b"[1, %s, null]" % RECORD),
    _request(WRITE + "?acks=leader&partition=0&expect_seqno=7&as=record", RECORD),
    _request(WRITE, RECORD, "idempotency-key: order-17"),
    _request(WRITE, RECORD + b"\n1\n", "content-type: application/x-ndjson"),
    _request(WRITE, b"\x00\xff", "content-type: text/plain", "logboom-key: k", "logboom-tags: a, b"),
    _request(WRITE, gzip.compress(RECORD, mtime=0), "content-encoding: gzip"),
    _request(WRITE, RECORD, "expect: 100-continue"),
    _request(WRITE, RECORD, "origin: http://good.example"),
    _request("POST /topics/keyed/records", b"[%s, 1]" % RECORD),
    _chunked(WRITE, RECORD),
    _chunked("POST /topics/events/trim", b'{"seqno": 0, "partition": 0}'),
    _request(READ + "?from=0&limit=3&wait=0.01&tag=red&channel=a/%2B"),
    _request(READ + "?from=2026-01-31T12:00:00Z&until=5&key=k", b"", "accept: application/x-ndjson"),
    _request(READ + "?limit=2", b"", "accept: application/vnd.apache.arrow.stream"),
    _request("GET /topics/events/records/0?partition=0"),
    _request("HEAD /topics/events/tail?from=earliest", b"", "last-event-id: x"),
    _request("GET /topics/events/tail?from=earliest"),
    _request("GET /topics?prefix=e&internal=true&after=a&limit=5"),
    _request("POST /topics", b'{"name": "more", "partitions": 2, "settings": {"retention": {"bytes": 1000000}}}'),
    _request("PATCH /topics/events", b'{"settings": {"retention": {"age_ms": null, "records": 5}}}'),
    _request("PUT /topics/events/cursors/mine/too?partition=0", b'{"seqno": 0}'),
    _request("GET /cursors?topic=events&prefix=m"),
    _request("GET /changes?since=0&limit=3&block=0"),
    _request("POST /changes", b'{"data": {"a": 1}, "tags": ["t"]}'),
    _request("OPTIONS /topics/events", b"", "origin: http://good.example", "access-control-request-method: PATCH"),
    _request("GET /metrics"),
    _request("GET /openapi.json"),
    _request("GET /topics", b"", "connection: upgrade", "upgrade: h2c"),
    _request(WRITE, b"[1,2]", "connection: close"),
)
WORDS: Final = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b": ",
        b" ",
        b"%",
        b"%00",
        b"%ff",
        b"%2e%2e/",
        b"?",
        b"&",
        b"=",
        b",",
        b"\x00",
    ),
    *(b"0\r\n\r\n", b"chunked", b"gzip", b"deflate", b"close", b"upgrade", b"websocket", b"expect: 100-continue\r\n"),
    *(b"content-length: 5\r\n", b"content-length: 99999999999\r\n", b"transfer-encoding: chunked\r\n", b"HTTP/1.0"),
    *(
        b"-1",
        b"0",
        b"18446744073709551616",
        b"9223372036854775807",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b'"',
        b"\\u0000",
    ),
    *(
        b"\\ud800",
        b"[" * 2000,
        b'{"value":',
        b"\xff\xfe",
        b"\xc3\x28",
        b"a" * 5000,
        b"_cursors",
        b"keyed",
        b"GET",
        b"POST",
    ),
)


def mutant(seed: int, number: int) -> list[bytes]:
    """The pieces in which a stream of requests comes, one of them broken."""
    random = Random(f"{seed}/{number}")
    requests = random.choices(SOURCES, k=random.choice((1, 1, 2, 3)))
    victim = random.randrange(len(requests))
    for _ in range(random.choice((1, 1, 2, 4))):
        requests[victim] = _break(random, requests[victim])
    stream = b"".join(requests)
    cuts = sorted(random.sample(range(len(stream) + 1), min(len(stream), random.choice((0, 0, 1, 3)))))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def _break(random: Random, request: bytes) -> bytes:
    at = random.randrange(len(request) + 1)
    until = min(len(request), at + random.choice((1, 1, 2, 8, 40)))
    match random.randrange(6):
        case 0:
            return request[:at] + bytes([random.randrange(256)]) + request[at + 1 :]
        case 1:
            return request[:at] + random.choice(WORDS) + request[at:]
        case 2:
            return request[:at] + random.choice(WORDS) + request[until:]
        case 3:
            return request[:at] + request[until:]
        case 4:
            return request[:until] + request[at:]
        case _:
            return request[:at]


class Wire:
    """A transport that keeps what it is given, for a connection that is nowhere."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = self.aborted = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    close = write_eof

    def abort(self) -> None:
        self.closed = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class Responses:
    """What was sent, as a client of llhttp reads it."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.statuses.append(self.parser.get_status_code())


def read_responses(data: bytes) -> Responses:
    responses = Responses()
    responses.parser.feed_data(data)
    return responses


async def talk(front_end: HttpFrontEnd, pieces: Sequence[bytes], patience_s: float = 0.05) -> Wire:
    wire = Wire()
    connection = front_end.factory()
    connection.connection_made(cast(asyncio.Transport, wire))
    for piece in pieces:
        if not wire.closed:
            connection.data_received(piece)
            await asyncio.sleep(0)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    clock = asyncio.get_running_loop().time
    ends = clock() + patience_s
    while (waiting := [task for task in front_end.state.tasks if not task.done()]) and clock() < ends:
        await asyncio.wait(waiting, timeout=ends - clock())
        await asyncio.sleep(0)
    connection.connection_lost(None)
    if front_end.state.tasks:
        _, pending = await asyncio.wait(set(front_end.state.tasks), timeout=20)
        assert not pending, "somebody is still being answered who has gone"
    return wire


async def judge(front_end: HttpFrontEnd, pieces: Sequence[bytes]) -> str:
    wire = await talk(front_end, pieces)
    assert front_end.held_bytes == 0, "something is held for nobody"
    assert front_end.connections == 0
    if b"HEAD " in b"".join(pieces):
        return "head"  # whose answers only one who has asked can tell from others
    statuses = read_responses(bytes(wire.sent)).statuses
    assert 500 not in statuses, bytes(wire.sent)
    if not statuses:
        return "nothing said"
    return str(statuses[-1])


async def serve_a_sound_client(front_end: HttpFrontEnd) -> None:
    wire = await talk(front_end, [_request(WRITE, b"1") + _request("GET /topics/events")], patience_s=20)
    assert read_responses(bytes(wire.sent)).statuses == [200, 200], bytes(wire.sent)


async def run(seed: int, count: int, start: int = 0) -> Counter[str]:
    """Judge a range of mutants. A failure names the mutant."""
    verdicts: Counter[str] = Counter()
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(repr(context)))
    with tempfile.TemporaryDirectory() as path:
        broker = await LocalBroker.open(path, BrokerConfig(topics=TopicRules(auto_create=False), limits=LIMITS))
        await broker.create_topic("events", 1, QUICKLY)
        await broker.create_topic("keyed", 3, QUICKLY)
        front_end = HttpFrontEnd(broker, LIMITS, broker.rejections, SETTINGS, dict)
        for number in range(start, start + count):
            with judging(seed, number, complaints):
                verdicts[await judge(front_end, mutant(seed, number))] += 1
                if number % CALL_EVERY == 0:
                    await serve_a_sound_client(front_end)
        await front_end.close(0.0)
        await broker.close()
    return verdicts


def main(arguments: Sequence[str]) -> None:
    drive(lambda seed, count, start: asyncio.run(run(seed, count, start)), *map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
