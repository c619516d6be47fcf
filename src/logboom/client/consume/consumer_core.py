"""What a member of a group does with the logs it is given: reads them, commits, gives them back. No input, no output.

Procedures are generators of steps, as a `Fetcher` has them, and of three more: `Tell` the program, `Say` something to
the group, `Commit` and wait. Rules:

- Nothing is given of a log that is not held in this generation; what came before for another generation is thrown away.
- A log that is asked for is given back when the loop comes by: the program is told, what it has come back for is
  committed, and then the group is told. With `before` what was committed already is given out first.
- What happens is done at once and told in order, each thing once, also where telling it fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeVar

from logboom.batch import Record
from logboom.broker.api import CursorMove, Grant, GroupMove, GroupStanding, HeldLog, RefusedMove
from logboom.client.consume.held_logs import HeldLogCore, HeldLogs
from logboom.client.consume.mailbox import Mailbox, MemberReport
from logboom.client.read.fetcher import Fetcher, Sleep, Step
from logboom.client.read.topics_core import LogKey
from logboom.errors import LogboomError, LogNotHeld, MemberUnknown
from logboom.protocols.binary.errors import decode_failure
from logboom.protocols.binary.messages import Failure
from logboom.storage.bookmark import Bookmark

CommitMode = Literal["after", "before", "manual"]
Happening = Literal["assigned", "revoked", "lost"]

LOOK_S: Final = 0.025
"""How long a loop waits for records before it looks what the group says."""
Piece = TypeVar("Piece")

_LOST: Final = "log-not-held"
_BEHIND: Final = "cursor-moved-back"
"""The group is further on already: by what the program has read again."""


class AssignedLog(NamedTuple):
    """A log of a member."""

    topic: str
    partition: int
    generation: int
    """In which it was given to the member."""
    seqno: int | None
    """What is read next; None until the node has said where that is."""
    committed: int
    """The seqno behind the last record, as the node last said."""


class Tell(NamedTuple):
    """To the program, in its own loop."""

    what: Happening
    logs: list[AssignedLog]


class Say(NamedTuple):
    """To the group, in the background."""

    report: MemberReport


class Commit(NamedTuple):
    """Durable when this is done; what was refused comes back."""

    moves: tuple[GroupMove, ...]


MemberSteps = Generator[Step | Tell | Say | Commit, Any, Any]


class ConsumerCore:
    def __init__(
        self,
        group: str,
        reading: HeldLogs,
        fetching: Fetcher,
        mailbox: Mailbox,
        mode: CommitMode,
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.group = group
        self.reading = reading
        self.fetching = fetching
        self._mailbox = mailbox
        self._mode = mode
        self._interval_s = interval_s
        self._clock = clock
        self._generation = 0
        self._asked: set[LogKey] = set()
        """Logs that are to be given back."""
        self._events: deque[Tell] = deque()
        self._is_out = False
        self._failure: BaseException | None = None
        self._due = clock() + interval_s
        self._ends: dict[LogKey, int] | None = None
        """How far a loop goes that does not follow."""
        self.in_hand = False
        """Whether the program has something that it has not come back for."""

    @property
    def commits_before(self) -> bool:
        return self._mode == "before"

    @property
    def logs(self) -> list[AssignedLog]:
        found = self.reading.held.values()
        return [_describe(log) for log in sorted(found, key=lambda log: (log.topic, log.partition or 0))]

    # The loop.

    def begin(self, follow: bool) -> MemberSteps:
        """A loop begins, and has come back for whatever was given before."""
        self._ends = None if follow else {}
        yield from self.attend()
        if self._ends is not None and not self.reading.is_empty:
            self._ends.update((yield from self.fetching.until()) or {})

    def attend(self) -> MemberSteps:
        """The loop has come by: what the group has said is done, the program is told, what is due is committed.

        Raises why it is no member of the group, and will not become one by itself.
        """
        self.in_hand = False
        self._mailbox.polls(False)
        news = self._mailbox.take()
        refused = [key for move, each in news.refused for key in self._refused(move, each)]
        self._lose(refused)
        if news.is_out:
            self._is_out, self._failure = True, news.error
            self._lose(list(self.reading.held))
        elif news.standing is not None:
            self._accept(news.standing)
        if refused:
            self._mailbox.next_version()
        if refused or news.standing is not None:
            yield Say(self._report())
        while self._events:
            yield self._events.popleft()
        if self._is_out:
            yield from self._come_back()
        yield from self._give_back()
        if self._clock() >= self._due:
            self._due = self._clock() + self._interval_s
            moves = self._moves(self.reading.held.values()) if self._mode == "after" else ()
            if moves:
                yield Say(self._report(moves))

    def _come_back(self) -> MemberSteps:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._is_out = False
        yield Say(self._report(joins=True))

    def _accept(self, standing: GroupStanding) -> None:
        grants = {(grant.topic_id, grant.partition): grant for grant in standing.grants}
        self._generation = standing.generation
        held = self.reading.held
        self._lose([key for key, log in held.items() if not _is_same(log.grant, grants.get(key))])
        asked = [key for key in held if grants[key].is_asked_back and key not in self._asked]
        self._asked.update(asked)
        self._happen("revoked", [held[key] for key in asked])
        new = [grant for key, grant in grants.items() if key not in held and not grant.is_asked_back]
        self._happen("assigned", [self.reading.hold(grant) for grant in new])

    def _lose(self, keys: Iterable[LogKey]) -> None:
        for key in keys:
            self._asked.discard(key)
        self._happen("lost", [self.reading.drop(key) for key in keys])

    def _happen(self, what: Happening, logs: list[HeldLogCore]) -> None:
        if logs:
            self._events.append(Tell(what, [_describe(log) for log in logs]))

    def _refused(self, move: GroupMove, refused: RefusedMove) -> Iterator[LogKey]:
        """The log that is not the member's any more, if that is why."""
        for key, log in self.reading.held.items():
            if (log.topic, log.partition, log.grant.generation) == (move.topic, move.partition, move.generation):
                if refused.code == _LOST:
                    yield key
                elif refused.code != _BEHIND:
                    log.said = None  # said again next time

    def _give_back(self) -> MemberSteps:
        ready = [key for key in self._asked if not self._owes(self.reading.held[key])]
        if not ready:
            return
        moves = self._moves([self.reading.held[key] for key in ready]) if self._mode == "after" else ()
        for key in ready:
            self._asked.remove(key)
            self.reading.drop(key)
        self._mailbox.next_version()
        yield Say(self._report(moves))

    def _owes(self, log: HeldLogCore) -> bool:
        """Whether records were committed before they were given, and are to be given yet."""
        said = log.said
        return self.commits_before and said is not None and log.seqno is not None and log.seqno < said.seqno

    def _report(self, moves: tuple[GroupMove, ...] = (), joins: bool = False) -> MemberReport:
        held = tuple(HeldLog(*key) for key in self.reading.held)
        return MemberReport(self._mailbox.version, self._generation, held, moves, joins)

    # Records.

    def fetch(self, deadline: float | None) -> MemberSteps:
        """Have more to give; or, where nothing comes for a moment, look what the group says. False when it is late."""
        now = self._clock()
        if deadline is not None and now > deadline:
            return False
        until = now + LOOK_S if deadline is None else min(deadline, now + LOOK_S)
        self._mailbox.polls(True)
        try:
            if self.reading.is_empty:
                yield Sleep(max(0.001, until - now))
                return True
            if self.reading.is_changed:
                yield from self.fetching.restart()
                self.reading.is_changed = False
            yield from self.fetching.next(True, until, deadline)
            return True
        finally:
            self._mailbox.polls(False)

    @property
    def is_done(self) -> bool:
        """Whether a loop that does not follow is at its end."""
        if self._ends is None or not self.reading.is_located:
            return False
        for key, end in self.reading.end.items():
            self._ends.setdefault(key, end)
        return self.reading.has_reached(self._ends)

    def next_of(self, pieces: Iterator[Piece]) -> Piece | None:
        """The next piece. One that cannot be given counts as processed when the loop comes back, as others do."""
        self.reading.begin_piece()
        self.in_hand = True
        piece = next(pieces, None)
        self.in_hand = piece is not None
        return piece

    def commit_ahead(self) -> MemberSteps:
        """Before a piece is given. Whether it may be: not where the log is not the member's any more, or asked for."""
        log = self.reading.current
        if log is None:
            return False
        place = self.reading.place_ahead(log)
        if log.said is not None and place.seqno <= log.said.seqno:
            return True
        if log.key in self._asked:
            self.reading.take_back()
            return False
        move = _move(log, place)
        try:
            refused: list[RefusedMove] = yield Commit((move,))
        except MemberUnknown:
            self.reading.take_back()
            return False
        if not refused:
            log.said = place
            return True
        self.reading.take_back()
        self._mailbox.refuse([(move, each) for each in refused])
        if refused[0].code != _LOST:
            raise _error(self.group, move, refused[0])
        return False

    # Places.

    def _moves(self, logs: Iterable[HeldLogCore]) -> tuple[GroupMove, ...]:
        """To behind all that was processed, where that is not what was said last."""
        places = [(log, self._processed(log)) for log in logs if log.is_located]
        moves = [(log, place) for log, place in places if log.said is None or place.seqno != log.said.seqno]
        for log, place in moves:
            log.said = place
        return tuple(_move(log, place) for log, place in moves)

    def _processed(self, log: HeldLogCore) -> Bookmark:
        return self.reading.place_in_hand(log) if self.in_hand else log.place

    def last_moves(self) -> tuple[GroupMove, ...]:
        """What is committed when the consumer is closed: what the loop has come back for."""
        return self._moves(self.reading.held.values()) if self._mode == "after" else ()

    def places(self, records: Iterable[Record]) -> tuple[GroupMove, ...]:
        """Behind all that was given, or behind these records of theirs."""
        records = list(records)
        held = {(log.topic, log.partition): log for log in self.reading.held.values() if log.is_located}
        if not records:
            return tuple(_move(log, log.place) for log in held.values())
        last: dict[tuple[str, int | None], int] = {}
        for record in records:
            if record.topic is None or record.seqno is None:
                raise ValueError("a record that no consumer has given has no place")
            log = record.topic, record.partition
            last[log] = max(record.seqno, last.get(log, 0))
        for topic, partition in last.keys() - held.keys():
            raise LogNotHeld(self.group, f"{topic}/{partition}", self._generation)
        return tuple(_move(held[log], held[log].place_after(seqno)) for log, seqno in last.items())

    def commit(self, records: Iterable[Record]) -> MemberSteps:
        """Raises LogNotHeld where a log is not the member's any more; the others are committed all the same."""
        moves = self.places(records)
        if not moves:
            return
        refused: list[RefusedMove] = yield Commit(moves)
        by_log = {(move.topic, move.partition): move for move in moves}
        bad = [(by_log.pop((each.topic, each.partition)), each) for each in refused]
        self._moved(by_log.values())
        if bad:
            self._mailbox.refuse(bad)
            raise _error(self.group, *bad[0])

    def _moved(self, moves: Iterable[GroupMove | CursorMove]) -> None:
        held = {(log.topic, log.partition, log.grant.generation): log for log in self.reading.held.values()}
        for move in moves:
            log = held.get((move.topic, move.partition, move.generation))
            if log is not None:
                log.said = Bookmark.parse(move.bookmark)

    def moves(self, member: str) -> list[CursorMove]:
        """For a transaction: to behind all that was given."""
        found = [(log, log.place) for log in self.reading.held.values() if log.is_located]
        return [
            CursorMove(
                self.group, log.topic, log.grant.partition, str(place), None, False, member, log.grant.generation
            )
            for log, place in found
            if log.said is None or place.seqno != log.said.seqno
        ]

    def moved(self, moves: Iterable[CursorMove]) -> None:
        """They were published."""
        self._moved(moves)

    def seek(self, seqno: int, topic: str | None, partition: int | None) -> MemberSteps:
        self._mailbox.ring()
        return self.fetching.seek(seqno, topic, partition)

    def rewind(self) -> None:
        """What was given and not committed comes again."""
        self._mailbox.ring()
        self.in_hand = False
        self.reading.rewind()


def _is_same(grant: Grant, other: Grant | None) -> bool:
    return other is not None and other.generation == grant.generation


def _describe(log: HeldLogCore) -> AssignedLog:
    return AssignedLog(log.topic, log.grant.partition, log.grant.generation, log.seqno, log.committed)


def _move(log: HeldLogCore, place: Bookmark) -> GroupMove:
    return GroupMove(log.topic, log.grant.partition, str(place), log.grant.generation)


def _error(group: str, move: GroupMove, refused: RefusedMove) -> LogboomError:
    if refused.code == _LOST:
        return LogNotHeld(group, f"{move.topic}/{move.partition}", move.generation)
    return decode_failure(Failure(refused.code, refused.reason))
