"""Groups of consumers on the console: seen, with their members and lags, reset and deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import audit
from support.browser import hostile as texts
from support.browser.scenes import Scene
from support.browser.visitor import Visitor
from support.nodes.console import ConsoleNode

GROUPS = "#/groups"
SESSION_MS = 3_600_000
ODD = "a:b/c/" + "d" * 200
A, B = "member-a-0123456789", "member-b-0123456789"


@pytest.fixture(scope="module")
def team(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Topics with ten records in each of two partitions, and nobody who reads them."""
    with ConsoleNode(tmp_path_factory.mktemp("node")) as node:
        for topic in ("orders", "returns"):
            node.call("POST", "/topics", {"name": topic, "partitions": 2})
            for partition in (0, 1):
                node.call("POST", f"/topics/{topic}/records", list(range(10)), {"partition": partition})
        yield Scene(node)


def join(scene: Scene, group: str, member: str = A, topics: str = "orders", client: str = "") -> None:
    body = {"topics": topics, "member": member, "session_ms": SESSION_MS, "client": client or "a test"}
    scene.node.call("POST", f"/groups/{group}/members", body)


def poll(scene: Scene, group: str, member: str = A, limit: int = 1_000) -> None:
    """Read some, and commit it."""
    where = f"/groups/{group}/members/{member}"
    page = scene.node.call("POST", f"{where}/poll", {}, {"limit": limit})
    scene.node.call("POST", f"{where}/commit", {"next": page["next"]})


def place(scene: Scene, group: str, to: str = "earliest", topics: str = "orders") -> None:
    scene.node.call("POST", f"/groups/{group}/reset", {"topics": topics, "to": to})


def seqnos(scene: Scene, group: str) -> list[int]:
    return [log["seqno"] for log in scene.node.ask(f"/groups/{group}")["logs"]]


def row(page: Page, table: str, text: str) -> Locator:
    return page.get_by_role("table", name=table).locator("tbody").get_by_role("row").filter(has_text=text)


def test_groups_are_listed_and_lead_to_their_members_and_logs(visitor: Visitor, team: Scene) -> None:
    join(team, "billing", A, client="biller 2.1")
    poll(team, "billing")
    place(team, "idle", "latest")
    page = visitor.visit(team.url)
    page.get_by_role("navigation", name="Console").get_by_role("link", name="Groups").click()
    found = row(page, "Groups", "billing")
    for text in ("stable", "1", "2"):
        expect(found).to_contain_text(text)
    expect(row(page, "Groups", "idle")).to_contain_text("empty")
    found.get_by_role("link", name="billing").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("billing")
    member = row(page, "Members", A)
    for text in ("biller 2.1", "anonymous", "127.0.0.1"):
        expect(member).to_contain_text(text)
    log = row(page, "Logs", "orders/1")
    for text in (A, "10", "0"):
        expect(log).to_contain_text(text)
    expect(page.get_by_role("region", name="Lag")).to_be_visible()


def test_who_joins_and_what_is_asked_back_is_seen_as_it_happens(visitor: Visitor, team: Scene) -> None:
    join(team, "moving", A)
    poll(team, "moving")
    page = visitor.visit(team.url, "#/groups/moving")
    join(team, "moving", B)
    expect(row(page, "Members", B)).to_be_visible()
    asked = page.get_by_text("asked back").locator("visible=true")
    expect(asked).to_have_count(1)
    poll(team, "moving", A)
    poll(team, "moving", B)
    expect(asked).to_have_count(0)
    expect(row(page, "Logs", B)).to_have_count(1)


def test_a_group_is_reset_after_a_look_at_where_it_would_go(visitor: Visitor, team: Scene) -> None:
    place(team, "replay", "latest")
    page = visitor.visit(team.url, "#/groups/replay")
    page.get_by_role("button", name="Reset").click()
    dialog = page.get_by_role("dialog", name="Reset group replay")
    expect(dialog.get_by_label("Topics")).to_have_value("orders")
    dialog.get_by_label("Topics").fill("orders/1")
    dialog.get_by_label("To", exact=True).select_option(label="A time, or a seqno of one log")
    dialog.get_by_label("Time or seqno").fill("3")
    dialog.get_by_role("button", name="Preview").click()
    shown = dialog.get_by_role("table", name="Where it would go").locator("tbody")
    expect(shown.get_by_role("cell")).to_have_text(["orders/1", "10", "3"])
    assert seqnos(team, "replay") == [10, 10]
    dialog.get_by_role("button", name="Reset", exact=True).click()
    expect(page.get_by_text("Reset: group replay, 1 log")).to_be_visible()
    assert seqnos(team, "replay") == [10, 3]


