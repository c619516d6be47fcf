"""Records reach a stage once and in order, whatever a node does in between."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from logboom import Client
from logboom.batch import Batch
from logboom.batch.partitioner import partition_of
from logboom.broker.api import PartitionInfo, Settings, TopicInfo
from logboom.broker.publish.publication import Publication, PublishKey, Receipt, StageInfo
from logboom.client.link import blocking_link
from logboom.client.publish import stage_writer
from logboom.client.publish.publish_calls import discard, publish
from logboom.client.publish.stage_writer import StageWriter
from logboom.client.write.column_source import ColumnSource
from logboom.client.write.pieces import ColumnPiece, joined
from logboom.client.write.slices import BuildColumns
from logboom.errors import (
    BatchTooLarge,
    ConfigError,
    ConnectionLost,
    InvalidColumn,
    InvalidKey,
    LocalProtocolError,
    LogboomError,
    LowSpace,
    OutcomeUnknown,
    Overloaded,
    PartitionNotFound,
    ReadOnlyReplica,
    SequenceGap,
    ShuttingDown,
    StageNotFound,
    TopicRecreated,
    Unavailable,
)
from logboom.protocols.binary.codec import Frame, FrameReader, encode
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import (
    Append,
    AppendedAt,
    Appends,
    Call,
    DescribeTopic,
    Discard,
    Kind,
    OpenStage,
    Publish,
    Welcome,
    WireLimits,
)

PRODUCER = 2**63 + 77
LIMITS = WireLimits(2**24, 2**20, 2**22, 16, 60_000, 100)

_open: list[StageWriter] = []
_append = msgspec.msgpack.Decoder(Append)
_call: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)


class Staged(NamedTuple):
    """A batch that the node has taken."""

    topic: str
    partition: int
    seq: int
    values: list[bytes | None]
    size: int


class ScriptedNode:
    """A node with one stage, on a real socket. What it does to the n-th request of a kind, the test says."""

    def __init__(self, partitions: int = 1, limits: WireLimits = LIMITS, replica_of: str | None = None) -> None:
        self.staged: list[Staged] = []
        self.appends = 0
        self.calls: list[Call] = []
        self.connections = 0
        self.published: dict[str, int] = {}
        self.on_append: dict[int, LogboomError | str] = {}
        """By number, from 1: an error to answer; `drop` the connection before it is staged, or `mute`: after."""
        self.on_call: dict[tuple[type, int], LogboomError | str] = {}
        """The same, by kind and number of the call."""
        self.hold = False
        """Whether answers to appends wait for `release`."""
        self.held: list[Callable[[], None]] = []
        self.unanswered_bytes = self.most_unanswered_bytes = 0
        self._partitions = partitions
        self._limits = limits
        self._replica_of = replica_of
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in (self._listener, *self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def values(self, topic: str = "events", partition: int | None = None) -> list[bytes | None]:
        return [
            value
            for batch in self.staged
            if batch.topic == topic and partition in (None, batch.partition)
            for value in batch.values
        ]

    def numbers(self, topic: str = "events", partition: int | None = None) -> list[int]:
        return [int((value or b"")[-9:]) for value in self.values(topic, partition)]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._sockets.append(sock)
                self.connections += 1
                threading.Thread(target=self._talk, args=(sock,), daemon=True).start()

    def _talk(self, sock: socket.socket) -> None:
        frames = FrameReader(2**27)
        with suppress(OSError):
            while count := sock.recv_into(frames.buffer()):
                for frame in frames.received(count):
                    with self._lock:
                        if not self._hear(frame, sock):
                            sock.shutdown(socket.SHUT_RDWR)
                            return

    def _hear(self, frame: Frame, sock: socket.socket) -> bool:
        """False drops the connection."""
        if frame.kind == Kind.HELLO:
            welcome = Welcome(1, "n", "c", None, "scripted", self._limits, [], self._replica_of)
            say(sock, Kind.WELCOME, frame.correlation, welcome)
        elif frame.kind == Kind.PING:
            say(sock, Kind.PONG, frame.correlation)
        elif frame.kind == Kind.APPEND:
            return self._append(frame, sock)
        elif frame.kind == Kind.CALL:
            return self._call(frame, sock)
        return True

    def _append(self, frame: Frame, sock: socket.socket) -> bool:
        self.appends += 1
        what = self.on_append.get(self.appends)
        if what == "drop":
            return False
        self.unanswered_bytes += len(frame.payload)
        self.most_unanswered_bytes = max(self.most_unanswered_bytes, self.unanswered_bytes)
        (part,) = _append.decode(frame.head).parts
        assert part.topic_id == f"id of {part.topic}"
        answer = what if isinstance(what, LogboomError) else self._stage(part.topic, part.partition or 0, frame.payload)
        if what == "mute":
            return False
        if what == "silence":
            return True
        correlation, size = frame.correlation, len(frame.payload)

        def reply() -> None:
            self.unanswered_bytes -= size
            if isinstance(answer, LogboomError):
                say(sock, Kind.APPENDED, correlation, Appends([None], {0: encode_failure(answer)}))
            else:
                say(sock, Kind.APPENDED, correlation, Appends([answer]))

        if self.hold:
            self.held.append(reply)
        else:
            reply()
        return True

    def _stage(self, topic: str, partition: int, payload: memoryview) -> AppendedAt | LogboomError:
        batch = Batch.parse(bytes(payload))
        batch.verify()
        header = batch.header
        assert (header.producer_id, header.producer_epoch) == (PRODUCER, 0)
        count = len(self.values(topic, partition))
        if header.producer_seq > count:
            return SequenceGap(PRODUCER, header.producer_seq, count)
        repeat = header.producer_seq < count
        if not repeat:
            self.staged.append(Staged(topic, partition, header.producer_seq, batch.values(), len(payload)))
        return AppendedAt(header.producer_seq, header.record_count, len(self.staged), 1, repeat)

    def _call(self, frame: Frame, sock: socket.socket) -> bool:
        call = _call.decode(frame.head)
        self.calls.append(call)
        number = sum(isinstance(earlier, type(call)) for earlier in self.calls)
        what = self.on_call.get((type(call), number))
        if what == "drop":
            return False
        if isinstance(what, LogboomError):
            say(sock, Kind.ERROR, frame.correlation, encode_failure(what))
            return True
        result = self._result(call)
        if what == "mute":
            return False
        say(sock, Kind.RESULT, frame.correlation, result)
        return True

    def _result(self, call: Call) -> Any:
        if isinstance(call, OpenStage):
            return StageInfo("the-stage", PRODUCER, 1, 1, 1, note=call.note)
        if isinstance(call, DescribeTopic):
            partitions = [PartitionInfo(number, 0, 0, 0) for number in range(self._partitions)]
            return TopicInfo(call.name, f"id of {call.name}", partitions, Settings())
        if isinstance(call, Publish):
            repeat = self.published.get(call.key.name, -1) >= call.key.number
            self.published[call.key.name] = max(self.published.get(call.key.name, -1), call.key.number)
            return Publication(call.key.name, call.key.number, repeat, [])
        assert isinstance(call, Discard)
        return len(call.stages)


def say(sock: socket.socket, kind: int, correlation: int, head: Any = None) -> None:
    sock.sendall(b"".join(encode(kind, correlation, head)))


@contextmanager
def scripted(
    *, partitions: int = 1, limits: WireLimits = LIMITS, replica_of: str | None = None
) -> Iterator[ScriptedNode]:
    node = ScriptedNode(partitions, limits, replica_of)
    try:
        yield node
    finally:
        node.close()


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with scripted(partitions=3) as node:
        yield node


@pytest.fixture(autouse=True)
def no_writer_left_open() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


def open_writer(servers: Any = None, **options: Any) -> StageWriter:
    _open.append(StageWriter(servers, **options))
    return _open[-1]


def write_some(writer: StageWriter, count: int = 60) -> None:
    """Numbers as values, of 1000 bytes each, in two logs by turns."""
    for number in range(count):
        writer.write("events", b"%01000d" % number, partition=number % 2)


def test_records_stand_in_each_log_in_the_order_of_the_calls(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=500)
    expected: list[int] = []
    number = 0
    for step in range(60):
        more = [b"%d" % value for value in range(number, number + (1, 7, 30, 150)[step % 4])]
        expected += range(number, number + len(more))
        number += len(more)
        if step % 4 == 0:
            writer.write("events", more[0], partition=1)
        elif step % 3 == 0:
            writer.write_many("events", more, timestamps=list(range(len(more))), partition=1)
        else:
            writer.write_many("events", pa.array(more) if step % 2 else more, partition=1)
    receipt = writer.finish()
    assert node.numbers(partition=1) == expected
    assert receipt == Receipt("the-stage", len(expected))
    assert len({batch.partition for batch in node.staged}) == 1


def test_every_batch_begins_where_the_one_before_it_in_its_log_has_ended(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=300)
    for number in range(1000):
        writer.write("events" if number % 3 else "others", b"%d" % number, key=b"%d" % (number % 11))
    writer.finish()
    for topic in ("events", "others"):
        for partition in range(3):
            batches = [batch for batch in node.staged if (batch.topic, batch.partition) == (topic, partition)]
            assert len(batches) > 1
            following = 0
            for batch in batches:
                assert batch.seq == following
                following += len(batch.values)


def test_keys_and_channels_say_the_partition_one_by_one_as_in_columns(node: ScriptedNode) -> None:
    writer = open_writer(node.address)
    keys = [b"k%d" % (number % 13) for number in range(500)]
    for number, key in enumerate(keys):
        writer.write("single", b"%d" % number, key=key)
        writer.write("channel", b"%d" % number, channel=key.decode())
    writer.write_many("many", pa.array([b"%d" % number for number in range(500)]), keys=pa.array(keys))
    writer.finish()
    for topic in ("single", "channel", "many"):
        for partition in range(3):
            expected = [number for number, key in enumerate(keys) if partition_of(key, 3) == partition]
            assert node.numbers(topic, partition) == expected


def test_records_without_a_key_use_all_partitions_and_each_batch_one(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=1000)
    writer.write_many("events", [b"%0100d" % number for number in range(1000)])
    writer.finish()
    assert sorted(node.numbers()) == list(range(1000))
    assert {batch.partition for batch in node.staged} == {0, 1, 2}
    assert len(node.staged) < 150


def test_many_small_columns_become_few_batches(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=100_000)
    values = pa.array([b"%0100d" % number for number in range(100)])
    keys = pa.array([b"k%d" % (number % 17) for number in range(100)])
    for _ in range(100):
        writer.write_many("events", values, keys=keys)
    writer.finish()
    assert len(node.values()) == 10_000
    assert len(node.staged) < 20


def test_what_is_gathered_for_very_many_logs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_writer, "BUFFER_BYTES", 50_000)
    with scripted(partitions=500) as node:
        writer = open_writer(node.address)
        for number in range(1000):
            writer.write("events", b"%01000d" % number, partition=number % 500)
        assert len(node.values()) > 600
        writer.finish()
        assert sorted(node.numbers()) == list(range(1000))


@pytest.mark.parametrize("what", ["drop", "mute"])
@pytest.mark.parametrize("number", range(1, 9))
def test_after_a_lost_connection_everything_is_there_once(what: str, number: int, node: ScriptedNode) -> None:
    node.on_append = {number: what, number + 3: what}
    writer = open_writer(node.address, batch_bytes=8000)
    write_some(writer)
    assert writer.finish().records == 60
    for partition in range(2):
        assert node.numbers(partition=partition) == list(range(partition, 60, 2))
    assert node.connections >= 2


@pytest.mark.parametrize(
    "error", [Overloaded("stage", 1, 1), LowSpace(1, 2), ShuttingDown()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("number", [1, 4, 8])
def test_a_node_without_room_for_now_is_waited_for(error: LogboomError, number: int, node: ScriptedNode) -> None:
    node.on_append = {number: error, number + 5: error, number + 6: error}
    writer = open_writer(node.address, batch_bytes=8000)
    write_some(writer)
    writer.finish()
    for partition in range(2):
        assert node.numbers(partition=partition) == list(range(partition, 60, 2))


@pytest.mark.parametrize(
    "error", [StageNotFound("the-stage"), TopicRecreated("events", "a", "b")], ids=lambda e: type(e).__name__
)
def test_any_other_refusal_is_raised_and_then_the_stage_is_of_no_use(error: LogboomError, node: ScriptedNode) -> None:
    node.on_append = {3: error}
    writer = open_writer(node.address, batch_bytes=8000)
    write_some(writer)
    for call in (writer.finish, writer.finish, lambda: writer.write("events", b"1")):
        with pytest.raises(type(error)):
            call()


def test_a_column_that_breaks_off_in_the_middle_is_never_finished(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=1000)
    tags = [["fine"]] * 99 + [[None]]
    with pytest.raises(InvalidColumn):
        writer.write_many("events", [bytes(100)] * 100, tags=tags)
    with pytest.raises(InvalidColumn):
        writer.finish()


def test_what_cannot_be_a_record_is_refused_and_the_rest_goes_on(node: ScriptedNode) -> None:
    writer = open_writer(node.address)
    writer.write("events", b"1")
    with pytest.raises(InvalidColumn):
        writer.write("events", 17)  # type: ignore[arg-type]
    with pytest.raises(InvalidColumn):
        writer.write_many("events", [b"1", b"2"], keys=[b"1"])
    with pytest.raises(PartitionNotFound):
        writer.write("events", b"1", partition=3)
    with pytest.raises(BatchTooLarge):
        writer.write("events", bytes(2**20))
    writer.write("events", b"2")
    assert writer.finish().records == 2
    assert node.numbers() == [1, 2]


def test_batches_over_the_limit_of_the_node_are_cut() -> None:
    limits = WireLimits(2**24, 10_000, 2**22, 16, 60_000, 100)
    with scripted(limits=limits) as node:
        writer = open_writer(node.address)
        writer.write_many("events", [b"%09000d" % number for number in range(20)])
        writer.write_many("events", [b"%0*d" % (9000 if number % 7 == 0 else 900, number) for number in range(20, 200)])
        writer.finish()
        assert node.numbers() == list(range(200))
        assert max(batch.size for batch in node.staged) <= 10_000


def test_one_record_in_a_column_that_is_over_the_limit_is_an_error() -> None:
    limits = WireLimits(2**24, 10_000, 2**22, 16, 60_000, 100)
    with scripted(limits=limits) as node:
        writer = open_writer(node.address)
        with pytest.raises(BatchTooLarge) as caught:
            writer.write_many("events", [b"1", bytes(10_000), b"2"])
        assert caught.value.limit_bytes == 10_000
        with pytest.raises(BatchTooLarge):
            writer.finish()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_batch_that_inflates_to_more_than_the_limit_is_cut_too(codec: str) -> None:
    limits = WireLimits(2**24, 10_000, 2**22, 16, 60_000, 100)
    with scripted(limits=limits) as node:
        writer = open_writer(node.address, codec=codec)
        writer.write_many("events", [b"%06000d" % number for number in range(20)])
        writer.finish()
        assert node.numbers() == list(range(20))
        assert all(len(batch.values) == 1 for batch in node.staged)
        assert max(batch.size for batch in node.staged) < 1000


def test_no_more_is_under_way_than_the_node_allows() -> None:
    limits = WireLimits(2**24, 2**20, 50_000, 16, 60_000, 100)
    with scripted(limits=limits) as node:
        node.hold = True
        done = threading.Event()

        def release() -> None:
            while not done.wait(0.005):
                with node._lock:
                    for reply in node.held:
                        reply()
                    node.held.clear()

        thread = threading.Thread(target=release)
        thread.start()
        try:
            writer = open_writer(node.address, batch_bytes=10_000)
            for _ in range(100):
                writer.write_many("events", pa.array([bytes(1000)] * 12))
            writer.finish()
        finally:
            done.set()
            thread.join()
        assert len(node.values()) == 1200
        assert 20_000 < node.most_unanswered_bytes <= 50_000


def test_a_connection_lost_while_a_topic_is_looked_for_loses_nothing_on_its_way(node: ScriptedNode) -> None:
    node.on_call = {(DescribeTopic, 2): "drop"}
    writer = open_writer(node.address, batch_bytes=1000)
    node.hold = True
    writer.write_many("events", [b"%0100d" % number for number in range(50)], partition=0)
    node.hold = False
    assert writer.partitions("others") == 3
    writer.finish()
    assert node.numbers() == list(range(50))
    assert node.connections == 2


def test_answers_that_come_while_a_topic_is_looked_for_count(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=1000)
    for name in ("events", "others", "more"):
        writer.write_many(name, [b"%0100d" % number for number in range(50)], partition=0)
    sent = node.appends
    assert writer.finish().records == 150
    assert len(node.staged) >= sent
    assert node.appends == len(node.staged)


def test_a_node_that_takes_nothing_for_too_long_is_given_up(node: ScriptedNode) -> None:
    node.on_append = dict.fromkeys(range(1, 1000), Overloaded("stage", 1, 1))
    writer = open_writer(node.address, timeout_s=1.5)
    writer.write("events", b"1")
    with pytest.raises(Overloaded):
        writer.finish()


def test_a_node_that_refuses_and_then_falls_silent_is_given_up_with_its_refusal(node: ScriptedNode) -> None:
    node.on_append = {1: Overloaded("stage", 1, 1), 2: "silence"}
    writer = open_writer(node.address, timeout_s=1.0)
    writer.write("events", b"1")
    with pytest.raises(Overloaded):
        writer.finish()


def test_a_node_that_does_not_answer_for_too_long_is_given_up(node: ScriptedNode) -> None:
    writer = open_writer(node.address, timeout_s=0.3)
    node.hold = True
    writer.write("events", b"1")
    with pytest.raises(Unavailable):
        writer.finish()


def test_without_a_node_there_is_no_stage() -> None:
    with scripted() as node:
        pass
    with pytest.raises(ConnectionLost):
        open_writer(node.address, timeout_s=0.2)
    with pytest.raises(ConnectionLost):
        publish(node.address, PublishKey("k"), [], timeout_s=0.2)


def test_a_replica_is_no_place_to_stage(node: ScriptedNode) -> None:
    with scripted(replica_of=node.address) as replica:
        writer = open_writer([replica.address, node.address])
        writer.write("events", b"1")
        writer.finish()
        assert node.numbers() == [1]
        assert replica.calls == []
        with pytest.raises(ReadOnlyReplica):
            open_writer(replica.address)


def test_another_node_of_the_list_is_as_good(node: ScriptedNode) -> None:
    with scripted() as gone:
        pass
    writer = open_writer(f"{gone.address},{node.address}")
    write_some(writer)
    writer.finish()
    assert sorted(node.numbers()) == list(range(60))


def test_nothing_can_be_written_after_the_end(node: ScriptedNode) -> None:
    writer = open_writer(node.address)
    writer.write("events", b"1")
    receipt = writer.finish()
    assert writer.finish() == receipt
    with pytest.raises(LocalProtocolError):
        writer.write("events", b"2")
    with pytest.raises(LocalProtocolError):
        writer.write_many("events", [b"2"])
    left = open_writer(node.address)
    left.close()
    with pytest.raises(LocalProtocolError):
        left.finish()


def test_a_stage_is_discarded_as_well_as_can_be(node: ScriptedNode) -> None:
    writer = open_writer(node.address, batch_bytes=8000)
    write_some(writer)
    writer.discard()
    assert [call for call in node.calls if isinstance(call, Discard)] == [Discard(["the-stage"])]
    assert discard(node.address, ["one", "two"]) == 2
    lonely = open_writer(node.address, timeout_s=0.2)
    node.close()
    lonely.discard()


@pytest.mark.parametrize(
    "what", ["drop", "mute", ShuttingDown(), OutcomeUnknown("who knows"), Overloaded("node", 1, 1)], ids=str
)
def test_a_publish_is_said_again_until_it_is_answered(what: LogboomError | str, node: ScriptedNode) -> None:
    node.on_call = {(Publish, 1): what, (Publish, 3): what}
    assert publish(node.address, PublishKey("k", 1), [Receipt("the-stage", 5)]).repeat == (what == "mute")
    assert publish(node.address, PublishKey("k", 2), []).repeat == (what == "mute")
    said = [call for call in node.calls if isinstance(call, Publish)]
    assert said == [Publish(PublishKey("k", 1), [Receipt("the-stage", 5)])] * 2 + [Publish(PublishKey("k", 2), [])] * 2


def test_a_publish_that_is_never_answered_has_an_unknown_outcome(node: ScriptedNode) -> None:
    node.on_call = {(Publish, number): "mute" for number in range(1, 1000)}
    with pytest.raises(OutcomeUnknown):
        publish(node.address, PublishKey("k", 1), [], timeout_s=0.3)


def test_a_publish_that_is_refused_is_not_said_again(node: ScriptedNode) -> None:
    node.on_call = {(Publish, 1): InvalidKey("k", "for some reason")}
    with pytest.raises(InvalidKey):
        publish(node.address, PublishKey("k", 1), [])
    assert len([call for call in node.calls if isinstance(call, Publish)]) == 1


def test_a_writer_publishes_its_stage_on_the_connection_it_has(node: ScriptedNode) -> None:
    writer = open_writer(node.address)
    write_some(writer)
    assert writer.publish(PublishKey("k", 1)) == Publication("k", 1, False, [])
    assert node.connections == 1
    assert writer.publish(PublishKey("k", 1)).repeat


def test_a_client_says_at_once_that_there_is_no_node() -> None:
    with scripted() as node:
        pass
    with pytest.raises(ConnectionLost):
        Client(node.address, timeout_s=0.2)


def test_a_transaction_in_doubt_is_not_discarded(node: ScriptedNode) -> None:
    node.on_call = {(Publish, number): "drop" for number in range(1, 1000)}
    client = Client(node.address, publish_timeout_s=0.2)
    with pytest.raises(OutcomeUnknown), client.transaction("k", 1) as transaction:
        transaction.write("events", b"1")
    assert transaction.publication is None
    assert not [call for call in node.calls if isinstance(call, Discard)]
    client.close()
    with pytest.raises(LocalProtocolError):
        client.transaction("k", 2)


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError):
        open_writer(codec="zip")
    with pytest.raises(ConfigError):
        open_writer(batch_bytes=0)


def columns_of(values: Any, **others: Any) -> BuildColumns:
    columns = ColumnSource(values, **others).take(10**6)
    assert columns is not None
    return columns


def test_a_piece_does_not_hold_on_to_what_it_was_cut_from() -> None:
    large = pa.array([bytes(1000)] * 10_000)
    piece = ColumnPiece.from_columns(columns_of(large.slice(5000, 10))).compact()
    (array,) = piece._entries.values()
    assert array.get_total_buffer_size() < 20_000
    assert piece.plain_values() == [bytes(1000)] * 10


def test_pieces_are_joined_where_they_have_the_same_columns() -> None:
    pieces = [
        columns_of([b"1"]),
        columns_of([b"2", b"3"]),
        columns_of(pa.array([b"4"])),
        columns_of(pa.array([b"5"])),
        columns_of(pa.array(["6"])),
        columns_of([b"7"], channels="a"),
        columns_of([b"8"], channels="a"),
        columns_of([b"9"], channels="b"),
        columns_of(np.array([b"10"], dtype=object), tags=[["x"]]),
    ]
    assert [piece.count for piece in joined([ColumnPiece.from_columns(piece) for piece in pieces])] == [
        3,
        2,
        1,
        2,
        1,
        1,
    ]


def test_a_scattered_message_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_link, "BUFFERS_MAX", 5)
    here, there = socket.socketpair()
    buffers = [bytes([number]) * (number * 40_000 % 300_001) for number in range(17)]
    received = bytearray()

    def receive() -> None:
        while more := there.recv(65_536):
            received.extend(more)

    thread = threading.Thread(target=receive)
    thread.start()
    here.settimeout(300)
    blocking_link.send_all(here, buffers)
    here.close()
    thread.join()
    there.close()
    assert bytes(received) == b"".join(buffers)
