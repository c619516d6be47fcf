"""What a load run notes of its answers."""

from __future__ import annotations

from logboom.cli.load_run import Latencies, LoadRun


def test_of_a_few_latencies_all_are_kept() -> None:
    latencies = Latencies(1000)
    for number in range(999):
        latencies.note(number / 1000)
    assert latencies.samples() == [number / 1000 for number in range(999)]


def test_of_any_number_of_latencies_some_are_kept_that_stand_for_all_and_the_longest() -> None:
    latencies = Latencies(1000)
    latencies.note(77.0)
    for number in range(1_000_000):
        latencies.note((number * 7919 % 1_000_000) / 1_000_000)
    samples = latencies.samples()
    assert 500 <= len(samples) <= 1001
    found = LoadRun(0, 0, 0, 0.0, 1.0, samples).percentiles()
    assert 0.45 < found["p50"] < 0.55
    assert 0.85 < found["p90"] < 0.95
    assert found["max"] == 77.0
