"""A page that is open for long, on many places: what it holds does not grow, and what has the focus keeps it."""

from __future__ import annotations

from playwright.sync_api import CDPSession, Page, expect

from support.browser.scenes import Scene
from support.browser.visitor import Visitor, wait_until_ready

PLACES = ("#/topics/orders", "#/topics/orders/segments", "#/topics/orders/cursors", "#/topics/orders/settings", "#/")
ROUNDS = 4
LEFT_NODES_MAX = 400
LEFT_LISTENERS_MAX = 100


def go(page: Page, place: str) -> None:
    page.evaluate("(place) => { document.documentElement.dataset.ready = 'false'; location.hash = place; }", place)
    wait_until_ready(page)


def count_held(session: CDPSession) -> tuple[int, int]:
    """Nodes and listeners that are still there when everything that can go has gone."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    found = session.send("Memory.getDOMCounters")
    return found["nodes"], found["jsEventListeners"]


def test_going_round_all_places_leaves_nothing_behind(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url)
    session = page.context.new_cdp_session(page)
    held = []
    for _ in range(ROUNDS):
        for place in PLACES:
            go(page, place)
        held.append(count_held(session))
    (nodes, listeners), (nodes_after, listeners_after) = held[0], held[-1]
    assert nodes_after - nodes < LEFT_NODES_MAX, held
    assert listeners_after - listeners < LEFT_LISTENERS_MAX, held


def test_turning_pages_of_records_leaves_nothing_behind(visitor: Visitor, shop: Scene) -> None:
    page = visitor.visit(shop.url, "#/topics/audit?from=earliest")
    session = page.context.new_cdp_session(page)
    held = []
    for _ in range(4):
        for way in ("Newer", "Newer", "Older", "Older"):
            before = page.url
            page.get_by_role("button", name=way, exact=True).click()
            expect(page).not_to_have_url(before)
            expect(page.get_by_role("button", name=way, exact=True)).to_be_visible()
        held.append(count_held(session))
    assert held[-1][0] - held[0][0] < LEFT_NODES_MAX, held
    assert held[-1][1] - held[0][1] < LEFT_LISTENERS_MAX, held


KEYED = """async (steps) => {
  const { keyed } = await import("/console/page/dom.js");
  const list = document.body.appendChild(document.createElement("ul"));
  const make = (name) => Object.assign(document.createElement("button"), { textContent: name });
  const seen = [];
  for (const names of steps) {
    keyed(list, names, (name) => name, make);
    seen.push([...list.children].map((each) => each.textContent).join(""));
    if (seen.length === 1) list.children[2].focus();
  }
  const focused = document.activeElement.textContent;
  list.remove();
  return [seen, focused];
}"""


def test_rows_come_in_their_order_and_keep_the_focus_when_they_move(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    steps = ["abc", "cab", "bca", "xcy", "c", "abcdef"]
    assert page.evaluate(KEYED, [list(step) for step in steps]) == [steps, "c"]


def test_two_rows_of_one_key_leave_nothing_behind(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    steps = ["aac", "aac", "ac", "aa", "c"]
    assert page.evaluate(KEYED, [list(step) for step in steps])[0] == steps
