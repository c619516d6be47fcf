"""Records: found, shown in every form, written."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from support.browser.scenes import Scene
from support.browser.visitor import Visitor, wait_until_ready
from support.nodes.console import HTTP_S


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Records").locator("tbody").get_by_role("row")


def find(page: Page, **fields: str) -> None:
    """Fill the form by its labels and send it."""
    form = page.get_by_role("search", name="Find records")
    for label, text in fields.items():
        form.get_by_label(label, exact=True).fill(text)
    form.get_by_role("button", name="Find", exact=True).click()


def records(scene: Scene, topic: str, **query: str | int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.node.ask(f"/topics/{topic}/records", **query)["records"]
    return found


def make_topic(scene: Scene, name: str, partitions: int = 1) -> str:
    scene.node.call("POST", "/topics", {"name": name, "partitions": partitions})
    return name


def open_writing(page: Page) -> Locator:
    page.get_by_role("button", name="Write a record").click()
    return page.get_by_role("dialog", name="Write a record")


def test_the_newest_record_is_at_the_top(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit")
    expect(rows(page).first).to_contain_text("1,499")


def test_a_seqno_is_found(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit")
    find(page, From="700")
    expect(rows(page).filter(has_text="700").first).to_be_visible()


def test_a_tag_leaves_only_its_records(visitor: Visitor, shop: Scene) -> None:
    wanted = records(shop, "app.log", tag="error", limit=20, **{"from": "earliest"})
    page = visitor.visit(shop.url, "#/topics/app.log")
    find(page, From="earliest", Tag="error")
    expect(rows(page).filter(has_text=f"{wanted[0]['seqno']:,}").first).to_be_visible()
    expect(rows(page).filter(has_text="INFO")).to_have_count(0)


def test_a_channel_pattern_leaves_only_what_it_matches(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/sensors.temperature")
    find(page, From="earliest", Channel="site/7/+")
    expect(rows(page).filter(has_text="site/7/temperature").first).to_be_visible()
    expect(rows(page).filter(has_text="site/8/temperature")).to_have_count(0)


def test_a_key_leaves_only_its_records(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/pictures.thumbnails")
    find(page, From="earliest", Key="picture-17")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("picture-17")


def test_a_search_is_in_the_address_and_outlives_a_reload(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/pictures.thumbnails")
    find(page, From="earliest", Key="picture-17")
    expect(rows(page)).to_have_count(1)
    page.reload()
    wait_until_ready(page)
    expect(rows(page)).to_have_count(1)
    page.get_by_role("search", name="Find records").get_by_role("button", name="Clear").click()
    expect(rows(page).nth(5)).to_be_visible()


def test_a_partition_can_be_looked_at_by_itself(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders")
    page.get_by_role("search", name="Find records").get_by_label("Partition").select_option("2")
    page.get_by_role("search", name="Find records").get_by_role("button", name="Find", exact=True).click()
    end = shop.node.ask("/topics/orders")["partitions"][2]["committed"]
    expect(rows(page).first).to_contain_text(f"{end - 1:,}")


def test_a_place_that_cannot_be_is_explained(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("/topics/audit/records")
    page = visitor.visit(shop.url, "#/topics/audit")
    find(page, From="the day before yesterday or so")
    expect(page.get_by_role("alert").first).to_be_visible()


def test_a_record_is_shown_whole_in_every_form(visitor: Visitor, shop: Scene) -> None:
    record = records(shop, "audit", limit=1, **{"from": 3})[0]
    page = visitor.visit(shop.url, "#/topics/audit?partition=0&seqno=3")
    dialog = page.get_by_role("dialog", name="Record 0/3", exact=True)
    for text in (record["key"], record["channel"], *record["tags"], "trace-id"):
        expect(dialog.get_by_text(text, exact=True).first).to_be_visible()
    dialog.get_by_role("button", name="Text", exact=True).click()
    expect(dialog).to_contain_text('"customer"')
    dialog.get_by_role("button", name="JSON", exact=True).click()
    expect(dialog.get_by_role("button", name="JSON", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(dialog).to_contain_text("customer")
    dialog.get_by_role("button", name="Hex", exact=True).click()
    expect(dialog).to_contain_text("7b 22")


def test_a_value_is_copied_as_it_is(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit?partition=0&seqno=3")
    dialog = page.get_by_role("dialog", name="Record 0/3", exact=True)
    dialog.get_by_role("button", name="Text", exact=True).click()
    dialog.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("opied").first).to_be_visible()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert json.loads(copied)["order"] == 100_003


def test_the_records_beside_it_are_a_button_away(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit?partition=0&seqno=3")
    page.get_by_role("dialog").get_by_role("button", name="Next record").click()
    expect(page.get_by_role("dialog", name="Record 0/4", exact=True)).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Previous record").click()
    expect(page.get_by_role("dialog", name="Record 0/3", exact=True)).to_be_visible()


def test_a_record_opens_from_its_row_and_escape_leads_back(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit")
    rows(page).first.click()
    expect(page.get_by_role("dialog", name="Record 0/1499", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_download_holds_the_exact_bytes(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/pictures.thumbnails?partition=0&seqno=5")
    with page.expect_download() as begun:
        page.get_by_role("dialog").get_by_role("link", name="Download").click()
    assert begun.value.path().read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_tombstone_is_said_to_be_one(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/customers")
    find(page, From="earliest", Tag="erased")
    expect(rows(page).first).to_contain_text("ombstone")


def test_a_record_is_written_with_everything_it_can_have(visitor: Visitor, shop: Scene) -> None:
    topic = make_topic(shop, "written")
    page = visitor.visit(shop.url, f"#/topics/{topic}")
    dialog = open_writing(page)
    dialog.get_by_label("Value", exact=True).fill("grüße 👋")
    dialog.get_by_label("Key", exact=True).fill("kitchen")
    dialog.get_by_label("Channel", exact=True).fill("site/7/temp")
    dialog.get_by_label("Tags", exact=True).fill("red, green")
    dialog.get_by_label("Headers", exact=True).fill("trace: 17\nkind: test")
    dialog.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_text(f"Written: {topic}/0 seqno 0")).to_be_visible()
    (record,) = records(shop, topic, **{"from": "earliest"})
    assert (record["value"], record["key"], record["channel"]) == ("grüße 👋", "kitchen", "site/7/temp")
    assert record["tags"] == ["red", "green"]
    assert [tuple(header) for header in record["headers"]] == [("trace", "17"), ("kind", "test")]
    expect(rows(page).first).to_contain_text("grüße 👋")


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("JSON", '{"a": [1, 2.50]}', b'{"a": [1, 2.50]}'),
        ("Base64", "AP8Q", b"\x00\xff\x10"),
        ("Hex", "00 ff 10", b"\x00\xff\x10"),
    ],
    ids=["json", "base64", "hex"],
)
def test_a_value_is_written_in_any_form(visitor: Visitor, shop: Scene, form: str, text: str, value: bytes) -> None:
    topic = make_topic(shop, f"written.as.{form}")
    page = visitor.visit(shop.url, f"#/topics/{topic}")
    dialog = open_writing(page)
    dialog.get_by_label("As", exact=True).select_option(label=form)
    dialog.get_by_label("Value", exact=True).fill(text)
    dialog.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_text(f"Written: {topic}/0 seqno 0")).to_be_visible()
    stored = page.request.get(f"{shop.url}/topics/{topic}/records/0/value").body()
    assert json.loads(stored) == json.loads(value) if form == "JSON" else stored == value


@pytest.mark.parametrize(
    ("form", "text"), [("JSON", '{"a": '), ("Base64", "###"), ("Hex", "0g")], ids=["json", "base64", "hex"]
)
def test_a_value_that_is_not_of_its_form_is_not_written(visitor: Visitor, shop: Scene, form: str, text: str) -> None:
    topic = make_topic(shop, f"refused.as.{form}")
    page = visitor.visit(shop.url, f"#/topics/{topic}")
    dialog = open_writing(page)
    dialog.get_by_label("As", exact=True).select_option(label=form)
    dialog.get_by_label("Value", exact=True).fill(text)
    dialog.get_by_role("button", name="Write", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert shop.node.ask(f"/topics/{topic}")["partitions"][0]["committed"] == 0


def test_a_tombstone_is_written_to_the_partition_that_was_chosen(visitor: Visitor, shop: Scene) -> None:
    topic = make_topic(shop, "written.tombstone", partitions=3)
    page = visitor.visit(shop.url, f"#/topics/{topic}")
    dialog = open_writing(page)
    dialog.get_by_label("As", exact=True).select_option(label="Tombstone")
    dialog.get_by_label("Key", exact=True).fill("gone")
    dialog.get_by_label("Partition", exact=True).select_option("2")
    dialog.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_text(f"Written: {topic}/2 seqno 0")).to_be_visible()
    (record,) = records(shop, topic, partition=2, **{"from": "earliest"})
    assert (record["key"], record["value"]) == ("gone", None)


LIKE_BYTES = (b'{"base64":5}', b'{"base64":"!!"}', b'{"base64":"aGVsbG8="}', b'{"base64":"AA==","b":"AA=="}', b"null")


def test_values_that_look_like_what_the_api_makes_of_bytes_are_listed_as_they_are(
    visitor: Visitor, shop: Scene
) -> None:
    topic = make_topic(shop, "like.bytes")
    made = [{"value": {"base64": base64.b64encode(value).decode()}} for value in (*LIKE_BYTES, b"\xff\xfe")]
    shop.node.call("POST", f"/topics/{topic}/records", made)
    page = visitor.visit(shop.url, f"#/topics/{topic}?from=earliest")
    shown = rows(page).locator("td.value")
    expect(shown).to_have_text([*(value.decode() for value in LIKE_BYTES), r"\xff\xfe"])


def test_a_time_is_found(visitor: Visitor, shop: Scene) -> None:
    topic = make_topic(shop, "timed")
    made = [{"value": f"at {hour}", "timestamp": f"2026-01-31T{hour:02}:00:00Z"} for hour in range(10)]
    shop.node.call("POST", f"/topics/{topic}/records", made)
    page = visitor.visit(shop.url, f"#/topics/{topic}")
    find(page, From="2026-01-31 06:30Z")
    expect(rows(page).locator("td.value")).to_have_text(["at 7", "at 8", "at 9"])


def test_json_is_folded_and_unfolded(visitor: Visitor, shop: Scene) -> None:
    topic = make_topic(shop, "folded")
    value = {"outer": {"middle": {"inner": "hidden at first"}}, "list": list(range(450))}
    shop.node.call("POST", f"/topics/{topic}/records", {"value": value})
    page = visitor.visit(shop.url, f"#/topics/{topic}?seqno=0")
    tree = page.get_by_role("dialog").get_by_role("group", name="Value as JSON")
    expect(tree.locator(".string", has_text="hidden at first")).to_have_count(0)
    tree.locator("summary", has_text="middle").last.click()
    expect(tree.locator(".string", has_text="hidden at first")).to_be_visible()
    tree.locator("summary", has_text="middle").last.click()
    expect(tree.locator(".string", has_text="hidden at first")).to_be_hidden()
    entries = tree.locator("details", has=page.locator("summary", has_text="list")).last.locator(".leaf")
    expect(entries).to_have_count(200)
    tree.get_by_role("button", name="Show more").click()
    expect(entries).to_have_count(400)
    tree.get_by_role("button", name="Show more").click()
    expect(entries).to_have_count(450)


@pytest.mark.parametrize(
    ("said", "value", "view"),
    [
        ("msgpack", msgspec.msgpack.encode({"celsius": 21.5}), "JSON"),
        ("msgpack", b"\xc1", "Hex"),
        ("json", b"21.5", "JSON"),
        ("json", b"no JSON", "Text"),
        ("text", b'{"celsius": 21.5}', "Text"),
        ("bytes", b"text", "Hex"),
    ],
)
def test_a_value_is_shown_as_its_topic_says_and_as_it_is_where_that_is_wrong(
    visitor: Visitor, shop: Scene, said: str, value: bytes, view: str
) -> None:
    topic = f"said.{said}.{value.hex()}"
    shop.node.call("POST", "/topics", {"name": topic, "settings": {"value": said}})
    shop.node.call("POST", f"/topics/{topic}/records", {"value": {"base64": base64.b64encode(value).decode()}})
    page = visitor.visit(shop.url, f"#/topics/{topic}?seqno=0")
    shown = page.get_by_role("dialog").get_by_role("button", name=view, exact=True)
    expect(shown).to_have_attribute("aria-pressed", "true")
    if said == "msgpack" and view == "JSON":
        expect(page.get_by_role("dialog").get_by_role("group", name="Value as JSON")).to_contain_text("celsius")


@pytest.mark.parametrize("form", ["JSON", "Hex"])
def test_a_value_is_copied_in_the_form_that_is_shown(visitor: Visitor, shop: Scene, form: str) -> None:
    value = page_value(shop)
    page = visitor.visit(shop.url, "#/topics/audit?partition=0&seqno=3")
    dialog = page.get_by_role("dialog", name="Record 0/3", exact=True)
    dialog.get_by_role("button", name=form, exact=True).click()
    dialog.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("Copied: ")).to_be_visible()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == value.hex() if form == "Hex" else json.loads(copied) == json.loads(value)


def page_value(scene: Scene) -> bytes:
    return httpx.get(f"{scene.url}/topics/audit/records/3/value", timeout=HTTP_S, verify=False).content


def test_where_the_browser_has_no_clipboard_for_the_page_a_value_is_copied_all_the_same(
    visitor: Visitor, shop: Scene
) -> None:
    page = visitor.visit(shop.url, "#/topics/audit")
    page.evaluate("() => { window.kept = navigator.clipboard.readText.bind(navigator.clipboard); }")
    page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    rows(page).nth(2).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Text", exact=True).click()
    copy = dialog.get_by_role("button", name="Copy", exact=True)
    copy.click()
    expect(page.get_by_text("Copied: ")).to_be_visible()
    assert json.loads(page.evaluate("() => window.kept()"))
    expect(copy).to_be_focused()


def test_a_download_is_named_after_its_record(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit?partition=0&seqno=5")
    with page.expect_download() as begun:
        page.get_by_role("dialog").get_by_role("link", name="Download").click()
    assert begun.value.suggested_filename.rpartition(".")[0] == "audit-0-5"


def test_a_partition_that_is_not_there_is_said_not_to_be(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/orders?partition=99")
    expect(page.get_by_role("alert").filter(has_text="There is no partition 99.")).to_be_visible()


def test_a_name_that_no_topic_can_have_is_said_to_be_none(visitor: Visitor, shop: Scene) -> None:
    visitor.expect(r"/topics/%25zz")
    page = visitor.visit(shop.url, "#/topics/%zz")
    expect(page.get_by_role("main")).to_contain_text("There is no topic of this name")


def test_bytes_that_are_half_text_are_shown_in_pieces_that_a_browser_can_bear(visitor: Visitor, shop: Scene) -> None:
    topic = make_topic(shop, "half.text")
    value = base64.b64encode(b"a\xff" * 100_000).decode()
    shop.node.call("POST", f"/topics/{topic}/records", [{"value": {"base64": value}}])
    page = visitor.visit(shop.url, f"#/topics/{topic}?seqno=0")
    page.get_by_role("dialog").get_by_role("button", name="Text", exact=True).click()
    shown = page.get_by_role("group", name="Value as text").locator("span")
    assert 500 < shown.count() < 5_000
    page.get_by_role("button", name="Show more").click()
    assert shown.count() > 1_500
