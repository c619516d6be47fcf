"""A page of somebody else, whose name is made to lead to the node: what a real browser sends then is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

from support.browser.chromium import FOREIGN
from support.browser.scenes import Scene

READ = """async (path) => {
  const answer = await fetch(path, { cache: "no-store" });
  return [answer.status, await answer.text()];
}"""


class EvilPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>evil</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def evil() -> Iterator[str]:
    """The page, from a server of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EvilPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://{FOREIGN}:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_name_that_was_made_to_lead_here_reads_nothing(browser: Browser, empty: Scene) -> None:
    port = empty.url.rpartition(":")[2]
    page = browser.new_page()
    try:
        answer = page.goto(f"http://{FOREIGN}:{port}/healthz")
        assert answer is not None
        sent = answer.request.all_headers()
        assert (answer.status, answer.json()["code"]) == (421, "host-not-allowed")
        for path in ("/topics", "/config", "/"):
            status, text = page.evaluate(READ, path)
            assert status == 421
            assert "http.allowed_hosts" in text
        assert "origin" not in sent  # nothing but the name gives it away
        assert page.goto(f"{empty.url}/healthz").status == 200  # type: ignore[union-attr]
    finally:
        page.close()


def test_a_foreign_page_can_neither_read_nor_write(browser: Browser, empty: Scene, evil: str) -> None:
    page = browser.new_page()
    try:
        page.goto(evil)
        for options in ({}, {"method": "POST", "body": "1"}, {"method": "DELETE"}):
            read = page.evaluate(
                "([url, options]) => fetch(url, options).then((answer) => answer.status, () => 'hidden')",
                [f"{empty.url}/topics/stolen/records", options],
            )
            assert read == "hidden"
        page.evaluate(
            """async ([url, body]) => {
              await fetch(url, { method: "POST", mode: "no-cors", body }).catch(() => null);
              navigator.sendBeacon(url, body);
            }""",
            [f"{empty.url}/topics/stolen/records", "1"],
        )
        page.goto(f"{empty.url}/docs")
        assert page.evaluate(READ, "/topics/stolen")[0] == 404
    finally:
        page.close()
