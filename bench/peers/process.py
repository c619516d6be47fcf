"""A server as a child process: started, waited for, and stopped by its own id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
STOP_S = 10.0


class Missing(Exception):
    """A program that is not installed here."""


def find_program(*names: str) -> str:
    """The first of these that is installed; names with a slash are paths."""
    for name in names:
        if found := shutil.which(name, path=None if "/" in name else f"{os.environ['PATH']}:/usr/sbin:/usr/lib/bin"):
            return found
    raise Missing(f"{names[0]} is not installed")


def free_port() -> int:
    """A port of loopback that nobody uses now, for servers that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], log: str, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """The process id, while it runs. It has a process group of its own, so that its children end with it.

    From then on a bench that is asked to stop stops what it has started, too.
    """
    signal.signal(signal.SIGTERM, _leave)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        _stop(process)


def connect(port: int, log: str) -> socket.socket:
    """A connection to a server that may still be starting."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=START_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"it did not start: {Path(log).read_text()[-1000:]}") from error
            time.sleep(0.05)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
