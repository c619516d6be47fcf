"""The pages of `logboom top`: which lines there are at which size of the terminal. Also the plain text of `--once`.

A page is never higher or wider than asked. Where there is little room the plots, gauges and incidents give way, the
topics last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from logboom.broker.wording import printable
from logboom.cli.top.lines import (
    BAD,
    FAINT,
    TITLE,
    WARN,
    Part,
    gauge_lines,
    gone_lines,
    head_line,
    health_lines,
    incident_lines,
    line,
    plot_lines,
    state_line,
)
from logboom.cli.top.table import table_lines, title_line

if TYPE_CHECKING:
    from logboom.cli.top.look import NodeLook

TALL: Final = 42
"""From this height on the plots have three lines each."""
KEYS: Final = "/ search  s sort  r reverse  p pause  i incidents  Enter topic  ? help  q quit"
HELP: Final = """\
KEYS
  arrows, PageUp, PageDown, Home, End   move through the topics
  Enter      the topic under the bar: partitions, settings, cursors
  /          search: words that are all in the name; Escape forgets it
  s, S, r    sort by the next column, by the one before; reverse the order
  i          all that is wrong, and what was refused or went wrong lately
  p          pause: nothing new is shown unless you ask for it
  Escape     back
  q, Ctrl-C  quit

COLUMNS
  IN/s OUT/s BYTES/s   records written and read, bytes written (BOUT/s: read)
  SIZE RECORDS NEWEST  on disk, to be read, how long ago the last ones came
  KEPT                 by retention: age, bytes, records; <: never more bytes
  CURS LAG             cursors; records that the last of them has before it
  RECENT               records written in each of the last samples
  X                    takes no writes: damaged, or cannot be opened
  !                    takes no writes: they are refused

PLOTS are of the node's own samples, one every 2 seconds, the newest at the
right. Of 100 appends, syncs or reads one took longer than the p99."""


class Mood(NamedTuple):
    """How the page stands, besides what the node says."""

    selected: int | None = 0
    paused: bool = False
    searching: str | None = None
    """What has been typed so far."""
    gone: str | None = None
    """Why there is no answer any more."""
    gone_since: float = 0.0


class TopPage(NamedTuple):
    lines: list[Text]
    table_top: int
    """The line of the first topic."""
    rows: int
    """For topics."""


def overview(look: NodeLook, width: int, height: int, mood: Mood = Mood()) -> TopPage:  # noqa: B008
    tall = height >= TALL
    above = _top(look, width, 4 if tall else 3 if height >= 14 else 1, mood)
    head = len(above)
    if height >= 14:
        above += plot_lines(look.history, width, tall)
    if height >= 18:
        above += gauge_lines(look.stats, width)
    if tall:
        above.append(Text(end=""))
    below = _bottom(look, width, 8 if tall else 2 if height >= 22 else 0, mood)
    rows = max(0, height - len(above) - len(below) - 2)
    above.append(title_line(look.activity, look.view, width, rows))
    table = table_lines(look.activity, look.view, look.stats.now, width, rows, mood.selected)
    made = [*above, *table, *below][:height]
    return TopPage(_dimmed(made, mood, head), len(above) + 1, rows)


def _top(look: NodeLook, width: int, most: int, mood: Mood) -> list[Text]:
    marks: list[Part] = [("PAUSED", WARN)] if mood.paused else []
    made = [head_line(look.stats, look.address, marks, width)]
    if mood.gone is not None:
        return [*made, *gone_lines(mood.gone, mood.gone_since, width)]
    return [*made, state_line(look.stats, look.findings, width), *health_lines(look.findings, width, most)]


def _bottom(look: NodeLook, width: int, incidents: int, mood: Mood) -> list[Text]:
    made = incident_lines(look.incidents, look.stats.now, width, incidents)
    if made:
        more = len(look.incidents) - len(made)
        title = f"INCIDENTS{f', {more} more (i)' if more > 0 else ''}"
        made.insert(0, line(width, (title, TITLE)))
    return [*made, foot_line(width, mood)]


def foot_line(width: int, mood: Mood) -> Text:
    if mood.searching is None:
        return line(width, (KEYS, FAINT))
    typed = line(width, ("search: ", TITLE), printable(mood.searching), ("_", "blink"))
    if typed.cell_len + 36 < width:
        typed.append("  Enter: done, Escape: forget it", FAINT)
    return typed


def _dimmed(lines: list[Text], mood: Mood, head: int) -> list[Text]:
    """What was true once, where there is no answer any more: all but the rest of the head, which says so."""
    if mood.gone is None:
        return lines
    made = [text.copy() for text in lines]
    for text in (*made[:1], *made[head:]):
        text.stylize("dim")
    return made


def scrolled(body: Sequence[Text], at: int, look: NodeLook, width: int, height: int, mood: Mood) -> TopPage:
    """A longer text, from its line `at` on, below the head of the page."""
    above = _top(look, width, 3, mood)[: max(0, height - 2)]
    rows = max(0, height - len(above) - 1)
    shown = list(body[at : at + rows])
    end = min(len(body), at + rows)
    where = f"  lines {at + 1:,} to {end:,} of {len(body):,}" if len(body) > rows else ""
    foot = line(width, (f"Escape back  arrows, PageUp, PageDown move  q quit{where}", FAINT))
    made = [*above, *shown, *[Text(end="")] * (rows - len(shown)), foot]
    return TopPage(_dimmed(made, mood, len(above)), len(above), rows)


def help_lines(width: int) -> list[Text]:
    return [line(width, (text, TITLE if text.isupper() else "")) for text in HELP.splitlines()]


def plain_text(look: NodeLook, width: int) -> str:
    """The overview without a terminal: as high as it must be, with all topics there are in the look."""
    count = len(look.activity.topics)
    parts = [
        *_top(look, width, 6, Mood()),
        *plot_lines(look.history, width, tall=False),
        *gauge_lines(look.stats, width),
        title_line(look.activity, look.view, width, count),
        *table_lines(look.activity, look.view, look.stats.now, width, count),
    ]
    troubles = incident_lines(look.incidents, look.stats.now, width, 20)
    parts += [line(width, ("INCIDENTS", BAD)), *troubles] if troubles else []
    return "".join(f"{text.plain.rstrip()}\n" for text in parts)
