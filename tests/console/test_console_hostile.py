"""Names and values that would do harm on a page that took them for markup: they are shown as the text they are."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from support.browser import audit
from support.browser import hostile as texts
from support.browser.scenes import Scene
from support.browser.visitor import Visitor

_SCRIPTS = "() => [...document.scripts].map((script) => script.src)"
_STRANGERS = "() => document.querySelectorAll('main :is(iframe, style, script, [onerror], [onload])').length"


def check_untouched(page: Page, url: str) -> None:
    assert page.evaluate("() => window.injected") is None
    assert page.evaluate(_SCRIPTS) == [f"{url}/console/main.js"]
    assert page.evaluate(_STRANGERS) == 0


def test_names_at_their_limits_are_listed_and_fit(visitor: Visitor, hostile: Scene) -> None:
    page = visitor.visit(hostile.url)
    for name in (texts.LONG_TOPIC, texts.DOTTED_TOPIC, "-", "0"):
        expect(page.get_by_role("region", name="Topics").get_by_role("link", name=name, exact=True)).to_be_visible()
    assert not audit.too_wide(page)
    check_untouched(page, hostile.url)


@pytest.mark.parametrize("topic", [texts.LONG_TOPIC, texts.DOTTED_TOPIC, "-"], ids=["long", "dotted", "dash"])
def test_a_topic_with_such_a_name_opens(visitor: Visitor, hostile: Scene, topic: str) -> None:
    page = visitor.visit(hostile.url)
    page.get_by_role("region", name="Topics").get_by_role("link", name=topic, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(topic)
    assert not audit.too_wide(page)
    check_untouched(page, hostile.url)


def test_a_topic_whose_name_no_address_can_hold_is_explained(visitor: Visitor, hostile: Scene) -> None:
    page = visitor.visit(hostile.url)
    page.get_by_role("region", name="Topics").get_by_role("link", name=texts.PARENT_TOPIC, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(texts.PARENT_TOPIC)
    expect(page.get_by_role("main")).to_contain_text("logboom")


def test_a_reason_that_is_markup_is_shown_as_text(visitor: Visitor, hostile: Scene) -> None:
    page = visitor.visit(hostile.url, f"#/topics/{texts.LONG_TOPIC}/settings")
    expect(page.get_by_text(texts.SCRIPTS[0]).first).to_be_visible()
    check_untouched(page, hostile.url)


def test_cursor_names_that_look_like_paths_can_be_moved(visitor: Visitor, hostile: Scene) -> None:
    page = visitor.visit(hostile.url, f"#/topics/{texts.MARKUP_TOPIC}/cursors")
    row = page.get_by_role("table", name="Cursors").get_by_role("row").filter(has_text=texts.CURSORS[0])
    row.get_by_role("button", name="Move").click()
    dialog = page.get_by_role("dialog", name=f"Move cursor {texts.CURSORS[0]}")
    dialog.get_by_label("Seqno").fill("7")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog).to_have_count(0)
    found = {each["cursor"]: each for each in hostile.node.ask(f"/topics/{texts.MARKUP_TOPIC}/cursors")["cursors"]}
    assert found[texts.CURSORS[0]]["seqno"] == 7
    assert not audit.too_wide(page)


def test_records_of_markup_are_shown_as_text(visitor: Visitor, hostile: Scene) -> None:
    page = visitor.visit(hostile.url, f"#/topics/{texts.MARKUP_TOPIC}?from=0")
    table = page.get_by_role("table", name="Records")
    for text in texts.SCRIPTS:
        expect(table.get_by_text(text[:40]).first).to_be_visible()
    assert not audit.too_wide(page)
    check_untouched(page, hostile.url)


def test_every_such_record_opens_in_every_form(visitor: Visitor, hostile: Scene) -> None:
    count = len(texts.records())
    page = visitor.visit(hostile.url, f"#/topics/{texts.MARKUP_TOPIC}?from=0&seqno=0")
    for seqno in range(count):
        dialog = page.get_by_role("dialog", name=f"Record 0/{seqno}", exact=True)
        expect(dialog).to_be_visible()
        show_in_every_form(dialog)
        if seqno + 1 < count:
            dialog.get_by_role("button", name="Next record").click()
    check_untouched(page, hostile.url)


def show_in_every_form(dialog: Locator) -> None:
    """Looked for and clicked in one step: a value that comes meanwhile may take a form away."""
    for form in ("Text", "JSON", "Hex"):
        button = dialog.get_by_role("button", name=form, exact=True)
        button.evaluate_all("found => found.filter((each) => !each.disabled).forEach((each) => each.click())")


def test_values_of_a_megabyte_open_and_the_page_stays_small(visitor: Visitor, hostile: Scene) -> None:
    page = visitor.visit(hostile.url, f"#/topics/{texts.LARGE_TOPIC}?from=0&seqno=0")
    for seqno in range(len(texts.large())):
        dialog = page.get_by_role("dialog", name=f"Record 0/{seqno}", exact=True)
        expect(dialog).to_be_visible()
        show_in_every_form(dialog)
        assert page.evaluate("() => document.querySelectorAll('*').length") < 10_000
        if seqno + 1 < len(texts.large()):
            dialog.get_by_role("button", name="Next record").click()
    check_untouched(page, hostile.url)
