"""What a member does with what its group tells it, as stories: news, records, and the steps that come of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
import pytest

from logboom import Record
from logboom.batch import build, stamp
from logboom.batch.batch import Latch
from logboom.broker.api import Chunk, Grant, GroupMove, GroupStanding, LogPlace, RefusedMove
from logboom.client.consume.consumer_core import Commit, CommitMode, ConsumerCore, Say, Tell
from logboom.client.consume.held_logs import HeldLogs
from logboom.client.consume.mailbox import Mailbox, MemberReport
from logboom.client.link.address import Address
from logboom.client.read.fetcher import Ask, Connect, Fetcher, Next, Sleep, Subscribe
from logboom.errors import LogNotHeld, MemberUnknown, NotAllowed, TopicDeleted, ValueUnreadable
from logboom.storage.bookmark import Bookmark
from logboom.values.serializer import ValueFormat, coder_of

TOPIC = "0" * 31 + "1"
ENDS = 40


def grant(partition: int, generation: int = 1, seqno: int | None = 0, asked: bool = False) -> Grant:
    bookmark = None if seqno is None else str(Bookmark(bytes.fromhex(TOPIC), partition, seqno, 1))
    return Grant("orders", TOPIC, partition, generation, bookmark, asked)


def stored(partition: int, base_seqno: int, count: int = 10) -> bytes:
    batch = bytes(build([b"%d/%d" % (partition, n) for n in range(base_seqno, base_seqno + count)]).data)
    return stamp(batch, base_seqno, base_seqno // 10 + 1, 1000, 1, 1) + batch[96:]


def chunk(partition: int, seqno: int, next_seqno: int) -> Chunk:
    """Batches of ten, from the one that holds `seqno` on."""
    data = b"".join(stored(partition, base) for base in range(seqno // 10 * 10, next_seqno, 10))
    return Chunk(TOPIC, partition, seqno, next_seqno, 0, ENDS, 1, memoryview(data), topic="orders")


def place_of(move: GroupMove) -> tuple[int, int, int]:
    """Partition, seqno, generation."""
    return move.partition, Bookmark.parse(move.bookmark).seqno, move.generation


class Member:
    """A consumer's core, whose steps a test looks at, and answers."""

    def __init__(self, mode: CommitMode = "after", value: ValueFormat | None = None) -> None:
        self.now = 0.0
        self.latch = Latch()
        self.mailbox = Mailbox(self.latch, lambda: self.now)
        self.reading = HeldLogs("orders", self.latch, coder=coder_of(value))
        clock = lambda: self.now  # noqa: E731
        self.fetching = Fetcher(self.reading, [Address("one")], clock)
        self.core = ConsumerCore("billing", self.reading, self.fetching, self.mailbox, mode, 1.0, clock)
        self.refused: list[RefusedMove] | Exception = []

    def hears(self, *grants: Grant, generation: int = 1) -> None:
        self.mailbox.put(self.mailbox.version, GroupStanding(generation, 1000, list(grants)))

    def play(self, steps: Iterator[Any]) -> list[Any]:
        """What is told, said and committed."""
        taken: list[Any] = []
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)  # type: ignore[attr-defined]
            except StopIteration as end:
                self.result = end.value
                return taken
            answer = error = None
            if isinstance(step, Commit):
                answer, error = (None, self.refused) if isinstance(self.refused, Exception) else (self.refused, None)
            if isinstance(step, Tell):
                taken.append((step.what, [(log.partition, log.generation) for log in step.logs]))
            elif isinstance(step, Say):
                taken.append(said(step.report))
            else:
                taken.append(("commit", [place_of(move) for move in step.moves]))

    def comes_by(self) -> list[Any]:
        return self.play(self.core.attend())

    def holds(self, *grants: Grant) -> None:
        """Is given these, and has found where they begin."""
        self.hears(*grants)
        self.comes_by()
        for log in self.reading.logs:
            seqno = Bookmark.parse(log.start.bookmark).seqno if log.start.bookmark else 0
            log.placed(LogPlace("orders", TOPIC, log.partition or 0, seqno, 0, ENDS, 1))

    def fetches(self, found: Chunk) -> None:
        self.reading.arrived(found)

    def records(self) -> Iterator[Record]:
        """As the loop of a program gets them, as far as nothing interrupts it."""
        pieces = self.reading.records()
        while not self.latch.is_shut and (some := self.core.next_of(pieces)) is not None:
            yield from some


def said(report: MemberReport) -> tuple[str, list[int], list[tuple[int, int, int]]]:
    what = "join" if report.joins else "hold"
    return what, [log.partition for log in report.held], [place_of(move) for move in report.moves]


