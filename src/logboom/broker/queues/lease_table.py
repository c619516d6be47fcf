"""The records of one log that a queue works on: which are free, leased, resting, done; to whom, until when, how often.

    base ── done, done, leased, free, resting, … ── top ── never leased ── the end of the log

Invariants. Below `base` all is done, and `base` itself is not. From `top` on nothing was ever leased. No more than
`window` records lie between them. A record is leased to one member at a time, and only its holder settles it. What is
done is never leased again. A record that was leased as often as is allowed is given to nobody any more, but failed.

Time is given, in milliseconds, and there is no I/O. A record costs a few bytes of flat arrays, and what is done to many
that follow each other is done with a few operations on slices. `dirty` has the blocks whose records have changed.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Final, NamedTuple

FREE: Final = 0
LEASED: Final = 1
RESTING: Final = 2
DONE: Final = 3
FAILED: Final = 4
"""Tried in vain: to be put away."""
REJECTED: Final = 5
"""To be put away because its holder said so."""

BLOCK: Final = 1024
"""Records that are kept together in one entry of a queue's state."""
TRIES_MAX: Final = 100
_TRIM: Final = 4 * BLOCK
_DUE_MIN: Final = 1024
_STATES: Final = re.compile(b"|".join(b"%c+" % state for state in range(REJECTED + 1)), re.DOTALL)
_LEASED: Final = re.compile(b"%c+" % LEASED)
_LOST: Final = re.compile(b"[%c%c]+" % (FREE, RESTING))
_VAIN: Final = re.compile(b"%c+|%c+" % (FAILED, REJECTED))


class LeasedRange(NamedTuple):
    """Records that follow each other and were given to somebody for the same time."""

    seqno: int
    until: int
    tries: int
    """This one included."""


class VainRange(NamedTuple):
    """Records that are to be put away."""

    seqno: int
    until: int
    is_rejected: bool
    tries: int


class LeaseRun(NamedTuple):
    """Records that follow each other and are alike, as they are kept."""

    length: int
    state: int
    tries: int = 0
    member: str = ""
    until_ms: int = 0


