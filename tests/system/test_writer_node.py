"""Writers against real nodes: killed and started under them, away for long, slow, gone."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from concurrent.futures import Future, wait
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from logboom import AsyncReader, AsyncWriter, Reader, Record, Writer, connect
from logboom.client.write.gathered import Written
from logboom.errors import (
    BufferFull,
    ConfigError,
    ConnectionLost,
    LocalProtocolError,
    LogboomError,
    OutcomeUnknown,
    TopicNotAllowed,
    TopicRecreated,
)
from support.nodes.process import NodeProcess, free_port
from support.waiting import until

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "durable": {"acks": "durable", "batch_bytes": 2000},
    "a record a batch": {"acks": "leader", "batch_bytes": 1},
    "compressed, three partitions": {"acks": "durable", "codec": "zstd", "batch_bytes": 5000, "linger_ms": 1},
}


def create(node: NodeProcess, topic: str = "events", partitions: int = 1) -> None:
    async def run() -> None:
        async with connect(node.address) as broker:
            await broker.create_topic(topic, partitions)

    asyncio.run(run())


def delete(node: NodeProcess, topic: str) -> None:
    async def run() -> None:
        async with connect(node.address) as broker:
            await broker.delete_topic(topic)

    asyncio.run(run())


def settle(node: NodeProcess, topic: str) -> None:
    """Until everything written is synced, and so can be read."""

    async def run() -> None:
        async with connect(node.address) as broker:

            async def is_synced() -> bool:
                return all(log.committed >= log.next for log in (await broker.describe_topic(topic)).partitions)

            await until(is_synced, f"all of {topic} on the disk")

    asyncio.run(run())


def read(node: NodeProcess, topic: str = "events", partition: int | None = None) -> list[Record]:
    settle(node, topic)
    with Reader(topic, node.address, partition=partition) as reader:
        return list(reader.records())


def values(node: NodeProcess, partition: int | None = None) -> list[int]:
    return [int(record.value or b"") for record in read(node, partition=partition)]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_node_killed_and_started_again_loses_nothing_and_has_nothing_twice(name: str, tmp_path: Path) -> None:
    partitions = 3 if "three" in name else 1
    with NodeProcess(tmp_path) as node:
        create(node, partitions=partitions)
        sent = []
        with Writer("events", node.address, **CONFIGURATIONS[name]) as writer:
            for number in range(3000):
                if number in (700, 1900):
                    node.kill()
                if number in (900, 2300):
                    node.start()
                sent.append(writer.send(b"%d" % number, key=b"k%d" % (number % 7)))
            written = [future.result(300) for future in sent]
        logs = [values(node, partition) for partition in range(partitions)]
    assert sorted(value for log in logs for value in log) == list(range(3000))
    for log in logs:
        for rest in range(7):
            mine = [value for value in log if value % 7 == rest]
            assert mine == sorted(mine)
    assert all(logs[place.partition][place.seqno] == number for number, place in enumerate(written))


def test_every_field_of_a_record_arrives(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        with Writer("events", node.address) as writer:
            writer.write("text", key="k", timestamp=5, channel="a/b", tags=["x", "y"], headers=[("h", b"1")])
            writer.write(None, key=b"k")
            writer.write_many([b"1", b"2"], keys=[b"a", None], timestamps=7, channels="c", tags=[["t"], []])
            writer.write_table(pa.table({"value": [b"3"], "headers": [[{"key": "h", "value": b"2"}]]}))
        found = read(node)
    assert found[0] == Record(b"text", b"k", 5, "a/b", ("x", "y"), (("h", b"1"),), 0, "events", 0)
    assert (found[1].value, found[1].key) == (None, b"k")
    assert found[2] == Record(b"1", b"a", 7, "c", ("t",), (), 2, "events", 0)
    assert (found[3].key, found[3].timestamp, found[3].channel) == (None, 7, "c")
    assert found[4].headers == (("h", b"2"),)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("partitions", [1, 3])
def test_columns_arrive_whole_and_in_order(keyed: bool, partitions: int, tmp_path: Path) -> None:
    many = [b"%d" % number for number in range(20_000)]
    with NodeProcess(tmp_path) as node:
        create(node, partitions=partitions)
        with Writer("events", node.address, batch_bytes=10_000) as writer:
            writer.write(b"-1", key=b"first")
            keys = [b"k%d" % (number % 5) for number in range(20_000)] if keyed else None
            writer.write_many(many[:7], keys=None if keys is None else keys[:7])
            writer.write_many(many[7:11_000], keys=None if keys is None else keys[7:11_000])
            writer.write_many(pa.array(many[11_000:]), keys=None if keys is None else pa.array(keys[11_000:]))
        logs = [values(node, partition) for partition in range(partitions)]
    assert sorted(value for log in logs for value in log) == [-1, *range(20_000)]
    if keyed:
        for log in logs:
            for rest in range(5):
                mine = [value for value in log if value >= 0 and value % 5 == rest]
                assert mine == sorted(mine)
    elif partitions == 1:
        assert logs[0] == [-1, *range(20_000)]


def test_many_threads_share_one_writer(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, Writer("events", node.address, acks="leader") as writer:
        places: list[Written] = []

        def work(name: int) -> None:
            for number in range(50):
                writer.write(b"%d" % (name * 1000 + number))
                if number % 10 == 0:
                    places.append(writer.send(b"%d" % (name * 1000 + 500 + number)).result(300))
            writer.flush(60)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        found = values(node)
    assert len(found) == len(set(found)) == 8 * 55
    assert len({place.seqno for place in places}) == 40
    for name in range(8):
        mine = [value % 1000 for value in found if value // 1000 == name and value % 1000 < 500]
        assert mine == list(range(50))


def test_threads_that_never_wait_for_the_lock_lose_nothing_and_keep_their_order(tmp_path: Path) -> None:
    threads, each = 6, 4_000
    told: list[Written | LogboomError] = []
    interval = sys.getswitchinterval()
    with NodeProcess(tmp_path) as node:
        create(node)
        with Writer("events", node.address, batch_bytes=3_000, linger_ms=0.5) as writer:

            def run(number: int) -> None:
                for count in range(each):
                    value = b"%d" % (number * each + count)
                    if count % 5 == 4:
                        writer.write(value, key=b"%d" % number, callback=told.append)
                    elif count % 501 == 500:
                        writer.send(value, channel="a/b").result(60)
                    else:
                        writer.write(value)

            workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
            sys.setswitchinterval(1e-6)
            try:
                for worker in workers:
                    worker.start()
                while any(worker.is_alive() for worker in workers):
                    writer.flush()
                    assert len(writer) >= 0
                for worker in workers:
                    worker.join()
            finally:
                sys.setswitchinterval(interval)
            writer.flush()
            assert writer.stats["written"] == threads * each
            assert writer.stats["buffered_bytes"] == writer.stats["waiting"] == 0
        written = values(node)
    assert len(told) == sum(1 for count in range(each) if count % 5 == 4) * threads
    assert all(isinstance(place, Written) for place in told)
    assert sorted(written) == list(range(threads * each))
    for number in range(threads):
        mine = [value for value in written if value // each == number]
        assert mine == sorted(mine)


def test_a_record_is_written_or_told_of_while_another_thread_closes(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    with NodeProcess(tmp_path) as node:
        create(node)
        sys.setswitchinterval(1e-6)
        try:
            for number in range(30):
                lost: list[int] = []
                refused = taken = 0

                def tell(error: LogboomError, count: int, lost: list[int] = lost) -> None:
                    lost.append(count)

                writer = Writer("events", node.address, on_error=tell)
                closer = threading.Timer(0.0005 * number, writer.close)
                closer.start()
                while not refused:
                    try:
                        writer.write(b"1")
                        taken += 1
                    except LocalProtocolError:
                        refused += 1
                closer.join()
                assert len(writer) == 0
                assert writer.stats["written"] + sum(lost) == taken
        finally:
            sys.setswitchinterval(interval)


def test_callbacks_and_futures_are_told_without_anybody_waiting(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, Writer("events", node.address, linger_ms=1) as writer:
        told = threading.Event()
        outcomes: list[Any] = []

        def note(outcome: Written | LogboomError) -> None:
            outcomes.append(outcome)
            if len(outcomes) == 1:
                # A callback may write, and may even wait.
                outcomes.append(writer.send(b"2").result(300))
            told.set()

        writer.write(b"1", callback=note)
        assert told.wait(300)
        done, _ = wait([writer.send(b"3")], 60)
        assert len(done) == 1
        assert [outcome.seqno for outcome in outcomes] == [0, 1]


def test_a_flush_ends_when_everybody_was_told_also_by_another_thread(tmp_path: Path) -> None:
    begun, told = threading.Event(), threading.Event()

    def note(_: Written | LogboomError) -> None:
        begun.set()
        time.sleep(0.3)
        told.set()

    with NodeProcess(tmp_path) as node, Writer("events", node.address, linger_ms=1) as writer:
        writer.write(b"1", callback=note)
        assert begun.wait(300)  # the writer's own thread tells it
        writer.flush()
        assert told.is_set()


def test_a_flush_does_not_end_before_what_another_thread_has_received_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Written | LogboomError] = []
    with NodeProcess(tmp_path) as node, Writer("events", node.address) as writer:
        driver = writer._driver
        tell, late = driver._tell, Written("events", 0, 7, 7)

        def tell_late(*news: Any) -> None:
            tell(*news)
            if not told[1:]:
                with driver.lock:
                    driver.core.ledger.results.append((told.append, late))

        monkeypatch.setattr(driver, "_tell", tell_late)
        writer.write(b"1", callback=told.append)
        writer.flush()
        assert told[1:] == [late]


def test_an_asyncio_writer_survives_a_restart_too(tmp_path: Path) -> None:
    async def work(node: NodeProcess) -> list[Written]:
        async with AsyncWriter("events", node.address, batch_bytes=500) as writer:
            places = []
            for number in range(600):
                if number == 200:
                    node.kill()
                if number == 300:
                    await asyncio.to_thread(node.start)
                places.append(asyncio.ensure_future(writer.send(b"%d" % number)))
                await writer.write(b"%d" % (number + 1000))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await writer.write_many([b"%d" % number for number in range(2000, 3000)])
            await writer.flush()
            return list(await asyncio.gather(*places))

    with NodeProcess(tmp_path) as node:
        places = asyncio.run(work(node))
        found = values(node)
    assert sorted(found) == [*range(600), *range(1000, 1600), *range(2000, 3000)]
    assert [found[place.seqno] for place in places] == list(range(600))
    assert [value for value in found if value >= 1000] == [*range(1000, 1600), *range(2000, 3000)]


def test_many_tasks_share_one_asyncio_writer(tmp_path: Path) -> None:
    async def work(node: NodeProcess) -> None:
        async with AsyncWriter("events", node.address) as writer:

            async def one(name: int) -> list[int]:
                return [(await writer.send(b"%d" % (100 * name + number))).seqno for number in range(20)]

            seqnos = await asyncio.gather(*map(one, range(20)))
            assert all(mine == sorted(mine) for mine in seqnos)
            assert sorted(seqno for mine in seqnos for seqno in mine) == list(range(400))

    with NodeProcess(tmp_path) as node:
        asyncio.run(work(node))


def fill(writer: Writer, count: int) -> None:
    for _ in range(count):
        writer.write(bytes(100))


def test_what_is_full_raises_drops_or_waits_as_it_was_told(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        options: dict[str, Any] = {"buffer_bytes": 2000, "delivery_timeout_s": 60.0}
        strict = Writer("events", node.address, on_full="error", **options)
        loose = Writer("events", node.address, on_full="drop", **options)
        patient = Writer("events", node.address, on_full="block", **options)
        node.kill()
        fill(strict, 18)
        with pytest.raises(BufferFull):
            fill(strict, 5)
        fill(loose, 100)
        assert 70 < loose.stats["dropped"] < 90
        with pytest.raises(BufferFull):
            loose.send(b"one more").result(1)
        worker = threading.Thread(target=fill, args=(patient, 100))
        worker.start()
        worker.join(0.3)
        assert worker.is_alive()
        node.start()
        worker.join(300)
        for writer in (strict, loose, patient):
            writer.close()
        assert patient.stats["written"] == 100
        assert loose.stats["written"] + loose.stats["dropped"] == 101


def test_no_node_is_an_error_at_once_and_a_lost_one_after_a_while(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        losses: list[tuple[LogboomError, int]] = []
        quiet = Writer("events", node.address, delivery_timeout_s=0.5, on_error=lambda *loss: losses.append(loss))
        loud = Writer("events", node.address, delivery_timeout_s=0.5)
        node.kill()
        quiet.write(b"1")
        quiet.write(b"2")
        quiet.close()
        assert sum(count for _, count in losses) == 2
        loud.write(b"3")
        with pytest.raises((ConnectionLost, OutcomeUnknown)):
            loud.flush()
        with pytest.raises(ConnectionLost, match="no connection to"):
            Writer("events", node.address, connect_timeout_s=0.2)
        loud.close()


def test_a_node_that_is_just_restarting_is_waited_for(tmp_path: Path) -> None:
    async def use_all(address: str) -> None:
        async with connect(address, timeout_s=60) as broker:
            assert await broker.list_topics()
        async with AsyncWriter("events", address, connect_timeout_s=60) as writer:
            assert (await writer.send(b"2")).seqno == 1
        async with AsyncReader("events", address, connect_timeout_s=60) as reader:
            assert reader.seqno == 0

    with NodeProcess(tmp_path) as node:
        create(node)
        for use in (
            lambda: Writer("events", node.address, connect_timeout_s=60).close(),
            lambda: Reader("events", node.address, connect_timeout_s=60).close(),
        ):
            node.kill()
            user = threading.Thread(target=use)
            user.start()
            time.sleep(0.2)
            node.start()
            user.join(300)
            assert not user.is_alive()
        with Writer("events", node.address) as writer:
            writer.send(b"1").result(300)
        node.kill()
        user = threading.Thread(target=lambda: asyncio.run(use_all(node.address)))
        user.start()
        time.sleep(0.2)
        node.start()
        user.join(300)
        assert values(node) == [1, 2]


def test_without_acks_a_close_still_sends_everything(tmp_path: Path) -> None:
    count, size = 400, 100_000

    async def write(address: str) -> None:
        async with AsyncWriter("events", address, acks="none", buffer_bytes=2**28) as writer:
            for _ in range(count):
                await writer.write(bytes(size))

    with NodeProcess(tmp_path) as node:
        create(node)
        with Writer("events", node.address, acks="none", buffer_bytes=2**28) as writer:
            for _ in range(count):
                writer.write(bytes(size))
        asyncio.run(write(node.address))
        deadline = time.monotonic() + 300
        with Reader("events", node.address) as reader:
            while reader.committed < 2 * count and time.monotonic() < deadline:
                time.sleep(0.05)
                reader.refresh()
            assert reader.committed == 2 * count


def test_without_acks_a_flush_waits_for_a_node_that_reads_nothing_for_a_while(tmp_path: Path) -> None:
    """What is asked for while the connection is full goes once it has room, although no answer says so."""
    sizes = [15 * 2**20, 1, 1]

    async def write(node: NodeProcess) -> None:
        async with AsyncWriter("events", node.address, acks="none", linger_ms=1) as writer:
            with node.held():
                for size in sizes:
                    await writer.write(bytes(size))
                    await asyncio.sleep(0.2)
                flush = asyncio.create_task(writer.flush(60))
                await asyncio.sleep(0.2)
                assert not flush.done()
            await flush

    with NodeProcess(tmp_path) as node:
        create(node)
        asyncio.run(write(node))
        with Reader("events", node.address) as reader:
            read = islice(reader.records(follow=True, timeout_s=60), len(sizes))
            assert [len(record.value or b"") for record in read] == sizes


@pytest.mark.parametrize("policy", ["drop", "error"])
def test_who_asks_for_room_again_and_again_gets_it(tmp_path: Path, policy: Literal["drop", "error"]) -> None:
    with NodeProcess(tmp_path) as node:
        create(node)
        with Writer("events", node.address, on_full=policy, buffer_bytes=2000, batch_bytes=500) as writer:
            written, deadline = 0, time.monotonic() + 300
            while written < 200 and time.monotonic() < deadline:
                full = writer.stats["dropped"]
                try:
                    writer.write(bytes(100))
                    written += writer.stats["dropped"] == full
                except BufferFull:
                    time.sleep(0.001)
            assert written == 200


@pytest.mark.parametrize("way", ["blocking", "asyncio"])
def test_who_waits_for_room_is_told_at_once_that_records_have_failed(tmp_path: Path, way: str) -> None:
    options: Any = {"idempotent": False, "acks": "leader", "buffer_bytes": 20_000, "batch_bytes": 2000}

    def write(address: str) -> None:
        with Writer("events", address, delivery_timeout_s=600, **options) as writer:
            writers.append(writer)
            stopped.set()
            assert held.wait(300)
            while True:
                writer.write(bytes(1000))

    async def write_async(address: str) -> None:
        async with AsyncWriter("events", address, delivery_timeout_s=600, **options) as writer:
            writers.append(writer)
            stopped.set()
            assert held.wait(300)
            while True:
                await writer.write(bytes(1000))

    def run() -> None:
        try:
            write(node.address) if way == "blocking" else asyncio.run(write_async(node.address))
        except LogboomError as error:
            raised.append(error)

    stopped, held = threading.Event(), threading.Event()
    writers: list[Writer | AsyncWriter] = []
    raised: list[LogboomError] = []
    with NodeProcess(tmp_path) as node:
        create(node)
        user = threading.Thread(target=run)
        user.start()
        assert stopped.wait(300)
        with node.held():
            held.set()
            while writers[0].stats["buffered_bytes"] < 15_000:
                time.sleep(0.01)
            time.sleep(0.2)  # some of it is under way
            node.kill()
        node.start()
        user.join(300)
        assert [type(error) for error in raised] == [OutcomeUnknown]


def test_a_record_that_is_dropped_has_its_callback_called(tmp_path: Path) -> None:
    told: list[Written | LogboomError] = []
    with NodeProcess(tmp_path) as node:
        create(node)
        with Writer("events", node.address, on_full="drop", buffer_bytes=2000, batch_bytes=500) as writer:
            with node.held():
                for _ in range(100):
                    writer.write(bytes(100), callback=told.append)
            writer.flush()
            dropped = writer.stats["dropped"]
        assert len(told) == 100
        assert dropped == sum(isinstance(outcome, BufferFull) for outcome in told)


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_was_spilled_for_any_partition_comes_before_what_is_for_one(tmp_path: Path, partitions: int) -> None:
    node = NodeProcess(tmp_path)
    node.start()
    create(node, partitions=partitions)
    node.kill()
    with node.ended():
        with Writer("events", node.address, spill=tmp_path / "spill") as writer:
            writer.write(b"1")
        with Writer("events", node.address, spill=tmp_path / "spill", partition=0, linger_ms=60_000) as writer:
            written = writer.send(b"2")
            writer.write(b"3")
            node.start()
            assert written.result(300).seqno == 1
            writer.flush(60)
        assert values(node, 0) == [1, 2, 3]


@pytest.mark.parametrize("partitions", [1, 3])
def test_who_waits_for_a_record_does_not_linger_when_the_node_comes(tmp_path: Path, partitions: int) -> None:
    async def write(spill: Path) -> None:
        async with AsyncWriter("events", node.address, spill=spill, linger_ms=600_000) as writer:
            waiting = asyncio.create_task(writer.send(b"2"))
            await asyncio.sleep(0.1)
            node.start()
            async with asyncio.timeout(300):
                await waiting

    node = NodeProcess(tmp_path)
    node.start()
    create(node, partitions=partitions)
    node.kill()
    with node.ended():
        with Writer("events", node.address, spill=tmp_path / "spill", linger_ms=600_000) as writer:
            waiting = writer.send(b"1")
            threading.Timer(0.1, node.start).start()
            waiting.result(300)
        node.kill()
        asyncio.run(write(tmp_path / "spill"))
        assert sorted(value for partition in range(partitions) for value in values(node, partition)) == [1, 2]


def test_a_flush_ends_where_a_late_node_has_more_partitions_than_anybody_knew(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    node.start()
    create(node, partitions=3)
    node.kill()
    with node.ended():
        with Writer("events", node.address, spill=tmp_path / "spill", spill_bytes=1024) as writer:
            for number in range(10):
                writer.write(b"%d" % number, key=b"%d" % number)
            threading.Timer(0.5, node.start).start()
            writer.flush(60)
        assert sorted(value for partition in range(3) for value in values(node, partition)) == list(range(10))


def test_who_waits_while_another_thread_closes_is_told_what_became_of_it(tmp_path: Path) -> None:
    seen: list[type] = []

    def wait_for(future: Future[Written]) -> None:
        try:
            future.result()
        except Exception as error:
            seen.append(type(error))

    writer = Writer("events", f"127.0.0.1:{free_port()}", spill=tmp_path / "spill")
    writer.write(b"0", callback=lambda _: time.sleep(0.05))
    futures = [writer.send(b"%d" % number) for number in range(300)]
    writer.flush()
    users = [threading.Thread(target=wait_for, args=(futures[-1],)) for _ in range(2)]
    for user in users:
        user.start()
    time.sleep(0.1)
    writer.close()
    for user in users:
        user.join(300)
    assert seen == [OutcomeUnknown] * 2


def test_a_writer_that_is_forgotten_says_so_and_lets_go_of_its_spill_file(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        writer = Writer("events", node.address, linger_ms=60_000, spill=tmp_path / "spill")
        writer.write(b"1")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        assert any("1 records waiting" in str(warning.message) for warning in told)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                Writer("events", node.address, spill=tmp_path / "spill").close()
                return
            except ConfigError:
                time.sleep(0.05)
        pytest.fail("the file is still locked")


def test_an_interrupt_while_results_are_told_loses_none_of_them(tmp_path: Path) -> None:
    def interrupt(outcome: Any) -> None:
        raise KeyboardInterrupt

    with NodeProcess(tmp_path) as node, Writer("events", node.address, linger_ms=60_000) as writer:
        writer.write(b"0", callback=interrupt)
        futures = [writer.send(b"%d" % number) for number in range(1, 4)]
        with pytest.raises(KeyboardInterrupt):
            futures[-1].result(300)
        assert [future.result(300).seqno for future in futures] == [1, 2, 3]


def test_an_asyncio_writer_that_is_not_open_takes_nothing(tmp_path: Path) -> None:
    async def run(address: str) -> None:
        writer = AsyncWriter("events", address)
        for _ in range(2):
            with pytest.raises(LocalProtocolError, match="async with"):
                await writer.write(b"1")
        assert len(writer) == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await AsyncWriter("events", "127.0.0.1:1", connect_timeout_s=60).__aenter__()
        assert len(asyncio.all_tasks()) == 1

    with NodeProcess(tmp_path) as node:
        asyncio.run(run(node.address))


def test_a_second_server_takes_over_where_the_first_is_no_more(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        with Writer("events", ["127.0.0.1:1", node.address]) as writer:
            assert writer.send(b"1").result(300).seqno == 0
        assert values(node) == [1]


def test_a_topic_that_may_not_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--set", "topics.auto_create=false") as node, pytest.raises(TopicNotAllowed):
        Writer("events", node.address)


def test_a_topic_made_anew_is_never_written_to(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        writer = Writer("events", node.address)
        writer.send(b"1").result(300)
        delete(node, "events")
        create(node)
        with pytest.raises(TopicRecreated):
            writer.send(b"2").result(300)
        with pytest.raises(TopicRecreated):
            writer.write(b"3")
        with pytest.raises(TopicRecreated):
            writer.close()
        assert values(node) == []


def test_records_spilled_while_the_node_is_away_are_written_later_in_order(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with NodeProcess(tmp_path) as node:
        create(node, partitions=2)
        with Writer("events", node.address, spill=spill, buffer_bytes=20_000, batch_bytes=500) as writer:
            for number in range(100):
                writer.write(b"%d" % number, key=b"k%d" % (number % 3))
            node.kill()
            for number in range(100, 8000):
                writer.write(b"%d" % number, key=b"k%d" % (number % 3))
            assert writer.stats["spilled_batches"] > 0
            mine = writer.send(b"8000", key=b"k%d" % (8000 % 3))
            node.start()
            for number in range(8001, 9000):
                writer.write(b"%d" % number, key=b"k%d" % (number % 3))
            place = mine.result(300)
        logs = [values(node, partition) for partition in (0, 1)]
    assert sorted(logs[0] + logs[1]) == list(range(9000))
    for log in logs:
        for rest in range(3):
            mine_of_key = [value for value in log if value % 3 == rest]
            assert mine_of_key == sorted(mine_of_key)
    assert logs[place.partition][place.seqno] == 8000
    assert os.path.getsize(spill) == 64


def write_from_a_process(address: str, spill: Path, start: int, end: str) -> None:
    script = f"""
        import os, time
        from logboom import Writer
        writer = Writer("events", {address!r}, spill={str(spill)!r}, batch_bytes=300, buffer_bytes=10_000)
        for number in range({start}, {start + 1000}):
            writer.write(b"%d" % number)
        {end}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=300)


