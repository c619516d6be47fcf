"""Writing over HTTP: what a body means, where its records go, what is answered."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.batch import Record
from logboom.batch.partitioner import partition_of
from logboom.broker.api import ReadRequest
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.protocols.http.codec import FIELDS, RECORDS_MAX, decode_json, decode_lines
from logboom.protocols.http.problem import RequestError
from support.nodes.web import WebNode, serving, tell

A = "/topics/a/records"
LINES = {"content-type": "application/x-ndjson"}
PLAIN = {"content-type": "text/plain"}


async def stored(node: WebNode, topic: str = "a", partition: int | None = None) -> list[Record]:
    return list((await node.broker.read(ReadRequest(topic, partition=partition))).records())


async def values(node: WebNode, topic: str = "a", partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in await stored(node, topic, partition)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"21.5", [b"21.5"]),
        (b'"hello"', [b"hello"]),
        (b"null", [None]),
        (b'{"t":  21.5}', [b'{"t":  21.5}']),
        (b'{"value": {"t": 1}}', [b'{"t": 1}']),
        (b'{"value": 1, "other": 2}', [b'{"value": 1, "other": 2}']),
        (b'{"base64": "AP8="}', [b"\x00\xff"]),
        (b'[1, {"value": "x"}, [2, 3], {"a": 1}]', [b"1", b"x", b"[2, 3]", b'{"a": 1}']),
        (b'{"\\u0076alue": "x"}', [b"x"]),
    ],
)
def test_a_body_is_a_record_or_a_value_by_its_looks(tmp_path: Path, body: bytes, expected: list[bytes | None]) -> None:
    async def story(node: WebNode) -> None:
        headers: tuple[dict[str, str], ...] = (
            {},
            {"content-type": "application/json"},
            {"content-type": "application/json; charset=utf-8"},
        )
        for number, more in enumerate(headers):
            answer = await node.client.post(A, content=body, headers=more)
            first = number * len(expected)
            seqnos = list(range(first, first + len(expected)))
            assert answer.json() == {"partitions": [0] * len(expected), "seqnos": seqnos}
            assert answer.status_code == 200
        assert await values(node) == expected * 3

    assert tell(tmp_path, story) == []


def test_what_is_said_of_a_record_is_kept(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        full = {
            "value": {"t": 1},
            "key": "k",
            "timestamp": "2026-01-31T12:00:00Z",
            "channel": "site/7",
            "tags": ["x", "y"],
            "headers": [["h", "v"]],
            "seqno": 99,
        }
        assert (await node.client.post(A, json=[full, 1])).status_code == 200
        first, second = await stored(node)
        assert first == Record(b'{"t":1}', b"k", 1_769_860_800_000_000, "site/7", ("x", "y"), (("h", b"v"),), seqno=0)
        assert (second.value, second.key, second.tags) == (b"1", None, ())

    assert tell(tmp_path, story) == []


def test_lines_are_records_each(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        body = b'{"value": 1}\r\n\n  {"t": 2}\n"three"'
        assert (await node.client.post(A, content=body, headers=LINES)).json()["seqnos"] == [0, 1, 2]
        assert await values(node) == [b"1", b'{"t": 2}', b"three"]

    assert tell(tmp_path, story) == []


def test_any_other_body_is_the_value_itself(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        headers: Any = {
            **PLAIN,
            "logboom-key": "k",
            "logboom-tags": "x, y,,",
            "logboom-channel": "säge".encode(),
            "logboom-timestamp": "1970-01-01T00:00:01Z",
        }
        assert (await node.client.post(A, content=b"[1,2]", headers=headers)).status_code == 200
        assert (await node.client.post(A, content=b"", headers=PLAIN)).status_code == 200
        first, second = await stored(node)
        assert first == Record(b"[1,2]", b"k", 1_000_000, "säge", ("x", "y"), seqno=0)
        assert second.value == b""

    assert tell(tmp_path, story) == []


def test_whoever_asks_says_what_the_body_is(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert (await node.client.post(A + "?as=value", content=b"[1, 2]")).json()["seqnos"] == [0]
        assert (await node.client.post(A + "?as=value", content=b'{"value": 1}')).json()["seqnos"] == [1]
        assert (await node.client.post(A + "?as=record", content=b'[{"value": 1}]')).json()["seqnos"] == [2]
        assert await values(node) == [b"[1, 2]", b'{"value": 1}', b"1"]
        answer = await node.client.post(A + "?as=record", content=b'[{"value": 1}, {"t": 1}]')
        assert (answer.status_code, answer.json()["parameter"]) == (400, "records[1]")
        assert (await node.client.post(A + "?as=record", content=b"1", headers=PLAIN)).json()["parameter"] == "as"

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("body", "headers", "parameter", "code"),
    [
        (b'[1, 2, 3, {"value": 1, "tags": 5}]', {}, "records[3].tags", "invalid-column"),
        (b'[1, {"value": 1, "tags": ["a", 5]}]', {}, "records[1].tags[1]", "invalid-column"),
        (b'{"value": 1, "timestamp": "noon"}', {}, "records[0].timestamp", "invalid-column"),
        (b'[1, {"value": 1, "timestamp": 9223372036854775808}]', {}, "records[1].timestamp", "invalid-column"),
        (b'{"value": {"base64": "?"}}', {}, "records[0].value", "invalid-column"),
        (b'"\\ud800"', {}, None, "bad-json"),
        (b'1\n{"value": 1, "key": "\\ud800"}', LINES, "records[1]", "invalid-column"),
        (b'1\n{"value": 1, "\xff": 1}', LINES, "records[1]", "invalid-column"),
        (b"1\n2\n{", LINES, "records[2]", "invalid-column"),
        (b"", {}, None, "no-records"),
        (b" \n", LINES, None, "no-records"),
        (b"[]", {}, None, "no-records"),
        (b"{", {}, None, "bad-json"),
        (b"1 2", {}, None, "bad-json"),
        (b"[" * 50_000, {}, None, "bad-json"),
        (b"1", {"logboom-key": "k"}, "Logboom-Key", "bad-parameter"),
        (b"1", {**PLAIN, "logboom-timestamp": "noon"}, "Logboom-Timestamp", "bad-parameter"),
        (b"1", {**PLAIN, "logboom-channel": b"\xff"}, "Logboom-Channel", "bad-parameter"),
        (b"1", {"idempotency-key": "k" * 256}, "Idempotency-Key", "bad-parameter"),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_row(
    tmp_path: Path, body: bytes, headers: dict[str, Any], parameter: str | None, code: str
) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(A, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert answer.json().get("parameter") == parameter
        assert (await node.client.get("/topics")).json()["topics"] == []

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize("query", ["acks=all", "partition=-1", "partition=x", "expect_seqno=-1", "as=xml", "to=b"])
def test_a_query_that_means_nothing_is_refused_by_name(tmp_path: Path, query: str) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(f"{A}?{query}", content=b"1")
        assert (answer.status_code, answer.json()["parameter"]) == (400, query.partition("=")[0])

    assert tell(tmp_path, story) == []


def test_more_records_than_one_request_may_have_are_refused_before_they_are_made() -> None:
    many = RECORDS_MAX + 1
    for body in (b"[" + b"1," * RECORDS_MAX + b"1]", b"[" + b'"\\"[,",' * RECORDS_MAX + b"{}]"):
        with pytest.raises(RequestError) as caught:
            decode_json(body, "auto")
        assert (caught.value.status, caught.value.code) == (413, "too-many-records")
    with pytest.raises(RequestError) as caught:
        decode_lines(b"1\n" * many, "auto")
    assert caught.value.status == 413
    wide = b"[" + b",".join([b'{"a":[1,2,3,4],"b":"],[","c":"\\\\"}'] * (RECORDS_MAX // 4)) + b"]"
    assert len(decode_json(wide, "auto").values) == RECORDS_MAX // 4


def test_acks_say_when_the_answer_comes(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for acks, status in (("none", 202), ("leader", 200), ("durable", 200)):
            answer = await node.client.post(f"{A}?acks={acks}", content=b"1")
            assert answer.status_code == status
            assert len(answer.json()["seqnos"]) == 1
        assert len(await values(node)) == 3

    assert tell(tmp_path, story) == []


def test_a_write_goes_where_it_expects_to_or_nowhere(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert (await node.client.post(f"{A}?expect_seqno=0", content=b"[1,2]")).json()["seqnos"] == [0, 1]
        answer = await node.client.post(f"{A}?expect_seqno=0", content=b"3")
        assert (answer.status_code, answer.json()["code"]) == (409, "unexpected-seqno")
        assert answer.json()["data"] == {"expected": 0, "next_seqno": 2}
        assert "try again" in answer.json()["fix"]
        assert (await node.client.post(f"{A}?expect_seqno=2", content=b"3")).json()["seqnos"] == [2]

    assert tell(tmp_path, story) == []


def test_of_many_who_expect_the_same_seqno_one_wins(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        posts = [node.client.post(f"{A}?expect_seqno=0", content=b"%d" % number) for number in range(20)]
        statuses = sorted([answer.status_code for answer in await asyncio.gather(*posts)])
        assert statuses == [200] + [409] * 19
        assert len(await values(node)) == 1

    assert tell(tmp_path, story) == []


def test_a_repeated_request_is_answered_as_the_first_time_after_a_restart_too(tmp_path: Path) -> None:
    key = {"idempotency-key": "order-17"}

    async def run() -> None:
        async with serving(tmp_path) as node:
            await node.client.post(A, content=b"0")
            first = await node.client.post(A, content=b"[1,2]", headers=key)
            assert first.json() == {"partitions": [0, 0], "seqnos": [1, 2]}
            await node.client.post(A, content=b"3")
            assert (await node.client.post(A, content=b"[1,2]", headers=key)).json() == first.json()
        async with serving(tmp_path) as node:
            again = await node.client.post(A, content=b"[1,2]", headers=key)
            assert (again.status_code, again.json()) == (200, first.json())
            other = await node.client.post("/topics/b/records", content=b"[1,2]", headers=key)
            assert other.json()["seqnos"] == [0, 1]
            assert await values(node) == [b"0", b"1", b"2", b"3"]
            differs = await node.client.post(A, content=b"[1,2,3]", headers=key)
            assert (differs.status_code, differs.json()["code"]) == (409, "repeat-forgotten")
            assert "Idempotency-Key" in differs.json()["fix"]

    asyncio.run(run())


def test_records_with_a_key_or_channel_go_where_they_belong(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"value": number, "key": f"k{number}"} for number in range(20)]
    rows += [{"value": number, "channel": f"c/{number}"} for number in range(20, 40)]
    expected = [partition_of((row.get("key") or row["channel"]).encode(), 4) for row in rows]

    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a", "partitions": 4})
        for number, more in enumerate(({}, {"idempotency-key": "1"}, {"idempotency-key": "1"})):
            answer = (await node.client.post(A, json=rows, headers=more)).json()
            assert answer["partitions"] == expected
            for partition in range(4):
                found = await values(node, partition=partition)
                mine = [row for row in range(40) if expected[row] == partition]
                assert [found[answer["seqnos"][row]] for row in mine] == [b"%d" % row for row in mine]
                assert len(found) == len(mine) * min(2, number + 1)

    assert tell(tmp_path, story) == []


def test_records_without_either_go_anywhere_and_to_the_same_place_when_repeated(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a", "partitions": 4})
        for _ in range(8):
            assert (await node.client.post(A, content=b"[1,2]")).status_code == 200
        counts = [len(await values(node, partition=partition)) for partition in range(4)]
        assert sum(counts) == 16
        assert min(counts) > 0
        mixed = [{"value": 1, "key": "k"}, {"value": 2}]
        answers = [await node.client.post(A, json=mixed, headers={"idempotency-key": "x"}) for _ in range(2)]
        assert answers[0].json() == answers[1].json()
        assert (await node.client.post(A, json=mixed)).status_code == 200

    assert tell(tmp_path, story) == []


def test_a_partition_that_is_named_gets_everything(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a", "partitions": 4})
        answer = await node.client.post(f"{A}?partition=3", json=[{"value": 1, "key": "a"}, 2])
        assert answer.json() == {"partitions": [3, 3], "seqnos": [0, 1]}
        answer = await node.client.post(f"{A}?partition=3&expect_seqno=2", content=b"1")
        assert answer.json() == {"partitions": [3], "seqnos": [2]}
        answer = await node.client.post(f"{A}?partition=4", content=b"1")
        assert (answer.status_code, answer.json()["code"]) == (404, "partition-not-found")
        answer = await node.client.post(f"{A}?expect_seqno=0", content=b"1")
        assert (answer.status_code, answer.json()["code"]) == (404, "partition-not-found")

    assert tell(tmp_path, story) == []


def test_one_record_that_cannot_be_keeps_the_others_out_of_all_partitions(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"value": number, "key": f"k{number}"} for number in range(8)]
    rows[5]["timestamp"] = 2**63

    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a", "partitions": 2})
        answer = await node.client.post(A, json=rows)
        assert (answer.status_code, answer.json()["parameter"]) == (400, "records[5].timestamp")
        assert [await values(node, partition=partition) for partition in range(2)] == [[], []]

    assert tell(tmp_path, story) == []


def test_a_seqno_is_expected_of_one_partition_with_a_key_of_the_request_too(tmp_path: Path) -> None:
    rows = [{"value": number, "key": f"k{number}"} for number in range(8)]
    key = {"idempotency-key": "x"}

    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a", "partitions": 2})
        answer = await node.client.post(f"{A}?expect_seqno=0", json=rows, headers=key)
        assert (answer.status_code, answer.json()["code"]) == (404, "partition-not-found")
        for _ in range(2):
            answer = await node.client.post(f"{A}?expect_seqno=0&partition=1", json=rows, headers=key)
            assert answer.json()["seqnos"] == list(range(8))

    assert tell(tmp_path, story) == []


def test_the_same_key_many_times_at_once_is_written_once(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        posts = [node.client.post(A, content=b"[1,2]", headers={"idempotency-key": "x"}) for _ in range(20)]
        assert {answer.text for answer in await asyncio.gather(*posts)} == {'{"partitions":[0,0],"seqnos":[0,1]}'}
        assert await values(node) == [b"1", b"2"]

    assert tell(tmp_path, story) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just({"base64": "AP8="}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(FIELDS)), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b" ", b"[]", b"{", b'"\\ud800"', b'{"value": 1, "timestamp": 9223372036854775808}', b"\xff"]),
    st.binary(min_size=1, max_size=20),
)
QUERIES = st.sampled_from(
    [
        "",
        "?as=value",
        "?as=record",
        "?as=",
        "?acks=durable",
        "?acks=all",
        "?partition=0",
        "?partition=1",
        "?expect_seqno=0",
        "?a=b&a",
    ]
)
HEADERS = st.sampled_from([(), (("upgrade", "websocket"),), (("content-type", "text/plain"),), (("logboom-key", "k"),)])
QUICK, SLOW = ("content-type", "application/json"), ("content-type", "application/json; charset=utf-8")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(BODIES, QUERIES, HEADERS), min_size=1, max_size=20))
def test_a_write_that_is_taken_quickly_is_answered_as_any_other(
    writes: list[tuple[bytes, str, tuple[tuple[str, str], ...]]],
) -> None:
    async def story(node: WebNode) -> None:
        for topic in ("quick", "slow"):
            await node.client.post("/topics", json={"name": topic})
        for body, query, more in writes:
            answers = [
                await node.client.post(f"/topics/{topic}/records{query}", content=body, headers=[*more, kind])
                for topic, kind in (("quick", QUICK), ("slow", SLOW))
            ]
            quick, slow = ((answer.status_code, answer.text.replace("slow", "quick")) for answer in answers)
            assert quick == slow
        assert await values(node, "quick") == await values(node, "slow")

    with tempfile.TemporaryDirectory() as path:
        assert tell(Path(path), story) == []


def test_what_fails_in_part_says_which_part(tmp_path: Path) -> None:
    rows = [{"value": number, "key": f"k{number}"} for number in range(8)]
    expected = [partition_of(row["key"].encode(), 2) for row in rows]  # type: ignore[attr-defined]

    async def story(node: WebNode) -> None:
        await node.client.post("/topics", json={"name": "a", "partitions": 2})
        key = {"idempotency-key": "x"}
        mine = [row for row, partition in zip(rows, expected, strict=True) if partition == 0]
        assert (await node.client.post(A, json=mine[:1], headers=key)).status_code == 200
        answer = await node.client.post(A, json=rows, headers=key)
        assert (answer.status_code, answer.json()["code"]) == (409, "repeat-forgotten")
        data = answer.json()["data"]
        assert data["partitions"] == [None if partition == 0 else 1 for partition in expected]
        assert [seqno is None for seqno in data["seqnos"]] == [partition == 0 for partition in expected]

    assert tell(tmp_path, story) == []


def test_a_large_body_is_taken_apart_beside_the_loop(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        rows = [{"value": {"number": number}, "tags": ["x"]} for number in range(20_000)]
        answer = await node.client.post(A, content=json.dumps(rows).encode())
        assert answer.json()["seqnos"] == list(range(20_000))
        answer = await node.client.post(A, content=json.dumps([*rows, {"value": 1, "tags": 1}]).encode())
        assert answer.json()["parameter"] == "records[20000].tags"

    assert tell(tmp_path, story) == []


def test_what_is_written_is_counted(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await node.client.post(A, content=b"[1,2,3]")
        await node.client.post(A, content=b"[1,2,3]", headers={"idempotency-key": "x"})
        meter = node.front_end.meter
        assert (meter.batches_in, meter.records_in, meter.bytes_in) == (2, 6, 14)
        assert meter.append.shown().count == 2

    assert tell(tmp_path, story) == []


def test_a_batch_that_a_log_does_not_take_is_a_problem_with_a_fix(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.post(A, content=b"1" * 10_000, headers=PLAIN)
        assert (answer.status_code, answer.json()["code"]) == (413, "batch-too-large")
        assert "limits.batch_bytes" in answer.json()["fix"]

    assert tell(tmp_path, story, config=BrokerConfig(limits=Limits(batch_bytes=4096))) == []
