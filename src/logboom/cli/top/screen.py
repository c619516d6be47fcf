"""`logboom top` on a terminal: keys in, pages out, and a look at the node every so often.

One task asks the node, one look after another; a key that needs another look wakes it. Another one examines its health
from time to time. While the node is gone the last look stays, dimmed, and it is tried again with a growing pause. Ends
with `exit`; whoever runs it closes the looker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import msgspec
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.widget import Widget

from logboom.cli.top.detail import detail_lines
from logboom.cli.top.lines import line, trouble_lines
from logboom.cli.top.look import Looker, NodeLook, View
from logboom.cli.top.page import Mood, TopPage, help_lines, overview, scrolled
from logboom.cli.top.table import SORTS
from logboom.client.link.backoff import Backoff
from logboom.errors import LogboomError

if TYPE_CHECKING:
    from logboom.broker.monitor.checkup import Complaint

SEARCH_MAX: Final = 249
"""As long as a topic's name can be."""
WHEEL_LINES: Final = 3
HUNG_UP: Final = 129
EXAMINE_S: Final = 0.2
"""How often it is looked whether the node is to be examined again."""

Mode = Literal["topics", "topic", "troubles", "help"]


class Terminal(LinuxDriver):
    """Draws on standard output, so that standard error can go elsewhere."""

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ):
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__

    def _get_terminal_size(self) -> tuple[int, int]:
        """As it is, whatever $COLUMNS and $LINES say it was."""
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:
            return super()._get_terminal_size()
        return (size.columns, size.lines) if size.columns and size.lines else super()._get_terminal_size()

    @property
    def is_gone(self) -> bool:
        try:
            termios.tcgetattr(self.fileno)
        except termios.error:
            return True
        return False


