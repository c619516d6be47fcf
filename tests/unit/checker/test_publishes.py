"""Each way in which a publish can be less than all or nothing, planted in a history that is otherwise clean."""

from __future__ import annotations

from checker import check
from checker.history import AnyEvent, Begin, Final, Invoke, Ok, Poll, Publish, Published, Refused, Stage

A, B = "events/0", "events/1"


def staged(number: int, label: str, a: range, b: range, writer: str = "p") -> list[AnyEvent]:
    """Records of one attempt at a key, for both logs."""
    return [
        Stage("key", number, label, A, writer, list(a)),
        Stage("key", number, label, B, writer, list(b)),
    ]


def clean() -> list[AnyEvent]:
    """Two publishes with a plain record between, a third that was refused, a fourth that was only staged."""
    first = [(0, "p:0"), (1, "w:0"), (2, "p:1"), (3, "p:4")]
    second = [(0, "p:2"), (1, "p:3"), (2, "p:5")]
    return [
        *(Invoke("w", 0), Ok("w", 0, A, 1)),
        *staged(1, "one", range(2), range(2, 4)),
        Publish("key", 1, "one"),
        Published("key", 1, "one", parts=[(A, 0, 3), (B, 0, 2)]),
        *staged(2, "two", range(4, 5), range(5, 6)),
        Publish("key", 2, "two"),
        Published("key", 2, "two", parts=[(A, 3, 4), (B, 2, 3)]),
        *staged(3, "three", range(6, 7), range(7, 8)),
        Publish("key", 3, "three"),
        Refused("key", 3, "three", "StageFailed"),
        *staged(3, "four", range(8, 9), range(9, 10)),
        Begin("r", A, 0),
        Poll("r", A, first),
        Final(A, first),
        Final(B, second),
    ]


def doubtful(label: str = "five", number: int = 3, writer: str = "q") -> list[AnyEvent]:
    """An attempt that has no answer."""
    return [*staged(number, label, range(2), range(2, 3), writer), Publish("key", number, label)]


def kinds(*events: AnyEvent) -> dict[str, int]:
    return dict(check([*clean(), *events]).counts)


def test_publishes_that_are_whole_or_absent_are_clean() -> None:
    report = check(clean())
    assert report.clean, report
    assert (report.publishes, report.records, report.acknowledged, report.refused) == (2, 7, 7, 4)
    assert "2 publishes" in str(report)


def test_a_publish_without_an_answer_may_be_there_or_not() -> None:
    assert kinds(*doubtful()) == {}
    assert kinds(*doubtful(), Final(A, [(4, "q:0"), (5, "q:1")]), Final(B, [(3, "q:2")])) == {}
    assert check([*clean(), *doubtful()]).unknown == 3


def test_a_part_of_a_publish_is_torn() -> None:
    assert kinds(*doubtful(), Final(A, [(4, "q:0"), (5, "q:1")])) == {"torn": 1}
    assert kinds(*doubtful(), Final(A, [(4, "q:0")]), Final(B, [(3, "q:2")])) == {"torn": 1}
    assert kinds(*doubtful(), Final(B, [(3, "q:2")])) == {"torn": 1}


def test_an_answered_publish_that_is_not_there_is_lost() -> None:
    assert kinds(*doubtful(), Published("key", 3, "five")) == {"lost": 1}


def test_what_retention_has_dropped_of_a_publish_is_neither_torn_nor_lost() -> None:
    events = [*staged(1, "one", range(3), range(3, 5)), Publish("key", 1, "one"), Published("key", 1, "one")]
    other = Final(B, [(0, "p:3"), (1, "p:4")])
    assert dict(check([*events, Final(A, [(2, "p:2")], 2), other]).counts) == {}
    assert dict(check([*events, Final(A, [(1, "p:1"), (2, "x:0")], 1), Invoke("x", 0), other]).counts) == {"torn": 1}
    assert dict(check([*events, Final(A, [], 3), Final(B, [], 2)]).counts) == {}


def test_two_attempts_at_one_key_are_a_duplicate() -> None:
    late = [*doubtful("late", 2), Final(A, [(4, "q:0"), (5, "q:1")]), Final(B, [(3, "q:2")])]
    assert kinds(*late) == {"duplicate": 1}


def test_a_record_of_a_publish_that_is_there_twice_is_a_duplicate() -> None:
    assert kinds(Final(B, [(3, "p:5")])) == {"duplicate": 1}


def test_records_of_a_publish_in_another_order_than_staged_are_reordered() -> None:
    found = kinds(*doubtful(), Final(A, [(4, "q:1"), (5, "q:0")]), Final(B, [(3, "q:2")]))
    assert found == {"reordered": 1}


def test_a_lower_number_behind_a_higher_one_is_reordered() -> None:
    late = [*doubtful("late", 0), Final(A, [(4, "q:0"), (5, "q:1")]), Final(B, [(3, "q:2")])]
    assert kinds(*late) == {"reordered": 2}, "once in each log"


def test_a_refused_publish_that_is_there_is_aborted() -> None:
    assert kinds(Final(A, [(4, "p:6")]), Final(B, [(3, "p:7")])) == {"aborted": 1}


def test_what_was_staged_and_not_published_is_aborted_where_it_is_there() -> None:
    assert kinds(Final(A, [(4, "p:8")]), Final(B, [(3, "p:9")])) == {"aborted": 1}


def test_a_refused_publish_that_is_asked_for_again_may_be_there() -> None:
    again: list[AnyEvent] = [Publish("key", 3, "three"), Final(A, [(4, "p:6")]), Final(B, [(3, "p:7")])]
    assert kinds(*again) == {}
    assert kinds(*again, Refused("key", 3, "three")) == {"aborted": 1}


def test_an_answer_that_it_was_published_before_is_true_only_if_something_was() -> None:
    assert kinds(*doubtful(number=2), Published("key", 2, "five", repeat=True)) == {}
    assert kinds(*doubtful(number=0), Published("key", 0, "five", repeat=True)) == {}
    assert kinds(*doubtful(number=3), Published("key", 3, "five", repeat=True)) == {"lost": 1}


def test_a_publisher_may_be_told_twice_of_its_own_publish() -> None:
    again = Published("key", 2, "two", repeat=True, parts=[(A, 3, 4), (B, 2, 3)])
    assert kinds(Publish("key", 2, "two"), again) == {}


def test_a_publisher_who_was_told_of_another_place_is_inconsistent() -> None:
    wrong = [(A, 0, 3), (B, 2, 3)]
    assert kinds(Published("key", 2, "two", parts=wrong)) == {"inconsistent": 1}
    assert kinds(*doubtful(number=2), Published("key", 2, "five", repeat=True, parts=wrong)) == {"inconsistent": 1}
    assert kinds(Published("key", 2, "two", parts=[(A, 3, 4)])) == {"inconsistent": 1}


def test_a_record_in_another_log_than_it_was_staged_for_is_inconsistent() -> None:
    assert kinds(*doubtful(), Final(A, [(4, "q:0"), (5, "q:1"), (6, "q:2")])) == {"inconsistent": 1}


def test_a_publish_without_records_only_raises_the_number() -> None:
    raised: list[AnyEvent] = [Publish("key", 9, "empty"), Published("key", 9, "empty")]
    assert kinds(*raised) == {}
    assert kinds(*raised, *doubtful(number=8), Published("key", 8, "five", repeat=True)) == {}


def test_a_record_that_nobody_staged_is_a_phantom() -> None:
    assert kinds(Final(A, [(4, "p:99")])) == {"phantom": 1}
