"""What the HTTP front-end allows: heads, bodies, time, memory."""

from __future__ import annotations

import asyncio
import gzip
import resource
import zlib
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from logboom.broker.limits import Limits
from logboom.protocols.http import connection
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.handler import Handler
from logboom.protocols.http.request_body import BITE_BYTES, STEP_BYTES, Inflater
from logboom.protocols.http.schema.operation import Operation
from logboom.protocols.http.settings import HttpSettings
from support.nodes.web import WebNode, tell

SMALL = HttpSettings(body_bytes=100_000, head_bytes=2048)
IMPATIENT = HttpSettings(head_ms=500, body_ms=500, keep_alive_ms=500)
"""Soon, and not while a busy machine lets everybody wait."""
PATIENT = HttpSettings(head_ms=300_000, body_ms=300_000, keep_alive_ms=300_000)
RECORDS = "/topics/events/records"
POST = b"POST /topics/events/records HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    "stream",
    [
        b"GET /" + b"a" * 4000,
        b"GET / HTTP/1.1\r\nname: " + b"a" * 4000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 800,
        b"GET / HTTP/1.1\r\n" + b"a" * 4000 + b": 1\r\n\r\n",
        b"\r\n" * 2000,
    ],
)
def test_a_head_over_the_limit_is_refused_however_it_is_cut(tmp_path: Path, stream: bytes) -> None:
    async def story(node: WebNode) -> None:
        found = await node.talk(stream)
        assert found.startswith(b"HTTP/1.1 431 ")
        assert b'"code":"head-too-large"' in found
        peer = await node.connect()
        for start in range(0, len(stream), 100):
            await peer.send(stream[start : start + 100])
            await asyncio.sleep(0)
        assert (await peer.rest()).startswith(b"HTTP/1.1 431 ")

    assert tell(tmp_path, story, settings=SMALL) == []


def test_a_head_within_the_limit_is_taken_with_a_body_of_any_size_behind_it(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(RECORDS, content=b"1" * 90_000, headers={"name": "a" * 1000})
        assert answer.status_code == 200
        assert (await node.client.get("/topics", headers={"name": "a" * 1000})).status_code == 200

    tell(tmp_path, story, settings=SMALL)


def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST + b"content-length: 100001\r\nexpect: 100-continue\r\n\r\n")
        status, headers, body = await peer.answer()
        assert (status, headers["connection"]) == (413, "close")
        assert b'"fix":"send it in several requests, or raise http.body_bytes"' in body
        await peer.send(b"x" * 100_001)
        assert await peer.rest() == b""

    assert tell(tmp_path, story, settings=SMALL) == []


def test_a_body_that_does_not_say_how_long_it_is_is_refused_when_it_is_too_long(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST + b"transfer-encoding: chunked\r\n\r\n")
        answer = asyncio.create_task(peer.answer())
        while not answer.done():
            await peer.send(b"1000\r\n" + b"1" * 4096 + b"\r\n")
            await asyncio.sleep(0)
        assert answer.result()[0] == 413

    assert tell(tmp_path, story, settings=SMALL) == []


@pytest.mark.parametrize("endless", [b"name: value\r\n", b"x" * 100])
@pytest.mark.parametrize("begin", [b"3\r\n[1]\r\n0\r\n", b"3;name=", b"3\r\n[1]\r\n0\r\nname: "])
def test_what_stands_around_the_chunks_of_a_body_is_bounded(tmp_path: Path, begin: bytes, endless: bytes) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST + b"transfer-encoding: chunked\r\n\r\n" + begin)
        answer = asyncio.create_task(peer.answer())
        for _ in range(10_000):
            if answer.done():
                break
            await peer.send(endless)
            await asyncio.sleep(0)
        assert (await answer)[0] in (400, 431)

    assert tell(tmp_path, story, settings=SMALL) == []


