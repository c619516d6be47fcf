"""The process of a node, from its first line on standard error to its exit code.

The first SIGTERM or SIGINT ends it properly: what was promised is kept, everything is synced, and that within a
deadline which holds even if the event loop hangs. The second one ends it at once; the next start recovers. SIGHUP is no
signal to end: certificates are read again, and the rest of the configuration counts from the next start.

Exit codes: 0 ended as it should, 1 something written could not be made durable, or the deadline passed, 2 it could not
start, 130 and 143 ended at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from logboom.broker.caller import ITSELF
from logboom.broker.monitor.checkup import exposure
from logboom.broker.wording import printable_lines
from logboom.errors import LogboomError
from logboom.server.node import Node
from logboom.server.screen import Ready, describe
from logboom.server.security.file_modes import umask_of
from logboom.server.sources import LoadedConfig

ENDED, BROKEN, UNABLE = 0, 1, 2
GRACE_S: Final = 1.0
"""So long after the deadline the process ends, whatever it does."""
TOLD_MAX: Final = 20
YOUNG_OBJECTS: Final = 10_000
"""More than this since the last time, and the collector looks for cycles among them."""
logger = logging.getLogger("logboom.server")


def run(loaded: LoadedConfig, ready_file: str | None = None, as_json: bool = False) -> int:
    """Serve until told to end; returns the exit code."""
    _log_to_stderr(loaded.config.log_level)
    os.umask(umask_of(loaded.config.access.files_group))
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        stop = Stop(runner.get_loop())
        return runner.run(_serve(loaded, stop, ready_file, as_json))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Stop:
    """Signals that end the process. Handled between any two instructions, not only when the loop comes round."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.asked = asyncio.Event()
        self.on_hang_up: Callable[[], object] = lambda: None
        """Called in the event loop, on SIGHUP."""
        self._loop = loop
        self._received = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)

    def _end(self, number: int, _: object) -> None:
        name = signal.Signals(number).name
        if self._received:
            end_at_once(f"a second signal, {name}: ended at once; the next start recovers", 128 + number)
        self._received = True
        say(f"{name}: ending; once more ends at once")
        self._loop.call_soon_threadsafe(self.asked.set)

    def _note(self, number: int, _: object) -> None:
        say("SIGHUP: certificates are read again; the rest of the configuration counts from the next start")
        self._loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        self.on_hang_up()


def say(text: str) -> None:
    """One line on standard error, from anywhere: a handler of signals may have interrupted the logging."""
    with contextlib.suppress(OSError):
        os.write(2, f"logboom: {printable_lines(text)}\n".encode())


def end_at_once(text: str, code: int) -> None:
    say(text)
    os._exit(code)


async def _serve(loaded: LoadedConfig, stop: Stop, ready_file: str | None, as_json: bool) -> int:
    node = await _open(loaded, stop)
    if not isinstance(node, Node):
        return node
    if node.certificates is not None:
        stop.on_hang_up = node.certificates.refresh
    deadline_s = loaded.config.shutdown_deadline_ms / 1000
    ready = Ready.of(node)
    code = ENDED
    try:
        await _announce(node, ready, loaded, ready_file, as_json)
        threading.Thread(target=_settle_in, name="logboom-load").start()
        await stop.asked.wait()
    except OSError as error:
        logger.error("the ready file cannot be written: %s: name a path this user may write to", error)
        code = UNABLE
    watchdog = threading.Timer(deadline_s + GRACE_S, end_at_once, ("the deadline has passed: ended at once", BROKEN))
    watchdog.daemon = True
    watchdog.start()
    if ready_file is not None:
        _withdraw(ready_file, ready)
    try:
        await node.close(deadline_s)
    except TimeoutError:
        logger.error("not everything was done within %.1f s; the next start recovers", deadline_s)
        code = BROKEN
    except (LogboomError, OSError) as error:
        logger.error("not everything could be made durable: %s", error)
        code = BROKEN
    watchdog.cancel()
    if code != ENDED:
        logging.shutdown()
        os._exit(code)  # threads that hang in a system call would keep the process
    logger.info("ended; everything is on disk")
    return code


async def _open(loaded: LoadedConfig, stop: Stop) -> Node | int:
    """The node, or the exit code where there is none."""
    for variable in loaded.ignored:
        logger.info("%s in the environment is no setting of a node", variable)
    opening = asyncio.create_task(Node.open(loaded, stop.asked.set))
    asked = asyncio.create_task(stop.asked.wait())
    await asyncio.wait((opening, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not opening.done():
        end_at_once("ended before it was ready", ENDED)
    try:
        return opening.result()
    except PermissionError as error:
        say(f"{error.filename}: {error.strerror}: run as the user that owns it, or name another directory with --data")
    except (LogboomError, OSError) as error:
        say(f"cannot start: {error}")
    return UNABLE


async def _announce(node: Node, ready: Ready, loaded: LoadedConfig, ready_file: str | None, as_json: bool) -> None:
    *found, summary = node.broker.recovered
    for line in found[:TOLD_MAX]:
        logger.warning("%s", line)
    if len(found) > TOLD_MAX:
        logger.warning("and %d more like these; `logboom doctor %s` tells all", len(found) - TOLD_MAX, ready.directory)
    logger.info("%s", summary)
    for protocol, endpoints in node.endpoints.items():
        for endpoint in endpoints:
            if not endpoint.is_local and loaded.config.access.insecure:
                logger.warning("insecure, at %s (%s): %s", endpoint, protocol, exposure(loaded.config.anonymous))
    if loaded.config.anonymous == "none" and not await node.broker.list_users(caller=ITSELF):
        logger.warning(
            "there are no users yet: `logboom user add NAME --role admin --data %s` makes the first", ready.directory
        )
    if ready_file is not None:
        _publish(ready_file, ready)
    text = (
        ready.to_json().decode()
        if as_json
        else describe(ready, await node.broker.stats(caller=ITSELF), loaded, node.connections_max)
    )
    try:
        print(text, end="" if as_json else "\n", flush=True)
    except OSError:  # nobody is looking, and at the end nobody will either
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _settle_in() -> None:
    """Import what the first large batch or filter would, while everybody waits; and spare the collector all of it.

    Else it looks at every module again and again, which takes tens of milliseconds, and at every request under way
    after each seven hundred objects.
    """
    import pyarrow.compute  # noqa: F401

    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def _publish(path: str, ready: Ready) -> None:
    """Whole or not there."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(ready.to_json())
    os.replace(temporary, path)


def _withdraw(path: str, ready: Ready) -> None:
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            ours = file.read() == ready.to_json()
        if ours:
            os.unlink(path)


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
