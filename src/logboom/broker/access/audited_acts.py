"""Which calls of a broker are acts that its audit trail keeps, and how they get there: one decorator, one table.

The trail is told after the call, with how it ended. Passwords, and what is made of them, are in no column here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from logboom.broker.access.audit_trail import AuditTrail
from logboom.broker.api.access import NewToken, RuleInfo
from logboom.broker.caller import EVERYBODY, Caller


class AuditedAct(NamedTuple):
    act: str
    object: str = ""
    """Which argument says what it is done to."""
    detail: tuple[str, ...] = ()
    """Which other arguments are recorded, where they were given."""


ACTS: Final = {
    "create_topic": AuditedAct("create topic", "name", ("partitions", "settings")),
    "configure_topic": AuditedAct("configure topic", "name", ("settings",)),
    "delete_topic": AuditedAct("delete topic", "name", ("topic_id",)),
    "trim": AuditedAct("trim topic", "topic", ("partition", "seqno")),
    "delete_cursor": AuditedAct("delete cursor", "cursor", ("topic",)),
    "reset_group": AuditedAct("reset group", "group", ("topics", "start", "dry_run")),
    "delete_group": AuditedAct("delete group", "group"),
    "forget_key": AuditedAct("forget transaction", "name"),
    "refuse": AuditedAct("refuse writes", "topic", ("reason",)),
    "accept": AuditedAct("accept writes", "topic"),
    "promote": AuditedAct("promote node"),
    "add_user": AuditedAct("add user", "name", ("groups", "roles")),
    "change_user": AuditedAct("change user", "name", ("groups", "roles", "enabled")),
    "remove_user": AuditedAct("remove user", "name"),
    "create_token": AuditedAct("create token", "user", ("lasts_ms", "note", "rights", "topics")),
    "revoke_token": AuditedAct("revoke token", "token_id"),
    "add_rule": AuditedAct("add rule", "rule"),
    "remove_rule": AuditedAct("remove rule", "number"),
    "set_role": AuditedAct("set role", "role", ("members",)),
    "set_quota": AuditedAct("set quota", "who", ("quota",)),
    "remove_quota": AuditedAct("remove quota", "who"),
}
NEW_PASSWORD: Final = "credentials"
"""Of this argument only that it was given is recorded."""


class Audited(Protocol):
    audit: AuditTrail


Broker = TypeVar("Broker", bound=type[Any])
Call = Callable[..., Awaitable[Any]]


def audited(broker: Broker) -> Broker:
    """A class whose calls in ACTS are recorded in its `audit`."""
    for name, act in ACTS.items():
        setattr(broker, name, _recorded(getattr(broker, name), act))
    return broker


def _recorded(call: Call, act: AuditedAct) -> Call:
    signature = inspect.signature(call)

    @functools.wraps(call)
    async def recorded(self: Audited, *arguments: Any, caller: Caller = EVERYBODY, **named: Any) -> Any:
        try:
            result = await call(self, *arguments, caller=caller, **named)
        except BaseException as error:
            _note(self.audit, caller, act, signature, (self, *arguments), named, None, error)
            raise
        _note(self.audit, caller, act, signature, (self, *arguments), named, result, None)
        return result

    return recorded


def _note(
    audit: AuditTrail,
    caller: Caller,
    act: AuditedAct,
    signature: inspect.Signature,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    result: Any,
    error: BaseException | None,
) -> None:
    if not audit.is_on or isinstance(error, TypeError):
        return
    given = signature.bind(*arguments, **named).arguments
    detail = {name: given[name] for name in act.detail if given.get(name) not in (None, (), [], "")}
    if given.get(NEW_PASSWORD):
        detail["password"] = "set"
    if isinstance(result, NewToken):
        detail["id"] = result.info.id
    if isinstance(result, RuleInfo):
        detail["number"] = result.number
    name = given.get(act.object)
    audit.note_act(caller, act.act, "" if name is None else str(name), error, detail)
