"""For everybody: names for what can be used, contrast, the keyboard alone, narrow screens, light and dark."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from browser import audit
from browser.scenes import Scene
from browser.visitor import Visitor

PLACES = {
    "overview": "#/",
    "records": "#/topics/orders",
    "record": "#/topics/audit?partition=0&seqno=3",
    "segments": "#/topics/audit/segments",
    "cursors": "#/topics/orders/cursors",
    "settings": "#/topics/payments/settings",
    "pipeline": "#/pipeline",
}
EVERYWHERE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


@EVERYWHERE
def test_every_control_has_a_name_and_every_view_one_heading(visitor: Visitor, shop: Scene, place: str) -> None:
    page = visitor.visit(shop.url, place)
    assert not audit.nameless(page)
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("main")).to_have_count(1)


@EVERYWHERE
def test_text_stands_out_from_what_is_behind_it(visitor: Visitor, shop: Scene, place: str) -> None:
    page = visitor.visit(shop.url, place)
    assert not audit.faint(page)
    page.emulate_media(color_scheme="dark")
    assert not audit.faint(page)


@EVERYWHERE
def test_a_narrow_screen_does_not_scroll_sideways(visitor: Visitor, shop: Scene, place: str) -> None:
    page = visitor.visit(shop.url, place, width=390, height=844)
    for width in (390, 320, 768):
        page.set_viewport_size({"width": width, "height": 844})
        assert not audit.too_wide(page), width


def test_dark_is_dark_and_light_is_light(visitor: Visitor, shop: Scene) -> None:
    assert lightness(visitor.visit(shop.url, scheme="light")) > 200
    assert lightness(visitor.visit(shop.url, scheme="dark")) < 60


def lightness(page: Page) -> float:
    color: list[int] = page.evaluate(
        "() => getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number)"
    )
    return sum(color) / 3


def test_a_topic_is_made_and_written_to_without_a_pointer(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("button", name="New topic").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="New topic").get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("by.keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{shop.url}/#/topics/by.keyboard")
    page.get_by_role("button", name="Write a record").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Write a record").get_by_label("Value", exact=True).focus()
    page.keyboard.type("typed")
    page.get_by_role("dialog", name="Write a record").get_by_role("button", name="Write", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Written: by.keyboard/0 seqno 0")).to_be_visible()


def test_tab_comes_to_every_topic_and_enter_opens_one(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("searchbox", name="Search topics").focus()
    page.keyboard.type("audit")
    link = page.get_by_role("region", name="Topics").get_by_role("row").get_by_role("link")
    expect(link).to_have_text(["audit"])
    for _ in range(25):
        page.keyboard.press("Tab")
        if link.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("audit")


def test_a_dialog_keeps_the_focus_and_gives_it_back(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    button = page.get_by_role("button", name="New topic")
    button.focus()
    page.keyboard.press("Enter")
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "() => document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
