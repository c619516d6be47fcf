"""Every kind of caller, and what each is told of a call that asks for certain rights: the same on every front-end.

anonymous   nobody has said who he is              token-right  an administrator's token for another right
nothing     a user without any rule                token-topics an administrator's token for other topics
enough      one who has exactly what is asked for  admin        an administrator
lacks-N     one who has all but the Nth of it      removed      one who had enough, and was removed since
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logboom.access.credential import Credential
from logboom.access.rule import RIGHTS, Rule
from logboom.batch import build
from logboom.broker.api import Part
from logboom.broker.caller import ITSELF
from logboom.broker.local import LocalBroker
from logboom.errors import LogboomError, NotAllowed, SignInFailed, SignInRequired, TopicNotFound

Ask = tuple[str, str, str]
"""A right, a kind, a name."""
PASSWORD: Final = "pencil-box"
TOPIC: Final = "events"
HIDING: Final = ("nothing", "token-topics", "removed")
"""Those who may not know of the topic."""
REFUSALS: Final = (NotAllowed, SignInRequired, SignInFailed)
_FAR: Final = ("user", "node", "pipeline")


class Visitor(NamedTuple):
    kind: str
    user: str = ""
    token: str = ""


async def invite(broker: LocalBroker, asked: Sequence[Ask]) -> dict[str, Visitor]:
    """A topic with two records, and all who may ask for something of it."""
    await broker.create_topic(TOPIC, caller=ITSELF)
    await broker.append([Part(TOPIC, [build([b"a", b"b"])])], caller=ITSELF)
    credential = Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)
    lacking = [f"lacks-{number}" for number in range(len(asked))]
    for name in ("nothing", "enough", *lacking, "owner", "admin", "removed"):
        roles = ["admin"] if name in ("owner", "admin") else []
        await broker.add_user(name, [credential], roles=roles, caller=ITSELF)
    for right, kind, name in dict.fromkeys(asked):
        for who in ("enough", "removed"):
            await broker.add_rule(Rule("allow", who, (right,), kind, name or "*"), caller=ITSELF)
    for who, (right, kind, name) in zip(lacking, asked, strict=True):
        for objects in ("*", "_*"):
            await broker.add_rule(Rule("allow", who, ("all",), "all", objects), caller=ITSELF)
        await broker.add_rule(Rule("deny", who, (right,), kind, name or "*"), caller=ITSELF)
    other = next(right for right in RIGHTS if right not in {each[0] for each in asked} | {"describe"})
    by_right = await broker.create_token("owner", rights=[other], caller=ITSELF)
    by_topics = await broker.create_token("owner", topics=["other*"], caller=ITSELF)
    found = [Visitor(name, name) for name in ("nothing", "enough", *lacking, "removed")]
    found += [Visitor("token-right", "owner", by_right.token), Visitor("token-topics", "owner", by_topics.token)]
    return {each.kind: each for each in (Visitor("anonymous"), *found, Visitor("admin", "admin"))}


def refusal(visitor: Visitor, asked: Sequence[Ask]) -> LogboomError | None:
    """What the first right that is missing is refused with; None where none is."""
    for number, (right, kind, name) in enumerate(asked):
        if visitor.kind == "anonymous":
            return SignInRequired()
        if not _lacks(visitor.kind, number, right, kind, name):
            continue
        is_hidden = visitor.kind in HIDING or right == "describe"
        if kind == "topic" and name and right != "create" and is_hidden:
            return TopicNotFound(name, "this node")
        return NotAllowed(visitor.user, right, kind, name)
    return None


def _lacks(who: str, number: int, right: str, kind: str, name: str) -> bool:
    if who == "token-right":
        return right != "describe"
    if who == "token-topics":
        return kind in _FAR or (kind == "topic" and bool(name))
    return who in ("nothing", "removed", f"lacks-{number}")
