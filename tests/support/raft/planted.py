"""Mistakes that the simulator has to find: each is a line of the core that says something else for a while.

A mistake names a function, what stands there, and what shall stand there instead; where it does not stand there any
more, the list is out of date and says so.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from logboom.raft.node import HANDLERS
from support.raft.invariants import InvariantBroken
from support.raft.simulator import Simulation


@dataclass(frozen=True, slots=True)
class PlantedBug:
    name: str
    seeds: int
    """Within how many seeds it is found, from the first one on."""
    changes: tuple[tuple[str, str, str], ...]
    """(module.Class.function, what stands there, what is planted)."""


BUGS = (
    PlantedBug(
        "a message leaves before the vote and term are on disk",
        1,
        (("core.RaftCore.send", "(self.outbox if self.hard_is_durable else self.held)", "self.outbox"),),
    ),
    PlantedBug(
        "two votes in one term",
        1,
        (("core.RaftCore.answer_vote", "is_free = self.vote", "is_free = True or self.vote"),),
    ),
    PlantedBug(
        "a vote is forgotten at a restart",
        96,
        (("core.RaftCore.__init__", "self.vote = start.hard_state.vote if", "self.vote = 0 if"),),
    ),
    PlantedBug(
        "a vote for whoever asks, however short his log is",
        1,
        (("core.RaftCore.answer_vote", "granted = may_vote and self.log", "granted = may_vote or self.log"),),
    ),
    PlantedBug(
        "logs are compared by their length and not by their last term",
        76,
        (
            ("entry_log.EntryLog.is_covered_by", "last_term > self.last_term or (", "("),
            ("entry_log.EntryLog.is_covered_by", "last_term == self.last_term and ", ""),
        ),
    ),
    PlantedBug(
        "an entry of an older term is committed by counting",
        164,
        (("leadership.Leadership._advance", "index < self._first or ", ""),),
    ),
    PlantedBug(
        "a follower acknowledges what is not synced",
        2,
        (("followership.Followership._acknowledge", "min(core.log.persisted, core.verified)", "core.verified"),),
    ),
    PlantedBug(
        "a leader counts itself before its own sync",
        2,
        (("leadership.Leadership._advance", "persisted = core.log.persisted", "persisted = core.log.last_index"),),
    ),
    PlantedBug(
        "what is committed is applied before it is synced here",
        2,
        (("node.RaftNode.ready", "commit = min(core.commit, log.persisted)", "commit = core.commit"),),
    ),
    PlantedBug(
        "an append is taken without a look at the entry before it",
        76,
        (
            (
                "followership.Followership.on_append",
                "elif log.term(prev) == append.prev_term:",
                "elif prev <= log.last_index:",
            ),
        ),
    ),
    PlantedBug(
        "a conflicting entry is kept",
        5,
        (("followership.Followership._merge", "log.term(entry.index) != entry.term", "entry.index > log.last_index"),),
    ),
    PlantedBug(
        "a heartbeat commits all that is in the log",
        5,
        (
            (
                "followership.Followership.on_heartbeat",
                "min(heartbeat.commit, core.verified)",
                "min(heartbeat.commit, core.log.last_index)",
            ),
            ("leadership.Leadership._beat", "commit = min(follower.match, core.commit)", "commit = core.commit"),
        ),
    ),
    PlantedBug(
        "a sync of entries that were cut meanwhile counts for those in their place",
        114,
        (("core.RaftCore.cut", "self.order.cut(index)", "pass"),),
    ),
    PlantedBug(
        "what was sent counts as received",
        1,
        (
            (
                "progress.FollowerProgress.sent",
                "self.next = last_index + 1",
                "self.match, self.next = last_index, last_index + 1",
            ),
        ),
    ),
    PlantedBug(
        "a refused append counts as accepted",
        1,
        (("leadership.Leadership.on_append_answer", "if answer.rejected:", "if False:"),),
    ),
    PlantedBug(
        "a joint commit needs only the new majority",
        35,
        (
            (
                "leadership.Leadership._follow_membership",
                "(membership.voters, membership.outgoing)",
                "(membership.voters,)",
            ),
        ),
    ),
    PlantedBug(
        "the final membership follows a joint one that is not committed",
        12,
        (("leadership.Leadership._settle_membership", "core.memberships[-1][0] > core.commit", "False"),),
    ),
    PlantedBug(
        "a membership change begins while another is under way",
        52,
        (("leadership.Leadership.change_members", "core.memberships[-1][0] > core.commit or ", ""),),
    ),
    PlantedBug(
        "learners count",
        9,
        (
            (
                "leadership.Leadership._follow_membership",
                "(membership.voters, membership.outgoing)",
                "((*membership.voters, *membership.learners), membership.outgoing)",
            ),
        ),
    ),
    PlantedBug(
        "a removed leader still counts itself",
        16,
        (("leadership.Leadership._follow_membership", "core.member in half)", "True)"),),
    ),
    PlantedBug(
        "a removed member still counts",
        16,
        (
            (
                "leadership.Leadership._follow_membership",
                "for half in (membership.voters, membership.outgoing)",
                "for half in ({*membership.voters, *core.memberships[0][1].voters}, ())",
            ),
            (
                "leadership.Leadership._follow_membership",
                "for member in membership.members if",
                "for member in {*membership.members, *core.memberships[0][1].members} if",
            ),
        ),
    ),
    PlantedBug(
        "a read is answered without asking whether somebody else leads",
        498,
        (
            ("leadership.Leadership._release_reads", "if turn > confirmed or index < 0:", "if index < 0:"),
            (
                "leadership.Leadership._add_read",
                "self._reads.append((self._round, index, who, context))",
                "self._reads.append((self._round, index, who, context)); self._release_reads()",
            ),
        ),
    ),
    PlantedBug(
        "a read is answered by a leader that has committed nothing yet",
        21,
        (("leadership.Leadership._add_read", "core.commit if core.commit >= self._first else -1", "core.commit"),),
    ),
    PlantedBug(
        "a read is answered before what it must see is applied",
        4,
        (
            (
                "core.RaftCore.confirm_read",
                "self.reads if index <= self.applied else self.unsettled_reads",
                "self.reads",
            ),
        ),
    ),
    PlantedBug(
        "entries that left are said not to be appended",
        2,
        (("leadership.Leadership.close", "sent = max(log.handed, first - 1)", "sent = first - 1"),),
    ),
    PlantedBug(
        "nobody is told of proposals that are lost",
        11,
        (("leadership.Leadership.close", "if first <= sent:", "if False:"),),
    ),
    PlantedBug(
        "what could not be written stays in the log",
        11,
        (("node.RaftNode.write_failed", "core.take_back(core.log.persisted + 1)", "pass"),),
    ),
    PlantedBug(
        "a probe that was lost is awaited for ever",
        5,
        (("leadership.Leadership.on_heartbeat_answer", "follower.is_paused = False", "pass"),),
    ),
    PlantedBug(
        "entries that were lost on the way are never sent again",
        20,
        (("leadership.Leadership.on_heartbeat_answer", "follower.wants_look = True", "pass"),),
    ),
    PlantedBug(
        "the sizes of a full window are never given back",
        2,
        (("progress.FollowerProgress.accepted", "self.flight_bytes -= flight.pop(0)[1]", "flight.pop(0)"),),
    ),
)


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """The core makes this mistake for as long as it lasts."""
    restored = []
    try:
        for where, stands, instead in bug.changes:
            module_name, class_name, name = where.split(".")
            module = importlib.import_module(f"logboom.raft.{module_name}")
            owner = getattr(module, class_name)
            right = vars(owner)[name]
            restored.append((owner, name, right))
            _replace(owner, name, right, _changed(module, right, stands, instead))
        yield
    finally:
        for owner, name, right in reversed(restored):
            _replace(owner, name, vars(owner)[name], right)


SOURCES: dict[Any, str] = {}
"""Of functions that were made here."""


def _changed(module: Any, function: Any, stands: str, instead: str) -> Any:
    source = SOURCES.get(function) or textwrap.dedent(inspect.getsource(function))
    assert stands in source, f"{function.__qualname__} has no {stands!r}"
    changed = source.replace(stands, instead, 1)
    names = dict(vars(module))
    exec(compile(changed, f"<planted in {function.__qualname__}>", "exec"), names)
    made = names[function.__name__]
    SOURCES[made] = changed
    return made


def _replace(owner: type, name: str, before: Any, after: Any) -> None:
    setattr(owner, name, after)
    for handlers in HANDLERS.values():
        for kind, handler in handlers.items():
            if handler is before:
                handlers[kind] = after  # type: ignore[index]


def search(bug: PlantedBug, seeds: range) -> tuple[int, Simulation, Exception] | None:
    """The first seed that finds it, with its history and what it says."""
    with planted(bug):
        for seed in seeds:
            simulation = Simulation(seed)
            try:
                simulation.run()
            except InvariantBroken as error:
                return seed, simulation, error
            except Exception as error:
                return seed, simulation, error
    return None
