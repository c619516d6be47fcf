"""Nodes that are not well, or not their own: damaged, a replica, gone and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support.browser import scenes
from support.browser.scenes import Scene
from support.browser.visitor import Visitor


@pytest.fixture(scope="module")
def shop_to_lose(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.still(tmp_path_factory.mktemp("lost")) as scene:
        yield scene


def test_damage_is_said_on_the_overview_with_what_to_do(visitor: Visitor, damaged: Scene) -> None:
    page = visitor.visit(damaged.url)
    health = page.get_by_role("region", name="Health")
    expect(health.locator(".cause")).to_contain_text("ledger/0.")  # the log; the file is in the details
    expect(health).to_contain_text("damage")


def test_the_damaged_segment_is_marked(visitor: Visitor, damaged: Scene) -> None:
    page = visitor.visit(damaged.url, "#/topics/ledger/segments")
    bars = page.get_by_role("region", name="Segments").get_by_role("button", name="seqnos")
    expect(bars.filter(visible=True).and_(page.get_by_role("button", name="damaged"))).to_have_count(1)
    expect(page.get_by_role("table", name="Segment details").get_by_text("damaged", exact=True)).to_be_visible()


def test_records_beside_the_damage_can_be_read(visitor: Visitor, damaged: Scene) -> None:
    visitor.expect("/topics/ledger/records")
    page = visitor.visit(damaged.url, "#/topics/ledger?from=0")
    expect(page.get_by_role("table", name="Records").locator("tbody").get_by_role("row").first).to_be_visible()


def test_a_replica_is_promoted_after_a_question(visitor: Visitor, replica: Scene) -> None:
    page = visitor.visit(replica.url)
    page.get_by_role("button", name="Promote").click()
    dialog = page.get_by_role("dialog", name="Promote")
    assert replica.node.ask("/stats")["replica"] is not None
    dialog.get_by_role("button", name="Promote", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Stop taking writes")).to_be_visible()
    assert replica.node.ask("/stats")["replica"] is None


@pytest.mark.parametrize("place", ["#/", "#/topics/orders", "#/topics/orders/cursors", "#/topics/audit/segments"])
def test_a_node_that_is_gone_is_said_to_be_gone_and_comes_back_by_itself(
    visitor: Visitor, shop_to_lose: Scene, place: str
) -> None:
    visitor.expect_the_node_gone()
    page = visitor.visit(shop_to_lose.url, place)
    heading = page.get_by_role("heading", level=1).inner_text()
    shop_to_lose.node.kill()
    banner = page.get_by_role("status").filter(has_text="has not answered since")
    expect(banner).to_be_visible()
    expect(banner.locator("[aria-hidden=true]")).to_contain_text("Trying again for")  # never read aloud
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    shop_to_lose.node.start()
    expect(banner).to_be_hidden()
    with page.expect_response(lambda response: response.ok and "/stats" in response.url):
        pass
