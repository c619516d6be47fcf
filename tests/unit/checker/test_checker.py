"""Each anomaly, planted in a history that is otherwise clean, is found; and a clean one is called so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checker import Recorder, Report, check, identity, make_value, read_histories
from checker.history import AnyEvent, Begin, Fail, Final, Gap, Invoke, Ok, Poll, Unknown

A, B = "events/0", "events/1"
TESTS = Path(__file__).parents[2]


def written(writer: str, log: str, seqnos: range) -> list[AnyEvent]:
    """A writer's records 0, 1, 2 … promised at these seqnos."""
    events: list[AnyEvent] = []
    for sequence, seqno in enumerate(seqnos):
        events += Invoke(writer, sequence), Ok(writer, sequence, log, seqno)
    return events


def records(*writers: tuple[str, range], start: int = 0) -> list[tuple[int, str]]:
    values = [make_value(writer, sequence).decode() for writer, numbers in writers for sequence in numbers]
    return list(enumerate(values, start))


def clean() -> list[AnyEvent]:
    """Two writers, two logs, two readers, one refusal, one write that nobody knows of."""
    first = records(("w1", range(5)), ("w2", range(5)))
    return [
        *written("w1", A, range(5)),
        *written("w2", A, range(5, 10)),
        *written("w3", B, range(3)),
        *(Invoke("w1", 5), Unknown("w1", 5)),
        *(Invoke("w1", 6), Fail("w1", 6)),
        Begin("r1", A, 0),
        Poll("r1", A, first[:4]),
        Poll("r1", A, first[4:]),
        Poll("r2", A, first[3:7]),
        Begin("r2", A),
        Poll("r2", A, first[5:]),
        Final(A, first[:6]),
        Final(A, first[6:]),
        Final(B, records(("w3", range(3)))),
    ]


def kinds(events: list[AnyEvent]) -> dict[str, int]:
    return dict(check(events).counts)


def replaced(events: list[AnyEvent], old: AnyEvent, *new: AnyEvent) -> list[AnyEvent]:
    assert old in events
    return [other for event in events for other in (new if event == old else (event,))]


def test_a_clean_history_is_clean() -> None:
    report = check(clean())
    assert report.clean, report
    assert (report.records, report.logs, report.writers, report.readers) == (13, 2, 3, 2)
    assert (report.acknowledged, report.refused, report.unknown) == (13, 1, 1)
    assert "clean: nothing lost" in str(report)


def test_a_write_without_an_answer_may_be_there_or_not() -> None:
    extra = Final(A, [(10, "w1:5")])
    assert kinds([*clean(), extra]) == {}


def test_a_promised_record_that_is_not_there_is_lost() -> None:
    assert kinds([*clean(), Invoke("w2", 5), Ok("w2", 5, A, 10)]) == {"lost": 1}


def test_a_record_that_a_reader_saw_and_that_is_gone_is_lost() -> None:
    assert kinds([*clean(), Poll("r1", A, [(10, "w1:5")])]) == {"lost": 1}


def test_a_log_that_was_never_read_at_last_proves_nothing() -> None:
    assert kinds([Invoke("w", 0), Ok("w", 0, A, 0), Poll("r", A, [(0, "w:0")])]) == {"lost": 1}


def test_what_retention_dropped_is_not_lost() -> None:
    events = [*written("w", A, range(10)), Poll("r", A, records(("w", range(10))))]
    assert kinds([*events, Final(A, records(("w", range(6, 10)), start=6), first=6)]) == {}


def test_a_record_at_two_seqnos_is_a_duplicate() -> None:
    assert kinds([*clean(), Final(A, [(10, "w2:4")])]) == {"duplicate": 1}


def test_a_record_in_two_logs_is_a_duplicate() -> None:
    assert kinds([*clean(), Final(B, [(3, "w2:4")])]) == {"duplicate": 1}


def test_a_record_promised_twice_at_different_places_is_a_duplicate() -> None:
    assert kinds([*clean(), Ok("w2", 4, A, 3)]) == {"duplicate": 1}
    assert kinds([*clean(), Ok("w2", 4, A, 9), Unknown("w2", 4)]) == {}


def test_records_of_a_writer_in_another_order_are_reordered() -> None:
    invoked: list[AnyEvent] = [Invoke("w", 0), Invoke("w", 1)]
    assert kinds([*invoked, Final(A, [(0, "w:1"), (1, "w:0")])]) == {"reordered": 1}
    assert kinds([*invoked, Final(A, [(0, "w:1")]), Final(B, [(0, "w:0")])]) == {}


def test_two_readers_who_see_different_values_at_a_seqno_are_inconsistent() -> None:
    assert kinds([*clean(), Begin("r3", A), Poll("r3", A, [(9, "w1:5")])]) == {"inconsistent": 1}


def test_a_writer_who_was_told_another_seqno_is_inconsistent() -> None:
    events = replaced(clean(), Ok("w3", 2, B, 2), Ok("w3", 2, B, 7))
    assert kinds(events) == {"inconsistent": 1}


def test_a_refused_write_that_was_seen_is_an_aborted_read() -> None:
    assert kinds([*clean(), Final(A, [(10, "w1:6")])]) == {"aborted": 1}