def seqnos(records: Iterable[Record]) -> list[int | None]:
    return [record.seqno for record in records]


def test_logs_that_are_given_are_told_and_confirmed() -> None:
    member = Member()
    member.hears(grant(0), grant(1, generation=2, seqno=None))
    assert member.latch.is_shut
    assert member.comes_by() == [("hold", [0, 1], []), ("assigned", [(0, 1), (1, 2)])]
    assert not member.latch.is_shut
    assert member.comes_by() == []


def test_what_was_come_back_for_is_committed_when_it_is_due() -> None:
    member = Member()
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 40))
    assert seqnos(islice(member.records(), 15)) == list(range(15))
    assert member.comes_by() == [], "not due yet"
    member.now = 1.5
    assert member.comes_by() == [("hold", [0], [(0, 15, 1)])]
    member.now = 3.0
    assert member.comes_by() == [], "it stands there already"


def test_the_record_in_hand_is_not_committed_when_the_consumer_is_closed() -> None:
    member = Member()
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 40))
    assert seqnos(islice(member.records(), 12)) == list(range(12))
    assert [place_of(move) for move in member.core.last_moves()] == [(0, 11, 1)]


@pytest.mark.parametrize("form", ["lists", "tables"])
def test_the_piece_in_hand_is_not_committed_when_the_consumer_is_closed(form: str) -> None:
    member = Member()
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 20))
    if form == "lists":
        lists = member.reading.lists(("value",))
        member.core.next_of(lists)
        member.core.next_of(lists)
    else:
        member.core.next_of(member.reading.tables())
    assert [place_of(move)[1] for move in member.core.last_moves()] == ([10] if form == "lists" else [])
    member.comes_by()
    assert [place_of(move)[1] for move in member.core.last_moves()] == [20]


def test_a_log_that_is_asked_for_ends_at_the_next_record_and_is_given_back_with_its_place() -> None:
    member = Member()
    member.holds(grant(0), grant(1))
    member.fetches(chunk(0, 0, 40))
    records = member.records()
    assert seqnos(islice(records, 13)) == list(range(13))
    member.hears(grant(0, asked=True), grant(1), generation=2)
    assert list(records) == [], "the record after the news is not given"
    assert member.comes_by() == [
        ("hold", [0, 1], []),
        ("revoked", [(0, 1)]),
        ("hold", [1], [(0, 13, 1)]),
    ]
    assert list(member.records()) == []


def test_the_others_go_on_where_they_were_when_one_is_given_back() -> None:
    member = Member()
    member.holds(grant(0), grant(1))
    member.fetches(chunk(1, 0, 40))
    records = member.records()
    assert seqnos(islice(records, 13)) == list(range(13))
    member.hears(grant(0, asked=True), grant(1), generation=2)
    assert list(records) == []
    member.comes_by()
    assert seqnos(member.records()) == list(range(13, 40)), "what has come is given without another fetch"


def test_a_log_that_is_gone_is_lost_and_nothing_more_of_it_is_given() -> None:
    member = Member()
    member.holds(grant(0), grant(1))
    member.fetches(chunk(0, 0, 40))
    records = member.records()
    next(records)
    member.hears(grant(1), generation=3)
    assert list(records) == []
    assert member.comes_by() == [("hold", [1], []), ("lost", [(0, 1)])]
    assert list(member.records()) == []
    member.fetches(chunk(0, 10, 40))
    assert list(member.records()) == [], "nor of what was on its way"


def test_a_log_with_another_generation_begins_at_the_places_of_the_group() -> None:
    member = Member()
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 40))
    assert len(list(islice(member.records(), 25))) == 25
    member.hears(grant(0, generation=5, seqno=20), generation=5)
    assert member.comes_by() == [("hold", [0], []), ("lost", [(0, 1)]), ("assigned", [(0, 5)])]
    assert list(member.records()) == []
    assert Bookmark.parse(member.reading.logs[0].start.bookmark or "").seqno == 20


def test_news_about_what_was_held_before_count_for_nothing() -> None:
    member = Member()
    member.holds(grant(0), grant(1))
    version = member.mailbox.version
    member.hears(grant(0, asked=True), grant(1), generation=2)
    member.comes_by()
    member.mailbox.put(version, GroupStanding(2, 1000, [grant(0, asked=True), grant(1)]))
    assert member.comes_by() == []
    assert member.mailbox.generation_for(MemberReport(version, 1, ())) is None


def test_who_is_no_member_any_more_loses_everything_and_joins_again() -> None:
    member = Member()
    member.holds(grant(0), grant(1))
    member.mailbox.end()
    assert member.comes_by() == [("lost", [(0, 1), (1, 1)]), ("join", [], [])]
    member.hears(grant(0, generation=7), generation=7)
    assert member.comes_by() == [("hold", [0], []), ("assigned", [(0, 7)])]


