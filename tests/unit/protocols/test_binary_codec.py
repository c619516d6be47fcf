from __future__ import annotations

from collections import deque

import pytest

from logboom.errors import LimitExceeded, RemoteProtocolError
from logboom.protocols.binary.codec import (
    FRONT,
    FRONT_SIZE,
    POOL_BYTES,
    Frame,
    FrameReader,
    Pool,
    SharedBuffer,
    encode,
    encode_front,
)
from logboom.protocols.binary.messages import Append, AppendPart, Credit, Hello, Kind

FRAMES = [
    (Kind.HELLO, 1, Hello(client="someone"), b""),
    (Kind.PING, 2, None, b""),
    (Kind.APPEND, 3, Append([AppendPart("events", 24)], "leader"), bytes(range(24))),
    (Kind.CREDIT, 4, Credit(1 << 40), b""),
    (Kind.APPEND, 0xFFFF_FFFF, Append([AppendPart("events", 64)]), b"x" * 64),
]
STREAM = b"".join(
    piece for kind, correlation, head, payload in FRAMES for piece in encode(kind, correlation, head, [payload])
)
WHOLE = 1 << 20


def give(reader: FrameReader, data: bytes) -> list[tuple[int, int, bytes, bytes]]:
    """What a connection would do: receive as much as there is room for, again and again."""
    found = []
    while data:
        room = reader.buffer()
        assert len(room)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        found += [copied(frame) for frame in reader.received(count)]
    return found


def copied(frame: Frame) -> tuple[int, int, bytes, bytes]:
    return frame.kind, frame.correlation, bytes(frame.head), bytes(frame.payload)


EXPECTED = give(FrameReader(), STREAM)


def test_frames_come_as_they_were_sent() -> None:
    assert [frame[:2] for frame in EXPECTED] == [(kind, correlation) for kind, correlation, *_ in FRAMES]
    assert [frame[3] for frame in EXPECTED] == [payload for *_, payload in FRAMES]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_frames_do_not_depend_on_where_the_stream_is_cut(cut: int) -> None:
    reader = FrameReader()
    assert give(reader, STREAM[:cut]) + give(reader, STREAM[cut:]) == EXPECTED
    assert reader.held_bytes == 0


@pytest.mark.parametrize("piece", [1, 2, 7, 16, 17, 100])
@pytest.mark.parametrize("shared_size", [16, 24, 64, 256])
def test_frames_do_not_depend_on_how_much_comes_at_once(piece: int, shared_size: int) -> None:
    reader = FrameReader(shared=SharedBuffer(shared_size))
    found = []
    for start in range(0, len(STREAM), piece):
        found += give(reader, STREAM[start : start + piece])
    assert found == EXPECTED


def test_readers_take_turns_with_one_buffer() -> None:
    shared = SharedBuffer(64)
    readers = [FrameReader(shared=shared) for _ in range(3)]
    found: list[list[object]] = [[], [], []]
    for start in range(0, len(STREAM), 10):
        for number, reader in enumerate(readers):
            found[number] += give(reader, STREAM[start : start + 10])
    assert found == [EXPECTED] * 3
    assert shared.own_bytes == 0


@pytest.mark.parametrize("cut", [0, 5, 40, 100, len(STREAM)])
def test_frames_that_are_kept_are_not_written_over(cut: int) -> None:
    reader = FrameReader(shared=SharedBuffer(4096))
    kept: list[Frame] = []
    for data in (STREAM[:cut], STREAM[cut:]):
        if data:
            reader.buffer()[: len(data)] = data
            kept += reader.received(len(data))
            reader.keep()
    for _ in range(100):
        give(reader, encode_front(Kind.APPEND, 9, None, 1024) + b"\xff" * 1024)
    assert [copied(frame) for frame in kept] == EXPECTED


