"""Somebody who looks at the console and overlooks nothing.

Every message of a page, every error of its scripts, every request that failed, was refused or went elsewhere, and every
dialog of the browser is a trouble. `check` raises for those that nobody said to expect; `close` closes what was opened.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request, Response

READY: Final = "html[data-ready=true]"
TIMEOUT_MS: Final = 60_000
TROUBLES_MAX: Final = 200
ABORTED: Final = "net::ERR_ABORTED"
"""Of a request that the page itself has given up."""

Scheme = Literal["light", "dark"]


class Visitor:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._expected: list[re.Pattern[str]] = []
        self._troubles: list[str] = []

    def visit(
        self, url: str, place: str = "#/", width: int = 1280, height: int = 800, scheme: Scheme = "light"
    ) -> Page:
        """A page in a browser that has never been anywhere, when it says that it is ready."""
        page = self.open(url, place, width, height, scheme)
        wait_until_ready(page)
        return page

    def open(self, url: str, place: str = "#/", width: int = 1280, height: int = 800, scheme: Scheme = "light") -> Page:
        """The same, without waiting."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        self._contexts.append(context)
        page = context.new_page()
        self._watch(page, url)
        page.goto(f"{url}/{place}")
        return page

    def expect(self, pattern: str) -> None:
        """Troubles in which this is found are none, from now on and before."""
        self._expected.append(re.compile(pattern))

    def expect_the_node_gone(self) -> None:
        self.expect(r"net::ERR_(CONNECTION|EMPTY|INCOMPLETE|SOCKET|NETWORK)")

    def check(self) -> None:
        left = [each for each in self._troubles if not any(pattern.search(each) for pattern in self._expected)]
        assert not left, "\n".join(left)

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()

    def _watch(self, page: Page, origin: str) -> None:
        def watch_request(request: Request) -> None:
            if not request.url.startswith((f"{origin}/", "data:", "blob:")):
                self._note(f"elsewhere: {request.method} {request.url[:300]}")

        def watch_failure(request: Request) -> None:
            if request.failure != ABORTED:
                self._note(f"failed: {request.method} {request.url[:300]} {request.failure}")

        def watch_response(response: Response) -> None:
            if response.status >= 400:
                self._note(f"refused: {response.request.method} {response.url[:300]} {response.status}")

        def watch_dialog(dialog: Dialog) -> None:
            self._note(f"dialog: {dialog.message[:300]}")
            dialog.dismiss()

        page.on("request", watch_request)
        page.on("requestfailed", watch_failure)
        page.on("response", watch_response)
        page.on("dialog", watch_dialog)
        page.on("popup", lambda popup: self._note(f"popup: {popup.url[:300]}"))
        page.on("pageerror", lambda error: self._note(f"error: {error.stack or error.message}"))
        page.on("console", lambda said: self._note(f"console {said.type}: {said.text} {said.location.get('url')}"))

    def _note(self, trouble: str) -> None:
        if len(self._troubles) < TROUBLES_MAX:
            self._troubles.append(trouble)


def wait_until_ready(page: Page) -> None:
    page.locator(READY).wait_for(state="attached")
