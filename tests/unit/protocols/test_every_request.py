"""Every operation of HTTP and every command of logd, by every kind of caller: what the broker says of it, in its words.

The tables are held against the description of the API and the words of the codec: what is new fails here until it has
said what it asks for. Whoever may not know of a topic is told the same, to the byte, while it is there and when it is
gone, and the same of a topic that never was.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from logboom.broker.caller import ITSELF
from logboom.errors import LogboomError, SignInRequired, TopicNotFound, code_of
from logboom.protocols.http.api.operations import ALL
from logboom.protocols.http.problem import STATUSES
from logboom.protocols.http.schema.openapi import document
from logboom.protocols.logd.errors import reason_of
from logboom.protocols.logd.requests import WORDS
from logboom.server.node import Node
from support.callers.closed_node import address, closed_node
from support.callers.everybody import HIDING, PASSWORD, TOPIC, Visitor, invite, refusal
from support.callers.gateway import http_gateway
from support.callers.http_requests import HTTP, HttpRequest
from support.callers.logd_lines import LOGD, LogdLine
from support.nodes.guarded import OWN
from support.nodes.web import plain_client

REFUSED = ("sign-in-required", "sign-in-failed", "not-allowed", "origin-not-allowed", "not-private")
REFUSED_LINES = (b"ERR sign-in", b"ERR not allowed")
REQUESTS = [(name, number) for name, requests in HTTP.items() for number in range(len(requests))]
LINES = [(word, number) for word, lines in LOGD.items() for number in range(len(lines))]
ABSENT = "absent"
"""As long as TOPIC."""


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    def code(self) -> str:
        is_problem = self.headers.get("content-type") == "application/problem+json"
        return str(httpx.Response(self.status, text=self.body).json()["code"]) if is_problem else ""


@cache
def methods() -> dict[str, str]:
    """Of every operation that the description has."""
    described = document(ALL)["paths"].values()
    return {operation["operationId"]: method for path in described for method, operation in path.items()}


def test_every_operation_and_every_command_is_in_a_table() -> None:
    assert set(HTTP) == set(methods())
    assert set(LOGD) == set(WORDS)


def authorization(visitor: Visitor) -> dict[str, str]:
    if visitor.token:
        return {"Authorization": f"Bearer {visitor.token}"}
    shown = base64.b64encode(f"{visitor.user}:{PASSWORD}".encode()).decode()
    return {"Authorization": f"Basic {shown}"} if visitor.user else {}


@asynccontextmanager
async def browsing(node: Node, visitor: Visitor) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has signed in."""
    async with plain_client(f"http://{address(node, 'http')}") as client:
        client.headers.update(OWN)
        answer = await client.post("/access/session", json={"user": visitor.user, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        yield client


async def request(
    client: httpx.AsyncClient, name: str, asked: HttpRequest, visitor: Visitor, topic: str = TOPIC, method: str = ""
) -> Told:
    said = {"Content-Type": asked.media, "Idempotency-Key": asked.idempotency_key}
    headers = {name: value for name, value in said.items() if value} | authorization(visitor)
    path = asked.path.replace(TOPIC, topic)
    given: dict[str, Any] = {"json": asked.json} if asked.json is not None else {"content": asked.content}
    async with client.stream(method or methods()[name].upper(), path, headers=headers, **given) as answer:
        is_endless = answer.headers.get("content-type", "").startswith("text/event-stream")
        body = b"" if is_endless else await answer.aread()
    shown = {name: value for name, value in answer.headers.items() if name != "date"}
    return Told(answer.status_code, shown, body.decode("utf-8", "replace"))


def check_answer(told: Told, expected: LogboomError | None, asked: HttpRequest, kind: str) -> None:
    if expected is None:
        assert told.code() not in REFUSED, (kind, told)
    elif isinstance(expected, TopicNotFound) and asked.hidden is not None:
        assert (told.status, told.code()) == asked.hidden, (kind, told)
    else:
        problem = httpx.Response(told.status, text=told.body).json()
        shown = told.status, problem["status"], problem["code"], problem["detail"]
        status = next(STATUSES[each] for each in type(expected).__mro__ if each in STATUSES)
        assert shown == (status, status, code_of(expected), str(expected)), kind


@pytest.mark.parametrize(("name", "number"), REQUESTS)
def test_over_http(name: str, number: int, tmp_path: Path) -> None:
    asked = HTTP[name][number]

    async def story() -> None:
        async with closed_node(tmp_path) as node, plain_client(f"http://{address(node, 'http')}") as client:
            visitors = await invite(node.broker, asked.asked)
            async with browsing(node, visitors["removed"]) as removed:
                await node.broker.remove_user("removed", caller=ITSELF)
                told = await request(removed, name, asked, Visitor("removed"))
                check_answer(told, SignInRequired() if asked.asked else None, asked, "a session of who was removed")
            gone = visitors.pop("removed")
            before = {}
            for kind, visitor in visitors.items():
                expected = refusal(visitor, asked.asked)
                if asked.for_oneself and visitor.kind != "anonymous" and not visitor.token:
                    expected = None
                if methods()[name] == "get":
                    head = await request(client, name, asked, visitor, method="HEAD")
                before[kind] = told = await request(client, name, asked, visitor)
                check_answer(told, expected, asked, kind)
                if methods()[name] == "get":
                    assert (head.status, head.body) == (told.status, ""), kind
            await compare_hidden(node, client, visitors, before)
            told = await request(client, name, asked, gone)  # the last: those after it would wait
            assert (told.status, told.code()) == (401, "sign-in-failed")

    async def compare_hidden(
        node: Node, client: httpx.AsyncClient, visitors: dict[str, Visitor], before: dict[str, Told]
    ) -> None:
        if TOPIC in [info.name for info in await node.broker.list_topics(caller=ITSELF)]:
            await node.broker.delete_topic(TOPIC, caller=ITSELF)
        hiding = [visitors[kind] for kind in HIDING if kind in visitors]
        for visitor in (each for each in hiding if isinstance(refusal(each, asked.asked), TopicNotFound)):
            assert await request(client, name, asked, visitor) == before[visitor.kind]
            if TOPIC in asked.path:
                never = await request(client, name, asked, visitor, ABSENT)
                assert never._replace(body=never.body.replace(ABSENT, TOPIC)) == before[visitor.kind]

    asyncio.run(story())


@pytest.mark.parametrize(("name", "number"), REQUESTS)
def test_over_http_on_a_gateway(name: str, number: int, tmp_path: Path) -> None:
    asked = HTTP[name][number]

    async def story() -> None:
        async with closed_node(tmp_path) as node:
            visitors = await invite(node.broker, asked.asked)
            del visitors["removed"]
            async with http_gateway(node) as client:
                for kind, visitor in visitors.items():
                    expected = refusal(visitor, asked.asked)
                    if asked.for_oneself and visitor.kind != "anonymous" and not visitor.token:
                        expected = None
                    check_answer(await request(client, name, asked, visitor), expected, asked, kind)

    asyncio.run(story())


class LogdVisitor:
    """Somebody on a connection of logd."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, node: Node, visitor: Visitor) -> LogdVisitor:
        host, _, port = address(node, "logd").rpartition(":")
        caller = cls(*await asyncio.open_connection(host, int(port)))
        if visitor.user:
            shown = visitor.token or f"{visitor.user} {PASSWORD}"
            assert await caller.ask(f"AUTH {shown}\r\n".encode()) == b"OK 0 0\r\n"
        return caller

    async def ask(self, data: bytes) -> bytes:
        """The first line of the answer."""
        self._writer.write(data)
        return await self._reader.readline()

    async def close(self) -> None:
        self._writer.close()


def check_line(told: bytes, expected: LogboomError | None, kind: str) -> None:
    if expected is None:
        assert told, kind
        assert not told.startswith(REFUSED_LINES), (kind, told)
    else:
        assert told == b"ERR %b\r\n" % reason_of(expected), kind


@pytest.mark.parametrize(("word", "number"), LINES)
def test_over_logd(word: bytes, number: int, tmp_path: Path) -> None:
    line = LOGD[word][number]

    async def told(node: Node, visitor: Visitor, data: bytes) -> bytes:
        caller = await LogdVisitor.connect(node, visitor)
        try:
            return await caller.ask(data)
        finally:
            await caller.close()

    async def story() -> None:
        async with closed_node(tmp_path) as node:
            visitors = await invite(node.broker, line.asked)
            removed = await LogdVisitor.connect(node, visitors["removed"])
            await node.broker.remove_user("removed", caller=ITSELF)
            check_line(await removed.ask(line.data), refusal(visitors.pop("removed"), line.asked), "removed")
            await removed.close()
            for visitor in visitors.values():
                check_line(await told(node, visitor, line.data), refusal(visitor, line.asked), visitor.kind)
            await node.broker.delete_topic(TOPIC, caller=ITSELF)
            for visitor in (visitors[kind] for kind in HIDING if kind in visitors):
                check_line(await told(node, visitor, line.data), refusal(visitor, line.asked), visitor.kind)

    asyncio.run(story())


@pytest.mark.parametrize("place", ["node", "gateway"])
@pytest.mark.parametrize(("word", "number"), [each for each in LINES if not LOGD[each[0]][each[1]].is_endless])
def test_over_logd_by_way_of_http(word: bytes, number: int, place: str, tmp_path: Path) -> None:
    line = LOGD[word][number]
    if place == "gateway" and word in (b"DELETED", b"SHUTDOWN"):
        return  # which only a node has

    async def told(client: httpx.AsyncClient, visitor: Visitor, line: LogdLine) -> bytes:
        headers = {"Content-Type": "application/logd", **authorization(visitor)}
        answer = await client.post("/log", content=line.data, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.content.partition(b"\n")[0] + b"\n"

    async def story() -> None:
        async with closed_node(tmp_path) as node:
            visitors = await invite(node.broker, line.asked)
            del visitors["removed"]
            url = f"http://{address(node, 'http')}"
            async with http_gateway(node) if place == "gateway" else plain_client(url) as client:
                for visitor in visitors.values():
                    check_line(await told(client, visitor, line), refusal(visitor, line.asked), visitor.kind)

    asyncio.run(story())
