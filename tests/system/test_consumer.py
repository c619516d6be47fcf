"""Members of a group in this process and a real node: what moves, what is committed when, what a program is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from logboom import AsyncConsumer, Client, Consumer, Reader, Record, Writer, connect
from logboom.broker.api import GroupDescription
from logboom.client.remote import RemoteBroker
from logboom.errors import ConnectionLost, GroupMismatch, InvalidGroup, LocalProtocolError, LogNotHeld, ValueUnreadable
from support.nodes.process import NodeProcess, free_port
from support.waiting import wait_until

Answer = TypeVar("Answer")
FEW = 0.3
"""Seconds without records, after which a loop of a test has all there is."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def topic(node: NodeProcess, request: pytest.FixtureRequest) -> str:
    """A topic of four partitions, for this test."""
    name = f"t-{abs(hash(request.node.name)):x}"
    ask(node, lambda broker: broker.create_topic(name, 4))
    return name


def ask(node: NodeProcess, question: Callable[[RemoteBroker], Awaitable[Answer]]) -> Answer:
    async def run() -> Answer:
        async with connect(node.address) as broker:
            return await question(broker)

    return asyncio.run(run())


def fill(node: NodeProcess, topic: str, count: int = 40, partitions: int = 4) -> None:
    """So many records in each partition."""
    for partition in range(partitions):
        with Writer(topic, node.address, partition=partition) as writer:
            for number in range(count):
                writer.write(b"%d" % number)


def places(node: NodeProcess, group: str) -> dict[int, int | None]:
    described: GroupDescription = ask(node, lambda broker: broker.describe_group(group))
    return {log.partition: log.seqno for log in described.logs}