def test_who_may_not_be_a_member_is_told_why_and_tries_again_next_time() -> None:
    member = Member()
    member.holds(grant(0))
    member.mailbox.end(NotAllowed("alice", "read", "group", "billing"))
    steps = member.core.attend()
    assert isinstance(next(steps), Tell)
    with pytest.raises(NotAllowed):
        next(steps)
    assert member.comes_by() == [("join", [], [])]


def test_a_place_that_is_refused_costs_the_log_in_that_generation_only() -> None:
    member = Member()
    member.holds(grant(0, generation=2), grant(1))
    stale, fresh = (GroupMove("orders", number, "", 1) for number in (0, 1))
    refused = [(move, RefusedMove("orders", move.partition, "log-not-held", "")) for move in (stale, fresh)]
    member.mailbox.refuse(refused)
    assert member.comes_by() == [("hold", [0], []), ("lost", [(1, 1)])]


def test_a_place_that_could_not_be_written_is_said_again() -> None:
    member = Member()
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 20))
    assert len(list(member.records())) == 20
    member.now = 2.0
    ((_, _, (place,)),) = member.comes_by()
    move = GroupMove("orders", place[0], str(Bookmark(bytes.fromhex(TOPIC), *place)), place[2])
    member.mailbox.refuse([(move, RefusedMove("orders", 0, "low-space", ""))])
    member.now = 4.0
    assert member.comes_by() == [("hold", [0], [(0, 20, 1)])]


def test_before_a_piece_is_given_its_end_is_committed() -> None:
    member = Member("before")
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 20))
    records = member.core.next_of(member.reading.records())
    assert records is not None
    assert member.play(member.core.commit_ahead()) == [("commit", [(0, 10, 1)])]
    assert member.result is True
    assert seqnos(islice(records, 4)) == list(range(4))
    assert member.core.last_moves() == ()


def test_what_was_committed_before_it_is_given_out_before_its_log_is_given_back() -> None:
    member = Member("before")
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 20))
    records = member.core.next_of(member.reading.records())
    assert records is not None
    member.play(member.core.commit_ahead())
    assert len(list(islice(records, 4))) == 4
    member.hears(grant(0, asked=True), generation=2)
    assert member.comes_by() == [("hold", [0], []), ("revoked", [(0, 1)])]
    pieces = member.reading.records()
    rest = member.core.next_of(pieces)
    assert rest is not None
    assert member.play(member.core.commit_ahead()) == []
    assert seqnos(rest) == list(range(4, 10))
    member.core.next_of(pieces)
    assert member.play(member.core.commit_ahead()) == []
    assert member.result is False, "nothing more of it is given"
    assert member.comes_by() == [("hold", [], [])]


@pytest.mark.parametrize("error", [None, MemberUnknown("billing", "m")])
def test_what_could_not_be_committed_before_is_not_given_and_comes_again(error: MemberUnknown | None) -> None:
    member = Member("before")
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 20))
    member.refused = error or [RefusedMove("orders", 0, "log-not-held", "")]
    member.core.next_of(member.reading.lists(("value",)))
    member.play(member.core.commit_ahead())
    assert member.result is False
    assert member.core.logs[0].seqno == 0
    assert member.reading.is_changed


def test_by_hand_nothing_is_committed_by_itself() -> None:
    member = Member("manual")
    member.holds(grant(0), grant(1))
    member.fetches(chunk(0, 0, 20))
    records = list(islice(member.records(), 12))
    member.now = 5.0
    assert member.comes_by() == []
    assert member.core.last_moves() == ()
    assert member.play(member.core.commit(records[3:6])) == [("commit", [(0, 6, 1)])]
    assert member.play(member.core.commit([])) == [("commit", [(0, 12, 1), (1, 0, 1)])]


def test_a_commit_of_a_log_that_is_lost_says_so_and_the_loss_is_told() -> None:
    member = Member("manual")
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 20))
    (record,) = islice(member.records(), 1)
    member.refused = [RefusedMove("orders", 0, "log-not-held", "it is another's")]
    with pytest.raises(LogNotHeld):
        member.play(member.core.commit([record]))
    assert member.comes_by() == [("hold", [], []), ("lost", [(0, 1)])]
    with pytest.raises(LogNotHeld):
        member.play(member.core.commit([record]))
    with pytest.raises(ValueError, match="no place"):
        member.play(member.core.commit([Record(b"")]))


