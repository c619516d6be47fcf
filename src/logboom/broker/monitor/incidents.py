"""What was refused or went wrong lately: each different trouble once, with how often it came, first and last.

Bounded, whatever comes: so many incidents, of which so many may be of one name, and each text is cut. Those that were
not seen for the longest go first; a flood of one kind displaces its own, not the others. Any thread may note one, also
while another is being noted: the garbage collector can make a logger speak at any moment.

`listening` feeds it with what the node's loggers warn of, from then until it is left. Nothing here is ever logged, and
nobody else hears less: where a program has set up no logging, warnings go to stderr as they would without it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final, Literal

from logboom.broker.monitor.activity import Incident
from logboom.broker.wording import printable
from logboom.broker.world import REAL

INCIDENTS_MAX: Final = 200
SAME_MAX: Final = 50
"""Different texts of one name."""
TEXT_MAX: Final = 300
LOGGERS: Final = ("logboom", "asyncio")
"""The second one tells of errors that nobody expected."""
_LATER_MAX: Final = 16

Kind = Literal["rejection", "warning", "error"]
Key = tuple[Kind, str, str]


class Incidents:
    def __init__(self, now_us: Callable[[], int] = REAL.now_us) -> None:
        self._now_us = now_us
        self._seen: OrderedDict[Key, list[int]] = OrderedDict()
        """How often, first and last; by kind, name and text as it was said. Those seen last are at the end."""
        self._keys: dict[str, OrderedDict[Key, None]] = {}
        """Those of each name, in the same order."""
        self._lock = RLock()
        self._is_busy = False
        self._later: deque[Key] = deque(maxlen=_LATER_MAX)

    def note(self, kind: Kind, name: str, text: str) -> None:
        now = self._now_us()
        with self._lock:
            if self._is_busy:  # this thread is noting one
                self._later.append((kind, name, text[:TEXT_MAX]))
                return
            self._is_busy = True
            try:
                self._take((kind, name, text[:TEXT_MAX]), now)
                while self._later:
                    self._take(self._later.popleft(), now)
            finally:
                self._is_busy = False

    def recent(self) -> list[Incident]:
        """Newest first."""
        with self._lock:
            self._is_busy = True
            try:
                found = [(key, tuple(seen)) for key, seen in reversed(self._seen.items())]
            finally:
                self._is_busy = False
        return [Incident(kind, name, printable(text)[:TEXT_MAX], *seen) for (kind, name, text), seen in found]

    def _take(self, key: Key, now: int) -> None:
        seen, name = self._seen.get(key), key[1]
        if seen is not None:
            seen[0] += 1
            seen[2] = now
            self._seen.move_to_end(key)
            self._keys[name].move_to_end(key)
            return
        same = self._keys.get(name)
        if same is None:
            same = OrderedDict()
        if len(same) >= SAME_MAX:
            del self._seen[same.popitem(last=False)[0]]
        elif len(self._seen) >= INCIDENTS_MAX:
            self._drop_oldest()
        self._seen[key] = [1, now, now]
        same[key] = None
        self._keys[name] = same

    def _drop_oldest(self) -> None:
        oldest, _ = self._seen.popitem(last=False)
        same = self._keys[oldest[1]]
        del same[oldest]
        if not same:
            del self._keys[oldest[1]]


@contextmanager
def listening(incidents: Incidents) -> Iterator[None]:
    """While inside, what the node's loggers warn of is noted."""
    handler = _Listener(incidents)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


class _Listener(logging.Handler):
    def __init__(self, incidents: Incidents) -> None:
        super().__init__(logging.WARNING)
        self._incidents = incidents

    def createLock(self) -> None:  # noqa: N802
        """None: two threads, each with one lock, of which one speaks while it notes something, would wait for ever."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        self.emit(record)
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level and self._is_alone(record):
            logging.lastResort.handle(record)
        return True

    def _is_alone(self, record: logging.LogRecord) -> bool:
        """Whether nobody else hears of it; of several listeners the first one says so."""
        found: logging.Logger | None = logging.getLogger(record.name)
        heard: list[logging.Handler] = []
        while found is not None:
            heard += found.handlers
            found = found.parent if found.propagate else None
        return heard[:1] == [self] and all(isinstance(handler, _Listener) for handler in heard)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            error = record.exc_info[1] if record.exc_info else None
            if error is not None:
                text = f"{text}: {type(error).__name__}: {error}"
        except Exception:
            self.handleError(record)
            return
        kind: Kind = "error" if record.levelno >= logging.ERROR else "warning"
        self._incidents.note(kind, record.name.removeprefix("logboom."), text)
