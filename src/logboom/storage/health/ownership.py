"""Who may read and write a data directory: the server runs as its owner, and must be able to use all of it.

Findings are one for each thing that is wrong, not one for each file. Changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from logboom.storage.health.findings import Finding
from logboom.storage.health.surroundings import FileAccess, Surroundings, owner_name, user_name


def judge_ownership(surroundings: Surroundings) -> Iterator[Finding]:
    if not surroundings.holdings:
        return
    root = surroundings.holdings[0]
    # lost+found is root's on every volume.
    holdings = [holding for holding in surroundings.holdings if holding.path != f"{root.path}/lost+found"]
    strange = [holding for holding in holdings if holding.uid != root.uid]
    shut = [holding for holding in holdings if not all(holding.allows(root.uid, root.gid))]
    yield from _judge_strange(root, strange, [holding for holding in strange if holding in shut])
    own = [holding for holding in shut if holding.uid == root.uid]
    if own:
        reason = f"its mode keeps its owner, {user_name(root.uid)}, from reading or writing it{_others(own)}"
        advice = f"chmod -R u+rwX {shlex.quote(root.path)}"
        yield _finding("warning", own[0], reason, advice)
    if surroundings.uid not in (0, root.uid):
        yield from _judge_visitor(surroundings.uid, root, holdings)


def _judge_strange(root: FileAccess, strange: Sequence[FileAccess], shut: Sequence[FileAccess]) -> Iterator[Finding]:
    owner = user_name(root.uid)
    chown = f"chown -R {owner_name(root.uid, root.gid)} {shlex.quote(root.path)}"
    if shut:
        reason = (
            f"it belongs to {user_name(shut[0].uid)}, the data directory to {owner}, who cannot write it"
            f"{_others(shut)}: a server that runs as {owner} fails"
        )
        yield _finding("warning", shut[0], reason, chown)
    elif strange:
        reason = f"it belongs to {user_name(strange[0].uid)}, the data directory to {owner}{_others(strange)}"
        advice = (
            f"nothing, if the server runs as {owner}; else give all files to one user: "
            f"chown -R USER {shlex.quote(root.path)}"
        )
        yield _finding("info", strange[0], reason, advice)


def _judge_visitor(uid: int, root: FileAccess, holdings: Sequence[FileAccess]) -> Iterator[Finding]:
    """Somebody else than the owner asks."""
    visitor, owner = user_name(uid), user_name(root.uid)
    unread = [holding for holding in holdings if not holding.readable]
    if unread:
        reason = f"{visitor} cannot read it{_others(unread)}: its content was not checked"
        yield _finding(
            "warning",
            unread[0],
            reason,
            f"run this as {owner}: sudo -u {owner} logboom doctor {shlex.quote(root.path)}",
        )
    elif not all(holding.writable for holding in holdings):
        reason = f"it belongs to {owner}, and {visitor} cannot write all of it"
        yield _finding("info", root, reason, f"nothing, if the server runs as {owner}; {visitor} can only read")


def _others(holdings: Sequence[FileAccess]) -> str:
    return f" ({len(holdings) - 1:,} more like it)" if len(holdings) > 1 else ""


def _finding(severity: Literal["warning", "info"], holding: FileAccess, reason: str, advice: str) -> Finding:
    return Finding(kind="permissions", severity=severity, file=holding.path, reason=reason, advice=advice)
