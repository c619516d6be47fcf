"""The HTTP front-end as a server: methods, paths, problems, origins, how connections go on and end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from logboom.errors import CODES, LogboomError
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.handler import Handler
from logboom.protocols.http.problem import STATUSES, problem_of, raw_problem
from logboom.protocols.http.schema.operation import Operation
from logboom.protocols.http.settings import HttpSettings
from support.nodes.web import WebNode, tell

GET = b"GET /topics HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /topics/events/records HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n"


def swap(node: WebNode, *operations: Operation) -> None:
    node.front_end.config_of_uvicorn.loaded_app = Handler(node.front_end, operations)


def operation(handler: Any, method: Any = "GET", path: str = "/it") -> Operation:
    return Operation(method, path, handler, "it", "test")


def test_what_is_not_there_is_a_problem_with_a_fix(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.get("/nothing")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["server"] == "logboom"
        assert answer.json() == {
            "title": "Not found",
            "status": 404,
            "code": "not-found",
            "detail": "there is nothing at '/nothing'",
            "fix": "GET /docs shows what is",
        }

    assert tell(tmp_path, story) == []


def test_a_method_that_is_not_for_a_path_is_told_which_are(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.put("/topics", content=b"{}")
        assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
        answer = await node.client.options("/topics/a")
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH"

    tell(tmp_path, story)


def test_head_says_what_get_would_and_shows_nothing(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        get, head = await node.client.get("/topics"), await node.client.head("/topics")
        assert head.status_code == 200
        assert head.headers["content-length"] == get.headers["content-length"]
        assert head.content == b""
        assert (await node.client.head("/topics/none")).status_code == 404

    tell(tmp_path, story)


def test_head_of_a_stream_ends_at_once(tmp_path: Path) -> None:
    async def endless(front_end: HttpFrontEnd, request: Request) -> Response:
        async def forever() -> Any:
            while True:
                yield b"more"
                await asyncio.sleep(1)

        return StreamingResponse(forever())

    async def story(node: WebNode) -> None:
        swap(node, operation(endless))
        assert (await node.client.head("/it")).content == b""

    assert tell(tmp_path, story) == []


def test_a_failure_of_ours_is_reported_here_and_not_there(tmp_path: Path) -> None:
    async def fail(front_end: HttpFrontEnd, request: Request) -> Response:
        raise ZeroDivisionError("secret")

    async def story(node: WebNode) -> None:
        swap(node, operation(fail))
        for _ in range(2):
            answer = await node.client.get("/it")
            assert (answer.status_code, answer.json()["code"]) == (500, "internal-error")
            assert "secret" not in answer.text

    reports = tell(tmp_path, story)
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError] * 2


def test_a_stream_that_fails_half_way_is_cut_off_not_ended(tmp_path: Path) -> None:
    async def fail(front_end: HttpFrontEnd, request: Request) -> Response:
        async def some() -> Any:
            yield b"some"
            raise ZeroDivisionError

        return StreamingResponse(some())

    async def story(node: WebNode) -> None:
        swap(node, operation(fail))
        found = await node.talk(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert found.endswith(b"4\r\nsome\r\n")

    assert len(tell(tmp_path, story)) == 1


def test_connections_are_kept_and_requests_on_them_are_answered_in_order(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        for _ in range(3):
            await peer.send(GET)
            assert (await peer.answer())[0] == 200
        await peer.send(
            GET + POST + b"[1,2]" + GET + b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        answers = [await peer.answer() for _ in range(4)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 404]
        assert answers[1][2] == b'{"partitions":[0,0],"seqnos":[0,1]}'
        assert b'"events"' in answers[2][2]
        assert await peer.rest() == b""

    tell(tmp_path, story)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_requests_do_not_depend_on_where_the_stream_is_cut(tmp_path: Path, size: int) -> None:
    head = b"POST /topics/a/records HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    chunked = head + b"2\r\n[1\r\n3\r\n,2]\r\n0\r\n\r\n"
    stream = (GET + chunked + POST + b"[1,2]") * 3

    async def story(node: WebNode) -> None:
        peer = await node.connect()
        for start in range(0, len(stream), size):
            await peer.send(stream[start : start + size])
            await asyncio.sleep(0)
        answers = [await peer.answer() for _ in range(9)]
        assert [status for status, _, _ in answers] == [200] * 9
        assert answers[-2][2] == b'{"partitions":[0,0],"seqnos":[4,5]}'
        await peer.close()

    assert tell(tmp_path, story) == []


def test_a_thousand_requests_at_once_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(GET * 1000)
        for _ in range(1000):
            assert (await peer.answer())[0] == 200
            assert sum(not task.done() for task in node.front_end.state.tasks) <= 1
        await peer.close()

    tell(tmp_path, story)


def test_old_clients_and_those_who_say_so_are_hung_up_on(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        old = await node.talk(b"GET /topics HTTP/1.0\r\n\r\n")
        assert old.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close\r\n" in old
        said = await node.talk(b"GET /topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 200 OK")

    tell(tmp_path, story)


def test_old_clients_get_no_chunks_and_are_not_told_to_go_on(tmp_path: Path) -> None:
    async def stream(front_end: HttpFrontEnd, request: Request) -> Response:
        body = await request.body()

        async def some() -> Any:
            yield b"some "
            yield body

        return StreamingResponse(some())

    async def story(node: WebNode) -> None:
        swap(node, operation(stream, "POST"))
        found = await node.talk(b"POST /it HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\nmore")
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"transfer-encoding" not in found
        assert found.endswith(b"\r\n\r\nsome more")

    assert tell(tmp_path, story) == []


def test_a_body_that_is_announced_for_nothing_is_not_asked_for(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        found = await node.talk(
            b"POST /nothing HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
        )
        assert found.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert b"connection: close\r\n" in found

    assert tell(tmp_path, story) == []


def test_a_body_that_is_announced_is_asked_for(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST[:-2] + b"expect: 100-continue\r\n\r\n")
        assert (await peer.answer())[0] == 100
        await peer.send(b"[1,2]")
        assert (await peer.answer())[0] == 200
        await peer.close()

    tell(tmp_path, story)


def test_other_protocols_are_declined_and_http_goes_on(tmp_path: Path) -> None:
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"

    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(GET[:-2] + upgrade)
        assert (await peer.answer())[0] == 200
        await peer.send(POST[:-2] + upgrade + b"[1,2]" + GET)
        assert (await peer.answer())[0] == 200
        assert (await peer.answer())[0] == 200
        await peer.send(
            GET[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n" + GET
        )
        status, _, body = await peer.answer()
        assert status == 400
        assert b'"code":"no-websockets"' in body
        assert (await peer.answer())[0] == 200

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    "stream",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nbroken header\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /topics/a/records HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length : 1\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked, identity\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding:\r\n chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nname: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\nhost: x\n\n",
        b"GET / HTTP/1.1\r\nname: a\nother: b\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_told_so_and_hung_up_on(tmp_path: Path, stream: bytes) -> None:
    async def story(node: WebNode) -> None:
        found = await node.talk(stream)
        assert found.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"connection: close\r\n" in found
        assert b'"code":"bad-http"' in found
        assert (await node.client.get("/topics")).status_code == 200

    assert tell(tmp_path, story) == []


def test_what_comes_after_a_sound_request_does_not_spoil_its_answer(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        await peer.send(POST + b"[1,2]" + b"nonsense\r\n\r\n")
        assert (await peer.answer())[0] == 200
        assert (await peer.answer())[0] == 400
        assert await peer.rest() == b""

    assert tell(tmp_path, story) == []


def test_a_body_that_breaks_while_another_is_answered_is_told_so_in_its_turn(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        peer = await node.connect()
        broken = b"POST /topics/events/records HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
        await peer.send(POST + b"[1,2]" + broken)
        assert (await peer.answer())[0] == 200
        assert (await peer.answer())[0] == 400
        assert await peer.rest() == b""

    assert tell(tmp_path, story) == []


def test_a_path_is_decoded_once(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a.b"})
        assert (await node.client.get("/topics/a%2Eb")).status_code == 200
        answer = await node.client.get("/topics/a%252Eb")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-topic-name")
        assert (await node.client.post("/topics/a.b/records%0A", content=b"1")).status_code == 404
        for path in ("/topics/%ff%fe", "/topics/a%00b", "/topics/" + "x" * 250):
            answer = await node.client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-topic-name")
            answer = await node.client.post(path + "/records", content=b"1")
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-topic-name")

    tell(tmp_path, story)


def test_pages_of_other_origins_may_read_and_do_nothing_else(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        evil = {"origin": "http://evil.example"}
        answer = await node.client.post("/topics/a/records", content=b"1", headers=evil)
        assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")
        assert (await node.client.get("/topics", headers=evil)).status_code == 200
        own = {"origin": f"http://127.0.0.1:{node.port}"}
        assert (await node.client.post("/topics/a/records", content=b"1", headers=own)).status_code == 200
        preflight = {**evil, "access-control-request-method": "POST"}
        answer = await node.client.options("/topics/a/records", headers=preflight)
        assert "access-control-allow-origin" not in answer.headers

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:1775", 421),
        ("node.example:1775", 200),
        ("127.0.0.1:1775", 200),
        ("[::1]:1775", 200),
        ("localhost", 200),
        ("logboom:1775", 421),
    ],
)
def test_nobody_may_call_the_node_by_a_name_that_could_be_anybodys(tmp_path: Path, host: str, status: int) -> None:
    async def story(node: WebNode) -> None:
        for mark in ({"origin": f"http://{host}"}, {"sec-fetch-site": "same-origin"}, {}):
            headers = {"host": host, **mark}
            answer = await node.client.post("/topics/a/records", json=1, headers=headers)
            assert answer.status_code == status
            assert (await node.client.get("/topics", headers=headers)).status_code == status

    tell(tmp_path, story, settings=HttpSettings(cors_origins=("http://node.example:1775",)))


@pytest.mark.parametrize(("origins", "shown"), [(("http://good.example",), "http://good.example"), (("*",), "*")])
def test_pages_of_allowed_origins_may_do_everything(tmp_path: Path, origins: tuple[str, ...], shown: str) -> None:
    async def story(node: WebNode) -> None:
        good = {"origin": "http://good.example"}
        wanted = {**good, "access-control-request-method": "POST", "access-control-request-headers": "idempotency-key"}
        answer = await node.client.options("/topics/a/records", headers=wanted)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == shown
        assert answer.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS, POST"
        assert answer.headers["access-control-allow-headers"] == "idempotency-key"
        answer = await node.client.post("/topics/a/records", content=b"1", headers=good)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == shown
        assert "Logboom-Next" in answer.headers["access-control-expose-headers"]
        assert "Origin" in answer.headers["vary"]
        assert (await node.client.get("/nothing", headers=good)).headers["access-control-allow-origin"] == shown

    tell(tmp_path, story, settings=HttpSettings(cors_origins=origins))


def test_closing_finishes_what_is_under_way_and_takes_nothing_new(tmp_path: Path) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow(front_end: HttpFrontEnd, request: Request) -> Response:
        begun.set()
        await end.wait()
        return Response(b"done")

    async def story(node: WebNode) -> None:
        swap(node, operation(slow))
        idle, busy = await node.connect(), await node.connect()
        await busy.send(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n" * 3)
        await begun.wait()
        closing = asyncio.create_task(node.front_end.close(30))
        assert await idle.rest() == b""
        assert not closing.done()
        end.set()
        found = await busy.rest()
        assert found.count(b"HTTP/1.1") == 1
        assert found.endswith(b"done")
        assert b"connection: close\r\n" in found
        await closing
        assert node.front_end.connections == 0

    assert tell(tmp_path, story) == []


def test_closing_ends_what_waits_for_news_at_once(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def wait(front_end: HttpFrontEnd, request: Request) -> Response:
        begun.set()
        await front_end.closing.wait()
        return Response(b"nothing came")

    async def story(node: WebNode) -> None:
        swap(node, operation(wait))
        peer = await node.connect()
        await peer.send(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await begun.wait()
        await node.front_end.close(30)
        assert (await peer.rest()).endswith(b"nothing came")

    assert tell(tmp_path, story) == []


def test_closing_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def never(front_end: HttpFrontEnd, request: Request) -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def story(node: WebNode) -> None:
        swap(node, operation(never))
        peer = await node.connect()
        await peer.send(b"GET /it HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await begun.wait()
        await node.front_end.close(0.01)
        assert await peer.rest() == b""
        late = await node.connect()
        assert await late.rest() == b""

    assert tell(tmp_path, story) == []


def test_nothing_is_left_of_a_connection_that_has_gone(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for data in (b"", GET, GET[:10], POST, POST + b"[1"):
            peer = await node.connect()
            await peer.send(data)
            await peer.close()
        await node.client.aclose()
        while node.front_end.connections or node.front_end.state.tasks:
            await asyncio.sleep(0.01)
        assert node.front_end.held_bytes == 0

    assert tell(tmp_path, story) == []


def test_every_error_has_a_status_and_a_code() -> None:
    assert all(issubclass(kind, LogboomError) for kind in STATUSES)
    for code, kind in CODES.items():
        error = kind.__new__(kind)
        Exception.__init__(error, "so it is")
        if code == "config-error":
            error.key = "a.b"  # type: ignore[attr-defined]
        problem = problem_of(error)
        assert problem.code == code
        assert 400 <= problem.status < 600
        assert raw_problem(error).startswith(b"HTTP/1.1 %d " % problem.status)


def test_those_who_are_too_many_are_told_to_come_back(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        refusal = node.front_end.refusal
        assert refusal.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"retry-after: 1\r\n" in refusal
        assert b"limits.connections" in refusal

    tell(tmp_path, story)