def test_a_body_of_tiny_chunks_is_a_body(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        chunks = b"1;x=y\r\n1\r\n" * 20_000
        await peer.send(POST + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\nname: value\r\n\r\n")
        assert (await peer.answer())[0] == 200
        await peer.send(b"GET /topics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await peer.answer())[0] == 200

    assert tell(tmp_path, story, settings=SMALL) == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_inflates_to_too_much_is_refused_while_it_does(tmp_path: Path, encoding: str) -> None:
    huge = b"1" * 50_000_000
    packed = gzip.compress(huge) if encoding == "gzip" else zlib.compress(huge)
    assert len(packed) < SMALL.body_bytes

    async def story(node: WebNode) -> None:
        answer = await node.client.post(RECORDS, content=packed, headers={"content-encoding": encoding})
        assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
        assert node.front_end.held_bytes == 0

    assert tell(tmp_path, story, settings=SMALL) == []


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"[1,2]", mtime=0)),
        ("x-gzip", gzip.compress(b"[1", mtime=0) + gzip.compress(b",2]", mtime=0)),
        ("deflate", zlib.compress(b"[1,2]")),
        ("Deflate", zlib.compress(b"[1,2]", wbits=-15)),
        ("identity", b"[1,2]"),
    ],
)
def test_packed_bodies_are_inflated(tmp_path: Path, encoding: str, body: bytes) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(RECORDS, content=body, headers={"content-encoding": encoding})
        assert answer.json() == {"partitions": [0, 0], "seqnos": [0, 1]}

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("encoding", "body", "status", "code"),
    [
        ("br", b"x", 415, "unknown-encoding"),
        ("gzip, gzip", b"x", 415, "unknown-encoding"),
        ("gzip", b"not packed", 400, "bad-encoding"),
        ("gzip", gzip.compress(b"[1,2]", mtime=0)[:-3], 400, "bad-encoding"),
        ("gzip", gzip.compress(b"[1,2]", mtime=0) + b"rest", 400, "bad-encoding"),
        ("deflate", b"\xff\xff", 400, "bad-encoding"),
    ],
)
def test_a_body_that_is_not_packed_as_it_says_is_refused(
    tmp_path: Path, encoding: str, body: bytes, status: int, code: str
) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(RECORDS, content=body, headers={"content-encoding": encoding})
        assert (answer.status_code, answer.json()["code"]) == (status, code)

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip\r\ntransfer-encoding: chunked"])
def test_a_transfer_that_is_more_than_chunked_is_refused(tmp_path: Path, coding: bytes) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST + b"transfer-encoding: " + coding + b"\r\n\r\n0\r\n\r\n")
        assert (await peer.answer())[0] == 415

    assert tell(tmp_path, story) == []


def test_an_inflater_stops_now_and_then_whatever_there_is_to_give() -> None:
    packed = gzip.compress(b"") * 10_000
    inflater = Inflater("gzip")
    pieces = list(inflater.inflate(packed))
    assert set(pieces) == {b""}
    assert len(pieces) >= len(packed) // BITE_BYTES
    assert inflater.is_whole


def test_an_inflater_gives_small_pieces_whatever_it_is_given() -> None:
    data = bytes(range(256)) * 40_000
    for encoding, packed in (("gzip", gzip.compress(data)), ("deflate", zlib.compress(data))):
        for size in (1000, len(packed)):
            inflater = Inflater(encoding)
            pieces = [piece for at in range(0, len(packed), size) for piece in inflater.inflate(packed[at : at + size])]
            assert b"".join(pieces) == data
            assert max(map(len, pieces)) <= STEP_BYTES
            assert inflater.is_whole


def test_all_bodies_together_are_bounded(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peers = [await node.connect() for _ in range(4)]
        for peer in peers:
            await peer.send(POST + b"content-type: text/plain\r\ncontent-length: 500000\r\n\r\n" + b"x" * 400_000)
        answers = [asyncio.create_task(peer.answer()) for peer in peers]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        status, headers, body = done.pop().result()
        assert (status, headers["retry-after"]) == (429, "1")
        assert b"limits.receive_bytes" in body
        for peer in peers:
            peer.writer.write(b"x" * 100_000)
        statuses = sorted([(await answer)[0] for answer in answers])
        assert statuses[0] == 200
        assert node.front_end.held_bytes == 0
        assert node.front_end.rejections["limits.receive_bytes"] == statuses.count(429)

    assert tell(tmp_path, story, limits=Limits(receive_bytes=1024 * 1024)) == []


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (POST + b"content-length: 60002\r\n\r\n[" + b"1" * 60_000, b"]"),
        (b"GET /topics HTTP/1.1\r\nhost: localhost\r\nname: " + b"x" * 60_000, b"\r\n\r\n"),
    ],
)
def test_small_bodies_and_heads_of_many_are_bounded_too(tmp_path: Path, begin: bytes, end: bytes) -> None:
    async def story(node: WebNode) -> None:
        peers = [await node.connect() for _ in range(20)]
        for peer in peers:
            await peer.send(begin)
        answers = [asyncio.create_task(peer.answer()) for peer in peers]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert done.pop().result()[0] == 429
        for peer in peers:
            peer.writer.write(end)
        assert {(await answer)[0] for answer in answers} == {200, 429}
        await node.hang_up()
        while node.front_end.connections:
            await asyncio.sleep(0.01)
        assert node.front_end.held_bytes == 0

    assert tell(tmp_path, story, limits=Limits(receive_bytes=1024 * 1024)) == []


def test_requests_that_wait_for_their_turn_are_bounded_together(tmp_path: Path) -> None:
    end = asyncio.Event()

    async def slow(front_end: HttpFrontEnd, request: Request) -> Response:
        await end.wait()
        return Response(b"")

    async def story(node: WebNode) -> None:
        operation = Operation("GET", "/it", slow, "it", "test")
        node.front_end.config_of_uvicorn.loaded_app = Handler(node.front_end, [operation])
        peers = [await node.connect() for _ in range(40)]
        for peer in peers:
            peer.writer.write(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20_000)
        while not node.front_end.rejections["limits.receive_bytes"]:
            await asyncio.sleep(0.01)
            assert node.front_end.held_bytes < 2 * 1024 * 1024
            end.set()
        for peer in peers:
            peer.writer.transport.abort()

    assert tell(tmp_path, story, limits=Limits(receive_bytes=1024 * 1024)) == []