def test_memory_of_large_frames_is_used_again_and_never_while_somebody_has_a_view_of_it() -> None:
    reader = FrameReader(WHOLE, SharedBuffer(4096))
    kept: list[tuple[int, memoryview]] = []
    memories = set()
    for number in range(200):
        data = b"".join(encode(Kind.APPEND, number, None, [bytes([number]) * 200_000]))
        for start in range(0, len(data), 150_000):
            piece = data[start : start + 150_000]
            while piece:
                room = reader.buffer()
                count = min(len(room), len(piece))
                room[:count], piece = piece[:count], piece[count:]
                for frame in reader.received(count):
                    memories.add(id(frame.payload.obj))
                    kept.append((number, frame.payload[::1000]))
                    del frame
                del room
        while len(kept) > number % 7:
            correlation, view = kept.pop(0)
            assert bytes(view) == bytes([correlation]) * 200
            del view
    assert len(memories) < 20


def test_the_pool_keeps_no_more_than_it_may_and_lets_go_of_what_does_not_fit() -> None:
    pool = Pool(8 * WHOLE)
    views = [memoryview(pool.take(WHOLE)) for _ in range(20)]
    assert len({id(view.obj) for view in views}) == 20
    first = {id(view.obj) for view in views[:8]}
    views.clear()
    again = [memoryview(pool.take(WHOLE)) for _ in range(8)]
    assert {id(view.obj) for view in again} == first
    again.clear()
    small = pool.take(WHOLE // 8)
    assert len(small) == WHOLE // 8
    assert len(pool.take(POOL_BYTES)) == POOL_BYTES


def test_what_was_kept_and_is_let_go_is_received_into_again() -> None:
    shared = SharedBuffer()
    memories, kept = set(), deque[memoryview](maxlen=3)
    for _ in range(50):
        memories.add(id(shared.view.obj))
        kept.append(shared.view[:WHOLE])
        shared.give_away(len(shared.view))
    assert len(memories) <= 5


def test_keeping_little_does_not_cost_a_whole_buffer() -> None:
    shared = SharedBuffer(4096)
    reader = FrameReader(shared=shared)
    before = shared.view.obj
    for _ in range(4):
        give(reader, STREAM[:32])
        reader.keep()
    assert shared.view.obj is before
    assert len(shared.view) % 8 == 0


@pytest.mark.parametrize(
    "front",
    [
        (1 << 20, Kind.HELLO, 0, 0, 1, 0),
        (20, Kind.HELLO, 0, 0, 1, 0),
        (8, Kind.HELLO, 0, 0, 1, 0),
        (0, Kind.HELLO, 0, 0, 1, 0),
        (24, Kind.HELLO, 0, 0, 1, 9),
        (24, Kind.HELLO, 0, 0, 1, 0xFFFF_FFFF),
        (16, Kind.HELLO, 1, 0, 1, 0),
        (16, Kind.HELLO, 0, 1, 1, 0),
    ],
    ids=["large", "unaligned", "short", "empty", "head", "huge-head", "flags", "reserved"],
)
def test_a_front_that_cannot_be_one_is_refused(front: tuple[int, ...]) -> None:
    with pytest.raises(RemoteProtocolError):
        give(FrameReader(64 * 1024), STREAM[:32] + FRONT.pack(*front))


def test_a_head_over_its_limit_is_refused_before_it_has_come() -> None:
    reader = FrameReader(WHOLE, head_limit_bytes=64)
    give(reader, encode_front(Kind.CALL, 1, "x" * 62))
    with pytest.raises(RemoteProtocolError, match="a head of 65 bytes is over 64"):
        give(reader, encode_front(Kind.CALL, 1, "x" * 63)[:FRONT_SIZE])
    assert reader.held_bytes == 0


def test_what_incomplete_frames_hold_is_bounded_for_all_readers_together() -> None:
    shared = SharedBuffer(4096, own_bytes_max=100_000)
    readers = [FrameReader(WHOLE, shared) for _ in range(3)]
    front = encode_front(Kind.APPEND, 1, None, 40_000)
    for reader in readers[:2]:
        give(reader, front)
    with pytest.raises(LimitExceeded, match="receive_bytes"):
        give(readers[2], front)
    assert shared.own_bytes == 2 * (len(front) + 40_000)
    readers[0].close()
    give(readers[2], b"")
    assert give(readers[1], b"y" * 40_000)[0][3] == b"y" * 40_000
    assert shared.own_bytes == 0
