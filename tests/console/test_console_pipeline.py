"""The pipeline on the console: jobs in every state, their progress, results, lag and errors; and a report's page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import audit, pipelined
from support.browser.scenes import Scene
from support.browser.visitor import Visitor

PIPELINE = "#/pipeline"


@pytest.fixture(scope="module")
def works(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pipelined.works(tmp_path_factory.mktemp("node")) as scene:
        yield scene


def card(page: Page, job: str) -> Locator:
    return page.get_by_role("region", name=job, exact=True)


def test_a_node_without_jobs_says_how_to_run_one(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, PIPELINE)
    expect(page.get_by_role("heading", name="No jobs have run on this node")).to_be_visible()
    expect(page.get_by_text("logboom pipeline run report")).to_be_visible()


def test_a_job_that_runs_shows_how_far_it_is_and_what_it_has_made_before(visitor: Visitor, works: Scene) -> None:
    page = visitor.visit(works.url, PIPELINE)
    job = card(page, "archive/orders")
    for text in ("running", "writes segments", "3 of 12", "by mill-2:4711", "9.00 MiB", "orders/0 to 700"):
        expect(job.get_by_text(text).first).to_be_visible()
    expect(job.locator(".lag dd")).to_have_text(str(pipelined.LAG))
    expect(job.locator(".records dd")).to_have_text(str(pipelined.COVERED))
    job.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1, name="orders")).to_be_visible()


def test_a_job_that_failed_says_why_and_its_text_stays_text(visitor: Visitor, works: Scene) -> None:
    page = visitor.visit(works.url, PIPELINE)
    job = card(page, "archive/audit")
    expect(job.get_by_text("failed", exact=True)).to_be_visible()
    expect(job.locator("> .trouble")).to_contain_text("<img src=x onerror=window.injected=9>")
    assert page.evaluate("window.injected") is None


def test_the_last_runs_of_a_job_can_be_opened(visitor: Visitor, works: Scene) -> None:
    page = visitor.visit(works.url, PIPELINE)
    job = card(page, "checkpoint/orders/key")
    expect(job.get_by_text("idle", exact=True)).to_be_visible()
    job.get_by_text("Last runs (2)").click()
    rows = job.get_by_role("table").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("nothing new")
    expect(rows.nth(1)).to_contain_text("a result · records 700, files 3")


def test_a_runner_that_is_not_heard_of_is_said_to_be_silent(visitor: Visitor, works: Scene) -> None:
    page = visitor.visit(works.url, PIPELINE)
    expect(card(page, "verify/nightly").get_by_text("silent", exact=True)).to_be_visible()


def test_a_report_is_opened_beside_the_console_and_can_do_nothing(visitor: Visitor, works: Scene) -> None:
    page = visitor.visit(works.url, PIPELINE)
    expect(card(page, "archive/orders").get_by_role("link", name="Open the report")).to_be_hidden()
    visitor.expect("^popup: ")
    with page.expect_popup() as opened:
        card(page, "report/all").get_by_role("link", name="Open the report").click()
    report = opened.value
    expect(report.get_by_role("heading", name="Orders")).to_be_visible()
    assert report.evaluate("window.injected") is None


def test_the_page_is_for_everybody_wide_and_narrow(visitor: Visitor, works: Scene) -> None:
    page = visitor.visit(works.url, PIPELINE)
    expect(card(page, "report/all")).to_be_visible()
    assert not audit.nameless(page)
    assert not audit.faint(page)
    page.emulate_media(color_scheme="dark")
    assert not audit.faint(page)
    for width in (768, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        assert not audit.too_wide(page), width
