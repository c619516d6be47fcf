"""Debian's Chromium, without a window, driven by Playwright. Whoever opens it closes it.

Chromium's headless shell is the same engine without what draws a window: it starts and opens pages in two thirds of the
time. Where there is none and Chromium is, that does as well.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

SHELL: Final = "chromium-headless-shell"
COMMAND: Final = "chromium" if shutil.which(SHELL) is None and shutil.which("chromium") else SHELL
PACKAGE: Final = COMMAND
INSTALL_S: Final = 420
FOREIGN: Final = "evil.example"
OPTIONS: Final = (
    *("--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"),
    *("--in-process-gpu", "--disable-site-isolation-trials", "--renderer-process-limit=1"),  # few processes to start
)


@contextmanager
def chromium(*more: str) -> Iterator[Browser]:
    """Raises where there is none. `more` are options of its command."""
    found = shutil.which(COMMAND)
    if found is None:
        raise FileNotFoundError(f"{COMMAND} is not installed: apt install {PACKAGE}")
    options = [*OPTIONS, *more, *(("--no-sandbox",) if os.geteuid() == 0 else ())]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=options)
        try:
            yield browser
        finally:
            browser.close()
