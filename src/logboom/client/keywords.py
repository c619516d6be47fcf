"""Options by the names that other clients have for them: who writes one of those is told what it is called here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Final, ParamSpec

P = ParamSpec("P")

_ELSEWHERE: Final = {
    "offset": "seqno",
    "offsets": "seqno",
    "start": "seqno",
    "auto_offset_reset": "at",
    "group": "cursor",
    "group_id": "cursor",
    "bootstrap_servers": "servers",
    "brokers": "servers",
    "server": "servers",
    "host": "servers",
    "address": "servers",
    "url": "servers",
    "topics": "topic",
    "path": "directory",
    "compression": "codec",
    "compression_type": "codec",
    "batch_size": "batch_bytes",
    "buffer_memory": "buffer_bytes",
    "enable_idempotence": "idempotent",
    "tags": "tags_any",
    "timeout": "connect_timeout_s",
    "serializer": "value",
    "value_serializer": "value",
    "value_deserializer": "value",
}


def explained(*more: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """For a constructor; `more` are options that its `**options` takes."""

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        parameters = inspect.signature(init).parameters.values()
        known = [found.name for found in parameters if found.kind is not found.VAR_KEYWORD][1:]
        known += more

        @wraps(init)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            for name in kwargs:
                if name not in known:
                    raise TypeError(f"{type(args[0]).__name__} has no option {name!r}: {_hint(name, known)}") from None
            init(*args, **kwargs)

        return checked

    return decorate


def _hint(name: str, known: Iterable[str]) -> str:
    """
    >>> _hint("offset", ["topic", "seqno"]), _hint("linger", ["linger_ms"]), _hint("x", ["topic", "seqno"])
    ('it is called seqno', 'it is called linger_ms', 'there are topic, seqno')
    """
    names = list(known)
    near = _ELSEWHERE.get(name)
    if near not in names:
        near = next(iter(get_close_matches(name, names, 1)), None)
    return f"there are {', '.join(names)}" if near is None else f"it is called {near}"
