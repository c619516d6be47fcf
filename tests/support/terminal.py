"""A command on a terminal of its own: what the terminal is given, byte by byte."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Sequence
from typing import NamedTuple


class Shown(NamedTuple):
    code: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()


def on_terminal(
    *arguments: str | bytes,
    typed: bytes = b"",
    columns: int = 400,
    answers: Sequence[tuple[bytes, bytes]] = (),
    **environment: str,
) -> Shown:
    """Runs `logboom` to its end; both of its standard streams are the terminal. `typed` waits for whoever reads it.

    Of `answers` each is a question and what is typed once that stands there: a password typed sooner would be lost.
    """
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update({"TERM": "dumb", **environment})
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "logboom", *arguments])
    if typed:
        os.write(terminal, typed)
    said, seen, waiting = bytearray(), 0, list(answers)
    try:
        while some := os.read(terminal, 65536):
            said += some
            while waiting and waiting[0][0] in said[seen:]:
                question, answer = waiting.pop(0)
                seen = said.index(question, seen) + len(question)
                os.write(terminal, answer)
    except OSError:
        pass  # Linux says so of a terminal that nobody has open any more
    finally:
        os.close(terminal)
    return Shown(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), bytes(said).replace(b"\r\n", b"\n"))
