"""Where users, tokens and rules are changed: on a node, or in a data directory that no node has open.

Whoever may write to the directory may do everything there. Where a node runs on it, its Unix socket in the directory is
asked instead, and knows the user of the system who runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from logboom.cli.connection import ask, ask_at
from logboom.errors import ConfigError, ConnectionLost, DirectoryInUse, DirectoryUnusable

if TYPE_CHECKING:
    from logboom.broker.api import AccessCalls
    from logboom.broker.caller import Caller

T = TypeVar("T")
ALONE, WITH_GROUP = 0o077, 0o027
AS_MANY = (
    *("cursors", "stages", "staged_bytes", "stage_idle_ms", "publish_keys", "access_entries"),
    *("groups", "group_idle_ms"),
)
"""Limits of the node's configuration, which nobody has named here: nothing that it keeps goes because of that."""
KEPT_BYTES, KEPT_DAYS = 2**40, 36_500
"""Of the audit trail, until the node starts and says how much it is."""


def administer(
    server: str | None, data: Path | None, question: Callable[[AccessCalls, Caller], Awaitable[T]], create: bool = False
) -> T:
    """The answer; errors are raised here. With `create` the directory need not be there yet."""
    from logboom.access.principal import OPERATOR
    from logboom.broker.caller import Caller

    caller = Caller(OPERATOR, by="system")
    if data is None:
        return ask(server, lambda broker: question(broker, caller))
    if server is not None:
        raise ConfigError("--data", "name a directory or a node, not both")
    directory = os.path.abspath(data)
    lost: ConnectionLost | None = None
    for _ in range(2):
        path = _socket_in(directory)
        if path is not None:
            from logboom.client.link.profile import Profile

            try:
                return ask_at(Profile(servers=f"unix:{path}"), lambda broker: question(broker, caller))
            except ConnectionLost as error:
                lost = error  # perhaps left behind by a node that was killed
        try:
            return asyncio.run(_ask_offline(directory, lambda broker: question(broker, caller), create))
        except DirectoryInUse:
            continue  # a node may just have been started
    if lost is not None:
        raise lost
    raise DirectoryInUse(
        f"a node runs on {directory}, and has no Unix socket there: name its socket or its address with --server, or "
        "stop it"
    )


def _socket_in(directory: str) -> str | None:
    from logboom.server.listeners import default_socket

    path = default_socket(directory)
    try:
        return path if stat.S_ISSOCK(os.stat(path).st_mode) else None
    except OSError:
        return None


def _mask_of(directory: str) -> int:
    """What is written is the node's user's, and as closed to others as the directory is. Raises DirectoryUnusable."""
    try:
        found = os.stat(directory)
    except FileNotFoundError:
        return ALONE
    if found.st_uid != os.geteuid():
        import pwd

        with contextlib.suppress(KeyError):
            name = pwd.getpwuid(found.st_uid).pw_name
            raise DirectoryUnusable(f"{directory} is {name}'s: run this as {name}, as the node does (sudo -u {name})")
        raise DirectoryUnusable(f"{directory} is the user's with number {found.st_uid}: run this as the node does")
    is_shared = found.st_mode & stat.S_IRGRP and not found.st_mode & stat.S_IROTH
    return WITH_GROUP if is_shared else ALONE


async def _ask_offline(directory: str, question: Callable[[AccessCalls], Awaitable[T]], create: bool) -> T:
    import msgspec

    from logboom.broker.access.audit_trail import AuditSettings
    from logboom.broker.config import BrokerConfig
    from logboom.broker.limits import RANGES, Limits
    from logboom.broker.local import LocalBroker
    from logboom.server.node import check_directory

    if not create and not os.path.exists(os.path.join(directory, "node.json")):
        raise DirectoryUnusable(f"{directory} is no data directory: name the one of a node")
    check_directory(directory)
    mask = os.umask(_mask_of(directory))
    limits = msgspec.structs.replace(Limits(), **{name: RANGES[name][1] for name in AS_MANY})
    try:
        broker = await LocalBroker.open(
            directory, BrokerConfig(limits, audit=AuditSettings(True, KEPT_BYTES, KEPT_DAYS))
        )
        try:
            return await question(broker)
        finally:
            await broker.close()
    finally:
        os.umask(mask)