class Board(Widget, can_focus=True):
    """The whole screen: the last look, what of it is shown, and what the keys do to that."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self, look: NodeLook, nudge: Callable[[], None]) -> None:
        super().__init__()
        self.look = look
        self.view = look.view
        self.mode: Mode = "topics"
        self.paused = False
        self._nudge = nudge
        self._gone: str | None = None
        self._gone_since = 0.0
        self._searching = False
        self._selected = 0
        self._followed: str | None = None
        """The topic that was chosen: the bar stays on it wherever it goes."""
        self._scroll = 0
        self._page = TopPage([], 0, 0)

    def show(self, look: NodeLook, asked: View) -> None:
        """What the node said to that."""
        self.look, self._gone = look, None
        if self.view == asked:
            self.view = look.view
        names = [topic.name for topic in look.activity.topics]
        if self._followed in names:
            self._selected = names.index(self._followed)
        self._selected = max(0, min(self._selected, len(names) - 1))
        self.draw()

    def note(self, findings: list[Complaint]) -> None:
        """What is wrong with it."""
        self.look = msgspec.structs.replace(self.look, findings=findings)
        self.draw()

    def lose(self, reason: str) -> None:
        """It says nothing any more."""
        if self._gone is None:
            self._gone_since = time.time()
        self._gone = reason
        self.draw()

    @property
    def gone(self) -> bool:
        return self._gone is not None

    def draw(self) -> None:
        width, height = self.size
        if not width or not height:
            return
        searching = self.view.search if self._searching else None
        mood = Mood(self._selected, self.paused, searching, self._gone, self._gone_since)
        if self.mode == "topics":
            self._page = overview(self.look, width, height, mood)
            if self._page.rows != self.view.rows and self._page.rows:
                # The topic under the bar stays on the page.
                beyond = max(0, self._selected - self._page.rows + 1)
                self._see(rows=self._page.rows, offset=self.view.offset + beyond)
        else:
            body = self._body(width)
            rows = scrolled(body, 0, self.look, width, height, mood).rows
            self._scroll = max(0, min(self._scroll, len(body) - rows))
            self._page = scrolled(body, self._scroll, self.look, width, height, mood)
        self.refresh()

    def _body(self, width: int) -> list[Text]:
        look = self.look
        if self.mode == "help":
            return help_lines(width)
        if self.mode == "troubles":
            return trouble_lines(look.findings, look.incidents, look.stats.now, width)
        if look.detail is None or look.detail.name != self.view.topic:
            return [line(width, f"asking for {self.view.topic} ...")]
        return detail_lines(look.detail, look.stats.now, width)

    def render(self) -> Text:
        return Text("\n", no_wrap=True).join(self._page.lines)

    def on_resize(self) -> None:
        self.draw()

    def _see(self, **changes: object) -> None:
        """Look at something else."""
        self.view = msgspec.structs.replace(self.view, **changes)
        self._nudge()

    # Keys.

    def on_key(self, event: events.Key) -> None:
        if self._searching:
            self._type(event)
        elif (action := self._actions().get(event.key)) is not None:
            action()
        else:
            return
        event.stop()
        event.prevent_default()
        self.draw()

    def _actions(self) -> dict[str, Callable[[], object]]:
        page = max(1, self._page.rows)
        moving: dict[str, Callable[[], object]] = {
            "up": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "pageup": lambda: self._turn(-page),
            "pagedown": lambda: self._turn(page),
            "home": lambda: self._turn(-self.look.activity.matched - self._scroll),
            "end": lambda: self._turn(self.look.activity.matched + len(self._page.lines) + 10_000),
            "q": lambda: self.app.exit(0),
            "p": self._pause,
            "escape": self._back,
        }
        if self.mode == "topics":
            moving |= {
                "slash": self._begin_search,
                "s": lambda: self._sort(1),
                "S": lambda: self._sort(-1),
                "upper_s": lambda: self._sort(-1),
                "r": lambda: self._reorder(descending=not self.view.descending),
                "enter": self._open,
            }
        return moving | {
            "i": lambda: self._enter("troubles"),
            "h": lambda: self._enter("help"),
            "question_mark": lambda: self._enter("help"),
        }

    def _type(self, event: events.Key) -> None:
        text = self.view.search
        if event.key in ("enter", "escape", "down", "up"):
            self._searching = False
            if event.key == "escape":
                self._reorder(search="")
        elif event.key in ("backspace", "ctrl+h"):
            self._reorder(search=text[:-1])
        elif event.key in ("ctrl+u", "ctrl+w"):
            self._reorder(search="")
        elif event.is_printable and event.character is not None:
            self._reorder(search=(text + event.character)[:SEARCH_MAX])

    def on_paste(self, event: events.Paste) -> None:
        if self._searching:
            pasted = "".join(letter if letter.isprintable() else " " for letter in event.text[:SEARCH_MAX])
            self._reorder(search=(self.view.search + pasted)[:SEARCH_MAX])
            self.draw()
        event.stop()

    def _begin_search(self) -> None:
        self._searching = True

    def _pause(self) -> None:
        self.paused = not self.paused
        self._nudge()

    def _sort(self, step: int) -> None:
        sort = SORTS[(SORTS.index(self.view.sort) + step) % len(SORTS)]
        self._reorder(sort=sort, descending=sort != "name")

    def _reorder(self, **changes: object) -> None:
        """Other topics, or in another order: from the first one on."""
        self._selected, self._followed = 0, None
        self._see(offset=0, **changes)

    def _enter(self, mode: Mode) -> None:
        self._scroll = 0
        self.mode = "topics" if self.mode == mode else mode

    def _open(self) -> None:
        topics = self.look.activity.topics
        if self._selected < len(topics):
            self._enter("topic")
            self._see(topic=topics[self._selected].name)

    def _back(self) -> None:
        if self.mode == "topics":
            if self.view.search:
                self._reorder(search="")
            return
        self.mode = "topics"
        if self.view.topic is not None:
            self._see(topic=None)

    # Moving.

    def _move(self, step: int) -> None:
        """The bar by so many lines; the page with it, where it ends."""
        if self.mode != "topics":
            self._scroll = max(0, self._scroll + step)
            return
        wanted, topics = self._selected + step, self.look.activity.topics
        self._selected = max(0, min(wanted, len(topics) - 1))
        self._followed = topics[self._selected].name if topics else None
        if wanted != self._selected:
            self._slide(wanted - self._selected)

    def _turn(self, step: int) -> None:
        """The page by so many lines; the bar, where the page cannot."""
        if self.mode != "topics":
            self._scroll = max(0, self._scroll + step)
        elif not self._slide(step):
            self._followed = None
            self._selected = 0 if step < 0 else max(0, len(self.look.activity.topics) - 1)

    def _slide(self, step: int) -> bool:
        last = max(0, self.look.activity.matched - self.view.rows)
        offset = max(0, min(self.view.offset + step, last))
        if offset == self.view.offset:
            return False
        self._followed = None
        self._see(offset=offset)
        return True

    def on_mouse_scroll_down(self) -> None:
        self._move(WHEEL_LINES)
        self.draw()

    def on_mouse_scroll_up(self) -> None:
        self._move(-WHEEL_LINES)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        row, topics = event.y - self._page.table_top, self.look.activity.topics
        if self.mode == "topics" and 0 <= row < len(topics):
            self._selected, self._followed = row, topics[row].name
            if event.chain > 1:
                self._open()
            self.draw()


class TopApp(App[int]):
    """Runs a board and keeps it fresh. `first` is a look that has been taken already."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, looker: Looker, first: NodeLook, interval_s: float) -> None:
        super().__init__(driver_class=Terminal, ansi_color=True)
        self._looker = looker
        self._interval_s = interval_s
        self._nudged = asyncio.Event()
        self.board = Board(first, self._nudged.set)

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.board.focus()
        self.run_worker(self._follow())
        self.run_worker(self._examine())
        self.set_interval(1.0, self._tick)

    def action_leave(self) -> None:
        self.exit(0)

    def _tick(self) -> None:
        """It says how long the node has been gone. Without a terminal there is nobody to say it to."""
        if isinstance(self._driver, Terminal) and self._driver.is_gone:
            # Only where a hang-up is ignored; what is still to be drawn would wait for ever.
            os._exit(HUNG_UP)
        if self.board.gone:
            self.board.draw()

    async def _follow(self) -> None:
        backoff, board = Backoff(), self.board
        while True:
            self._nudged.clear()
            asked = board.view
            try:
                look = await self._looker.look(asked)
                board.show(look, asked)
                backoff.reset()
            except LogboomError as error:
                board.lose(str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            await self._rest()

    async def _examine(self) -> None:
        """Beside the looks: with very many topics it takes longer than a key should wait."""
        while True:
            if self._looker.checkup_due and not self.board.paused:
                # Where the connection is lost, the next look says so.
                with suppress(LogboomError):
                    self.board.note(await self._looker.check_up())
            await asyncio.sleep(EXAMINE_S)

    async def _rest(self) -> None:
        """Until it is time, or somebody wants to see something else."""
        try:
            async with asyncio.timeout(None if self.board.paused else self._interval_s):
                await self._nudged.wait()
        except TimeoutError:
            return
