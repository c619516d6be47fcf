"""Every operation of the HTTP API, as requests, and what each asks of the rules, in that order."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from support.callers.everybody import Ask

_DESCRIBE: Final[list[Ask]] = [("describe", "topic", "events")]
_READ: Final[list[Ask]] = [("read", "topic", "events")]
_WRITE: Final[list[Ask]] = [("write", "topic", "events")]
_NODE: Final[list[Ask]] = [("describe", "node", "")]
_MANAGE: Final[list[Ask]] = [("manage", "node", "")]
_MANAGE_TOPIC: Final[list[Ask]] = [("manage", "topic", "events")]
_USERS: Final[list[Ask]] = [("describe", "user", "*")]
_ANN: Final[list[Ask]] = [("manage", "user", "ann")]
_ALL_USERS: Final[list[Ask]] = [("manage", "user", "*")]
_PIPELINE: Final[list[Ask]] = [("describe", "pipeline", "")]
_RULE: Final = {"effect": "allow", "who": "ann", "rights": ["read"], "kind": "topic"}
STAGE: Final = "0" * 32
_GROUP: Final[list[Ask]] = [("read", "group", "billing")]
_MEMBERS: Final = "/groups/billing/members"
_MEMBER: Final = f"{_MEMBERS}/member-0123456789"
_DONE: Final = {"topic": "events", "partition": 0, "seqno": 1, "generation": 1}


class HttpRequest(NamedTuple):
    path: str
    asked: list[Ask]
    json: Any = None
    content: bytes | None = None
    media: str = ""
    """Of the content."""
    idempotency_key: str = ""
    for_oneself: bool = False
    """Whoever has signed in with his password has it for himself."""
    hidden: tuple[int, str] | None = None
    """Status and code where the topic is not to be known of, if not those of a topic that is not there."""


HTTP: Final[dict[str, list[HttpRequest]]] = {
    "list_topics": [HttpRequest("/topics", [("describe", "topic", "")])],
    "create_topic": [HttpRequest("/topics", [("create", "topic", "new")], {"name": "new"})],
    "describe_topic": [HttpRequest("/topics/events", _DESCRIBE)],
    "change_topic": [HttpRequest("/topics/events", [("configure", "topic", "events")], {"settings": {}})],
    "delete_topic": [HttpRequest("/topics/events", [("delete", "topic", "events")])],
    "trim_topic": [HttpRequest("/topics/events/trim", [("delete", "topic", "events")], {"seqno": 1})],
    "refuse_topic": [HttpRequest("/topics/events/refuse", _MANAGE_TOPIC)],
    "accept_topic": [HttpRequest("/topics/events/accept", _MANAGE_TOPIC)],
    "refuse_node": [HttpRequest("/refuse", _MANAGE)],
    "accept_node": [HttpRequest("/accept", _MANAGE)],
    "promote_node": [HttpRequest("/promote", _MANAGE)],
    "list_segments": [HttpRequest("/topics/events/segments", _DESCRIBE)],
    "write_records": [
        HttpRequest("/topics/events/records", _WRITE, {"value": 1}),
        HttpRequest("/topics/events/records", _WRITE, [{"value": 1, "key": "k"}, {"value": 2, "key": "l"}]),
        HttpRequest("/topics/events/records?partition=0", _WRITE, {"value": 1}),
        HttpRequest("/topics/events/records?expect_seqno=2", _WRITE, {"value": 1}),
        HttpRequest("/topics/events/records", _WRITE, {"value": 1}, idempotency_key="k1"),
        HttpRequest("/topics/events/records", _WRITE, None, b"x", "application/octet-stream"),
        HttpRequest("/topics/events/records", _WRITE, None, b'{"value":1}\n{"value":2}\n', "application/x-ndjson"),
    ],
    "read_records": [
        HttpRequest("/topics/events/records?limit=1", _READ),
        HttpRequest("/topics/events/records?cursor=billing", [("read", "cursor", "billing"), *_READ]),
    ],
    "read_one_record": [HttpRequest("/topics/events/records/0", _READ)],
    "read_value": [HttpRequest("/topics/events/records/0/value", _READ)],
    "read_checkpoint": [HttpRequest("/topics/events/checkpoint", _READ)],
    "tail_records": [HttpRequest("/topics/events/tail", _READ)],
    "list_cursors": [HttpRequest("/cursors", [("describe", "cursor", "")])],
    "list_topic_cursors": [HttpRequest("/topics/events/cursors", [*_DESCRIBE, ("describe", "cursor", "")])],
    "get_cursor": [HttpRequest("/topics/events/cursors/billing", [("read", "cursor", "billing"), *_READ])],
    "put_cursor": [
        HttpRequest("/topics/events/cursors/billing", [*_READ, ("write", "cursor", "billing")], {"seqno": 1})
    ],
    "delete_cursor": [HttpRequest("/topics/events/cursors/billing", [*_DESCRIBE, ("delete", "cursor", "billing")])],
    "join_group": [HttpRequest(_MEMBERS, [*_GROUP, *_READ], {"topics": "events"})],
    "beat_group": [HttpRequest(f"{_MEMBER}/beat", _GROUP)],
    "poll_records": [HttpRequest(f"{_MEMBER}/poll", _GROUP)],
    "take_jobs": [HttpRequest(f"{_MEMBER}/jobs", _GROUP)],
    "settle_jobs": [HttpRequest(f"{_MEMBER}/jobs/settle", _GROUP, {"settlements": []})],
    "commit_group": [
        HttpRequest(f"{_MEMBER}/commit", _GROUP, {"next": ""}),
        HttpRequest(f"{_MEMBER}/commit", [*_READ, *_GROUP], {"places": [_DONE]}),
    ],
    "leave_group": [HttpRequest(_MEMBER, _GROUP)],
    "list_groups": [HttpRequest("/groups", [("describe", "group", "")])],
    "describe_group": [HttpRequest("/groups/billing", [("describe", "group", "billing")])],
    "reset_group": [
        HttpRequest(
            "/groups/billing/reset", [("write", "group", "billing"), *_READ], {"topics": "events", "to": "latest"}
        )
    ],
    "delete_group": [HttpRequest("/groups/billing", [("delete", "group", "billing")])],
    "publish_records": [
        HttpRequest(
            "/publish",
            [*_DESCRIBE, ("write", "transaction", "orders"), *_WRITE],
            {"name": "orders", "number": 1, "records": [{"topic": "events", "records": [1]}]},
        ),
        HttpRequest(
            "/publish",
            [("write", "transaction", "orders"), ("write", "cursor", "billing"), *_READ],
            {"name": "orders", "number": 1, "moves": [{"cursor": "billing", "topic": "events", "bookmark": ""}]},
        ),
    ],
    "list_stages": [HttpRequest("/stages", [("describe", "transaction", "")])],
    "discard_stage": [HttpRequest(f"/stages/{STAGE}", [("delete", "transaction", STAGE)])],
    "list_keys": [HttpRequest("/keys", [("describe", "transaction", "")])],
    "forget_key": [HttpRequest("/keys?name=orders", [("delete", "transaction", "orders")])],
    "list_jobs": [HttpRequest("/pipeline", _PIPELINE)],
    "show_report": [HttpRequest("/pipeline/report?job=report/all", _PIPELINE)],
    "post_change": [HttpRequest("/changes", [("write", "topic", "events")], {"data": 1})],
    "list_changes": [HttpRequest("/changes", _READ, hidden=(200, ""))],
    "get_change": [HttpRequest("/changes/1", _READ, hidden=(404, "change-not-found"))],
    "converse": [],  # every command of logd goes this way too
    "show_health": [HttpRequest("/healthz", [])],
    "show_readiness": [HttpRequest("/readyz", [])],
    "show_stats": [HttpRequest("/stats", _NODE)],
    "show_config": [HttpRequest("/config", _NODE)],
    "show_metrics": [
        HttpRequest("/metrics", [*_NODE, ("describe", "topic", "")]),
        HttpRequest("/metrics?topics=none", [*_NODE, ("describe", "topic", "")]),
    ],
    "show_checkup": [HttpRequest("/checkup", _NODE)],
    "show_incidents": [HttpRequest("/incidents", _NODE)],
    "show_activity": [HttpRequest("/activity", _NODE)],
    "list_activity": [HttpRequest("/activity/topics", [("describe", "topic", "")])],
    "show_topic_activity": [HttpRequest("/activity/topics/events", _DESCRIBE)],
    "list_users": [HttpRequest("/access/users", [("describe", "user", "")], for_oneself=True)],
    "add_user": [
        HttpRequest("/access/users", _ANN, {"name": "ann"}),
        HttpRequest("/access/users", _ANN, {"name": "ann", "password": "pencil-box"}),
        HttpRequest("/access/users", _ALL_USERS, {"name": "ann", "roles": ["admin"]}),
    ],
    "show_user": [HttpRequest("/access/users/ann", [("describe", "user", "")], for_oneself=True)],
    "change_user": [
        HttpRequest("/access/users/ann", _ANN, {"enabled": False}),
        HttpRequest("/access/users/ann", _ALL_USERS, {"groups": ["ops"]}),
    ],
    "remove_user": [HttpRequest("/access/users/ann", _ANN)],
    "list_tokens": [HttpRequest("/access/tokens", [("describe", "user", "")], for_oneself=True)],
    "create_token": [HttpRequest("/access/tokens", _ANN, {"user": "ann"})],
    "revoke_token": [HttpRequest("/access/tokens/0123456789ab", _ALL_USERS)],
    "list_rules": [HttpRequest("/access/rules", _USERS)],
    "add_rule": [HttpRequest("/access/rules", _ALL_USERS, _RULE)],
    "remove_rule": [HttpRequest("/access/rules/999", _ALL_USERS)],
    "list_roles": [HttpRequest("/access/roles", _USERS)],
    "set_role": [HttpRequest("/access/roles/reader", _ALL_USERS, {"members": ["ann"]})],
    "list_quotas": [HttpRequest("/access/quotas", _USERS)],
    "show_quota": [HttpRequest("/access/quotas/ann", _USERS)],
    "set_quota": [HttpRequest("/access/quotas/ann", _ALL_USERS, {"requests": 1000})],
    "remove_quota": [HttpRequest("/access/quotas/ann", _ALL_USERS)],
    "explain_access": [HttpRequest("/access/explain?user=ann&right=read", _USERS)],
    "show_caller": [HttpRequest("/access/whoami", [])],
    "begin_session": [HttpRequest("/access/session", [], {})],
    "end_session": [HttpRequest("/access/session", [])],
    "openapi": [HttpRequest("/openapi.json", [])],
    "docs": [HttpRequest("/docs", [])],
    "show_console": [HttpRequest("/", [])],
    "show_console_file": [HttpRequest("/console/main.js", [])],
    "show_console_folder_file": [HttpRequest("/console/page/dom.js", [])],
}
"""By the id of the operation. One that is new must be here. Changes are those of the topic `events`."""
