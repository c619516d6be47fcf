"""The document says what the operations are; the page shows it and lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.request import urlopen

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import PartitionInfo, TopicInfo
from logboom.protocols.http.api.operations import ALL
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.problem import STATUSES
from logboom.protocols.http.schema.openapi import PROBLEMS, document
from logboom.protocols.http.schema.operation import Content, Operation
from logboom.storage.data.topic import Settings
from support.nodes.http import http_node


class Choice(msgspec.Struct, rename={"from_": "from"}):
    topic_id: str
    from_: str = "earliest"
    limit: Annotated[int, msgspec.Meta(ge=1, le=10)] | None = None
    tag: tuple[str, ...] = ()
    acks: Literal["none", "durable"] | None = None
    internal: bool = False


class Named(msgspec.Struct, rename={"key": "Idempotency-Key"}):
    key: str | None = None
    """Answers a repeat as the first time."""


async def choose(front_end: HttpFrontEnd, request: Request) -> Response:
    raise NotImplementedError


CHOOSE = Operation(
    "POST",
    "/topics/{topic}/cursors/{cursor:path}",
    choose,
    "Choose",
    "Topics",
    query=Choice,
    headers=Named,
    meanings={"limit": "How many."},
    body={"application/json": Content(Settings, {"acks": {"least": "leader"}}), "image/png": Content(bytes)},
    answers={200: {"application/json": Content(list[TopicInfo])}, 204: {}},
    problems=(409,),
    answer_headers={"Location": "Where it is."},
)


@pytest.fixture(scope="module")
def chosen() -> dict[str, Any]:
    made: dict[str, Any] = document([CHOOSE])["paths"]["/topics/{topic}/cursors/{cursor}"]["post"]
    return made


def parameters(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {parameter["name"]: parameter for parameter in operation.get("parameters", [])}


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document(ALL)["paths"].items():
        yield from ((f"{method} {path}", operation) for method, operation in methods.items())


def test_each_field_of_a_query_is_a_parameter_with_its_type_default_and_range(chosen: dict[str, Any]) -> None:
    found = parameters(chosen)
    assert found["topic_id"]["required"]
    assert found["from"]["schema"] == {"type": "string", "default": "earliest"}
    assert found["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 10}
    assert found["limit"]["description"] == "How many."
    assert found["tag"]["schema"] == {"type": "array", "items": {"type": "string"}}
    assert found["acks"]["schema"] == {"enum": ["durable", "none"]}
    assert found["internal"]["schema"] == {"type": "boolean", "default": False}
    assert {found[name]["in"] for name in ("topic_id", "from", "limit", "tag", "acks", "internal")} == {"query"}


def test_headers_have_their_names_and_what_the_source_says_of_them(chosen: dict[str, Any]) -> None:
    header = parameters(chosen)["Idempotency-Key"]
    assert header["in"] == "header"
    assert header["description"] == "Answers a repeat as the first time."


def test_a_path_parameter_has_the_pattern_of_its_names(chosen: dict[str, Any]) -> None:
    found = parameters(chosen)
    assert re.fullmatch(found["topic"]["schema"]["pattern"], "site-7.readings")
    assert not re.fullmatch(found["topic"]["schema"]["pattern"], "site/7")
    assert re.fullmatch(found["cursor"]["schema"]["pattern"], "jobs/billing")


def test_a_body_has_each_of_its_types_with_an_example(chosen: dict[str, Any]) -> None:
    contents = chosen["requestBody"]["content"]
    assert contents["application/json"]["schema"] == {"$ref": "#/components/schemas/Settings"}
    assert contents["application/json"]["example"] == {"acks": {"least": "leader"}}
    assert contents["image/png"]["schema"] == {"type": "string", "format": "binary"}


def test_answers_are_the_operations_own_and_the_problems_it_may_have(chosen: dict[str, Any]) -> None:
    answers = chosen["responses"]
    assert answers["200"]["content"]["application/json"]["schema"]["items"] == {
        "$ref": "#/components/schemas/TopicInfo"
    }
    assert "content" not in answers["204"]
    assert answers["204"]["headers"]["Location"]["description"] == "Where it is."
    for status in (400, 404, 409, 413, 415, 500, 503):
        assert answers[str(status)] == {"$ref": f"#/components/responses/Problem{status}"}
    assert "416" not in answers


def test_structs_of_parameters_are_no_components() -> None:
    assert not {"Choice", "Named"} & document([CHOOSE])["components"]["schemas"].keys()


def test_what_stands_below_a_field_in_the_source_is_its_description() -> None:
    found = document([CHOOSE])["components"]["schemas"][PartitionInfo.__name__]["properties"]
    assert found["refusal"]["description"] == "Why this log takes no writes."


def test_a_tuple_has_a_schema_for_each_of_its_places() -> None:
    pairs = Operation(
        "GET", "/pairs", choose, "Pairs", "Topics", answers={200: {"application/json": Content(list[tuple[str, int]])}}
    )
    answer = document([pairs])["paths"]["/pairs"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"]["items"] == {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": False,
    }


def test_settings_of_topics_have_their_ranges() -> None:
    schemas = document([CHOOSE])["components"]["schemas"]
    assert schemas["SegmentSettings"]["properties"]["bytes"]["minimum"] == 4096
    assert schemas["RetentionSettings"]["properties"]["records"]["anyOf"][0]["maximum"] == 2**62


def test_every_setting_of_a_topic_says_what_it_means_what_it_may_be_and_its_default() -> None:
    schemas = document([CHOOSE])["components"]["schemas"]
    for group, reference in schemas["Settings"]["properties"].items():
        assert reference["description"], group
        if "$ref" not in reference:
            assert "enum" in reference, "one that stands alone is a choice, and may be absent"
            assert group not in schemas["Settings"].get("required", [])
            continue
        for name, schema in schemas[reference["$ref"].rpartition("/")[2]]["properties"].items():
            assert len(schema["description"]) > 20, (group, name)
            assert "default" in schema, (group, name)
            shape = schema["anyOf"][0] if "anyOf" in schema else schema
            if shape.get("type") in ("integer", "number"):
                assert shape["minimum"] < shape["maximum"], (group, name)
            else:
                assert "enum" in shape or shape["type"] in ("string", "array"), (group, name)
            if name.endswith("_ms"):
                assert "millisecond" in schema["description"], (group, name)


def test_the_document_is_the_same_each_time() -> None:
    assert msgspec.json.encode(document(ALL)) == msgspec.json.encode(document(ALL))


def test_every_operation_is_in_the_document_once() -> None:
    names = [operation["operationId"] for _, operation in operations()]
    assert sorted(names) == sorted(operation.name for operation in ALL)
    assert len(set(names)) == len(names)


def test_every_operation_says_what_it_does_and_what_it_answers() -> None:
    tags = {tag["name"] for tag in document(ALL)["tags"] if "description" in tag}
    for name, operation in operations():
        assert operation["summary"], name
        assert set(operation["tags"]) <= tags, name
        assert any(int(status) < 400 for status in operation["responses"]), name


def test_every_parameter_says_what_it_means() -> None:
    unsaid = [
        (name, parameter["name"])
        for name, operation in operations()
        for parameter in operation.get("parameters", [])
        if not parameter["description"]
    ]
    assert unsaid == []


def test_every_reference_leads_somewhere() -> None:
    made = document(ALL)
    references = set(re.findall(r'"\$ref":"#/([^"]+)"', msgspec.json.encode(made).decode()))
    assert references
    for reference in references:
        found = made
        for name in reference.split("/"):
            assert name in found, reference
            found = found[name]


def test_every_body_has_an_example_that_is_of_its_type() -> None:
    for operation in ALL:
        for contents in (operation.body, *operation.answers.values()):
            for media_type, content in contents.items():
                if contents is operation.body:
                    assert content.example is not None, (operation.name, media_type)
                if content.example is not None and media_type == "application/json":
                    assert msgspec.convert(content.example, content.type) is not None, operation.name


def test_every_status_of_a_problem_is_explained() -> None:
    assert set(STATUSES.values()) <= PROBLEMS.keys()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """With its policy."""
    with http_node(tmp_path_factory.mktemp("node")) as node, urlopen(f"http://{node.address}/docs") as answer:
        return answer.read().decode(), answer.headers["Content-Security-Policy"]


def test_the_page_lets_its_own_script_and_style_run_and_no_other(page: tuple[str, str]) -> None:
    text, policy = page
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"<[^>]+\s(style|on\w+)=", text.partition("<script>")[0])


def test_the_page_is_small_and_needs_nothing_from_elsewhere(page: tuple[str, str]) -> None:
    text, _ = page
    assert len(text) < 40_000
    assert set(re.findall(r"https?://[^\s'\"%]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_page_takes_nothing_from_the_document_as_markup(page: tuple[str, str]) -> None:
    text, _ = page
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in text


def test_the_document_is_served(tmp_path: Path) -> None:
    with http_node(tmp_path) as node, urlopen(f"http://{node.address}/openapi.json") as answer:
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.read() == msgspec.json.encode(document(ALL))
