"""Names that a shell completes: topics, cursors and groups as the node has them, settings as they are.

Whoever presses TAB does not wait for a node that is not there, and reads no errors: then there is nothing to complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from logboom.client.remote import RemoteBroker

PATIENCE_S: Final = 1.0


def complete_topics(context: CompletionContext) -> list[str]:
    begun = context.incomplete
    return _ask(context, lambda broker: broker.list_topics(begun, begun.startswith("_")), "name")


def complete_cursors(context: CompletionContext) -> list[str]:
    return _ask(context, lambda broker: broker.list_cursors(None, context.incomplete), "cursor")


def complete_groups(context: CompletionContext) -> list[str]:
    return _ask(context, lambda broker: broker.list_groups(context.incomplete), "group")


def complete_topic_settings(_: CompletionContext) -> list[str]:
    """As `topic set` and `topic create --set` take them, up to the value."""
    from logboom.cli.setting import KEYS, SHORT

    return [f"{name}=" for name in sorted({*KEYS, *SHORT} - set(SHORT.values()))]


def complete_node_settings(_: CompletionContext) -> list[str]:
    """As `serve --set` takes them, up to the value."""
    from logboom.server.keys import KEYS

    return [f"{name}=" for name in KEYS]


def complete_users(context: CompletionContext) -> list[str]:
    begun = context.incomplete
    return [name for name in _ask(context, lambda broker: broker.list_users(), "name") if name.startswith(begun)]


def _ask(
    context: CompletionContext, question: Callable[[RemoteBroker], Awaitable[Iterable[Any]]], field: str
) -> list[str]:
    from logboom.cli.connection import find_profile
    from logboom.client.remote import connect
    from logboom.errors import LogboomError

    given = context.get("--server")
    server = given.value if given is not None and given.provided else None
    data = context.get("--data")
    if data is not None and data.provided:
        return []

    async def talk() -> list[str]:
        async with asyncio.timeout(PATIENCE_S), connect(find_profile(server), retry=False) as broker:
            names = {getattr(found, field) for found in await question(broker)}
            return sorted(name for name in names if name.isprintable())

    try:
        return asyncio.run(talk())
    except (LogboomError, OSError, TimeoutError):
        return []
