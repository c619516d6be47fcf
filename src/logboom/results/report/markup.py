"""HTML and SVG, made of elements and never of text: whatever is not an element is escaped.

Plots are drawn without letters, and stretch to whatever width there is; numbers stand around them as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

HEIGHT: Final = 100


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Markup | None


def el(tag: str, *children: Child, **attributes: object) -> Markup:
    """
    >>> el("p", "1 < 2", el("b", "!"), class_="a")
    '<p class="a">1 &lt; 2<b>!</b></p>'
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>{join(*children)}</{tag}>")


def join(*children: Child) -> Markup:
    found = (child if isinstance(child, Markup) else escape(child) for child in children if child is not None)
    return Markup("".join(found))


def nice(number: float) -> int:
    """A round number that is not less.

    >>> [nice(number) for number in (0, 3, 11, 480, 12_001)]
    [1, 4, 20, 600, 20000]
    """
    power = 1
    while 10 * power < number:
        power *= 10
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= number)


def nice_bytes(number: float) -> int:
    """The same, for sizes.

    >>> nice_bytes(3000), nice_bytes(10**9)
    (4096, 1073741824)
    """
    unit = 1
    while 1024 * unit <= number and unit < 2**40:
        unit *= 1024
    found = nice(number / unit)
    return unit * (1024 if found > 800 else found)


def bars(columns: Sequence[tuple[int, float, str]], count: int, most: float, label: str, kind: str = "") -> Markup:
    """So many places, and in some of them a bar: its place, its height, and what it is."""
    drawn = []
    for place, height, title in columns:
        size = max(0.6, HEIGHT * height / most) if height else 0
        drawn.append(
            el(
                "rect",
                el("title", title),
                x=f"{place + 0.08:.2f}",
                y=f"{HEIGHT - size:.2f}",
                width="0.84",
                height=f"{size:.2f}",
            )
        )
    return _drawing(f"bars {kind}".strip(), count, label, *drawn)


def line(points: Sequence[tuple[float, float]], width: float, most: float, label: str) -> Markup:
    """From left to right; what is below it is filled."""
    scaled = [(1000 * x / width, HEIGHT - HEIGHT * y / most) for x, y in points]
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in scaled)
    area = f"{scaled[0][0]:.2f},{HEIGHT} {path} {scaled[-1][0]:.2f},{HEIGHT}"
    return _drawing("line", 1000, label, el("polygon", points=area), el("polyline", points=path))


def _drawing(kind: str, width: int, label: str, *drawn: Markup) -> Markup:
    grid = (el("line", x1=0, x2=width, y1=y, y2=y) for y in (0, HEIGHT // 2, HEIGHT))
    box = f"0 0 {width} {HEIGHT}"
    return el(
        "svg",
        el("g", *grid, class_="grid"),
        *drawn,
        class_=kind,
        viewBox=box,
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def share_bar(share: float) -> Markup:
    """How much of all that is."""
    filled = el("rect", width=f"{100 * min(1.0, share):.2f}", height=10)
    return el(
        "svg", el("rect", class_="rest", width=100, height=10), filled, class_="share", viewBox="0 0 100 10",
        preserveAspectRatio="none", aria_hidden="true",
    )  # fmt: skip


def plot(title: str, about: str, drawing: Markup, high: Sequence[str], across: Sequence[str]) -> Markup:
    """A drawing with what stands beside it, from the top down, and below it, from left to right."""
    return el(
        "figure",
        el("figcaption", el("b", title), el("span", about)),
        el(
            "div",
            el("div", *(el("span", text) for text in high), class_="high"),
            el("div", drawing, class_="drawing"),
            el("div", *(el("span", text) for text in across), class_="across"),
            class_="plot",
        ),
    )


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Markup], kind: str) -> Markup:
    head = el("tr", *(el("th", name, class_=kind or None, scope="col") for name, kind in columns))
    listed = el("table", el("thead", head), el("tbody", *rows), class_=kind or None)
    return el("div", listed, class_="scroll")


def cells(*texts: str) -> list[Markup]:
    return [el("td", text, class_="num") for text in texts]


def fact_list(facts: Sequence[tuple[str, str]]) -> Markup:
    return el("dl", *(join(el("dt", name), el("dd", value)) for name, value in facts), class_="facts")
