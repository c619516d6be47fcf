"""A signal ends a command also where Python loses the exception that it raises: in a callback of its own."""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Iterator

import pytest

from logboom.cli.signals import ending_as_interrupted


class Thing:
    """Something whose end a callback is told of."""


def lose(number: signal.Signals) -> None:
    """It comes while Python runs a callback, and ignores what that raises; then there is long nothing."""
    thing = Thing()
    watched = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert watched() is None
    time.sleep(300)


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """As in a terminal, also where the tests were started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_in_a_callback_of_python_ends_the_command_all_the_same(number: signal.Signals) -> None:
    with ending_as_interrupted() as ended:
        with pytest.raises(KeyboardInterrupt):
            lose(number)
        assert ended() == (143 if number == signal.SIGTERM else None)
