"""One quota: how much a user, or a group together, may take of a node.

    bob              his own                    group:analysts   one for all its members together
    *                one for each user who has none of his own   anonymous   one for all who have not signed in

Rates are per second: whoever takes more waits. Counts are of what there is at one time: one too many is refused. What
is None is not limited; a quota without any limit is for users whom `*` is not to bind.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.access.principal import ANONYMOUS, EVERYBODY, GROUP, ROLE, check_principal
from logboom.errors import InvalidQuota

MOST: Final = 2**50
INTO: Final = ("bytes_in", "records_in", "requests")
OUT_OF: Final = ("bytes_out", "records_out")
RATES: Final = ("bytes_in", "bytes_out", "records_in", "records_out", "requests")
COUNTS: Final = ("connections", "topics")


class Quota(msgspec.Struct, frozen=True, omit_defaults=True):
    bytes_in: int | None = None
    """Of batches that are appended or staged, as they come, each second."""
    bytes_out: int | None = None
    records_in: int | None = None
    records_out: int | None = None
    requests: int | None = None
    """Frames, commands or HTTP requests, each second."""
    connections: int | None = None
    topics: int | None = None
    """That he has made, and that are there."""

    def check(self) -> Quota:
        """Itself, where it means something. Raises InvalidQuota."""
        for name in (*RATES, *COUNTS):
            value, least = getattr(self, name), 1 if name in RATES else 0
            if value is not None and not least <= value <= MOST:
                raise InvalidQuota(f"{name} is {value:,}, allowed are {least} to {MOST:,}")
        return self

    @property
    def limits(self) -> dict[str, int]:
        """What is limited, by its name."""
        found = {name: getattr(self, name) for name in (*RATES, *COUNTS)}
        return {name: value for name, value in found.items() if value is not None}


def check_bound(who: str) -> None:
    """Whether there can be a quota for this one. Raises InvalidQuota, InvalidPrincipal."""
    if who.startswith(ROLE):
        raise InvalidQuota("a quota is for a user, group:NAME, '*' or anonymous: a role has none")
    if who not in (EVERYBODY, ANONYMOUS):
        check_principal(who.removeprefix(GROUP))
