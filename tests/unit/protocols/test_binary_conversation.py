"""What is asked and answered, over a real socket."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import Broker, ReadRequest, Settings, Start
from logboom.broker.limits import Limits
from logboom.protocols.binary import messages
from logboom.protocols.binary.append_run import BATCHES_MAX
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, encode
from logboom.protocols.binary.handler import METHODS, REQUESTS_MAX
from logboom.protocols.binary.messages import Append, AppendPart, Credit, Hello, Kind, Read
from support.brokers.memory import MemoryBroker
from support.peers.binary import IDENTITY, serve
from support.peers.binary import BinaryPeer as Peer
from support.peers.served import LOOPS, run

ONE = build([b"a"]).data
THREE = build([b"a", b"b", b"c"]).data


def append(*sizes: int, topic: str = "events", acks: Any = None, expect_seqno: int | None = None) -> Append:
    return Append([AppendPart(topic, size, None, expect_seqno) for size in sizes], acks)


async def events() -> MemoryBroker:
    broker = MemoryBroker()
    await broker.create_topic("events")
    return broker


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hello_is_answered_with_who_is_here_and_what_is_allowed(loop: str) -> None:
    async def story() -> None:
        async with serve(await events(), Limits(batch_bytes=4096)) as node:
            peer = await node.peer(hello=False)
            kind, correlation, head, _ = await peer.ask(Kind.HELLO, 7, Hello(topics=["events", "nothing"]))
            assert (kind, correlation) == (Kind.WELCOME, 7)
            welcome = msgspec.convert(head, messages.Welcome)
            assert (welcome.node_id, welcome.cluster_id) == IDENTITY
            assert (welcome.version, welcome.directory, welcome.server) == (1, "/data", "logboom/test")
            assert welcome.limits.batch_bytes == 4096
            assert [topic.name for topic in welcome.topics] == ["events"]

    run(story(), loop)


def test_a_welcome_is_never_longer_than_a_first_frame() -> None:
    async def story() -> None:
        broker = MemoryBroker()
        names = [f"{'long' * 50}-{number}" for number in range(250)]
        for name in names:
            await broker.create_topic(name)
        async with serve(broker) as node:
            peer = await node.peer(hello=False)
            _, _, head, _ = await peer.ask(Kind.HELLO, 1, Hello(topics=names))
            assert 0 < len(head["topics"]) < 250
            assert len(msgspec.msgpack.encode(head)) < FRAME_BYTES_FIRST

    run(story())


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (Hello(version_min=2, version_max=9), "unsupported-version"),
        (Hello(version_min=0, version_max=0), "unsupported-version"),
        (Hello(cluster_id="another"), "wrong-cluster"),
    ],
)
def test_a_hello_we_cannot_agree_with_is_answered_and_ends_the_connection(hello: Hello, code: str) -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer(hello=False)
            kind, correlation, head, _ = await peer.ask(Kind.HELLO, 5, hello)
            assert (kind, correlation, head["code"]) == (Kind.ERROR, 5, code)
            assert await peer.is_closed()

    run(story())


def test_a_client_may_speak_newer_versions_too_and_say_what_we_do_not_know() -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer(hello=False)
            kind, *_ = await peer.ask(
                Kind.HELLO, 1, {"version_max": 4, "mood": "fine", "cluster_id": IDENTITY.cluster_id}
            )
            assert kind == Kind.WELCOME

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_each_append_gets_its_own_answer_from_one_call_of_the_broker(loop: str) -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            frames = [encode(Kind.APPEND, 10 + n, append(len(ONE) + len(THREE)), [ONE, THREE]) for n in range(3)]
            peer.writer.write(b"".join(piece for frame in frames for piece in frame))
            for number in range(3):
                kind, correlation, head, _ = await peer.receive()
                assert (kind, correlation) == (Kind.APPENDED, 10 + number)
                answers = msgspec.convert(head, messages.Appends).answers
                assert [answer and answer.base_seqno for answer in answers] == [4 * number, 4 * number + 1]
        assert len(broker.appends) == 1
        ((parts, acks),) = broker.appends
        assert (len(parts), len(parts[0].batches), acks) == (1, 6, None)

    run(story(), loop)


def test_what_does_not_go_together_is_appended_in_order_all_the_same() -> None:
    async def story() -> None:
        broker = await events()
        await broker.create_topic("others")
        async with serve(broker) as node:
            peer = await node.peer()
            heads = [
                append(len(ONE), acks="leader"),
                append(len(ONE), topic="others", acks="leader"),
                append(len(ONE), acks="leader", expect_seqno=1),
                append(len(ONE), acks="leader"),
                append(len(ONE), acks="durable"),
            ]
            frames = [encode(Kind.APPEND, 10 + number, head, [ONE]) for number, head in enumerate(heads)]
            peer.writer.write(b"".join(piece for frame in frames for piece in frame))
            seqnos = [(await peer.receive())[2][0][0][0] for _ in heads]
        assert seqnos == [0, 0, 1, 2, 3]
        assert [acks for _, acks in broker.appends] == [*["leader"] * 4, "durable"]
        assert [(part.topic, part.expect_seqno) for (part,), _ in broker.appends] == [
            ("events", None),
            ("others", None),
            ("events", 1),
            ("events", None),
            ("events", None),
        ]

    run(story())


def test_a_bad_batch_fails_alone() -> None:
    async def story() -> None:
        broken_body = bytearray(THREE)
        broken_body[-1] ^= 1
        broken_header = bytearray(THREE)
        broken_header[50] ^= 1
        async with serve(await events()) as node:
            peer = await node.peer()
            size = len(ONE) + len(THREE) + len(ONE)
            _, _, head, _ = await peer.ask(Kind.APPEND, 2, append(size), [ONE, broken_body, ONE])
            found = msgspec.convert(head, messages.Appends)
            assert [answer and answer.base_seqno for answer in found.answers] == [0, None, 1]
            assert {number: failure.code for number, failure in found.failures.items()} == {1: "body-corrupt"}

            _, _, head, _ = await peer.ask(Kind.APPEND, 3, append(size, len(ONE)), [ONE, broken_header, ONE, ONE])
            found = msgspec.convert(head, messages.Appends)
            assert [answer and answer.base_seqno for answer in found.answers] == [2, None, 3]
            assert {number: failure.code for number, failure in found.failures.items()} == {1: "header-corrupt"}
            assert node.rejections["HeaderCorrupt"] == 1

    run(story())


def test_an_unknown_topic_fails_its_own_part() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            head = Append([AppendPart("nothing", len(ONE)), AppendPart("events", len(ONE))])
            _, _, answer, _ = await peer.ask(Kind.APPEND, 2, head, [ONE, ONE])
            found = msgspec.convert(answer, messages.Appends)
            assert [answer and answer.base_seqno for answer in found.answers] == [None, 0]
            assert found.failures[0].code == "topic-not-found"
            assert found.failures[0].data == {"name": "nothing"}

    run(story())


def test_appends_with_acks_none_get_no_answer_and_their_failures_are_counted() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.APPEND, 2, append(len(ONE), acks="none"), [ONE])
            peer.send(Kind.APPEND, 3, append(len(ONE), topic="nothing", acks="none"), [ONE])
            assert await peer.is_silent()
            assert len(broker.logs["events"].batches) == 1
            assert node.rejections["unanswered"] == 1

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_promise_is_answered_when_it_is_kept_in_whatever_order(loop: str) -> None:
    async def story() -> None:
        broker = await events()
        broker.hold = True
        async with serve(broker) as node:
            peer = await node.peer()
            for number, acks in enumerate(("leader", "durable", "leader")):
                peer.send(Kind.APPEND, 10 + number, append(len(ONE), acks=acks), [ONE])
            assert await peer.is_silent()
            for number, correlation in ((2, 12), (0, 10), (0, 11)):
                broker.release(number)
                assert (await peer.receive())[:2] == (Kind.APPENDED, correlation)

    run(story(), loop)


def test_what_waits_for_its_promise_is_not_written_over_by_what_comes_next() -> None:
    async def story() -> None:
        broker = await events()
        broker.hold = True
        async with serve(broker) as node:
            peer = await node.peer()
            sent = [build([bytes([number]) * 1000]).data for number in range(200)]
            for number, batch in enumerate(sent):
                peer.send(Kind.APPEND, 10 + number, append(len(batch)), [batch])
                if number % 20 == 0:
                    assert await peer.is_silent()
            assert await peer.is_silent()
            kept = [bytes(batch.data) for parts, _ in broker.appends for part in parts for batch in part.batches]
            assert kept == [bytes(batch) for batch in sent]

    run(story())


def test_an_append_that_contradicts_itself_ends_the_connection() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            for head in (append(len(ONE) - 8), append(len(ONE) + 8), append(-8), append(len(ONE), 8), append()):
                peer = await node.peer()
                peer.send(Kind.APPEND, 2, append(len(ONE)), [ONE])
                kind, correlation, failure, _ = (await peer.receive(), await peer.ask(Kind.APPEND, 3, head, [ONE]))[1]
                assert (kind, correlation, failure["code"]) == (Kind.ERROR, 0, "remote-protocol-error")
                assert await peer.is_closed()
        assert len(broker.logs["events"].batches) == 5

    run(story())


def test_a_frame_holds_no_more_batches_than_is_sensible() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            count = BATCHES_MAX + 1
            kind, correlation, failure, _ = await peer.ask(
                Kind.APPEND, 2, append(len(ONE) * count), [bytes(ONE) * count]
            )
            assert (kind, correlation, failure["code"]) == (Kind.ERROR, 2, "limit-exceeded")
            assert await peer.is_silent()

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_read_gets_batches_as_they_were_stored(loop: str) -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            await peer.ask(Kind.APPEND, 2, append(len(ONE) + len(THREE)), [ONE, THREE])
            kind, correlation, head, payload = await peer.ask(Kind.READ, 3, Read(ReadRequest("events")))
            assert (kind, correlation, payload) == (Kind.CHUNK, 3, bytes(ONE) + bytes(THREE))
            chunk = msgspec.convert(head, messages.ChunkHead)
            assert (chunk.seqno, chunk.next_seqno, chunk.committed, chunk.size) == (0, 4, 4, len(payload))

    run(story(), loop)


def test_a_read_that_waits_keeps_nobody_else_waiting() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            peer.send(Kind.READ, 2, Read(ReadRequest("events", wait_ms=30_000)))
            assert await peer.is_silent()
            peer.send(Kind.APPEND, 3, append(len(ONE)), [ONE])
            assert {(await peer.receive())[1] for _ in range(2)} == {2, 3}

    run(story())


def test_more_reads_than_may_run_at_once_wait_their_turn() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            count = 3 * REQUESTS_MAX
            for number in range(count):
                peer.send(Kind.READ, 10 + number, Read(ReadRequest("events", wait_ms=30_000)))
            await node.until(lambda: broker.reads == REQUESTS_MAX)
            await asyncio.sleep(0.05)
            assert broker.reads == REQUESTS_MAX
            broker.logs["events"].append(bytes(ONE), 1)
            assert {(await peer.receive())[1] for _ in range(count)} == {10 + number for number in range(count)}
            assert await peer.is_silent()

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_subscriber_that_grants_nothing_gets_nothing(loop: str) -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            await peer.ask(Kind.APPEND, 2, append(len(ONE)), [ONE])
            peer.send(Kind.SUBSCRIBE, 3, Read(ReadRequest("events")))
            assert await peer.is_silent()
            assert await peer.is_silent()
            kind, correlation, _, payload = await peer.ask(Kind.CREDIT, 3, Credit(1))
            assert (kind, correlation, payload) == (Kind.CHUNK, 3, bytes(ONE))

    run(story(), loop)


def test_a_chunk_larger_than_the_credit_is_sent_and_must_be_made_up_for() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            await peer.ask(Kind.APPEND, 2, append(len(ONE) + len(THREE)), [ONE, THREE])
            kind, _, head, payload = await peer.ask(Kind.SUBSCRIBE, 3, Read(ReadRequest("events"), credit=1))
            assert (kind, payload) == (Kind.CHUNK, bytes(ONE))
            debt = (
                len(encode(Kind.CHUNK, 3, msgspec.convert(head, messages.ChunkHead), [payload])[0]) + len(payload) - 1
            )
            peer.send(Kind.CREDIT, 3, Credit(debt))
            assert await peer.is_silent()
            kind, _, _, payload = await peer.ask(Kind.CREDIT, 3, Credit(1))
            assert (kind, payload) == (Kind.CHUNK, bytes(THREE))

    run(story())


def test_the_rest_of_the_credit_does_not_become_a_small_chunk() -> None:
    async def story() -> None:
        batch = bytes(build([bytes(1000)]).data)
        async with serve(await events()) as node:
            peer = await node.peer()
            await peer.ask(Kind.APPEND, 2, append(*[len(batch)] * 12), [batch] * 12)
            request = ReadRequest("events", max_bytes=4 * len(batch))
            peer.send(Kind.SUBSCRIBE, 3, Read(request, credit=2 * 4 * len(batch) + 500))
            for _ in range(3):
                kind, _, _, payload = await peer.receive()
                assert (kind, len(payload)) == (Kind.CHUNK, 4 * len(batch))
            assert await peer.is_silent()

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_subscription_goes_on_with_what_is_appended_until_it_is_ended(loop: str) -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.SUBSCRIBE, 3, Read(ReadRequest("events"), credit=1 << 20))
            assert await peer.is_silent()
            for number in range(5):
                broker.logs["events"].append(bytes(ONE), 1)
                kind, correlation, head, payload = await peer.receive()
                assert (kind, correlation, payload, head[2]) == (Kind.CHUNK, 3, bytes(ONE), number)
            assert (await peer.ask(Kind.UNSUBSCRIBE, 3))[:3] == (Kind.RESULT, 3, None)
            broker.logs["events"].append(bytes(ONE), 1)
            assert await peer.is_silent()
            await node.until(lambda: broker.open_subscriptions == 0)
            assert (await peer.ask(Kind.UNSUBSCRIBE, 99))[:2] == (Kind.RESULT, 99)

    run(story(), loop)


def test_a_subscription_to_nothing_is_answered_with_an_error() -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer()
            kind, correlation, head, _ = await peer.ask(Kind.SUBSCRIBE, 3, Read(ReadRequest("nothing"), credit=1))
            assert (kind, correlation, head["code"]) == (Kind.ERROR, 3, "topic-not-found")
            kind, correlation, head, _ = await peer.ask(Kind.SUBSCRIBE, 3, Read(ReadRequest("nothing"), credit=1))
            assert (kind, correlation) == (Kind.ERROR, 3)

    run(story())


def test_subscriptions_share_what_a_connection_may_hold() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker, Limits(in_flight_bytes=64 * 1024, subscriptions_per_connection=8)) as node:
            peer = await node.peer()
            for number in range(8):
                peer.send(Kind.SUBSCRIBE, 10 + number, Read(ReadRequest("events"), credit=1 << 30))
            kind, correlation, head, _ = await peer.ask(Kind.SUBSCRIBE, 18, Read(ReadRequest("events"), credit=1 << 30))
            assert (kind, correlation, head["data"]["allowed"]) == (Kind.ERROR, 18, 8)
            assert await peer.is_silent()
            assert broker.greatest_ask == 8 * 1024

    run(story())


def test_a_connection_names_no_more_topics_than_allowed() -> None:
    async def story() -> None:
        async with serve(await events(), Limits(topics_per_connection=2)) as node:
            peer = await node.peer()
            for correlation, topic in ((2, "events"), (3, "second"), (4, "events"), (5, "x" * 250)):
                assert (await peer.ask(Kind.APPEND, correlation, append(len(ONE), topic=topic), [ONE]))[
                    0
                ] == Kind.APPENDED
            for kind, head in (
                (Kind.APPEND, append(0, topic="third")),
                (Kind.READ, Read(ReadRequest("third"))),
                (Kind.SUBSCRIBE, Read(ReadRequest("third"))),
            ):
                answer, _, failure, _ = await peer.ask(kind, 9, head)
                assert (answer, failure["data"]) == (
                    Kind.ERROR,
                    {"limit": "limits.topics_per_connection", "allowed": 2},
                )
            assert node.rejections["limits.topics_per_connection"] == 3

    run(story())


CALLS: list[tuple[messages.Call, object]] = [
    (messages.CreateTopic("new", 1), "new"),
    (messages.ConfigureTopic("events", Settings()), "events"),
    (messages.DescribeTopic("events"), "events"),
    (messages.Trim("events", None, 0), 0),
    (messages.CommitCursor("c", "events", None, "1"), None),
    (messages.FetchCursor("c", "events"), None),
    (messages.ListCursors(), []),
    (messages.DeleteCursor("c"), 0),
    (messages.Refuse(None, "closed today"), None),
    (messages.Accept(), None),
    (messages.DeleteTopic("events"), None),
]


def test_calls_are_answered_with_what_the_broker_returns() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            for number, (call, expected) in enumerate(CALLS):
                kind, correlation, head, _ = await peer.ask(Kind.CALL, 10 + number, call)
                assert (kind, correlation) == (Kind.RESULT, 10 + number), head
                found = head.get("name", head.get("partition")) if isinstance(head, dict) else head
                assert found == expected, call
            assert (await peer.ask(Kind.CALL, 30, messages.ListTopics("n")))[2][0]["name"] == "new"
            assert (await peer.ask(Kind.CALL, 31, messages.Stats()))[2]["topics"] == 1

    run(story())


def test_every_call_is_a_method_of_the_broker_with_the_same_arguments_and_a_caller() -> None:
    for call, method in METHODS.items():
        named = list(inspect.signature(getattr(Broker, method)).parameters)[1:]
        assert [*(field.name for field in msgspec.structs.fields(call)), "caller"] == named
    beside = {"append", "append_then", "stage", "read", "subscribe", "publish_batches", "take_jobs"}
    methods = {name for name, _ in inspect.getmembers(Broker, inspect.isfunction) if not name.startswith("_")}
    assert methods - set(METHODS.values()) == beside


def test_an_error_of_the_broker_comes_with_its_code_words_and_data() -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer()
            kind, correlation, head, _ = await peer.ask(Kind.CALL, 2, messages.DescribeTopic("nothing"))
            assert (kind, correlation) == (Kind.ERROR, 2)
            assert head == {
                "code": "topic-not-found",
                "message": "there is no topic 'nothing' in memory",
                "data": {"name": "nothing"},
            }

    run(story())


def test_a_fault_of_ours_is_answered_without_its_insides_and_reported_here() -> None:
    async def story() -> None:
        reported: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with serve(MemoryBroker()) as node:
            peer = await node.peer()
            kind, correlation, head, _ = await peer.ask(Kind.CALL, 2, messages.DeleteTopic("secret"))
            assert (kind, correlation) == (Kind.ERROR, 2)
            assert head == {"code": "logboom-error", "message": "internal error: KeyError"}
            assert await peer.is_silent()
        assert [type(error) for error in reported] == [KeyError]

    run(story())


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        (Kind.APPEND, {"parts": []}),
        (Kind.APPEND, [[["events", "long"]]]),
        (Kind.READ, {}),
        (Kind.READ, {"request": {"topic": "events", "start": {"at": "yesterday"}}}),
        (Kind.CREDIT, ["much"]),
        (Kind.CALL, {"type": "make_coffee"}),
        (Kind.CALL, {"type": "create_topic"}),
        (Kind.CALL, None),
        (Kind.WELCOME, None),
        (99, None),
    ],
)
def test_a_head_that_makes_no_sense_is_an_error_for_its_request_alone(kind: int, head: Any) -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer()
            answer, correlation, failure, _ = await peer.ask(kind, 2, head)
            assert (answer, correlation, failure["code"]) == (Kind.ERROR, 2, "remote-protocol-error")
            assert await peer.is_silent()
            assert node.rejections["RemoteProtocolError"] == 1

    run(story())


@pytest.mark.parametrize(
    ("kind", "correlation", "head"),
    [
        (Kind.HELLO, 2, Hello()),
        (Kind.PING, 0, None),
        (Kind.SUBSCRIBE, 3, Read(ReadRequest("events"))),
        (Kind.SUBSCRIBE, 4, Read(ReadRequest("events"), credit=-1)),
        (Kind.CREDIT, 3, Credit(-1)),
    ],
    ids=["second hello", "no correlation id", "subscription twice", "debt", "credit taken back"],
)
def test_what_contradicts_the_protocol_ends_the_connection(kind: int, correlation: int, head: Any) -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.SUBSCRIBE, 3, Read(ReadRequest("events", Start(seqno=0))))
            answer, about, failure, _ = await peer.ask(kind, correlation, head)
            assert (answer, about, failure["code"]) == (Kind.ERROR, 0, "remote-protocol-error")
            assert await peer.is_closed()
            peer.close()
            await node.until(lambda: node.front_end.connections == 0)
            await node.until(lambda: broker.open_subscriptions == 0)

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_conversation_does_not_depend_on_where_the_stream_is_cut(loop: str) -> None:
    requests = [
        encode(Kind.HELLO, 1, Hello()),
        encode(Kind.PING, 2),
        encode(Kind.APPEND, 3, append(len(ONE)), [ONE]),
        encode(Kind.APPEND, 4, append(len(THREE)), [THREE]),
        encode(Kind.PING, 5),
    ]
    stream = b"".join(piece for request in requests for piece in request)
    answers = {1: Kind.WELCOME, 2: Kind.PONG, 3: Kind.APPENDED, 4: Kind.APPENDED, 5: Kind.PONG}

    async def talk(node: Any, cut: int) -> None:
        peer: Peer = await node.peer(hello=False)
        peer.writer.write(stream[:cut])
        await asyncio.sleep(0.002)
        peer.writer.write(stream[cut:])
        found = [(await peer.receive())[:2] for _ in answers]
        assert {correlation: kind for kind, correlation in found} == answers
        peer.close()

    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            for cut in range(0, len(stream), 1 if loop == "uvloop" else 5):
                await talk(node, cut)
            assert not node.rejections

    run(story(), loop)