@pytest.mark.parametrize("value", ["w9:0", "w1:99", "nonsense", "w1:x", ""])
def test_a_record_that_nobody_wrote_is_a_phantom(value: str) -> None:
    assert kinds([*clean(), Final(A, [(10, value)])]) == {"phantom": 1}


def test_a_reader_that_goes_back_is_not_monotonic() -> None:
    again = Poll("r1", A, [(9, "w2:4")])
    assert kinds([*clean(), again]) == {"backwards": 1}
    within = Poll("r3", A, [(9, "w2:4"), (8, "w2:3"), (9, "w2:4")])
    assert kinds([*clean(), within]) == {"backwards": 1}
    assert kinds([*clean(), Begin("r1", A, 9), again]) == {}


def test_a_reader_that_is_led_past_a_record_has_skipped_it() -> None:
    first = records(("w1", range(5)), ("w2", range(5)))
    assert kinds([*clean(), Begin("r3", A, 0), Poll("r3", A, first[1:])]) == {"skipped": 1}
    assert kinds([*clean(), Poll("r3", A, [first[0], first[2]])]) == {"skipped": 1}
    assert kinds([*clean(), Poll("r3", A, first[:2]), Poll("r3", A, first[4:])]) == {"skipped": 1}
    assert kinds([*clean(), Poll("r3", A, first[:2]), Gap("r3", A, 4), Poll("r3", A, first[4:])]) == {}


def test_a_reader_that_begins_again_beyond_its_last_place_has_skipped_some() -> None:
    first = records(("w1", range(5)), ("w2", range(5)))
    events = [*clean(), Poll("r3", A, first[:2])]
    assert kinds([*events, Begin("r3", A, 4), Poll("r3", A, first[4:])]) == {"skipped": 1}
    assert kinds([*events, Begin("r3", A, 1), Poll("r3", A, first[1:])]) == {}
    assert kinds([*events, Begin("r3", A), Poll("r3", A, first[4:])]) == {}


def test_a_hole_in_the_final_read_is_skipped() -> None:
    first = records(("w1", range(5)), ("w2", range(5)))
    found = kinds([*written("w1", A, range(5)), *written("w2", A, range(5, 10)), Final(A, first[:4] + first[5:])])
    assert found == {"skipped": 1, "lost": 1}


def test_of_many_anomalies_all_are_counted_and_some_are_shown() -> None:
    report = check([Final(A, [(n, "nonsense") for n in range(1000)])])
    assert report.counts == {"phantom": 1000}
    assert len(report.anomalies) == 20
    assert "NOT CLEAN: 1,000 phantom" in str(report)


def test_values_say_who_wrote_them() -> None:
    assert identity(make_value("w", 12).decode()) == ("w", 12)
    assert identity(make_value("w", 12, 100).decode()) == ("w", 12)
    assert len(make_value("w", 12, 100)) == 100


def test_histories_of_several_processes_are_read_together_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    with Recorder(tmp_path / "one") as one, Recorder(tmp_path / "other") as other:
        one.note(Invoke("w", 0), Ok("w", 0, A, 0))
        one.note(Invoke("w", 1))
        other.poll("r", A, [(0, b"w:0"), (1, b"w:1")])
        other.poll("r", A, [])
        other.note(Final(A, [(0, "w:0"), (1, "w:1")]))
    with open(tmp_path / "one", "ab") as file:
        file.write(b'{"type":"ok","wri')
    report = check(read_histories([tmp_path / "one", tmp_path / "other"]))
    assert report.clean, report
    assert (report.acknowledged, report.unknown, report.records) == (1, 1, 2)


def test_a_line_that_is_no_event_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text('{"type":"invoke","writer":"w","sequence":0}\n{"type":"later"}\n')
    with pytest.raises(ValueError, match="bad, line 2"):
        list(read_histories([tmp_path / "bad"]))


def run_checker(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "checker", *map(str, paths)]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)


def test_it_runs_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        recorder.note(*clean())
    done = run_checker(path)
    assert (done.returncode, "clean" in done.stdout) == (0, True), done
    with Recorder(path) as recorder:
        recorder.note(Final(A, [(10, "w1:6")]))
    done = run_checker(path)
    assert (done.returncode, "aborted: w1:6 was refused" in done.stdout) == (1, True), done
    assert run_checker().returncode == 2


def big(path: Path, count: int) -> Report:
    """A history of so many records, with one anomaly of each of two kinds at its end."""
    with Recorder(path) as recorder:
        for start in range(0, count, 1000):
            numbers = range(start, start + 1000)
            recorder.note(*(event for n in numbers for event in (Invoke("w", n), Ok("w", n, A, n))))
            values = [(n, f"w:{n}") for n in numbers]
            recorder.note(Poll("r", A, values), Final(A, values))
        recorder.note(Final(A, [(count, "w:0")]), Invoke("w", count), Ok("w", count, A, count + 1))
    return check(read_histories([path]))


def test_a_needle_is_found_in_a_large_history(tmp_path: Path) -> None:
    report = big(tmp_path / "history", 50_000)
    assert report.counts == {"duplicate": 1, "reordered": 1, "lost": 1}


@pytest.mark.soak
def test_a_needle_is_found_among_a_million_records(tmp_path: Path) -> None:
    report = big(tmp_path / "history", 1_000_000)
    assert report.counts == {"duplicate": 1, "reordered": 1, "lost": 1}
