"""Signing in and out in a browser, and the page that says who may do what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from logboom import connect
from logboom.access.credential import Credential
from logboom.access.rule import Rule
from support.browser import audit
from support.browser.scenes import Scene
from support.browser.visitor import Visitor, wait_until_ready
from support.nodes.console import ConsoleNode

PASSWORD = "correct horse battery"
REFUSED = r" 40[13]( |$)|status of 40[13] "
"""What a stranger is answered with; the browser says so too."""


@pytest.fixture(scope="module")
def guarded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A node that does nothing for strangers. root may do everything, alice may read and write orders."""
    root = tmp_path_factory.mktemp("node")
    unix = root / "node.sock"

    async def introduce() -> None:
        async with connect(f"unix:{unix}") as broker:
            for name, roles in (("root", ["admin"]), ("alice", [])):
                await broker.add_user(name, [Credential.derive(PASSWORD, b"salt" * 4)], roles=roles)
            rights = ("read", "write", "create")
            await broker.add_rule(Rule("allow", "alice", rights, "topic", "orders*"))
            for topic in ("orders", "secret"):
                await broker.create_topic(topic)

    with ConsoleNode(root, "--unix", str(unix), "--set", "access.anonymous=none") as node:
        with ThreadPoolExecutor(1) as thread:  # Playwright has the loop of this one
            thread.submit(asyncio.run, introduce()).result()
        yield Scene(node)


def sign_in(visitor: Visitor, scene: Scene, user: str = "root", place: str = "#/", width: int = 1280) -> Page:
    visitor.expect(REFUSED)
    page = visitor.visit(scene.url, place, width=width)
    fill(page, user, PASSWORD)
    expect(page.get_by_role("heading", level=1, name="Sign in")).to_have_count(0)
    wait_until_ready(page)
    return page


def fill(page: Page, user: str, password: str) -> None:
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def row(page: Page, region: str, text: str) -> Locator:
    return page.get_by_role("region", name=region, exact=True).get_by_role("row").filter(has_text=text)


def test_a_stranger_sees_the_sign_in_page_and_after_it_what_was_asked_for(visitor: Visitor, guarded: Scene) -> None:
    visitor.expect(REFUSED)
    page = visitor.visit(guarded.url, "#/topics/orders/settings")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    expect(page.get_by_label("User", exact=True)).to_be_focused()
    assert "orders" not in page.get_by_role("main").inner_text()
    fill(page, "root", PASSWORD)
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.locator("#caller")).to_contain_text("root")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("() => document.cookie") == ""


def test_a_wrong_password_is_told_in_the_page_and_not_by_the_browser(visitor: Visitor, guarded: Scene) -> None:
    visitor.expect(REFUSED)
    page = visitor.visit(guarded.url)
    fill(page, "root", "wrong horse battery")
    expect(page.get_by_role("alert")).to_have_text("The sign-in failed: the name or the secret is wrong.")
    expect(page.get_by_label("Password", exact=True)).to_have_value("")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Topics")).to_be_visible()


def test_signing_out_ends_the_session_here_and_on_the_node(visitor: Visitor, guarded: Scene) -> None:
    page = sign_in(visitor, guarded)
    (cookie,) = page.context.cookies()
    shown = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    assert httpx.get(f"{guarded.url}/topics", headers=shown).status_code == 200
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    expect(page.locator("#caller")).to_be_hidden()
    assert page.context.cookies() == []
    assert httpx.get(f"{guarded.url}/topics", headers=shown).status_code == 401


def test_a_session_that_ends_meanwhile_brings_the_sign_in_page_back(visitor: Visitor, guarded: Scene) -> None:
    page = sign_in(visitor, guarded)
    page.context.clear_cookies()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_a_user_sees_what_is_for_him(visitor: Visitor, guarded: Scene) -> None:
    page = sign_in(visitor, guarded, "alice")
    expect(page.get_by_role("region", name="Topics").get_by_role("link", name="orders")).to_be_visible()
    for region in ("Limits", "Connections", "Recent troubles", "Health"):
        expect(page.get_by_role("region", name=region)).to_be_hidden()
    page.get_by_role("link", name="Access").click()
    expect(row(page, "Users", "alice")).to_be_visible()
    expect(row(page, "Users", "root")).to_have_count(0)
    for region in ("Rules", "Roles", "What would be decided"):
        expect(page.get_by_role("region", name=region)).to_be_hidden()


