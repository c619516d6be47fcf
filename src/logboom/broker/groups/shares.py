"""Which member of a group is to have which log: evenly, and with as few moves as that takes.

A log goes only to members that want it. Members who want the same logs have as many of them as each other, or one more.
A log stays where it is unless its holder has two more than another who wants it. Nobody has more than so many: what is
left then waits for more members.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple


class LogId(NamedTuple):
    """A log of a topic with this name now; a topic made again has other logs."""

    topic: str
    topic_id: str
    partition: int


Wanted = Mapping[LogId, frozenset[str]]
"""Every log, with the members that may have it. Where they are many logs they are few sets, each there once."""


def share_out(wanted: Wanted, holders: Mapping[LogId, str], most: int) -> dict[LogId, str]:
    """The member for each log that anybody wants, `most` for one at most. `holders` says who has it."""
    loads: dict[str, int] = {member: 0 for members in set(wanted.values()) for member in members}
    shared: dict[LogId, str] = {}
    alike: dict[frozenset[str], list[LogId]] = defaultdict(list)
    """Logs that the same members want."""
    for log in sorted(wanted):
        members = wanted[log]
        if not members:
            continue
        alike[members].append(log)
        holder = holders.get(log)
        if holder is not None and holder in members:
            shared[log] = holder
            loads[holder] += 1
    for members, logs in alike.items():
        _deal(members, [log for log in logs if log not in shared], shared, loads)
    while sum(_even_out(members, logs, shared, loads) for members, logs in alike.items()):
        pass  # each move brings two loads closer, so this ends
    return shared if max(loads.values(), default=0) <= most else _cut(shared, holders, most)


def _cut(shared: dict[LogId, str], holders: Mapping[LogId, str], most: int) -> dict[LogId, str]:
    """Everybody keeps the first of what he has, and of the rest as much as he may have."""
    loads, cut = Counter[str](), dict[LogId, str]()
    for log, member in sorted(shared.items(), key=lambda each: (holders.get(each[0]) != each[1], each[0])):
        if loads[member] < most:
            cut[log] = member
            loads[member] += 1
    return cut


def _deal(members: frozenset[str], logs: list[LogId], shared: dict[LogId, str], loads: dict[str, int]) -> None:
    """Each to whoever has the fewest."""
    least = [(loads[member], member) for member in members]
    heapq.heapify(least)
    for log in logs:
        load, member = least[0]
        shared[log] = member
        loads[member] = load + 1
        heapq.heapreplace(least, (load + 1, member))


def _even_out(members: frozenset[str], logs: list[LogId], shared: dict[LogId, str], loads: dict[str, int]) -> bool:
    """Move logs from those who have most to those who have fewest. Returns whether any was moved."""
    if len(members) < 2:
        return False
    theirs: dict[str, list[LogId]] = {member: [] for member in members}
    for log in logs:
        theirs[shared[log]].append(log)
    was_moved = False
    while True:
        most = max((member for member in members if theirs[member]), key=lambda member: (loads[member], member))
        fewest = min(members, key=lambda member: (loads[member], member))
        if loads[most] - loads[fewest] < 2:
            return was_moved
        log = theirs[most].pop()
        theirs[fewest].append(log)
        shared[log] = fewest
        loads[most] -= 1
        loads[fewest] += 1
        was_moved = True
