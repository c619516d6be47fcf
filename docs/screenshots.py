"""Makes the pictures of the console in docs/images: real nodes, a real browser, always the same records.

    python docs/screenshots.py [--only NAME]... [--out DIR] [--warm SECONDS]

Needs Chromium (apt install chromium). Says what it wrote; exits with 1 where a picture is too large for the docs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import httpx
from playwright.sync_api import Browser, Page

from support.browser import pipelined, scenes, staged
from support.browser.chromium import chromium
from support.browser.scenes import Scene
from support.browser.traffic import Traffic
from support.browser.visitor import Scheme, Visitor

IMAGES: Final = Path(__file__).parent / "images"
SIZE_MAX: Final = 200 * 1024
WARM_S: Final = 170.0
"""How long a busy node runs before pictures of it are taken: the plots show its last minutes."""
WIDE: Final = (1440, 900)
NARROW: Final = (390, 844)
FAILURE: Final = "OSError: [Errno 28] No space left on device"
NIGHT: Final[Scheme] = "dark"

Step = Callable[[Page, Scene], None]


class Picture(NamedTuple):
    name: str
    scene: str
    place: str = "#/"
    size: tuple[int, int] = WIDE
    scheme: Scheme = "light"
    step: Step | None = None
    """What to do on the page before the picture is taken."""


@contextmanager
def shop(root: Path) -> Iterator[Scene]:
    """The busy scene on a node that was filled and read before it was started: its plots show the traffic alone."""
    with scenes.still(root) as scene:
        for follower in scenes.FOLLOWERS:
            end = scene.node.ask(f"/topics/{follower.topic}")["partitions"][follower.partition]["committed"]
            path = f"/topics/{follower.topic}/cursors/{follower.cursor}"
            scene.node.call("PUT", path, {"seqno": end}, {"partition": follower.partition})
        scene.node.stop()
        scene.node.start()
        scene.node.call("POST", "/topics/payments/refuse", {"reason": scenes.REFUSAL})
        with Traffic(scene.node.address, scenes.FLOWS, scenes.FOLLOWERS) as traffic:
            scene.traffic = traffic
            yield scene


SCENES: Final[dict[str, scenes.SceneMaker]] = {
    **scenes.SCENES,
    "shop": shop,
    "workshop": staged.workshop,
    "works": partial(pipelined.works, failure=FAILURE),
}


def provoke(page: Page, scene: Scene) -> None:
    """A few writes that are refused, so that there is something to tell."""
    for _ in range(7):
        httpx.post(f"{scene.url}/topics/payments/records", json={"value": "late"})
    for _ in range(2):
        httpx.post(f"{scene.url}/topics/audit/records", params={"expect_seqno": 1}, json={"value": "old"})
    page.get_by_role("region", name="Recent troubles").get_by_text("WritesRefused").wait_for()


def open_a_record(page: Page, scene: Scene) -> None:
    page.get_by_role("table", name="Records").get_by_role("row").nth(3).click()
    page.get_by_role("dialog").wait_for()
    page.get_by_role("button", name="JSON", exact=True).click()


def open_writing(page: Page, scene: Scene) -> None:
    page.get_by_role("button", name="Write a record").click()
    dialog = page.get_by_role("dialog", name="Write a record")
    dialog.get_by_label("As", exact=True).select_option(label="JSON")
    dialog.get_by_label("Value").fill('{"order": 104217, "total": 48.90, "gift": false}')
    dialog.get_by_label("Key").fill("customer-17")
    dialog.get_by_label("Channel").fill("shop/porto/web")
    dialog.get_by_label("Tags").fill("paid, express")


def lose_the_node(page: Page, scene: Scene) -> None:
    scene.node.kill()
    page.get_by_text("has not answered since").wait_for()


def read_on(page: Page, scene: Scene) -> None:
    """The members of the group, which were silent, catch up with most of what came."""
    for number in (1, 2):
        member = f"/groups/dashboards/members/{'panel' * 3}-{number}"
        given = scene.node.call("POST", f"{member}/poll", {}, {"limit": 5_000})
        scene.node.call("POST", f"{member}/commit", {"next": given["next"]})
    page.wait_for_timeout(5_000)


def pause(page: Page, scene: Scene) -> None:
    page.get_by_role("button", name="Pause").click()


PICTURES: Final = (
    Picture("overview", "shop", step=provoke),
    Picture("overview-dark", "shop", scheme=NIGHT),
    Picture("overview-narrow", "shop", size=NARROW),
    Picture("overview-narrow-dark", "shop", size=NARROW, scheme=NIGHT),
    Picture("records", "shop", "#/topics/orders", step=pause),
    Picture("records-narrow", "shop", "#/topics/orders", NARROW, step=pause),
    Picture("record", "shop", "#/topics/orders", step=open_a_record),
    Picture("record-narrow-dark", "shop", "#/topics/orders", NARROW, NIGHT, open_a_record),
    Picture("segments", "shop", "#/topics/sensors.temperature/segments"),
    Picture("cursors", "shop", "#/topics/clicks/cursors"),
    Picture("group", "shop", "#/groups/dashboards", step=read_on),
    Picture("settings", "shop", "#/topics/orders/settings"),
    Picture("write", "shop", "#/topics/orders", step=open_writing),
    Picture("pipeline", "works", "#/pipeline"),
    Picture("gone", "shop", step=lose_the_node),
    Picture("stages", "workshop", "#/stages"),
    Picture("empty", "empty"),
    Picture("ten-thousand", "ten_thousand"),
    Picture("damaged", "damaged"),
    Picture("replica", "replica"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[picture.name for picture in PICTURES], default=[])
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds of traffic before pictures of a busy node")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = [picture for picture in PICTURES if not arguments.only or picture.name in arguments.only]
    written: list[Path] = []
    with chromium() as browser:
        for name, pictures in groupby(wanted, key=lambda picture: picture.scene):
            with tempfile.TemporaryDirectory(prefix="logboom-pictures-") as root, SCENES[name](Path(root)) as scene:
                if scene.traffic is not None:
                    time.sleep(arguments.warm)
                written += [take(browser, scene, picture, arguments.out) for picture in pictures]
    return 1 if any(is_too_large(path) for path in written) else 0


def take(browser: Browser, scene: Scene, picture: Picture, out: Path) -> Path:
    visitor, path = Visitor(browser), out / f"{picture.name}.png"
    try:
        page = visitor.visit(scene.url, picture.place, *picture.size, picture.scheme)
        if picture.step is not None:
            picture.step(page, scene)
        page.wait_for_timeout(500)  # what has just come is drawn, what has just moved stands still
        page.screenshot(path=path)
    finally:
        visitor.close()
    print(f"{path}  {path.stat().st_size // 1024} KiB", flush=True)
    return path


def is_too_large(path: Path) -> bool:
    too_large = path.stat().st_size > SIZE_MAX
    if too_large:
        print(f"{path} is larger than {SIZE_MAX // 1024} KiB", file=sys.stderr)
    return too_large


if __name__ == "__main__":
    sys.exit(main())
