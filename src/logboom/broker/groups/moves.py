"""How a group comes from one state to the next: who joins, who goes, what was given back, which logs are there.

Pure functions of an entry; nothing is changed in place, nothing waits. Invariants:

- a log has one holder at a time, and each holder it has had has another generation;
- a log leaves a holder who is a member only when it was asked for in a generation that the member knows, and is not
  held any more; or when it was taken, which whoever calls decides;
- a log that was asked for goes through other hands, or at least through another generation: it is never left after all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from logboom.broker.groups.group_entry import GrantEntry, GroupEntry, MemberEntry
from logboom.broker.groups.shares import LogId, Wanted, share_out

TAKE_OVER: Final = 1_000_000
"""More generations than a node gives out in the time that its copy may lie behind."""


def with_member(entry: GroupEntry, member: str, about: MemberEntry) -> GroupEntry:
    """Who joins, or says anew what it wants; in the place of the one with the same instance, if there is one."""
    members, grants = dict(entry.members), entry.grants
    before = members.get(member)
    about = replace(about, changed=entry.generation if before is None else before.changed)
    generation = entry.generation
    predecessor = _with_instance(entry, about.instance, member)
    if predecessor:
        del members[predecessor]
        generation += 1
        about = replace(about, changed=generation)
        grants = tuple(
            replace(each, member=member, generation=generation, asked=0, heir="")
            if each.member == predecessor
            else each
            for each in grants
        )
    members[member] = about
    return replace(entry, members=members, grants=grants, generation=generation, emptied=0)


def _with_instance(entry: GroupEntry, instance: str, member: str) -> str:
    if not instance:
        return ""
    return next((name for name, each in entry.members.items() if each.instance == instance and name != member), "")


def taken_over(entry: GroupEntry) -> GroupEntry:
    """As a node has it that goes on in the place of another one: that one has used none of these generations."""
    generation = entry.generation + TAKE_OVER
    members = {name: replace(about, changed=generation) for name, about in entry.members.items()}
    grants = tuple(replace(grant, generation=generation, asked=0, heir="") for grant in entry.grants)
    return replace(entry, generation=generation, members=members, grants=grants)


def without_members(entry: GroupEntry, gone: Collection[str], now_us: int) -> GroupEntry:
    """What they held is nobody's."""
    members = {name: about for name, about in entry.members.items() if name not in gone}
    if len(members) == len(entry.members):
        return entry
    grants = tuple(grant for grant in entry.grants if grant.member not in gone)
    return replace(entry, members=members, grants=grants, emptied=0 if members else now_us)


def settled(entry: GroupEntry, wanted: Wanted, given_back: Collection[LogId], most: int) -> GroupEntry:
    """The next state, where these are the logs there are, with the members that may have each, and those were given
    back, or are taken. Nobody holds more than `most`. The same entry where nothing changes.
    """
    generation = entry.generation + 1
    kept = [grant for grant in entry.grants if _stays(grant, entry, wanted, given_back)]
    goal = share_out(wanted, {grant.log: grant.heir or grant.member for grant in kept}, most)
    staying = {grant.log for grant in kept}
    touched = {grant.member for grant in entry.grants if grant.log not in staying}
    grants: list[GrantEntry] = []
    for grant in kept:
        heir = goal.get(grant.log, "")
        if grant.asked:
            grants.append(grant if grant.heir == heir else replace(grant, heir=heir))
        elif heir == grant.member:
            grants.append(grant)
        else:
            grants.append(replace(grant, asked=generation, heir=heir))
            touched.add(grant.member)
    for log, member in goal.items():
        if log not in staying:
            grants.append(GrantEntry(*log, member, generation))
            touched.add(member)
    if tuple(grants) == entry.grants:
        return entry
    members = {
        name: replace(about, changed=generation) if name in touched else about for name, about in entry.members.items()
    }
    return replace(entry, generation=generation, members=members, grants=tuple(grants))


def _stays(grant: GrantEntry, entry: GroupEntry, wanted: Wanted, given_back: Collection[LogId]) -> bool:
    return grant.log in wanted and grant.log not in given_back and grant.member in entry.members