def test_a_small_limit_for_bodies_holds_for_small_bodies(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(RECORDS, content=b"1" * 1025)
        assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
        assert (await node.client.post(RECORDS, content=b"1" * 1024)).status_code == 200

    assert tell(tmp_path, story, settings=HttpSettings(body_bytes=1024)) == []


def test_a_head_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        found = await node.talk(b"GET / HTTP/1.1\r\nhost")
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"head-too-slow"' in found

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_head_that_comes_a_byte_at_a_time_is_not_waited_for(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        answer = asyncio.create_task(peer.answer())
        await peer.send(b"GET / HTTP/1.1\r\nname: ")
        while not answer.done():
            await peer.send(b"x")
            await asyncio.sleep(0.01)
        assert answer.result()[0] == 408

    assert tell(tmp_path, story, settings=IMPATIENT) == []


@pytest.mark.parametrize("framing", [b"content-length: 100\r\n\r\n[1", b"transfer-encoding: chunked\r\n\r\n2\r\n[1"])
def test_a_body_that_stands_still_is_not_waited_for(tmp_path: Path, framing: bytes) -> None:
    async def story(node: WebNode) -> None:
        found = await node.talk(POST + framing)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"body-too-slow"' in found
        found = await node.talk(b"POST /nothing HTTP/1.1\r\nhost: localhost\r\n" + framing)
        assert found.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 408 "))

    assert tell(tmp_path, story, settings=IMPATIENT) == []


@pytest.mark.parametrize("path", [b"/topics/events/records", b"/topics/events/trim"])
def test_a_body_that_comes_a_byte_at_a_time_is_not_waited_for(tmp_path: Path, path: bytes) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        answer = asyncio.create_task(peer.answer())
        await peer.send(b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50000\r\n\r\n")
        while not answer.done():
            await peer.send(b" ")
            await asyncio.sleep(0.01)
        status, _, body = answer.result()
        assert status == 408
        assert b'"code":"body-too-slow"' in body

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_connection_without_requests_is_closed_without_a_word(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert await node.talk(b"") == b""
        peer = await node.connect()
        await peer.send(b"GET /topics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await peer.answer())[0] == 200
        assert await peer.rest() == b""

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_chunked_body_leaves_nothing_that_is_waited_for(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST + b"transfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n")
        assert (await peer.answer())[0] == 200
        assert await peer.rest() == b""

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_slow_reader_that_is_the_last_gets_its_whole_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.1)
    size = 16 * 1024 * 1024

    async def large(front_end: HttpFrontEnd, request: Request) -> Response:
        return Response(b"x" * size)

    async def story(node: WebNode) -> None:
        operation = Operation("GET", "/it", large, "it", "test")
        node.front_end.config_of_uvicorn.loaded_app = Handler(node.front_end, [operation])
        peer = await node.connect()
        await peer.send(b"GET /it HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        await peer.reader.readuntil(b"\r\n\r\n")
        received = 0
        while data := await peer.reader.read(256 * 1024):
            received += len(data)
            await asyncio.sleep(0.01)
        assert received == size

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_request_that_takes_long_is_nobodys_fault(tmp_path: Path) -> None:
    async def slow(front_end: HttpFrontEnd, request: Request) -> Response:
        await asyncio.sleep(2 * IMPATIENT.body_ms / 1000)
        return Response(await request.body())

    async def story(node: WebNode) -> None:
        operation = Operation("POST", "/it", slow, "it", "test")
        node.front_end.config_of_uvicorn.loaded_app = Handler(node.front_end, [operation])
        assert (await node.client.post("/it", content=b"1" * 1_000_000)).status_code == 200

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_reader_that_does_not_read_is_not_written_to_and_then_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.3)
    given = 0

    async def endless(front_end: HttpFrontEnd, request: Request) -> Response:
        async def forever() -> Any:
            nonlocal given
            while True:
                given += 1
                yield b"x" * 65536

        return StreamingResponse(forever())

    async def story(node: WebNode) -> None:
        operation = Operation("GET", "/it", endless, "it", "test")
        node.front_end.config_of_uvicorn.loaded_app = Handler(node.front_end, [operation])
        peer = await node.connect()
        await peer.send(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n")
        while not node.front_end.state.tasks:
            await asyncio.sleep(0.01)
        while node.front_end.connections or node.front_end.state.tasks:
            await asyncio.sleep(0.01)
        assert given * 65536 < 64 * 1024 * 1024

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_peer_that_is_sent_away_and_does_not_go_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.5)

    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(b"nonsense\r\n\r\n")
        assert (await peer.answer())[0] == 400
        while node.front_end.connections:
            await asyncio.sleep(0.01)

    assert tell(tmp_path, story, settings=IMPATIENT) == []


def test_a_thousand_half_requests_cost_little_and_hold_up_nobody(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        halves = [b"", b"GET /topics HTTP/1.1\r\nhost", POST + b"content-length: 100\r\n\r\n[", b"POST /x HTTP/1.1\r\n"]
        for number in range(1000):
            await (await node.connect()).send(halves[number % 4])
        assert node.front_end.connections == 1000
        answer = await node.client.post(RECORDS, content=b"1")
        assert answer.status_code == 200
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 64 * 1024

    assert tell(tmp_path, story, settings=PATIENT) == []


def test_a_flood_of_pipelined_requests_is_parsed_as_it_is_answered(tmp_path: Path) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow(front_end: HttpFrontEnd, request: Request) -> Response:
        begun.set()
        await end.wait()
        return Response(b"")

    async def story(node: WebNode) -> None:
        operation = Operation("GET", "/it", slow, "it", "test")
        node.front_end.config_of_uvicorn.loaded_app = Handler(node.front_end, [operation])
        peer = await node.connect()
        peer.writer.write(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n" * 100_000)
        await begun.wait()
        (served,) = node.front_end.state.connections
        assert isinstance(served, connection.HttpConnection)
        assert len(served.pipeline) <= 4
        end.set()
        for _ in range(1000):
            assert (await peer.answer())[0] == 200
        peer.writer.transport.abort()

    assert tell(tmp_path, story) == []
