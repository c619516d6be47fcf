"""Records that are left without the lock: none is lost, none overtakes another, and no bound is passed."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from logboom.batch.partitioner import partition_of
from logboom.client.write.gathered import RECORD_BYTES, SMALL_BYTES, Inbox
from logboom.errors import BatchTooLarge, LocalProtocolError
from support.nodes.scripted import Line, ScriptedNode

PLAIN: tuple[Any, ...] = (None, None, None, (), (), None)


def leave(line: Line, value: bytes, key: bytes | None = None, timestamp: int | None = None) -> bool:
    return line.core.routing.inbox.leave(value, key, timestamp, None, (), (), None)


def opened(node: ScriptedNode, **options: Any) -> Line:
    """With one record gathered, and so with an inbox that others can be left in."""
    line = Line(node, **options).connect()
    line.write(b"0")
    assert line.core.routing.inbox.room
    return line


def test_there_is_no_room_before_the_clock_of_a_batch_is_running() -> None:
    line = Line(ScriptedNode()).connect()
    assert not leave(line, b"0")
    assert line.core.routing.add(b"0", *PLAIN)
    assert not leave(line, b"1"), "nobody has looked at a clock yet"
    line.tick()
    assert leave(line, b"1")
    line.pass_time(1)
    assert not leave(line, b"2"), "everything was sent: nobody would come for it"
    assert line.node.logs[0] == [b"0", b"1"]


def test_what_was_left_keeps_its_place_among_what_was_added() -> None:
    line = opened(ScriptedNode())
    for number in range(1, 30):
        if number % 3:
            assert leave(line, b"%d" % number, key=b"k" if number % 2 else None)
        else:
            line.core.routing.add(b"%d" % number, None, None, "a/b", (), (), None)
    assert len(line.core) == 30
    line.run(flush=True)
    assert line.node.logs[0] == [b"%d" % number for number in range(30)]
    assert len(line.core) == line.core.stats()["buffered_bytes"] == 0


@pytest.mark.parametrize("partitions", [1, 3])
def test_keys_timestamps_and_waiters_are_kept_with_their_records(partitions: int) -> None:
    line = opened(ScriptedNode(partitions))
    told: dict[int, Any] = {}
    for number in range(1, 40):
        key = b"%d" % (number % 5) if number % 2 else None
        if number % 4:
            assert leave(line, b"%d" % number, key, number if number % 3 else None)
        else:
            told[number] = None
            waiter = partial(told.__setitem__, number)
            line.core.routing.add(b"%d" % number, key, number, None, (), (), waiter)
    before = line.core.stats()["buffered_bytes"]
    line.core.turn(line.now)
    assert line.core.stats()["buffered_bytes"] == before, "counted as it will be"
    line.run(flush=True)
    assert sorted(told) == list(range(4, 40, 4))
    for number, written in told.items():
        assert line.node.logs[written.partition][written.seqno] == b"%d" % number
    for number in range(1, 40, 2):
        assert b"%d" % number in line.node.logs[partition_of(b"%d" % (number % 5), partitions)]
    assert sum(map(len, line.node.logs.values())) == 40


@pytest.mark.parametrize("seed", range(20))
def test_batches_end_where_they_are_full_whatever_was_left(seed: int) -> None:
    chance = random.Random(seed)
    batch_bytes = chance.choice([1, 100, 1000, 20_000])
    line = Line(ScriptedNode(chance.choice([1, 3])), batch_bytes=batch_bytes, linger_ms=10_000).connect()
    most, count = 0, 0
    for _ in range(600):
        value, key = bytes(chance.choice([1, 10, 300, 2_000])), chance.choice([None, b"a", b"b"])
        line.write(value, key, timestamp=chance.choice([None, 5]))
        most, count = max(most, len(value) + 100), count + 1
    line.run(flush=True)
    assert sum(map(len, line.node.logs.values())) == count
    # What a record lacks and others have takes room in its columns, which nobody counts.
    assert all(header.body_size < batch_bytes + most + 24 * header.record_count for _, header in line.node.batches)


def test_no_more_is_left_than_the_buffer_has_room_for() -> None:
    line = opened(ScriptedNode(), buffer_bytes=100_000, batch_bytes=2**20, linger_ms=10_000)
    value = bytes(SMALL_BYTES)
    while not line.core.is_barred:
        line.write(value)
        assert line.core.stats()["buffered_bytes"] <= 100_000 + SMALL_BYTES + RECORD_BYTES
    assert not leave(line, value)


def test_what_is_too_large_is_refused_and_not_left() -> None:
    node = ScriptedNode()
    node.limits = type(node.limits)(2**26, 3000, 2**25, 16, 600_000, 100)
    line = opened(node)
    assert not leave(line, bytes(2_500))
    with pytest.raises(BatchTooLarge):
        line.write(bytes(2_500))
    assert not leave(line, b"v", key=bytes(2_500))


@pytest.mark.parametrize(
    "odd", [{"value": "text"}, {"value": None}, {"key": "text"}, {"timestamp": 2**63}, {"timestamp": True}]
)
def test_what_has_to_be_looked_at_is_not_left(odd: dict[str, Any]) -> None:
    inbox = Inbox()
    inbox.room = 10
    record = {"value": b"v", "key": b"k", "timestamp": 5, **odd}
    assert not inbox.leave(record["value"], record["key"], record["timestamp"], None, (), (), None)
    assert not inbox.entries


def test_what_comes_while_the_inbox_is_shut_is_taken_by_the_next_turn() -> None:
    line = opened(ScriptedNode())
    line.run(flush=True)
    line.core.routing.inbox.entries.append(b"late")  # by a thread that has just seen room
    line.core.turn(line.now)
    assert not line.core.is_idle
    line.pass_time(1)
    assert line.node.logs[0] == [b"0", b"late"]


def test_what_comes_when_all_is_over_is_told_of() -> None:
    line = opened(ScriptedNode())
    line.run(flush=True)
    line.core.contact.fatal = LocalProtocolError("the writer is closed")
    line.core.bar()
    line.core.abandon(line.core.contact.fatal)
    line.core.routing.inbox.entries.append(b"late")
    line.tick()
    assert line.losses == [(line.core.contact.fatal, 1)]
    assert len(line.core) == 0


def test_a_record_fails_its_own_time_after_it_was_written_whatever_waits_beside_it() -> None:
    keys = {partition_of(key, 3): key for key in (b"%d" % number for number in range(20))}
    line = Line(ScriptedNode(3), delivery_timeout_s=10).connect()
    line.lose()
    line.write(b"first", keys[0])
    line.pass_time(8)
    line.write(b"second", keys[1])
    assert line.core.routing.inbox.entries, "it was left"
    line.pass_time(3)
    assert [count for _, count in line.losses] == [1]
    line.pass_time(6)
    assert [count for _, count in line.losses] == [1]
    line.pass_time(2)
    assert [count for _, count in line.losses] == [1, 1]


@pytest.mark.parametrize("sizes", [[100] * 1000, [100] * 30 + [28_900], [28_900] + [100] * 30, [20_000] * 5])
def test_no_batch_is_larger_than_the_node_takes(sizes: list[int]) -> None:
    node = ScriptedNode()
    node.limits = type(node.limits)(2**26, 30_000, 2**25, 16, 600_000, 100)
    line = Line(node).connect()
    for size in sizes:
        line.write(bytes(size))
    line.run(flush=True)
    assert list(map(len, filter(None, node.logs[0]))) == sizes
    assert all(header.size <= 30_000 for _, header in node.batches)
