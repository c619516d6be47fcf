"""`logboom top` against a real node: on a real terminal, and key by key."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from logboom.batch import build
from logboom.broker.api import Part, Settings, Start
from logboom.broker.api import ReadRequest as Read
from logboom.cli.top.look import Looker, View
from logboom.cli.top.screen import TopApp
from logboom.client.remote import connect
from logboom.storage.data.topic import RetentionSettings
from support.nodes.process import NodeProcess
from support.waiting import wait_until

PORTS = ("--logd", "127.0.0.1:0", "--http", "127.0.0.1:0")
PATIENCE_S = 300.0
TOPICS = 60
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]].*?(?:\x1b\\|\x07)|[@-Z\\-_])", re.DOTALL)


class OnTerminal:
    """A process on a terminal of its own."""

    def __init__(
        self, *arguments: str, columns: int = 80, lines: int = 24, deaf: bool = False, **environment: str
    ) -> None:
        self.said = bytearray()
        command = [sys.executable, "-m", "logboom", "top", *arguments]
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.environ.update(TERM="xterm", **environment)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            signal.signal(signal.SIGHUP, signal.SIG_IGN if deaf else signal.SIG_DFL)
            os.execv(sys.executable, command)
        self._status: int | None = None
        self._hung_up = threading.Event()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while not self._hung_up.is_set():
                if select.select([self.terminal], [], [], 0.05)[0]:
                    self.said += os.read(self.terminal, 65536)
        except OSError:
            pass
        finally:
            os.close(self.terminal)

    @property
    def words(self) -> str:
        return _ESCAPE.sub(b"", bytes(self.said)).decode(errors="replace")

    def wait_for(self, words: str, since: int = 0) -> int:
        """Until it has said that; returns how much it has said."""
        wait_until(
            lambda: words in _ESCAPE.sub(b"", bytes(self.said[since:])).decode(errors="replace"),
            lambda: f"{words!r} in {self.words[-3000:]!r}",
            limit_s=PATIENCE_S,
            every_s=0.02,
        )
        return len(self.said)

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def hang_up(self) -> None:
        """The terminal is closed."""
        self._hung_up.set()
        self._listener.join()

    def end(self, hard: bool = False) -> int:
        """Waits for the end; the exit code, or minus the signal."""
        if self._status is None:
            if hard:
                os.kill(self.pid, signal.SIGKILL)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._listener.join()
        return self._status


Show = Callable[..., OnTerminal]


@pytest.fixture
def show() -> Iterator[Show]:
    started: list[OnTerminal] = []

    def start(*arguments: str, **options: Any) -> OnTerminal:
        started.append(OnTerminal(*arguments, **options))
        return started[-1]

    yield start
    for process in started:
        process.end(hard=True)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), *PORTS) as process:
        asyncio.run(fill(process.address))
        yield process


async def fill(address: str) -> None:
    """Topics of different sizes; a cursor that lags on the largest."""
    async with connect(address) as broker:

        async def make(number: int) -> None:
            await broker.create_topic(f"topic-{number:02}", 1 + number % 2)
            batch = build([b"x" * 10] * (number + 1))
            await broker.append([Part(f"topic-{number:02}", [batch], 0)], "durable")

        await asyncio.gather(*map(make, range(TOPICS)))
        await broker.configure_topic("topic-58", Settings(retention=RetentionSettings(age_ms=86_400_000)))
        chunk = await broker.read(Read("topic-58", Start(seqno=0), 0, max_records=1))
        await broker.commit_cursor("billing", "topic-58", 0, chunk.bookmark)


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "ctrl-c"])
def test_it_draws_and_quits_and_leaves_the_terminal_as_it_was(node: NodeProcess, show: Show, key: str) -> None:
    top = show("--server", node.address)
    top.wait_for("writes accepted")
    top.wait_for("nothing is wrong")
    top.press(key)
    assert top.end() == 0
    assert top.said.count(b"\x1b[?1049h") == top.said.count(b"\x1b[?1049l") == 1
    assert b"Traceback" not in top.said


def test_colours_are_the_terminal_s_sixteen_and_none_without_colour(node: NodeProcess, show: Show) -> None:
    coloured, plain = show("--server", node.address), show("--server", node.address, NO_COLOR="1")
    for top in (coloured, plain):
        top.wait_for("nothing is wrong")
        top.press("q")
        assert top.end() == 0
    styles = {part for code in re.findall(rb"\x1b\[([\d;]*)m", coloured.said) for part in code.split(b";")}
    assert b"32" in styles
    assert not styles & {b"38", b"48"}
    styles = {part for code in re.findall(rb"\x1b\[([\d;]*)m", plain.said) for part in code.split(b";")}
    assert styles <= {b"", b"0", b"1", b"2", b"4", b"7", b"39", b"49"}


def test_a_terminal_whose_encoding_has_no_blocks_gets_plainer_signs(node: NodeProcess, show: Show) -> None:
    top = show("--server", node.address, PYTHONIOENCODING="ascii")
    top.wait_for("nothing is wrong")
    top.press("q")
    assert top.end() == 0
    assert top.said.isascii()
    assert re.search(r"files +#+\.+ ", top.words)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)], ids=["term", "int"])
def test_a_signal_ends_it_and_the_terminal_is_put_in_order(
    node: NodeProcess, show: Show, sent: signal.Signals, code: int
) -> None:
    top = show("--server", node.address)
    top.wait_for("nothing is wrong")
    os.kill(top.pid, sent)
    assert top.end() == code
    assert b"\x1b[?1049l" in top.said


@pytest.mark.parametrize(("deaf", "code"), [(False, -signal.SIGHUP), (True, 129)], ids=["plain", "nohup"])
def test_a_terminal_that_is_closed_ends_it(node: NodeProcess, show: Show, deaf: bool, code: int) -> None:
    top = show("--server", node.address, deaf=deaf)
    top.wait_for("nothing is wrong")
    top.hang_up()
    assert top.end() == code


def test_a_node_that_goes_is_missed_and_one_that_comes_back_is_found(tmp_path: Path, show: Show) -> None:
    with NodeProcess(tmp_path, *PORTS) as node:
        top = show("--server", node.address, "--interval", "0.2", columns=120)
        at = top.wait_for("nothing is wrong")
        node.kill()
        at = top.wait_for("NO ANSWER since", at)
        node.start()
        at = top.wait_for("writes accepted", at)
        top.press("?")
        top.wait_for("KEYS", at)
        top.press("q")
        assert top.end() == 0


def test_a_terminal_that_changes_its_size_gets_another_page(node: NodeProcess, show: Show) -> None:
    top = show("--server", node.address)
    at = top.wait_for("nothing is wrong")
    assert "RECORDS" not in top.words
    top.resize(160, 50)
    top.wait_for("RECORDS", at)
    top.press("q")
    assert top.end() == 0


Talk = Callable[[TopApp, Pilot[int]], Awaitable[None]]


def converse(address: str, talk: Talk, size: tuple[int, int] = (100, 30)) -> None:
    """The application without a terminal, with the node."""

    async def run() -> None:
        looker = Looker([address])
        try:
            app = TopApp(looker, await looker.look(View(rows=size[1])), 0.2)
            async with app.run_test(size=size) as pilot:
                await talk(app, pilot)
        finally:
            await looker.close()

    asyncio.run(run())


async def seen(app: TopApp, *words: str) -> str:
    """Waits until all of it is on the screen."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        text = app.board.render().plain
        if all(word in text for word in words):
            return text
        assert time.monotonic() < deadline, f"no {words} in\n{text}"
        await asyncio.sleep(0.02)


