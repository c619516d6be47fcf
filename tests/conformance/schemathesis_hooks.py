"""What Schemathesis has to be told: our media types, what is worth a visit."""

from __future__ import annotations

import json
import re
from typing import Any

import schemathesis

NAME = re.compile("[A-Za-z0-9._-]{1,249}")
TOPICS = ("events", "readings", "nothing")
EMPTY: dict[str, Any] = {
    "seqno": 0,
    "timestamp": None,
    "key": None,
    "value": None,
    "channel": None,
    "tags": [],
    "headers": [],
}
NEAR = {"partitions": 3, "partition": 2, "seqno": 5, "expect_seqno": 20, "id": 5}


@schemathesis.serializer("application/x-ndjson", "application/logd")
def serialize_text(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """What is to be no text is none."""
    return value.encode(errors="replace") if isinstance(value, str) else b"\xff"


@schemathesis.deserializer("application/x-ndjson")
def deserialize_lines(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    """The schema is that of a line, and the first one speaks for all."""
    lines = response.content.splitlines()
    return json.loads(lines[0]) if lines else EMPTY


@schemathesis.hook
def before_load_schema(context: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
    """Tuples in answers are mistranslated into an older dialect: let them be arrays of anything."""
    for part in raw_schema.values():
        for inner in part if isinstance(part, list) else [part]:
            if isinstance(inner, dict):
                before_load_schema(context, inner)
    if "prefixItems" in raw_schema:
        del raw_schema["prefixItems"], raw_schema["items"]


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: dict[str, Any] | None) -> Any:
    """Of all the names and numbers there may be, those that mean something come often."""
    found = path_parameters or {}
    if NAME.fullmatch(str(found.get("topic", ""))):
        found["topic"] = TOPICS[len(found["topic"]) % len(TOPICS)]
    if NAME.fullmatch(str(found.get("cursor", ""))):
        found["cursor"] = "billing"
    if NAME.fullmatch(str(found.get("member", ""))) and len(found["member"]) >= 16:
        found |= {"group": "billing", "member": "member-0123456789"}
    return near(path_parameters)


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: dict[str, Any] | None) -> Any:
    return near(query)


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    return near(body)


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Any, kwargs: dict[str, Any]) -> None:
    """No topic gets a command to run, or an address to call, that was made up here."""
    settings = case.body.get("settings") if isinstance(case.body, dict) else None
    if isinstance(settings, dict):
        for group, name in (("hook", "delete"), ("validators", "urls")):
            if isinstance(found := settings.get(group), dict):
                found.pop(name, None)


def near(fields: Any) -> Any:
    """Numbers that are right, and less far off. Partitions cost a directory each: some are as good as thousands."""
    for name, number in fields.items() if isinstance(fields, dict) else ():
        if name in NEAR and type(number) is int and NEAR[name] < number < 2**63:
            fields[name] = 1 + number % NEAR[name]
    return fields
