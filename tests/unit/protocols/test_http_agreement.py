"""The document and the server agree: what the document allows is taken, and what it forbids is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from logboom.protocols.http.settings import HttpSettings
from support.nodes.web import WebNode, tell

RIGHT = {
    "topic": "events",
    "cursor": "billing",
    "group": "shipping",
    "member": "member-0123456789",
    "seqno": 0,
    "id": 1,
    "stage": "0" * 32,
    "folder": "page",
    "file": "main.js",
    "name": "n",
    "job": "archive/events",
    "user": "alice",
    "role": "audit",
    "token": "0" * 12,
    "rule": 1,
    "right": "read",
}
ENDLESS = ("tail_records",)


async def fill(node: WebNode) -> dict[str, Any]:
    """Something to be found; and the document."""
    await node.client.post("/topics/events/records", json=[{"value": 1, "key": "a", "tags": ["b"]}, 2])
    await node.client.post("/changes", json={"data": 1})
    await node.client.put("/topics/events/cursors/billing", json={"seqno": 1})
    await node.client.post("/groups/shipping/members", json={"topics": "events", "member": RIGHT["member"]})
    document: dict[str, Any] = (await node.client.get("/openapi.json")).json()
    return document


def allows(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    return jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]}).is_valid(value)


def test_an_empty_parameter_and_a_number_out_of_range_are_what_the_document_says(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        document = await fill(node)
        tried = 0
        for path, methods in document["paths"].items():
            operation = methods.get("get")
            if operation is None:
                continue
            for parameter in operation.get("parameters", ()):
                if parameter["in"] != "query" or operation["operationId"] in ENDLESS:
                    continue
                schema, name = parameter["schema"], parameter["name"]
                needed = {each["name"]: RIGHT[each["name"]] for each in operation["parameters"] if each["required"]}
                values: list[Any] = [""] if schema.get("type") == "string" else []
                if schema.get("type") == "integer":
                    values = [bound + step for bound in _bounds(schema) for step in (-1, 0, 1)]
                for value in values:
                    params = {each: what for each, what in {**needed, name: value}.items() if f"{{{each}}}" not in path}
                    answer = await node.client.get(path.format(**RIGHT), params=params)
                    refused = answer.status_code == 400 and answer.json().get("parameter") in (name, None)
                    assert refused is not allows(document, schema, value), (path, name, value, answer.text)
                    tried += 1
        assert tried > 30

    tell(tmp_path, story, settings=HttpSettings(page_records_max=50, page_records=7))


def _bounds(schema: dict[str, Any]) -> list[int]:
    return [bound for bound in (schema.get("minimum"), schema.get("maximum")) if bound is not None and bound < 2**62]


_HELD = {"topic_id": "0" * 32, "partition": 0}
BODIES = {
    "/topics/{topic}/cursors/{cursor}": (
        "put",
        [
            {},
            {"seqno": 1},
            {"seqno": 1.0},
            {"seqno": 1.5},
            {"seqno": None},
            {"bookmark": None, "seqno": 1},
            {"bookmark": None},
            {"bookmark": "BOOKMARK"},
            {"bookmark": "BOOKMARK", "seqno": 1},
            {"seqno": -1},
            [],
        ],
    ),
    "/topics/{topic}": (
        "patch",
        [
            {},
            {"settings": {}},
            {"settings": {"retention": {"bytes": 1e6}}},
            {"settings": {"nothing": {}}},
            {"settings": {"retention": {"nothing": 1}}},
            {"settings": {"retention": {"bytes": "1"}}},
            {"settings": {"retention": None}},
            {"settings": {"retention": {"bytes": None}}},
            {"settings": None},
            {"settings": {"retention": 5}},
            {"settings": {"acks": {"least": "most"}}},
            {"settings": {"segment": []}},
            {"settings": {"segment": {"bytes": 1}}},
            {"settings": {"segment": {"bytes": 2**20}}},
            {"settings": {"recompression": {"min_gain": 0.5, "level": 3.0}}},
            {"settings": {"flush": {"policy": 1}}},
        ],
    ),
    "/groups/{group}/members": (
        "post",
        [
            {},
            {"topics": "events"},
            {"topics": ""},
            {"topics": "events", "member": None},
            {"topics": "events", "member": ""},
            {"topics": "events", "member": "m" * 64},
            {"topics": "events", "member": "m" * 65},
            {"topics": "events", "session_ms": 1e4, "give_back_ms": 1e4},
            {"topics": "events", "session_ms": 499},
            {"topics": "events", "mode": "log"},
            {"topics": "events", "session": 1},
        ],
    ),
    "/groups/{group}/members/{member}/beat": (
        "post",
        [{}, {"generation": 0.0}, {"generation": -1}, {"held": [_HELD]}, {"held": [["0", 0]]}, {"next": None}],
    ),
    "/groups/{group}/members/{member}/poll": ("post", [{}, {"commit": ""}, {"commit": None}, {"commits": ""}]),
    "/groups/{group}/members/{member}/commit": (
        "post",
        [
            {},
            {"next": ""},
            {"next": None},
            {"next": "", "places": []},
            {"next": None, "places": []},
            {"places": []},
            {"places": [{"topic": "events", "partition": 0, "seqno": 1, "generation": 1}]},
            {"places": [{"topic": "events", "partition": 0, "seqno": 1.0, "generation": 1.0}]},
            {"places": [{"topic": "events", "partition": 0, "seqno": 1}]},
            {"places": {}},
        ],
    ),
    "/groups/{group}/reset": (
        "post",
        [
            {},
            {"topics": "events"},
            {"topics": "", "to": "latest"},
            {"topics": "events", "to": ""},
            {"topics": "events", "to": 1},
            {"topics": "events", "to": "latest", "dry_run": 1},
        ],
    ),
    "/publish": (
        "post",
        [
            {},
            {"name": "n", "number": 1},
            {"name": "n", "number": 2.0, "moves": []},
            {"name": "n", "number": -1},
            {"name": "n", "number": "1"},
            {"name": "n", "number": 3, "records": [{"topic": "events", "records": [{"value": 1, "key": "a"}, 2]}]},
            {"name": "n", "number": 4, "records": [{"topic": "events", "partition": 0.0, "records": ["x"]}]},
            {"name": "n", "number": 5, "records": [{"topic": "events"}]},
            {"name": "n", "number": 6, "records": [{"topic": "events", "records": [1], "more": 1}]},
            {"name": "n", "number": 7, "moves": [{"cursor": "c", "topic": "events"}]},
            {"name": "n", "number": 8, "moves": [{"cursor": "c", "topic": "events", "bookmark": 1}]},
            {"name": "n", "number": 9, "what": 1},
        ],
    ),
    "/topics/{topic}/trim": (
        "post",
        [{}, {"seqno": 0.0}, {"seqno": 1.0, "partition": 0.0}, {"seqno": 0.5}, {"seqno": True}, {"seqno": "1"}],
    ),
    "/topics": (
        "post",
        [
            {},
            {"name": "a", "partitions": 2.0},
            {"name": "b", "partitions": 2.5},
            {"name": ""},
            {"name": "c", "settings": {"segment": {"bytes": 2.0**20}}},
            {"name": "d", "settings": {"nothing": 1}},
        ],
    ),
}


@pytest.mark.parametrize("path", BODIES)
def test_a_body_is_what_the_document_says(tmp_path: Path, path: str) -> None:
    async def story(node: WebNode) -> None:
        document = await fill(node)
        method, bodies = BODIES[path]
        operation = document["paths"][path][method]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        bookmark = (await node.client.get("/topics/events/cursors/billing")).json()["bookmark"]
        for body in bodies:
            if isinstance(body, dict) and body.get("bookmark") == "BOOKMARK":
                body = {**body, "bookmark": bookmark}
            answer = await node.client.request(method.upper(), path.format(**RIGHT), json=body)
            assert (answer.status_code < 300) is allows(document, schema, body), (body, answer.text)
        if operation["requestBody"]["required"]:
            empty = await node.client.request(method.upper(), path.format(**RIGHT), content=b"")
            assert empty.status_code == 400

    tell(tmp_path, story)


@pytest.mark.parametrize(("text", "status"), [("2", 200), ("2.0", 200), ("2.5", 400), ("2.", 400), ("2e0", 400)])
def test_a_whole_number_in_a_query_may_have_zeros_behind_its_point(tmp_path: Path, text: str, status: int) -> None:
    async def story(node: WebNode) -> None:
        await fill(node)
        assert (await node.client.get(f"/topics/events/records?limit={text}")).status_code == status

    tell(tmp_path, story)
