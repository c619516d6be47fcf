"""A picture of a page of the console, taken when the page says it is ready.

python tests/support/browser/shot.py URL '#/topics/orders' out.png --width 1440 --height 900 --dark
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from playwright.sync_api import Page

from support.browser.chromium import chromium

READY: Final = "html[data-ready=true]"
READY_MS: Final = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("place", help="what stands behind the URL: '#/topics/orders', '' is the first page")
    parser.add_argument("file")
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--full", action="store_true", help="the whole page, however long")
    parser.add_argument("--wait", type=float, default=0, help="seconds more after the page is ready")
    parser.add_argument("--click", action="append", default=[], help="a CSS selector to click first; may be repeated")
    arguments = parser.parse_args()
    size = {"width": arguments.width, "height": arguments.height}
    with chromium() as browser:
        context = browser.new_context(viewport=size, color_scheme="dark" if arguments.dark else "light")  # type: ignore[arg-type]
        page = context.new_page()
        tell_troubles(page)
        page.goto(arguments.url.rstrip("/") + "/" + arguments.place)
        page.locator(READY).wait_for(state="attached", timeout=READY_MS)
        for selector in arguments.click:
            page.locator(selector).first.click()
        page.wait_for_timeout(arguments.wait * 1000)
        page.screenshot(path=arguments.file, full_page=arguments.full)
    print(arguments.file)


def tell_troubles(page: Page) -> None:
    """What the page complains of goes to standard error."""
    page.on("console", lambda message: print(f"{message.type}: {message.text}", file=sys.stderr))
    page.on("pageerror", lambda error: print(f"error: {error}", file=sys.stderr))


if __name__ == "__main__":
    main()