def test_a_place_that_is_none_is_told_in_the_dialog(visitor: Visitor, team: Scene) -> None:
    visitor.expect("/reset|status of 400")
    place(team, "mistaken")
    page = visitor.visit(team.url, GROUPS)
    row(page, "Groups", "mistaken").get_by_role("button", name="Reset").click()
    dialog = page.get_by_role("dialog", name="Reset group mistaken")
    dialog.get_by_label("To", exact=True).select_option(label="A time, or a seqno of one log")
    dialog.get_by_label("Time or seqno").fill("tomorrow")
    dialog.get_by_role("button", name="Reset", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("nor any other place")
    assert seqnos(team, "mistaken") == [0, 0]


def test_a_group_is_deleted_after_a_question(visitor: Visitor, team: Scene) -> None:
    place(team, "over")
    page = visitor.visit(team.url, "#/groups/over")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete group over")
    dialog.get_by_role("button", name="Cancel").click()
    assert seqnos(team, "over") == [0, 0]
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
    expect(row(page, "Groups", "over")).to_have_count(0)


def test_a_group_with_members_is_neither_reset_nor_deleted(visitor: Visitor, team: Scene) -> None:
    join(team, "at.work")
    for where in (GROUPS, "#/groups/at.work"):
        page = visitor.visit(team.url, where)
        place_of = row(page, "Groups", "at.work") if where == GROUPS else page
        for name in ("Reset", "Delete"):
            button = place_of.get_by_role("button", name=name)
            expect(button).to_be_disabled()
            expect(button).to_have_attribute("title", "It has members: stop them first.")


def test_groups_are_found_by_how_their_names_begin(visitor: Visitor, team: Scene) -> None:
    for name in ("found.one", "found.two"):
        place(team, name)
    page = visitor.visit(team.url, GROUPS)
    page.keyboard.press("/")
    page.keyboard.type("found.")
    expect(page.get_by_role("table", name="Groups").locator("tbody a")).to_have_text(["found.one", "found.two"])
    page.get_by_role("searchbox", name="Search groups").fill("nowhere")
    expect(page.get_by_text("No group begins with “nowhere”.")).to_be_visible()


def test_names_and_clients_are_shown_as_the_text_they_are(visitor: Visitor, team: Scene) -> None:
    clients = [text for text in texts.SCRIPTS if len(text) <= 100]
    for number, client in enumerate(clients):
        join(team, ODD, f"member-{number:010}", client=client)
    page = visitor.visit(team.url, GROUPS)
    page.get_by_role("link", name=ODD).click()
    for client in clients:
        expect(row(page, "Members", client)).to_be_visible()
    for width in (1280, 900, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert not audit.too_wide(page), width
    assert page.evaluate("() => window.injected") is None


def test_a_group_that_is_not_there_or_goes_meanwhile_is_said_to_be_gone(visitor: Visitor, team: Scene) -> None:
    visitor.expect("/groups/|status of 404")
    page = visitor.visit(team.url, "#/groups/nobody")
    expect(page.get_by_role("heading", name="There is no group of this name")).to_be_visible()
    place(team, "fleeting")
    page = visitor.visit(team.url, "#/groups/fleeting")
    team.node.call("DELETE", "/groups/fleeting")
    expect(page.get_by_role("heading", name="This group was deleted")).to_be_visible()
    expect(page.get_by_role("button", name="Reset")).to_be_disabled()


def test_where_there_are_none_it_is_said_what_groups_are(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, GROUPS)
    expect(page.get_by_role("heading", name="There are no groups")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("docs/howto/groups.md")
    expect(page.get_by_role("table")).to_have_count(0)


def test_among_the_cursors_of_a_topic_the_places_of_a_group_are_not_moved(visitor: Visitor, team: Scene) -> None:
    place(team, "shelved", topics="returns")
    page = visitor.visit(team.url, "#/topics/returns/cursors")
    found = row(page, "Cursors", "@shelved").first
    expect(found.get_by_role("button", name="Move")).to_be_disabled()
    expect(found.get_by_role("button", name="Move")).to_have_attribute(
        "title", "This is the place of group shelved: see Groups."
    )


def test_a_rule_for_groups_is_made_on_the_access_page(visitor: Visitor, team: Scene) -> None:
    team.node.call("POST", "/access/users", {"name": "ann"})
    page = visitor.visit(team.url, "#/access")
    page.get_by_role("button", name="Add a rule").click()
    dialog = page.get_by_role("dialog", name="Add a rule")
    dialog.get_by_label("Who").fill("ann")
    dialog.get_by_label("Kind").select_option("group")
    dialog.get_by_label("Name").fill("billing*")
    dialog.get_by_role("button", name="Add").click()
    expect(row(page, "Rules", "ann")).to_contain_text("group billing*")
    dialog_of = page.get_by_role("region", name="What would be decided")
    dialog_of.get_by_label("User").fill("ann")
    dialog_of.get_by_label("Kind").select_option("group")
    dialog_of.get_by_label("Name").fill("billing.eu")
    dialog_of.get_by_role("button", name="Ask").click()
    expect(dialog_of.get_by_role("status")).to_contain_text("Allowed")
