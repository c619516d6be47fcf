"""A topic's segments, cursors and settings, and what can be done to it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from support.browser.scenes import REFUSAL, Scene
from support.browser.visitor import Visitor


def make_topic(scene: Scene, name: str, records: int = 0, partitions: int = 1) -> str:
    scene.node.call("POST", "/topics", {"name": name, "partitions": partitions})
    if records:
        made = [{"value": f"record {number}"} for number in range(records)]
        scene.node.call("POST", f"/topics/{name}/records", made, {"partition": 0})
    return name


def cursor_row_names(page: Page) -> list[str]:
    rows = page.get_by_role("table", name="Cursors").locator("tbody").get_by_role("row")
    return [text.strip() for text in rows.locator("td:first-child").all_text_contents()]


def test_every_tab_has_an_address_of_its_own(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders")
    tabs = page.get_by_role("navigation", name="Topic")
    for name in ("Segments", "Cursors", "Settings", "Records"):
        tabs.get_by_role("link", name=name).click()
        expect(tabs.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        assert page.url.endswith(f"#/topics/orders/{name.lower()}")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def test_segments_are_drawn_and_listed_as_the_node_has_them(visitor: Visitor, shop: Scene) -> None:
    segments = shop.node.ask("/topics/audit/segments")["segments"]
    assert len(segments) > 10
    page = visitor.visit(shop.url, "#/topics/audit/segments")
    bars = page.get_by_role("region", name="Segments").get_by_role("button", name="seqno")
    expect(bars).to_have_count(len(segments))
    rows = page.get_by_role("table", name="Segment details").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(min(100, len(segments)))
    expect(rows.first).to_contain_text("active")


def test_arrows_walk_along_the_segments_and_enter_chooses_one(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit/segments")
    bars = page.get_by_role("region", name="Segments").get_by_role("button", name="seqno")
    bars.last.focus()
    page.keyboard.press("Home")
    expect(bars.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(bars.nth(1)).to_have_attribute("aria-current", "true")


def test_cursors_are_listed_with_their_lag(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit/cursors")
    row = page.get_by_role("table", name="Cursors").get_by_role("row").filter(has_text="yearly-report")
    expect(row).to_contain_text("1,500")
    end = page.get_by_role("table", name="Cursors").get_by_role("row").filter(has_text="archive")
    expect(end).to_contain_text("0")


def test_a_cursor_is_moved_to_a_seqno(visitor: Visitor, shop: Scene) -> None:
    name = make_topic(shop, "moved", records=20)
    shop.node.call("PUT", f"/topics/{name}/cursors/reader", {"seqno": 3})
    page = visitor.visit(shop.url, f"#/topics/{name}/cursors")
    page.get_by_role("button", name="Move", exact=True).click()
    dialog = page.get_by_role("dialog", name="Move cursor reader")
    dialog.get_by_label("Seqno").fill("12")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog).to_have_count(0)
    assert shop.node.ask(f"/topics/{name}/cursors/reader")["seqno"] == 12
    expect(page.get_by_role("table", name="Cursors").get_by_role("row").filter(has_text="reader")).to_contain_text("8")


def test_a_cursor_is_not_moved_past_the_end(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("/cursors/reader")
    name = make_topic(shop, "moved.too.far", records=20)
    shop.node.call("PUT", f"/topics/{name}/cursors/reader", {"seqno": 3})
    page = visitor.visit(shop.url, f"#/topics/{name}/cursors")
    page.get_by_role("button", name="Move", exact=True).click()
    dialog = page.get_by_role("dialog", name="Move cursor reader")
    dialog.get_by_label("Seqno").fill("1000")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert shop.node.ask(f"/topics/{name}/cursors/reader")["seqno"] == 3


def test_a_cursor_is_deleted_after_a_question(visitor: Visitor, shop: Scene) -> None:
    name = make_topic(shop, "forgotten", records=5)
    for cursor in ("kept", "left"):
        shop.node.call("PUT", f"/topics/{name}/cursors/{cursor}", {"seqno": 1})
    page = visitor.visit(shop.url, f"#/topics/{name}/cursors")
    row = page.get_by_role("table", name="Cursors").get_by_role("row").filter(has_text="left")
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    assert cursor_row_names(page) == ["kept"]
    assert [cursor["cursor"] for cursor in shop.node.ask(f"/topics/{name}/cursors")["cursors"]] == ["kept"]


def test_only_the_settings_that_changed_are_saved(visitor: Visitor, shop: Scene) -> None:
    name = make_topic(shop, "changed")
    page = visitor.visit(shop.url, f"#/topics/{name}/settings")
    form = page.get_by_role("form", name="Settings")
    form.get_by_label("retention.bytes", exact=True).fill("10 GiB")
    form.get_by_label("retention.age_ms", exact=True).fill("7 d")
    form.get_by_label("flush.policy", exact=True).select_option("interval")
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        form.get_by_role("button", name="Save").click()
    assert sent.value.post_data_json == {
        "settings": {"retention": {"bytes": 10 * 2**30, "age_ms": 7 * 86_400_000}, "flush": {"policy": "interval"}}
    }
    expect(page.get_by_text("Saved: ")).to_be_visible()
    expect(form.get_by_role("button", name="Save")).to_be_disabled()
    assert shop.node.ask(f"/topics/{name}")["settings"]["retention"]["bytes"] == 10 * 2**30


def test_a_setting_that_stands_alone_is_set_and_taken_back(visitor: Visitor, shop: Scene) -> None:
    name = make_topic(shop, "said")
    page = visitor.visit(shop.url, f"#/topics/{name}/settings")
    form = page.get_by_role("form", name="Settings")
    for chosen, sent in (("msgpack", "msgpack"), ("", None)):
        form.get_by_label("value", exact=True).select_option(chosen)
        with page.expect_request(lambda request: request.method == "PATCH") as asked:
            form.get_by_role("button", name="Save").click()
        assert asked.value.post_data_json == {"settings": {"value": sent}}
        expect(form.get_by_role("button", name="Save")).to_be_disabled()
        assert shop.node.ask(f"/topics/{name}")["settings"].get("value") == sent


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("segment.bytes", "1", "Allowed are"),
        ("segment.bytes", "much", "much"),
        ("retention.age_ms", "-4", "4"),
        ("recompression.min_gain", "7", "Allowed are"),
    ],
)
def test_a_bad_setting_is_explained_at_its_field_and_changes_nothing(
    visitor: Visitor, shop: Scene, key: str, value: str, reason: str
) -> None:
    before = shop.node.ask("/topics/drafts")["settings"]
    page = visitor.visit(shop.url, "#/topics/drafts/settings")
    form = page.get_by_role("form", name="Settings")
    control = form.get_by_label(key, exact=True)
    control.fill(value)
    form.get_by_role("button", name="Save").click()
    expect(control).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_role("status").filter(has_text=reason).first).to_be_visible()
    assert shop.node.ask("/topics/drafts")["settings"] == before
    form.get_by_role("button", name="Undo").click()
    expect(control).not_to_have_attribute("aria-invalid", "true")


def test_what_only_the_node_can_judge_is_explained_at_its_field_too(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("/topics/drafts")
    page = visitor.visit(shop.url, "#/topics/drafts/settings")
    form = page.get_by_role("form", name="Settings")
    control = form.get_by_label("validators.urls", exact=True)
    control.fill("no address at all")
    form.get_by_role("button", name="Save").click()
    expect(control).to_have_attribute("aria-invalid", "true")
    assert shop.node.ask("/topics/drafts")["settings"]["validators"]["urls"] == []


def test_a_topic_stops_taking_writes_and_takes_them_again(visitor: Visitor, shop: Scene) -> None:
    name = make_topic(shop, "stopped")
    page = visitor.visit(shop.url, f"#/topics/{name}/settings")
    page.get_by_role("region", name="Writes").get_by_role("button", name="Stop taking writes").click()
    dialog = page.get_by_role("dialog", name="Stop taking writes")
    dialog.get_by_label("Reason").fill("stocktaking")
    dialog.get_by_role("button", name="Stop taking writes").click()
    again = page.get_by_role("region", name="Writes").get_by_role("button", name="Take writes again")
    expect(again).to_be_visible()
    assert "stocktaking" in shop.node.ask(f"/topics/{name}")["refused"]
    again.click()
    expect(again).to_have_count(0)
    assert shop.node.ask(f"/topics/{name}")["refused"] is None


def test_why_a_topic_takes_no_writes_stands_at_its_head(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/payments")
    expect(page.get_by_text(REFUSAL).first).to_be_visible()


def test_a_trim_is_asked_about_and_then_done(visitor: Visitor, shop: Scene) -> None:
    name = make_topic(shop, "trimmed", records=30, partitions=2)
    page = visitor.visit(shop.url, f"#/topics/{name}/settings")
    region = page.get_by_role("region", name="Trim")
    region.get_by_label("Partition").select_option("0")
    region.get_by_label("Below seqno").fill("10")
    region.get_by_role("button", name="Trim").click()
    dialog = page.get_by_role("dialog", name=f"Trim {name}")
    expect(dialog).to_contain_text("10 records")
    assert shop.node.ask(f"/topics/{name}")["partitions"][0]["first"] == 0
    dialog.get_by_role("button", name="Trim", exact=True).click()
    expect(dialog).to_have_count(0)
    assert shop.node.ask(f"/topics/{name}")["partitions"][0]["first"] == 10


def test_a_topic_is_deleted_only_by_typing_its_name(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("/topics/doomed")
    name = make_topic(shop, "doomed", records=3)
    page = visitor.visit(shop.url, f"#/topics/{name}/settings")
    page.get_by_role("button", name="Delete topic").click()
    dialog = page.get_by_role("dialog", name=f"Delete {name}")
    delete = dialog.get_by_role("button", name="Delete forever")
    expect(delete).to_be_disabled()
    dialog.get_by_label("Type the topic's name").fill("doome")
    expect(delete).to_be_disabled()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Type the topic's name").fill(name)
    delete.click()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    assert name not in [topic["name"] for topic in shop.node.ask("/topics")["topics"]]
