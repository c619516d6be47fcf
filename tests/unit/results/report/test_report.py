"""What a report says, and how it is shown."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

import msgspec
import pytest

from logboom.batch import HEADER_SIZE, Batch, build, stamp
from logboom.errors import ConfigError
from logboom.results.report.account import DAY_US, Report
from logboom.results.report.forecast import LogFacts, RetentionLimit, TopicFacts, VolumeReport, foresee, growth_per_day
from logboom.results.report.page import POLICY, make_page
from logboom.results.report.report import Wishes, decode_report, make_report, make_series
from logboom.results.report.sums import Codec, Rates, ReportSums, Weight
from logboom.spark.jobs.report import ReportWork
from logboom.spark.jobs.report_count import count_cell

AT = 1_800_000_000_000_000
WISHES = Wishes("all", 5, 60_000_000, 7 * DAY_US)
VOLUME = VolumeReport(1000, 700, 100, 300)
HOSTILE = [
    b"<script>alert(1)</script>",
    b"</style><img src=x onerror=alert(1)>",
    b'" onmouseover="alert(1)',
    b"\x00\x1b[31m\xff",
    "\u202egnol".encode(),
    b"x" * 100_000,
    b"",
]


def grown(size: int, days: float, each_s: int = 3600) -> ReportSums:
    """A log that has grown evenly until now."""
    count = int(days * 86_400 / each_s)
    width, start = 1_000_000, AT - int(days * DAY_US)
    times = [start + number * each_s * 1_000_000 for number in range(count)]
    share = size / count
    buckets = {time // width: (1, int(share * (n + 1)) - int(share * n)) for n, time in enumerate(times)}
    codecs = {"none": Codec(count, count, size, size)}
    return ReportSums(records=count, appended=(times[0], times[-1]), growth=Rates(0, buckets), codecs=codecs)


def topic(sums: ReportSums, size: int, limit: RetentionLimit) -> TopicFacts:
    return TopicFacts("t", "id", limit, [LogFacts(0, 0, sums.records, size, sums)])


def test_the_growth_is_that_of_the_window_and_not_of_what_came_before() -> None:
    assert growth_per_day(grown(700, 7), 7 * DAY_US, AT) == pytest.approx(100, rel=0.01)
    assert growth_per_day(grown(700, 7), 30 * DAY_US, AT) == pytest.approx(100, rel=0.01)
    assert growth_per_day(grown(3000, 30), 7 * DAY_US, AT) == pytest.approx(100, rel=0.01)
    silent = grown(700, 7)
    assert growth_per_day(silent, 7 * DAY_US, AT + 7 * DAY_US) == pytest.approx(0)
    assert growth_per_day(ReportSums(), 7 * DAY_US, AT) is None


def test_a_log_that_nothing_holds_fills_the_volume() -> None:
    forecast = foresee([topic(grown(300, 3), 300, RetentionLimit())], VOLUME, 7 * DAY_US, AT)
    assert forecast.full_at == pytest.approx(AT + 6 * DAY_US, abs=0.1 * DAY_US)
    at, size = forecast.curve[-1]
    assert at == forecast.full_at
    assert size == pytest.approx(900)


@pytest.mark.parametrize(
    "limit", [RetentionLimit(size_bytes=500), RetentionLimit(age_us=5 * DAY_US), RetentionLimit(records=120)]
)
def test_a_log_that_retention_holds_does_not_fill_the_volume(limit: RetentionLimit) -> None:
    forecast = foresee([topic(grown(300, 3), 300, limit)], VOLUME, 7 * DAY_US, AT)
    assert forecast.full_at is None
    at, size = forecast.curve[-1]
    assert at == pytest.approx(AT + 2 * DAY_US, abs=0.1 * DAY_US)
    assert size == pytest.approx(500, rel=0.02)


def test_logs_that_are_held_give_their_pace_to_nobody() -> None:
    """Two grow by 100 a day; one of them for two days: 400 of 600 in two days, the rest in two more."""
    topics = [topic(grown(300, 3), 300, RetentionLimit(size_bytes=500)), topic(grown(300, 3), 300, RetentionLimit())]
    forecast = foresee(topics, VOLUME, 7 * DAY_US, AT)
    assert forecast.growth_per_day == pytest.approx(200, rel=0.01)
    assert forecast.full_at == pytest.approx(AT + 4 * DAY_US, abs=0.1 * DAY_US)


def test_a_log_above_its_limit_does_not_grow() -> None:
    forecast = foresee([topic(grown(300, 3), 300, RetentionLimit(size_bytes=200))], VOLUME, 7 * DAY_US, AT)
    assert (forecast.growth_per_day, forecast.full_at) == (0, None)


def test_a_few_records_from_another_time_do_not_hide_the_rest() -> None:
    buckets = {AT // 1_000_000 + number: (100, 0) for number in range(50)}
    series = make_series(Rates(0, {0: (3, 0), **buckets, 2**40: (2, 0)}))
    assert (series.before, series.behind, len(series.points)) == (3, 2, 50)
    near = make_series(Rates(0, {AT // 1_000_000 - 20: (3, 0), **buckets}))
    assert (near.before, near.behind, len(near.points)) == (0, 0, 51)


@pytest.mark.parametrize(("bulk", "few"), [(100, 1), (100, 3), (400, 4), (30, 3), (100_000, 1000)])
def test_a_few_records_far_away_hide_no_others_however_few_there_are(bulk: int, few: int) -> None:
    buckets = {AT // 1_000_000 + number: (bulk // 10, 0) for number in range(10)}
    series = make_series(Rates(0, {0: (few, 0), **buckets, 4_102_444_800: (few, 0)}))
    assert (len(series.points), series.before, series.behind) == (10, few, few)


@pytest.mark.parametrize(("bulk", "few"), [(10, 3), (1000, 50)])
def test_what_is_no_small_part_is_shown_however_far_away(bulk: int, few: int) -> None:
    buckets = {AT // 1_000_000 + number: (bulk // 10, 0) for number in range(10)}
    series = make_series(Rates(0, {0: (few, 0), **buckets}))
    assert (series.points[0].at, series.before) == (0, 0)


def hostile_report() -> Report:
    rng = random.Random(1)
    keys = [rng.choice(HOSTILE) for _ in range(500)]
    times = [rng.choice([AT + rng.randrange(10**9), -(2**63) + 1, 2**63 - 1, 0]) for _ in keys]
    channels = [rng.choice(["<b>", "a/b", "\u202e"]) for _ in keys]
    data = bytes(build([b"v"] * 500, keys=keys, timestamps=times, channels=channels).data)
    batch = Batch.parse(stamp(data, 0, 1, AT, 1, 1) + data[HEADER_SIZE:])
    sums = count_cell([batch], 0, 500, "id", 0, 60_000_000)
    facts = TopicFacts(
        "<i>name</i>",
        "id",
        RetentionLimit(),
        [LogFacts(0, 0, 500, len(data), sums), LogFacts(1, 0, 0, 0, ReportSums())],
    )
    return make_report(WISHES, AT + DAY_US, "node", [facts, TopicFacts("none", "id", RetentionLimit(), [])], VOLUME)


class Reading(HTMLParser):
    """What tags and attributes a page has, and whether they close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value or "" for name, value in attrs if name in ("href", "src"))
        self.ids.update(value or "" for name, value in attrs if name == "id")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_has_no_markup_of_others_and_nothing_from_elsewhere() -> None:
    page = make_page(hostile_report())
    reading = Reading()
    reading.feed(page)
    assert reading.open == []
    assert not reading.tags & {"script", "img", "i", "link", "iframe", "object", "form"}
    assert not {name for name in reading.attributes if name.startswith("on") or name in ("src", "style")}
    assert reading.links == {f"#{name}" for name in reading.ids if f"#{name}" in reading.links}
    assert "://" not in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert len(page) < 200_000
    assert POLICY.startswith("default-src 'none'")


