from __future__ import annotations

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import Chunk
from logboom.client.link.session import Event, Session
from logboom.errors import LocalProtocolError, LogboomError, RemoteProtocolError, SeqnoOutOfRange
from logboom.protocols.binary.codec import encode
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import (
    AppendedAt,
    Appends,
    ChunkHead,
    Hello,
    Kind,
    Welcome,
    WireLimits,
)

LIMITS = WireLimits(2**26, 2**24, 2**25, 16, 600_000, 1000)
WELCOME = Welcome(1, "a" * 32, "b" * 32, "/data", "logboom", LIMITS)
DATA = bytes(build([b"value"] * 20).data)
SEQNOS = msgspec.msgpack.encode(None) * 16
HEAD = ChunkHead("c" * 32, 0, 5, 20, 0, 20, 7, len(DATA))
FILTERED = ChunkHead("c" * 32, 0, 5, 20, 0, 20, 7, len(DATA), 2)


def frame(kind: Kind, correlation: int, head: object = None, *payload: bytes) -> bytes:
    return b"".join(bytes(buffer) for buffer in encode(kind, correlation, head, payload))


STREAM = b"".join(
    (
        frame(Kind.WELCOME, 1, WELCOME),
        frame(Kind.PONG, 2),
        frame(Kind.APPENDED, 3, Appends([AppendedAt(5, 20, 3, 99)])),
        frame(Kind.CHUNK, 4, HEAD, DATA),
        frame(Kind.CHUNK, 4, FILTERED, DATA, SEQNOS),
        frame(Kind.ERROR, 5, encode_failure(SeqnoOutOfRange(1, 5, 9))),
        frame(Kind.RESULT, 6, [1, 2, 3]),
    )
)


def receive(session: Session, data: bytes) -> list[Event]:
    """As a socket would give it: no more than there is room for at once."""
    events: list[Event] = []
    while data:
        buffer = session.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        events += session.received(count)
        data = data[count:]
    return events


def plain(events: list[Event]) -> list[object]:
    """Events as they can be compared."""
    found: list[object] = []
    for correlation, what, size in events:
        if isinstance(what, Chunk):
            seqnos = None if what.seqnos is None else bytes(what.seqnos)
            found.append((correlation, what[:7], bytes(what.data), seqnos, size))
        elif isinstance(what, LogboomError):
            found.append((correlation, type(what), str(what), vars(what)))
        else:
            found.append((correlation, what))
    return found


EXPECTED = [
    (1, WELCOME),
    (2, None),
    (3, Appends([AppendedAt(5, 20, 3, 99)])),
    (4, ("c" * 32, 0, 5, 20, 0, 20, 7), DATA, None, len(frame(Kind.CHUNK, 4, HEAD, DATA))),
    (4, ("c" * 32, 0, 5, 20, 0, 20, 7), DATA, SEQNOS, len(frame(Kind.CHUNK, 4, FILTERED, DATA, SEQNOS))),
    (5, SeqnoOutOfRange, str(SeqnoOutOfRange(1, 5, 9)), {"seqno": 1, "first": 5, "next": 9}),
    (6, msgspec.msgpack.encode([1, 2, 3])),
]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_events_do_not_depend_on_where_the_stream_is_cut(cut: int) -> None:
    session = Session(Hello())
    events = receive(session, STREAM[:cut]) + receive(session, STREAM[cut:])
    assert plain(events) == EXPECTED


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_events_do_not_depend_on_how_much_comes_at_once(size: int) -> None:
    session = Session(Hello())
    events = [event for at in range(0, len(STREAM), size) for event in receive(session, STREAM[at : at + size])]
    assert plain(events) == EXPECTED


def test_a_chunk_stays_as_it_came_whatever_comes_after_it() -> None:
    session = Session(Hello())
    receive(session, frame(Kind.WELCOME, 1, WELCOME))
    kept = [receive(session, frame(Kind.CHUNK, 4, HEAD, DATA))[0].what for _ in range(50)]
    receive(session, frame(Kind.RESULT, 6, "x" * 10_000))
    assert all(isinstance(chunk, Chunk) and bytes(chunk.data) == DATA for chunk in kept)


def test_a_chunk_is_not_copied_on_its_way() -> None:
    session = Session(Hello())
    receive(session, frame(Kind.WELCOME, 1, WELCOME))
    buffer = session.buffer()
    data = frame(Kind.CHUNK, 4, HEAD, DATA)
    buffer[: len(data)] = data
    ((_, chunk, _),) = session.received(len(data))
    assert isinstance(chunk, Chunk)
    buffer[len(data) - len(DATA)] ^= 0xFF
    assert chunk.data[0] == DATA[0] ^ 0xFF


def test_nothing_is_sent_before_the_welcome() -> None:
    session = Session(Hello())
    with pytest.raises(LocalProtocolError):
        session.request(Kind.PING)
    assert b"".join(map(bytes, session.hello())) == frame(Kind.HELLO, 1, Hello())


def test_correlation_ids_go_round_and_are_never_zero() -> None:
    session = Session(Hello())
    receive(session, frame(Kind.WELCOME, 1, WELCOME))
    session.newest = 2**32 - 2
    assert [session.request(Kind.PING)[0] for _ in range(3)] == [2**32 - 1, 1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        frame(Kind.CHUNK, 4, HEAD, DATA[:-8]),
        frame(Kind.CHUNK, 4, HEAD, DATA, bytes(8)),
        frame(Kind.CHUNK, 4, "no head"),
        frame(Kind.HELLO, 4, Hello()),
        frame(Kind.APPENDED, 4, {"answers": 5}),
        frame(Kind.ERROR, 4),
        b"HTTP/1.1 400 Bad Request\r\n\r\n....",
    ],
)
def test_a_server_that_breaks_the_protocol_is_named_as_such(bad: bytes) -> None:
    session = Session(Hello())
    receive(session, frame(Kind.WELCOME, 1, WELCOME))
    with pytest.raises(RemoteProtocolError):
        receive(session, bad)
