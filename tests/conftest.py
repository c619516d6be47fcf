from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import settings

from support import scratch
from support.budget import FILE, Spending, share_budget

settings.register_profile("logboom", deadline=None, print_blob=True)
settings.load_profile("logboom")
scratch.settle()

SPENDING = pytest.StashKey[Spending]()


@pytest.fixture(scope="session", autouse=True)
def signals_for_children() -> None:
    """Children inherit an ignored signal (`nohup`, `make test &`), but not a handler: theirs are the default ones.

    The tests themselves stay as deaf as they were started. Each worker does this for its own children.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """As `tmp_path`, but on a disk also where that is in memory."""
    with scratch.on_disk() as path:
        yield path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run only when asked for: `pytest -m soak`."""
    if "soak" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="long: pytest -m soak"))


def pytest_configure(config: pytest.Config) -> None:
    """In CI the controller adds up what each folder takes; workers have a reporter of their own and print nothing."""
    if os.environ.get("CI") == "true" and not hasattr(config, "workerinput"):
        spending = config.stash[SPENDING] = Spending(share_budget())
        config.pluginmanager.register(Accountant(spending))


class Accountant:
    """Adds up seconds, and remembers who was skipped: in CI that is a failure, for nobody would see it."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spending.add(report.nodeid, report.duration)
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        for test in self._skipped:
            terminalreporter.write_line(f"SKIPPED in CI, where nothing may be: {test}", red=True)


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Where the time went. A folder over its budget is said aloud, and fails nothing: machines differ."""
    spending = config.stash.get(SPENDING, None)
    if spending is None:
        return
    terminalreporter.section("seconds by folder")
    for line in spending.lines():
        terminalreporter.write_line(line, red="OVER" in line)
    if over := spending.over():
        terminalreporter.write_line(
            f"WARNING: {', '.join(over)} took longer than {FILE.name} allows", red=True, bold=True
        )
