"""What pages go out as: every format holds the same records, and the one that is wanted most is given."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from logboom.batch import Record, build_records
from logboom.batch.ndjson import encode_record
from logboom.broker.api import Part, ReadRequest, Start
from logboom.protocols.http.formats import (
    MEDIA_TYPES,
    WHOLE_BYTES,
    Format,
    RecordSource,
    StreamedResponse,
    choose,
    encode,
)
from logboom.protocols.http.problem import RequestError
from support.nodes.web import WebNode, tell

PAGE = "/topics/t/records"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
NDJSON = "application/x-ndjson"

ODD = [
    Record(b"plain"),
    Record(None, b"tombstone"),
    Record(b"\xff\x00", b"\xfe"),
    Record(b'{"t": 21.5, "deep": [1, {"a": null}]}', "schlüssel".encode()),
    Record(b'{"base64": "AA=="}'),
    Record(b'"a string"'),
    Record(b"null"),
    Record(b" 1"),
    Record(b"1e400"),
    Record(b"line\nend"),
    Record(b"", timestamp=-(2**62)),
    Record(b"1", timestamp=2**62),
    Record(b"before", timestamp=-1),
    Record(b"c", channel="site/ü/temp", tags=("a", "b"), headers=(("n", b"v"), ("n", b"\xff"))),
]


async def fill(node: WebNode, batches: list[list[Record]]) -> list[Record]:
    """They are written; what the broker reads comes back."""
    dice = random.Random(1)
    parts = [build_records(batch, codec=dice.choice(["none", "lz4", "zstd"])) for batch in batches]
    await node.broker.append([Part("t", parts)], "durable")
    records: list[Record] = []
    seqno = 0
    while True:
        chunk = await node.broker.read(ReadRequest("t", Start(seqno=seqno)))
        records += chunk.records()
        seqno = chunk.next_seqno
        if chunk.at_end:
            return records


def shown(records: list[Record]) -> list[Any]:
    return [
        json.loads(encode_record(r.seqno, r.timestamp, r.key, r.value, r.channel, r.tags, r.headers)) for r in records
    ]


def rows(table: pa.Table) -> list[Record]:
    assert table.column_names[:2] == ["topic", "partition"]
    assert set(table.column("topic").to_pylist()) <= {"t"}
    assert set(table.column("partition").to_pylist()) <= {0}
    table = table.set_column(3, "timestamp", table.column("timestamp").cast(pa.int64()))
    return [
        Record(
            row["value"],
            row["key"],
            row["timestamp"],
            row["channel"],
            tuple(row["tags"]),
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["seqno"],
        )
        for row in table.to_pylist()
    ]


SHAPES = {
    "odd": [ODD[:5], ODD[5:6], ODD[6:]],
    "many": [[Record(b'{"n": %d}' % (100 * at + n), b"k", tags=("x",)) for n in range(100)] for at in range(60)],
    "large": [[Record(bytes(range(256)) * 400, b"%d" % at)] for at in range(12)],
    "tiny": [[Record(b"v%d" % at)] for at in range(200)],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("filtered", ["", "&channel=nowhere"])
def test_every_format_has_the_same_records(tmp_path: Path, shape: str, filtered: str) -> None:
    async def story(node: WebNode) -> None:
        records = await fill(node, SHAPES[shape])
        if filtered:
            records = []
        client = node.client
        url = f"{PAGE}?limit=100000{filtered}"

        answer = await client.get(url)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["records"] == shown(records)
        assert answer.json()["at_end"] is True

        answer = await client.get(url, headers={"accept": NDJSON})
        assert answer.headers["content-type"] == NDJSON
        assert [json.loads(line) for line in answer.content.splitlines()] == shown(records)

        answer = await client.get(url, headers={"accept": ARROW})
        assert answer.headers["content-type"] == ARROW
        table = pa.ipc.open_stream(answer.content).read_all()
        assert rows(table) == records
        assert table.schema.field("timestamp").type == pa.timestamp("us", "UTC")

        answer = await client.get(url, headers={"accept": PARQUET})
        assert answer.headers["content-type"] == PARQUET
        assert rows(pq.read_table(io.BytesIO(answer.content))) == records

    assert tell(tmp_path, story) == []


def test_what_is_cut_and_filtered_is_the_same_in_every_format(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        records = await fill(node, [[Record(b"%d" % n, tags=("x",) * (n % 2)) for n in range(50)]])
        url = f"{PAGE}?from=7&limit=9&tag=x"
        expected = [record for record in records if record.tags and (record.seqno or 0) >= 7][:9]
        headers = {}
        for form in MEDIA_TYPES:
            answer = await node.client.get(f"{url}&format={form}")
            found = {name: text for name, text in answer.headers.items() if name.startswith("logboom-")}
            headers[form] = found
            if form == "arrow":
                assert rows(pa.ipc.open_stream(answer.content).read_all()) == expected
        assert headers["json"] == headers["ndjson"] == headers["arrow"] == headers["parquet"]
        assert headers["json"]["logboom-next-seqno"] == "24"

    tell(tmp_path, story)


def test_what_was_read_can_be_written_again(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        records = await fill(node, [ODD])
        lines = (await node.client.get(PAGE, headers={"accept": NDJSON})).content
        answer = await node.client.post("/topics/u/records", content=lines, headers={"content-type": NDJSON})
        assert answer.status_code == 200, answer.text
        chunk = await node.broker.read(ReadRequest("u"))
        assert list(chunk.records()) == records

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("application/json;q=0.5, application/x-ndjson", NDJSON),
        ("application/jsonl", "application/jsonl"),
        ("application/x-ndjson;q=0.2, application/vnd.apache.arrow.stream;q=0.9", ARROW),
        ("*/*;q=0.1, Application/VND.apache.parquet ; Q=1.0", PARQUET),
        ("application/json;q=0, */*;q=0.1", NDJSON),
        ("application/json; charset=utf-8; q=0.3, application/x-ndjson;q=0.2", "application/json"),
        ("application/json;q=nan, application/x-ndjson;q=0.2", NDJSON),
    ],
)
def test_the_format_that_is_wanted_most_is_given(accept: str | None, media_type: str) -> None:
    assert choose(accept).media_type == media_type


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "*/*;q=0", "image/*", ";;,,"])
def test_what_cannot_be_given_is_refused_with_a_list_of_what_can(accept: str) -> None:
    with pytest.raises(RequestError) as caught:
        choose(accept)
    assert (caught.value.status, caught.value.code) == (406, "not-acceptable")
    assert all(types[0] in str(caught.value) for types in MEDIA_TYPES.values())


def test_a_format_that_is_named_counts_more_than_accept(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node, [ODD])
        answer = await node.client.get(f"{PAGE}?format=ndjson", headers={"accept": "text/html"})
        assert answer.headers["content-type"] == NDJSON
        answer = await node.client.get(PAGE, headers={"accept": "text/html"})
        assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable")

    tell(tmp_path, story)


LARGE = 2 * 1024 * 1024
HUGE = [
    Record(bytes(LARGE), b"control characters"),
    Record("ü\U0001f332".encode() * (LARGE // 6), b"text"),
    Record(b"x" * LARGE + b"\xc3", b"bytes at the end"),
    Record(b"\xff" * (LARGE + 1), b"bytes"),
    Record(b"[" + b"1," * (LARGE // 2) + b"1]", b"JSON"),
    Record(b"[" + b"1," * (LARGE // 2), b"no JSON"),
    Record(None, b"\xff" * LARGE, 2**62, "site/" + "x" * LARGE, ("y" * LARGE, "z"), (("n", bytes(LARGE)), ("n", b""))),
]


def test_a_record_that_is_large_is_the_same_in_small_pieces(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        small = [Record(b"%d" % number) for number in range(50)]
        written = await fill(node, [[*small, HUGE[0], *small], HUGE[1:4], *([record] for record in HUGE[4:])])
        page = (await node.client.get(PAGE)).json()
        read = page["records"]
        while not page["at_end"]:
            page = (await node.client.get(page["links"]["next"])).json()
            read += page["records"]
        assert read == shown(written)
        assert (await node.client.get(f"{PAGE}/50")).json() == read[50]
        for record in written[-len(HUGE) :]:
            line = encode_record(
                record.seqno, record.timestamp, record.key, record.value, record.channel, record.tags, record.headers
            )
            answer = await node.client.get(f"{PAGE}?from={record.seqno}&limit=1", headers={"accept": NDJSON})
            assert answer.content == line + b"\n"

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize("form", MEDIA_TYPES)
def test_no_piece_of_a_page_is_as_large_as_a_value(form: Format) -> None:
    tables = [
        pa.Table.from_batches([build_records([Record(b"1"), record, Record(b"2")]).to_arrow()]) for record in HUGE
    ]
    assert max(map(len, encode(form, tables, RecordSource("t", 0), Facts([])))) < LARGE // 2


class Facts(msgspec.Struct):
    records: list[Any]


def test_whatever_a_page_holds_goes_when_nobody_takes_it_any_more() -> None:
    left = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"piece"
        finally:
            left.append("closed")

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise OSError

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    async def story() -> None:
        with pytest.raises((OSError, ClientDisconnect)):
            await StreamedResponse(pieces(), {}, NDJSON)({"type": "http", "asgi": {}}, receive, send)
        assert left == ["closed"]

    asyncio.run(story())


def test_an_accept_header_may_come_in_several_lines(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node, [ODD])
        answer = await node.client.get(PAGE, headers=[("accept", "text/html"), ("accept", NDJSON)])
        assert answer.headers["content-type"] == NDJSON

    tell(tmp_path, story)


@pytest.mark.parametrize("form", ["json", "ndjson", "arrow", "parquet"])
def test_a_large_page_comes_in_pieces_and_others_say_their_length(form: Format, tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        records = [Record(random.Random(n).randbytes(50_000)) for n in range(60)]
        await fill(node, [records[start : start + 4] for start in range(0, 60, 4)])
        for limit in (1, 20):
            page = await node.client.get(f"{PAGE}?limit={limit}&format={form}")
            assert int(page.headers["content-length"]) == len(page.content)
            assert page.headers["logboom-next-seqno"] == str(limit)
        large = await node.client.get(f"{PAGE}?format={form}")
        assert len(large.content) > WHOLE_BYTES
        assert "content-length" not in large.headers
        assert large.headers["transfer-encoding"] == "chunked"

    tell(tmp_path, story)
