"""Validators over HTTP: every way a server can answer, or not; met in the process and by a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom import AsyncWriter
from logboom.batch import build
from logboom.broker.allowances import Allowances
from logboom.broker.api import Answer, Appended, Part, ReadRequest, Settings
from logboom.broker.append.validator_address import ValidatorRules
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import LogboomError, RecordsRejected, ValidatorFailed, ValidatorNotAllowed
from logboom.protocols.binary.front_end import BinaryFrontEnd, Identity
from logboom.server.webhooks import ANSWER_BYTES, REASON_CHARACTERS, WebHooks, find_reason
from logboom.storage.data.topic import ValidatorSettings

NOWHERE = ("http://127.0.0.1:1/", "http://xn--a/", "http://a..b/")


class Hooks:
    """A server that answers as the path says."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.connections = self.now = self.most = 0
        self.slow = asyncio.Event()
        self.written = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (text.partition(": ") for text in rest)}
        body = msgspec.json.decode(await reader.readexactly(int(headers["content-length"])))
        path = line.split()[1]
        self.seen.append((path, headers, body))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._say(path.partition("?")[0], body, writer)
        finally:
            self.now -= 1

    async def _say(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool:
        if path == "/judge":
            value = body["records"][0]["value"]
            if value == "slow":
                await self.slow.wait()
            writer.write(answer(422, b'{"reason": "bad is not allowed"}') if value == "bad" else answer(204))
        elif path == "/slow":
            await self.slow.wait()
            writer.write(answer(200))
        elif path == "/silent":
            await asyncio.Event().wait()
        elif path == "/hang-up":
            return False
        elif path == "/once":
            writer.write(answer(200))
            return False
        elif path == "/redirect":
            writer.write(answer(302, b"", "Location: /judge\r\n"))
        elif path == "/broken":
            writer.write(answer(500, b"Traceback\nmost recent call last"))
        elif path == "/noise":
            writer.write(b"what is HTTP?\r\n\r\n")
            return False
        else:
            await self._flood(writer)
        return True

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        """An answer without an end."""
        writer.write(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            self.written += 0x4000
            await writer.drain()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def answer(status: int, body: bytes = b"", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} Words\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def hooked(path: Path) -> AsyncIterator[tuple[LocalBroker, Hooks]]:
    hooks = Hooks()
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(hooks.serve(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    hooks.port = server.sockets[0].getsockname()[1]
    rules = ValidatorRules(
        (hooks.url("/"), f"http://localhost:{hooks.port}", f"http://far.test:{hooks.port}", *NOWHERE)
    )
    validators = WebHooks(rules)
    broker = await LocalBroker.open(
        str(path), BrokerConfig(allowed=Allowances(validators=rules)), validators=validators
    )
    try:
        yield broker, hooks
    finally:
        await broker.close(2.0)
        await validators.close()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks) if tasks else None


def tell(path: Path, story: Callable[[LocalBroker, Hooks], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), hooked(path) as (broker, hooks):
            await story(broker, hooks)

    asyncio.run(run())


def asking(url: str, **more: Any) -> Settings:
    return Settings(validators=ValidatorSettings((url,), **more))


async def send(broker: LocalBroker, value: bytes = b"a", topic: str = "t") -> Answer:
    (found,) = await broker.append([Part(topic, [build([value])])])
    return found


def test_an_answer_of_2xx_accepts_and_every_other_refuses_with_its_reason(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url("/judge")))
        assert isinstance(await send(broker, b"good"), Appended)
        refused = await send(broker, b"bad")
        assert isinstance(refused, RecordsRejected)
        assert (refused.status, refused.reason) == (422, "bad is not allowed")
        path, headers, body = hooks.seen[0]
        assert (path, headers["content-type"], body["topic"]) == ("/judge", "application/json", "t")
        assert headers["user-agent"].startswith("logboom/")

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [("/redirect", 302, "Words"), ("/broken", 500, "Traceback most recent call last")],
)
def test_redirects_and_errors_of_the_server_refuse(path: str, status: int, reason: str, tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url(path), on_failure="accept"))
        refused = await send(broker)
        assert isinstance(refused, RecordsRejected)
        assert (refused.status, refused.reason) == (status, reason)
        assert [path for path, _, _ in hooks.seen] == [path]

    tell(tmp_path, story)


@pytest.mark.parametrize("path", ["/silent", "/hang-up", "/noise", *NOWHERE])
def test_a_server_that_does_not_answer_refuses_or_accepts_as_the_topic_says(path: str, tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        url = hooks.url(path) if path.startswith("/") else path
        await broker.create_topic("t", 1, asking(url, timeout_ms=200))
        failed = await send(broker)
        assert isinstance(failed, ValidatorFailed)
        assert failed.url == url
        assert failed.reason
        await broker.configure_topic("t", asking(url, timeout_ms=200, on_failure="accept"))
        assert isinstance(await send(broker), Appended)

    tell(tmp_path, story)


def test_an_answer_without_an_end_is_read_no_further_than_needed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url("/flood")))
        refused = await send(broker)
        assert isinstance(refused, RecordsRejected)
        assert refused.reason == "x" * REASON_CHARACTERS
        while hooks.now:  # the connection is closed, not read on
            await asyncio.sleep(0.005)

    tell(tmp_path, story)


