"""A node that works while somebody looks: what comes is shown, and nothing moves under the pointer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from support.browser import audit
from support.browser.scenes import Scene
from support.browser.visitor import Visitor

UPDATES = 4
SHIFT_MAX = 0.02
PLACES = ("#/", "#/topics/clicks", "#/topics/clicks/cursors", "#/topics/sensors.temperature/segments")


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Records").locator("tbody").get_by_role("row")


def wait_for_updates(page: Page, count: int = UPDATES) -> None:
    for _ in range(count):
        with page.expect_response(lambda response: response.url.endswith("/stats")):
            pass


def write(busy: Scene, topic: str, value: str) -> None:
    busy.node.call("POST", f"/topics/{topic}/records", {"value": value})


def test_a_record_is_shown_when_it_is_written(visitor: Visitor, busy: Scene) -> None:
    page = visitor.visit(busy.url, "#/topics/drafts")
    write(busy, "drafts", "just now")
    expect(rows(page).first).to_contain_text("just now")


def test_a_paused_tail_shows_nothing_new_until_it_goes_on(visitor: Visitor, busy: Scene) -> None:
    page = visitor.visit(busy.url, "#/topics/drafts")
    write(busy, "drafts", "before the pause")
    expect(rows(page).first).to_contain_text("before the pause")
    page.get_by_role("button", name="Pause").click()
    write(busy, "drafts", "during the pause")
    wait_for_updates(page, 2)
    expect(rows(page).first).to_contain_text("before the pause")
    page.get_by_role("button", name="Resume").click()
    expect(rows(page).first).to_contain_text("during the pause")


def test_a_fast_topic_is_followed_with_few_rows(visitor: Visitor, busy: Scene) -> None:
    page = visitor.visit(busy.url, "#/topics/clicks")
    first = rows(page).first.inner_text()
    expect(rows(page).first).not_to_have_text(first)
    wait_for_updates(page)
    assert rows(page).count() <= 200


@pytest.mark.parametrize("place", PLACES, ids=["overview", "records", "cursors", "segments"])
def test_nothing_shifts_while_it_is_live(visitor: Visitor, busy: Scene, place: str) -> None:
    page = visitor.visit(busy.url, place)
    wait_for_updates(page, 1)
    audit.watch_shifts(page)
    wait_for_updates(page)
    total, moved = audit.shifts(page)
    assert total < SHIFT_MAX, moved


def test_the_focus_stays_where_it_is_while_topics_change(visitor: Visitor, busy: Scene) -> None:
    page = visitor.visit(busy.url)
    link = page.get_by_role("region", name="Topics").get_by_role("link", name="orders", exact=True)
    link.focus()
    wait_for_updates(page)
    expect(link).to_be_focused()


def test_rates_are_shown_while_records_come(visitor: Visitor, busy: Scene) -> None:
    page = visitor.visit(busy.url)
    row = page.get_by_role("region", name="Topics").get_by_role("row").filter(has_text="clicks")
    expect(row.get_by_role("cell").first).not_to_have_text("0")