class LeaseTable:
    def __init__(self, base: int, window: int, tries_max: int) -> None:
        self.base = base
        self.window = window
        self.tries_max = tries_max
        self.dirty: set[int] = set()
        """Numbers of blocks: seqnos divided by BLOCK."""
        self.in_flight: dict[str, int] = {}
        """Records that each member holds, where it holds any."""
        self.held = 0
        """By all of them."""
        self.has_vain = False
        """Whether there may be something to put away."""
        self.redelivered = self.skipped = 0
        self._origin = base
        """The seqno of the first entry of the arrays."""
        self._states = bytearray()
        self._tries = bytearray()
        self._owners = array("I")
        self._untils = array("q")
        self._free_from = 0
        """No entry before this one is free."""
        self._due: list[tuple[int, int, int]] = []
        """When leases and rests end, with their seqnos: a heap. What was settled since is passed over."""
        self._due_most = _DUE_MIN
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next_number = 1

    @property
    def top(self) -> int:
        return self._origin + len(self._states)

    @property
    def resting(self) -> int:
        return self._states.count(RESTING)

    def has_free(self, end: int) -> bool:
        """Whether there is something to take in a log that ends there."""
        self._free_from = self._find_free()
        return self._free_from < len(self._states) or min(end, self.base + self.window) > self.top

    def _find_free(self) -> int:
        found = self._states.find(FREE, self._free_from)
        return len(self._states) if found < 0 else found

    # Leases.

    def take(self, member: str, count: int, end: int, until_ms: int) -> list[LeasedRange]:
        """Up to `count` records for this member, the oldest first."""
        taken: list[LeasedRange] = []
        at = self._free_from
        while count > 0:
            found = self._states.find(FREE, at)
            at = len(self._states) if found < 0 else found
            if at == len(self._states):
                room = min(end, self.base + self.window) - self.top
                if room <= 0:
                    break
                self._grow(min(count, room))
            until, tries = self._free_run(at, at + count)
            if tries >= self.tries_max:
                self._set(at, until, FAILED)
            else:
                self._lease(member, at, until, tries + 1, until_ms)
                taken.append(LeasedRange(self._origin + at, self._origin + until, tries + 1))
                count -= until - at
            at = until
        self._free_from = at
        if taken:
            self._note_due(until_ms, taken[0].seqno, taken[-1].until)
        return taken

    def _free_run(self, at: int, most: int) -> tuple[int, int]:
        """How far entries are free and were tried as often as this one, which is; and how often that was."""
        until = _end(FREE, self._states, at, most)
        return _end(self._tries[at], self._tries, at, until), self._tries[at]

    def peek(self, count: int, end: int, since: int) -> list[LeasedRange]:
        """What `take` would give next of the records from `since` on, if it were asked."""
        found: list[LeasedRange] = []
        at = max(self._free_from, since - self._origin)
        while count > 0 and (at := self._states.find(FREE, at)) >= 0:
            until, tries = self._free_run(at, at + count)
            if tries < self.tries_max:
                found.append(LeasedRange(self._origin + at, self._origin + until, tries + 1))
                count -= until - at
            at = until
        first = max(self.top, since)
        until = min(end, self.base + self.window, first + count)
        if first < until:
            found.append(LeasedRange(first, until, 1))
        return found

    def take_these(self, member: str, ranges: list[LeasedRange], until_ms: int) -> bool:
        """Lease exactly these, if all of them are free still."""
        if not ranges or ranges[-1].until > self.base + self.window:
            return False
        for taken in ranges:
            at, end = taken.seqno - self._origin, min(taken.until, self.top) - self._origin
            if taken.seqno < self.base or (at < end and self._free_run(at, end) != (end, taken.tries - 1)):
                return False
        self._grow(max(0, ranges[-1].until - self.top))
        for taken in ranges:
            self._lease(member, taken.seqno - self._origin, taken.until - self._origin, taken.tries, until_ms)
        self._note_due(until_ms, ranges[0].seqno, ranges[-1].until)
        return True

    def _grow(self, count: int) -> None:
        self._states += bytes(count)
        self._tries += bytes(count)
        self._owners.frombytes(bytes(count * self._owners.itemsize))
        self._untils.frombytes(bytes(count * self._untils.itemsize))

    def _lease(self, member: str, at: int, until: int, tries: int, until_ms: int) -> None:
        count = until - at
        self._set(at, until, LEASED)
        self._tries[at:until] = bytes((tries,)) * count
        self._owners[at:until] = array("I", (self._number(member),)) * count
        self._untils[at:until] = array("q", (until_ms,)) * count
        self.in_flight[member] = self.in_flight.get(member, 0) + count
        self.held += count
        if tries > 1:
            self.redelivered += count

    def _number(self, member: str) -> int:
        number = self._numbers.get(member)
        if number is None:
            number = self._numbers[member] = self._next_number
            self._names[number] = member
            self._next_number += 1
        return number

    def _set(self, at: int, until: int, state: int) -> None:
        self._states[at:until] = bytes((state,)) * (until - at)
        first, last = (self._origin + at) // BLOCK, (self._origin + until - 1) // BLOCK
        self.dirty.update(range(first, last + 1)) if first < last else self.dirty.add(first)
        if state == FREE:
            self._free_from = min(self._free_from, at)
        elif state >= FAILED:
            self.has_vain = True

    def _note_due(self, until_ms: int, seqno: int, until: int) -> None:
        heapq.heappush(self._due, (until_ms, seqno, until))
        if len(self._due) > self._due_most:
            runs = ((at, run) for at, run in self._runs(0, len(self._states)) if run.state in (LEASED, RESTING))
            self._due = [(run.until_ms, self._origin + at, self._origin + at + run.length) for at, run in runs]
            heapq.heapify(self._due)
            self._due_most = max(_DUE_MIN, 2 * len(self._due))

    # Settlements. Each returns what was refused: seqnos that this member does not hold.

    def acknowledge(self, member: str, seqno: int, until: int) -> list[tuple[int, int]]:
        """They are done. Saying so again does no harm, while it is remembered who did them."""
        number = self._numbers.get(member)
        at = seqno - self._origin
        is_one = until - seqno == 1 and 0 <= at < len(self._states)  # mostly
        if is_one and self._owners[at] == number and self._states[at] == LEASED:
            self._finish(member, [(at, at + 1)])
            return []
        held, refused = self._split(number, seqno, until)
        refused = [(first, end) for first, end in refused if not self._is_done_by(number, first, end)]
        self._finish(member, held)
        return refused

    def _is_done_by(self, number: int | None, seqno: int, until: int) -> bool:
        at, end = seqno - self._origin, until - self._origin
        if number is None or at < 0 or end > len(self._states):
            return False
        is_his = all(owner == number for owner in self._owners[at:end])
        if is_his and self._states.count(DONE, at, end) == end - at:
            self._set(at, end, DONE)  # it may not have been written down
            return True
        return False

    def _finish(self, member: str, held: Iterable[tuple[int, int]]) -> None:
        for at, until in held:
            self._set(at, until, DONE)
            self._drop(member, until - at)
        self._advance()

    def _drop(self, member: str, count: int) -> None:
        left = self.in_flight[member] - count
        self.held -= count
        if left:
            self.in_flight[member] = left
        else:
            del self.in_flight[member]

    def release(self, member: str, seqno: int, until: int, rest_until_ms: int | None) -> list[tuple[int, int]]:
        """Free again at once, or at that time."""
        held, refused = self._split(self._numbers.get(member), seqno, until)
        for at, end in held:
            self._drop(member, end - at)
            self._give_back(at, end, rest_until_ms)
        return refused

    def _give_back(self, at: int, until: int, rest_until_ms: int | None = None) -> None:
        while at < until:
            tries = self._tries[at]
            end = _end(tries, self._tries, at, until)
            if tries >= self.tries_max:
                self._set(at, end, FAILED)
            elif rest_until_ms is None:
                self._set(at, end, FREE)
            else:
                self._set(at, end, RESTING)
                self._untils[at:end] = array("q", (rest_until_ms,)) * (end - at)
                self._note_due(rest_until_ms, self._origin + at, self._origin + end)
            at = end

    def reject(self, member: str, seqno: int, until: int) -> list[tuple[int, int]]:
        """Never again: to be put away."""
        held, refused = self._split(self._numbers.get(member), seqno, until)
        for at, end in held:
            self._drop(member, end - at)
            self._set(at, end, REJECTED)
        return refused

    def extend(self, member: str, seqno: int, until: int, until_ms: int) -> list[tuple[int, int]]:
        """His until then."""
        held, refused = self._split(self._numbers.get(member), seqno, until)
        for at, end in held:
            self._set(at, end, LEASED)
            self._untils[at:end] = array("q", (until_ms,)) * (end - at)
            self._note_due(until_ms, self._origin + at, self._origin + end)
        return refused

    def take_back(self, member: str, ranges: Iterable[LeasedRange]) -> None:
        """These were never seen by their holder: as if they had not been leased."""
        for taken in ranges:
            held, _ = self._split(self._numbers.get(member), taken.seqno, taken.until)
            for at, end in held:
                self._drop(member, end - at)
                self._tries[at:end] = bytes(tries - 1 for tries in self._tries[at:end])
                self._set(at, end, FREE)

    def keep_only(self, member: str, ranges: Iterable[tuple[int, int]]) -> int:
        """The member knows of these only: what it was leased besides is free again. How many those were."""
        unknown, number = 0, self._numbers.get(member)
        if number is None or member not in self.in_flight:
            return 0
        held, _ = self._split(number, self.base, self.top)
        known = bytearray(len(self._states))
        for seqno, until in ranges:
            first, end = max(0, seqno - self._origin), min(len(known), until - self._origin)
            known[first:end] = b"\1" * max(0, end - first)
        for at, end in held:
            for run in re.finditer(b"\0+", known[at:end]):
                first, last = self._origin + at + run.start(), self._origin + at + run.end()
                self.take_back(member, [LeasedRange(first, last, 0)])
                unknown += last - first
        return unknown

    def _split(self, number: int | None, seqno: int, until: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Entries that this member holds, of these seqnos; and the seqnos that it does not hold."""
        if number is None or until <= seqno:
            return [], [(seqno, until)] if until > seqno else []
        at, end = max(seqno, self.base) - self._origin, min(until, self.top) - self._origin
        if at >= end:
            return [], [(seqno, until)]
        count = end - at
        if (
            count == until - seqno
            and self._states.count(LEASED, at, end) == count
            and self._owners[at:end] == array("I", (number,)) * count
        ):
            return [(at, end)], []
        held = []
        for run in list(_LEASED.finditer(self._states, at, end)):
            first = run.start()
            for owner, same in groupby(self._owners[first : run.end()]):
                last = first + sum(1 for _ in same)
                if owner == number:
                    held.append((first, last))
                first = last
        refused, before = [], seqno
        for first, last in held:
            if before < self._origin + first:
                refused.append((before, self._origin + first))
            before = self._origin + last
        if before < until:
            refused.append((before, until))
        return held, refused

    # What time, deaths and retention do.

    def expire(self, now_ms: int) -> bool:
        """End the leases and rests whose time is over. Whether there were any."""
        found = False
        while self._due and self._due[0][0] <= now_ms:
            _, seqno, until = heapq.heappop(self._due)
            at, end = max(seqno, self.base) - self._origin, min(until, self.top) - self._origin
            if at < end:
                for first, last in self._overdue(at, end, now_ms):
                    found = True
                    self._end(first, last)
        return found

    def _overdue(self, at: int, end: int, now_ms: int) -> list[tuple[int, int]]:
        """Entries whose time is over, alike in state and holder."""
        found = []
        for first, run in list(self._runs(at, end)):
            if run.state in (LEASED, RESTING) and run.until_ms <= now_ms:
                found.append((first, first + run.length))
        return found

    def _end(self, at: int, until: int) -> None:
        if self._states[at] == LEASED:
            self._drop(self._names[self._owners[at]], until - at)
            self._give_back(at, until)
        else:
            self._set(at, until, FREE)

    def next_due_ms(self) -> int | None:
        """When there may be something to `expire`."""
        return self._due[0][0] if self._due else None

    def free_member(self, member: str) -> int:
        """It has left, or died: what it held is free at once. How much that was."""
        number, count = self._numbers.get(member), self.in_flight.get(member, 0)
        if number is not None and count:
            held, _ = self._split(number, self.base, self.top)
            for at, end in held:
                self._drop(member, end - at)
                self._give_back(at, end)
        return count

    def forget_members(self, known: Iterable[str]) -> None:
        """Only these may be heard of again."""
        gone = self._numbers.keys() - set(known) - self.in_flight.keys()
        for member in gone:
            del self._names[self._numbers.pop(member)]

    def skip(self, seqno: int, until: int) -> int:
        """These records are not there any more: nobody can be given them. How many that are new to it."""
        until = min(until, self.base + self.window)
        if until > self.top:
            self._grow(until - self.top)
        at, end, count = max(seqno, self.base) - self._origin, until - self._origin, 0
        for run in list(_LOST.finditer(self._states, at, end)) if at < end else ():
            self._set(run.start(), run.end(), DONE)
            count += run.end() - run.start()
        self.skipped += count
        self._advance()
        return count

    def skip_below(self, first: int) -> int:
        """The log begins there now."""
        count = 0
        while self.base < first:
            before = self.base
            count += self.skip(self.base, first)
            if self.base == before:
                break
            if self.base == self.top and self.base < first:
                gone = first - self.base
                self.skipped += gone
                count += gone
                self.base = first
                self._restart()
        return count

    def _advance(self) -> None:
        at = self.base - self._origin
        end = _end(DONE, self._states, at, len(self._states))
        if end == at:
            return
        self.base = self._origin + end
        if end == len(self._states):
            self._restart()
        elif end >= _TRIM:
            del self._states[:end], self._tries[:end], self._owners[:end], self._untils[:end]
            self._free_from = max(0, self._free_from - end)
            self._origin = self.base

    def _restart(self) -> None:
        """All is done up to the base: what is remembered of who did it goes when there is much of it."""
        if len(self._states) >= _TRIM or self.top < self.base:
            self._states, self._tries = bytearray(), bytearray()
            self._owners, self._untils = array("I"), array("q")
            self._free_from, self._origin, self._due = 0, self.base, []

    def vain(self, most: int) -> list[VainRange]:
        """What is to be put away, the oldest first, up to so many ranges."""
        found: list[VainRange] = []
        for run in list(_VAIN.finditer(self._states, self.base - self._origin)):
            at = run.start()
            for tries, same in groupby(self._tries[at : run.end()]):
                end = at + sum(1 for _ in same)
                found.append(VainRange(self._origin + at, self._origin + end, self._states[at] == REJECTED, tries))
                at = end
                if len(found) >= most:
                    return found
        self.has_vain = bool(found)
        return found

    def lose(self, member: str, seqno: int, until: int) -> None:
        """What this member was leased cannot be read by anybody any more."""
        held, _ = self._split(self._numbers.get(member), seqno, until)
        self.skipped += sum(end - at for at, end in held)
        self._finish(member, held)

    def put_away(self, seqno: int, until: int) -> None:
        """What was in vain, and is dealt with."""
        at, end = max(seqno, self.base) - self._origin, min(until, self.top) - self._origin
        for run in list(_VAIN.finditer(self._states, at, end)) if at < end else ():
            self._set(run.start(), run.end(), DONE)
        self._advance()

    # What is kept.

    def _runs(self, at: int, end: int) -> Iterator[tuple[int, LeaseRun]]:
        """Entries that are alike, from where they begin."""
        for found in _STATES.finditer(bytes(memoryview(self._states)[at:end])):
            first, last, state = at + found.start(), at + found.end(), self._states[at + found.start()]
            if state == DONE:
                yield first, LeaseRun(last - first, DONE)
                continue
            timed, leased = state in (LEASED, RESTING), state == LEASED
            while first < last:
                tries, owner, until_ms = self._tries[first], self._owners[first], self._untils[first]
                until = _end(tries, self._tries, first, last)
                if timed and self._untils[first:until] != array("q", (until_ms,)) * (until - first):
                    until = first + _same(self._untils, first, until)
                if leased and self._owners[first:until] != array("I", (owner,)) * (until - first):
                    until = first + _same(self._owners, first, until)
                member = self._names[owner] if leased else ""
                yield first, LeaseRun(until - first, state, tries, member, until_ms if timed else 0)
                first = until

    def block(self, number: int) -> list[LeaseRun] | None:
        """The records of a block from its first one on, as far as they are known; None where all of it is done."""
        seqno = number * BLOCK
        if seqno + BLOCK <= self.base:
            return None
        done = max(0, self.base - seqno)
        at, end = max(seqno, self.base) - self._origin, min(seqno + BLOCK, self.top) - self._origin
        runs = [run for _, run in self._runs(at, end)] if at < end else []
        return [LeaseRun(done, DONE), *runs] if done else runs or None

    @classmethod
    def restored(
        cls,
        base: int,
        window: int,
        tries_max: int,
        blocks: dict[int, list[LeaseRun]],
        end: int,
    ) -> LeaseTable:
        """As it was kept, of a log that ends at `end` now. What no block says of is free."""
        table = cls(base, window, tries_max)
        for number in sorted(blocks):
            seqno = number * BLOCK
            for run in blocks[number]:
                table._restore(seqno, min(seqno + run.length, end), run)
                seqno += run.length
        table._advance()
        table.dirty.clear()
        return table

    def _restore(self, seqno: int, until: int, run: LeaseRun) -> None:
        seqno = max(seqno, self.base)
        if seqno >= until:
            return
        if until > self.top:
            self._grow(until - self.top)
        at, end = seqno - self._origin, until - self._origin
        self._set(at, end, run.state)
        self._tries[at:end] = bytes((run.tries,)) * (end - at)
        if run.state == LEASED:
            self._owners[at:end] = array("I", (self._number(run.member),)) * (end - at)
            self.in_flight[run.member] = self.in_flight.get(run.member, 0) + end - at
            self.held += end - at
        if run.state in (LEASED, RESTING):
            self._untils[at:end] = array("q", (run.until_ms,)) * (end - at)
            self._note_due(run.until_ms, seqno, until)


def _end(value: int, values: bytearray, at: int, until: int) -> int:
    """How far entries have this value, from `at` on."""
    found = _run(value).match(values, at, until)
    return at if found is None else found.end()


@cache
def _run(value: int) -> re.Pattern[bytes]:
    return re.compile(re.escape(bytes((value,))) + b"*", re.DOTALL)


def _same(values: array[int], at: int, until: int) -> int:
    """How many entries from `at` on are like the first."""
    first = values[at]
    for number in range(at + 1, until):
        if values[number] != first:
            return number - at
    return until - at
