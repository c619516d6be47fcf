"""For everybody: names for what can be used, contrast, the keyboard alone, narrow screens, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import audit
from support.browser.scenes import Scene
from support.browser.visitor import Visitor

PLACES = {
    "overview": "#/",
    "records": "#/topics/orders",
    "record": "#/topics/audit?partition=0&seqno=3",
    "segments": "#/topics/audit/segments",
    "cursors": "#/topics/orders/cursors",
    "settings": "#/topics/payments/settings",
    "groups": "#/groups",
    "group": "#/groups/dashboards",
    "stages": "#/stages",
    "pipeline": "#/pipeline",
    "access": "#/access",
}
STOPS_MAX = 320
FOCUS = """() => {
  const now = document.activeElement;
  if (now === document.body) return null;
  const box = now.getBoundingClientRect();
  const style = getComputedStyle(now);
  const [x, y] = [box.x + Math.min(box.width, innerWidth) / 2, box.y + Math.min(box.height, 40) / 2];
  const seen = document.elementFromPoint(x, y);
  const all = [...document.querySelectorAll("*")];
  return {
    who: `${all.indexOf(now)} ${now.tagName}.${now.className} ${now.textContent.slice(0, 40)}`,
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    free: now.contains(seen) || seen?.contains(now),
  };
}"""
"""What has the focus: whether that shows, and whether it can be seen at all. Null where it is at the browser itself."""
SMALL = """(least) => [...document.querySelectorAll("button, a, input, select, textarea, summary")].filter((each) => {
  if (!each.checkVisibility({ visibilityProperty: true }) || each.disabled) return false;
  if (each.closest(".bars, .skip, .tree") || each.matches("p a, p button, th.name a")) return false;
  const box = (each.matches("[type=checkbox]") ? each.closest("label") : each).getBoundingClientRect();
  return box.width < least || box.height < least;
}).map((each) => `${each.outerHTML.slice(0, 80)} ${each.offsetWidth}x${each.offsetHeight}`)"""
"""Controls that are too small. Not those in a sentence; nor bars, which have a row each, nor links whose row works."""
LISTEN = """() => {
  window.spoken = [];
  const regions = document.querySelectorAll("[role=status], [role=alert], [aria-live]");
  const hear = (changes) => {
    for (const { target } of changes) {
      const element = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
      if (element && !element.closest("[aria-hidden=true]")) window.spoken.push(element.textContent);
    }
  };
  const what = { childList: true, characterData: true, subtree: true };
  for (const region of regions) new MutationObserver(hear).observe(region, what);
}"""
View = Callable[[str], Page]
EVERYWHERE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


@pytest.fixture(scope="module")
def view(browser: Browser, shop: Scene) -> Iterator[View]:
    """Each place is opened once for all who only look: as wide and as light as at first."""
    visitor, pages = Visitor(browser), dict[str, Page]()

    def look(place: str) -> Page:
        if place not in pages:
            pages[place] = visitor.visit(shop.url, place)
        pages[place].set_viewport_size({"width": 1280, "height": 800})
        pages[place].emulate_media(color_scheme="light")
        return pages[place]

    try:
        yield look
        visitor.check()
    finally:
        visitor.close()


@EVERYWHERE
def test_every_control_has_a_name_and_every_view_one_heading(view: View, place: str) -> None:
    page = view(place)
    assert not audit.nameless(page)
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("main")).to_have_count(1)


@EVERYWHERE
def test_text_stands_out_from_what_is_behind_it(view: View, place: str) -> None:
    page = view(place)
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


@EVERYWHERE
def test_tab_goes_through_a_view_without_a_trap_and_shows_where_it_is(
    visitor: Visitor, shop: Scene, place: str
) -> None:
    page = visitor.visit(shop.url, place)
    seen: set[str] = set()
    for _ in range(STOPS_MAX):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUS)
        if stop is None or stop["who"] in seen:
            break
        assert stop["ring"], f"{stop['who']} does not show that it has the focus"
        assert stop["free"], f"{stop['who']} is hidden behind something"
        seen.add(stop["who"])
    else:
        pytest.fail(f"after {STOPS_MAX} stops there is still another")
    assert len(seen) > 3


@EVERYWHERE
def test_nothing_that_is_pressed_is_smaller_than_a_fingertip_can_hit(view: View, place: str) -> None:
    page = view(place)
    assert page.evaluate(SMALL, 24) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(SMALL, 24) == []
    buttons = page.locator("main button.first:visible, dialog button:visible")
    for box in (button.bounding_box() for button in buttons.all()):
        assert box is not None
        assert box["height"] >= 44


@EVERYWHERE
def test_tables_stay_tables_with_a_name_on_every_width(view: View, place: str) -> None:
    page = view(place)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        nodes = [node for node in audit.accessible(page) if not node.get("ignored")]
        roles = [str(node["role"]["value"]) for node in nodes]
        tables = [node for node, role in zip(nodes, roles, strict=True) if role == "table"]
        assert len(tables) >= page.locator("body:not(:has(dialog[open])) table:visible").count()
        assert all(node["name"]["value"] for node in tables)
        assert not [role for role in roles if role.startswith("LayoutTable")]


@pytest.mark.parametrize("place", ["#/", "#/topics/orders", "#/topics/orders/cursors", "#/topics/audit/segments"])
def test_what_changes_all_the_time_is_not_read_aloud(visitor: Visitor, busy: Scene, place: str) -> None:
    page = visitor.visit(busy.url, place)
    page.evaluate(LISTEN)
    about = page.locator("#node .about")
    for _ in range(3):
        expect(about).not_to_have_text(about.inner_text())
    assert page.evaluate("() => window.spoken") == []


def test_states_are_seen_where_the_system_sets_the_colours(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.emulate_media(forced_colors="active")
    plain = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    for seen in (".health .dot", "#node .dot", ".meter .track i", ".plot .legend i"):
        assert page.locator(seen).first.evaluate("each => getComputedStyle(each).backgroundColor") != plain, seen
    others = page.locator("nav a:not([aria-current])").first
    assert others.evaluate("each => getComputedStyle(each).borderBottomColor") == plain


def test_the_skip_link_goes_to_the_content_and_keeps_the_address(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders/cursors")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/topics/orders/cursors")


def test_what_is_wrong_with_a_place_is_told_at_its_field(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders")
    place = page.get_by_label("From", exact=True)
    place.fill("yesterday-ish")
    page.keyboard.press("Enter")
    expect(place).to_be_focused()
    expect(place).to_have_attribute("aria-invalid", "true")
    expect(place).to_have_accessible_description(re.compile("is no place in a log"))


def test_a_dialog_that_is_too_long_keeps_its_buttons_in_sight(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders", width=390, height=500)
    page.get_by_role("button", name="Write a record").click()
    dialog = page.get_by_role("dialog", name="Write a record")
    for name in ("Write", "Cancel", "Close"):
        expect(dialog.get_by_role("button", name=name, exact=True)).to_be_in_viewport(ratio=1)
    dialog.get_by_label("Headers").focus()
    expect(dialog.get_by_label("Headers")).to_be_in_viewport(ratio=1)


def test_a_phone_shows_channels_and_tags_of_records(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders", width=390, height=844)
    row = page.get_by_role("table", name="Records").get_by_role("row").filter(has_text="paid").first
    expect(row.get_by_text("paid", exact=True)).to_be_visible()
    expect(row.get_by_text("shop/")).to_be_visible()


def test_a_cursors_lag_is_drawn_over_the_minutes_that_are_kept(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit/cursors")
    expect(page.locator(".plot .grid")).to_contain_text("5 min ago")