def test_a_token_is_shown_once_signs_in_and_is_revoked(visitor: Visitor, guarded: Scene) -> None:
    page = sign_in(visitor, guarded, "root", "#/access")
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog", name="New token")
    expect(dialog.get_by_label("User", exact=True)).to_have_value("root")
    dialog.get_by_label("Note").fill("for a browser")
    dialog.get_by_role("button", name="Make").click()
    shown = page.get_by_role("dialog", name="Token")
    token = shown.locator(".secret").inner_text()
    assert token.startswith("lbt_")
    shown.get_by_role("button", name="Close").click()
    found = row(page, "Tokens", "for a browser")
    expect(found).to_be_visible()
    assert token not in page.content()
    other = visitor.visit(guarded.url)
    other.get_by_role("button", name="Use a token").click()
    other.get_by_label("Token", exact=True).fill(token)
    other.get_by_role("button", name="Sign in", exact=True).click()
    expect(other.locator("#caller")).to_contain_text("root")
    found.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    expect(found).to_have_count(0)
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_users_and_rules_are_made_changed_explained_and_removed(visitor: Visitor, guarded: Scene) -> None:
    page = sign_in(visitor, guarded, "root", "#/access")
    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog", name="Add a user")
    dialog.get_by_label("Name").fill("team/bob@example")
    dialog.get_by_label("Password").fill(PASSWORD)
    dialog.get_by_role("button", name="Add", exact=True).click()
    bob = row(page, "Users", "team/bob@example")
    expect(bob).to_be_visible()
    page.get_by_role("button", name="Add a rule").click()
    dialog = page.get_by_role("dialog", name="Add a rule")
    dialog.get_by_label("Who").fill("team/bob@example")
    dialog.get_by_label("write").check()
    dialog.get_by_label("Name").fill("bills*")
    dialog.get_by_role("button", name="Add", exact=True).click()
    rule = row(page, "Rules", "bills*")
    expect(rule).to_contain_text("read, write")
    asked = page.get_by_role("region", name="What would be decided")
    asked.get_by_label("User").fill("team/bob@example")
    asked.get_by_label("Name").fill("bills.eu")
    asked.get_by_role("button", name="Ask").click()
    expect(asked.get_by_role("status")).to_contain_text("Allowed: rule")
    page.get_by_role("button", name="Add a rule").click()
    dialog = page.get_by_role("dialog", name="Add a rule")
    dialog.get_by_label("Who").fill("team/bob@example")
    dialog.get_by_label("Kind").select_option("channel")
    dialog.get_by_label("Name").fill("eu/%c/#")
    dialog.get_by_role("button", name="Add", exact=True).click()
    channels = row(page, "Rules", "eu/%c/#")
    expect(channels).to_contain_text("channel eu/%c/#")
    asked.get_by_label("Channel").fill("us/7")
    asked.get_by_label("Tag").fill("red")
    asked.get_by_role("button", name="Ask").click()
    expect(asked.get_by_role("status")).to_contain_text("Not allowed: rules allow some")
    channels.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(channels).to_have_count(0)
    bob.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog", name="Change team/bob@example")
    dialog.get_by_label("Enabled").uncheck()
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(bob).to_contain_text("disabled")
    rule.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(rule).to_have_count(0)
    bob.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(bob).to_have_count(0)


def test_quotas_are_set_changed_and_removed_and_show_what_is_in_use(visitor: Visitor, guarded: Scene) -> None:
    page = sign_in(visitor, guarded, "root", "#/access")
    page.get_by_role("button", name="Set a quota").click()
    dialog = page.get_by_role("dialog", name="Set a quota")
    dialog.get_by_label("Who").fill("root")
    dialog.get_by_label("Bytes in, per second").fill("10485760")
    dialog.get_by_label("Connections").fill("100")
    dialog.get_by_role("button", name="Set", exact=True).click()
    quota = row(page, "Quotas", "root")
    expect(quota).to_contain_text(re.compile(r"bytes in 0 B of 10.0 MiB/s, connections [1-9]\d* of 100"))
    quota.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog", name="Quota of root")
    expect(dialog.get_by_label("Connections")).to_have_value("100")
    dialog.get_by_label("Connections").fill("")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(quota).not_to_contain_text("connections")
    quota.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(quota).to_have_count(0)


def test_a_node_for_everybody_on_this_machine_asks_nobody(visitor: Visitor, empty: Scene) -> None:
    page = visitor.visit(empty.url, "#/access")
    expect(page.locator("#caller")).to_be_hidden()
    expect(page.get_by_role("region", name="You")).to_contain_text("You have not signed in")
    page.get_by_role("region", name="You").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.get_by_role("button", name="Go on without signing in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Access")


@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_everybody_can_use_both_pages_on_any_screen(visitor: Visitor, guarded: Scene, width: int) -> None:
    visitor.expect(REFUSED)
    page = visitor.visit(guarded.url, "#/access", width=width)
    for _ in range(2):
        assert not audit.nameless(page)
        assert not audit.too_wide(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert not audit.faint(page)
        if page.get_by_role("heading", level=1).inner_text() == "Sign in":
            fill(page, "root", PASSWORD)
            expect(row(page, "Users", "alice")).to_be_visible()
