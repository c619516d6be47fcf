"""A reader's dealings with its nodes, as stories: the steps it asks for, and what comes of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from logboom.batch import Batch, build, stamp
from logboom.broker.api import Chunk, Start
from logboom.client.link.address import Address
from logboom.client.read.fetcher import RETRY_S, Ask, Connect, Drop, Fetcher, Next, Sleep, Step, Steps, Subscribe
from logboom.client.read.reader_core import ReaderCore
from logboom.errors import (
    BookmarkLost,
    ConnectionLost,
    Damage,
    LogboomError,
    ReadOnlyReplica,
    SeqnoOutOfRange,
    ShuttingDown,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
    Unavailable,
)
from logboom.protocols.binary.messages import CommitCursor
from logboom.storage.bookmark import Bookmark

TOPIC, OTHER = "0" * 31 + "1", "0" * 31 + "2"
ONE, TWO = Address("one"), Address("two")
LOST = ConnectionLost("lost")


def stored(base_seqno: int, count: int, term: int = 1) -> bytes:
    batch = build([b"%d" % n for n in range(base_seqno, base_seqno + count)])
    data = bytes(batch.data)
    return stamp(data, base_seqno, base_seqno // 10 + 1, 1000, term, 1) + data[96:]


def chunk(seqno: int, next_seqno: int, committed: int, topic_id: str = TOPIC, term: int = 1, first: int = 0) -> Chunk:
    """Batches of ten, from the one that holds `seqno` on."""
    data = b"".join(stored(base, 10, term) for base in range(seqno // 10 * 10, next_seqno, 10))
    return Chunk(topic_id, 0, seqno, next_seqno, first, committed, term, memoryview(data))


def standing(seqno: int, committed: int, topic_id: str = TOPIC, first: int = 0) -> Chunk:
    """What a node answers to where the start is, or the end."""
    return Chunk(topic_id, 0, seqno, seqno, first, committed, 1, memoryview(b""))


class Story:
    """A reader whose steps are compared with what a test expects, and answered as it says."""

    def __init__(self, start: Start = Start(), skip: bool = False, servers: tuple[Address, ...] = (ONE,)) -> None:  # noqa: B008
        self.now = 0.0
        self.reading = ReaderCore("events", None, start, None, skip)
        self.fetching = Fetcher(self.reading, servers, lambda: self.now)
        self.slept: list[float] = []

    def play(self, steps: Steps, *script: tuple[type[Step], Any]) -> Any:
        """Each entry: the step that must come, and what comes of it. Sleeps pass by themselves."""
        answer: Any = None
        error: LogboomError | None = None
        self.taken: list[Step] = []
        expected = list(script)
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                assert not expected
                return end.value
            answer = error = None
            if isinstance(step, Sleep):
                self.slept.append(step.seconds)
                self.now += step.seconds
                continue
            assert expected, f"one step too many: {step}"
            kind, outcome = expected.pop(0)
            assert isinstance(step, kind), step
            self.taken.append(step)
            if isinstance(outcome, LogboomError):
                error = outcome
            else:
                answer = outcome

    def open(self, seqno: int = 0, committed: int = 20, first: int = 0) -> None:
        self.play(self.fetching.open(), (Connect, None), (Ask, standing(seqno, committed, first=first)))

    def fetch(self, *script: tuple[type[Step], Any], follow: bool = True, timeout_s: float | None = None) -> Any:
        return self.play(self.fetching.next(follow, self.fetching.deadline(timeout_s)), *script)

    def seqnos(self) -> list[int]:
        return [record.seqno or 0 for record in chain.from_iterable(self.reading.records())]

    def bookmark(self) -> Bookmark:
        """The one that was asked for last."""
        (step,) = [step for step in self.taken if isinstance(step, Subscribe)][-1:]
        assert step.request.start.bookmark is not None
        return Bookmark.parse(step.request.start.bookmark)


def test_a_reader_pins_its_start_before_anything_else() -> None:
    story = Story(Start(at="latest"))
    story.open(20)
    (_, ask) = story.taken
    assert isinstance(ask, Ask)
    assert ask.head.request.start == Start(at="latest")
    story.fetch(
        (Subscribe, None), (Next, LOST), (Drop, None), (Connect, None), (Subscribe, None), (Next, chunk(20, 30, 30))
    )
    assert story.bookmark() == Bookmark(bytes.fromhex(TOPIC), 0, 20, 1), "not the latest of a later time"
    assert story.seqnos() == list(range(20, 30))


def test_a_lost_connection_is_followed_by_one_immediate_try_and_then_by_waits() -> None:
    story = Story()
    story.open()
    story.fetch(
        *((Subscribe, None), (Next, LOST), (Drop, None), (Connect, LOST), (Drop, None), (Connect, LOST), (Drop, None)),
        *((Connect, None), (Subscribe, None), (Next, chunk(0, 20, 20))),
    )
    assert len(story.slept) == 2
    assert 0 < story.slept[0] < story.slept[1] * 2
    story.seqnos()
    story.slept.clear()
    story.fetch((Next, LOST), (Drop, None), (Connect, None), (Subscribe, None), (Next, chunk(20, 30, 30)))
    assert story.slept == [], "after a success the first try is immediate again"


def test_servers_are_tried_in_turn_the_one_there_was_first() -> None:
    story = Story(servers=(ONE, TWO))
    story.open()
    story.fetch(
        *((Subscribe, None), (Next, ShuttingDown()), (Drop, None), (Connect, LOST), (Drop, None), (Connect, LOST)),
        *((Drop, None), (Connect, None), (Subscribe, None), (Next, chunk(0, 20, 20))),
    )
    assert [step.address for step in story.taken if isinstance(step, Connect)] == [ONE, TWO, ONE]


def test_opening_tries_every_server_once() -> None:
    story = Story(servers=(ONE, TWO))
    story.play(story.fetching.open(), (Connect, LOST), (Drop, None), (Connect, None), (Ask, standing(0, 20)))
    story = Story(servers=(ONE, TWO))
    with pytest.raises(ConnectionLost):
        story.play(story.fetching.open(), (Connect, LOST), (Drop, None), (Connect, LOST), (Drop, None))


def test_a_reader_goes_on_inside_a_batch_after_a_reconnect() -> None:
    story = Story(Start(seqno=7))
    story.open(7, 40)
    story.fetch((Subscribe, None), (Next, chunk(7, 20, 40)))
    some = chain.from_iterable(story.reading.records())
    assert [next(some).seqno for _ in range(6)] == [7, 8, 9, 10, 11, 12]
    mark = Bookmark.parse(story.reading.bookmark)
    assert (mark.seqno, mark.term) == (13, 1)
    assert story.seqnos() == list(range(13, 20)), "another loop begins inside the chunk"
    story.fetch((Next, LOST), (Drop, None), (Connect, None), (Subscribe, None), (Next, chunk(20, 40, 40)))
    assert story.bookmark().seqno == 20
    assert story.seqnos() == list(range(20, 40))


def test_a_chunk_that_begins_earlier_gives_only_what_is_new() -> None:
    story = Story(Start(seqno=25))
    story.open(25, 40)
    story.fetch((Subscribe, None), (Next, chunk(25, 40, 40)))
    assert story.reading.current is not None
    assert len(list(story.reading.current.batches())) == 2
    assert story.seqnos() == list(range(25, 40))


@pytest.mark.parametrize(
    "error", [TopicRecreated("events", TOPIC, OTHER), BookmarkLost(20, 1, 2), SeqnoOutOfRange(0, 10, 20)]
)
def test_what_is_gone_is_raised_and_the_position_stays(error: LogboomError) -> None:
    story = Story()
    story.open()
    with pytest.raises(type(error)):
        story.fetch((Subscribe, None), (Next, error), (Drop, None))
    assert story.reading.seqno == 0


def test_a_topic_that_is_not_there_any_more_was_deleted() -> None:
    story = Story()
    with pytest.raises(TopicNotFound):
        story.play(story.fetching.open(), (Connect, None), (Ask, TopicNotFound("events", "the node")))
    story = Story()
    story.open()
    with pytest.raises(TopicDeleted) as deleted:
        story.fetch((Subscribe, None), (Next, TopicNotFound("events", "the node")), (Drop, None))
    assert deleted.value.topic_id == TOPIC


def test_a_node_that_answers_for_another_topic_is_found_out() -> None:
    story = Story()
    story.open()
    with pytest.raises(TopicRecreated):
        story.fetch((Subscribe, None), (Next, chunk(0, 10, 10, OTHER)), (Drop, None))


def test_asked_to_skip_a_reader_goes_to_the_first_record_there_is() -> None:
    story = Story(skip=True)
    story.open()
    story.fetch(
        *((Subscribe, None), (Next, SeqnoOutOfRange(0, 10, 20)), (Drop, None)),
        *((Subscribe, None), (Next, chunk(10, 20, 20, first=10))),
    )
    assert story.seqnos() == list(range(10, 20))
    assert story.reading.skipped == 10
    assert isinstance(story.reading.last_gap, SeqnoOutOfRange)


def test_a_start_that_is_gone_already_counts_as_skipped() -> None:
    story = Story(Start(seqno=3), skip=True)
    story.open(10, 20, first=10)
    assert (story.reading.seqno, story.reading.skipped) == (10, 7)


def test_asked_to_skip_a_reader_goes_behind_damage() -> None:
    story = Story(skip=True)
    story.open(0, 40)
    story.fetch(
        *((Subscribe, None), (Next, Damage("x", 0, 0, 30, "bad")), (Drop, None)),
        *((Subscribe, None), (Next, chunk(30, 40, 40))),
    )
    assert story.seqnos() == list(range(30, 40))
    assert story.reading.skipped == 30


def test_damage_that_nothing_follows_is_raised_even_so() -> None:
    story = Story(skip=True)
    story.open(0, 40)
    with pytest.raises(Damage):
        story.fetch((Subscribe, None), (Next, Damage("x", 0, 0, None, "bad")), (Drop, None))


def test_asked_to_skip_a_topic_made_again_is_read_from_its_first_record() -> None:
    story = Story(skip=True)
    story.open(15)
    story.fetch(
        *((Subscribe, None), (Next, TopicRecreated("events", TOPIC, OTHER)), (Drop, None)),
        *((Ask, standing(0, 10, OTHER)), (Subscribe, None), (Next, chunk(0, 10, 10, OTHER))),
    )
    assert story.seqnos() == list(range(10))
    assert story.reading.topic_id == OTHER
    assert isinstance(story.reading.last_gap, TopicRecreated)


def test_asked_to_skip_a_follower_waits_for_a_deleted_topic_to_come_again() -> None:
    gone = TopicNotFound("events", "the node")
    story = Story(skip=True)
    story.open()
    story.fetch(
        *((Subscribe, None), (Next, TopicDeleted("events", TOPIC)), (Drop, None), (Ask, gone), (Ask, gone)),
        *((Ask, standing(0, 10, OTHER)), (Subscribe, None), (Next, chunk(0, 10, 10, OTHER))),
    )
    assert len(story.slept) == 3
    assert story.seqnos() == list(range(10))
    story = Story(skip=True)
    story.open()
    assert story.fetch((Subscribe, None), (Next, gone), (Drop, None), follow=False) is False


def test_asked_to_skip_a_lost_tail_is_told_and_passed() -> None:
    story = Story(skip=True)
    story.open(20)
    story.fetch(
        *((Subscribe, None), (Next, BookmarkLost(20, 1, 2)), (Drop, None)),
        *((Ask, standing(15, 15)), (Subscribe, None), (Next, chunk(15, 20, 20, term=2))),
    )
    assert story.seqnos() == list(range(15, 20))
    assert isinstance(story.reading.last_gap, BookmarkLost)


def test_a_loop_that_does_not_follow_gives_up_in_the_end() -> None:
    story = Story()
    story.open()
    steps = story.fetching.next(False, None)

    def run() -> None:
        error: LogboomError | None = None
        while True:
            step = steps.send(None) if error is None else steps.throw(error)
            error = LOST if isinstance(step, Connect | Next) else None
            story.now += step.seconds if isinstance(step, Sleep) else 0.0

    with pytest.raises(ConnectionLost):
        run()
    assert RETRY_S / 2 < story.now <= RETRY_S


def test_a_follower_ends_quietly_when_nothing_has_come_in_time_but_not_without_a_node() -> None:
    story = Story()
    story.open()
    assert story.fetch((Subscribe, None), (Next, None), timeout_s=2.0) is False
    assert story.taken[-1] == Next(2.0)
    story.now += 10
    with pytest.raises(ConnectionLost):
        story.fetch(
            *((Next, LOST), (Drop, None), (Connect, LOST), (Drop, None), (Connect, LOST), (Drop, None)), timeout_s=0.06
        )


def test_where_a_loop_ends_is_asked_of_the_node_when_it_begins() -> None:
    story = Story()
    story.open(0, 20)
    assert story.play(story.fetching.until(), (Ask, standing(35, 35))) == 35
    (ask,) = story.taken
    assert isinstance(ask, Ask)
    assert ask.head.request.start == Start(at="latest")
    assert story.reading.seqno == 0
    assert story.play(story.fetching.until(), (Ask, LOST), (Drop, None), (Connect, None), (Ask, standing(40, 40))) == 40


@pytest.mark.parametrize("start", [0, 3, 2_000])
def test_the_position_is_behind_each_record_as_soon_as_it_was_given(start: int) -> None:
    data = stored(0, 2_500, term=1) + stored(2_500, 5, term=2)
    story = Story(Start(seqno=start))
    story.open(start, 2_505)
    story.fetch((Subscribe, None), (Next, Chunk(TOPIC, 0, start, 2_505, 0, 2_505, 2, memoryview(data))))
    before = Bookmark.parse(story.reading.bookmark)
    assert before.seqno == start
    for number, record in enumerate(chain.from_iterable(story.reading.records()), start):
        assert record.seqno == number
        mark = Bookmark.parse(story.reading.bookmark)
        assert (mark.seqno, mark.term) == (number + 1, 1 if number < 2_500 else 2)
    assert number == 2_504


def test_a_loop_goes_on_in_its_chunk_after_a_seek_and_the_next_one_begins_there() -> None:
    story = Story()
    story.open(0, 40)
    story.fetch((Subscribe, None), (Next, chunk(0, 40, 40)))
    some = chain.from_iterable(story.reading.records())
    assert [next(some).seqno for _ in range(5)] == [0, 1, 2, 3, 4]
    story.reading.seek(30)
    assert story.reading.seqno == 30
    assert [record.seqno for record in some] == list(range(5, 40))
    story.reading.seek(7)
    assert Bookmark.parse(story.reading.bookmark).seqno == 7


def test_a_cursor_is_committed_where_the_reader_stands_also_after_a_loss() -> None:
    story = Story()
    story.open()
    story.fetch((Subscribe, None), (Next, chunk(0, 20, 20)))
    records = chain.from_iterable(story.reading.records())
    next(records), next(records)
    story.play(story.fetching.commit("billing"), (Ask, LOST), (Drop, None), (Connect, None), (Ask, None))
    ask = story.taken[-1]
    assert isinstance(ask, Ask)
    assert ask.head == CommitCursor("billing", "events", 0, str(Bookmark(bytes.fromhex(TOPIC), 0, 2, 1)))


def test_a_reader_that_seeks_drops_what_was_pushed() -> None:
    story = Story()
    story.open(0, 40)
    story.fetch((Subscribe, None), (Next, chunk(0, 20, 40)))
    story.play(story.fetching.seek(33), (Drop, None))
    assert story.taken == [Drop(False)]
    story.fetch((Subscribe, None), (Next, chunk(33, 40, 40)))
    assert story.seqnos() == list(range(33, 40))


def spoil(data: bytes, number: int, position: int) -> memoryview:
    """Batches of equal size, one of which has a wrong bit."""
    broken = bytearray(data)
    broken[number * len(stored(10, 10)) + position] ^= 1
    return memoryview(broken)


FORMS = {
    "records": lambda reading: [record.seqno for record in chain.from_iterable(reading.records())],
    "lists": lambda reading: [seqno for (seqnos,) in reading.lists(["seqno"]) for seqno in seqnos],
    "tables": lambda reading: [n for table in reading.tables(["seqno"]) for n in table.column(0).to_pylist()],
    "batches": lambda reading: [n for batch in reading.batches() for n in batch.seqnos()],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("number", "position", "left"),
    [(1, 100, [*range(10), *range(20, 30)]), (1, 20, [*range(10)]), (0, 100, [*range(10, 30)]), (0, 20, [])],
)
def test_damage_that_comes_is_met_the_same_way_in_every_form(
    form: str, number: int, position: int, left: list[int]
) -> None:
    whole = b"".join(stored(base, 10) for base in (10, 20, 30))
    spoilt = Chunk(TOPIC, 0, 10, 40, 0, 40, 1, spoil(whole, number, position))
    for skip in (True, False):
        story = Story(Start(seqno=10), skip)
        story.open(10, 40)
        story.fetch((Subscribe, None), (Next, spoilt))
        if skip:
            found = FORMS[form](story.reading)
            assert [n - 10 for n in found] == left
            assert (story.reading.seqno, story.reading.skipped) == (40, 30 - len(left))
        else:
            for _ in range(2):
                with pytest.raises(Damage) as damage:
                    FORMS[form](story.reading)
                assert damage.value.seqno_from == story.reading.seqno == 10 + 10 * number
                assert damage.value.seqno_until == (20 + 10 * number if position == 100 else 40)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_moves_the_position_and_the_bookmark_alike(form: str) -> None:
    story = Story()
    story.open(0, 40)
    story.fetch((Subscribe, None), (Next, chunk(0, 40, 40, term=3)))
    assert FORMS[form](story.reading) == list(range(40))
    assert (story.reading.seqno, story.reading.term, story.reading.current) == (40, 3, None)


@pytest.mark.parametrize("form", ["records", "lists", "tables"])
def test_what_a_filter_left_keeps_its_seqnos(form: str) -> None:
    batch: Batch = build([b"a", b"b", b"c"])
    seqnos = memoryview(b"".join(n.to_bytes(8, "little") for n in (3, 17, 30)))
    found = Chunk(TOPIC, 0, 0, 40, 0, 40, 1, memoryview(batch.data), seqnos)
    story = Story()
    story.open(0, 40)
    story.fetch((Subscribe, None), (Next, found))
    assert FORMS[form](story.reading) == [3, 17, 30]
    assert story.reading.seqno == 40
    story.play(story.fetching.seek(0), (Drop, None))
    story.fetch((Subscribe, None), (Next, found))
    some = chain.from_iterable(story.reading.records())
    assert next(some).seqno == 3
    assert story.reading.seqno == 4
    assert FORMS[form](story.reading) == [17, 30], "the rest of it"


def test_a_reader_with_a_filter_has_no_stored_batches() -> None:
    story = Story()
    story.open(0, 40)
    story.fetch((Subscribe, None), (Next, Chunk(TOPIC, 0, 0, 40, 0, 40, 1, memoryview(b""), memoryview(b""))))
    with pytest.raises(ValueError, match="filter"):
        list(story.reading.batches())


def test_a_reader_without_luck_tries_again_as_long_as_it_has_patience() -> None:
    story = Story()
    tries = [(Connect, LOST), (Drop, None)]
    story.play(story.fetching.open(5.0), *tries * 4, (Connect, None), (Ask, standing(0, 20)))
    assert story.slept
    assert sum(story.slept) < 5


@pytest.mark.parametrize("form", ["records", "tables", "batches"])
def test_a_chunk_with_a_hole_is_no_chunk(form: str) -> None:
    story = Story()
    story.open()
    whole = chunk(0, 30, 30)
    data = memoryview(stored(0, 10, 1) + stored(20, 10, 1))
    story.fetch((Subscribe, None), (Next, whole._replace(data=data)))
    with pytest.raises(Damage, match="seqnos 10 to"):
        list(getattr(story.reading, form)())
    assert story.reading.seqno == 10


def test_a_commit_that_a_replica_refuses_goes_to_the_next_server_and_the_reader_stays_there() -> None:
    story = Story(servers=(ONE, TWO))
    story.open()
    replica = ReadOnlyReplica("two:1774")
    story.play(story.fetching.commit("c"), (Ask, replica), (Drop, None), (Connect, None), (Ask, None))
    (connected,) = [step for step in story.taken if isinstance(step, Connect)]
    assert connected.address == TWO
    story.fetch((Subscribe, None), (Next, chunk(0, 20, 20)))


def test_a_commit_that_every_server_refuses_fails_in_the_end_and_with_one_server_at_once() -> None:
    replica = ReadOnlyReplica("two:1774")
    story = Story()
    story.open()
    with pytest.raises(ReadOnlyReplica):
        story.play(story.fetching.commit("c"), (Ask, replica))
    story = Story(servers=(ONE, TWO))
    story.open()
    rounds = [(Ask, replica), (Drop, None), (Connect, None)] * 100
    with pytest.raises(Unavailable, match="replica of two:1774"):
        story.play(story.fetching.commit("c"), *rounds)
    assert sum(story.slept) <= RETRY_S
