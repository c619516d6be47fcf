"""What the logd decoder makes of a stream, and what it holds meanwhile."""

from __future__ import annotations

import pytest

from logboom.protocols.logd.codec import LINE_BYTES_MAX, RECORDS_MAX, Decoder, SharedMemory
from logboom.protocols.logd.errors import CHECKSUM_MISMATCH, INVALID_PROTOCOL, TOO_LARGE, UNAVAILABLE
from logboom.protocols.logd.requests import WORDS, Close, Head, LogName, Messages, Mixed, Ping, Read, Refusal
from support.mutants.logd import SOURCES, one_by_one

NEWS = LogName("news", None, b"news")
STREAM = b"MSG news 5\r\nhello\r\nMSG news 2\nhi\nREAD news 0 3\r\nPING\r\n"


def decoder(body_bytes_max: int = 1 << 20, held_bytes_max: int = 1 << 20, run_bytes: int = 1 << 20) -> Decoder:
    return Decoder(body_bytes_max, SharedMemory(held_bytes_max), run_bytes)


def test_messages_for_one_log_become_one_request() -> None:
    assert decoder().receive(STREAM) == [Messages(NEWS, [b"hello", b"hi"], 33), Read(NEWS, 0, 3), Ping()]


def test_messages_for_several_logs_become_one_request_with_the_values_of_each_together() -> None:
    lines = b"MSG news 1\na\nMSG newspaper 1\nb\nMSG news/0 1\nc\nMSG news 2\nde\n"
    (request,) = decoder().receive(lines)
    assert isinstance(request, Mixed)
    assert [(messages.log.text, messages.values) for messages in request.messages] == [
        *((b"news", [b"a", b"de"]), (b"newspaper", [b"b"]), (b"news/0", [b"c"]))
    ]
    assert (request.turns, request.size) == ([0, 1, 2, 0], len(lines))


@pytest.mark.parametrize("end", [b"MSG other 1\n", b"MSG other 1\nxyz\n", b"MSG other/x 1\na\n", b"MSG other\n"])
def test_a_log_whose_command_has_not_come_or_is_no_good_has_no_part_in_a_request(end: bytes) -> None:
    assert decoder().receive(b"MSG news 1\na\n" + end)[0] == Messages(NEWS, [b"a"], 13)


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_requests_do_not_depend_on_where_the_stream_is_cut(cut: int) -> None:
    connection = decoder()
    requests = connection.receive(STREAM[:cut]) + connection.receive(STREAM[cut:])
    assert list(one_by_one(requests)) == [(NEWS, b"hello"), (NEWS, b"hi"), Read(NEWS, 0, 3), Ping()]
    assert connection.held_bytes == 0


def test_every_command_is_the_same_byte_by_byte() -> None:
    stream = b"".join(SOURCES)
    whole, slowly = decoder(), decoder()
    expected = list(one_by_one(whole.receive(stream)))
    found = [request for byte in stream for request in slowly.receive(bytes([byte]))]
    assert list(one_by_one(found)) == expected
    assert len(expected) > len(SOURCES)
    assert expected[-1] == Close()


def test_no_run_of_messages_is_larger_than_it_may_be_but_a_message_alone() -> None:
    small, large = b"MSG news 10\n0123456789\n", b"MSG news 500\n" + bytes(500) + b"\n"
    requests = decoder(run_bytes=100).receive(small * 10 + large + small)
    sizes = [request.size for request in requests if isinstance(request, Messages)]
    assert sizes == [4 * len(small), 4 * len(small), 2 * len(small), len(large), len(small)]


def test_a_run_has_no_more_records_than_a_batch_may_have() -> None:
    requests = decoder().receive(b"MSG a 0\n\n" * (RECORDS_MAX + 1))
    assert [len(request.values) for request in requests if isinstance(request, Messages)] == [RECORDS_MAX, 1]


def test_nothing_is_read_behind_what_cannot_be_understood() -> None:
    connection = decoder()
    assert connection.receive(b"PING\nHUH\nPING\n") == [Ping(), Refusal(INVALID_PROTOCOL, is_last=True)]
    assert connection.receive(b"PING\n") == []


@pytest.mark.parametrize("word", [b"GET", b"POST", b"OPTIONS", *WORDS])
def test_nothing_of_what_a_browser_sends_is_a_command(word: bytes) -> None:
    for target in (b"/", b"/news", b"news", b"*", b"news 0", b"5 news 0 1"):
        request = b"%s %s HTTP/1.1\r\nMSG news 5\r\nhello\r\nPING\r\n" % (word, target)
        assert decoder().receive(request) == [Refusal(INVALID_PROTOCOL, is_last=True)]
    assert decoder().receive(b"HEAD HTTP/1\nPING\n") == [Head(LogName("HTTP", 1, b"HTTP/1")), Ping()]


def test_a_length_is_refused_before_anything_of_the_body_has_come() -> None:
    assert decoder(1000).receive(b"MSG news 1001\n") == [Refusal(TOO_LARGE, is_last=True)]
    assert decoder(1000).receive(b"BATCH 1001 news 0 1\n") == [Refusal(TOO_LARGE, is_last=True)]


@pytest.mark.parametrize("end", [b"", b"\r\n"])
def test_a_line_without_an_end_is_refused_as_soon_as_it_is_too_long(end: bytes) -> None:
    line = b"READ " + b"x" * LINE_BYTES_MAX
    connection = decoder()
    assert connection.receive(line[: LINE_BYTES_MAX - 1]) == []
    assert connection.receive(line[LINE_BYTES_MAX - 1 :] + end) == [Refusal(TOO_LARGE, is_last=True)]


def test_an_unfinished_body_is_counted_and_released() -> None:
    memory = SharedMemory(1000)
    connection = Decoder(1 << 20, memory)
    assert connection.receive(b"MSG news 500\n" + bytes(300)) == []
    assert memory.bytes == connection.held_bytes == 313
    assert connection.receive(bytes(100)) == []
    assert memory.bytes == 413
    assert len(connection.receive(bytes(100) + b"\nPI")) == 1
    assert memory.bytes == 2
    connection.close()
    assert memory.bytes == 0


def test_unfinished_bodies_of_all_connections_hold_no_more_than_the_node_allows() -> None:
    memory = SharedMemory(1000)
    first, second = Decoder(1 << 20, memory), Decoder(1 << 20, memory)
    assert first.receive(b"MSG news 5000\n" + bytes(600)) == []
    assert second.receive(b"MSG news 5000\n" + bytes(600)) == [Refusal(UNAVAILABLE, is_last=True)]
    assert first.receive(bytes(1000)) == [Refusal(UNAVAILABLE, is_last=True)]
    assert memory.bytes == 0


def test_what_a_batch_holds_is_checked_against_its_checksum_first() -> None:
    data = b"not at all"
    assert decoder().receive(b"BATCH 10 news 1 1\n" + data) == [Refusal(CHECKSUM_MISMATCH)]
