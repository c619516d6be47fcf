"""The frame around the views: landmarks, keys, addresses."""

from __future__ import annotations

from playwright.sync_api import expect

from support.browser.scenes import Scene
from support.browser.visitor import Visitor


def test_an_empty_node_has_a_page_with_a_heading_and_landmarks(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.get_by_role("banner")).to_be_visible()
    expect(page.get_by_role("main")).to_be_visible()
    expect(page.get_by_role("navigation", name="Console")).to_be_visible()
    expect(page).to_have_title("Overview · Logboom")


def test_the_node_is_named_on_the_page(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    expect(page.get_by_label("This node")).to_contain_text(empty.node.ask("/stats")["node_id"][:8])


def test_a_question_mark_shows_the_keys_and_escape_closes_them(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_first_tab_leads_past_the_navigation(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    expect(page.get_by_role("heading", level=1)).to_have_count(1)


def test_the_pipeline_has_its_place(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    page.get_by_role("navigation", name="Console").get_by_role("link", name="Pipeline").click()
    expect(page.get_by_role("heading", level=1, name="Pipeline")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()


def test_an_address_that_leads_nowhere_shows_the_overview(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, "#/no/such/place?x=%zz")
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()


def test_a_topic_that_is_not_there_is_said_to_be_missing(visitor: Visitor, empty: Scene) -> None:
    visitor.expect(r"/topics/nowhere\b.*")
    page = visitor.visit(empty.url, "#/topics/nowhere")
    expect(page.get_by_role("heading", level=1, name="nowhere")).to_be_visible()
    expect(page.get_by_text("There is no topic of this name")).to_be_visible()


def test_the_way_past_the_navigation_leaves_the_address_as_it_is(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, "#/pipeline")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/pipeline")


def test_an_address_of_another_kind_shows_the_overview(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, "#content")
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