def test_what_was_spilled_outlives_the_writing_process_and_comes_first(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with NodeProcess(tmp_path) as node:
        create(node)
        node.kill()
        write_from_a_process(node.address, spill, 0, "writer.close()")
        write_from_a_process(node.address, spill, 1000, "writer.flush(); os._exit(0)")
        node.start()
        write_from_a_process(node.address, spill, 2000, "writer.close()")
        assert values(node) == list(range(3000))
        assert os.path.getsize(spill) == 64


def test_what_was_spilled_before_anybody_knew_the_partitions_is_dealt_out(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with NodeProcess(tmp_path) as node:
        create(node, partitions=3)
        node.kill()
        with Writer("events", node.address, spill=spill, batch_bytes=300, buffer_bytes=10_000) as writer:
            for number in range(1000):
                writer.write(b"%d" % number, key=b"k%d" % (number % 5), timestamp=number + 1)
        node.start()
        with Writer("events", node.address, spill=spill) as writer:
            for number in range(1000, 1100):
                writer.write(b"%d" % number, key=b"k%d" % (number % 5))
        logs = [read(node, partition=partition) for partition in range(3)]
    found = [(int(record.value or b""), record.key, record.timestamp) for log in logs for record in log]
    assert sorted(number for number, _, _ in found) == list(range(1100))
    assert all(key == b"k%d" % (number % 5) for number, key, _ in found)
    assert all(moment == number + 1 for number, _, moment in found if number < 1000)
    for log in logs:
        for rest in range(5):
            mine = [int(record.value or b"") for record in log if int(record.value or b"") % 5 == rest]
            assert mine == sorted(mine)


def test_a_fork_leaves_the_writer_to_its_parent(tmp_path: Path) -> None:
    script = """
        import os, sys
        from logboom import Writer
        from logboom.errors import LocalProtocolError
        writer = Writer("events", sys.argv[1], linger_ms=60_000, spill=sys.argv[2])
        future = writer.send(b"1")
        child = os.fork()
        if not child:
            failures = 0
            for use in (lambda: writer.write(b"2"), lambda: writer.flush(), lambda: future.result(1)):
                try:
                    use()
                except LocalProtocolError:
                    failures += 1
            writer.close()
            os._exit(4 + failures)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert future.result(300).seqno == 0
        writer.close()
    """
    with NodeProcess(tmp_path) as node:
        command = [sys.executable, "-c", textwrap.dedent(script), node.address, str(tmp_path / "spill")]
        subprocess.run(command, check=True, timeout=300)
        assert values(node) == [1]


def test_a_writer_left_open_at_the_end_says_what_may_be_lost(tmp_path: Path) -> None:
    script = """
        import sys
        from logboom import Writer
        writer = Writer("events", sys.argv[1], linger_ms=60_000)
        writer.write(b"1")
    """
    with NodeProcess(tmp_path) as node:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), node.address], check=True, timeout=300, capture_output=True
        )
    assert b"1 records waiting" in done.stderr


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        with Writer("events", node.address) as writer:
            writer.write(b"1")
            assert "connected" in repr(writer)
        with pytest.raises(LocalProtocolError, match="closed"):
            writer.write(b"2")
        writer.close()
        threads = [thread for thread in threading.enumerate() if thread.name == "logboom-writer"]
        deadline = time.monotonic() + 300
        while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(thread.is_alive() for thread in threads)
