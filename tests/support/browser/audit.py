"""What can be measured of a page: names of its controls as the browser tells them, contrast, width, shifts."""

from __future__ import annotations

from typing import Any, Final

from playwright.sync_api import Page

CONTRAST_MIN: Final = 4.5
CONTROLS: Final = frozenset(
    {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton", "tab", "switch"}
)
LANDMARKS: Final = frozenset({"region", "navigation", "search", "dialog"})
"""Of these there are several, so each needs a name."""

_CONTRASTS: Final = """(least) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (color) => {
    if (!known.has(color)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = (front, back, alpha) => [0, 1, 2].map((at) => front[at] * alpha + back[at] * (1 - alpha));
  const light = (color) => {
    const [r, g, b] = color.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const chain = (element) => element ? [...chain(element.parentElement), element] : [];
  const behind = (element) => chain(element).reduce((back, each) => {
    const color = rgba(getComputedStyle(each).backgroundColor);
    return over(color, back, color[3]);
  }, matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255]);
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, style = getComputedStyle(element);
    const text = texts.currentNode.data.trim();
    if (!text || element.closest(":disabled, [aria-disabled=true], [aria-hidden=true], noscript")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const box = element.getBoundingClientRect();
    if (box.width <= 1 || box.height <= 1) continue;
    const back = behind(element), color = rgba(element instanceof SVGElement ? style.fill : style.color);
    const opacity = chain(element).reduce((product, each) => product * Number(getComputedStyle(each).opacity), 1);
    const [high, low] = [light(over(color, back, color[3] * opacity)), light(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const who = `${element.tagName}.${element.getAttribute("class")} ${text.slice(0, 60)}`;
    if (ratio < least) found.push(`${ratio.toFixed(2)}: ${who}`);
  }
  return found;
}"""

_WATCH_SHIFTS: Final = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      const who = entry.sources.map(({ node }) => node ? `${node.nodeName}.${node.className ?? ""}` : "?");
      window.shifts.push([entry.value, who.join(" ")]);
    }
  }).observe({ type: "layout-shift" });
}"""

_TOO_WIDE: Final = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const end = (each) => each.getBoundingClientRect().right;
  const found = [...document.body.querySelectorAll("*")].filter((each) => end(each) > width + 1);
  return found.slice(0, 10).map((each) => `${each.tagName}.${each.getAttribute("class")} ends at ${end(each)}`);
}"""


def nameless(page: Page) -> list[str]:
    """Controls and landmarks that have no name for whoever cannot see them."""
    nodes = accessible(page)
    wanted = CONTROLS | LANDMARKS
    return [
        f"{role} {node.get('backendDOMNodeId')} {_parent_name(nodes, node)}"
        for node in nodes
        if (role := _text(node, "role")) in wanted and not node.get("ignored") and not _text(node, "name").strip()
    ]


def accessible(page: Page) -> list[dict[str, Any]]:
    session = page.context.new_cdp_session(page)
    try:
        nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
        return nodes
    finally:
        session.detach()


def faint(page: Page, least: float = CONTRAST_MIN) -> list[str]:
    """Texts that stand out too little from what is behind them."""
    found: list[str] = page.evaluate(_CONTRASTS, least)
    return found


def too_wide(page: Page) -> list[str]:
    """What makes the page scroll sideways; empty where it does not."""
    found: list[str] = page.evaluate(_TOO_WIDE)
    return found


def watch_shifts(page: Page) -> None:
    page.evaluate(_WATCH_SHIFTS)


def shifts(page: Page) -> tuple[float, list[str]]:
    """How much has moved by itself since `watch_shifts`, and what."""
    found: list[tuple[float, str]] = page.evaluate("() => window.shifts")
    return sum(value for value, _ in found), [f"{value:.4f}: {who}" for value, who in found]


def _text(node: dict[str, Any], name: str) -> str:
    return str(node.get(name, {}).get("value", ""))


def _parent_name(nodes: list[dict[str, Any]], node: dict[str, Any]) -> str:
    parent = next((each for each in nodes if each["nodeId"] == node.get("parentId")), {})
    return f"in {_text(parent, 'role')} {_text(parent, 'name')!r}"