def names_in(text: str) -> list[str]:
    return re.findall(r"^[X! ] (topic-\d\d)", text, re.MULTILINE)


def test_topics_are_sorted_and_the_order_is_reversed(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        for _ in range(5):
            await pilot.press("s")
        text = await seen(app, "by records, largest first", "topic-59")
        assert names_in(text)[:3] == ["topic-59", "topic-58", "topic-57"]
        await pilot.press("r")
        text = await seen(app, "by records, smallest first", "topic-00")
        assert names_in(text)[:2] == ["topic-00", "topic-01"]
        await pilot.press("S", "S")
        await seen(app, "by bytes out")

    converse(node.address, talk)


async def by_name(app: TopApp, pilot: Pilot[int]) -> int:
    """Sorted by name; returns how many rows there are."""
    await pilot.press("S")
    names = names_in(await seen(app, "by name", "topic-00"))
    while len(names) != app.board.view.rows:
        await asyncio.sleep(0.02)
        names = names_in(app.board.render().plain)
    return len(names)


def test_no_more_topics_are_asked_for_than_there_is_room_for(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        rows = await by_name(app, pilot)
        assert rows < TOPICS
        while len(app.board.look.activity.topics) != rows:
            await asyncio.sleep(0.02)
        await pilot.press("pagedown")
        await seen(app, f"{rows + 1} to {2 * rows} of {TOPICS}", f"topic-{rows:02}")
        await pilot.press("end")
        await seen(app, f"to {TOPICS} of {TOPICS}", "topic-59")
        await pilot.press("home")
        await seen(app, f"1 to {rows} of {TOPICS}", "topic-00")

    converse(node.address, talk)


def test_the_bar_goes_on_where_the_page_ends(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        rows = await by_name(app, pilot)
        for _ in range(rows):
            await pilot.press("down")
        await seen(app, f"2 to {rows + 1} of {TOPICS}", f"topic-{rows:02}")
        await pilot.press("enter")
        await seen(app, f"TOPIC topic-{rows:02}")

    converse(node.address, talk)


def test_a_terminal_that_shrinks_keeps_the_bar_on_its_topic(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        rows = await by_name(app, pilot)
        await pilot.press(*["down"] * (rows - 1))
        await pilot.resize_terminal(100, 16)
        await seen(app, f" to {rows} of {TOPICS}", f"topic-{rows - 1:02}")
        await pilot.press("enter")
        await seen(app, f"TOPIC topic-{rows - 1:02}")

    converse(node.address, talk)


def test_a_search_finds_topics_by_words_in_any_case_and_escape_forgets_it(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", "5", "space", "O", "P", "I", "C", "minus", "q", "backspace")
        text = await seen(app, "search: 5 OPIC-", f"of 15 that match '5 OPIC-', of {TOPICS}")
        assert "topic-05" in text
        await pilot.press("enter", "s")
        await seen(app, "by records out", "that match")
        await pilot.press("escape")
        await seen(app, f"of {TOPICS}  by")

    converse(node.address, talk)


def test_a_topic_s_details_are_its_settings_cursors_and_partitions(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", "5", "8", "enter")
        await seen(app, "1 to 1 of 1 that match")
        await pilot.press("enter")
        await seen(app, "TOPIC topic-58", "retention.age_ms", "1d", "billing", "58", "PARTITIONS 1")
        await pilot.press("escape")
        await seen(app, "TOPICS 1 to 1 of 1")

    converse(node.address, talk)


def test_a_topic_that_is_deleted_while_it_is_looked_at_says_so(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        async with connect(node.address) as broker:
            await broker.create_topic("passing")
            await pilot.press("slash", *"passing", "enter")
            await seen(app, "1 to 1 of 1 that match")
            await pilot.press("enter")
            await seen(app, "TOPIC passing", "PARTITIONS 1")
            await broker.delete_topic("passing")
        await seen(app, "there is no such topic any more")

    converse(node.address, talk)


def test_what_was_refused_is_listed(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        async with connect(node.address) as broker:
            with pytest.raises(Exception, match="leading _"):
                await broker.create_topic("_hidden")
        await seen(app, "INCIDENTS", "TopicNotAllowed")
        await pilot.press("i")
        await seen(app, "WHAT IS WRONG NOW", "LATELY", "_hidden")
        await pilot.press("i", "h")
        await seen(app, "KEYS", "COLUMNS")

    converse(node.address, talk, (120, 60))


def test_while_it_is_paused_nothing_changes_but_what_was_asked_for(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        await seen(app, "nothing is wrong")
        await pilot.press("p")
        await seen(app, "PAUSED")
        await pilot.press("slash", "5", "8", "enter")
        await seen(app, "PAUSED", "1 to 1 of 1 that match '58'")
        while app.board.look.view != app.board.view:
            await asyncio.sleep(0.02)
        stats = app.board.look.stats
        await asyncio.sleep(0.5)
        assert app.board.look.stats is stats
        await pilot.press("p")
        while app.board.look.stats is stats:
            await asyncio.sleep(0.02)

    converse(node.address, talk)


def test_rates_are_seen_while_somebody_writes(node: NodeProcess) -> None:
    async def talk(app: TopApp, pilot: Pilot[int]) -> None:
        async with connect(node.address) as broker:
            await broker.create_topic("busy")
            while not app.board.look.activity.topics[0].records_in:
                await broker.append([Part("busy", [build([b"x"] * 100)])], "durable")
                await asyncio.sleep(0.05)
            await seen(app, "busy")
            await broker.delete_topic("busy")

    converse(node.address, talk)