def test_what_was_not_committed_comes_again_after_a_rewind() -> None:
    member = Member("manual")
    member.holds(grant(0, seqno=10))
    member.fetches(chunk(0, 10, 40))
    assert seqnos(islice(member.records(), 12)) == list(range(10, 22))
    (move,) = member.core.moves("m")
    assert (move.cursor, move.member, move.generation) == ("billing", "m", 1)
    assert Bookmark.parse(move.bookmark).seqno == 22
    member.core.rewind()
    assert [log.seqno for log in member.core.logs] == [10]
    assert list(member.records()) == []
    member.comes_by()
    member.fetches(chunk(0, 10, 40))
    assert len(list(islice(member.records(), 12))) == 12
    member.core.moved([move])
    member.core.rewind()
    assert [log.seqno for log in member.core.logs] == [22]


def test_several_pieces_given_at_once_are_in_hand_together() -> None:
    member = Member()
    member.holds(grant(0))
    member.fetches(chunk(0, 0, 40))
    found = member.core.next_of(member.reading.some(25))
    assert found is not None
    assert seqnos(found) == list(range(25))
    assert member.core.last_moves() == ()
    member.comes_by()
    assert [place_of(move)[1] for move in member.core.last_moves()] == [25]


def test_a_listener_that_fails_keeps_nothing_from_being_done() -> None:
    member = Member()
    member.holds(grant(0), grant(1))
    member.hears(grant(1, asked=True), generation=2)
    steps = member.core.attend()
    assert isinstance(next(steps), Say)
    assert isinstance(next(steps), Tell)
    steps.close()
    assert member.comes_by() == [("revoked", [(1, 1)]), ("hold", [], [])]


def test_a_topic_that_is_gone_is_read_no_more_until_the_group_takes_it_back() -> None:
    member = Member()
    member.holds(grant(0))
    assert member.reading.failed(TopicDeleted("orders", TOPIC)) is False, "there is nothing else to read"
    assert member.reading.is_empty
    steps = member.core.fetch(None)
    assert isinstance(next(steps), Sleep)
    member.hears(generation=4)
    assert member.comes_by() == [("hold", [], []), ("lost", [(0, 1)])]
    with pytest.raises(NotAllowed):
        member.reading.failed(NotAllowed("alice", "read", "topic", "orders"))


def test_other_logs_are_another_subscription() -> None:
    member = Member()
    member.hears(grant(0), grant(3, seqno=None))
    member.comes_by()
    steps = member.core.fetch(None)
    assert isinstance(next(steps), Connect)
    asked = next(steps)
    assert isinstance(asked, Ask)
    assert asked.head.request.topic == "orders/0,orders/3"
    assert Bookmark.parse(asked.head.request.start.bookmark).partition == 0, "the other is read from its first record"
    subscribed = steps.send(
        encoded(LogPlace("orders", TOPIC, 0, 7, 0, 40, 1), LogPlace("orders", TOPIC, 3, 2, 2, 9, 1))
    )
    assert isinstance(subscribed, Subscribe)
    assert isinstance(steps.send(None), Next)
    assert [(log.partition, log.seqno) for log in member.core.logs] == [(0, 7), (3, 2)]
    steps.close()
    member.hears(grant(0), generation=2)
    member.comes_by()
    assert member.reading.is_changed


def encoded(*places: LogPlace) -> bytes:
    return msgspec.msgpack.encode(list(places))


def take_all(member: Member, form: str, found: list[Any]) -> None:
    """In one loop, or with a poll after another."""
    if form == "records":
        found.extend(record.value for record in member.records())
    elif form == "lists":
        pieces = member.reading.lists(("value",))
        while (lists := member.core.next_of(pieces)) is not None:
            found += lists[0]
    else:
        while (records := member.core.next_of(member.reading.some(3))) is not None:
            found += [record.value for record in records]
            assert member.core.last_moves() == ()
            member.comes_by()


@pytest.mark.parametrize("form", ["records", "lists", "some"])
def test_a_value_that_cannot_be_read_is_not_committed_before_the_loop_has_come_back(form: str) -> None:
    member = Member(value="json")
    member.holds(grant(0))
    data = bytes(build([b"1", b"2", b"}", b"4"]).data)
    data = stamp(data, 0, 1, 1000, 1, 1) + data[96:]
    member.fetches(Chunk(TOPIC, 0, 0, 4, 0, ENDS, 1, memoryview(data), topic="orders"))
    found: list[Any] = []
    with pytest.raises(ValueUnreadable):
        take_all(member, form, found)
    assert found == [1, 2]
    assert [place_of(move)[1] for move in member.core.last_moves()] == [2]
    member.comes_by()
    assert [log.seqno for log in member.core.logs] == [3]
