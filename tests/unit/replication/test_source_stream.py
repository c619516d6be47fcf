"""What a source says, wherever the stream is cut."""

from __future__ import annotations

import pytest

from logboom.errors import RemoteProtocolError
from logboom.replication.facts import SourceLog, read_cursors, read_identity, read_origin, read_topics
from logboom.replication.source_stream import (
    BODY_BYTES_MAX,
    Pong,
    SourceAnswer,
    SourceLogGone,
    SourcePiece,
    SourceRefusal,
    SourceStream,
)

STREAM = b"".join(
    (
        b"PONG\r\n",
        b"MOK 5\r\na: b\n",
        b"STORED t/0 4 7 1 9 6\r\n\r\n\r\n",
        b"STORED t/1 0 1 0 0 0\r\n",
        b"GONE t/1\n",
        b"ERR not found\r\n",
        b"MOK 0\r\n",
    )
)
EVENTS = [
    Pong(),
    SourceAnswer(memoryview(b"a: b\n")),
    SourcePiece("t/0", memoryview(b"\r\n\r\n"), 7, 1, 9, 6),
    SourcePiece("t/1", memoryview(b""), 1, 0, 0, 0),
    SourceLogGone("t/1"),
    SourceRefusal("not found"),
    SourceAnswer(memoryview(b"")),
]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_events_do_not_depend_on_where_the_stream_is_cut(cut: int) -> None:
    stream = SourceStream()
    assert stream.receive(STREAM[:cut]) + stream.receive(STREAM[cut:]) == EVENTS


def test_events_come_byte_by_byte_too() -> None:
    stream = SourceStream()
    assert [event for byte in STREAM for event in stream.receive(bytes([byte]))] == EVENTS


@pytest.mark.parametrize(
    "line",
    [
        b"HELLO",
        b"",
        b"OK 0 1",
        b"MOK",
        b"MOK x",
        b"MOK -1",
        b"MOK 5 5",
        b"MOK %d" % (BODY_BYTES_MAX + 1),
        b"MOK " + b"9" * 30,
        b"STORED t/0 0 1 2 3",
        b"STORED t/0 0 1 2 3 x",
        b"GONE",
        b"\xff\xfe",
        b"x" * 5000,
    ],
)
def test_what_is_no_answer_of_a_source_ends_the_conversation(line: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        SourceStream().receive(line + b"\r\n")


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    stream = SourceStream()
    for _ in range(4):
        assert stream.receive(b"x" * 1000) == []
    with pytest.raises(RemoteProtocolError):
        stream.receive(b"x" * 1000)


def test_facts_are_read_as_the_source_writes_them() -> None:
    topics = b"a.b/0: id=7f first=3 committed=9\r\na.b/1: id=7f first=0 committed=0\r\n"
    assert read_topics(memoryview(topics)) == [SourceLog("a.b", 0, "7f", 3, 9), SourceLog("a.b", 1, "7f", 0, 0)]
    assert read_topics(memoryview(b"")) == []
    assert read_cursors(memoryview(b"team:x/1: a.b/1 1xyz\r\n")) == {("team:x/1", "a.b", 1): "1xyz"}
    assert read_identity(memoryview(b"node_id: n\r\ncluster_id: c\r\nversion: 1\r\n")) == ("n", "c")


@pytest.mark.parametrize("body", [b"a/0: id=7f first=3\r\n", b"a: id=7f first=3 committed=9\r\n", b"\xff: x\r\n"])
def test_topics_that_make_no_sense_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_topics(memoryview(body))


@pytest.mark.parametrize("body", [b"origin: {}\r\n", b"other: {}\r\n", b"origin: \xff\r\n", b""])
def test_an_origin_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_origin(memoryview(body))


def test_cursors_that_make_no_sense_are_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        read_cursors(memoryview(b"name: topic/0\r\n"))
