"""The overview of a node that has nothing yet, and what its plots make of samples."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.browser.scenes import Scene
from support.browser.visitor import Visitor

SECOND = 1_000_000
INTERVAL_MS = 2_000


def history(*at: int) -> dict[str, Any]:
    """Samples taken at these seconds."""
    values = [float(each) for each in at]
    times = {"p50": values, "p99": values}
    rates = dict.fromkeys(("records_in", "records_out", "bytes_in", "bytes_out"), values)
    return {"interval_ms": INTERVAL_MS, "at": [each * SECOND for each in at], **rates} | dict.fromkeys(
        ("append", "sync", "read"), times
    )


def take(page: Page, *histories: dict[str, Any]) -> tuple[list[int], list[float | None]]:
    """The seconds and the records in, after these histories came one after the other."""
    script = """async (histories) => {
      const { Samples } = await import("/console/overview/plots.js");
      const samples = new Samples();
      for (const one of histories) samples.take(one);
      return [samples.at, samples.columns.records_in, samples.columns.sync_p50];
    }"""
    at, records, syncs = page.evaluate(script, list(histories))
    assert len(at) == len(records) == len(syncs)
    return [each // SECOND for each in at], records


def scale(page: Page, make: str, values: list[float]) -> list[float]:
    """The marks of an axis."""
    script = """async ([make, values]) => {
      const { byTens, binaryCeiling, fromZero, niceCeiling } = await import("/console/page/plot.js");
      const latency = byTens(1e-4, 1e-1);
      const scales = { records: fromZero(niceCeiling, 10), bytes: fromZero(binaryCeiling, 1024), latency };
      return scales[make](values).ticks;
    }"""
    return page.evaluate(script, [make, values])  # type: ignore[no-any-return]


def test_new_samples_are_added_to_those_that_are_there(page: Page) -> None:
    assert take(page, history(10, 12), history(14)) == ([10, 12, 14], [10, 12, 14])


def test_a_sample_that_comes_twice_is_there_once(page: Page) -> None:
    assert take(page, history(10, 12), history(12, 14))[0] == [10, 12, 14]


def test_samples_older_than_ten_minutes_go(page: Page) -> None:
    at, _ = take(page, history(*range(0, 600, 2)), history(*range(600, 700, 2)))
    assert (at[0], at[-1], len(at)) == (98, 698, 301)


def test_a_node_that_was_away_leaves_a_gap(page: Page) -> None:
    assert take(page, history(10, 12), history(60, 62)) == ([10, 12, 12, 60, 62], [10, 12, None, 60, 62])


def test_a_clock_that_went_back_takes_what_was_after_that(page: Page) -> None:
    assert take(page, history(100, 102, 104), history(101, 103)) == ([100, 101, 103], [100, 101, 103])


def test_everything_is_asked_for_again_where_the_nodes_clock_is_behind_the_samples(page: Page) -> None:
    script = """async (one) => {
      const { Samples } = await import("/console/overview/plots.js");
      const samples = new Samples();
      samples.take(one);
      return [samples.since(104e6), samples.since(50e6), samples.at.length];
    }"""
    assert page.evaluate(script, history(100, 102)) == [102 * SECOND, 0, 0]


MARK = """async ([one, spike]) => {
  const { makePlots, Samples } = await import("/console/overview/plots.js");
  const { elements, draw } = makePlots();
  document.querySelector("main").replaceChildren(...elements);
  const samples = new Samples();
  samples.take(one);
  draw(samples);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const [records] = elements;
  return [...records.querySelectorAll(".over text")].map((each) => each.textContent);
}"""


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([100.0] * 50, []),
        ([100.0] * 50 + [350.0], []),
        ([100.0] * 50 + [90_000.0], ["90k"]),
        ([100.0] * 50 + [90_000.0, 70_000.0] + [100.0] * 20, ["90k"]),
        ([0.0] * 50 + [90_000.0], []),
        ([100.0, 90_000.0], []),
        ([100.0] * 30 + [90_000.0] * 5, []),
    ],
    ids=["even", "a little more", "a spike", "a wide one", "nothing else", "too few", "no spike any more"],
)
def test_a_spike_does_not_flatten_a_plot_and_is_told(page: Page, values: list[float], told: list[str]) -> None:
    one = history(*range(2, 2 * len(values) + 2, 2))
    one |= {"records_in": values, "records_out": [0.0] * len(values)}
    assert [text.replace("\u202f", "").replace(" ", "") for text in page.evaluate(MARK, [one, 0])] == told
    ticks = scale(page, "records", values)
    assert ticks[-1] <= 200 if told else ticks[-1] >= max(values)


@pytest.mark.parametrize(
    ("make", "values", "ticks"),
    [
        ("records", [], [0, 5, 10]),
        ("records", [0, 3.2], [0, 5, 10]),
        ("records", [12_300, 400], [0, 10_000, 20_000]),
        ("bytes", [], [0, 512, 1024]),
        ("bytes", [3_000_000], [0, 2 * 2**20, 4 * 2**20]),
        ("latency", [], [1e-4, 1e-3, 1e-2, 1e-1]),
        ("latency", [0.0004, 0.02], [1e-4, 1e-3, 1e-2, 1e-1]),
        ("latency", [0.00002, 8], [1e-5, 1e-3, 1e-1, 10]),
    ],
)
def test_an_axis_has_round_numbers(page: Page, make: str, values: list[float], ticks: list[float]) -> None:
    assert scale(page, make, values) == pytest.approx(ticks)


def test_the_commands_of_an_empty_node_work_and_the_table_comes_by_itself(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    topics = page.get_by_role("region", name="Topics")
    expect(topics).to_contain_text("This node has no topics yet")
    write, read, *others = topics.locator("pre").all_text_contents()
    assert others == [
        f"logboom write events --server {empty.node.address} hello\n"
        f"logboom read events --server {empty.node.address} --follow"
    ]
    run(write)
    assert "kitchen" in run(read)
    expect(topics.get_by_role("link", name="events", exact=True)).to_be_visible()
    expect(topics).to_contain_text("1\u20131 of 1")


def run(command: str) -> str:
    done = subprocess.run(
        ["sh", "-c", f"{command} -sS --fail"], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout
