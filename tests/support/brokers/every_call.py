"""Every call of a broker, with arguments, and what it asks of the rules first."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Protocol

from logboom.access.quota import Quota
from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import (
    ActivityRequest,
    Answer,
    Broker,
    Feeds,
    GroupJoin,
    GroupMove,
    Part,
    PublishKey,
    ReadRequest,
    Settings,
    Start,
    TakeJobs,
)
from logboom.broker.caller import Caller
from logboom.broker.local import LocalBroker
from logboom.errors import LogboomError

ASKED: dict[str, list[tuple[str, str, str]]] = {
    "create_topic": [("create", "topic", "new")],
    "configure_topic": [("configure", "topic", "events")],
    "describe_topic": [("describe", "topic", "events")],
    "list_topics": [("describe", "topic", "")],
    "delete_topic": [("delete", "topic", "events")],
    "trim": [("delete", "topic", "events")],
    "append": [("write", "topic", "events")],
    "append_then": [("write", "topic", "events")],
    "read": [("read", "topic", "events"), ("read", "cursor", "billing")],
    "subscribe": [("read", "topic", "events"), ("read", "cursor", "billing")],
    "locate": [("read", "topic", "events"), ("read", "cursor", "billing")],
    "commit_cursor": [("write", "cursor", "billing"), ("read", "topic", "events")],
    "fetch_cursor": [("read", "cursor", "billing"), ("read", "topic", "events")],
    "list_cursors": [("describe", "cursor", "")],
    "delete_cursor": [("delete", "cursor", "billing")],
    "join_group": [("read", "group", "billing"), ("read", "topic", "events")],
    "beat_group": [("read", "group", "billing")],
    "leave_group": [("read", "group", "billing")],
    "commit_group": [("read", "group", "billing"), ("read", "topic", "events")],
    "list_groups": [("describe", "group", "")],
    "describe_group": [("describe", "group", "billing")],
    "reset_group": [("write", "group", "billing"), ("read", "topic", "events")],
    "delete_group": [("delete", "group", "billing")],
    "take_jobs": [("read", "group", "billing")],
    "settle_jobs": [("read", "group", "billing")],
    "open_stage": [("create", "transaction", "")],
    "stage": [("write", "topic", "events")],
    "publish": [("write", "transaction", "orders")],
    "publish_batches": [("write", "transaction", "orders"), ("write", "topic", "events")],
    "discard": [("delete", "transaction", "s1"), ("delete", "transaction", "s2")],
    "list_stages": [("describe", "transaction", "")],
    "list_keys": [("describe", "transaction", "")],
    "forget_key": [("delete", "transaction", "orders")],
    "stats": [("describe", "node", "")],
    "measures": [("describe", "topic", "")],
    "history": [("describe", "node", "")],
    "activity": [("describe", "topic", "")],
    "topic_history": [("describe", "topic", "events")],
    "segments": [("describe", "topic", "events")],
    "incidents": [("describe", "node", "")],
    "refuse": [("manage", "node", "")],
    "accept": [("manage", "node", "")],
    "promote": [("manage", "node", "")],
    "add_user": [("manage", "user", "events")],
    "change_user": [("manage", "user", "events")],
    "remove_user": [("manage", "user", "events")],
    "list_users": [("describe", "user", "")],
    "create_token": [("manage", "user", "ann")],
    "revoke_token": [("manage", "user", "*")],
    "list_tokens": [("describe", "user", "")],
    "add_rule": [("manage", "user", "*")],
    "remove_rule": [("manage", "user", "*")],
    "list_rules": [("describe", "user", "*")],
    "set_role": [("manage", "user", "*")],
    "list_roles": [("describe", "user", "*")],
    "set_quota": [("manage", "user", "*")],
    "remove_quota": [("manage", "user", "*")],
    "list_quotas": [("describe", "user", "*")],
    "show_quota": [("describe", "user", "*")],
    "explain_access": [("describe", "user", "*")],
    "whoami": [],
    "feed": [("read", "topic", "events")],
    "deleted": [("describe", "topic", "")],
    "access": [("manage", "user", "*")],
    "groups": [("describe", "group", "*")],
}
"""What each call asks for first, with the arguments below. A call that is new must be here."""
NAMES = {"create_topic": "new", "forget_key": "orders"}


REQUESTS: dict[str, object] = {"activity": ActivityRequest(), "take_jobs": TakeJobs("billing", "m" * 16)}


def calls() -> Iterator[str]:
    for protocol in (*Broker.__mro__, Feeds):
        if protocol not in (Protocol, object):
            yield from (name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_")


def arguments(call: str, answers: list[Answer]) -> dict[str, Any]:
    """For every parameter that has no default, by its name. Who is called back is `answers`."""
    known: dict[str, Any] = {
        "name": NAMES.get(call, "events"),
        "topic": "events",
        "topic_ids": ["0" * 32],
        "settings": Settings(),
        "partition": 0,
        "seqno": 1,
        "index": 1,
        "acks": None,
        "then": answers.extend,
        "parts": [Part("events", [build([b"x"])])],
        "request": REQUESTS.get(call, ReadRequest("events", Start(cursor="billing"))),
        "settlements": [],
        "cursor": "billing",
        "bookmark": "",
        "stage": "s1",
        "stages": ["s1", "s2"] if call == "discard" else [],
        "key": PublishKey("orders", 1),
        "user": "ann",
        "token_id": "t1",
        "version": "",
        "rule": Rule("allow", "ann", ("read",), "topic"),
        "number": 1,
        "role": "reader",
        "members": ["ann"],
        "who": "ann",
        "quota": Quota(requests=1000),
        "group": "billing",
        "join": GroupJoin("billing", "m" * 16, "events"),
        "member": "m" * 16,
        "generation": 1,
        "held": [],
        "moves": [GroupMove("events", 0, "", 1)],
        "topics": "events",
        "start": Start(),
        "right": "read",
        "kind": "topic",
    }
    parameters = list(inspect.signature(getattr(LocalBroker, call)).parameters.values())[1:]
    return {each.name: known[each.name] for each in parameters if each.default is inspect.Parameter.empty}


async def ask(broker: Any, call: str, caller: Caller) -> list[LogboomError]:
    """What a call is refused with, alone or as the answer of each of its batches."""
    answers: list[Answer] = []
    try:
        answer = getattr(broker, call)(**arguments(call, answers), caller=caller)
        if inspect.isawaitable(answer):
            answer = await answer
        if call == "subscribe":
            await answer.next()  # over a wire it is refused only here
            await answer.close()
    except LogboomError as error:
        return [error]
    if isinstance(answer, list):
        answers = answer
    return [each for each in answers if isinstance(each, LogboomError)]
