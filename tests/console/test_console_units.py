"""Sizes and durations as the console takes and writes them; settings that somebody else changes; topics that go."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from support.browser.scenes import Scene
from support.browser.visitor import Visitor

PARSE = """async ([text, kind]) => {
  const units = await import("/console/text/units.js");
  try { return units.parseAmount(text, units[kind]).toString(); } catch (error) { return `no: ${error.message}`; }
}"""
WRITE = """async ([value, kind]) => {
  const units = await import("/console/text/units.js");
  return units.writeAmount(BigInt(value), units[kind]);
}"""
ENCODE = """async (text) => {
  const units = await import("/console/text/units.js");
  return units.encodeJson({ settings: { retention: { bytes: BigInt(text), records: null }, urls: ["a\\"b"] } });
}"""


def test_amounts_mean_what_they_say(page: Page) -> None:
    expected = {
        ("10 GiB", "BYTES"): 10 * 2**30,
        ("1.5kB", "BYTES"): 1500,
        ("4_096", "BYTES"): 4096,
        ("4 eib", "BYTES"): 2**62,
        ("7 d", "DURATION"): 7 * 86_400_000,
        ("1 h 30 min", "DURATION"): 5_400_000,
        ("1h30m", "DURATION"): 5_400_000,
        ("250", "DURATION"): 250,
        ("1,234,567", "NUMBER"): 1_234_567,
        ("9007199254740993", "NUMBER"): 9_007_199_254_740_993,
    }
    found = {(text, kind): int(page.evaluate(PARSE, [text, kind])) for text, kind in expected}
    assert found == expected


def test_what_is_not_exactly_an_amount_is_refused_in_words(page: Page) -> None:
    wrong = (
        ("1,5 GiB", "BYTES"),
        ("10 G", "BYTES"),
        ("-4", "BYTES"),
        ("0.3 B", "BYTES"),
        ("1e9", "BYTES"),
        ("", "BYTES"),
        ("1 30 min", "DURATION"),
        ("7 days", "DURATION"),
        ("5 GiB", "NUMBER"),
        ("1.5", "NUMBER"),
        ("9" * 100, "NUMBER"),
    )
    for text, kind in wrong:
        assert page.evaluate(PARSE, [text, kind]).startswith("no: "), (text, kind)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, "BYTES", "0 B"),
        (1023, "BYTES", "1,023 B"),
        (10 * 2**30, "BYTES", "10 GiB"),
        (2**62, "BYTES", "4 EiB"),
        (2**62 - 1, "BYTES", "4,611,686,018,427,387,903 B"),
        (604_800_000, "DURATION", "7 d"),
        (5_400_000, "DURATION", "90 min"),
        (1, "DURATION", "1 ms"),
        (100_000, "NUMBER", "100,000"),
    ],
)
def test_amounts_are_written_exactly_and_mean_the_same_again(page: Page, value: int, kind: str, text: str) -> None:
    assert page.evaluate(WRITE, [str(value), kind]) == text
    assert int(page.evaluate(PARSE, [text, kind])) == value


def test_large_numbers_are_sent_digit_by_digit(page: Page) -> None:
    sent = page.evaluate(ENCODE, str(2**62 - 1))
    assert sent == '{"settings":{"retention":{"bytes":4611686018427387903,"records":null},"urls":["a\\"b"]}}'


def test_a_field_that_was_touched_stays_and_the_others_follow_the_node(visitor: Visitor, empty: Scene) -> None:
    empty.node.call("POST", "/topics", {"name": "shared"})
    page = visitor.visit(empty.url, "#/topics/shared/settings")
    mine = page.get_by_label("retention.bytes", exact=True)
    theirs = page.get_by_label("retention.records", exact=True)
    mine.fill("5 GiB")
    empty.node.call("PATCH", "/topics/shared", {"settings": {"retention": {"bytes": 1000, "records": 77}}})
    expect(theirs).to_have_value("77")
    expect(mine).to_have_value("5 GiB")
    expect(page.get_by_text("Somebody changed it to 1,000 B meanwhile")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(mine).to_have_value("1,000 B")


def test_a_topic_that_is_deleted_while_one_looks_says_so(visitor: Visitor, empty: Scene) -> None:
    visitor.expect("topics/fleeting")
    empty.node.call("POST", "/topics", {"name": "fleeting"})
    page = visitor.visit(empty.url, "#/topics/fleeting/settings")
    empty.node.call("DELETE", "/topics/fleeting")
    expect(page.get_by_text("This topic was deleted")).to_be_visible()
    empty.node.call("POST", "/topics", {"name": "fleeting"})
    page.get_by_role("button", name="Look again").click()
    expect(page.get_by_role("form", name="Settings")).to_be_visible()


def test_a_topic_that_never_was_says_so_after_one_question(visitor: Visitor, empty: Scene) -> None:
    visitor.expect("/topics/nowhere")
    page = visitor.visit(empty.url)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "nowhere" in request.url else None)
    page.evaluate("location.hash = '#/topics/nowhere/cursors'")
    expect(page.get_by_text("There is no topic of this name")).to_be_visible()
    with page.expect_response("**/stats"):
        pass  # what polls has had its turn again
    assert asked == [f"{empty.url}/topics/nowhere"]
    page.locator("main").get_by_role("link", name="All topics", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_attached()


def test_a_topic_that_was_made_anew_is_shown_anew(visitor: Visitor, empty: Scene) -> None:
    empty.node.call("POST", "/topics", {"name": "reborn"})
    page = visitor.visit(empty.url, "#/topics/reborn/cursors")
    page.route("**/topics/reborn**", lambda route: route.continue_())  # held while this thread is not in Playwright
    with page.expect_response(f"{empty.url}/topics/reborn"):
        pass
    empty.node.call("DELETE", "/topics/reborn")
    empty.node.call("POST", "/topics", {"name": "reborn", "partitions": 3})
    expect(page.get_by_text("reborn was deleted and made anew")).to_be_visible()
    expect(page.get_by_role("table", name="Partitions").locator("tbody").get_by_role("row")).to_have_count(3)
