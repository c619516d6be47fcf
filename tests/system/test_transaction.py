"""Transactions against real nodes: all or nothing, once, in order, however often the node is killed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from logboom import Client, Reader, Record, Transaction, connect
from logboom.broker.api import Settings
from logboom.broker.publish.publication import Publication, PublishKey
from logboom.client.link.blocking_link import BlockingLink
from logboom.client.publish.publish_calls import discard, publish
from logboom.client.publish.stage_writer import StageWriter
from logboom.errors import (
    InvalidKey,
    LocalProtocolError,
    StageBusy,
    StageIncomplete,
    StageNotFound,
    TopicDeleted,
    TopicError,
    TopicNotAllowed,
    TopicNotFound,
    TopicRecreated,
)
from logboom.storage.data.topic import SegmentSettings
from support.howto_page import HOWTO, blocks
from support.nodes.process import NodeProcess

PATIENCE_S = 300.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as node:
        yield node


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.address) as client:
        yield client


def create(node: NodeProcess, topic: str, partitions: int = 1, settings: Settings | None = None) -> None:
    async def run() -> None:
        async with connect(node.address) as broker:
            await broker.create_topic(topic, partitions, settings)

    asyncio.run(run())


def delete(node: NodeProcess, topic: str) -> None:
    async def run() -> None:
        async with connect(node.address) as broker:
            await broker.delete_topic(topic)

    asyncio.run(run())


def read(node: NodeProcess, topic: str = "events", partition: int | None = None, seqno: int = 0) -> list[Record]:
    with Reader(topic, node.address, partition=partition, seqno=seqno) as reader:
        return list(reader.records())


def values(node: NodeProcess, topic: str = "events", partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in read(node, topic, partition)]


def numbers(node: NodeProcess, topic: str = "events", partition: int | None = None) -> list[int]:
    return [int(value or b"") for value in values(node, topic, partition)]


def published(transaction: Transaction) -> Publication:
    assert transaction.publication is not None
    return transaction.publication


def shown_keys(client: Client) -> list[tuple[str, int, int]]:
    found = client.keys()
    return [(key.name, key.number, key.records) for key in found]


def test_a_block_is_published_at_its_end_and_not_before(node: NodeProcess, client: Client) -> None:
    create(node, "events", 3)
    create(node, "others", 2)
    with client.transaction("k", 1) as transaction:
        for number in range(300):
            transaction.write("events", b"%d" % number, key=b"%d" % number)
            transaction.write("others", b"%d" % number, partition=number % 2)
        transaction.write_many("events", [b"%d" % number for number in range(300, 2000)], partition=1)
        assert values(node, "others", 0) == []
        transaction.write_many("others", [bytes(1000)] * 2000, partition=0)
        assert [stage.note for stage in client.stages()] == ["k/1"]
    assert sorted(number for partition in range(3) for number in numbers(node, "events", partition)) == list(
        range(2000)
    )
    assert numbers(node, "events", 1)[-1700:] == list(range(300, 2000))
    for partition in range(2):
        found = [int(value or b"") for value in values(node, "others", partition) if value != bytes(1000)]
        assert found == list(range(partition, 300, 2))
    publication = published(transaction)
    assert (publication.name, publication.number, publication.repeat) == ("k", 1, False)
    assert publication.parts is not None
    for part in publication.parts:
        assert (part.first, part.next, part.records) == (0, len(read(node, part.topic, part.partition)), part.next)
    assert {(part.topic, part.partition) for part in publication.parts} == {
        *(("events", partition) for partition in range(3)),
        *(("others", partition) for partition in range(2)),
    }
    assert client.stages() == []
    assert shown_keys(client) == [("k", 1, 4300)]


def test_every_field_of_a_record_arrives(node: NodeProcess, client: Client) -> None:
    with client.transaction() as transaction:
        transaction.write("events", "text", key="k", timestamp=5, channel="a/b", tags=["x"], headers=[("h", b"1")])
        transaction.write("events", None, key=b"k")
        transaction.write_many("events", [b"1", b"2"], keys=[b"a", None], timestamps=7, channels="c", tags=[["t"], []])
        transaction.write_table("events", pa.table({"value": [b"3"], "headers": [[{"key": "h", "value": b"2"}]]}))
    found = read(node)
    assert found[0] == Record(b"text", b"k", 5, "a/b", ("x",), (("h", b"1"),), 0, "events", 0)
    assert (found[1].value, found[1].key) == (None, b"k")
    assert found[2] == Record(b"1", b"a", 7, "c", ("t",), (), 2, "events", 0)
    assert (found[3].key, found[3].timestamp, found[3].channel) == (None, 7, "c")
    assert found[4].headers == (("h", b"2"),)


def test_a_block_that_raises_leaves_nothing(node: NodeProcess, client: Client) -> None:
    create(node, "events")
    transaction = client.transaction("k", 1)

    def fail() -> None:
        with transaction:
            transaction.write_many("events", [bytes(1000)] * 5000)
            transaction.write("events", b"1")
            assert client.stages() != []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert transaction.publication is None
    assert (values(node), client.stages(), client.keys()) == ([], [], [])
    with client.transaction("k", 1) as again:
        again.write("events", b"1")
    assert not published(again).repeat


def test_a_block_may_say_that_nothing_is_to_be_published(node: NodeProcess, client: Client) -> None:
    create(node, "events")
    with client.transaction("k", 1) as transaction:
        transaction.write("events", b"1")
        transaction.discard()
        with pytest.raises(LocalProtocolError):
            transaction.write("events", b"2")
    assert transaction.publication is None
    assert (values(node), client.stages(), client.keys()) == ([], [], [])


def test_a_transaction_is_one_block(client: Client) -> None:
    transaction = client.transaction("k", 1)
    with pytest.raises(LocalProtocolError):
        transaction.write("events", b"1")
    with transaction:
        transaction.write("events", b"1")
    with pytest.raises(LocalProtocolError):
        transaction.write("events", b"2")
    with pytest.raises(LocalProtocolError), transaction:
        pass
    with pytest.raises(LocalProtocolError):
        transaction.discard()


def test_of_one_name_numbers_rise_and_none_is_published_twice(node: NodeProcess, client: Client) -> None:
    publications = []
    for number in (3, 3, 5, 4, 3, 5, 9, 0):
        with client.transaction("k", number) as transaction:
            transaction.write("events", b"%d" % number)
        publications.append(published(transaction))
    assert numbers(node) == [3, 5, 9]
    assert [publication.repeat for publication in publications] == [False, True, False, True, True, True, False, True]
    assert publications[1].parts == publications[0].parts
    assert publications[3].parts is None
    with client.transaction("other", 1) as transaction:
        transaction.write("events", b"1")
    assert client.stages() == []
    assert shown_keys(client) == [("k", 9, 1), ("other", 1, 1)]
    assert [key.name for key in client.keys("o")] == ["other"]
    assert client.forget_key("k")
    assert not client.forget_key("k")
    with client.transaction("k", 1) as transaction:
        transaction.write("events", b"1")
    assert numbers(node) == [3, 5, 9, 1, 1]


def test_a_block_without_records_only_raises_the_number(client: Client) -> None:
    with client.transaction("k", 4) as transaction:
        pass
    assert published(transaction) == Publication("k", 4, False, [])
    assert shown_keys(client) == [("k", 4, 0)]


def test_a_block_without_a_name_is_another_one_each_time(node: NodeProcess, client: Client) -> None:
    for _ in range(3):
        with client.transaction() as transaction:
            transaction.write("events", b"1")
        assert not published(transaction).repeat
    assert numbers(node) == [1, 1, 1]
    keys = client.keys()
    assert len(keys) == 3
    assert all(key.expires is not None for key in keys)


def test_a_key_that_is_none_is_refused_and_nothing_is_left(node: NodeProcess, client: Client) -> None:
    create(node, "events")
    for name, number in (("", 1), ("with space", 1), ("k", -1), ("x" * 250, 1)):
        with pytest.raises(InvalidKey), client.transaction(name, number) as transaction:
            transaction.write("events", b"1")
    assert (values(node), client.stages(), client.keys()) == ([], [], [])


def test_of_two_publishers_with_the_same_key_one_is_the_first(node: NodeProcess) -> None:
    create(node, "events", 2)
    answers: list[Publication] = []

    def run(publisher: int) -> None:
        with Client(node.address) as client:
            for number in range(10):
                with client.transaction("k", number) as transaction:
                    for partition in range(2):
                        transaction.write("events", b"%d" % (100 * number + publisher), partition=partition)
                answers.append(published(transaction))

    threads = [threading.Thread(target=run, args=(publisher,)) for publisher in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs = [numbers(node, partition=partition) for partition in range(2)]
    assert logs[0] == logs[1]
    assert [number // 100 for number in logs[0]] == list(range(10))
    assert len(answers) == 40
    for number in range(10):
        same = [answer for answer in answers if answer.number == number]
        assert [answer.repeat for answer in same].count(False) == 1


def test_a_topic_deleted_or_made_anew_inside_the_block_gets_nothing(node: NodeProcess, client: Client) -> None:
    def run(anew: bool) -> None:
        with client.transaction("k", 1) as transaction:
            transaction.write("others", b"1")
            transaction.write_many("events", [bytes(1000)] * 2000)
            delete(node, "events")
            if anew:
                create(node, "events")
                transaction.write_many("events", [bytes(1000)] * 2000)

    create(node, "others")
    for anew in (False, True):
        create(node, "events")
        with pytest.raises(TopicError):
            run(anew)
    assert (values(node), values(node, "others"), client.stages(), client.keys()) == ([], [], [], [])


def test_a_small_block_has_no_stage_and_keeps_its_order(node: NodeProcess, client: Client) -> None:
    create(node, "events", 2)
    for number in range(20):
        with client.transaction("k" if number % 2 else None, number) as transaction:
            transaction.write("events", b"%d" % number, partition=0)
            transaction.write_many("events", [b"%d" % number, b"%d" % (number + 100)], partition=1)
            assert client.stages() == []
        parts = published(transaction).parts
        assert parts is not None
        found = sorted((part.partition, part.first, part.next) for part in parts)
        assert found == [(0, number, number + 1), (1, 2 * number, 2 * number + 2)]
    assert numbers(node, partition=0) == list(range(20))
    assert numbers(node, partition=1) == [n for number in range(20) for n in (number, number + 100)]


@pytest.mark.parametrize("time_us", [0, 1, 2**62], ids=["unknown", "behind", "ahead"])
def test_a_block_without_a_name_takes_a_stage_where_the_nodes_time_is_not_known(
    node: NodeProcess, client: Client, time_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.transaction() as transaction:
        transaction.write("events", b"1")
    assert published(transaction).number > 0
    monkeypatch.setattr(BlockingLink, "node_time_us", property(lambda link: time_us))
    with client.transaction() as transaction:
        transaction.write("events", b"2")
    assert published(transaction).number == (1 if time_us == 1 else 0)  # nothing was forgotten yet: any time will do
    assert numbers(node) == [1, 2]
    assert client.stages() == []


def test_a_topic_made_anew_between_two_blocks_is_an_error_once(node: NodeProcess, client: Client) -> None:
    def run(number: int) -> None:
        with client.transaction("k", number) as transaction:
            transaction.write("events", b"%d" % number)

    create(node, "events")
    run(1)
    delete(node, "events")
    create(node, "events", 2)
    with pytest.raises(TopicRecreated):
        run(2)
    run(2)
    assert sorted(numbers(node, partition=0) + numbers(node, partition=1)) == [2]


def test_a_client_uses_its_connections_again_and_notices_those_that_are_lost(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, Client(node.address) as client:
        create(node, "events")
        for number in range(4):
            with client.transaction("k", number) as transaction:
                transaction.write("events", b"%d" % number)
            assert len(client._idle) == 1
            if number % 2:
                node.kill()
                node.start()
        assert numbers(node) == list(range(4))


def test_a_topic_that_may_not_be_made_is_an_error_where_it_is_named(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--set", "topics.auto_create=false") as node, Client(node.address) as client:
        with pytest.raises(TopicNotAllowed), client.transaction("k", 1) as transaction:
            transaction.write("events", b"1")
        assert client.stages() == []


def test_a_stage_that_keeps_to_a_name_takes_no_other_topic_for_one_of_it(node: NodeProcess, client: Client) -> None:
    def run(number: int, *, create: bool = True) -> None:
        writer = StageWriter(node.address, create=create)
        try:
            writer.keep_to("k")
            writer.write("events", b"%d" % number)
            writer.publish(PublishKey("k", number))
        finally:
            writer.close()

    with pytest.raises(TopicNotFound):
        run(1, create=False)
    for number in (1, 2):
        run(number)
    assert values(node) == [b"1", b"2"]
    delete(node, "events")
    with pytest.raises(TopicDeleted):
        run(3)
    create(node, "events")
    with pytest.raises(TopicRecreated):
        run(3)
    assert (values(node), shown_keys(client)) == ([], [("k", 2, 1)])


def test_stages_of_several_writers_are_published_together_in_their_order(node: NodeProcess, client: Client) -> None:
    create(node, "events")
    writers = [StageWriter(node.address, note=f"task {number}") for number in range(3)]
    for number, writer in enumerate(writers):
        for value in range(10):
            writer.write("events", b"%d" % (10 * number + value))
    first, second, third = [writer.finish() for writer in writers]
    with pytest.raises(StageIncomplete):
        publish(node.address, PublishKey("k", 1), [first, type(second)(second.stage, 11)])
    assert values(node) == []
    with pytest.raises(StageBusy):
        publish(node.address, PublishKey("k", 1), [first, first])
    assert publish(node.address, PublishKey("k", 1), [third, first]).repeat is False
    assert numbers(node) == [*range(20, 30), *range(10)]
    with pytest.raises(StageNotFound):
        publish(node.address, PublishKey("k", 2), [first, second])
    assert discard(node.address, [second.stage, first.stage]) == 1
    assert client.stages() == []


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_node_killed_while_a_block_runs_is_not_noticed(codec: str, tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, Client(node.address, codec=codec, batch_bytes=4000) as client:
        create(node, "events", 3)
        create(node, "others", 1)
        with client.transaction("k", 1) as transaction:
            for number in range(6000):
                if number in (1500, 3200):
                    node.kill()
                    node.start()
                transaction.write("events", b"%d" % number, key=b"%d" % (number % 50))
                if number % 100 == 0:
                    more = [b"%d" % value for value in range(number, number + 100)]
                    transaction.write_many("others", pa.array(more))
        assert not published(transaction).repeat
        logs = [numbers(node, "events", partition) for partition in range(3)]
        assert sorted(number for log in logs for number in log) == list(range(6000))
        for log in logs:
            for key in range(50):
                mine = [number for number in log if number % 50 == key]
                assert mine == sorted(mine)
        assert numbers(node, "others") == list(range(6000))
        assert client.stages() == []


FEW = [b"%d" % number for number in range(50)]
"""So little that it is published in one call."""
MANY = [b"%d" % number for number in range(20_000)]
LARGE = [b"%d " % number + b"x" * 2000 for number in range(5000)]
"""More than a segment of SMALL takes: it becomes segments itself."""
SMALL = Settings(SegmentSettings(4 * 1024 * 1024))
LOGS = [("events", 0), ("events", 1), ("events", 2), ("others", 0)]


class Publisher(threading.Thread):
    """Publishes the same in four logs at once."""

    def __init__(self, client: Client, number: int, content: list[bytes]) -> None:
        super().__init__()
        self.staged = threading.Event()
        self.answer: Publication | None = None
        self._transaction = client.transaction("k", number)
        self._content = content

    def run(self) -> None:
        with self._transaction as transaction:
            for partition in range(3):
                transaction.write_many("events", self._content, partition=partition)
            transaction.write_many("others", self._content)
            self.staged.set()
        self.answer = transaction.publication


def kill_while_publishing(root: Path, rounds: int, content: list[bytes]) -> None:
    """The first round is not disturbed: it says how long a publish takes."""
    with NodeProcess(root) as node, Client(node.address) as client:
        create(node, "events", 3, SMALL)
        create(node, "others", 1, SMALL)
        took_s = PATIENCE_S
        for number in range(rounds):
            publisher = Publisher(client, number, content)
            publisher.start()
            assert publisher.staged.wait(PATIENCE_S)
            began = time.monotonic()
            publisher.join(took_s * random.random() if number else took_s)
            if number:
                node.kill()
                node.start()
            else:
                took_s = time.monotonic() - began
            publisher.join(PATIENCE_S)
            assert publisher.answer is not None
            assert publisher.answer.number == number
            for topic, partition in LOGS:
                news = read(node, topic, partition, number * len(content))
                assert [record.value for record in news] == content
        for topic, partition in LOGS:
            assert values(node, topic, partition) == content * rounds
        assert client.stages() == []
        keys = client.keys()
        assert [(key.name, key.number, key.is_open) for key in keys] == [("k", rounds - 1, False)]


@pytest.mark.parametrize("content", [FEW, MANY, LARGE], ids=["few", "many", "large"])
def test_a_node_killed_while_it_publishes_has_all_of_it_once(tmp_path: Path, content: list[bytes]) -> None:
    kill_while_publishing(tmp_path, 2, content)


@pytest.mark.soak
@pytest.mark.parametrize("content", [FEW, MANY, LARGE], ids=["few", "many", "large"])
def test_a_node_killed_very_often_while_it_publishes_has_all_of_it_once(tmp_path: Path, content: list[bytes]) -> None:
    kill_while_publishing(tmp_path, 40, content)


def test_a_program_killed_anywhere_goes_on_where_it_was(tmp_path: Path) -> None:
    program = """
        import os, sys
        from logboom import Client
        address, step = sys.argv[1], sys.argv[2]
        with Client(address) as client:
            done = {key.name: key.number for key in client.keys("job")}.get("job", -1)
            for number in range(done + 1, 6):
                with client.transaction("job", number) as transaction:
                    for value in range(10 * number, 10 * number + 10):
                        transaction.write("events", b"%d" % value, partition=0)
                        transaction.write("events", b"%d" % value, partition=1)
                    if step == f"before {number}":
                        os._exit(9)
                if step == f"after {number}":
                    os._exit(9)
    """
    with NodeProcess(tmp_path) as node:
        create(node, "events", 2)
        for step in ("before 0", "after 0", "before 3", "after 5", "end"):
            command = [sys.executable, "-c", textwrap.dedent(program), node.address, step]
            done = subprocess.run(command, check=False, timeout=PATIENCE_S)
            assert done.returncode == (0 if step == "end" else 9)
        for partition in range(2):
            assert numbers(node, partition=partition) == list(range(60))


def test_a_hundred_mebibytes_in_one_block_are_there_once_and_in_order(node: NodeProcess, client: Client) -> None:
    create(node, "events", 3)
    create(node, "others", 2)
    rows = 25_000
    with client.transaction("large", 1) as transaction:
        for chunk in range(4):
            column = pa.array([b"%01000d" % number for number in range(chunk * rows, (chunk + 1) * rows)])
            keys = pa.array([b"%d" % (number % 101) for number in range(chunk * rows, (chunk + 1) * rows)])
            transaction.write_many("events", column, keys=keys)
            transaction.write_many("others", column.slice(0, rows // 10), partition=chunk % 2)
    publication = published(transaction)
    assert publication.parts is not None
    assert sum(part.records for part in publication.parts) == 4 * rows + 4 * (rows // 10)
    logs = [numbers(node, "events", partition) for partition in range(3)]
    assert sorted(number for log in logs for number in log) == list(range(4 * rows))
    for log in logs:
        last: dict[int, int] = {}
        for number in log:
            assert last.get(number % 101, -1) < number
            last[number % 101] = number
    for partition in range(2):
        starts = [chunk * rows for chunk in range(4) if chunk % 2 == partition]
        assert numbers(node, "others", partition) == [start + row for start in starts for row in range(rows // 10)]
    assert client.stages() == []


def test_the_page_about_transactions_is_true(node: NodeProcess, tmp_path: Path) -> None:
    page = list(blocks((HOWTO / "transactions.md").read_text()))
    typed = "\n".join(block.text for block in page if block.language == "python")
    shown = "".join(block.text for block in page if block.language == "text")
    done = subprocess.run(
        [sys.executable, "-c", typed],
        cwd=tmp_path,
        env={**os.environ, "LOGBOOM_SERVERS": node.address},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


@pytest.mark.timeout(7200)  # a million, each of them synced
@pytest.mark.parametrize(
    "count", [100, pytest.param(3_000, marks=pytest.mark.soak), pytest.param(500_000, marks=pytest.mark.soak)]
)
def test_there_can_be_any_number_of_transactions_without_a_name(tmp_path: Path, count: int) -> None:
    with NodeProcess(tmp_path, "--set", "limits.publish_keys=20") as node:
        create(node, "t")
        before = 0
        for _ in range(2):
            with Client(node.address) as client:
                for number in range(before, before + count):
                    with client.transaction() as transaction:
                        transaction.write("t", b"%d" % number)
                assert len(client.keys()) <= 40
            before += count
            assert node.stop() == 0
            assert sum(path.stat().st_size for path in node.directory.glob("topics/_publish~*/0/*")) < 20_000_000
            node.start()
        assert [int(record.value or b"") for record in read(node, "t")] == list(range(before))
