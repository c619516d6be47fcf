"""The console's files: what is served, as what, and that they need nothing from elsewhere."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from logboom.protocols.http import console
from support.nodes.web import WebNode, tell

DIRECTORY = Path(console.__file__).parent
FILES = sorted(
    path
    for path in DIRECTORY.rglob("*")
    if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"
)
SERVED = [path for path in FILES if path.suffix in console.MEDIA_TYPES]
SHARED = ("text", "page", "node")
"""What pages share. Each of these imports only what stands before it."""
TABS = ("records", "cursors", "segments", "settings")
"""Of the page of a topic."""
IN_FOLDER_MAX = 15
SVG = "http://www.w3.org/2000/svg"


def name_of(path: Path) -> str:
    return path.relative_to(DIRECTORY).as_posix()


def imports_of(script: Path) -> list[str]:
    """The files that a script imports, as the console names them."""
    found = re.findall(r"""^import (?:[^"]* from )?"([^"]+)";$""", script.read_text(), re.MULTILINE)
    return [name_of((script.parent / name).resolve()) for name in found]


def test_the_root_is_the_console(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.client.get("/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.content == (DIRECTORY / console.INDEX).read_bytes()

    assert tell(tmp_path, story) == []


def test_every_file_is_served_as_what_it_is(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for path in SERVED:
            answer = await node.client.get(f"/console/{name_of(path)}")
            assert answer.status_code == 200, path.name
            assert answer.headers["content-type"].startswith(console.MEDIA_TYPES[path.suffix]), path.name
            assert answer.content == path.read_bytes()

    assert tell(tmp_path, story) == []


def test_what_the_page_asks_for_is_there(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        page = (await node.client.get("/")).text
        wanted = re.findall(r'(?:src|href)="(/console/[^"]+)"', page)
        assert wanted
        for path in wanted:
            assert (await node.client.get(path)).status_code == 200, path

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing.js",
        "index.html",
        "__init__.py",
        "../page.py",
        "..%2Fpage.html",
        "%2e%2e/page.html",
        "a/b.js",
        ".",
        "dom.js",
        "page/",
        "page/index.html",
        "page/../__init__.py",
        "page/..%2Fmain.js",
        "page/dom.js/",
        "page/a/dom.js",
    ],
)
def test_nothing_else_can_be_reached(name: str, tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        answer = await node.talk(
            f"GET /console/{name} HTTP/1.1\r\nhost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 404 ")

    assert tell(tmp_path, story) == []


def test_the_browser_may_run_these_scripts_alone_and_talk_to_this_node_alone(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for path in ("/", "/console/icon.svg"):
            headers = (await node.client.get(path)).headers
            policy = headers["content-security-policy"].split("; ")
            assert policy[0] == "default-src 'none'"
            assert {"script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} <= set(policy)
            assert {"require-trusted-types-for 'script'", "trusted-types 'none'"} <= set(policy)
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == "same-origin"

    assert tell(tmp_path, story) == []


def test_what_is_known_is_not_sent_again(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        first = await node.client.get("/")
        assert first.headers["cache-control"] == "no-cache"
        tag = first.headers["etag"]
        for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            again = await node.client.get("/", headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b""), known
            assert again.headers["etag"] == tag
        assert (await node.client.get("/", headers={"If-None-Match": '"other"'})).status_code == 200

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("gzip;q=0", False), ("gzip;q=0.0, *", False), ("", False)],
)
def test_it_is_compressed_for_those_who_accept_that(accepted: str, zipped: bool, tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        head = f"GET / HTTP/1.1\r\nhost: localhost\r\nAccept-Encoding: {accepted}\r\nConnection: close\r\n\r\n"
        head, _, body = (await node.talk(head.encode())).decode("latin-1").partition("\r\n\r\n")
        assert ("content-encoding: gzip" in head.lower()) is zipped
        assert "vary: accept-encoding" in head.lower()
        sent = body.encode("latin-1")
        assert (gzip.decompress(sent) if zipped else sent) == (DIRECTORY / console.INDEX).read_bytes()

    assert tell(tmp_path, story) == []


def test_a_head_tells_what_a_get_would(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for path in ("/", "/console/icon.svg"):
            got, told = await node.client.get(path), await node.client.head(path)
            assert told.status_code == 200
            assert told.content == b""
            for name in ("content-length", "content-type", "etag", "content-security-policy"):
                assert told.headers[name] == got.headers[name]

    assert tell(tmp_path, story) == []


def test_every_script_that_another_one_imports_is_there() -> None:
    names = {name_of(path) for path in FILES}
    imported = {name for path in FILES if path.suffix == ".js" for name in imports_of(path)}
    assert imported <= names
    assert {name for name in names if name.endswith(".js")} - imported == {"main.js"}


def test_a_page_imports_its_own_folder_and_what_pages_share() -> None:
    allowed = {name: SHARED[: level + 1] for level, name in enumerate(SHARED)}
    allowed["topic"] = ("topic", *SHARED, *TABS)
    for path in FILES:
        folder = path.parent.name
        if path.suffix == ".js" and path.parent != DIRECTORY:
            found = {name.partition("/")[0] for name in imports_of(path)}
            assert found <= set(allowed.get(folder, (folder, *SHARED))), name_of(path)


def test_no_folder_of_the_console_is_crowded() -> None:
    folders = [path.parent for path in FILES]
    assert {folder.name for folder in folders if folders.count(folder) > IN_FOLDER_MAX} == set()


def test_all_of_it_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) <= 400 * 1024


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_needs_nothing_from_elsewhere(path: Path) -> None:
    assert path.suffix in {*console.MEDIA_TYPES, ".html"}
    assert set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[\w./-]*", path.read_text())) <= {SVG}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_makes_no_markup_of_text(path: Path) -> None:
    text = path.read_text()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in text
    if path.suffix == ".html":
        assert not re.search(r"<[^>]+\s(style|on\w+)=", text)
