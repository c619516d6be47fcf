"""Writers and readers whose values are more than bytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logboom import AsyncReader, AsyncWriter, Client, FileReader, Reader, TopicFileReader, Writer, Written
from logboom.batch import Record, build, build_records
from logboom.broker.api import Part
from logboom.broker.local import LocalBroker
from logboom.errors import InvalidColumn, ValueUnreadable
from support.brokers.places import served
from support.results.checkpointed import publish

Read = Callable[[LocalBroker, str, Path], Any]
VALUES = [b"0", b"[1]", b"{", None, b'"4"', b"\xff", b"6"]
GOOD = [(0, 0), (1, [1]), (3, None), (4, "4"), (6, 6)]
"""Seqnos and values of what can be decoded."""
BAD = [("mixed", 0, 2, b"{"), ("mixed", 0, 5, b"\xff")]


def with_node(tmp_path: Path, read: Read) -> None:
    """`read` runs in a thread, or is a story."""

    async def story() -> None:
        async with asyncio.timeout(300), served(tmp_path, "tcp") as (broker, address):
            if asyncio.iscoroutinefunction(read):
                await read(broker, address, tmp_path / "data")
            else:
                await asyncio.to_thread(read, broker, address, tmp_path / "data")

    asyncio.run(story())


def with_unsound(tmp_path: Path, read: Read) -> None:
    """The same, with a topic that has values which are no JSON."""

    async def story(broker: LocalBroker, address: str, files: Path) -> None:
        await broker.create_topic("mixed", 1)
        records = [Record(value, tags=("wanted",)) for value in VALUES]
        await broker.append([Part("mixed", [build_records(records)])], "durable")
        await asyncio.to_thread(read, broker, address, files)

    with_node(tmp_path, story)


class Upper:
    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode().lower()


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("json", [{"n": 1}, "text", None, [1.5]]),
        ("text", ["a", "", None]),
        ("msgpack", [{"raw": b"\xff"}, b"bytes", None]),
        ("bytes", [b"a", None]),
        (Upper(), ["a", None]),
    ],
)
def test_what_a_writer_is_given_a_reader_gives_in_every_way(tmp_path: Path, form: Any, values: list[Any]) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        with Writer("t", address, value=form) as writer:
            for value in values:
                writer.write(value)
                writer.write(value, key=b"k", tags=["x"])
                assert writer.send(value, channel="c").result(60).topic == "t"
            writer.write_many(values)
            writer.write_many((value for value in values), keys=[b"k"] * len(values))
        wanted = [value for value in values for _ in range(3)] + values * 2
        for reader in (
            Reader("t", address, value=form),
            Reader(["t"], address, value=form),
            Reader("t", address, value=form, order="time"),
            FileReader(files, "t", value=form),
            TopicFileReader(files, "t", value=form),
        ):
            with reader:
                assert [record.value for record in reader.records()] == wanted
        for reader in (Reader("t", address, value=form), FileReader(files, "t", value=form)):
            with reader:
                columns = list(reader.lists(["seqno", "value"]))
                assert [value for _, column in columns for value in column] == wanted
                assert [seqno for column, _ in columns for seqno in column] == list(range(len(wanted)))

    with_node(tmp_path, read)


def test_threads_share_a_writer_that_encodes(tmp_path: Path) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        told: list[Any] = []
        with Writer("t", address, value="json", batch_bytes=2_000, linger_ms=1) as writer:

            def write(thread: int) -> None:
                for number in range(1_000):
                    if number % 100 == 0:
                        writer.write([thread, number], callback=told.append)
                    elif number % 7 == 0:
                        writer.write([thread, number], key=b"k", timestamp=number)
                    else:
                        writer.write([thread, number])

            threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with Reader("t", address, value="json") as reader:
            found = [record.value for record in reader]
        for thread_number in range(4):
            mine = [number for thread, number in found if thread == thread_number]
            assert mine == list(range(1_000)), "all of them, in the order of its thread"
        assert [type(each) for each in told] == [Written] * 40

    with_node(tmp_path, read)


def test_with_asyncio_it_is_the_same(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str, files: Path) -> None:
        async with AsyncWriter("t", address, value="json") as writer:
            await writer.write({"n": 0})
            await writer.write({"n": 1}, tags=["x"])
            assert (await writer.send({"n": 2})).seqno == 2
            await writer.write_many([{"n": 3}, None])
            with pytest.raises(InvalidColumn, match="json cannot hold"):
                await writer.write(object())
        async with AsyncReader("t", address, value="json") as reader:
            assert [record.value async for record in reader] == [*({"n": n} for n in range(4)), None]
        async with AsyncReader("t", address, value="json") as reader:
            assert [value async for (column,) in reader.lists() for value in column][3:] == [{"n": 3}, None]

    with_node(tmp_path, story)


def test_a_transaction_takes_values_too(tmp_path: Path) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        with Client(address) as client:
            with client.transaction("orders", 1, value="json") as transaction:
                transaction.write("t", {"n": 1}, key=b"k")
                transaction.write_many("t", [{"n": 2}, {"n": 3}])
                with pytest.raises(InvalidColumn, match="json cannot hold"):
                    transaction.write("t", object())
            with client.transaction("orders", 2) as transaction:
                transaction.write("t", b'"plain"')
        with Reader("t", address, value="json") as reader:
            assert [record.value for record in reader] == [{"n": 1}, {"n": 2}, {"n": 3}, "plain"]

    with_node(tmp_path, read)


def test_a_value_that_cannot_be_encoded_is_refused_and_the_writer_goes_on(tmp_path: Path) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        with Writer("t", address, value="json") as writer:
            for call in (writer.write, writer.send):
                with pytest.raises(InvalidColumn, match="json cannot hold this object"):
                    call(object())
            with pytest.raises(InvalidColumn, match="json cannot hold this object"):
                writer.write_many([1, object()])
            with pytest.raises(InvalidColumn, match="5 entries for 2 records"):
                writer.write_many([1, 2], keys=[b"k"] * 5)
            writer.write({"n": 1})
        with Reader("t", address, value="json") as reader:
            assert [record.value for record in reader] == [{"n": 1}]

    with_node(tmp_path, read)


def test_tables_are_of_stored_bytes_in_both_directions(tmp_path: Path) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        with Writer("t", address, value="json") as writer:
            writer.write({"n": 1})
        with Reader("t", address, value="json") as reader:
            table = reader.table(["value"])
        assert table.column("value").to_pylist() == [b'{"n":1}']
        with Writer("t", address, value="json") as writer:
            writer.write_table(table)
            writer.write_table(pa.table({"value": [b'"second"']}))
        with Reader("t", address, value="json") as reader:
            assert [record.value for record in reader] == [{"n": 1}, {"n": 1}, "second"]

    with_node(tmp_path, read)


READERS: dict[str, Callable[[str, Path], Any]] = {
    "one log": lambda address, files: Reader("mixed", address, value="json"),
    "several logs": lambda address, files: Reader("mix*", address, value="json"),
    "by time": lambda address, files: Reader("mixed", address, value="json", order="time"),
    "filtered": lambda address, files: Reader("mixed", address, value="json", tags_any=["wanted"]),
    "files": lambda address, files: FileReader(files, "mixed", value="json"),
    "files of a topic": lambda address, files: TopicFileReader(files, "mixed", value="json"),
}


def gone_through(loop: Callable[[], Any]) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """What the loops give until one comes to the end, and the errors that end the others."""
    found: list[Any] = []
    errors: list[tuple[Any, ...]] = []
    while True:
        try:
            found.extend(loop())
            return found, errors
        except ValueUnreadable as error:
            errors.append((error.topic, error.partition, error.seqno, error.value))


@pytest.mark.parametrize("kind", READERS)
def test_a_value_that_cannot_be_decoded_stops_the_loop_and_the_next_goes_on_behind_it(
    tmp_path: Path, kind: str
) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        with READERS[kind](address, files) as reader:
            records, errors = gone_through(reader.records)
            assert ([(record.seqno, record.value) for record in records], errors) == (GOOD, BAD)
        if kind == "by time":
            return
        with READERS[kind](address, files) as reader:
            pieces, errors = gone_through(lambda: reader.lists(["value", "seqno"]))
            assert [pair for values, seqnos in pieces for pair in zip(seqnos, values, strict=True)] == GOOD
            assert errors == BAD

    with_unsound(tmp_path, read)


def test_a_bookmark_stands_before_what_lists_have_not_given_and_behind_an_error(tmp_path: Path) -> None:
    def read(broker: LocalBroker, address: str, files: Path) -> None:
        with Reader("mixed", address, value="json") as reader:
            for (values,) in reader.lists():
                assert values == [0, [1]]
                assert reader.seqno == 2
                break
            with Reader("mixed", address, bookmark=reader.bookmark) as raw:
                assert next(raw.records()).value == b"{"
            with pytest.raises(ValueUnreadable):
                list(reader.lists())
            assert reader.seqno == 3
            with Reader("mixed", address, bookmark=reader.bookmark) as later:
                assert later.seqno == 3

    with_unsound(tmp_path, read)


async def take_all(reader: AsyncReader) -> list[Any]:
    return [record.value async for record in reader]


def test_with_asyncio_too_the_next_loop_goes_on(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str, files: Path) -> None:
        await broker.append([Part("mixed", [build(VALUES)])], "durable")
        async with AsyncReader("mixed", address, value="json") as reader:
            for seqno in (2, 5):
                with pytest.raises(ValueUnreadable, match=f"value of seqno {seqno} is not what json reads"):
                    await take_all(reader)
            assert await take_all(reader) == [6]

    with_node(tmp_path, story)


@pytest.mark.parametrize("form", ["records", "lists"])
def test_the_records_of_a_checkpoint_are_decoded_as_well(tmp_path: Path, form: str) -> None:
    async def story(broker: LocalBroker, address: str, files: Path) -> None:
        records = [Record(value, key=b"%d" % n, timestamp=n, seqno=n) for n, value in enumerate(VALUES) if value]
        await broker.append([Part("mixed", [build(VALUES, keys=[b"%d" % n for n in range(7)])])], "durable")
        await broker.append([Part("mixed", [build([b"7"])])], "durable")
        await publish(broker, tmp_path / "results", "mixed", [{0: records}], {0: 7})
        await asyncio.to_thread(read, address)

    def read(address: str) -> None:
        with Reader("mixed", address, value="json", from_checkpoint=True) as reader:
            if form == "records":
                given, errors = gone_through(reader.records)
                found = [(record.seqno, record.value) for record in given]
            else:
                given, errors = gone_through(lambda: reader.lists(["seqno", "value"]))
                found = [pair for lists in given for pair in zip(*lists, strict=True)]
        assert found == [*(pair for pair in GOOD if pair[0] != 3), (7, 7)]
        assert errors == BAD

    with_node(tmp_path, story)
