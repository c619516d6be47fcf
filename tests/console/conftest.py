"""The console in a real browser, on a real node.

One node per file, and one browser per worker where these tests run alone: to start one takes longer than most tests.
Beside others it ends with each file, for Playwright holds the thread's event loop for as long as it runs, which must
not meet tests that want one of their own. A file runs on one worker (--dist loadfile).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import chromium as debian
from support.browser import scenes
from support.browser.chromium import FOREIGN
from support.browser.scenes import Scene
from support.browser.visitor import TIMEOUT_MS, Visitor
from support.packages import need

HERE: Final = Path(__file__).parent

expect.set_options(timeout=TIMEOUT_MS)


def _how_long(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    alone = all(Path(each).resolve().is_relative_to(HERE) for each in config.args)
    return "session" if alone else "module"


@pytest.fixture(scope=_how_long)
def browser() -> Iterator[Browser]:
    """It finds a name of somebody else where the node is; no other test goes there."""
    need(debian.COMMAND, debian.PACKAGE, debian.INSTALL_S)
    with debian.chromium(f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1") as launched:
        yield launched


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    try:
        yield visitor
        visitor.check()
    finally:
        visitor.close()


def _module_directory(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("node")


@pytest.fixture(scope="module")
def empty(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.empty(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Topics with records, cursors and troubles; nobody writes."""
    with scenes.still(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def busy(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.busy(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def ten_thousand(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.ten_thousand(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def hostile(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.hostile(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def damaged(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.damaged(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def replica(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scenes.replica(_module_directory(tmp_path_factory)) as scene:
        yield scene


@pytest.fixture(scope="module")
def page(browser: Browser, empty: Scene) -> Iterator[Page]:
    """One for all tests of a file that call functions of the console's modules: nothing they call changes it."""
    visitor = Visitor(browser)
    try:
        yield visitor.visit(empty.url)
        visitor.check()
    finally:
        visitor.close()
