"""The overview: topics searched, sorted, made; the node stopped from taking writes and let again."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from support.browser.scenes import SHOP, Scene
from support.browser.visitor import Visitor

REGIONS = ("Health", "Records", "Bytes", "Latency", "Limits", "Connections", "Recent troubles", "Topics")


def topics(page: Page) -> Locator:
    return page.get_by_role("region", name="Topics")


def names(page: Page) -> list[str]:
    return [text.strip() for text in topics(page).get_by_role("row").get_by_role("link").all_text_contents()]


@pytest.mark.parametrize("name", REGIONS)
def test_the_overview_has_every_part(visitor: Visitor, shop: Scene, name: str) -> None:
    page = visitor.visit(shop.url)
    expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()


def test_every_topic_is_listed(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    for kept in SHOP:
        expect(topics(page).get_by_role("link", name=kept.name, exact=True)).to_be_visible()


def test_the_busiest_topics_come_first_as_in_top(visitor: Visitor, busy: Scene) -> None:
    page = visitor.open(busy.url)
    with page.expect_response(lambda response: "/activity/topics?" in response.url) as answer:
        pass
    assert "sort=records_in&descending=true" in answer.value.url
    head = topics(page).get_by_role("columnheader").filter(has=page.get_by_role("button", name="In", exact=True))
    expect(head).to_have_attribute("aria-sort", "descending")
    assert page.url.endswith("#/")
    topics(page).get_by_role("button", name="Name", exact=True).click()
    expect(topics(page).get_by_role("row").get_by_role("link").first).to_have_text("app.log")
    assert names(page) == sorted(names(page))


def test_a_long_name_is_cut_in_the_middle(visitor: Visitor, busy: Scene) -> None:
    front = "a-very-long-name.of-a-topic.that-goes-on.and-on.with.temperature.measurements"
    wanted = [f"{front}.north", f"{front}.south"]
    for name in wanted:
        busy.node.call("POST", "/topics", {"name": name})
    try:
        page = visitor.visit(busy.url, "#/?search=very-long", width=900)
        links = topics(page).get_by_role("row").get_by_role("link")
        expect(links).to_have_text(wanted)
        for link, name in zip(links.all(), wanted, strict=True):
            expect(link).to_have_accessible_name(name)
            expect(link.locator(".back")).to_be_in_viewport(ratio=1)
            assert link.evaluate("each => each.firstElementChild.scrollWidth > each.firstElementChild.clientWidth")
            row = link.evaluate("each => each.closest('th').getBoundingClientRect().right")
            assert link.locator(".back").evaluate("each => each.getBoundingClientRect().right") <= row
    finally:
        for name in wanted:
            busy.node.call("DELETE", f"/topics/{name}")


def test_a_name_that_is_nearly_right_leads_to_the_one_that_is(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("404")
    page = visitor.visit(shop.url, "#/topics/ordres")
    page.get_by_role("main").get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="orders")).to_be_visible()


def test_the_page_of_the_api_leads_back(visitor: Visitor, shop: Scene) -> None:
    page = visitor.open(shop.url, "docs")
    page.get_by_role("link", name="Console").click()
    expect(topics(page)).to_be_visible()


def test_a_search_leaves_the_topics_whose_names_hold_all_words(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("searchbox", name="Search topics").fill("TEMP sens")
    expect(topics(page).get_by_role("row").get_by_role("link")).to_have_text(["sensors.temperature"])
    page.get_by_role("searchbox", name="Search topics").fill("")
    expect(topics(page).get_by_role("link", name="orders", exact=True)).to_be_visible()


def test_topics_are_sorted_by_the_column_that_was_clicked_and_turned_by_a_second_click(
    visitor: Visitor, shop: Scene
) -> None:
    page = visitor.visit(shop.url)
    button = topics(page).get_by_role("button", name="Size", exact=True)
    seen = []
    for _ in range(2):
        with page.expect_response(lambda response: "sort=size" in response.url) as answer:
            button.click()
        wanted = [topic["name"] for topic in answer.value.json()["topics"]]
        expect(topics(page).get_by_role("row").get_by_role("link")).to_have_text(wanted)
        seen.append(wanted)
    assert seen[0] == seen[1][::-1]


@pytest.mark.parametrize(
    ("column", "sort"),
    [("In", "records_in"), ("Out", "records_out"), ("Records", "records"), ("Newest", "newest"), ("Lag", "lag")],
)
def test_every_column_that_can_be_sorted_by_is(visitor: Visitor, shop: Scene, column: str, sort: str) -> None:
    page = visitor.visit(shop.url, "#/?sort=name")
    with page.expect_response(lambda response: f"sort={sort}&" in response.url) as answer:
        topics(page).get_by_role("button", name=column, exact=True).click()
    wanted = [topic["name"] for topic in answer.value.json()["topics"]]
    expect(topics(page).get_by_role("row").get_by_role("link")).to_have_text(wanted)
    head = topics(page).get_by_role("columnheader").filter(has=page.get_by_role("button", name=column, exact=True))
    expect(head).to_have_attribute("aria-sort", "descending")


def test_a_topic_opens_by_its_name(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    topics(page).get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="orders")).to_be_visible()


def test_internal_topics_are_shown_where_asked_for(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    expect(topics(page).get_by_role("link", name="_cursors", exact=True)).to_have_count(0)
    page.get_by_role("checkbox", name="Internal topics").check()
    expect(topics(page).get_by_role("link", name="_cursors", exact=True)).to_be_visible()


def test_a_topic_is_made_with_its_partitions(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog", name="New topic")
    dialog.get_by_label("Name", exact=True).fill("made.here")
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_have_count(0)
    assert len(shop.node.ask("/topics/made.here")["partitions"]) == 3


@pytest.mark.parametrize("name", ["orders", "_mine"])
def test_a_name_that_cannot_be_is_explained_in_the_dialog(visitor: Visitor, shop: Scene, name: str) -> None:
    visitor.expect(r"/topics\b.* 4\d\d|status of 4\d\d")
    page = visitor.visit(shop.url)
    before = shop.node.ask("/stats")["topics"]
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog", name="New topic")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert").filter(has_text=name)).to_be_visible()
    assert shop.node.ask("/stats")["topics"] == before


def test_a_name_with_a_space_is_not_even_sent(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog", name="New topic")
    dialog.get_by_label("Name", exact=True).fill("with space")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_label("Name", exact=True).and_(page.locator(":invalid"))).to_be_focused()


def test_the_node_stops_taking_writes_with_a_reason_and_takes_them_again(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("button", name="Stop taking writes").click()
    dialog = page.get_by_role("dialog", name="Stop taking writes")
    dialog.get_by_label("Reason").fill("moving house")
    dialog.get_by_role("button", name="Stop taking writes").click()
    expect(page.get_by_text("moving house").first).to_be_visible()
    assert "moving house" in shop.node.ask("/stats")["refused"]
    page.get_by_role("button", name="Take writes again").click()
    expect(page.get_by_role("button", name="Stop taking writes")).to_be_visible()
    assert shop.node.ask("/stats")["refused"] is None


def test_what_was_refused_is_among_the_troubles(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    expect(page.get_by_role("region", name="Recent troubles")).to_contain_text("WritesRefused")


def test_a_slash_goes_to_the_search(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search topics")).to_be_focused()
