"""Staged publish on the console: stages and keys, seen, discarded and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from logboom import Client, connect
from logboom.client.publish.stage_writer import StageWriter
from support.browser import audit, staged
from support.browser import hostile as texts
from support.browser.scenes import Scene
from support.browser.visitor import Visitor
from support.nodes.console import ConsoleNode

STAGES = "#/stages"
KEY_NAMES = (
    "<script>window.injected=6</script>",
    "<img/src=x/onerror='window.injected=7'>",
    "../../keys?name=other&x#y%2F+z",
    "'\";--${`}{{1}}",
    "k" * 249,
)
"""Printable, and without spaces: more a name may not have."""
MANY = 53


@pytest.fixture(scope="module")
def workshop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged.workshop(tmp_path_factory.mktemp("node")) as scene:
        yield scene


@pytest.fixture
def unfinished(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged.unfinished(tmp_path_factory.mktemp("node")) as scene:
        yield scene


@pytest.fixture
def copy(empty: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    replicate = ("--replicate-from", empty.node.logd_address)
    with ConsoleNode(tmp_path_factory.mktemp("copy"), *replicate) as node:
        yield Scene(node)


def row(page: Page, table: str, text: str) -> Locator:
    return page.get_by_role("table", name=table).locator("tbody").get_by_role("row").filter(has_text=text)


def stage_ids(scene: Scene) -> list[str]:
    return [stage["id"] for stage in scene.node.ask("/stages")["stages"]]


def key_numbers(scene: Scene) -> dict[str, int]:
    return {key["name"]: key["number"] for key in scene.node.ask("/keys")["keys"]}


def test_a_stage_is_listed_with_what_is_in_it_and_whose_it_is(visitor: Visitor, workshop: Scene) -> None:
    stage = staged.stage(workshop.node.address, "weekly report", {"orders": 1_234, "alerts": 7})
    page = visitor.visit(workshop.url, STAGES)
    found = row(page, "Stages", stage[:8])
    for text in ("open", "1,241", "orders/0, alerts/0", "weekly report", "in 23 h"):
        expect(found).to_contain_text(text)
    producer = next(each["producer_id"] for each in workshop.node.ask("/stages")["stages"] if each["id"] == stage)
    assert str(producer)[:8] not in page.content()


def test_the_whole_id_of_a_stage_is_in_the_clipboard_after_a_click(visitor: Visitor, workshop: Scene) -> None:
    stage = staged.stage(workshop.node.address, "copied", {"orders": 1})
    page = visitor.visit(workshop.url, STAGES)
    button = page.get_by_role("button", name=stage[:8])
    expect(button).to_have_attribute("title", f"Copy {stage}")
    button.click()
    expect(page.get_by_text(f"Copied: stage {stage}")).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == stage


def test_a_stage_is_discarded_after_a_question(visitor: Visitor, workshop: Scene) -> None:
    stage = staged.stage(workshop.node.address, "doomed", {"orders": 12})
    page = visitor.visit(workshop.url, STAGES)
    found = row(page, "Stages", stage[:8])
    dialog = page.get_by_role("dialog", name=f"Discard stage {stage[:8]}")
    found.get_by_role("button", name="Discard").click()
    expect(dialog).to_contain_text("12 records")
    expect(dialog).to_contain_text("doomed")
    dialog.get_by_role("button", name="Cancel").click()
    assert stage in stage_ids(workshop)
    found.get_by_role("button", name="Discard").click()
    dialog.get_by_role("button", name="Discard", exact=True).click()
    expect(found).to_have_count(0)
    assert stage not in stage_ids(workshop)


def test_of_a_stage_that_went_meanwhile_it_is_said_that_it_is_gone(visitor: Visitor, workshop: Scene) -> None:
    visitor.expect("/stages/")
    stage = staged.stage(workshop.node.address, "fleeting", {"orders": 1})
    page = visitor.visit(workshop.url, STAGES)
    row(page, "Stages", stage[:8]).get_by_role("button", name="Discard").click()
    with Client(workshop.node.address) as client:
        assert client.discard(stage) == 1
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Discard", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"there is no stage '{stage}'")


def test_a_publish_takes_the_stage_away_and_brings_its_key(visitor: Visitor, workshop: Scene) -> None:
    page = visitor.visit(workshop.url, STAGES)
    with Client(workshop.node.address) as client, client.transaction("seen/publish", 5) as transaction:
        transaction.write_many("orders", [bytes(100_000)] * 21)  # a little would need no stage
        expect(row(page, "Stages", "seen/publish/5")).to_be_visible()
    expect(row(page, "Stages", "seen/publish/5")).to_have_count(0)
    found = row(page, "Keys", "seen/publish")
    expect(found).to_contain_text("21")
    expect(found).to_contain_text("forever")
    expect(found.get_by_text("being published")).to_be_hidden()


def test_a_key_is_forgotten_after_a_question_that_says_what_that_means(visitor: Visitor, workshop: Scene) -> None:
    staged.publish(workshop.node.address, "to/forget", 9)
    page = visitor.visit(workshop.url, STAGES)
    found = row(page, "Keys", "to/forget")
    found.get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog", name="Forget key to/forget")
    expect(dialog).to_contain_text("a client that repeats number 9, or a lower one, publishes it again")
    dialog.get_by_role("button", name="Forget", exact=True).click()
    expect(found).to_have_count(0)
    assert "to/forget" not in key_numbers(workshop)
    with Client(workshop.node.address) as client, client.transaction("to/forget", 9) as transaction:
        transaction.write("orders", b"again")
    assert transaction.publication is not None
    assert not transaction.publication.repeat


def test_a_key_that_has_come_further_meanwhile_is_not_forgotten(visitor: Visitor, workshop: Scene) -> None:
    staged.publish(workshop.node.address, "on/the/move", 1)
    page = visitor.visit(workshop.url, STAGES)
    row(page, "Keys", "on/the/move").get_by_role("button", name="Forget").click()
    staged.publish(workshop.node.address, "on/the/move", 2)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Forget", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Number 2 was published under on/the/move meanwhile")
    assert key_numbers(workshop)["on/the/move"] == 2


def test_a_publish_that_cannot_be_finished_is_marked_and_given_up_after_a_question(
    visitor: Visitor, unfinished: Scene
) -> None:
    page = visitor.visit(unfinished.url)
    expect(page.get_by_role("region", name="Recent troubles")).to_contain_text("cannot be finished")
    page.get_by_role("region", name="Staged publish").get_by_role("link", name="Stages").click()
    stage = row(page, "Stages", "publishing")
    expect(stage.get_by_role("button", name="Discard")).to_be_disabled()
    key = row(page, "Keys", staged.STUCK.name)
    expect(key.get_by_text("being published")).to_be_visible()
    key.get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("this gives it up")
    dialog.get_by_role("button", name="Forget", exact=True).click()
    expect(page.get_by_text("Nothing is staged, and nothing was published")).to_be_visible()
    assert stage_ids(unfinished) == []
    assert key_numbers(unfinished) == {}


def test_keys_are_found_by_how_their_names_begin(visitor: Visitor, workshop: Scene) -> None:
    for name in ("found/one", "found/two"):
        staged.publish(workshop.node.address, name)
    page = visitor.visit(workshop.url, STAGES)
    page.keyboard.press("/")
    page.keyboard.type("found/")
    names = page.get_by_role("table", name="Keys").locator("tbody tr td:first-child .mono")
    expect(names).to_have_text(["found/one", "found/two"])
    page.get_by_role("searchbox", name="Search keys").fill("nowhere/")
    expect(page.get_by_text("No key begins with “nowhere/”.")).to_be_visible()


def test_a_number_is_shown_digit_by_digit(visitor: Visitor, workshop: Scene) -> None:
    staged.publish(workshop.node.address, "largest", 2**63 - 1)
    page = visitor.visit(workshop.url, STAGES)
    expect(row(page, "Keys", "largest")).to_contain_text("9,223,372,036,854,775,807")


def test_notes_and_names_of_keys_are_shown_as_the_text_they_are(visitor: Visitor, workshop: Scene) -> None:
    address = workshop.node.address
    stages = [staged.stage(address, note, {"orders": 1}) for note in (*texts.SCRIPTS, *texts.ODD)]
    for name in KEY_NAMES:
        staged.publish(address, name)
    page = visitor.visit(workshop.url, STAGES)
    for stage, note in zip(stages, texts.SCRIPTS, strict=False):
        expect(row(page, "Stages", stage[:8])).to_contain_text(note)
    expect(row(page, "Stages", r"bidi \u202Egnp.exe")).to_be_visible()
    for name in KEY_NAMES:
        expect(row(page, "Keys", name)).to_be_visible()
    for width in (1280, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert not audit.too_wide(page), width
    assert page.evaluate("() => window.injected") is None
    with Client(address) as client:
        client.discard(stages)


def test_keys_with_such_names_can_be_forgotten(visitor: Visitor, workshop: Scene) -> None:
    for name in KEY_NAMES:
        staged.publish(workshop.node.address, name)
    page = visitor.visit(workshop.url, STAGES)
    for name in KEY_NAMES:
        row(page, "Keys", name).get_by_role("button", name="Forget").click()
        page.get_by_role("dialog").get_by_role("button", name="Forget", exact=True).click()
        expect(row(page, "Keys", name)).to_have_count(0)
    assert not key_numbers(workshop).keys() & set(KEY_NAMES)


def test_where_there_is_nothing_it_is_said_what_this_is_for(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, STAGES)
    expect(page.get_by_role("heading", name="Nothing is staged, and nothing was published")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("docs/howto/transactions.md")
    expect(page.get_by_role("table")).to_have_count(0)


def test_the_overview_speaks_of_stages_only_where_there_are_some(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url)
    tile = page.get_by_role("region", name="Staged publish")
    expect(tile).to_be_hidden()
    stage = staged.stage(empty.node.address, "", {"orders": 1})
    expect(tile).to_contain_text("1 stage with")
    with Client(empty.node.address) as client:
        client.discard(stage)
    expect(tile).to_be_hidden()


def test_more_stages_than_a_page_has_are_turned_over(visitor: Visitor, empty: Scene) -> None:
    async def open_many() -> list[str]:
        async with connect(empty.node.address) as broker:
            return [(await broker.open_stage(f"number {number}")).id for number in range(MANY)]

    with ThreadPoolExecutor(1) as thread:  # Playwright has the loop of this one
        opened = thread.submit(asyncio.run, open_many()).result()
    page = visitor.visit(empty.url, STAGES)
    region = page.get_by_role("region", name="Stages")
    expect(region).to_contain_text(f"50 of {MANY}")
    region.get_by_role("button", name="Next page").click()
    rows = page.get_by_role("table", name="Stages").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(MANY - 50)
    expect(rows.last).to_contain_text(f"number {MANY - 1}")
    with Client(empty.node.address) as client:
        assert client.discard(opened) == MANY
    expect(page.get_by_text("Nothing is staged, and nothing was published")).to_be_visible()


def test_the_largest_stage_comes_first_where_size_is_asked_for(visitor: Visitor, workshop: Scene) -> None:
    small = staged.stage(workshop.node.address, "small", {"orders": 1})
    large = staged.stage(workshop.node.address, "large", {"orders": 1_000}, 2_000)
    page = visitor.visit(workshop.url, STAGES)
    rows = page.get_by_role("table", name="Stages").locator("tbody").get_by_role("row")
    expect(rows.last).to_contain_text(large[:8])
    page.get_by_role("button", name="Size", exact=True).click()
    expect(rows.first).to_contain_text(large[:8])
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "descending")
    with Client(workshop.node.address) as client:
        client.discard([small, large])


def test_a_stage_is_discarded_without_a_pointer(visitor: Visitor, workshop: Scene) -> None:
    stage = staged.stage(workshop.node.address, "by keyboard", {"orders": 1})
    page = visitor.visit(workshop.url)
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", level=1, name="Stages")).to_be_visible()
    button = row(page, "Stages", stage[:8]).get_by_role("button", name="Discard")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Discard", exact=True).focus()
    page.keyboard.press("Enter")
    expect(button).to_have_count(0)
    assert stage not in stage_ids(workshop)


def test_everybody_can_use_it_on_any_screen(visitor: Visitor, workshop: Scene) -> None:
    page = visitor.visit(workshop.url, STAGES, width=390, height=844)
    assert not audit.nameless(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert not audit.faint(page)
    for width in (390, 320, 768, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert not audit.too_wide(page), width
        tables = [node for node in audit.accessible(page) if node["role"]["value"] == "table"]
        assert [node["name"]["value"] for node in tables] == ["Stages", "Keys"], width
    expect(row(page, "Keys", "nightly/stock").get_by_role("button", name="Forget")).to_have_accessible_description(
        "nightly/stock"
    )


def test_a_phone_shows_all_of_a_stage(visitor: Visitor, workshop: Scene) -> None:
    page = visitor.visit(workshop.url, STAGES, width=390, height=844)
    found = row(page, "Stages", "spark batch 242, task 0")
    for text in ("1,253", "orders/0, alerts/0", "open"):
        expect(found.get_by_text(text, exact=True)).to_be_visible()
    box = found.get_by_role("button", name="Discard").bounding_box()
    assert box is not None
    assert box["height"] >= 44


def test_a_replica_says_that_its_source_has_stages_and_keys(visitor: Visitor, copy: Scene) -> None:
    page = visitor.visit(copy.url, STAGES)
    expect(page.get_by_role("main")).to_contain_text("This node is a replica")
    expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)


def test_a_node_that_is_gone_comes_back_with_its_stages_and_keys(visitor: Visitor, workshop: Scene) -> None:
    visitor.expect_the_node_gone()
    writer = StageWriter(workshop.node.address, note="survivor")
    writer.write("orders", b"kept")
    receipt = writer.finish()
    page = visitor.visit(workshop.url, STAGES)
    found = row(page, "Stages", receipt.stage[:8])
    expect(found).to_contain_text("survivor")
    workshop.node.kill()
    banner = page.get_by_role("status").filter(has_text="has not answered since")
    expect(banner).to_be_visible()
    expect(found).to_contain_text("survivor")
    workshop.node.start()
    expect(banner).to_be_hidden()
    expect(found).not_to_contain_text("survivor")  # it is read again when it is used again
    expect(found).to_contain_text("open")
    expect(row(page, "Keys", "import/prices")).to_be_visible()