def test_a_page_of_nothing_is_a_page() -> None:
    page = make_page(make_report(WISHES, AT, "node", [], None))
    reading = Reading()
    reading.feed(page)
    assert reading.open == []


def test_the_numbers_of_a_report_are_read_as_they_were_written() -> None:
    report = hostile_report()
    assert decode_report(msgspec.json.encode(report)) == report


def test_names_are_given_with_what_may_be_missing() -> None:
    sums = ReportSums()
    sums.keys.names = {b"a": Weight(10, 100, 3, 30), b"b": Weight(9, 900, 0, 0)}
    sums.keys.missed_records, sums.keys.missed_bytes = 3, 30
    facts = TopicFacts("t", "id", RetentionLimit(), [LogFacts(0, 0, 0, 0, sums)])
    names = make_report(WISHES, AT, "node", [facts], None).topics[0].account.keys
    assert [(name.text, name.records, name.records_most) for name in names.by_records] == [("a", 10, 10), ("b", 9, 12)]
    assert [(name.text, name.size_bytes, name.size_bytes_most) for name in names.by_bytes] == [
        ("b", 900, 930),
        ("a", 100, 100),
    ]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"name": "../x"}, "name"),
        ({"name": ""}, "name"),
        ({"pattern": "("}, "pattern"),
        ({"top": 0}, "top"),
        ({"late_ms": -1}, "late_ms"),
        ({"window_days": 0}, "window_days"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        msgspec.convert(options, ReportWork).check()
    assert caught.value.key == key
