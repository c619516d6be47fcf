"""Pages of records over HTTP: where they begin and end, what they say of that, and how to go on from them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.batch import Record, build, build_records, read_header
from logboom.broker.api import Appended, Part, Settings
from logboom.broker.limits import Limits
from logboom.protocols.http import record_page
from logboom.protocols.http.settings import HttpSettings
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.topic import FlushSettings, SegmentSettings
from support.brokers.any_broker import AnyBroker
from support.nodes.web import WebNode, tell

SECOND = 1_000_000
PAGE = "/topics/t/records"


async def append(broker: AnyBroker, *batches: Sequence[Record], topic: str = "t", partition: int | None = None) -> None:
    answers = await broker.append([Part(topic, [build_records(batch) for batch in batches], partition)], "durable")
    assert all(isinstance(answer, Appended) for answer in answers), answers


async def fill(broker: AnyBroker, count: int, size: int = 4) -> None:
    """Values 0, 1, 2 … in batches of this size; even ones are tagged, every fifth has a channel, all have a key."""
    records = [
        Record(
            b"%d" % number,
            b"k%d" % (number % 3),
            number * SECOND,
            f"site/{number}" if number % 5 == 0 else None,
            ("even",) if number % 2 == 0 else ("odd",),
        )
        for number in range(count)
    ]
    await append(broker, *(records[start : start + size] for start in range(0, count, size)))


async def get(node: WebNode, path: str = PAGE, **parameters: Any) -> dict[str, Any]:
    if "start" in parameters:
        parameters = {"from": parameters.pop("start"), **parameters}
    answer = await node.client.get(path, params=parameters or None)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def values(page: dict[str, Any]) -> list[Any]:
    return [record["value"] for record in page["records"]]


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_a_page_says_where_it_stands_and_where_to_go_on(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        page = await get(node, start="3", limit=5)
        assert values(page) == [3, 4, 5, 6, 7]
        assert page["records"][2] == {
            "seqno": 5,
            "timestamp": "1970-01-01T00:00:05.000000Z",
            "key": "k2",
            "value": 5,
            "channel": "site/5",
            "tags": ["odd"],
            "headers": [],
        }
        assert (page["topic"], page["partition"], page["first"], page["committed"]) == ("t", 0, 0, 10)
        assert (page["next_seqno"], page["at_start"], page["at_end"]) == (8, False, False)
        assert page["links"]["self"] == f"{PAGE}?from=3&limit=5"
        assert Bookmark.parse(page["next"]) == Bookmark(bytes.fromhex(page["topic_id"]), 0, 8, 0)
        last = await get(node, start=page["next"])
        assert (values(last), last["at_end"], last["next_seqno"]) == ([8, 9], True, 10)
        empty = await get(node, start=last["next"])
        assert (values(empty), empty["at_end"], empty["next"]) == ([], True, last["next"])

    assert tell(tmp_path, story) == []


def test_the_same_facts_are_in_the_headers(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        answer = await node.client.get(PAGE, params={"from": 2, "limit": 3})
        page, headers = answer.json(), answer.headers
        assert headers["logboom-next"] == page["next"]
        assert (headers["logboom-next-seqno"], headers["logboom-first"], headers["logboom-committed"]) == (
            "5",
            "0",
            "10",
        )
        assert (headers["logboom-at-start"], headers["logboom-at-end"]) == ("false", "false")
        assert headers["link"] == f'<{page["links"]["next"]}>; rel="next", <{page["links"]["previous"]}>; rel="prev"'
        assert headers["cache-control"] == "no-store"

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1]),
        ("latest", []),
        ("7", [7, 8]),
        ("1970-01-01T00:00:04Z", [4, 5]),
        ("1970-01-01T00:00:03.5Z", [4, 5]),
        ("1970-01-01T01:00:04+01:00", [4, 5]),
        ("2999-01-01T00:00:00Z", []),
        ("10", []),
    ],
)
def test_a_page_begins_at_any_place(tmp_path: Path, start: str, expected: list[int]) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        assert values(await get(node, start=start, limit=2)) == expected

    tell(tmp_path, story)


def test_a_plus_that_nobody_escaped_is_still_the_sign_of_a_zone(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        page = await get(node, f"{PAGE}?from=1970-01-01T01:00:04+01:00&limit=1")
        assert values(page) == [4]

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("until", "expected", "is_over"),
    [
        ("6", [4, 5], True),
        ("1970-01-01T00:00:06Z", [4, 5], True),
        ("4", [], True),
        ("2", [], True),
        ("50", [4, 5, 6, 7, 8, 9], False),
        ("2999-01-01T00:00:00Z", [4, 5, 6, 7, 8, 9], False),
    ],
)
@pytest.mark.parametrize("filtered", [False, True])
def test_a_page_ends_before_its_end(
    tmp_path: Path, until: str, expected: list[int], is_over: bool, filtered: bool
) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        more: dict[str, Any] = {"tag": ["even", "odd"]} if filtered else {}
        page = await get(node, start=4, until=until, **more)
        assert values(page) == expected
        assert page["at_end"]
        assert page["next_seqno"] == 4 + len(expected)
        assert (page["links"]["next"] is None) == is_over

    tell(tmp_path, story)


def test_pages_from_one_time_until_the_next_have_every_record_once(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        moments = [5, 1, 7, 3, 3, 9, 2, 8, None, 4]
        records = [Record(b"%d" % at, timestamp=moment and moment * SECOND) for at, moment in enumerate(moments)]
        await append(node.broker, records[:3], records[3:4], records[4:])
        times = [f"1970-01-01T00:00:{second:02}Z" for second in range(12)] + ["2999-01-01T00:00:00Z"]
        seen: list[int] = []
        for begin, end in pairwise(times):
            seen += values(await get(node, start=begin, until=end))
        assert seen == list(range(10))

    tell(tmp_path, story)


def test_filters_leave_exactly_so_many_records_as_the_limit_says(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 40, 7)
        page = await get(node, tag="even", limit=3)
        assert (values(page), page["next_seqno"], page["at_end"]) == ([0, 2, 4], 5, False)
        page = await get(node, tag="even", limit=3, start=page["next"])
        assert values(page) == [6, 8, 10]
        assert "tag=even" in page["links"]["next"]
        assert values(await get(node, tag=["even", "nobody"], key="k1", limit=2)) == [4, 10]
        assert values(await get(node, channel="site/#", start=11)) == [15, 20, 25, 30, 35]
        assert values(await get(node, channel="site/2*")) == [20, 25]
        nothing = await get(node, tag="nobody")
        assert (values(nothing), nothing["next_seqno"], nothing["at_end"]) == ([], 40, True)

    tell(tmp_path, story)


def test_a_limit_of_nothing_tells_where_the_log_stands(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        page = await get(node, limit=0, start=4)
        assert (values(page), page["next_seqno"], page["committed"], page["at_end"]) == ([], 4, 10, False)
        assert Bookmark.parse(page["next"])[2:4] == (4, 0)

    tell(tmp_path, story)


@settings(max_examples=12)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    limit=st.integers(1, 12),
    start=st.integers(0, 40),
    tagged=st.booleans(),
)
def test_pages_forwards_and_backwards_have_every_record_once(
    sizes: list[int], limit: int, start: int, tagged: bool
) -> None:
    count = sum(sizes)
    start = min(start, count)
    numbers = iter(range(count))
    batches = [[Record(b"%d" % next(numbers), tags=("x",)) for _ in range(size)] for size in sizes]

    async def story(node: WebNode) -> None:
        await append(node.broker, *batches)
        here = await get(node, start=start, limit=limit, **({"tag": "x"} if tagged else {}))
        forwards, page = values(here), here
        while not page["at_end"]:
            page = await get(node, page["links"]["next"])
            assert len(page["records"]) <= limit
            forwards += values(page)
        backwards: list[int] = []
        page = here
        while page["links"]["previous"] is not None:
            page = await get(node, page["links"]["previous"])
            backwards = values(page) + backwards
        assert page["at_start"]
        assert (backwards, forwards) == (list(range(start)), list(range(start, count)))

    with tempfile.TemporaryDirectory() as path:
        tell(Path(path), story)


def test_a_page_that_is_too_many_bytes_ends_early_and_says_where(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for number in range(12):
            await node.broker.append([Part("t", [build([bytes([number]) * 3000], codec="lz4")])], "durable")
        seen = 0
        page = await get(node)
        assert not page["at_end"]
        while True:
            assert 0 < len(page["records"]) < 6
            seen += len(page["records"])
            if page["at_end"]:
                break
            page = await get(node, page["links"]["next"])
        assert seen == 12

    tell(tmp_path, story, limits=Limits(read_bytes=8192))


def test_what_was_trimmed_is_out_of_range_and_the_problem_says_what_is_kept(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        await node.broker.trim("t", None, 6)
        answer = await node.client.get(PAGE, params={"from": 2})
        assert problem(answer) == (416, "seqno-out-of-range")
        assert answer.json()["data"] == {"seqno": 2, "first": 6, "next": 10}
        assert "earliest" in answer.json()["fix"]
        assert problem(await node.client.get(PAGE, params={"from": 11}))[0] == 416
        page = await get(node, start=2, gaps="skip", limit=2)
        assert (values(page), page["at_start"], page["links"]["previous"]) == ([6, 7], True, None)
        page = await get(node, start="earliest", limit=2)
        assert (values(page), page["at_start"], page["first"]) == ([6, 7], True, 6)
        page = await get(node, start=8, limit=5)
        assert page["links"]["previous"] == f"{PAGE}?from=6&limit=2"

    tell(tmp_path, story)


def test_a_page_ends_before_what_is_damaged_and_one_that_begins_there_is_a_problem(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 12)
        (path,) = Path(tmp_path, "data", "topics").glob("t~*/0/*.log")
        data = bytearray(path.read_bytes())
        size = len(data) // 3
        data[size + 120] ^= 1
        with open(path, "r+b") as file:
            file.write(data)
        page = await get(node)
        assert (values(page), page["at_end"]) == ([0, 1, 2, 3], False)
        answer = await node.client.get(page["links"]["next"])
        assert problem(answer) == (500, "damage")
        assert (answer.json()["data"]["seqno_from"], answer.json()["data"]["seqno_until"]) == (4, 8)
        page = await get(node, gaps="skip")
        assert (values(page), page["at_end"]) == ([0, 1, 2, 3, 8, 9, 10, 11], True)

    tell(tmp_path, story)


def break_header(path: Path, number: int) -> None:
    """Of this batch, so that it does not say any more how far it goes."""
    (file,) = Path(path, "data", "topics").glob("t~*/0/*.log")
    data, position = file.read_bytes(), 0
    for _ in range(number):
        position += read_header(data, position).size
    with open(file, "r+b") as opened:
        opened.seek(position + 10)
        opened.write(bytes([data[position + 10] ^ 1]))


def test_what_is_sound_behind_a_broken_header_is_not_skipped_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_page, "PATIENCE_S", 300.0)

    async def story(node: WebNode) -> None:
        await fill(node.broker, 20_000)
        break_header(tmp_path, 2_500)
        page = await get(node, gaps="skip", limit=100_000)
        assert values(page) == [*range(10_000), *range(10_004, 20_000)]

    assert tell(tmp_path, story) == []


def test_a_wait_is_ended_by_a_record(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 3)
        for more in ({}, {"tag": "x"}, {"until": "2999-01-01T00:00:00Z"}):
            start = (await get(node, start="latest"))["next"]
            waiting = asyncio.ensure_future(get(node, start=start, wait=30, **more))
            while not (await node.broker.stats()).reads["waiting"]:
                await asyncio.sleep(0.001)
            await append(node.broker, [Record(b"news", tags=("x",))])
            page = await waiting
            assert (values(page), page["at_end"]) == (["news"], True)

    tell(tmp_path, story)


def test_a_wait_for_nothing_ends_with_an_empty_page(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 3)
        page = await get(node, start="latest", wait=0.05)
        assert (values(page), page["at_end"], page["next_seqno"]) == ([], True, 3)
        page = await get(node, tag="nobody", wait=60)  # no longer than the node allows
        assert (values(page), page["at_end"], page["next_seqno"]) == ([], True, 3)

    tell(tmp_path, story, limits=Limits(read_wait_ms=100))


def test_closing_ends_a_wait(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 3)
        waiting = asyncio.ensure_future(get(node, start="latest", wait=30))
        while not (await node.broker.stats()).reads["waiting"]:
            await asyncio.sleep(0.001)
        node.front_end.closing.set()
        assert values(await waiting) == []

    assert tell(tmp_path, story) == []


def test_whoever_hangs_up_waits_no_longer(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 3)
        peer = await node.connect()
        await peer.send(b"GET /topics/t/records?from=latest&wait=30 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        while not (await node.broker.stats()).reads["waiting"]:
            await asyncio.sleep(0.001)
        await peer.close()
        while (await node.broker.stats()).reads["waiting"]:
            await asyncio.sleep(0.001)

    assert tell(tmp_path, story) == []


def test_a_page_begins_where_a_cursor_stands(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        answer = await node.client.get(PAGE, params={"cursor": "bill"})
        assert problem(answer) == (404, "cursor-not-found")
        assert values(await get(node, cursor="bill", start=8)) == [8, 9]
        await node.broker.commit_cursor("bill", "t", None, (await get(node, limit=4))["next"])
        page = await get(node, cursor="bill", start=8, limit=3)
        assert values(page) == [4, 5, 6]
        assert values(await get(node, page["links"]["next"])) == [7, 8, 9]
        assert values(await get(node, page["links"]["previous"])) == [1, 2, 3]

    tell(tmp_path, story)


def test_one_partition_of_several_is_read_by_its_number(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t", 2)
        await append(node.broker, [Record(b"a"), Record(b"b")], partition=1)
        assert problem(await node.client.get(PAGE, params={"partition": 2})) == (404, "partition-not-found")
        page = await get(node, partition=1, limit=1)
        assert (values(page), page["partition"]) == (["a"], 1)
        assert values(await get(node, start=page["next"])) == ["b"]
        answer = await node.client.get(PAGE, params={"from": page["next"], "partition": 0})
        assert problem(answer) == (400, "invalid-bookmark")

    tell(tmp_path, story)


def test_a_bookmark_of_a_topic_that_was_made_again_is_noticed(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 3)
        page = await get(node, limit=1)
        await node.broker.delete_topic("t")
        assert problem(await node.client.get(page["links"]["next"])) == (404, "topic-not-found")
        await fill(node.broker, 3)
        assert problem(await node.client.get(page["links"]["next"])) == (410, "topic-recreated")

    tell(tmp_path, story)


def test_one_record_is_found_by_its_seqno(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        assert (await get(node, f"{PAGE}/6")) == (await get(node, start=6, limit=1))["records"][0]
        for seqno in (10, 11):
            answer = await node.client.get(f"{PAGE}/{seqno}")
            assert problem(answer) == (404, "record-not-found")
            assert answer.json()["data"] == {"seqno": seqno, "first": 0, "next": 10}
        assert problem(await node.client.get(f"{PAGE}/last")) == (400, "bad-parameter")

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("from=never", "from"),
        ("from=99999999999999999999", "from"),
        ("from=1AAAA", "from"),
        ("from=2026-01-31T12:00:00", "from"),
        ("until=latest", "until"),
        ("limit=-1", "limit"),
        ("limit=many", "limit"),
        ("limit=1001", "limit"),
        ("wait=-1", "wait"),
        ("wait=nan", "wait"),
        ("gaps=mind", "gaps"),
        ("format=xml", "format"),
        ("partition=x", "partition"),
        ("form=json", "form"),
        ("key=a&key=b", "key"),
        ("key=%ff", "query"),
    ],
)
def test_a_parameter_that_means_nothing_is_named(tmp_path: Path, query: str, parameter: str) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 1)
        answer = await node.client.get(f"{PAGE}?{query}")
        assert problem(answer) == (400, "bad-parameter")
        assert answer.json()["parameter"] == parameter

    tell(tmp_path, story, settings=HttpSettings(page_records_max=1000))


def test_reads_are_counted(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await fill(node.broker, 10)
        await get(node)
        await get(node, start="latest")
        await get(node, f"{PAGE}/3")
        shown = node.front_end.meter.shown()
        assert (shown.records_out, shown.read.count) == (11, 2)
        assert shown.bytes_out > 100

    tell(tmp_path, story)


@pytest.mark.parametrize("filtered", [{}, {"tag": "x"}])
def test_a_page_knows_the_term_of_what_is_before_its_end(tmp_path: Path, filtered: dict[str, str]) -> None:
    lives = 3

    async def story(node: WebNode) -> None:
        if not await node.broker.list_topics():
            await node.broker.create_topic("t", 1, Settings(SegmentSettings(bytes=4096), flush=FlushSettings("os")))
        for _ in range(10):
            await append(node.broker, [Record(bytes(300), tags=("x",)), Record(bytes(300), tags=("x",))])

    async def look(node: WebNode) -> None:
        for limit in (1, 3, 7, 100):
            page = await get(node, limit=limit, **filtered)
            count = len(page["records"])
            while not page["at_end"]:
                assert Bookmark.parse(page["next"]).term == (page["next_seqno"] - 1) // 20
                page = await get(node, page["links"]["next"])
                count += len(page["records"])
            assert count == page["committed"] == 20 * lives

    for _ in range(lives):
        tell(tmp_path, story)
        crash(tmp_path)
    tell(tmp_path, look)


def crash(path: Path) -> None:
    """What is left when a node was not closed."""
    lock = path / "data" / "lock"
    lock.write_bytes(lock.read_bytes().replace(b'"clean":true', b'"clean":false'))


@pytest.mark.parametrize(
    "value",
    [b"", b"text", b'{"a": 1}', bytes(range(256)), b"<script>alert(1)</script>", b"\xff" * 300_000],
    ids=["empty", "text", "json", "bytes", "page", "large"],
)
def test_a_value_is_given_as_the_bytes_it_is(value: bytes, tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, [Record(b"before"), Record(value), Record(b"after")])
        answer = await node.client.get(f"{PAGE}/1/value")
        assert answer.status_code == 200
        assert answer.content == value
        assert answer.headers["content-length"] == str(len(value))

    assert tell(tmp_path, story) == []


def test_no_browser_takes_a_value_for_a_page_of_the_node(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, [Record(b"<script>alert(1)</script>"), Record(None)])
        for seqno in (0, 1):
            headers = (await node.client.get(f"{PAGE}/{seqno}/value")).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert headers["cache-control"] == "no-store"
        headers = (await node.client.get(f"{PAGE}/0/value")).headers
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"] == 'attachment; filename="t-0-0.bin"'

    assert tell(tmp_path, story) == []


def test_the_value_of_a_tombstone_is_no_content(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, [Record(None, b"key")])
        answer = await node.client.get(f"{PAGE}/0/value")
        assert (answer.status_code, answer.content) == (204, b"")

    assert tell(tmp_path, story) == []


def test_a_value_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.broker.create_topic("two", 2)
        await append(node.broker, [Record(b"x")], topic="two", partition=1)
        await append(node.broker, [Record(b"x")])
        for path, expected in (
            (f"{PAGE}/1/value", (404, "record-not-found")),
            (f"{PAGE}/x/value", (400, "bad-parameter")),
            ("/topics/nobody/records/0/value", (404, "topic-not-found")),
            ("/topics/two/records/0/value", (404, "partition-not-found")),
            ("/topics/two/records/0/value?partition=0", (404, "record-not-found")),
        ):
            assert problem(await node.client.get(path)) == expected, path
        assert (await node.client.get("/topics/two/records/0/value?partition=1")).content == b"x"

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_head_of_a_value_tells_its_size(size: int, tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, [Record(b"x" * size)])
        answer = await node.client.head(f"{PAGE}/0/value")
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-length"] == str(size)

    assert tell(tmp_path, story) == []
