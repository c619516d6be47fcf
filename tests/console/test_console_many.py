"""Ten thousand topics: a page of them at a time."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from support.browser.scenes import MANY, Scene, many_names
from support.browser.visitor import Visitor

ELEMENTS_MAX = 5_000


def count_elements(page: Page) -> int:
    found: int = page.evaluate("() => document.querySelectorAll('*').length")
    return found


def test_the_first_page_says_how_many_there_are_and_holds_only_some(visitor: Visitor, ten_thousand: Scene) -> None:
    page = visitor.visit(ten_thousand.url)
    expect(page.get_by_role("region", name="Topics")).to_contain_text(f"1\u201350 of {MANY:,}")
    assert count_elements(page) < ELEMENTS_MAX


def test_every_page_follows_the_one_before(visitor: Visitor, ten_thousand: Scene) -> None:
    names = sorted(many_names())
    page = visitor.visit(ten_thousand.url, "#/?sort=name")
    links = page.get_by_role("region", name="Topics").get_by_role("row").get_by_role("link")
    for first in (0, 50, 100):
        expect(links).to_have_text(names[first : first + 50])
        page.get_by_role("button", name="Next page").click()
    page.get_by_role("button", name="Previous page").click()
    expect(links).to_have_text(names[100:150])
    assert count_elements(page) < ELEMENTS_MAX


def test_one_among_all_is_found_by_a_part_of_its_name(visitor: Visitor, ten_thousand: Scene) -> None:
    page = visitor.visit(ten_thousand.url)
    page.get_by_role("searchbox", name="Search topics").fill("09999")
    links = page.get_by_role("region", name="Topics").get_by_role("row").get_by_role("link")
    expect(links).to_have_text([name for name in many_names() if "09999" in name])
    links.first.click()
    expect(page.get_by_role("heading", level=1, name="09999")).to_be_visible()
