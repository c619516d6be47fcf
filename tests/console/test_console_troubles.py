"""What the page says when no answer comes, when it is not the node's, or when the topic is another one by now."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from support.browser.scenes import Scene
from support.browser.visitor import Visitor

HTML = "<!doctype html><title>Sign in</title>"
UNKNOWN = "may have been done or not"


def make_topic(scene: Scene, name: str, records: int = 3) -> str:
    scene.node.call("POST", "/topics", {"name": name})
    scene.node.call("POST", f"/topics/{name}/records", [{"value": f"record {number}"} for number in range(records)])
    return name


def topic_names(scene: Scene) -> list[str]:
    return [topic["name"] for topic in scene.node.ask("/topics")["topics"]]


def everything_but_the_page(page: Page, scene: Scene, answer: int) -> None:
    """Something between the page and the node answers in its place."""

    def stand_in(route: Route) -> None:
        route.fulfill(status=answer, content_type="text/html", body=HTML)

    page.route(lambda url: not url.startswith(f"{scene.url}/console/"), stand_in)


@pytest.mark.parametrize("status", [200, 401, 502, 503])
def test_a_proxy_that_answers_in_the_nodes_place_is_not_taken_for_the_node(
    visitor: Visitor, shop: Scene, status: int
) -> None:
    visitor.expect(r"refused: GET|console error: Failed to load resource")
    page = visitor.visit(shop.url)
    everything_but_the_page(page, shop, status)
    banner = page.get_by_role("status").filter(has_text="What you see is how it was")
    expect(banner).to_contain_text(f"something else answered {status} in its place")
    expect(page.locator(".notice.trouble")).to_have_count(0)
    page.unroute_all()
    expect(banner).to_be_hidden()


def test_of_a_write_without_an_answer_it_is_said_that_nobody_knows(visitor: Visitor, shop: Scene) -> None:
    visitor.expect(r"net::ERR_FAILED")
    name = make_topic(shop, "unanswered")
    page = visitor.visit(shop.url, f"#/topics/{name}")
    page.route(f"**/topics/{name}/records?as=record", lambda route: route.abort())
    page.get_by_role("button", name="Write a record").click()
    dialog = page.get_by_role("dialog", name="Write a record")
    dialog.get_by_label("Value", exact=True).fill("lost?")
    dialog.get_by_role("button", name="Write", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text(UNKNOWN)
    expect(dialog.get_by_label("Value", exact=True)).to_have_value("lost?")


def test_a_body_that_breaks_off_is_a_node_that_is_gone(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("/stats")
    page = visitor.visit(shop.url)
    script = """async () => {
      const { get, Lost } = await import("/console/node/api.js");
      const real = window.fetch;
      const broken = () => new ReadableStream({ start: (stream) => stream.error(new TypeError("network error")) });
      window.fetch = async () => new Response(broken(), { headers: { "content-type": "application/json" } });
      try { await get("/stats"); } catch (error) { return error instanceof Lost; } finally { window.fetch = real; }
    }"""
    assert page.evaluate(script) is True


def test_a_write_does_not_make_a_topic_anew_that_was_deleted_meanwhile(visitor: Visitor, shop: Scene) -> None:
    visitor.expect("/topics/vanished")
    visitor.expect("status of 404")
    name = make_topic(shop, "vanished")
    page = visitor.visit(shop.url, f"#/topics/{name}")
    page.get_by_role("button", name="Write a record").click()
    dialog = page.get_by_role("dialog", name="Write a record")
    dialog.get_by_label("Value", exact=True).fill("too late")
    shop.node.call("DELETE", f"/topics/{name}")
    expect(page.get_by_role("main")).to_contain_text("This topic was deleted")
    dialog.get_by_role("button", name="Write", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("was deleted meanwhile")
    assert name not in topic_names(shop)


@pytest.mark.parametrize("tab", ["cursors", "settings"])
def test_what_was_confirmed_for_one_topic_is_not_done_to_the_next_of_its_name(
    visitor: Visitor, shop: Scene, tab: str
) -> None:
    visitor.expect("/topics/successor")
    visitor.expect("status of 4")
    name = make_topic(shop, f"successor.{tab}", 10)
    shop.node.call("PUT", f"/topics/{name}/cursors/reader", {"seqno": 1})
    page = visitor.visit(shop.url, f"#/topics/{name}/{tab}")
    if tab == "settings":
        page.get_by_role("region", name="Trim").get_by_label("Below seqno").fill("5")
        page.get_by_role("region", name="Trim").get_by_role("button", name="Trim").click()
        button = page.get_by_role("dialog").get_by_role("button", name="Trim", exact=True)
    else:
        page.get_by_role("button", name="Delete", exact=True).click()
        button = page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True)
    expect(button).to_be_visible()
    shop.node.call("DELETE", f"/topics/{name}")
    make_topic(shop, name, 10)
    shop.node.call("PUT", f"/topics/{name}/cursors/reader", {"seqno": 1})
    button.click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("made anew meanwhile")
    assert shop.node.ask(f"/topics/{name}")["partitions"][0]["first"] == 0
    assert shop.node.ask(f"/topics/{name}/cursors/reader")["seqno"] == 1


def test_a_topic_whose_dialog_was_left_while_it_was_deleted_is_said_to_be_deleted(
    visitor: Visitor, shop: Scene
) -> None:
    visitor.expect("/topics/hurried")
    name = make_topic(shop, "hurried")
    held: list[Route] = []
    page = visitor.visit(shop.url, f"#/topics/{name}/settings")
    page.route(
        f"**/topics/{name}?topic_id=*",
        lambda route: held.append(route) if route.request.method == "DELETE" else route.continue_(),
    )
    page.get_by_role("button", name="Delete topic").click()
    dialog = page.get_by_role("dialog", name=f"Delete {name}")
    dialog.get_by_label("Type the topic's name").fill(name)
    with page.expect_request(lambda request: request.method == "DELETE"):
        dialog.get_by_role("button", name="Delete forever").click()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    held[0].continue_()
    expect(page.get_by_text(f"Deleted: {name}")).to_be_visible()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()


def test_what_fails_after_its_dialog_was_left_is_told(visitor: Visitor, shop: Scene) -> None:
    visitor.expect(r"/refuse|net::ERR_FAILED")
    held: list[Route] = []
    page = visitor.visit(shop.url)
    page.route("**/refuse", lambda route: held.append(route))
    page.get_by_role("button", name="Stop taking writes").click()
    with page.expect_request("**/refuse"):
        page.get_by_role("dialog").get_by_role("button", name="Stop taking writes").click()
    page.keyboard.press("Escape")
    held[0].abort()
    expect(page.locator(".notice.trouble")).to_contain_text(UNKNOWN)


def test_a_dialog_stays_when_text_is_selected_beyond_its_edge(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("button", name="New topic").click()
    name = page.get_by_role("dialog").get_by_label("Name", exact=True)
    name.fill("half.typed")
    box = name.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(5, box["y"] + 10)
    page.mouse.up()
    expect(name).to_have_value("half.typed")
    page.mouse.click(5, 400)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_dialog_goes_with_the_view_that_it_belongs_to(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("region", name="Topics").get_by_role("link", name="drafts", exact=True).click()
    page.get_by_role("button", name="Write a record").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_attached()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_what_is_said_already_is_not_said_again_beside_it(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    script = """async () => {
      const { notice } = await import("/console/page/dialog.js");
      for (let time = 0; time < 5; time += 1) notice("the same", "trouble");
      notice("another", "trouble");
    }"""
    page.evaluate(script)
    expect(page.locator(".notice")).to_have_text(["the same", "another"])


def test_a_search_that_was_typed_does_not_lead_back_from_where_one_went(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    script = """() => {
      const search = document.querySelector("[data-search]");
      search.value = "ord";
      search.dispatchEvent(new Event("input", { bubbles: true }));
      location.hash = "#/topics/drafts";
    }"""
    page.evaluate(script)
    expect(page.get_by_role("heading", level=1)).to_have_text("drafts")
    with page.expect_response(lambda response: response.url.endswith("/stats")):
        pass
    with page.expect_response(lambda response: response.url.endswith("/stats")):
        pass
    assert page.url.endswith("#/topics/drafts")


def test_another_node_at_the_same_address_is_shown_from_the_start(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    stats = {**shop.node.ask("/stats"), "node_id": "f" * 32}
    page.route("**/stats", lambda route: route.fulfill(json=stats))
    with page.expect_event("domcontentloaded"):
        pass
    expect(page.get_by_label("This node")).to_contain_text("f" * 8)


def test_a_page_that_somebody_types_in_is_not_loaded_anew(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    page.get_by_role("button", name="New topic").click()
    name = page.get_by_role("dialog").get_by_label("Name", exact=True)
    name.fill("half.typed")
    stats = {**shop.node.ask("/stats"), "version": "99.0"}
    page.route("**/stats", lambda route: route.fulfill(json=stats))
    expect(page.get_by_label("This node")).to_contain_text("99.0")
    expect(name).to_have_value("half.typed")
    with page.expect_event("domcontentloaded"):
        page.keyboard.press("Escape")
