"""Names of users, groups and roles, and the few that mean something by themselves."""

from __future__ import annotations

import re
from typing import Final

from logboom.errors import InvalidPrincipal

ANONYMOUS: Final = "anonymous"
"""The principal of those who did not say who they are."""
NODE: Final = "_node"
"""The node itself, whom no rule restricts. No user can have this name."""
OPERATOR: Final = "_operator"
"""Whoever runs the node: the same user of the system, over the Unix socket. No rule restricts him either."""
EVERYBODY: Final = "*"
"""In rules: all who have signed in."""
GROUP: Final = "group:"
ROLE: Final = "role:"
FORM: Final = r"(?![Aa][Nn][Oo][Nn][Yy][Mm][Oo][Uu][Ss]$|[Gg][Rr][Oo][Uu][Pp]:|[Rr][Oo][Ll][Ee]:)" + (
    r"[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,127}"
)
"""Of names, as a regular expression that JSON schema knows too: none of those that mean something by themselves."""
_NAME: Final = re.compile(FORM, re.ASCII)


def check_principal(name: str) -> str:
    """The name, where a user, group or role can have it. Raises InvalidPrincipal.

    Who were called `role:admin` would be one of those that rules mean by it.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidPrincipal(name)
    return name
