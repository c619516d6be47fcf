"""Runs one hook: a command of the user's, in a shell, with a time limit, whatever it prints and leaves behind.

`run_hook` blocks and is meant for a thread. The command runs as `/bin/sh -c`, in a session and process group of its
own, in `/`, with nothing on its standard input, and with the server's environment and ours.

Invariant: when `run_hook` returns or raises, the shell has been reaped, the rest of its process group was killed, and
the pipe is closed. A process that left the group (`setsid`) is not followed. One stuck in the kernel, which not even
SIGKILL ends, keeps the call waiting. What a hook prints costs a fixed amount of memory and log, and never blocks it.

Success is exit code 0 within the time limit and nothing else: an outcome that is not known is a failure.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from logboom.storage.upkeep.hooks import HookEntry

SHELL: Final = "/bin/sh"
TICK_S: Final = 0.05
"""How often the shell and the stop event are looked at while nothing is printed."""
LINGER_S: Final = 0.2
"""How long output is awaited from what the shell left behind."""
TERM_GRACE_S: Final = 5.0
"""How long a hook that is told to end may take for it."""
READ_BYTES: Final = 65536
"""As much as a pipe holds: one read empties it."""
LINES_MAX: Final = 200
LINE_CHARACTERS_MAX: Final = 1000
TAIL_BYTES: Final = 2048
_LINE_BYTES_MAX: Final = 4 * LINE_CHARACTERS_MAX  # no character of UTF-8 is longer
_CONTROLS: Final = dict.fromkeys((*range(9), *range(10, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """How a run of a hook ended."""

    code: int | None
    """The exit code; None where it did not exit by itself."""
    seconds: float
    error: str | None
    """Why it counts as failed; None where it succeeded."""
    output_tail: str
    """The end of what it printed."""


def environment_of(entry: HookEntry, topic: str, topic_id: str, segment: str, size_bytes: int) -> dict[str, str]:
    """What a delete hook is told. LAST is inclusive: of a segment without records it is one below FIRST."""
    told = {
        "EVENT": "delete",
        "TOPIC": topic,
        "TOPIC_ID": topic_id,
        "PARTITION": entry.partition,
        "SEGMENT": os.path.abspath(segment),
        "FIRST_SEQNO": entry.first_seqno,
        "LAST_SEQNO": entry.next_seqno - 1,
        "FIRST_INDEX": entry.first_index,
        "LAST_INDEX": entry.next_index - 1,
        "BYTES": size_bytes,
        "REASON": entry.reason,
        "ATTEMPT": entry.attempts + 1,
    }
    return {f"LOGBOOM_{name}": str(value) for name, value in told.items()}


def run_hook(
    command: str,
    environment: Mapping[str, str],
    timeout_s: float,
    log_line: Callable[[str], None],
    stop: threading.Event | None = None,
    term_grace_s: float = TERM_GRACE_S,
    is_hurried: Callable[[], bool] = lambda: False,
) -> HookOutcome:
    """Run a command to its end. At the time limit, or when `stop` is set, its group gets SIGTERM, and later SIGKILL.

    Later is after `term_grace_s`, or as soon as `is_hurried`.
    """
    begun = time.monotonic()
    stop = stop or threading.Event()
    if stop.is_set():
        return HookOutcome(None, 0.0, "stopped", "")
    try:
        process = _start(command, environment)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return HookOutcome(None, time.monotonic() - begun, f"cannot be started: {error}", "")
    output = Output(log_line)
    run = _Run(process, output, is_hurried)
    try:
        broken_off = run.follow(begun + timeout_s, timeout_s, stop, term_grace_s)
    finally:
        run.close()
    output.close()
    code, fault = run.verdict()
    return HookOutcome(code, time.monotonic() - begun, broken_off or fault, output.tail())


def _start(command: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [SHELL, "-c", command],
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={**os.environ, **environment},
        start_new_session=True,
    )


class _Run:
    """A shell that was started, and the pipe that it and its children print to.

    The shell is not reaped before its group was killed: until then nobody else can get its number.
    """

    def __init__(self, process: subprocess.Popen[bytes], output: Output, is_hurried: Callable[[], bool]) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = output
        self._is_hurried = is_hurried
        self._pipe = process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        self._is_open = True
        """Whether anybody can still print."""
        self._end: tuple[int, int] | None = None
        """How the shell ended: kind and number, as waitid has them."""
        self._is_lost = False
        """Somebody else reaped the shell: its exit code is not known."""

    def follow(self, deadline: float, timeout_s: float, stop: threading.Event, term_grace_s: float) -> str | None:
        """Until the shell has ended and its output is read; returns why it was broken off, if it was."""
        broken_off: str | None = None
        linger_s, kill_at = LINGER_S, float("inf")
        while not self._has_ended():
            now = time.monotonic()
            if broken_off is None and (now >= deadline or stop.is_set()):
                broken_off = "stopped" if stop.is_set() else f"took longer than {timeout_s:g} s"
                self._signal(signal.SIGTERM)
                kill_at = now + term_grace_s
            elif now >= kill_at or (broken_off is not None and self._is_hurried()):
                self._signal(signal.SIGKILL)
            self._read(TICK_S)
        if broken_off is not None:  # what got a SIGTERM has the whole time to end properly
            linger_s = max(0.0, kill_at - time.monotonic())
        self._linger(time.monotonic() + linger_s)
        return broken_off

    def _linger(self, until: float) -> None:
        """Read on for a while. The first read alone gets all that the shell itself left in the pipe."""
        self._read(0.0)
        while self._is_open and not self._is_hurried() and (left_s := until - time.monotonic()) > 0:
            self._read(min(left_s, TICK_S))

    def _read(self, wait_s: float) -> None:
        """Take what was printed, or wait for it a little."""
        if not self._is_open:
            time.sleep(wait_s)
        elif self._poll.poll(wait_s * 1000):
            data = self._pipe.read(READ_BYTES)
            self._is_open = data != b""
            self._output.feed(data or b"")

    def _has_ended(self) -> bool:
        try:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self._is_lost = True
            return True
        if ended is not None:
            self._end = ended.si_code, ended.si_status
        return ended is not None

    def _signal(self, number: int) -> None:
        if not self._is_lost:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Kill what is left of the group, reap it, close the pipe.

        Orphans of the group are children of ours where the server is the first process of a container.
        """
        self._signal(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while not self._is_lost:
                os.waitpid(-self._process.pid, 0)
        self._process.wait()
        self._pipe.close()

    def verdict(self) -> tuple[int | None, str | None]:
        """The exit code, and what is wrong with it."""
        if self._end is None:
            return None, "ended, and its exit code is not known: something else reaped it"
        kind, number = self._end
        if kind == os.CLD_EXITED and number == 0:
            return 0, None
        told = f"exit code {number}" if kind == os.CLD_EXITED else f"killed by signal {_name(number)}"
        last = self._output.last_line()
        return number if kind == os.CLD_EXITED else None, f"{told}: {last}" if last else told


def _name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


class Output:
    """What a hook prints, on its way to the log: bounded lines, without what a terminal would obey.

    Memory holds at most the start of one line and the tail; after `LINES_MAX` lines the rest is only counted.
    """

    def __init__(self, log_line: Callable[[str], None]) -> None:
        self._log_line = log_line
        self._line = bytearray()
        self._line_bytes = 0
        """Of the line that is not complete yet, also of what was not kept."""
        self._lines = 0
        self._lines_skipped = 0
        self._bytes_skipped = 0
        self._tail = b""

    def feed(self, data: bytes) -> None:
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        start = 0
        while self._lines < LINES_MAX and (end := data.find(b"\n", start)) >= 0:
            self._keep(data, start, end)
            self._pass_on()
            start = end + 1
        if self._lines < LINES_MAX:
            self._keep(data, start, len(data))
        else:
            self._skip(data, start)

    def close(self) -> None:
        """The end: a last line without a newline is a line too."""
        if self._line_bytes and self._lines < LINES_MAX:
            self._pass_on()
        elif self._line_bytes:
            self._lines_skipped += 1
        if self._bytes_skipped:
            self._log_line(f"… {self._lines_skipped:,} more lines, {self._bytes_skipped:,} bytes not logged")

    def tail(self) -> str:
        """The last of it, decoded."""
        return self._tail.decode("utf-8", "replace")

    def last_line(self) -> str:
        """The last line that is not blank; empty where there is none."""
        lines = self.tail().translate({**_CONTROLS, 10: "\n", 13: "\n"}).split("\n")
        return next((line.strip()[:LINE_CHARACTERS_MAX] for line in reversed(lines) if line.strip()), "")

    def _keep(self, data: bytes, start: int, end: int) -> None:
        self._line += data[start : min(end, start + _LINE_BYTES_MAX - len(self._line))]
        self._line_bytes += end - start

    def _pass_on(self) -> None:
        whole = self._line.decode("utf-8", "replace").removesuffix("\r")
        text = whole[:LINE_CHARACTERS_MAX]
        if self._line_bytes > len(self._line) or len(text) < len(whole):
            self._bytes_skipped += max(0, self._line_bytes - len(text.encode()))
        self._lines += 1
        self._line.clear()
        self._line_bytes = 0
        self._log_line(text.translate(_CONTROLS))

    def _skip(self, data: bytes, start: int) -> None:
        """Only count."""
        newline = data.rfind(b"\n", start)
        self._lines_skipped += data.count(b"\n", start)
        self._bytes_skipped += len(data) - start
        self._line_bytes = self._line_bytes + len(data) - start if newline < 0 else len(data) - newline - 1
