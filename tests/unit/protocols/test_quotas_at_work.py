"""Quotas on a real node, through every front-end: whoever takes too much waits, loses nothing, slows nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from logboom import Writer
from logboom.batch import build
from logboom.broker.api import Appended, Part, ReadRequest, Start
from logboom.broker.caller import ITSELF, Caller
from logboom.client.link.session import Event
from logboom.client.remote import RemoteBroker
from logboom.errors import LogboomError, QuotaExceeded, TopicNotFound
from logboom.protocols.binary.codec import Frame
from logboom.protocols.binary.messages import Kind
from support.nodes.metered import PASSWORD, MeteredNode, metered_node
from support.peers.logd import LogdPeer
from support.peers.served import LOOPS, run
from support.waiting import until

VALUE = b"x" * 1000
BOB = Caller("bob")
Story = Callable[[MeteredNode], Awaitable[None]]


def tell(path: Path, story: Story, loop: str = "asyncio") -> None:
    async def told() -> None:
        async with metered_node(path) as node:
            await story(node)

    run(told(), loop)


async def values(node: MeteredNode, topic: str = "events") -> list[bytes | None]:
    chunk = await node.broker.read(ReadRequest(topic, Start(seqno=0)), caller=ITSELF)
    return [record.value for record in chunk.records()]


async def append_each(broker: RemoteBroker, count: int) -> list[int]:
    """One batch after the other is sent, none waits for an answer; the seqnos they got."""
    futures = [broker.append([Part("events", [build([b"%d" % number, VALUE])])]) for number in range(count)]
    answers = [(await future)[0] for future in futures]
    return [answer.base_seqno for answer in answers if isinstance(answer, Appended)]


async def held_back(node: MeteredNode, who: str = "bob", **limits: int) -> None:
    """With such rates bob owes an hour of each, of what he has taken before."""
    await node.set(who, **limits)
    node.broker.quotas.charge(BOB, **{kind: 3600 * rate for kind, rate in limits.items()})


async def resting(node: MeteredNode, count: int = 1) -> None:
    await until(lambda: node.broker.quotas.resting == count)


@asynccontextmanager
async def logd(node: MeteredNode, user: str = "bob") -> AsyncIterator[LogdPeer]:
    where = node.at("logd")
    peer = LogdPeer(*await asyncio.open_connection(where.host, where.port))
    try:
        assert (await peer.ask(f"AUTH {user} {PASSWORD}\r\n".encode())).startswith(b"OK")
        yield peer
    finally:
        peer.writer.close()


def basic(user: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{PASSWORD}'.encode()).decode()}"}


def web(node: MeteredNode, user: str = "bob") -> httpx.AsyncClient:
    where = node.at("http")
    return httpx.AsyncClient(
        base_url=f"http://{where.host}:{where.port}", headers=basic(user), timeout=300, verify=False
    )


@pytest.mark.parametrize("loop", LOOPS)
def test_appends_over_the_binary_protocol_wait_and_keep_their_order(tmp_path: Path, loop: str) -> None:
    async def story(node: MeteredNode) -> None:
        await node.set("bob", bytes_in=50_000)
        async with node.connected("bob") as bob:
            assert await append_each(bob, 60) == list(range(0, 120, 2))
            await held_back(node, bytes_in=1)
            waiting = asyncio.ensure_future(append_each(bob, 60))  # what is read first may still be done
            await resting(node)
            await node.set("bob", bytes_in=10**9)
            assert await waiting == list(range(120, 240, 2))
        assert [value for value in await values(node) if value != VALUE] == [b"%d" % number for number in range(60)] * 2
        assert node.throttled_s["bytes_in"] > 0

    tell(tmp_path, story, loop)


def test_a_writer_loses_nothing_while_it_is_held_back(tmp_path: Path) -> None:
    def write(node: MeteredNode) -> None:
        with Writer("events", node.profile("bob")) as writer:
            for number in range(500):
                writer.write(b"%d" % number)

    async def story(node: MeteredNode) -> None:
        await held_back(node, records_in=1)
        writing = asyncio.ensure_future(asyncio.to_thread(write, node))
        await resting(node)
        await node.set("bob", records_in=10**6)
        await writing
        assert await values(node) == [b"%d" % number for number in range(500)]
        assert node.throttled_s["records_in"] > 0

    tell(tmp_path, story)


def test_a_connection_that_is_held_back_slows_nobody_else_and_is_freed_by_a_raised_quota(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        async with node.connected("eve") as eve:
            await held_back(node, records_in=1)
            async with node.connected("bob") as bob:
                waiting = asyncio.ensure_future(append_each(bob, 1))
                await resting(node)
                for number in range(20):
                    assert await append_each(eve, 1) == [2 * number]
                assert not waiting.done()
                await node.set("bob", records_in=10**9)
                assert await waiting == [40]
        assert node.throttled_s["records_in"] > 0

    tell(tmp_path, story)


def test_a_group_is_held_back_together(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await held_back(node, "group:analysts", records_in=1)
        async with node.connected("eve") as eve, node.connected("ann") as ann:
            waiting = asyncio.ensure_future(append_each(eve, 1))
            await resting(node)
            assert await append_each(ann, 3) == [0, 2, 4]
            assert not waiting.done()
            await node.broker.remove_quota("group:analysts", caller=ITSELF)
            assert await waiting == [6]

    tell(tmp_path, story)


def test_a_new_connection_does_not_get_around_what_is_owed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.protocols.stream_connection.REST_S", 0.02)

    async def story(node: MeteredNode) -> None:
        await held_back(node, records_in=1)
        for _ in range(3):
            async with node.connected("bob") as bob:
                waiting = asyncio.ensure_future(append_each(bob, 1))
                await resting(node)
            with pytest.raises(LogboomError):
                await waiting
            await resting(node, 0)
        with pytest.raises(TopicNotFound):
            await node.broker.describe_topic("events", caller=ITSELF)

    tell(tmp_path, story)


def test_requests_of_one_user_on_many_connections_are_counted_together(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        async with node.connected("bob") as one, node.connected("bob") as other:
            await node.set("bob", requests=1)
            pings = [asyncio.ensure_future(broker.ping()) for broker in (one, other) for _ in range(300)]
            await resting(node, 2)
            await node.set("bob", requests=10**6)
            await asyncio.gather(*pings)
        assert set(node.throttled_s) == {"requests"}

    tell(tmp_path, story)


def test_who_is_held_back_is_told_that_the_node_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.protocols.stream_connection.REST_S", 0.02)

    async def story(node: MeteredNode) -> None:
        heard: list[tuple[int, int]] = []
        await held_back(node, records_in=1)
        async with node.connected("bob") as bob:
            waiting = asyncio.ensure_future(bob.ping())
            session = bob._link._session
            event_of = session._event

            def listen(frame: Frame) -> Event | None:
                heard.append((frame.kind, frame.correlation))
                return event_of(frame)

            monkeypatch.setattr(session, "_event", listen)
            await until(lambda: len(heard) >= 2)
            assert set(heard) == {(Kind.PONG, 0)}
            assert not waiting.done()
            await node.broker.remove_quota("bob", caller=ITSELF)
            await waiting

    tell(tmp_path, story)


def test_a_subscription_over_the_binary_protocol_waits_and_loses_nothing(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        for number in range(20):
            await node.broker.append([Part("events", [build([b"%d" % number] * 5)])], caller=ITSELF)
        async with node.connected("bob") as bob:
            await held_back(node, records_out=1)
            subscription = await bob.subscribe(ReadRequest("events", Start(seqno=0), max_bytes=1))
            await resting(node)
            await bob.ping()  # what is owed for reading keeps nothing else waiting
            await node.set("bob", records_out=10**6)
            found: list[bytes | None] = []
            while len(found) < 100:
                found += [record.value for record in (await subscription.next()).records()]
            await subscription.close()
        assert found == await values(node)
        assert set(node.throttled_s) == {"records_out"}

    tell(tmp_path, story)


def test_one_connection_too_many_is_refused_over_the_binary_protocol(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await node.set("group:analysts", connections=2)
        async with node.connected("bob") as bob:
            async with node.connected("eve"):
                with pytest.raises(QuotaExceeded, match="quota of group:analysts gives 2 connections"):
                    await RemoteBroker.connect(node.profile("eve"), retry=False)
                async with node.connected("ann"):
                    await bob.ping()
            await until(lambda: node.broker.quotas._present["eve"] == 0)
            async with node.connected("eve") as eve:
                (usage,) = (await eve.whoami()).quotas
                assert usage.used == {"connections": 2}
        await until(lambda: not node.broker.quotas._present)
        assert node.broker.rejections["quota.connections"] == 1

    tell(tmp_path, story)


@pytest.mark.parametrize("loop", LOOPS)
def test_logd_commands_wait_and_are_answered_in_their_order(tmp_path: Path, loop: str) -> None:
    async def story(node: MeteredNode) -> None:
        async with logd(node) as peer:
            await held_back(node, records_in=1)
            for some in range(2):
                peer.send(b"".join(b"MSG events 3\r\n%03d\r\n" % (50 * some + number) for number in range(50)))
                await resting(node)
            await node.set("bob", records_in=10**6)
            assert [await peer.line() for _ in range(100)] == [b"OK %d 1" % number for number in range(100)]
        assert await values(node) == [b"%03d" % number for number in range(100)]
        assert set(node.throttled_s) == {"records_in"}

    tell(tmp_path, story, loop)


def test_signing_in_to_logd_anew_does_not_get_around_what_is_owed(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await held_back(node, records_in=1)
        for _ in range(3):
            async with logd(node) as peer:
                await resting(node)
                peer.send(b"MSG events 5\r\nhello\r\n")
                await node.broker.remove_quota("bob", caller=ITSELF)
                assert await peer.line() == b"OK 0 1"
                await held_back(node, records_in=1)
                await node.broker.delete_topic("events", caller=ITSELF)

    tell(tmp_path, story)


def test_logd_counts_commands_reads_and_connections(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await node.broker.append([Part("events", [build([VALUE] * 40)])], caller=ITSELF)
        await node.set("bob", connections=1)
        async with logd(node) as peer:
            where = node.at("logd")
            other = LogdPeer(*await asyncio.open_connection(where.host, where.port))
            assert await other.ask(f"AUTH bob {PASSWORD}\r\n".encode()) == b"ERR maximum connections allowed"
            assert await other.rest() == b""
            other.writer.close()
            await held_back(node, requests=1)
            peer.send(b"PING\r\n")
            await resting(node)
            await held_back(node, records_out=1)  # the connection is read again, and the read waits
            peer.send(b"READ events 0 40\r\n")
            assert await peer.line() == b"PONG"
            await until(lambda: node.broker.quotas.throttled["records_out"] == 1)
            await node.broker.remove_quota("bob", caller=ITSELF)
            assert len(await peer.values()) == 40
        assert set(node.throttled_s) == {"requests", "records_out"}
        await until(lambda: not node.broker.quotas._present)

    tell(tmp_path, story)


def test_http_requests_wait_before_they_are_done(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        async with web(node) as bob, web(node, "eve") as eve:
            await held_back(node, records_in=1)
            writing = [asyncio.ensure_future(bob.post("/topics/events/records", json=[1, 2])) for _ in range(3)]
            await resting(node, 3)
            assert (await bob.get("/topics")).json()["topics"] == []  # a request that brings nothing in
            assert (await eve.post("/topics/events/records", json=3)).json()["seqnos"] == [0]
            await node.set("bob", records_in=10**6)
            seqnos = [seqno for answer in await asyncio.gather(*writing) for seqno in answer.json()["seqnos"]]
            assert sorted(seqnos) == list(range(1, 7))
            await held_back(node, requests=1)
            asking = asyncio.ensure_future(bob.get("/topics/events"))
            await resting(node)
            await held_back(node, records_out=1)
            assert (await asking).status_code == 200
            reading = asyncio.ensure_future(bob.get("/topics/events/records?from=0"))
            await resting(node)
            await node.broker.remove_quota("bob", caller=ITSELF)
            assert len((await reading).json()["records"]) == 7
        assert set(node.throttled_s) == {"records_in", "requests", "records_out"}

    tell(tmp_path, story)


def test_what_is_held_back_over_http_takes_no_more_memory_than_the_node_allows(tmp_path: Path) -> None:
    async def story() -> None:
        async with metered_node(tmp_path, **{"limits.receive_bytes": "1MiB"}) as node, web(node) as bob:
            await held_back(node, records_in=1)
            writing = [asyncio.ensure_future(bob.post("/topics/events/records", json=1)) for _ in range(20)]
            await resting(node, 16)
            await until(lambda: sum(each.done() for each in writing) == 4)
            refused = [each.result() for each in writing if each.done()]
            assert {answer.json()["data"]["limit"] for answer in refused} == {"limits.receive_bytes"}
            await node.broker.remove_quota("bob", caller=ITSELF)
            answers = await asyncio.gather(*writing)
            assert sorted(answer.status_code for answer in answers) == [200] * 16 + [429] * 4
            assert node.node._fronts["http"].held_bytes == 0  # type: ignore[attr-defined]

    run(story())


def test_a_client_that_goes_away_while_it_is_held_back_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await node.broker.append([Part("events", [build([VALUE])])], caller=ITSELF)
        await held_back(node, records_in=1, records_out=1)
        where, head = node.at("http"), f"Host: localhost\r\nAuthorization: {basic('bob')['Authorization']}\r\n"
        writers = []
        for line, body in (("GET /topics/events/records?from=0", ""), ("POST /topics/events/records", "[1]")):
            _, writer = await asyncio.open_connection(where.host, where.port)
            writer.write(f"{line} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            writers.append(writer)
        await resting(node, 2)
        for writer in writers:
            writer.transport.abort()
        await resting(node, 0)
        assert (await node.broker.describe_topic("events", caller=ITSELF)).partitions[0].committed == 1
        await until(lambda: not node.broker.quotas._present)

    tell(tmp_path, story)


def test_streams_that_nobody_reads_any_more_end_at_once_where_there_are_quotas(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await node.broker.append([Part("events", [build([VALUE] * 5000)])], caller=ITSELF)
        await node.set("eve", requests=1000)
        front, counts = node.node._fronts["http"], node.broker._reading.counts
        where, head = node.at("http"), f"Host: localhost\r\nAuthorization: {basic('bob')['Authorization']}\r\n"
        for target, accept in (("tail?from=0", "*/*"), ("tail", "*/*"), ("records?from=0", "application/x-ndjson")):
            reader, writer = await asyncio.open_connection(where.host, where.port)
            writer.write(f"GET /topics/events/{target} HTTP/1.1\r\n{head}Accept: {accept}\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            writer.transport.abort()
            await until(lambda: not front.state.tasks)  # type: ignore[attr-defined]
            await until(lambda: not counts.subscriptions)

    tell(tmp_path, story)


def test_a_request_whose_client_is_gone_before_it_is_known_who_sent_it_counts_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(node: MeteredNode) -> None:
        sign_in, asked, goes_on = node.broker.sign_in, asyncio.Event(), asyncio.Event()
        with_password = sign_in.with_password

        async def slowly(caller: Caller, user: str, password: str) -> Caller:
            asked.set()
            await goes_on.wait()
            return await with_password(caller, user, password)

        monkeypatch.setattr(sign_in, "with_password", slowly)
        where, head = node.at("http"), f"Host: localhost\r\nAuthorization: {basic('bob')['Authorization']}\r\n"
        _, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(f"POST /topics/events/records HTTP/1.1\r\n{head}Content-Length: 3\r\n\r\n[1]".encode())
        await asked.wait()
        writer.transport.abort()
        front = node.node._fronts["http"]
        await until(lambda: not front.connections)
        goes_on.set()
        await until(lambda: not front.state.tasks)  # type: ignore[attr-defined]
        assert not node.broker.quotas._present

    tell(tmp_path, story)


def test_one_connection_too_many_over_http_is_told_so_and_closed(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await node.set("bob", connections=1)
        async with web(node) as one, web(node) as other:
            assert (await one.get("/topics")).status_code == 200
            refused = await other.get("/topics")
            assert (refused.status_code, refused.headers["connection"]) == (429, "close")
            assert refused.json()["code"] == "quota-exceeded"
            assert "quota of bob gives 1 connections" in refused.json()["detail"]
            assert (await one.get("/topics")).status_code == 200
            assert (await other.get("/topics", headers=basic("eve"))).status_code == 200
        await until(lambda: not node.broker.quotas._present)

    tell(tmp_path, story)


def test_logd_over_http_waits_too(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        async with web(node) as bob:
            await node.set("bob", requests=1)
            headers = {"Content-Type": "application/logd"}
            asking = asyncio.ensure_future(bob.post("/log", content=b"PING\r\n" * 1000, headers=headers))
            await resting(node)
            await node.broker.remove_quota("bob", caller=ITSELF)
            assert (await asking).content == b"PONG\r\n" * 1000

    tell(tmp_path, story)


def test_who_rests_does_not_hold_up_the_end_of_the_node(tmp_path: Path) -> None:
    async def story(node: MeteredNode) -> None:
        await node.broker.append([Part("events", [build([VALUE])])], caller=ITSELF)
        async with node.connected("bob") as bob:
            await held_back(node, records_out=1)
            reading = asyncio.ensure_future(bob.read(ReadRequest("events", Start(seqno=0))))
            await resting(node)
            await node.node.close(10.0)
            assert (await reading).record_count == 1

    tell(tmp_path, story)
