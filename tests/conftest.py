from __future__ import annotations

import signal

import pytest
from hypothesis import settings

settings.register_profile("logboom", deadline=None, print_blob=True)
settings.load_profile("logboom")


@pytest.fixture(scope="session", autouse=True)
def signals_for_children() -> None:
    """Children inherit an ignored signal (`nohup`, `make test &`), but not a handler: theirs are the default ones.

    The tests themselves stay as deaf as they were started. Each worker does this for its own children.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run only when asked for: `pytest -m soak`."""
    if "soak" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="long: pytest -m soak"))