def test_a_name_is_resolved_asked_by_its_name_and_connected_to_where_that_was_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        loop = asyncio.get_running_loop()
        found: list[str] = []

        async def lookup(host: str, port: int, **more: Any) -> list[Any]:
            """As a name server would that somebody else has in his hands: a second look finds another address."""
            address = "127.0.0.1" if not found else "169.254.169.254"
            found.append(host)
            return [(2, 1, 6, "", (address, port))]

        monkeypatch.setattr(type(loop), "getaddrinfo", lambda loop, *some, **more: lookup(*some, **more))
        await broker.create_topic("t", 1, asking(f"http://FAR.test:{hooks.port}/judge?a=b%20c", on_failure="accept"))
        assert isinstance(await send(broker), Appended)
        path, headers, _ = hooks.seen[0]
        assert (found, path, headers["host"]) == (["far.test"], "/judge?a=b%20c", f"far.test:{hooks.port}")
        assert isinstance(await send(broker), Appended)  # over the connection that is there
        await broker.create_topic("anew", 1, asking(f"http://far.test:{hooks.port}/once", on_failure="accept"))
        assert isinstance(await send(broker, topic="anew"), Appended)  # and this one the server closes
        refused = await send(broker, topic="anew")
        assert isinstance(refused, ValidatorNotAllowed)
        assert "far.test is at 169.254.169.254" in refused.reason
        assert found == ["far.test"] * 2

    tell(tmp_path, story)


def test_of_several_addresses_the_next_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        loop = asyncio.get_running_loop()

        async def lookup(host: str, port: int, **more: Any) -> list[Any]:
            return [(2, 1, 6, "", (address, port)) for address in ("169.254.169.254", "127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(type(loop), "getaddrinfo", lambda loop, *some, **more: lookup(*some, **more))
        await broker.create_topic("t", 1, asking(f"http://localhost:{hooks.port}/judge"))
        assert isinstance(await send(broker), Appended)

    tell(tmp_path, story)


def test_what_is_not_listed_is_not_asked_even_by_whoever_asks(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        with pytest.raises(PermissionError, match="not allowed"):
            await WebHooks(ValidatorRules()).ask(hooks.url("/judge"), b"{}", 1.0)
        assert hooks.connections == 0

    tell(tmp_path, story)


def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_replaced(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url("/judge")))
        await broker.create_topic("once", 1, asking(hooks.url("/once")))
        for _ in range(3):
            assert isinstance(await send(broker), Appended)
        assert hooks.connections == 1
        for _ in range(3):
            assert isinstance(await send(broker, topic="once"), Appended)

    tell(tmp_path, story)


def test_no_more_requests_are_under_way_than_the_topic_allows(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url("/slow"), concurrency=2))
        appends = [asyncio.ensure_future(send(broker)) for _ in range(6)]
        while hooks.now < 2:
            await asyncio.sleep(0.005)
        hooks.slow.set()
        assert all(isinstance(found, Appended) for found in await asyncio.gather(*appends))
        assert hooks.most == 2

    tell(tmp_path, story)


def test_closing_leaves_a_validator_that_hangs(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url("/silent"), timeout_ms=600_000))
        append = asyncio.ensure_future(send(broker))
        while not hooks.now:
            await asyncio.sleep(0.005)
        await broker.close(0.5)
        assert isinstance(await append, LogboomError)

    tell(tmp_path, story)


def test_a_writer_learns_of_the_refusal_and_keeps_the_order_of_the_rest(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, hooks: Hooks) -> None:
        await broker.create_topic("t", 1, asking(hooks.url("/judge")))
        identity = Identity(broker.node.node_id, broker.node.cluster_id)
        front_end = BinaryFrontEnd(broker, broker.limits, broker.rejections, None, "test", identity)
        server = await asyncio.get_running_loop().create_server(front_end.factory, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncWriter("t", address, batch_bytes=1) as writer:
            outcomes: list[Any] = []
            for value in (b"slow", b"1", b"bad", b"3", b"bad", b"5"):
                await writer.write(value, callback=outcomes.append)
            while not hooks.now:
                await asyncio.sleep(0.005)
            hooks.slow.set()
            await writer.flush()
            refused = [outcome for outcome in outcomes if isinstance(outcome, LogboomError)]
            assert [type(error) for error in refused] == [RecordsRejected, RecordsRejected]
            assert "bad is not allowed" in str(refused[0])
        chunk = await broker.read(ReadRequest("t"))
        assert [record.value for record in chunk.records()] == [b"slow", b"1", b"3", b"5"]
        server.close()
        await front_end.close(1.0)

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"reason": "a", "detail": "b"}', "a"),
        (b'{"title": "t", "detail": "too\\nlong"}', "too long"),
        (b'{"error": "e"}', "e"),
        (b'{"error": {"code": 7}}', '{"error": {"code": 7}}'),
        (b" plain\ttext\x1b[2J ", "plain text [2J"),
        (b"\xff", "\ufffd"),
        (b"", ""),
        (b"[" * ANSWER_BYTES, "[" * REASON_CHARACTERS),
        (b"y" * 2000, "y" * REASON_CHARACTERS),
    ],
)
def test_a_reason_is_found_in_json_or_is_the_text_on_one_short_line(body: bytes, reason: str) -> None:
    assert find_reason(body) == reason