def seqnos(records: list[Record]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for record in records:
        found[record.partition or 0].append(record.seqno or 0)
    return dict(found)


def is_committed(node: NodeProcess, group: str, partition: int) -> bool:
    return bool(places(node, group).get(partition))


class Diary:
    """What a member was told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[int]]] = []
        self.listeners: dict[str, Any] = {
            f"on_{what}": self._listener(what) for what in ("assigned", "revoked", "lost")
        }

    def _listener(self, what: str) -> Callable[[Any], None]:
        return lambda logs: self.lines.append((what, [log.partition for log in logs]))


def polled(count: int, *members: Consumer) -> list[Record]:
    """So many records, or more, that come to some member."""
    found: list[Record] = []

    def look() -> bool:
        for member in members:
            found.extend(member.poll(0.01))
        return len(found) >= count

    wait_until(look)
    return found


def held(*members: Consumer) -> list[int]:
    """How many logs each holds, once its loop has come by."""
    for member in members:
        member.poll(0.01, 1)
    return [len(member.logs) for member in members]


def test_members_share_the_logs_and_one_that_goes_leaves_its_to_the_others(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    one, two = Diary(), Diary()
    everything = {partition: list(range(40)) for partition in range(4)}
    with Consumer(topic, node.address, group=topic, **one.listeners) as first:
        assert seqnos(list(first.records(timeout_s=FEW))) == everything
        with Consumer(topic, node.address, group=topic, **two.listeners) as second:
            wait_until(lambda: held(first, second) == [2, 2])
            assert (one.lines[1][0], two.lines[0][0]) == ("revoked", "assigned")
            moved = two.lines[0][1]
            assert one.lines == [("assigned", [0, 1, 2, 3]), ("revoked", moved)]
            fill(node, topic)
            theirs = seqnos(list(second.records(timeout_s=FEW)))
            assert theirs == {partition: list(range(40, 80)) for partition in moved}, "it goes on where the other was"
        wait_until(lambda: held(first) == [4])
        rest = seqnos(list(first.records(timeout_s=FEW)))
        assert rest.keys() <= set(range(4)) - set(moved), "what the other has committed does not come again"


def test_what_the_loop_has_come_back_for_is_committed(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    with Consumer(topic, node.address, group=topic) as consumer:
        record = next(islice(consumer, 50, None))
    left = {record.partition: record.seqno for record in (record,)}
    with Consumer(topic, node.address, group=topic) as consumer:
        rest = list(consumer.records(timeout_s=FEW))
        assert len(rest) == 160 - 50
        assert left.items() <= {record.partition: record.seqno for record in reversed(rest)}.items(), "again"
    assert places(node, topic) == dict.fromkeys(range(4), 40)


def test_places_are_committed_while_a_loop_goes_on(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    with Consumer(topic, node.address, group=topic, commit_interval_s=0.05) as consumer:
        for number, record in enumerate(consumer):
            time.sleep(0.02)
            if number == 20:
                wait_until(partial(is_committed, node, topic, record.partition or 0))
                place = places(node, topic)[record.partition or 0] or 0
                assert place <= (record.seqno or 0), "what is in hand is not processed"
            if number == 25:
                break


def test_before_means_that_no_record_is_given_twice(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    with Consumer(topic, node.address, group=topic, commit="before") as consumer:
        first = consumer.poll(max_records=15)
        assert places(node, topic)[first[0].partition or 0] == 15
    with Consumer(topic, node.address, group=topic, commit="before") as consumer:
        rest = list(consumer.records(timeout_s=FEW))
    given = [(record.partition, record.seqno) for record in first + rest]
    assert len(given) == len(set(given)) == 160


def test_by_hand_only_what_is_committed_counts(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    with Consumer(topic, node.address, group=topic, commit="manual") as consumer:
        records = list(consumer.records(timeout_s=FEW))
        assert set(places(node, topic).values()) <= {None, 0}
        chosen = next(record for record in records if record.seqno == 9)
        consumer.commit(chosen)
        assert places(node, topic)[chosen.partition or 0] == 10
        consumer.commit()
    assert places(node, topic) == dict.fromkeys(range(4), 40)
    with pytest.raises(LocalProtocolError):
        consumer.commit()
    with pytest.raises(LocalProtocolError):
        consumer.poll()


def test_all_forms_give_the_same(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    everything = sorted((partition, number) for partition in range(4) for number in range(40))
    with Consumer(topic, node.address, group=f"{topic}-lists") as consumer:
        rows = [
            row for lists in consumer.lists(["partition", "seqno"], timeout_s=FEW) for row in zip(*lists, strict=True)
        ]
        assert sorted(rows) == everything
    with Consumer(topic, node.address, group=f"{topic}-tables") as consumer:
        tables = list(consumer.tables(["partition", "seqno"], follow=False))
        assert sorted((row["partition"], row["seqno"]) for table in tables for row in table.to_pylist()) == everything
    with Consumer(topic, node.address, group=f"{topic}-polls") as consumer:
        polled = [record for some in iter(lambda: consumer.poll(FEW, 7), []) for record in some]
        assert sorted((record.partition, record.seqno) for record in polled) == everything
        assert [(log.seqno, log.committed) for log in consumer.logs] == [(40, 40)] * 4


def test_a_group_begins_where_its_first_member_says_and_goes_on_where_it_was(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    with Consumer(topic, node.address, group=topic, at="latest") as consumer:
        assert list(consumer.records(timeout_s=FEW)) == []
        fill(node, topic, 3)
        assert seqnos(list(consumer.records(timeout_s=FEW))) == {number: [40, 41, 42] for number in range(4)}
    with Consumer(topic, node.address, group=topic, at="earliest") as consumer:
        assert list(consumer.records(timeout_s=FEW)) == []
    with Consumer(topic, node.address, group=f"{topic}-2", timestamp=datetime(2100, 1, 1, tzinfo=UTC)) as consumer:
        assert list(consumer.records(timeout_s=FEW)) == []


def test_topics_that_come_later_are_shared_too(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 5)
    with Consumer(f"{topic}*", node.address, group=topic) as consumer:
        assert len(list(consumer.records(timeout_s=FEW))) == 20
        ask(node, lambda broker: broker.create_topic(f"{topic}-more", 1))
        fill(node, f"{topic}-more", 5, partitions=1)
        found = polled(5, consumer)
        assert {record.topic for record in found} == {f"{topic}-more"}
        ask(node, lambda broker: broker.delete_topic(f"{topic}-more"))
        wait_until(lambda: held(consumer) == [4])
        fill(node, topic, 5)
        assert len(list(consumer.records(timeout_s=FEW))) == 20


def test_places_can_be_committed_one_last_time_when_logs_are_asked_for(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    committed: dict[int, int] = {}

    def revoked(logs: list[Any]) -> None:
        first.commit()
        committed.update({log.partition: log.seqno for log in logs})

    first = Consumer(topic, node.address, group=topic, commit="manual", on_revoked=revoked)
    with first:
        assert first.poll(max_records=5)
        second = Consumer(topic, node.address, group=topic, commit="manual")
        with second:
            wait_until(lambda: held(first, second) == [2, 2])
        assert len(committed) == 2
        found = places(node, topic)
        assert {partition: found[partition] for partition in committed} == committed


def test_a_log_that_is_kept_for_too_long_is_taken_and_lost(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    diary = Diary()
    options: dict[str, Any] = {"commit": "manual", "give_back_s": 0.3}
    with Consumer(topic, node.address, group=topic, **options, **diary.listeners) as slow:
        records = list(slow.records(timeout_s=FEW))
        with Consumer(topic, node.address, group=topic) as second:
            wait_until(lambda: held(second) == [2])
            theirs = {log.partition for log in second.logs}
            lost = next(record for record in records if record.partition in theirs)
            with pytest.raises(LogNotHeld):
                slow.commit(lost)
            slow.poll(0.01)
            assert diary.lines[0][0] == "assigned"
            assert {what for what, _ in diary.lines[1:]} == {"lost"}
            assert {partition for _, partitions in diary.lines[1:] for partition in partitions} == theirs
            with pytest.raises(LogNotHeld):
                slow.commit(lost)


def test_who_does_not_come_back_leaves_and_is_back_when_it_does(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    diary = Diary()
    with Consumer(topic, node.address, group=topic, max_idle_s=0.5, **diary.listeners) as hanging:
        assert len(list(hanging.records(timeout_s=FEW))) == 40
        with Consumer(topic, node.address, group=topic, max_idle_s=300) as other:
            wait_until(lambda: held(other) == [4])
            wait_until(lambda: held(hanging, other) == [2, 2])
            fill(node, topic, 1)
            assert len(polled(4, hanging, other)) >= 4
        assert ("lost", [0, 1, 2, 3]) in diary.lines


def test_a_member_with_a_name_of_its_own_finds_its_logs_again(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    with Consumer(topic, node.address, group=topic) as other:
        with Consumer(topic, node.address, group=topic, instance="kitchen") as one:
            wait_until(lambda: held(one, other) == [2, 2])
            theirs = [log.partition for log in one.logs]
        kept = [log.partition for log in other.logs]
        with Consumer(topic, node.address, group=topic, instance="kitchen") as again:
            assert held(again) == [2]
            assert [log.partition for log in again.logs] == theirs
            assert held(other) == [2]
            assert [log.partition for log in other.logs] == kept, "nothing has moved"


def test_of_two_with_one_name_the_first_is_told_and_does_not_take_it_back(node: NodeProcess, topic: str) -> None:
    with Consumer(topic, node.address, group=topic, instance="kitchen") as first:
        assert held(first) == [4]
        with Consumer(topic, node.address, group=topic, instance="kitchen") as second:
            with pytest.raises(Exception, match="no member"):
                wait_until(lambda: not held(first))
            assert held(second) == [4]


def test_records_and_places_go_in_one_step(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    ask(node, lambda broker: broker.create_topic(f"{topic}-doubled", 1))
    done: list[tuple[int | None, int | None]] = []
    with Client(node.address) as client, Consumer(topic, node.address, group=topic, commit="manual") as consumer:
        for attempt in range(1000):
            records = consumer.poll(FEW, 7)
            if not records:
                break
            try:
                with client.transaction() as transaction:
                    for record in records:
                        transaction.write(f"{topic}-doubled", b"%d/%d" % (record.partition or 0, record.seqno or 0))
                    transaction.commit_cursor(consumer)
                    if attempt % 2:
                        raise InterruptedError
                done += [(record.partition, record.seqno) for record in records]
            except InterruptedError:
                consumer.rewind()
    assert places(node, topic) == dict.fromkeys(range(4), 10)
    with Reader(f"{topic}-doubled", node.address) as reader:
        written = sorted(record.value or b"" for record in reader)
    assert written == sorted(b"%d/%d" % (partition, number) for partition in range(4) for number in range(10))
    assert len(done) == len(set(done)) == 40


def test_a_transaction_of_somebody_who_has_lost_the_log_is_not_published(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    options: dict[str, Any] = {"commit": "manual", "give_back_s": 0.3}
    with Client(node.address) as client, Consumer(topic, node.address, group=topic, **options) as slow:
        assert len(list(slow.records(timeout_s=FEW))) == 40
        with Consumer(topic, node.address, group=topic) as second:
            wait_until(lambda: held(second) == [2])
            transaction = client.transaction()
            transaction.__enter__()
            transaction.write(topic, b"never")
            transaction.commit_cursor(slow)
            with pytest.raises(LogNotHeld):
                transaction.__exit__(None, None, None)
            assert len(list(second.records(timeout_s=FEW))) <= 20
    with Reader(topic, node.address) as reader:
        assert b"never" not in [record.value for record in reader]


def test_a_loop_goes_back_where_it_is_told_and_the_group_does_not(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    with Consumer(topic, node.address, group=topic, commit_interval_s=0.02) as consumer:
        assert len(list(consumer.records(timeout_s=FEW))) == 40
        wait_until(lambda: held(consumer) and places(node, topic) == dict.fromkeys(range(4), 10))
        consumer.seek(4, topic, 2)
        assert seqnos(list(consumer.records(timeout_s=FEW))) == {2: [4, 5, 6, 7, 8, 9]}
        found: list[int | None] = []
        consumer.seek(0, topic, 1)
        for record in consumer.records(timeout_s=FEW):
            found.append(record.seqno)
            if record.seqno == 5 and len(found) == 6:
                consumer.seek(0, topic, 1)
        assert found == [0, 1, 2, 3, 4, 5, *range(10)], "at once, also in the middle of a batch"
    assert places(node, topic) == dict.fromkeys(range(4), 10)


def test_a_loop_ends_when_somebody_stops_it(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    with Consumer(topic, node.address, group=topic) as consumer:
        timer = threading.Timer(0.3, consumer.stop)
        timer.start()
        assert len(list(consumer)) == 40
        timer.join()
        fill(node, topic, 10)
        assert list(consumer) == [], "it stays stopped"
    assert places(node, topic) == dict.fromkeys(range(4), 10), "what was come back for is committed"


def test_a_loop_in_which_the_consumer_is_closed_ends(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)
    consumer = Consumer(topic, node.address, group=topic, commit_interval_s=0.02)
    found = []
    for record in consumer:
        found.append(record)
        if len(found) == 5:
            time.sleep(0.1)
            consumer.close()
            consumer.close()
    assert len(found) == 5
    assert sum(place or 0 for place in places(node, topic).values()) == 4, "the last one was in hand"


def test_what_a_listener_raises_comes_out_of_the_loop_and_costs_nothing(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 10)

    def assigned(logs: list[Any]) -> None:
        raise ZeroDivisionError

    with Consumer(topic, node.address, group=topic, on_assigned=assigned) as consumer:
        with pytest.raises(ZeroDivisionError):
            next(iter(consumer))
        assert len(list(consumer.records(timeout_s=FEW))) == 40


def test_values_are_decoded_and_one_that_cannot_be_is_passed_by_the_next_loop(node: NodeProcess, topic: str) -> None:
    with Writer(topic, node.address, partition=0) as writer:
        for value in (b'{"n": 1}', b"}", b'{"n": 3}'):
            writer.write(value)
    with Consumer(topic, node.address, group=topic, value="json") as consumer:
        records = consumer.records(timeout_s=FEW)
        assert next(records).value == {"n": 1}
        with pytest.raises(ValueUnreadable):
            next(records)
    with Consumer(topic, node.address, group=topic, value="json") as consumer:
        with pytest.raises(ValueUnreadable):
            list(consumer.records(timeout_s=FEW))
        assert [record.value for record in consumer.records(timeout_s=FEW)] == [{"n": 3}]


def test_wishes_that_mean_nothing_are_refused(node: NodeProcess, topic: str) -> None:
    with pytest.raises(InvalidGroup):
        Consumer(topic, node.address, group="a b")
    with pytest.raises(InvalidGroup):
        Consumer(topic, node.address, group=topic, session_s=0.01)
    with pytest.raises(ValueError, match="commit"):
        Consumer(topic, node.address, group=topic, commit="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_idle_s"):
        Consumer(topic, node.address, group=topic, max_idle_s=0)
    with pytest.raises(TypeError, match="it is called"):
        Consumer(topic, bootstrap_servers=node.address, group=topic)  # type: ignore[call-arg]
    with pytest.raises(ConnectionLost):
        Consumer(topic, f"127.0.0.1:{free_port()}", group=topic, connect_timeout_s=0.2)
    assert issubclass(GroupMismatch, Exception)


def test_threads_of_members_end_with_them(node: NodeProcess, topic: str) -> None:
    def members() -> int:
        return sum(thread.name == "logboom-member" for thread in threading.enumerate())

    before = members()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(Consumer(topic, node.address, group=topic))
        assert members() == before + 3
    wait_until(lambda: members() == before)
    Consumer(topic, node.address, group=topic)  # nobody has it any more
    wait_until(lambda: members() == before)
    assert ask(node, lambda broker: broker.describe_group(topic)).members == []


def test_with_asyncio_members_share_alike(node: NodeProcess, topic: str) -> None:
    fill(node, topic)
    lines: list[tuple[str, list[int]]] = []

    async def revoked(logs: list[Any]) -> None:
        await asyncio.sleep(0)
        lines.append(("revoked", [log.partition for log in logs]))

    async def run() -> None:
        async with AsyncConsumer(topic, node.address, group=topic, on_revoked=revoked) as first:
            found = [record async for record in first.records(timeout_s=FEW)]
            assert seqnos(found) == {partition: list(range(40)) for partition in range(4)}
            async with AsyncConsumer(topic, node.address, group=topic) as second:
                async with asyncio.timeout(300):
                    while [len(first.logs), len(second.logs)] != [2, 2]:
                        assert await first.poll(0.01) + await second.poll(0.01) == []
                assert [len(partitions) for _, partitions in lines] == [2]
                await asyncio.to_thread(fill, node, topic, 10)
                rows = [lists async for lists in first.lists(["partition", "seqno"], timeout_s=FEW)]
                assert sum(len(numbers) for _, numbers in rows) == 20
                tables = [table async for table in second.tables(["seqno"], timeout_s=FEW)]
                assert sum(map(len, tables)) == 20
                await second.commit()
                await second.seek(49, topic, second.logs[0].partition)
                assert [record.seqno async for record in second.records(timeout_s=FEW)] == [49]
        with pytest.raises(LocalProtocolError):
            await first.poll()

    asyncio.run(run())
    assert places(node, topic) == dict.fromkeys(range(4), 50)


def test_a_member_lives_while_its_event_loop_is_kept_busy(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 5)

    async def run() -> None:
        async with AsyncConsumer(topic, node.address, group=topic, session_s=0.5) as consumer:
            number = 0
            async for record in consumer.records(timeout_s=FEW):
                if number == 0:
                    time.sleep(1.5)
                number += 1
                await consumer.commit(record)
            assert number == 20

    asyncio.run(run())


def test_the_example_of_the_class_says_what_is_there(tmp_path: Path, node: NodeProcess, topic: str) -> None:
    with Consumer(topic, node.address, group=topic) as consumer:
        assert held(consumer) == [4]
        assert repr(consumer) == f"<Consumer {topic} in group '{topic}', 4 logs>"
        assert (consumer.skipped, consumer.last_gap) == (0, None)
        assert len({log.generation for log in consumer.logs}) == 1
